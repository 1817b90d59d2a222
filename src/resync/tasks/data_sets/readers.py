"""The key `reader` of a data set: how training reads the prepared data, and the options of a run for it."""

from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from resync.base.settings.base import (
    Check,
    Count,
    Items,
    NonNegativeNumber,
    PositiveInt,
    PositiveNumber,
    Settings,
    wrong,
)
from resync.tasks.data_sets.preparation import CharacterPreparation, Preparation, TextPreparation

Prepared = Preparation | TextPreparation | CharacterPreparation | None
"""The preparation of a data set, if it has one."""

RunOptions = dict[str, tuple[Any, Any]]
"""Options of a run by name: their types and pydantic fields."""

EXECUTION = frozenset({"decoders"})
"""Options of reading that do not affect the result: they are not in the hash of a run."""


class RandAugmentSettings(Settings):
    """RandAugment with the operations and ranges of the library composer (Cubuk et al. 2020; Gu et al. 2024)."""

    depth: PositiveInt = Field(default=2, description="operations on each image, each drawn from the same 13")
    severity: float = Field(
        default=10.0,
        gt=0,
        le=10,
        description="largest strength of an operation, from 0 (no effect) to 10; each use draws its own",
    )


_PREPARED: dict[str, tuple[Callable[[Prepared], bool], str]] = {
    "memory": (
        lambda prepared: isinstance(prepared, Preparation) and not prepared.streaming,
        "with prepare, and without streaming in it",
    ),
    "stream": (
        lambda prepared: isinstance(prepared, Preparation) and bool(prepared.streaming),
        "with prepare, and with streaming in it",
    ),
    "text": (lambda prepared: isinstance(prepared, TextPreparation | None), "with prepare_text"),
    "characters": (lambda prepared: isinstance(prepared, CharacterPreparation | None), "with prepare_characters"),
    "functions": (lambda prepared: prepared is None, "without a preparation"),
    "noise": (lambda prepared: prepared is None, "without a preparation"),
}
"""How data are prepared that each kind of reader can read: the condition, and in words."""


class _Reader(Settings):
    """`options` are those of a run by name."""

    kind: str

    def conflicts(self, options: Mapping[str, Any], declared: Mapping[str, Any]) -> Iterator[Check]:
        """Yield contradictions between the options of a run, each of which is valid on its own, or to the facts."""
        return iter(())

    def facts(self, options: Mapping[str, Any], declared: Mapping[str, Any]) -> Mapping[str, Any]:
        """The facts about the data set with the options of a run, from the declared ones."""
        return declared

    def problems(self, prepared: Prepared, facts: dict[str, Any]) -> Iterator[Check]:
        """Yield contradictions to the rest of the declaration."""
        fits, allowed = _PREPARED[self.kind]
        if not fits(prepared):
            yield wrong(("reader", "kind"), self.kind, allowed)


class _Images(_Reader):
    mean: Items[float] = Field(min_length=1, description="mean of every channel, of pixels from 0 to 1")
    std: Items[PositiveNumber] = Field(min_length=1, description="standard deviation of every channel")

    def problems(self, prepared: Prepared, facts: dict[str, Any]) -> Iterator[Check]:
        yield from super().problems(prepared, facts)
        channels = facts.get("input_shape", [None])[0]
        for key in ("mean", "std"):
            if (number := len(getattr(self, key))) != channels:
                yield wrong(("reader", key), f"{number} numbers", f"{channels}, one for each channel")


class MemoryReader(_Images):
    """Images that are read into memory once; whole batches are cropped, flipped and normalised on the device."""

    kind: Literal["memory"]
    crop_padding: PositiveInt | None = Field(
        default=None, description="black pixels on every side for random crops; null: the images are not augmented"
    )

    def options(self) -> RunOptions:
        text = (
            "number of training images, the same ones in every run, that are kept from training and validated on in "
            "place of the validation images; null: 0"
        )
        options: RunOptions = {"held_out": (PositiveInt | None, Field(default=None, description=text))}
        if self.crop_padding is not None:
            crop_flip = f"a random crop after {self.crop_padding} pixels of padding, and a random horizontal flip"
            text = f"crop_flip: {crop_flip} (Gu et al. 2023)"
            options["augmentation"] = (Literal["none", "crop_flip"], Field(default="crop_flip", description=text))
        return options

    def facts(self, options: Mapping[str, Any], declared: Mapping[str, Any]) -> Mapping[str, Any]:
        held_out = options["held_out"]
        if held_out is None:
            return declared
        return {**declared, "train_samples": declared["train_samples"] - held_out, "val_samples": held_out}

    def conflicts(self, options: Mapping[str, Any], declared: Mapping[str, Any]) -> Iterator[Check]:
        if self.facts(options, declared)["train_samples"] < 1:
            allowed = f"null or less than the {declared['train_samples']} training samples"
            yield wrong("held_out", options["held_out"], allowed)


