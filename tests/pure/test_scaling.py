"""How methods scale, by the wall-clock model, and the page that says so."""

from pathlib import Path

import pytest

from resync.papers.paper import load_suite
from resync.papers.plan.network import LINKS, Network
from resync.papers.plan.scaling import MOST_WORKERS, Scaling, scalings
from resync.papers.plan.wallclock import Machine, wall_clock

ROOT = Path(__file__).parents[2]
RESNET50 = 25_557_032
ETHERNET = Network(LINKS["ethernet_10g"], all_reduce="recursive_doubling")
COMPUTE = 0.25
MESSAGE = LINKS["ethernet_10g"].message(4 * RESNET50)
STEP = COMPUTE + ETHERNET.inside_seconds(4 * RESNET50, 8)


@pytest.fixture(scope="module")
def sgp() -> dict[str, Scaling]:
    """Methods of SGP's paper that compute for 0.25 s in a step, on 4 and 4,096 nodes."""
    suite = load_suite(ROOT / "paper_configs", papers=["sgp"])
    runs = [(run, RESNET50) for run in suite.runs("sgp", "paper", "resnet50_ethernet")]
    found, at_the_end, unknown = scalings(runs, (), lambda run: ETHERNET, (4, 4096), compute=COMPUTE)
    assert len(at_the_end) == len(found)
    assert unknown == []
    assert [each.series.split("/")[1] for each in found] == ["ar_4", "dpsgd_4", "sgp_4"]  # a method is shown once
    return {each.series.split("/")[1]: each for each in found}


def test_gossip_takes_a_time_that_shrinks_with_the_workers_and_an_all_reduce_log2_more(sgp: dict[str, Scaling]):
    per_sample = {name: [4 * sgp[name].seconds[0], 4096 * sgp[name].seconds[1]] for name in sgp}
    few, many = per_sample["sgp_4"]
    assert many == pytest.approx(few)
    few, many = per_sample["ar_4"]
    assert many / few == pytest.approx((STEP + 12 * MESSAGE) / (STEP + 2 * MESSAGE))


def test_the_limit_is_where_half_of_the_time_is_left(sgp: dict[str, Scaling]):
    assert 3 * MESSAGE < STEP < 4 * MESSAGE  # of log2 n messages
    assert (sgp["ar_4"].half, sgp["sgp_4"].half) == (8, MOST_WORKERS)


def test_all_methods_take_the_same_samples(sgp: dict[str, Scaling]):
    assert {each.samples for each in sgp.values()} == {90 * 1252 * 1024}
    run = load_suite(ROOT / "paper_configs", papers=["sgp"]).runs("sgp", "paper", "resnet50_ethernet", "sgp_4")[0]
    clock = wall_clock(run, Machine(ETHERNET, COMPUTE), RESNET50, 4)
    assert sgp["sgp_4"].seconds[0] == pytest.approx(clock.total)
    assert sgp["sgp_4"].whole_set == 5005  # 1,281,167 images, 256 for each
    assert sgp["sgp_4"].simulated_bytes == 3 * 4 * RESNET50  # with momentum
