"""What a run is: one training with every setting resolved.

Importing this package imports neither torch nor pandas, numpy or snakemake: every cluster job does it.
"""

from resync.runs.run.run import Run

__all__ = ["Run"]
