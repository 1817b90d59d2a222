"""Translation: batches of sentence pairs, the model, beam search, the loss over tokens and BLEU."""

import math
from collections import Counter
from itertools import chain, product
from pathlib import Path

import numpy as np
import pytest
import torch
from runs import TRANSLATION, make_session
from sacrebleu.metrics.bleu import BLEU
from torch import nn
from torch.nn import functional as F

from resync.base.settings.options import options_of
from resync.runs.metrics.evaluation import BeamSearch
from resync.runs.train.bleu import forms
from resync.runs.train.loop import batches
from resync.runs.train.translation import Translation
from resync.tasks import data, models
from resync.tasks.data.sampling import Sampler, Share
from resync.tasks.data.text import TokenTargets
from resync.tasks.models.beam_search import translate
from resync.tasks.prepare.vocabulary import BEGIN, END, PAD

TINY = {"dim": 16, "ffn_dim": 32, "heads": 2, "encoder_layers": 1, "decoder_layers": 1, "dropout": 0.0}


@pytest.fixture(scope="module")
def text():
    return data.build("sentences", {"max_tokens": 64})


def plan(text, **changes) -> Sampler:
    settings = {"num_workers": 4, "local_batch": 2, "steps": 10, "seed": 0, "replacement": False}
    return Sampler(num_samples=text.num_train, **settings | changes)


@pytest.mark.parametrize(
    ("options", "expected"), [({}, 60_915_712), ({"dim": 1024, "ffn_dim": 4096, "heads": 16}, 209_911_808)]
)
def test_base_and_big_have_the_known_number_of_parameters(options: dict, expected: int):
    """As fairseq's transformer_wmt_en_de and _big with one embedding of 32,768 pieces."""
    assert models.num_parameters(options_of("models", "transformer")(**options), (256,), 32_768) == expected


def test_operations_are_those_of_the_matrix_products():
    """Forward and twice as many backward: 2 a weight and token, and 4 * dim a pair of attended tokens and layer."""
    length, vocabulary = 12, 40
    found = models.flops_per_sample(options_of("models", "transformer")(**TINY), (length,), vocabulary)
    encoder, decoder = 4 * 16**2 + 2 * 16 * 32, 8 * 16**2 + 2 * 16 * 32
    products = 2 * length * (encoder + decoder + 16 * vocabulary)
    assert found == pytest.approx(3 * products + 3 * 3 * 4 * 16 * length**2, rel=0.1)


def test_buckets_hold_every_pair_once_and_fit(text):
    chosen = np.concatenate(text._train)
    assert sorted(chosen) == list(range(400))
    for bucket in text._train:
        (source, decoder_input), target = text._bucket("train", bucket)
        assert len(bucket) * max(source.shape[1], target.shape[1]) <= 64
        assert decoder_input.shape == target.shape
    sizes = [len(bucket) for bucket in text._train]
    assert len(sizes) < 1.3 * sum(text._lengths("train")) / 64


def test_targets_are_the_sentences_and_the_decoder_sees_them_one_token_later(text):
    (source, decoder_input), target = text._bucket("train", np.array([0, 3]))
    english, german = "They find the bicycle in the garden.", "Sie finden das Fahrrad im Garten."
    assert text.decode(source[0].tolist()) == english
    assert text.decode(target[0].tolist()) == german
    for given, wanted in zip(decoder_input.tolist(), target.tolist(), strict=True):
        length = wanted.index(END)
        assert given[: length + 1] == [BEGIN, *wanted[:length]]
        assert set(given[length + 1 :]) | set(wanted[length + 1 :]) <= {PAD}


def test_workers_draw_different_buckets_whatever_the_processes(text):
    whole = list(text.batches(plan(text), 1, 0, slice(0, 4)))
    parts = [list(text.batches(plan(text), 1, 3, slice(first, first + 2))) for first in (0, 2)]
    assert (len(whole), len(parts[0])) == (10, 7)
    for (inputs, targets), *halves in zip(whole[3:], *parts, strict=True):
        joined = [worker for half, _ in halves for worker in half]
        assert all(
            torch.equal(x, y)
            for ours, theirs in zip(inputs, joined, strict=True)
            for a, b in zip(ours, theirs, strict=True)
            for x, y in zip(a, b, strict=True)
        )
        tokens = [sum(int((each.ids != PAD).sum()) for each in worker) for worker in targets]
        assert [worker[0].tokens for worker in targets] == [count / 2 for count in tokens]
        assert {each.tokens_of_all for worker in targets for each in worker} == {sum(tokens) / 8}


