"""The checkpoints of the original Local SGD repository in the models here."""

import csv
import re
from pathlib import Path

import pytest
import torch
from matplotlib.image import imread
from torch import Tensor, nn

from resync.base.settings.options import options_of
from resync.tasks import models
from resync.tasks.models.originals import load_original

GROUP_SILU = {"norm": "group", "activation": "silu"}


def resnet(depth: int = 8, **options) -> nn.Module:
    return models.build(options_of("models", "cifar_resnet")(**{"depth": depth, **options}), (3, 32, 32), 10, seed=1)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A checkpoint of a small net with the original's names."""
    state = {re.sub(r"norm(\d)", r"bn\1", name): value + 1 for name, value in resnet().state_dict().items()}
    torch.save(state, tmp_path / "checkpoint.pt")
    return tmp_path / "checkpoint.pt"


def test_every_tensor_is_copied(checkpoint: Path):
    model = resnet()
    load_original(model, checkpoint)
    assert all(torch.equal(model.state_dict()[name], value + 1) for name, value in resnet().state_dict().items())


@pytest.mark.parametrize(
    ("name", "options", "shape"), [("resnet", {"depth": 18}, (3, 224, 224)), ("vgg", {"depth": 11}, (3, 32, 32))]
)
def test_names_that_the_model_has_are_kept(name: str, options: dict, shape: tuple[int, ...], tmp_path: Path):
    """Those of torchvision's ResNets, such as `layer1.0.bn1.weight`, and of the VGGs are the original's."""
    model, source = (models.build(options_of("models", name)(**options), shape, 10, seed) for seed in (1, 2))
    torch.save(source.state_dict(), tmp_path / "checkpoint.pt")
    load_original(model, tmp_path / "checkpoint.pt")
    assert all(torch.equal(value, source.state_dict()[key]) for key, value in model.state_dict().items())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"depth": 14}, r"lacks layer1\.1\.conv1\.weight \(and 35 more\)"),
        ({"norm": "group"}, r"has bn1\.running_mean, which the model lacks \(and 20 more\)"),
        ({"width": 8}, r"has conv1\.weight of shape \[16, 3, 3, 3\], the model's is \[8, 3, 3, 3\] \(and 35 more\)"),
    ],
)
def test_another_net_is_refused_and_left_alone(checkpoint: Path, options: dict, message: str):
    model = resnet(**options)
    with pytest.raises(ValueError, match=rf"checkpoint\.pt: does not fit the model: {message}"):
        load_original(model, checkpoint)
    assert all(torch.equal(model.state_dict()[name], value) for name, value in resnet(**options).state_dict().items())


def test_what_is_no_checkpoint_is_refused(checkpoint: Path, tmp_path: Path):
    cut, code, other = (tmp_path / name for name in ("cut.pt", "code.pt", "other.pt"))
    cut.write_bytes(checkpoint.read_bytes()[:-1000])
    torch.save({"conv1.weight": Path}, code)
    torch.save([torch.ones(1)], other)
    for file, message in [
        (cut, "not a file that torch.save wrote, or only a part of it"),
        (code, "not only tensors, which alone are safe to load"),
        (other, "found no state dict"),
    ]:
        with pytest.raises(ValueError, match=f"{file.name}: {message}"):
            load_original(resnet(), file)


def lossless_training_images(folder: Path, count: int) -> tuple[Tensor, Tensor]:
    """Images [count, 3, 32, 32] as the original normalises them, and their classes; a row of the file is an image."""
    pixels = torch.from_numpy(imread(folder / "cifar10_batch_0.png")[:count])
    images = pixels.view(count, 32, 32, 3).permute(0, 3, 1, 2)
    mean, std = torch.tensor([[0.4914, 0.4822, 0.4465], [0.2023, 0.1994, 0.2010]])[:, :, None, None]
    with (folder / "labels_by_matching.tsv").open() as file:
        labels = [int(row["label"]) for row in csv.DictReader(file, delimiter="\t")]
    return (images - mean) / std, torch.tensor(labels[:count])


@pytest.mark.parametrize(
    ("name", "options", "least"),
    [("phase1_common", {}, 0.85), ("diffusion_common", {}, 0.85), ("resnet_common_start", GROUP_SILU, 0.99)],
)
def test_the_checkpoints_know_their_training_images(real_data: Path, name: str, options: dict, least: float):
    """92.7, 91.4 and 100 % of 1,000 images; 100 of them have a standard error below 3 points."""
    images, targets = lossless_training_images(real_data / "cifar10-lossless-4k", 100)
    model = resnet(56, **options).eval()
    load_original(model, real_data / "ckpt-local-sgd" / f"{name}.pt")
    with torch.no_grad():
        correct = model(images).argmax(1) == targets
    assert correct.float().mean() >= least
