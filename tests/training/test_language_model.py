"""The language model of characters: windows, model, loss, nanoGPT's training, and what a run writes."""

import gzip
import hashlib
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from runs import LANGUAGE_MODEL, make_run, make_session
from torch import Tensor, nn
from torch.nn import functional as F

from resync.base.settings.options import options_of
from resync.papers.paper.suite import load_suite
from resync.runs.run import Run
from resync.runs.train.evaluate import score
from resync.runs.train.language_model import LanguageModel, sample
from resync.runs.train.loop import batches, train_step
from resync.runs.train.run import train
from resync.tasks import data, models, prepare
from resync.tasks.data.characters import Characters
from resync.tasks.data.sampling import Sampler
from resync.tasks.data.sonnets import FILE
from resync.tasks.data_sets.declaration import data_set
from resync.tasks.models.gpt import GPTModel
from resync.tasks.prepare.folders import prepared_file

ROOT = Path(__file__).parents[2]
VERSES = FILE.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def text() -> Characters:
    return data.build("sonnets", {"context": 16})


def gpt(**changes: Any) -> GPTModel:
    options = {"layers": 2, "heads": 2, "dim": 8} | changes
    model = models.build(options_of("models", "gpt")(**options), (16,), 51, seed=1)
    assert isinstance(model, GPTModel)
    return model


def decoded(text: Characters, ids: Tensor) -> str:
    return "".join(text.alphabet[index] for index in ids.tolist())


def test_windows_are_pieces_of_the_text_and_targets_are_one_character_later(text):
    sampler = Sampler(text.num_train, num_workers=3, local_batch=4, steps=5, seed=2, replacement=True)
    starts = sampler.epoch(1)
    assert starts.max() < text.num_train == 3319 - 16
    for step, (inputs, targets) in enumerate(text.batches(sampler, 1, 2, slice(1, 3)), start=2):
        assert inputs.shape == targets.shape == (2, 4, 16)
        for start, window, following in zip(
            starts[step, 1:].ravel(), inputs.flatten(0, 1), targets.flatten(0, 1), strict=True
        ):
            assert decoded(text, window) == VERSES[start : start + 16]
            assert decoded(text, following) == VERSES[start + 1 : start + 17]
    assert step == 4


def test_the_last_window_reaches_the_end_of_the_training_part(text):
    sampler = Sampler(text.num_train, 1, local_batch=text.num_train, steps=1, seed=0, replacement=False)
    [(_, targets)] = text.batches(sampler, 0, 0, slice(0, 1))
    assert sorted(targets[0, :, -1].tolist()) == sorted(text.train[16:].tolist())


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_validation_is_on_consecutive_windows_each_on_one_process(text, world_size):
    pieces = [
        decoded(text, window)
        for rank in range(world_size)
        for inputs, _ in text.validation(rank, world_size)
        for window in inputs
    ]
    part = VERSES[3319:]
    assert sorted(pieces) == sorted(part[start : start + 16] for start in range(0, 23 * 16, 16))
    assert data_set("sonnets").config(context=16).facts["val_samples"] == 23


def test_the_model_is_the_one_that_is_written_out_here():
    """Pre-norm blocks with causal softmax attention and exact GELU, and the embedding as output layer."""
    model = gpt()
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    tokens = torch.randint(51, (3, 12))

    def norm(x: Tensor, layer: nn.Module) -> Tensor:
        centred = x - x.mean(-1, keepdim=True)
        return centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt() * layer.weight

    x = model.embedding.weight[tokens] + model.positions.weight[:12]
    for block in model.blocks:
        queries, keys, values = (block.attention.qkv(norm(x, block.attention_norm))).split(8, dim=2)
        heads = []
        for own in (slice(0, 4), slice(4, 8)):
            scores = queries[..., own] @ keys[..., own].transpose(1, 2) / math.sqrt(4)
            scores[:, torch.ones(12, 12).triu(1).bool()] = -math.inf
            heads.append(scores.softmax(-1) @ values[..., own])
        x = x + block.attention.out(torch.cat(heads, 2))
        hidden = block.expand(norm(x, block.mlp_norm))
        x = x + block.contract(hidden * 0.5 * (1 + torch.erf(hidden / math.sqrt(2))))
    expected = norm(x, model.norm) @ model.embedding.weight.T
    torch.testing.assert_close(model(tokens), expected, rtol=1e-4, atol=1e-5)


