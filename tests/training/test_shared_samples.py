"""Which samples the members of a changing group take."""

from collections import Counter

import numpy as np
import pytest

import resync


def _members(number: int, **options: object) -> dict[str, resync.SharedSamples]:
    return {name: resync.SharedSamples(50, 4, seed=1, **options) for name in "abcd"[:number]}


def _round(members: dict[str, resync.SharedSamples], batches: int, lost: str = "", idle: str = "") -> list[int]:
    """A round of all; returns the samples of those that were not lost."""
    for name, each in members.items():
        each.begin_round([*members], name, [*idle])
    taken = {name: [each.next() for _ in range(batches)] for name, each in members.items() if name not in idle}
    for name in lost:
        members.pop(name)
    for each in members.values():
        each.end_round([*members])
    return [index for name, parts in taken.items() if name not in lost for part in parts for index in part.tolist()]


def _join(members: dict[str, resync.SharedSamples], name: str, **options: object) -> None:
    newcomer = resync.SharedSamples(50, 4, seed=1, **options)
    newcomer.load_state_dict(next(iter(members.values())).state_dict())
    members[name] = newcomer


@pytest.mark.parametrize("constant", [False, True])
def test_an_epoch_has_every_sample_once_whoever_is_lost_or_comes(constant: bool):
    members = _members(4, constant=constant)
    seen = _round(members, 2)
    seen += _round(members, 2, lost="b")
    _join(members, "b", constant=constant)
    seen += _round(members, 3, lost="ad")
    seen += _round(members, 3, idle="c")
    while len(seen) < 100:
        seen += _round(members, 1)
    assert max(Counter(seen[:50]).values()) <= 2
    first = members["b"]
    # Two epochs are done when two times 50 places of the line have been trained on, whatever their order.
    while first._again or first._first < 100:
        seen += _round(members, 1)
    counts = Counter(seen)
    assert set(counts) == set(range(50))
    assert sum(counts.values()) == first.given - first.returned == first._first
    assert min(counts.values()) >= 2
    assert max(counts.values()) <= 3  # of an epoch that has begun
    assert first.returned == (2 * 4 + 2 * 3 * 4 if not constant else 2 + 6)


def test_members_of_a_round_take_equal_blocks_of_one_order():
    members = _members(2)
    order = np.array(_round(members, 3)).reshape(2, 3, 4).transpose(1, 0, 2).ravel()
    alone = _members(1)
    assert order.tolist() == _round(alone, 6)


def test_a_worker_that_brings_a_gradient_takes_no_samples():
    members = _members(2)
    for name, each in members.items():
        each.begin_round("ab", name, "b")
    with pytest.raises(RuntimeError, match="still has a gradient"):
        members["b"].next()
