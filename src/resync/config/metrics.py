"""The metrics that figures and tables show."""

from typing import Literal

DrawnMetric = Literal["val_top1", "val_loss", "sharpness", "train_loss", "lr"]
"""A column of metrics.csv that a curve can show."""

TabledMetric = Literal[
    "val_top1", "val_loss", "best_val_top1", "best_train_loss", "best_val_loss", "test_bleu", "best_test_bleu",
    "volume_percent", "hours", "communication_hours", "seconds_per_step",
]  # fmt: skip
"""A number at the end of a run that a table can show."""
