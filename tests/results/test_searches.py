"""Runs that search a learning rate: what they leave, how they go on, and how they are drawn and audited."""

import math

import numpy as np
import pytest
import synthetic
import torch
import yaml

from resync.base.settings.errors import ConfigError
from resync.base.settings.problems import Collector
from resync.papers.audit import audit, curves, verdicts
from resync.papers.audit.verdicts import Target
from resync.papers.paper import records
from resync.papers.paper.claim import CurveTest
from resync.papers.paper.references import Known
from resync.papers.render import final_errors, final_values, item, search_records
from resync.runs.metrics.registry import required_columns
from resync.runs.results.runs import read_run, state_of
from resync.runs.run import Run
from resync.runs.train import search as searching
from resync.runs.train.run import train
from resync.tasks.data.quadratics import drawn

SMALL = {
    "paper": "test",
    "experiment": "graphs",
    "series": "gossip",
    "scale": "smoke",
    "seed": 1,
    "data": {"name": "quadratics", "heterogeneity": 0, "distance": 10},
    "model": {"name": "point"},
    "sampling": "with_replacement",
    "workers": 6,
    "batch_size": 6,
    "epochs": 1,
    "steps_per_epoch": 20000,
    "optimizer": {"name": "sgd"},
    "schedule": {"name": "constant", "lr": 100},
    "sync": {"name": "dpsgd", "topology": "undirected_ring"},
    "search": {"rule": "fastest", "trials": 25, "workers": [4, 6]},
    "log": {"wandb": "disabled"},
    "device": "cpu",
}


def run_of(folder, **changes):
    file = folder / "config.yaml"
    file.write_text(yaml.safe_dump(SMALL | changes))
    return Run.from_file(file)


def found_by(result):
    names = "searched_workers", "tuned_steps", "tuned_lr", "search_trials", "search_exhausted"
    return [tuple(row) for row in result.metrics[list(names)].to_numpy().tolist()]


def test_an_error_that_is_rounding_is_zero():
    functions = drawn(8, seed=1, heterogeneity=10, distance=10)
    near = functions.optimum + 1e-9
    assert functions.error(near) == 0 != functions.value(near) - functions.least
    step = torch.full_like(functions.optimum, 1e-6)
    above = (functions.matrices @ step).square().sum().item() / 8
    assert functions.error(functions.optimum + step) == pytest.approx(above, rel=0.01)


def test_a_search_has_a_row_for_each_number_of_workers_and_goes_on_where_it_stopped(tmp_path, monkeypatch):
    """The records of seed 1 of the published logs: 7 and 9 steps at half of 1.5625."""
    run = run_of(tmp_path)
    whole = tmp_path / "whole" / run.directory
    assert train(run, whole)
    result = state_of(run, tmp_path / "whole").result
    assert [row[:3] for row in found_by(result)] == [(4, 7, 0.78125), (6, 9, 0.78125)]
    assert 0 < result.final("suboptimality") < 1e-6
    assert result.at_workers("tuned_steps", 4) == 7

    again = interrupted_and_resumed(run, tmp_path / "part" / run.directory, monkeypatch)
    assert found_by(again) == found_by(result)
    assert again.summary["parameters_sha256"] == result.summary["parameters_sha256"]
    assert len(again.summary["jobs"]) == 2


def interrupted_and_resumed(run, directory, monkeypatch):
    """The result of a run that stopped before its search with six workers, and went on."""

    class Stop(Exception):
        pass

    def interrupted(session, number, search=searching._search):
        if number == 6:
            raise Stop
        return search(session, number)

    with monkeypatch.context() as patched:
        patched.setattr(searching, "_search", interrupted)
        with pytest.raises(Stop):
            train(run, directory)
    assert train(run, directory)
    return read_run(directory)


