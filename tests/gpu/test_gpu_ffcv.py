"""Images packed by FFCV reach the device as those of the files do."""

from importlib.util import find_spec

import pytest
import torch
from torch import Tensor

if find_spec("ffcv") is None:
    pytest.skip("FFCV is not installed (docs/data.md)", allow_module_level=True)

from photos import batches
from test_beton import loaded, packed  # noqa: F401


def test_both_formats_give_the_device_the_same_batches(loaded, device: torch.device):  # noqa: F811
    files, beton = (of.to(device) for of in loaded.values())
    pairs = list(zip(_tensors(batches(files)), _tensors(batches(beton)), strict=True))
    assert len(pairs) == 6
    for one, other in pairs:
        assert one.device.type == device.type
        assert torch.equal(one, other)


def _tensors(found: list[tuple[Tensor, Tensor]]) -> list[Tensor]:
    return [tensor for batch in found for tensor in batch]
