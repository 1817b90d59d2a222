"""What a workflow and its runs are doing, while they do it: for a terminal, and as plain lines for a pipe.

The view of a workflow is fed with what happens to its jobs (`snakemake_logger_plugin_resync` tells it what Snakemake
logs); where its runs are it reads from their folders, like `resync status`.
"""

from resync.tools.progress.board import Board, Job
from resync.tools.progress.view import View, colored, watch

__all__ = ["Board", "Job", "View", "colored", "watch"]