def errors_of_gossip(workers, weight, lr, steps):
    """The errors of D-PSGD on a ring after each of `steps`, written out."""
    functions = drawn(workers, 1, 0, 10)
    matrices, targets = functions.matrices.numpy(), functions.targets.numpy()
    ring = np.roll(np.eye(workers), 1, 0) + np.roll(np.eye(workers), -1, 0)
    mixing, x, errors = weight * ring + (1 - 2 * weight) * np.eye(workers), np.zeros((workers, 10)), {}
    for step in range(1, max(steps) + 1):
        residuals = np.einsum("nij,nj->ni", matrices, x) - targets
        x = mixing @ (x - lr * np.einsum("nji,nj->ni", matrices, residuals))
        errors[step] = functions.error(torch.from_numpy(x.mean(0)))
    return [errors[step] for step in steps]


FINAL = {"schedule": {"name": "constant", "lr": 0.4}}


@pytest.mark.parametrize(("steps", "looks"), [(13, [5, 10]), (11, [5, 10, 11])])
def test_a_training_with_a_given_rate_has_a_row_for_each_look_at_its_error(steps, looks, tmp_path):
    """A look every five steps, and one more after the last step where the one before it is looked at."""
    final = {"steps": steps, "every": 5, "most_lr": 0.3, "weight": 0.2}
    search = {"rule": "given", "trials": 1, "workers": [4, 6], "final": final}
    run = run_of(tmp_path, search=search, **FINAL)
    assert train(run, tmp_path / run.directory)
    result = read_run(tmp_path / run.directory)
    rows = result.metrics[["searched_workers", "final_step"]].to_numpy().tolist()
    assert rows == [[number, look] for number in (4, 6) for look in looks]
    expected = [*errors_of_gossip(4, 0.2, 0.3, looks), *errors_of_gossip(6, 0.2, 0.3, looks)]
    assert result.curve("final_error").tolist() == pytest.approx(expected, rel=1e-11)
    assert result.at_workers("final_error", 4) == pytest.approx(expected[len(looks) - 1], rel=1e-11)
    assert np.isnan(result.curve("tuned_steps")).all()


def test_trainings_with_noise_are_beside_one_without_and_go_on_with_the_same(tmp_path, monkeypatch):
    final = {"steps": 65, "every": 20}
    search = {"rule": "given", "trials": 1, "workers": [4, 6], "final": final}
    quiet = run_of(tmp_path, search=search, **FINAL)
    noisy = run_of(tmp_path, search=search | {"final": final | {"noise": 0.5}}, **FINAL)
    for name, run in (("quiet", quiet), ("noisy", noisy)):
        assert train(run, tmp_path / name)
    result = read_run(tmp_path / "noisy")
    np.testing.assert_allclose(
        result.curve("final_error"), read_run(tmp_path / "quiet").curve("final_error"), rtol=1e-9, atol=1e-12
    )
    low, mean, high = (result.curve(f"noisy_error{end}") for end in ("_min", "", "_max"))
    assert result.final("final_error") < 1e-3 * low[-1]
    assert ((low < mean) & (mean < high)).all()
    assert len(set(mean.tolist())) == 6  # other noise for every number of workers
    again = interrupted_and_resumed(noisy, tmp_path / "part", monkeypatch)
    names = ["searched_workers", "final_step", "final_error", "noisy_error_min", "noisy_error", "noisy_error_max"]
    assert again.metrics[names].equals(result.metrics[names])


def test_a_training_ends_with_an_error_that_is_rounding(tmp_path):
    search = {"rule": "given", "trials": 1, "workers": [6], "final": {"steps": 2000}}
    run = run_of(tmp_path, search=search, **FINAL)
    assert train(run, tmp_path / run.directory)
    *before, last = read_run(tmp_path / run.directory).curve("final_error")
    assert last < 1e-12 < min(before)
    assert len(before) < 110  # of hundreds of looks


