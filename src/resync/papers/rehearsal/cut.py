"""A run as its rehearsal: the same settings for some steps."""

from typing import Any

from resync.base.settings.base import PACKAGE
from resync.base.settings.loader import dump, parse
from resync.base.settings.tree import without
from resync.base.settings.validation import validated
from resync.runs.run import Run
from resync.runs.run.reduction import shortened
from resync.tasks.prepare.availability import availability

STEPS = 22
AFTER = 2
"""Steps after the one at which a rehearsal is stopped."""
_START = ("start_from", "start_state", "start_checkpoint", "start_hash")


def on_noise(run: Run) -> bool:
    """Whether the data of a run are not prepared, so that its rehearsal has noise of their shape."""
    return run.data.component.is_prepared and availability(run.data.component).found != "prepared"


def cut(run: Run) -> tuple[Run, int]:
    """The rehearsal of a run, and the step at which it is stopped.

    It begins with the weights of its seed. It evaluates before its first step and after its last one; asynchronous
    workers, which stop where they are evaluated, also in the middle.
    """
    asynchronous = getattr(run.sync, "asynchronous", False)
    steps = STEPS // 2 if asynchronous else STEPS
    epochs = 2 if asynchronous else min(run.epochs, -(-steps // run.steps_per_epoch))
    node = shortened(
        without(parse(run.to_yaml(), run.id), *_START, "overrides", "checkpoint", "log"), run, epochs, steps
    )
    content: dict[str, Any] = node.plain()
    evaluation = {
        key: value for key, value in content.get("evaluation", {}).items() if key not in ("every_rounds", "at")
    }
    content |= {
        "evaluation": evaluation | {"every_epochs": 1 if asynchronous else content["epochs"]},
        "checkpoint": {"keep": 1},
        "log": {"every_steps": 1, "wandb": "disabled"},
    }
    if on_noise(run):
        tokens = run.data.options.get("max_tokens")
        content["data"] = {"name": "noise", "facts_of": dict(run.facts)} | ({"max_tokens": tokens} if tokens else {})
        content.pop("heterogeneity", None)
    total = content["epochs"] * content["steps_per_epoch"]
    content["overrides"] = [f"rehearsal={total}"]
    rehearsal = validated(Run, parse(dump(content), f"rehearsal of {run.id}"), PACKAGE)
    return rehearsal, content["steps_per_epoch"] if asynchronous else max(1, total - AFTER)
