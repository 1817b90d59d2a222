"""The key `prepare` of a data set's declaration: where its original files are, and what they must contain."""

from pydantic import Field

from resync.base.settings.base import Items, PositiveInt, Settings, Text


class ImageRows(Settings):
    """Images as rows of pictures: a row has the pixels of one image, row after row of it."""

    labels: Text = Field(
        description="table in the folder, separated by tabs, with columns batch (the number at the end of a picture's "
        "name), row and label"
    )
    train: Items[Text] = Field(min_length=1, description="pictures in the folder with the training images")
    val: Items[Text] = Field(min_length=1, description="pictures in the folder with the validation images")


class Source(Settings):
    """One place below the data root, and the name in results of the images found there."""

    folder: Text = Field(description="folder below the data root")
    variant: Text = Field(description="name of these images; a different one if they differ, such as a lossy copy")
    pixels_sha256: str | None = Field(
        default=None, pattern=r"^[0-9a-f]{64}$", description="SHA-256 of the pixels of all images; null: unknown"
    )
    files_sha256: str | None = Field(
        default=None,
        pattern=r"^[0-9a-f]{64}$",
        description="SHA-256 of the files of all images, for JPEG, whose pixels depend on the decoder; null: unknown",
    )
    torchvision: Text | None = Field(
        default=None, description="class of torchvision.datasets whose files the folder holds; null: image files"
    )
    sheets: ImageRows | None = Field(default=None, description="pictures of which every row is an image; null: none")
    val_labels: Text | None = Field(
        default=None,
        description="table in the folder with the file name and class of every validation image; if it does not "
        "exist, there is one folder per class",
    )


class ClassCounts(Settings):
    """Numbers of images per class of a data set with classes of different size."""

    fewest: PositiveInt = Field(description="images of the smallest class")
    most: PositiveInt = Field(description="images of the largest class")


class Packing(Settings):
    """Storage of images by FFCV; the defaults are those of the papers."""

    max_side: PositiveInt = Field(
        default=500, le=1600, description="longest side of a stored image; larger images are downscaled"
    )
    jpeg_share: float = Field(default=0.5, ge=0, le=1, description="fraction of images stored as JPEG, the others raw")
    jpeg_quality: PositiveInt = Field(default=90, le=100, description="quality of the stored JPEGs")


class Preparation(Settings):
    """The conversion of a data set from its original images."""

    sources: Items[Source] = Field(min_length=1, description="possible places, of which the first that exists is used")
    average: PositiveInt = Field(default=1, description="side of the square of pixels that is averaged into one pixel")
    streaming: Packing | None = Field(
        default=None,
        description="how FFCV packs images that are read from disk batch by batch; null: all are read into memory once",
    )
    train_per_class: PositiveInt | Items[PositiveInt] | ClassCounts = Field(
        description="training images per class: one number for all, a list, or that of the smallest and largest class"
    )
    val_per_class: PositiveInt | Items[PositiveInt] | ClassCounts = Field(
        description="validation images per class: one number for all, a list, or that of the smallest and largest class"
    )


class CharacterPreparation(Settings):
    """The conversion of a text to characters: its first `train_samples` characters are for training."""

    folder: Text = Field(description="folder below the data root")
    files: Items[Text] = Field(
        min_length=1, description="possible files in it, .gz or plain, of which the first that exists is used"
    )
    variant: Text = Field(description="name of this text in results")
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$", description="SHA-256 of the uncompressed text")


class TextFiles(Settings):
    """A file of sentences in each language, one sentence per line; both have the same number of lines."""

    source: Text = Field(description="file below the folder, also inside an archive; .gz and .sgm are supported")
    target: Text = Field(description="the same for the target language")


class TextPreparation(Settings):
    """The conversion of a parallel corpus from its original files; several files of a split are concatenated."""

    folder: Text = Field(description="folder below the data root")
    variant: Text = Field(description="name of this text in results")
    sha256: str | None = Field(
        default=None,
        pattern=r"^[0-9a-f]{64}$",
        description="SHA-256 of all sentences as they are read, split after split, source before target; null: unknown",
    )
    train: Items[TextFiles] = Field(min_length=1, description="training pairs, from which the vocabulary is learned")
    val: Items[TextFiles] = Field(min_length=1, description="pairs on which the loss is measured")
    test: Items[TextFiles] = Field(min_length=1, description="pairs on which BLEU is measured")
    max_ratio: float | None = Field(
        default=None,
        ge=1,
        description="training pairs are left out if one side is empty, too long, or has more than this multiple of the "
        "other's tokens; null: none is left out, and an empty or too long sentence is an error",
    )
