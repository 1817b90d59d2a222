"""When and how a run is evaluated, and what follows from a validation loss that stops falling."""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from resync.base.settings.base import Check, Count, NonNegativeNumber, PositiveInt, Settings, wrong
from resync.base.settings.units import EVALUATIONS, Epoch


class Plateau(Settings):
    """Learning-rate reductions when the validation loss stops falling (torch's ReduceLROnPlateau).

    They multiply the learning rate of the schedule. An improvement is one by 1e-4 of the loss. Evaluations before the
    end of the warm-up do not count.
    """

    factor: float = Field(gt=0, lt=1, description="factor of a reduction")
    patience: Annotated[Count, EVALUATIONS] = Field(
        default=10, description="consecutive evaluations without improvement that are tolerated; the next one reduces"
    )


class EarlyStopping(Settings):
    """An end of the training before the last epoch. Evaluations before the end of the warm-up do not count."""

    patience: Annotated[PositiveInt, EVALUATIONS] = Field(
        default=50, description="consecutive evaluations without a new best validation loss after which it ends"
    )
    min_delta: NonNegativeNumber = Field(default=0.0, description="smallest improvement that counts, in nats")


class BeamSearch(Settings):
    """Beam search for translations."""

    beam_size: PositiveInt = Field(description="hypotheses per sentence; 1 is greedy decoding")
    length_penalty: NonNegativeNumber = Field(
        description="exponent of the length by which a log probability is divided; 0 favours short sentences",
    )


class Evaluation(Settings):
    """When and how the consensus model is evaluated, and what else."""

    every_epochs: PositiveInt = Field(default=1, description="epochs between two evaluations")
    at: Literal["rounds"] | None = Field(
        default=None,
        description="rounds: not at the end of the epoch but of the last round that ends by then, so that only models "
        "that the algorithm makes are evaluated; null: at the end of the epoch",
    )
    every_rounds: PositiveInt | None = Field(
        default=None,
        description="rounds (steps, for algorithms without them) between two evaluations; null: every_epochs decides",
    )
    also: Literal["workers"] | None = Field(
        default=None,
        description="workers: every worker's own model too, with its own BatchNorm statistics, on all validation "
        "samples; their mean, smallest and largest metrics are columns of their own; null: the consensus alone",
    )
    bn_batches: Count = Field(
        default=0,
        description="training batches from which the BatchNorm statistics are re-estimated before an evaluation; 0, "
        "for a single worker: its running statistics",
    )
    swa_from: Epoch | None = Field(
        default=None,
        description="epoch from which on the evaluated models are averaged, each once; their mean so far is evaluated "
        "beside them (stochastic weight averaging, Izmailov et al. 2018, at the learning rate of the run); null: not",
    )
    sharpness_batches: PositiveInt | None = Field(
        default=None,
        description="training batches from which the trace of the Hessian of the training loss is estimated; "
        "null: it is not",
    )
    beam_search: BeamSearch | None = Field(
        default=None, description="how the test sentences are translated, for BLEU; null: they are not"
    )
    random_batches: PositiveInt | None = Field(
        default=None,
        description="random validation batches of a worker's size on which val_loss_estimate is measured, as nanoGPT "
        "does; null: it is not",
    )
    sample_characters: PositiveInt | None = Field(
        default=None,
        description="characters that the model writes at the end of the training, into sample.txt; null: none",
    )

    def checks(self) -> Iterator[Check]:
        if self.every_rounds and self.every_epochs != 1:
            yield wrong("every_epochs", f"{self.every_epochs} beside every_rounds", "1, or without every_rounds")
        if self.every_rounds and self.at:
            yield wrong("at", f"{self.at} beside every_rounds", "null, or without every_rounds")
