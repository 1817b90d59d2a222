"""The key `prepare` of a data set's declaration: where its original images may lie, and what they must be."""

from pydantic import Field

from resync.settings.base import Items, PositiveInt, Settings, Text


class Source(Settings):
    """One place below the data root, and what the results of runs call the images that lie there."""

    folder: Text = Field(description="folder below the data root")
    variant: Text = Field(description="name of these images; another one where they differ, such as a lossy copy")
    torchvision: Text | None = Field(
        default=None, description="data set of torchvision.datasets whose files the folder holds; null: image files"
    )
    val_labels: Text | None = Field(
        default=None,
        description="table in the folder with file name and class of every validation image; where it is missing, "
        "they lie in folders of their classes",
    )


class ClassCounts(Settings):
    """Images per class of a data set whose classes differ in size."""

    fewest: PositiveInt = Field(description="images of the smallest class")
    most: PositiveInt = Field(description="images of the largest class")


class Packing(Settings):
    """How FFCV stores images; by default as in the papers."""

    max_side: PositiveInt = Field(
        default=500, le=1600, description="longest side of a stored image; larger ones are shrunk"
    )
    jpeg_share: float = Field(default=0.5, ge=0, le=1, description="share of images stored as JPEG, the others raw")
    jpeg_quality: PositiveInt = Field(default=90, le=100, description="quality of the stored JPEGs")


class Preparation(Settings):
    """How a data set is made from its original images."""

    sources: Items[Source] = Field(min_length=1, description="places, the first one that is there is taken")
    average: PositiveInt = Field(default=1, description="side of the square of pixels whose mean is one pixel")
    streaming: Packing | None = Field(
        default=None, description="images are read from disk batch by batch, with FFCV from files packed so; null: once"
    )
    packed: Packing | None = Field(
        default=None, description="images that are read once are packed by FFCV; null: one file of arrays"
    )
    train_per_class: PositiveInt | Items[PositiveInt] | ClassCounts = Field(
        description="training images of every class, of each one, or of the smallest and the largest"
    )
    val_per_class: PositiveInt | Items[PositiveInt] | ClassCounts = Field(
        description="validation images of every class, of each one, or of the smallest and the largest"
    )

    @property
    def packing(self) -> Packing | None:
        """How FFCV stores the images, if it does."""
        return self.streaming or self.packed


class TextFiles(Settings):
    """A file of sentences in each language, one sentence per line; both have the same number of lines."""

    source: Text = Field(description="below the folder, also inside of an archive; .gz and .sgm are understood")
    target: Text = Field(description="the same for the language that is translated into")


class TextPreparation(Settings):
    """How a parallel text is made from its original files; several files of a split follow one another."""

    folder: Text = Field(description="folder below the data root")
    variant: Text = Field(description="name of this text in results")
    train: Items[TextFiles] = Field(min_length=1, description="training pairs, and what the vocabulary is made of")
    val: Items[TextFiles] = Field(min_length=1, description="pairs whose loss is measured")
    test: Items[TextFiles] = Field(min_length=1, description="pairs whose translations are scored with BLEU")
    max_ratio: float | None = Field(
        default=None,
        ge=1,
        description="training pairs are left out that have an empty side, a sentence that is too long, or one that has "
        "more than this multiple of the tokens of the other; null: none is, and such a sentence is an error",
    )