class StreamReader(_Images):
    """Images that stay on disk and are decoded and augmented ahead of time, batch by batch."""

    kind: Literal["stream"]

    def options(self) -> RunOptions:
        return {
            "augmentation": (
                Literal["standard", "strong"],
                Field(
                    default="standard",
                    description="standard: a random crop, resized, and a random horizontal flip; strong: RandAugment "
                    "after them (Gu et al. 2024, ViT)",
                ),
            ),
            "rand_augment": (
                RandAugmentSettings | None,
                Field(default=None, description="RandAugment of the strong augmentation; null: its defaults"),
            ),
            "format": (
                Literal["auto", "beton", "files"],
                Field(
                    default="beton",
                    description="files to read: beton, files packed by FFCV, or the image files themselves (files); "
                    "auto: beton if FFCV is installed, else files",
                ),
            ),
            "decoders": (
                Count | None,
                Field(
                    default=None,
                    description="processes that decode images for each training process, without effect on the result; "
                    "0: the training process decodes them itself; null: one for each of its CPU cores",
                ),
            ),
        }

    def conflicts(self, options: Mapping[str, Any], declared: Mapping[str, Any]) -> Iterator[Check]:
        if options["rand_augment"] and options["augmentation"] != "strong":
            found = f"with augmentation {options['augmentation']}"
            yield wrong("rand_augment", found, "null, or with augmentation strong")


class TextReader(_Reader):
    """Pairs of sentences in buckets of similar length."""

    kind: Literal["text"]
    max_tokens: PositiveInt = Field(description="default of the option max_tokens")

    def options(self) -> RunOptions:
        text = (
            "most tokens of a bucket, counted as its sentence pairs times its longest sentence; a bucket is one sample "
            "of batch_size and goes through the model in one pass"
        )
        return {"max_tokens": (PositiveInt, Field(default=self.max_tokens, description=text))}


class CharacterReader(_Reader):
    """Windows of a text, of which the model predicts the next character at every place.

    The facts `train_samples` and `val_samples` of a declaration count characters. Of a run they count windows: those
    that start at any character for training, consecutive ones for validation.
    """

    kind: Literal["characters"]
    context: PositiveInt = Field(description="default of the option context")

    def options(self) -> RunOptions:
        text = "characters of a window: the most that the model sees before the one that it predicts"
        return {"context": (PositiveInt, Field(default=self.context, description=text))}

    def facts(self, options: Mapping[str, Any], declared: Mapping[str, Any]) -> Mapping[str, Any]:
        context = options["context"]
        windows = {
            "train_samples": declared["train_samples"] - context,
            "val_samples": (declared["val_samples"] - 1) // context,
        }
        return {**declared, **windows, "input_shape": [context]}

    def conflicts(self, options: Mapping[str, Any], declared: Mapping[str, Any]) -> Iterator[Check]:
        longest = min(declared["train_samples"], declared["val_samples"]) - 1
        if options["context"] > longest:
            yield wrong("context", options["context"], f"at most {longest}, to fit into both parts")


class FunctionsReader(_Reader):
    """Functions that are drawn for a number of workers from the seed of a run."""

    kind: Literal["functions"]

    def options(self) -> RunOptions:
        differ = "mean over the workers of the squared gradient at the common optimum, zeta^2; 0: all share it"
        return {
            "heterogeneity": (NonNegativeNumber, Field(default=0.1, description=differ)),
            "distance": (PositiveNumber, Field(default=10.0, description="distance of the optimum from the start")),
            "dimension": (PositiveInt | None, Field(default=None, description="number of variables; null: 10")),
            "least_singular_value": (
                PositiveNumber | None,
                Field(default=None, description="smallest singular value of each matrix; the largest is 1; null: 0.5"),
            ),
        }

    def facts(self, options: Mapping[str, Any], declared: Mapping[str, Any]) -> Mapping[str, Any]:
        dimension = options["dimension"]
        return declared if dimension is None else {**declared, "input_shape": [dimension]}


class NoiseReader(_Reader):
    """Noise in the shape of another data set, for rehearsals where that is missing."""

    kind: Literal["noise"]

    def options(self) -> RunOptions:
        of, tokens = "facts of the data set in whose place it stands", "its option max_tokens, of text"
        return {
            "facts_of": (dict[str, Any], Field(description=of)),
            "max_tokens": (PositiveInt | None, Field(default=None, description=tokens)),
        }

    def facts(self, options: Mapping[str, Any], declared: Mapping[str, Any]) -> Mapping[str, Any]:
        of: Mapping[str, Any] = options["facts_of"]
        return of


Reader = Annotated[
    MemoryReader | StreamReader | TextReader | CharacterReader | FunctionsReader | NoiseReader,
    Field(discriminator="kind"),
]
