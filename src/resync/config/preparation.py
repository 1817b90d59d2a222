"""The key `prepare` of a data set's declaration: where its original images may lie, and what they must be."""

from pydantic import Field

from resync.config.settings import Items, PositiveInt, Settings, Text


class Source(Settings):
    """One place below the data root, and what the results of runs call the images that lie there."""

    folder: Text = Field(description="folder below the data root")
    variant: Text = Field(description="name of these images; another one where they differ, such as a lossy copy")
    torchvision: Text | None = Field(
        default=None, description="data set of torchvision.datasets whose files the folder holds; null: image files"
    )
    val_labels: Text | None = Field(
        default=None, description="table in the folder with file name and class of every validation image"
    )


class Preparation(Settings):
    """How a data set is made from its original images."""

    sources: Items[Source] = Field(min_length=1, description="places, the first one that is there is taken")
    average: PositiveInt = Field(default=1, description="side of the square of pixels whose mean is one pixel")
    train_per_class: PositiveInt | Items[PositiveInt] = Field(
        description="training images of every class, or of each one"
    )
    val_per_class: PositiveInt | Items[PositiveInt] = Field(
        description="validation images of every class, or of each one"
    )