def test_the_first_weights_and_the_first_loss_are_nanogpts():
    model = models.build(options_of("models", "gpt")(layers=4, heads=4, dim=128), (64,), 65, seed=0)
    for name, parameter in model.named_parameters():
        if parameter.ndim == 1:
            assert (parameter == 1).all()
        else:
            residual = name.endswith(("attention.out.weight", "contract.weight"))
            assert parameter.std().item() == pytest.approx(0.02 / (math.sqrt(8) if residual else 1), rel=0.05), name
    torch.manual_seed(0)
    windows, following = torch.randint(65, (2, 64, 64))
    assert LanguageModel().loss(model, windows, following).item() == pytest.approx(math.log(65), abs=0.05)


def test_dropout_is_on_embeddings_attention_and_both_branches_in_training_only():
    model = gpt(dropout=0.5)
    tokens = torch.randint(51, (2, 16))
    assert not torch.equal(model(tokens), model(tokens))
    for off in (["dropout"], ["attention.dropout", "dropout"]):
        for each in [model, *model.blocks]:
            each.dropout.p = 0.0
        if len(off) == 2:
            for block in model.blocks:
                block.attention.dropout = 0.0
        assert torch.equal(model(tokens), model(tokens)) is (len(off) == 2)
    assert torch.equal(gpt(dropout=0.5).eval()(tokens), gpt().eval()(tokens))


def published_run() -> Run:
    suite = load_suite(ROOT / "paper_configs", papers=["outer_optimizers"])
    return suite.runs("outer_optimizers", "mini", "nanogpt_cpu")[0]


def test_the_learning_rates_are_nanogpts():
    run = published_run()
    for step in range(2000):
        if step < 100:
            expected = 1e-3 * (step + 1) / 101
        else:
            expected = 1e-4 + 0.5 * (1 + math.cos(math.pi * (step - 100) / 1900)) * 9e-4
        assert run.lr(step) == pytest.approx(expected, rel=1e-12)
    assert run.lr(2000) == pytest.approx(1e-4)
    assert run.total_steps == 2000


def test_steps_are_those_of_nanogpts_loop(tmp_path: Path):
    """AdamW with decay of tensors of two dimensions alone, and clipped gradients, as torch has them."""
    changes = LANGUAGE_MODEL | {"workers": 1, "batch_size": 4, "micro_batch_size": None, "evaluation": {}}
    changes["model"] = changes["model"] | {"dropout": 0.0}
    changes["clip_norm"] = 0.5
    session = make_session(tmp_path, **changes)
    model = gpt()
    model.load_state_dict(session.workers.models[0].state_dict())
    groups = [[p for p in model.parameters() if (p.ndim >= 2) is matrix] for matrix in (True, False)]
    optimizer = torch.optim.AdamW(
        [{"params": group, "weight_decay": decay} for group, decay in zip(groups, (0.1, 0.0), strict=True)],
        betas=(0.9, 0.99),
        eps=1e-4,
    )
    clipped = 0
    for step, (inputs, targets) in enumerate(batches(session)):
        loss = F.cross_entropy(model(inputs[0]).view(-1, 51), targets[0].reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        clipped += nn.utils.clip_grad_norm_(model.parameters(), 0.5).item() > 0.5
        for group in optimizer.param_groups:
            group["lr"] = session.run.lr(step)
        optimizer.step()
        train_step(session, inputs, targets)
    assert clipped > 0
    torch.testing.assert_close(
        session.workers.rows[0], nn.utils.parameters_to_vector(model.parameters()), rtol=0, atol=2e-6
    )


def test_losses_are_means_over_all_characters_and_over_random_batches(tmp_path: Path, text):
    session = make_session(tmp_path, **LANGUAGE_MODEL)
    model = session.workers.models[0].eval()
    found = score(session, model)
    windows = VERSES[3319:]
    starts = range(0, 23 * 16, 16)
    ids = {character: index for index, character in enumerate(sorted(set(VERSES)))}

    def loss(start: int) -> float:
        piece = torch.tensor([[ids[character] for character in windows[start : start + 17]]])
        with torch.no_grad():
            return F.cross_entropy(model(piece[:, :-1])[0], piece[0, 1:]).item()

    assert found["val_loss"] == pytest.approx(np.mean([loss(start) for start in starts]), rel=1e-6)
    assert found["val_bits_per_character"] == pytest.approx(found["val_loss"] / math.log(2), rel=1e-12)
    drawn = [text.random_validation(3, 0, index, 4) for index in range(3)]
    estimates = [LanguageModel().loss(model, *each).item() for each in drawn]
    assert found["val_loss_estimate"] == pytest.approx(np.mean(estimates), rel=1e-6)
    assert len({each.numpy().tobytes() for inputs, _ in drawn for each in inputs}) > 9
    assert not torch.equal(text.random_validation(3, 1, 0, 4)[0], drawn[0][0])


def test_a_run_leaves_a_sample_of_text_that_its_summary_vouches_for(tmp_path: Path):
    changes = LANGUAGE_MODEL | {"evaluation": {"sample_characters": 30}, "epochs": 1, "steps_per_epoch": 4}
    train(make_run(tmp_path / "config", **changes), tmp_path / "run")
    written = (tmp_path / "run/sample.txt").read_text()
    assert len(written) == 31
    assert set(written) <= set(VERSES)
    digests = json.loads((tmp_path / "run/summary.json").read_text())["sha256"]
    assert digests["sample.txt"] == hashlib.sha256(written.encode()).hexdigest()


def test_samples_follow_the_probabilities_of_the_model(text):
    class Counting(nn.Module):
        """Certain that each character is followed by the next one of the alphabet, of at most 16 that it is shown."""

        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.tensor(100.0))

        def forward(self, tokens: Tensor) -> Tensor:
            assert tokens.shape[1] <= 16
            return self.scale * F.one_hot((tokens + 1) % 51, 51)

    assert sample(Counting(), LanguageModel(), text, 0, 60) == (text.alphabet[1:] + text.alphabet)[:60]
    flat = Counting()
    flat.scale.data.zero_()
    first, second = (sample(flat, LanguageModel(), text, seed, 400) for seed in (0, 1))
    assert first != second
    assert len(set(first)) > 40


