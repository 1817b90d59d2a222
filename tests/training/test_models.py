"""The models: their size, their initial weights, and one step of training through Workers."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from resync.base.settings.options import options_of
from resync.tasks import models
from resync.tasks.models.cifar_resnet import Block
from resync.workers.engine.clocks import Clocks
from resync.workers.engine.engine import Engine, EngineParts
from resync.workers.engine.members import Members
from resync.workers.engine.transport import Transport
from resync.workers.engine.workers import Workers

DIGITS, MNIST, CIFAR, IMAGENET = (1, 8, 8), (1, 28, 28), (3, 32, 32), (3, 224, 224)
GROUP_SILU = {"norm": "group", "activation": "silu"}
SMALL_VIT = {"patch": 2, "dim": 32, "depth": 2, "heads": 2, "mlp_dim": 64}


@pytest.mark.parametrize(
    ("name", "options", "shape", "expected"),
    [
        ("mlp", {}, DIGITS, 64 * 64 + 64 + 640 + 10),
        ("cnn", {}, DIGITS, 72 + 16 + 1152 + 32 + 170),
        ("cnn", {"norm": "none"}, DIGITS, 72 + 8 + 1152 + 16 + 170),
        ("mnist_cnn", {}, MNIST, 5_752_714),
        ("vit", SMALL_VIT, DIGITS, 17_458),
        ("cifar_resnet", {"depth": 8}, CIFAR, 75_290),
        ("cifar_resnet", {"depth": 20}, CIFAR, 269_722),
        ("cifar_resnet", {"depth": 56}, CIFAR, 853_018),
        ("cifar_resnet", {"depth": 56, **GROUP_SILU}, CIFAR, 853_018),
        ("cifar_resnet", {"depth": 110}, CIFAR, 1_727_962),
        ("vgg", {"depth": 11}, CIFAR, 9_225_610),
        ("vgg", {"depth": 13}, CIFAR, 9_410_122),
        ("vgg", {"depth": 16}, CIFAR, 14_719_818),
        ("vgg", {"depth": 19}, CIFAR, 20_029_514),
        ("resnet", {"depth": 18, "stem": "cifar"}, CIFAR, 11_173_962),
        ("resnet", {"depth": 18}, IMAGENET, 11_689_512),
        ("resnet", {"depth": 50}, IMAGENET, 25_557_032),
        ("resnet", {"depth": 101}, IMAGENET, 44_549_160),
        ("resnet", {"depth": 152}, IMAGENET, 60_192_808),
        ("vit", {}, IMAGENET, 86_381_800),
        ("gpt", {"layers": 4, "heads": 4, "dim": 128}, (64,), 804_096),
        ("gpt", {"layers": 6, "heads": 6, "dim": 384}, (256,), 10_745_088),
        ("gpt", {}, (1024,), 124_439_808 - 102_144),  # GPT-2 without its biases
    ],
)
def test_models_have_the_known_number_of_parameters(name: str, options: dict, shape: tuple[int, ...], expected: int):
    # nanoGPT's settings have the 65 characters of Tiny Shakespeare, GPT-2 has 50,257 pieces.
    classes = {IMAGENET: 1000, (64,): 65, (256,): 65, (1024,): 50_257}.get(shape, 10)
    assert models.num_parameters(options_of("models", name)(**options), shape, classes) == expected


@pytest.mark.parametrize(
    ("name", "options", "shape", "expected"),
    [
        # Forward, gradients of both weights, gradient of the hidden layer; the input has none.
        ("mlp", {}, DIGITS, 2 * (64 * 64 + 640) + 2 * (64 * 64 + 640) + 2 * 640),
        ("resnet", {"depth": 50}, IMAGENET, 3 * 2 * 4.089e9 - 2 * 64 * 3 * 49 * 112 * 112),
    ],
)
def test_operations_of_a_sample(name: str, options: dict, shape: tuple[int, ...], expected: float):
    classes = 1000 if shape == IMAGENET else 10
    found = models.flops_per_sample(options_of("models", name)(**options), shape, classes)
    assert found == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize(
    ("name", "options", "shape"),
    [
        ("cnn", {"norm": "batch"}, DIGITS),
        ("mnist_cnn", {}, MNIST),
        ("cifar_resnet", {"depth": 8, **GROUP_SILU}, CIFAR),
        ("vit", SMALL_VIT, DIGITS),  # begins with a norm
    ],
)
def test_operations_are_those_that_torch_counts_in_the_whole_model(name: str, options: dict, shape: tuple[int, ...]):
    declared = options_of("models", name)(**options)
    with torch.device("meta"), FlopCounterMode(display=False) as counter:
        model = models.build(declared, shape, 10, seed=0)
        model(models.example(declared, shape, 2)).sum().backward()
    assert models.flops_per_sample(declared, shape, 10) == counter.get_total_flops() // 2


@pytest.mark.parametrize(
    ("name", "options", "shape"),
    [
        ("mlp", {}, DIGITS),
        ("mlp", {"hidden": [16, 8], "activation": "silu"}, DIGITS),
        ("cnn", {}, DIGITS),
        ("cnn", {"norm": "none"}, DIGITS),
        ("mnist_cnn", {}, MNIST),
        ("cifar_resnet", {"depth": 20}, CIFAR),
        ("cifar_resnet", {"depth": 8, "width": 6, "groups": 3, **GROUP_SILU}, (1, 17, 14)),
        ("vgg", {"depth": 11}, CIFAR),
        ("resnet", {"depth": 18, "stem": "cifar"}, CIFAR),
        ("vit", SMALL_VIT, DIGITS),
        ("vit", {"patch": 4, "dim": 48, "depth": 2, "heads": 3, "mlp_dim": 96}, CIFAR),
    ],
)
def test_a_step_of_training_reaches_every_parameter(name: str, options: dict, shape: tuple[int, ...]):
    torch.manual_seed(0)
    images, targets = torch.randn(1, 3, *shape), torch.randint(10, (1, 3))
    model = models.build(options_of("models", name)(**options), shape, 10, seed=5)
    workers = Workers(model, 1)
    optimizer = torch.optim.SGD([workers.rows], lr=0.1)
    transport = Transport(Members(1), Clocks(torch.device("cpu")))
    engine = Engine(EngineParts(transport, workers, optimizer, lambda model, x, y: F.cross_entropy(model(x), y)))
    losses = engine.gradients(images, targets).losses
    assert losses.isfinite().all()
    assert workers.grads.isfinite().all()
    assert [key for key, parameter in model.named_parameters() if not parameter.grad.count_nonzero()] == []
    assert model(images[0]).shape == (3, 10)


@pytest.mark.parametrize(("name", "options"), [("cnn", {}), ("cifar_resnet", {"depth": 8})])
def test_initial_weights_are_a_function_of_the_seed_and_leave_the_global_state_alone(name: str, options: dict):
    def weights(seed: int) -> torch.Tensor:
        torch.rand(1)
        before = torch.random.get_rng_state()
        model = models.build(options_of("models", name)(**options), DIGITS, 10, seed)
        assert torch.equal(before, torch.random.get_rng_state())
        return nn.utils.parameters_to_vector(model.parameters())

    assert torch.equal(weights(5), weights(5))
    assert not torch.equal(weights(5), weights(6))


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("cnn", {"groups": 3}, "groups 3 does not divide the width 8"),
        ("cifar_resnet", {"depth": 8, "norm": "group", "groups": 3}, "groups 3 does not divide the width 16"),
        ("vgg", {"depth": 11}, "needs images of at least 32x32 pixels, found 8x8"),
        ("mnist_cnn", {}, "needs images of at least 16x16 pixels, found 8x8"),
        ("vit", {"patch": 3}, "patch 3 does not divide the image of 8x8"),
        ("vit", {"patch": 2, "heads": 5}, "heads 5 does not divide dim 768"),
        ("resnet", {"depth": 18}, "needs images of 3 channels, found 1"),
    ],
)
def test_models_that_do_not_fit_are_refused(name: str, options: dict, message: str):
    with pytest.raises(ValueError, match=message):
        models.build(options_of("models", name)(**options), DIGITS, 10, seed=0)


def test_the_shortcut_of_a_wider_block_subsamples_and_pads_channels_on_both_sides():
    block = Block(4, 8, 2, nn.BatchNorm2d, nn.Identity)
    nn.init.zeros_(block.conv2.weight)
    images = torch.randn(2, 4, 5, 6)
    out = block(images)
    assert torch.equal(out[:, 2:6], images[:, :, ::2, ::2])
    assert not out[:, [0, 1, 6, 7]].any()


def test_the_stages_of_a_cifar_resnet_halve_the_image_twice():
    """Feature maps of 32, 16 and 8 pixels (He et al. 2016, section 4.2)."""
    model = models.build(options_of("models", "cifar_resnet")(depth=14, width=4), CIFAR, 10, seed=0)
    shapes, maps = [], torch.randn(2, 3, 32, 32)
    for name, module in list(model.named_children())[:6]:
        maps = module(maps)
        shapes += [(name, *maps.shape[1:])] if name.startswith("layer") else []
    assert shapes == [("layer1", 4, 32, 32), ("layer2", 8, 16, 16), ("layer3", 16, 8, 8)]


@pytest.mark.parametrize("norm", ["none", "batch", "group"])
def test_the_small_convolutional_network_is_its_layers(norm: str):
    """All convolutions but the first halve the image; each has a norm, or else a bias, and a ReLU."""
    options = options_of("models", "cnn")(widths=(4, 8, 8), norm=norm, groups=2)
    model = models.build(options, CIFAR, 10, seed=0).eval()
    images = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    parameters, maps = iter(model.parameters()), images
    for stride, size in ((1, 32), (2, 16), (2, 8)):
        kernel, first = next(parameters), next(parameters)
        maps = F.conv2d(maps, kernel, first if norm == "none" else None, stride=stride, padding=1)
        if norm == "group":
            maps = F.group_norm(maps, 2, first, next(parameters))
        elif norm == "batch":  # its running statistics are those of a normal distribution
            maps = maps / (1 + 1e-5) ** 0.5 * first[:, None, None] + next(parameters)[:, None, None]
        maps = maps.clamp(min=0)
        assert maps.shape[2:] == (size, size)
    expected = F.linear(maps.mean((2, 3)), next(parameters), next(parameters))
    torch.testing.assert_close(model(images), expected, rtol=1e-5, atol=1e-6)
    assert not list(parameters)


def test_initial_weights_are_those_of_the_papers():
    as_in_sgp = options_of("models", "resnet")(depth=18, zero_last_gamma=True, fc_std=0.01)
    resnet = models.build(as_in_sgp, CIFAR, 1000, seed=0)
    assert not any(block.bn2.weight.any() for layer in (resnet.layer1, resnet.layer4) for block in layer)
    assert resnet.fc.weight.std().item() == pytest.approx(0.01, rel=0.01)
    for name, options in [("cifar_resnet", {"depth": 20}), ("vgg", {"depth": 11})]:
        model = models.build(options_of("models", name)(**options), CIFAR, 1000, seed=0)
        *convolutions, last = [layer for layer in model.modules() if isinstance(layer, nn.Conv2d | nn.Linear)]
        for layer in convolutions[1:]:
            fan_in = layer.weight[0].numel()
            assert layer.weight.std().item() == pytest.approx((2 / fan_in) ** 0.5, rel=0.1)
        wanted = 0.01 if name == "cifar_resnet" else (2 / 512) ** 0.5
        assert last.weight.std().item() == pytest.approx(wanted, rel=0.02)
        assert not last.bias.any()


def test_vit_is_the_formula_with_the_norm_after_the_mean_of_the_tokens():
    """SimpleViT of vit-pytorch 1.2.8, which the QSR paper's code pins, one image and one patch at a time."""
    torch.manual_seed(0)
    small = options_of("models", "vit")(patch=4, dim=16, depth=2, heads=2, mlp_dim=24)
    model = models.build(small, (3, 8, 12), 5, seed=1)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.5)
    image = torch.randn(3, 8, 12)
    tokens = []
    for row in range(2):
        for column in range(3):
            patch = image[:, 4 * row : 4 * row + 4, 4 * column : 4 * column + 4].flatten()
            angles = [torch.tensor([at * 10_000 ** (-i / 3) for i in range(4)]) for at in (column, row)]
            positions = [wave for angle in angles for wave in (angle.sin(), angle.cos())]
            tokens.append(model.embed(patch) + torch.cat(positions))
    x = torch.stack(tokens)
    for block in model.blocks:
        query, key, value = block.qkv(block.norm(x)).chunk(3, dim=-1)
        heads = [
            (query[:, part] @ key[:, part].T / 8**0.5).softmax(-1) @ value[:, part] for part in (slice(8), slice(8, 16))
        ]
        x = x + block.out(torch.cat(heads, dim=-1))
        x = x + block.mlp(x)
    torch.testing.assert_close(model(image[None])[0], model.head(model.norm(x.mean(0))), rtol=1e-4, atol=1e-4)
    assert not torch.allclose(model(image[None])[0], model.head(model.norm(x).mean(0)), rtol=1e-2)
