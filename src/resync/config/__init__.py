"""Typed, validated configuration: the only place that reads YAML.

Importing this package imports neither torch nor pandas, numpy or snakemake: every cluster job does it.
"""

from resync.config.run import Run
from resync.config.suite import Suite, load_suite
from resync.settings.errors import ConfigError

__all__ = ["ConfigError", "Run", "Suite", "load_suite"]