def test_processes_of_a_worker_draw_their_shares_of_its_buckets(text):
    whole = list(text.batches(plan(text), 1, 0, slice(1, 2)))
    for index in range(2):
        own = list(text.batches(plan(text, share=Share(index, 2)), 1, 0, slice(1, 2)))
        for ([inputs], [targets]), ([all_inputs], [all_targets]) in zip(own, whole, strict=True):
            [(ours, _)], [target] = inputs, targets
            assert torch.equal(ours, all_inputs[index][0])
            assert target[1:] == all_targets[index][1:]  # the tokens of the whole worker, and of all


def test_a_bucket_that_is_too_small_is_one_line():
    with pytest.raises(ValueError, match=r"^data sentences: max_tokens is 20, but the longest .* has \d\d$"):
        data.build("sentences", {"max_tokens": 20})


def test_gradients_are_divided_by_the_tokens_of_all_workers_and_micro_batches(tmp_path: Path):
    """The mean of the workers' gradients is that of one loss over every token of the step."""
    changes = TRANSLATION | {"model": TRANSLATION["model"] | {"dropout": 0.0}}
    session = make_session(tmp_path, **changes)
    inputs, targets = next(batches(session))
    losses = session.engine.gradients(inputs, targets).columns()
    session.sync.after_backward()
    model = session.workers.models[0]
    ours = session.workers.grads[0].clone()
    session.workers.grads.zero_()
    total = likelihood = tokens = 0
    for given, wanted in zip(chain(*inputs), chain(*targets), strict=True):
        logits = model(given).flatten(0, 1)
        of_targets = logits.log_softmax(1).gather(1, wanted.ids.view(-1, 1))
        likelihood -= of_targets[wanted.ids.flatten() != PAD].sum().item()
        total += F.cross_entropy(logits, wanted.ids.flatten(), ignore_index=PAD, reduction="sum", label_smoothing=0.1)
        tokens += int((wanted.ids != PAD).sum())
    (total / tokens).backward()
    torch.testing.assert_close(ours, session.workers.grads[0], rtol=1e-5, atol=1e-7)
    expected = pytest.approx([(total / tokens).item(), likelihood / tokens], rel=1e-5)
    assert losses.mean(0).tolist() == expected  # train_loss, and train_nll without smoothing


def test_a_local_worker_divides_by_its_own_tokens(text):
    [ids] = [text._bucket("train", text._train[0])[1]]
    targets = TokenTargets(ids, tokens=8.0, tokens_of_all=16.0)
    model = models.build(options_of("models", "transformer")(**TINY), (32,), 256, seed=0)
    inputs = text._bucket("train", text._train[0])[0]
    own, of_all = (Translation(over_all_workers=flag).loss(model, inputs, targets) for flag in (False, True))
    assert own.item() == pytest.approx(2 * of_all.item())


def toy(vocabulary: int, seed: int = 1):
    """A model whose logits differ enough for sentences to differ in probability."""
    model = models.build(options_of("models", "transformer")(**TINY), (8,), vocabulary, seed).eval()
    with torch.no_grad():
        model.embedding.weight.mul_(4)
    return model


def log_probability(model, source: torch.Tensor, translation: tuple[int, ...]) -> float:
    given = torch.tensor([[BEGIN, *translation[:-1]]])
    scores = model((source[None], given)).log_softmax(-1)[0]
    return scores[range(len(translation)), translation].sum().item()


SOURCES = torch.tensor([[5, 4, 6, END], [6, END, PAD, PAD]])


def test_the_model_is_the_one_of_torchs_layers():
    """With nn.TransformerEncoder and nn.TransformerDecoder, and embeddings and positions written out."""
    options = options_of("models", "transformer")(**TINY | {"encoder_layers": 2, "decoder_layers": 3})
    model = models.build(options, (8,), 11, seed=0).eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.2 * torch.randn(parameter.shape, generator=generator)
    shape = {"d_model": options.dim, "nhead": options.heads, "dim_feedforward": options.ffn_dim}
    common = shape | {"dropout": 0.0, "batch_first": True}
    encoder = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(**common), options.encoder_layers, enable_nested_tensor=False
    )
    decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(**common), options.decoder_layers)
    for ours, theirs in zip((*model.encoder, *model.decoder), (*encoder.layers, *decoder.layers), strict=True):
        copy_layer(ours, theirs)
    encoder.eval()
    decoder.eval()

    def embedded(tokens: torch.Tensor) -> torch.Tensor:
        half = options.dim // 2
        angles = [[place * 10_000 ** (-i / (half - 1)) for i in range(half)] for place in range(tokens.shape[1])]
        places = torch.tensor([[*map(math.sin, of), *map(math.cos, of)] for of in angles])
        return model.embedding.weight[tokens] * math.sqrt(options.dim) + places

    targets = torch.tensor([[BEGIN, 4, 5, 6, 8], [BEGIN, 7, 9, 10, 4]])
    causal = nn.Transformer.generate_square_subsequent_mask(targets.shape[1])
    with torch.no_grad():
        memory = encoder(embedded(SOURCES), src_key_padding_mask=SOURCES == PAD)
        decoded = decoder(
            embedded(targets), memory, tgt_mask=causal, memory_key_padding_mask=SOURCES == PAD, tgt_is_causal=True
        )
        expected = decoded @ model.embedding.weight.T
        torch.testing.assert_close(model((SOURCES, targets)), expected, rtol=1e-4, atol=1e-4)


