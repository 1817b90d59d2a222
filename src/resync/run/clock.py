"""The virtual clock of a run: how long what its workers do takes in simulated time."""

from collections.abc import Iterator

from pydantic import Field

from resync.settings.base import Check, PositiveNumber, Settings, Several, wrong


class VirtualClock(Settings):
    """Simulated time, which depends on no machine; the same seed gives the same times."""

    step_seconds: Several[PositiveNumber] = Field(
        min_length=1, description="seconds of a local step: one number, or one for each worker"
    )

    def checks_for(self, workers: int) -> Iterator[Check]:
        """Require a time for each worker."""
        if len(self.step_seconds) not in (1, workers):
            yield wrong("step_seconds", f"{len(self.step_seconds)} numbers", f"1, or workers = {workers}")

    def seconds(self, worker: int, steps: int) -> float:
        """How long steps of a worker take."""
        return steps * self.step_seconds[worker % len(self.step_seconds)]
