"""Runs that search a learning rate: what they leave, how they go on, and how they are drawn and audited."""

import math

import pytest
import yaml

from resync.base.settings.errors import ConfigError
from resync.base.settings.problems import Collector
from resync.papers.audit import audit, curves, verdicts
from resync.papers.audit.verdicts import Target
from resync.papers.paper import records
from resync.papers.paper.claim import CurveTest
from resync.papers.paper.references import Known
from resync.papers.render import item, search_records
from resync.runs.results.runs import read_run, state_of
from resync.runs.run import Run
from resync.runs.train import search as searching
from resync.runs.train.run import train

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


def test_a_search_has_a_row_for_each_number_of_workers_and_goes_on_where_it_stopped(tmp_path, monkeypatch):
    """The records of seed 1 of the published logs: 7 and 9 steps at half of 1.5625."""
    run = run_of(tmp_path)
    whole = tmp_path / "whole" / run.directory
    assert train(run, whole)
    result = state_of(run, tmp_path / "whole").result
    assert [row[:3] for row in found_by(result)] == [(4, 7, 0.78125), (6, 9, 0.78125)]
    assert 0 < result.final("suboptimality") < 1e-6
    assert result.at_workers("tuned_steps", 4) == 7

    class Stop(Exception):
        pass

    def interrupted(session, number, search=searching._search):
        if number == 6:
            raise Stop
        return search(session, number)

    monkeypatch.setattr(searching, "_search", interrupted)
    part = tmp_path / "part" / run.directory
    with pytest.raises(Stop):
        train(run, part)
    monkeypatch.undo()
    assert train(run, part)
    again = read_run(part)
    assert found_by(again) == found_by(result)
    assert again.summary["parameters_sha256"] == result.summary["parameters_sha256"]
    assert len(again.summary["jobs"]) == 2


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
    assert errors.iloc[-1] < 1e-3 * errors.iloc[0]


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


def test_records_are_lines_of_the_audit_of_their_own_scale_only(papers, tmp_path):
    found = {scale: audit(papers, scale, tmp_path, ["gossip_quadratics"]).rows for scale in ("smoke", "paper")}
    assert not found["smoke"]
    assert {row.because for row in found["paper"]} == {"not run"}
    assert len(found["paper"]) == 1632


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