@pytest.mark.timeout(120)
def test_a_search_ends_that_takes_more_steps_than_a_training_of_its_run(tmp_path):
    changes = {
        "sync": {"name": "sgp", "mixing_steps": 2},
        "data": SMALL["data"] | {"heterogeneity": 1, "distance": 100},
    }
    search = SMALL["search"] | {"workers": [4, 6, 8], "trials": 30}
    run = run_of(tmp_path, **changes, search=search, workers=8, batch_size=8)
    assert train(run, tmp_path / run.directory)
    assert read_run(tmp_path / run.directory).summary["steps"] > run.total_steps


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"optimizer": {"name": "sgd", "momentum": 0.9}}, "sgd without momentum"),
        ({"search": SMALL["search"] | {"workers": [4, 8]}}, "workers = 6"),
        ({"search": SMALL["search"] | {"workers": [6, 4, 6]}}, "numbers that increase"),
        ({"data": {"name": "digits"}, "model": {"name": "mlp"}}, "has no effect in classification"),
        ({"schedule": {"name": "constant", "lr": 1, "warmup_steps": 3}}, "the start of the search"),
        ({"search": SMALL["search"] | {"rule": "given"}}, "since nothing is searched"),
        ({"search": SMALL["search"] | {"final": {"steps": 5, "every": 5}}}, "less than its 5 steps"),
        ({"search": SMALL["search"] | {"final": {"steps": 5, "lr_by_delay": True}}}, "null, or relaysum of models"),
        (
            {"search": SMALL["search"] | {"final": {"steps": 5, "weight": 0.1}}, "sync": {"name": "sgp"}},
            "final.weight: found with sync sgp",
        ),
    ],
)
def test_a_search_refuses_what_it_does_not_do(tmp_path, changes, message):
    with pytest.raises(ConfigError, match=message):
        run_of(tmp_path, **changes)


def test_any_algorithm_trains_on_quadratics_in_the_general_loop(tmp_path):
    """With a learning rate of its own, without a search: momentum too."""
    run = run_of(
        tmp_path, search=None, steps_per_epoch=60, optimizer={"name": "sgd", "momentum": 0.5},
        schedule={"name": "constant", "lr": 0.5}, sync={"name": "diloco", "period": {"rule": "constant", "h": 5}},
    )  # fmt: skip
    assert train(run, tmp_path / "out")
    errors = read_run(tmp_path / "out").curve("suboptimality")
    assert errors[-1] < 1e-3 * errors[0]


@pytest.mark.parametrize(
    ("ours", "word", "reason"),
    [(100.0, "agrees", "equal"), (101.0, "agrees", "+1 %"), (103.0, "disagrees", "+3 %")],
)
def test_a_record_is_equal_or_within_its_tolerance(ours, word, reason):
    verdict = verdicts.record(ours, Target(100.0, declared=2.0, reason="one point"))
    assert verdict.word == word
    assert reason in verdict.reason
    steps = verdicts.record(100.0, Target(100.0, declared=2.0))
    both = [verdicts.record_with_rate(steps, rate, 0.5, Target(100.0, declared=2.0)) for rate in (0.5, 0.505, 0.52)]
    assert [each.word for each in both] == ["agrees", "agrees", "disagrees"]
    assert verdicts.record(math.nan, Target(100.0, declared=2.0)).word == "disagrees"


@pytest.mark.parametrize(
    ("noisy", "quiet", "word", "reason"),
    [
        ((0.9, 1.2), 0.1, "agrees", "within the range of 39 trainings with other noise, 0.9 to 1.2 (95 %), which excl"),
        ((0.9, 1.2), 0.95, "open", "and so is 0.95 without noise"),
        ((1.1, 1.2), 0.1, "disagrees", "outside the range of 39 trainings"),
        ((0.9, math.nan), 0.1, "disagrees", "diverged"),
    ],
)
def test_an_error_with_noise_is_met_in_distribution(noisy, quiet, word, reason):
    verdict = verdicts.draw_of_record(noisy, quiet, Target(1.0))
    assert verdict.word == word
    assert reason in verdict.reason