def copy_layer(ours: nn.Module, theirs: nn.Module) -> None:
    """Give a layer of torch the weights of ours."""
    attentions = [(ours.attention, theirs.self_attn)]
    norms = [(ours.after_attention, theirs.norm1), (ours.after_ffn, theirs.norm2)]
    if isinstance(theirs, nn.TransformerDecoderLayer):
        attentions.append((ours.source_attention, theirs.multihead_attn))
        norms = [
            (ours.after_attention, theirs.norm1),
            (ours.after_source, theirs.norm2),
            (ours.after_ffn, theirs.norm3),
        ]
    for own, other in attentions:
        parts = (own.query, own.key, own.value)
        other.in_proj_weight.data = torch.cat([part.weight for part in parts]).data
        other.in_proj_bias.data = torch.cat([part.bias for part in parts]).data
        other.out_proj.load_state_dict(own.out.state_dict())
    for own, other in norms:
        other.load_state_dict(own.norm.state_dict())
    theirs.linear1.load_state_dict(ours.ffn[0].state_dict())
    theirs.linear2.load_state_dict(ours.ffn[2].state_dict())


def test_the_first_weights_are_those_of_ott_et_al():
    """Xavier-uniform, with queries, keys and values as one matrix; embeddings normal with a deviation of dim^-0.5."""
    model = models.build(options_of("models", "transformer")(dim=64, ffn_dim=128, heads=4), (8,), 1000, seed=0)
    layer = model.decoder[0]
    for weight, bound in (
        (layer.ffn[0].weight, math.sqrt(6 / (64 + 128))),
        (layer.source_attention.out.weight, math.sqrt(6 / (64 + 64))),
        (layer.attention.key.weight, math.sqrt(6 / (3 * 64 + 64))),
    ):
        assert 0.99 * bound < weight.abs().max().item() <= bound
        assert weight.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.03)
    words = model.embedding.weight.detach()
    assert not words[PAD].any()
    assert words[4:].std().item() == pytest.approx(64**-0.5, rel=0.02)
    assert not any(module.bias.any() for module in model.modules() if isinstance(module, nn.Linear))


@pytest.mark.parametrize("length_penalty", [0.0, 0.6, 1.5])
def test_beam_search_with_a_wide_beam_finds_the_best_of_all_sentences(length_penalty: float):
    model, limit = toy(vocabulary=7), 3
    words = [token for token in range(7) if token not in (PAD, BEGIN, END)]
    everything = [(*middle, END) for length in range(limit) for middle in product(words, repeat=length)]
    found = translate(model, SOURCES, 80, length_penalty, torch.tensor([limit, limit]))
    with torch.no_grad():
        for source, translation in zip(SOURCES, found, strict=True):
            source = source[source != PAD]
            scores = {each: log_probability(model, source, each) / len(each) ** length_penalty for each in everything}
            assert tuple(translation) == max(scores, key=scores.__getitem__)[:-1]


def test_beam_search_with_one_beam_is_greedy():
    model, limit = toy(vocabulary=30, seed=2), 7
    expected = []
    for source in SOURCES:
        tokens = [BEGIN]
        while len(tokens) <= limit and (len(tokens) == 1 or tokens[-1] != END):
            logits = model((source[source != PAD][None], torch.tensor([tokens])))[0, -1]
            logits[[PAD, BEGIN]] = -torch.inf
            tokens.append(END if len(tokens) == limit else int(logits.argmax()))
        expected.append(tokens[1:-1])
    assert translate(model, SOURCES, 1, 0.6, torch.tensor([limit, limit])) == expected


