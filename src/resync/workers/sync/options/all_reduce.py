"""Options of algorithms that average over all workers in every step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from resync.base.settings.base import Check, wrong
from resync.base.settings.units import LocalSteps
from resync.workers.sync.options.base import EngineNeeds, Look, SyncOptions, Traffic


class AllReduce(SyncOptions):
    """Synchronous data-parallel training, gradients or parameters averaged over all workers in every step.

    Sends an all-reduce of the gradients in every step, or of the parameters, as Assran et al. (2019) did.

        sync = resync.attach(model, optimizer, resync.AllReduce(), clip_norm=1.0)
    """

    can_be_base = True
    label = "AR-SGD"
    look = Look("black", "o", "solid")
    name: Literal["allreduce"] = Field(default="allreduce", init=False)
    average: Literal["gradients", "parameters"] = Field(
        default="gradients",
        description="gradients: before the optimizer step; parameters: after the step of every worker's own optimizer, "
        "like the baselines of the SGP paper",
    )
    all_reduce: Literal["default", "ring", "recursive_doubling"] = Field(
        default="default",
        description="default: that of the communication library; ring, recursive_doubling: made of messages between "
        "two processes, each of which sends 2 (W - 1) messages of 1/W of a vector, or log2 W whole vectors",
    )

    @property
    def needs(self) -> EngineNeeds:
        gradients = self.average == "gradients"
        return EngineNeeds(average_gradients=gradients, engine_may_average=gradients and self.all_reduce == "default")

    @property
    def traffic(self) -> Traffic:
        return Traffic(all_reduce=self.all_reduce)


class GPA(SyncOptions):
    """Generalised primal averaging, gradients between the optimizer's iterate and its average (Defazio et al. 2025).

    It smooths the outer steps of DiLoCo with one worker over all steps, so that there are no rounds.

    Sends an all-reduce of the gradients in every step. `consensus()` gives the average of the iterates.

        sync = resync.attach(model, optimizer, resync.GPA(h=32))
    """

    label = "GPA"
    look = Look("purple", "<", "dash-dot")
    needs: ClassVar[EngineNeeds] = EngineNeeds(average_gradients=True, engine_may_average=True)
    traffic: ClassVar[Traffic] = Traffic()
    name: Literal["gpa"] = Field(default="gpa", init=False)
    mu_y: Annotated[float, Field(gt=0, le=1)] = Field(
        default=0.7, description="weight of the average in the point at which gradients are taken"
    )
    mu_x: Annotated[float, Field(ge=0, lt=1)] = Field(
        default=0.9967, description="weight of the previous average in the average"
    )
    h: LocalSteps | None = Field(
        default=None,
        description="the H of the DiLoCo that is smoothed, from which mu_x = 0.9^(1/H) follows, as in the authors' "
        "table; null: mu_x itself",
    )

    def checks(self) -> Iterator[Check]:
        if self.h is not None and self.mu_x != type(self).model_fields["mu_x"].default:
            yield wrong("mu_x", f"{self.mu_x:g} beside h", "one of the two")

    @property
    def weight(self) -> float:
        return self.mu_x if self.h is None else 0.9 ** (1 / self.h)