def test_records_are_lines_of_the_audit_of_their_own_scale_only(papers, tmp_path):
    found = {scale: audit(papers, scale, tmp_path, ["gossip_quadratics"]).rows for scale in ("smoke", "paper")}
    assert not found["smoke"]
    assert {row.because for row in found["paper"]} == {"not run"}
    assert len(found["paper"]) == 1632 + 58


NOISY = {"final_error": -1.8e-15, "noisy_error": 7e-7, "noisy_error_min": 2e-7, "noisy_error_max": 2e-6}
"""Errors with noise of gradient tracking in figure 7, in the middle; 6.32e-7 is published."""


@pytest.fixture
def appendix(papers, tmp_path):
    """Results of one series of figure 7, with its published steps and rate."""
    [run] = papers.runs("gossip_quadratics", "paper", "noisy_mild", "tracking")
    found = {"searched_workers": 32, "tuned_steps": 301, "tuned_lr": 0.019330978393554688, "search_trials": 20}
    early = dict.fromkeys(NOISY, 0.25) | {"final_step": 40}
    looks = [early, NOISY | {"final_step": 2000}]
    empty = dict.fromkeys((*required_columns("metrics"), "suboptimality", "search_exhausted"), 0)
    rows = [empty | found | {"step": number} | look for number, look in enumerate(looks)]
    directory = tmp_path / run.directory
    directory.mkdir(parents=True)
    (directory / "run.yaml").write_text(run.to_yaml())
    synthetic.write_csv(directory / "metrics.csv", rows)
    synthetic.write_csv(directory / "steps.csv", [dict.fromkeys(required_columns("steps"), 0)])
    synthetic.seal(directory, synthetic.summary(run, rows))
    return tmp_path


def test_the_audit_says_of_an_error_with_noise_that_it_is_met_in_distribution(papers, appendix):
    rows = {row.id: row for row in audit(papers, "paper", appendix, ["gossip_quadratics"]).rows}
    search, error = rows["noisy_mild_tracking_search"], rows["noisy_mild_tracking_error"]
    assert (search.verdict, search.reason) == ("agrees", "steps equal to the record of this seed")
    assert (error.verdict, error.because) == ("agrees", "runs decide")
    assert error.reason == (
        "within the range of 39 trainings with other noise, 2e-07 to 2e-06 (95 %), which excludes less than 1e-13 "
        "without noise"
    )


def test_figures_of_the_appendix_show_errors_against_steps_with_the_published_one(papers, appendix):
    panels = final_errors.prepare(item.load(papers, "gossip_quadratics", "fig7", "paper", appendix)).panels
    assert [(panel.title, [line.label for line in panel.lines]) for panel in panels] == [
        ("ζ² = 0", []), ("ζ² = 0.1", ["Gradient tracking, ring"]), ("ζ² = 10", []),
    ]  # fmt: skip
    [line] = panels[1].lines
    assert [list(values) for values in (line.x, line.low, line.y, line.high)] == [
        [40, 2000], [0.25, 2e-7], [0.25, 7e-7], [0.25, 2e-6],
    ]  # fmt: skip
    [(step, level)] = line.marks
    assert (step, level.value) == (2000, 6.319424846190635e-07)


def test_the_table_of_the_appendix_has_ours_beside_the_published_ones(papers, appendix):
    table = final_values.prepare(item.load(papers, "gossip_quadratics", "appendix", "paper", appendix))
    shown = {tuple(cell.text for cell in row[:3]): [cell.text for cell in row[3:]] for row in table.rows}
    assert shown["Gradient tracking, ring", "0.1", "32"] == [
        "301", "301", "0.019331", "0.019331", "< 1e-13", item.NONE, "7e-07 (2e-07 to 2e-06)", "6.31942e-07",
    ]  # fmt: skip
    assert shown["RelaySum/Model, chain", "0.1", "8"][4:6] == [item.NONE, "9.79827e-13"]
    assert len(table.rows) == 12 + 4 * 6 + 10 + 3 * 5 + 3 * 3