def test_bleu_adds_up_over_processes(text):
    model = models.build(options_of("models", "transformer")(**TINY), (32,), 256, seed=0).eval()
    objective = Translation(beam_search=BeamSearch(beam_size=2, length_penalty=0.6))

    def sums(rank: int, world_size: int) -> dict[str, torch.Tensor]:
        return {**objective.sums([model], text, rank, world_size), **objective.test_sums(model, text, rank, world_size)}

    alone = sums(0, 1)
    parts = [sums(rank, 3) for rank in range(3)]
    torch.testing.assert_close({name: sum(part[name] for part in parts) for name in alone}, alone)
    translations, references = [], []
    for sources, humans in text.test(0, 1):
        translations += [text.decode(ids) for ids in objective._translate(model, sources)]
        references += humans
    assert len(references) == 40
    found = objective.metrics(alone)
    assert found["test_bleu"] == pytest.approx(BLEU().corpus_score(translations, [references]).score)
    assert set(found) == {"val_loss", "val_perplexity", "test_bleu", "test_bleu_tokenised"}
    assert objective.signatures["test_bleu"].startswith("nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:")
    assert objective.signatures["test_bleu_tokenised"].startswith("nrefs:1|case:mixed|eff:no|tok:moses-de, compounds ")
    perfect = alone | dict.fromkeys(objective.signatures, torch.tensor([9, 8, 7, 6, 9, 8, 7, 6, 9, 9]))
    assert [objective.metrics(perfect)[name] for name in objective.signatures] == pytest.approx([100, 100])


def plain_bleu(translations: list[str], references: list[str]) -> float:
    """Papineni et al. 2002 of sentences whose tokens are separated by spaces, written out."""
    matches, totals, lengths = [0] * 4, [0] * 4, [0, 0]
    for ours, theirs in zip(
        (each.split() for each in translations), (each.split() for each in references), strict=True
    ):
        lengths = [lengths[0] + len(ours), lengths[1] + len(theirs)]
        for n in range(1, 5):
            mine, wanted = (Counter(zip(*(side[i:] for i in range(n)), strict=False)) for side in (ours, theirs))
            matches[n - 1] += (mine & wanted).total()
            totals[n - 1] += mine.total()
    precision = math.prod(match / total for match, total in zip(matches, totals, strict=True)) ** 0.25
    return 100 * precision * min(1, math.exp(1 - lengths[1] / lengths[0]))


def test_tokenised_bleu_splits_compounds_and_punctuation():
    """Moses separates punctuation, not hyphens; the split makes three tokens of a compound, as in the scripts."""
    translations = ["Die E-Mail-Adresse ist z. B. falsch, oder?", "Er sah den Nord-Süd-Zug."]
    references = ["Die E-Mail-Adresse ist z. B. falsch!", "Sie sah den Nord-Ost-Zug ."]
    tokens = [
        "Die E ##AT##-##AT## Mail ##AT##-##AT## Adresse ist z. B. falsch , oder ?",
        "Er sah den Nord ##AT##-##AT## Süd ##AT##-##AT## Zug .",
    ]
    wanted = [
        "Die E ##AT##-##AT## Mail ##AT##-##AT## Adresse ist z. B. falsch !",
        "Sie sah den Nord ##AT##-##AT## Ost ##AT##-##AT## Zug .",
    ]
    form = forms("de")["test_bleu_tokenised"]
    assert [form.prepared(each) for each in [*translations, *references]] == [*tokens, *wanted]
    found = form.score(form.statistics(translations, references))
    assert found == pytest.approx(plain_bleu(tokens, wanted))
    assert found > form.score(form.statistics([each.replace("-", "") for each in translations], references))


def test_dropout_is_a_function_of_seed_worker_and_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    session = make_session(tmp_path, **TRANSLATION)
    # torch.manual_seed writes the stack down for each kind of device that is not in use: milliseconds per gradient.
    monkeypatch.setattr("traceback.format_stack", lambda *_: pytest.fail("seeds devices that are not in use"))
    inputs, targets = next(batches(session))
    same = [inputs[0]] * 4, [targets[0]] * 4
    first, again = (session.engine.gradients(*same, step=3).losses for _ in range(2))
    assert torch.equal(first, again)
    assert len(set(first.tolist())) == 4
    assert not torch.equal(session.engine.gradients(*same, step=4).losses, first)


def test_an_epoch_of_more_buckets_than_there_are_is_refused_before_training(tmp_path: Path):
    with pytest.raises(ValueError, match=r"^70 steps of 4 x 2 samples need 560 samples .* the data set has 1\d\d$"):
        make_session(tmp_path, **TRANSLATION | {"steps_per_epoch": 70})