def declare(folder: Path, content: str, **changes: Any) -> Any:
    facts = {"task": "language_model", "train_samples": 900, "val_samples": 100, "input_shape": [8]}
    declaration = {
        "description": "tiny",
        "reader": {"kind": "characters", "context": 8},
        "facts": facts | {"num_classes": len(set(content))} | changes,
        "prepare_characters": {
            "folder": "raw", "files": ["a.txt.gz", "a.txt"], "variant": "tiny-text",
            "sha256": hashlib.sha256(content.encode()).hexdigest(),
        },
    }  # fmt: skip
    (folder / "package/tasks/data").mkdir(parents=True)
    (folder / "package/tasks/data/tiny.yaml").write_text(yaml.safe_dump(declaration))
    return data_set("tiny", folder / "package")


@pytest.mark.parametrize("compressed", [False, True])
def test_a_text_is_prepared_once_and_read_back(tmp_path: Path, monkeypatch, compressed):
    content = VERSES[:999] + "ß"
    of, root = declare(tmp_path, content), tmp_path / "root"
    (root / "raw").mkdir(parents=True)
    encoded = content.encode()
    (root / "raw" / ("a.txt.gz" if compressed else "a.txt")).write_bytes(
        gzip.compress(encoded) if compressed else encoded
    )
    record = prepare.prepare(of, root)
    assert (record["variant"], record["num_classes"]) == ("tiny-text", len(set(content)))
    assert record == prepare.prepare(of, root) == json.loads(prepared_file(of, root).with_suffix(".json").read_text())
    assert all(each.holds for each in prepare.check(of, root))
    monkeypatch.setenv("RESYNC_DATA", str(root))
    from resync.tasks.data.characters import read

    read_back = read(of, 8)
    assert decoded(read_back, read_back.train) == content[:900]
    assert decoded(read_back, read_back.val) == content[900:]
    assert (read_back.variant, read_back.sha256) == ("tiny-text", record["sha256"])


@pytest.mark.parametrize(
    ("damage", "facts", "expected"),
    [
        (lambda raw: (raw / "a.txt").unlink(), {}, r"raw: no file a\.txt\.gz or a\.txt \(docs/data\.md\)$"),
        (
            lambda raw: (raw / "a.txt").write_text(VERSES[1:1001]),
            {},
            r"a\.txt: SHA-256 of the text: found [0-9a-f]{64}",
        ),
        (lambda raw: (raw / "a.txt.gz").write_bytes(gzip.compress(VERSES.encode())[:500]), {}, r"a\.txt\.gz: damaged"),
        (lambda raw: None, {"val_samples": 99}, r"data tiny: characters: found 1000, allowed: 999$"),
    ],
)
def test_what_cannot_be_prepared_is_one_line(tmp_path: Path, damage: Callable[[Path], object], facts, expected):
    of, root = declare(tmp_path, VERSES[:1000], **facts), tmp_path / "root"
    (root / "raw").mkdir(parents=True)
    (root / "raw/a.txt").write_text(VERSES[:1000])
    damage(root / "raw")
    with pytest.raises(ValueError, match=expected):
        prepare.prepare(of, root)
    assert not prepared_file(of, root).exists()