def test_published_means_stand_below_ours_and_the_records_beside_each_search(papers, tmp_path):
    table = search_records.prepare(item.load(papers, "gossip_quadratics", "records", "paper", tmp_path))
    ours, published = ([cell.text for cell in row] for row in table.rows[:2])
    assert ours[:4] == ["Gossip, ring", "0", "ours", item.NONE]
    assert ours[-1] == "0 of 63"
    assert published[:4] == ["Gossip, ring", "0", "published", "8.1"]
    assert "1,632 of the 1,980 searches have a published record" in table.note
    found = table.records[0] | {"best_steps": "9", "best_lr": "0.78125"}
    assert (found["published_steps"], found["published_lr"]) == (9, 0.78125)
    assert search_records._is_equal(found)
    assert not search_records._is_equal(found | {"best_lr": "0.7813"})


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("Gossip,ring,0,10,4,0,-9,0.78125", "records.csv:2: "),
        ("Gossip,ring,0,10,4,0,9,-1", "rate"),
        ("Gossip,ring,0,10,4,0,9,nan", "records.csv:2: "),
        ("Gossip,ring,0,10,4,0,nine,1", "could not convert string to float: 'nine'"),
        ("Gossip,ring,0,10,5,0,9,1", "no run at paper scale searches this"),
        ("Gossip,ring,0,10,4,0,9", "allowed: a value for each of algorithm, topology"),
    ],
)
def test_a_wrong_record_is_one_line_with_its_place(row: str, message: str, tmp_path):
    shared = {"item": "a", "status": "verified", "source": "s", "tolerance": 0.1, "tolerance_reason": "r"}
    (tmp_path / "records.yaml").write_text(yaml.safe_dump(shared))
    (tmp_path / "records.csv").write_text(f"{','.join(records.COLUMNS)}\n{row}\n")
    run = run_of(tmp_path, scale="paper")
    run._label = "Gossip, ring"
    collector = Collector(tmp_path)
    assert not records.read_records(tmp_path, Known({}, None, True, {("graphs", "gossip", "paper"): run}), collector)
    [line] = collector.lines
    assert line.startswith(f"{tmp_path}/records.csv:2: ")
    assert message in line


SQUARE = {(seed, n): (1 + seed) * n**2 for seed in (0, 1) for n in (4, 8, 16)}
LINE = {key: float(key[1]) for key in SQUARE}


def bound(**given):
    return CurveTest.model_validate({"series": "a"} | given)


def test_bounds_are_on_slopes_and_ratios_of_seeds_means_or_the_median():
    assert curves.values_of(bound(quantity="slope", least=1), SQUARE, SQUARE) == pytest.approx([2, 2])
    ratio = {"quantity": "ratio", "than": "b", "least": 1}
    assert curves.values_of(bound(**ratio, workers=[4]), SQUARE, LINE) == [4, 8]
    assert curves.values_of(bound(**ratio, of="means"), SQUARE, LINE) == [6, 12, 24]
    assert curves.values_of(bound(**ratio, of="median"), SQUARE, LINE) == [12]
    falling = bound(quantity="ratio", workers=[8, 16], than_workers=[4, 8], of="means", least=1)
    assert curves.values_of(falling, SQUARE, SQUARE) == [4, 4]


def test_a_claim_holds_if_all_of_its_bounds_do():
    slope = bound(quantity="slope", least=1.5, most=2)
    assert curves.verdict({"slope": (slope, [1.6, 2.0])}).word == "agrees"
    verdict = curves.verdict({"slope": (slope, [1.6, 2.0]), "other": (slope, [1.4, 1.9])})
    assert verdict.word == "disagrees"
    assert verdict.reason == "1 of 2 bounds do not hold: other 1.400 to 1.900, claimed: at least 1.5 and at most 2"


@pytest.mark.parametrize(
    "given", [{"quantity": "slope"}, {"quantity": "slope", "least": 1, "than": "b"}, {"quantity": "ratio", "least": 1}]
)
def test_bounds_need_a_number_and_something_to_divide_by(given):
    with pytest.raises(ValueError, match="allowed"):
        bound(**given)
