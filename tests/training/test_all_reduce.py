"""All-reduces made of messages: the sum, the same bits on every rank, and as many bytes as the papers say."""

import numpy as np
import pytest
import torch
from processes import run_processes

from resync.workers.engine.all_reduce import ALL_REDUCES
from resync.workers.engine.clocks import Clocks
from resync.workers.engine.members import Members
from resync.workers.engine.transport import Transport

LENGTHS = (1, 2, 1001)


def _summed(rank: int, world_size: int) -> dict[tuple[str, int], tuple[np.ndarray, int]]:
    found = {}
    for name, all_reduce in ALL_REDUCES.items():
        for length in LENGTHS:
            total = torch.from_numpy(_values(world_size, length)[rank])
            sent = all_reduce(total, rank, world_size)
            found[name, length] = total.numpy(), sent
    return found


def _values(world_size: int, length: int) -> np.ndarray:
    return np.random.default_rng(length).normal(size=(world_size, length)).astype(np.float32)


@pytest.mark.parametrize(
    ("world_size", "doublings"),
    [(3, [2, 1, 1]), (4, [2] * 4), (6, [3, 3, 2, 2, 1, 1])],  # whole vectors that each rank sends
)
def test_all_ranks_have_the_sum_with_the_same_bits(world_size: int, doublings: list[int]):
    ranks = run_processes(world_size, _summed)
    for name in ALL_REDUCES:
        for length in LENGTHS:
            sums, sent = zip(*(rank[name, length] for rank in ranks), strict=True)
            assert all(np.array_equal(each, sums[0]) for each in sums)
            expected = _values(world_size, length).astype(np.float64).sum(0)
            np.testing.assert_allclose(sums[0], expected, rtol=0, atol=1e-5)
            if name == "recursive_doubling":
                assert list(sent) == [4 * length * number for number in doublings]
            else:
                assert sum(sent) == 2 * (world_size - 1) * 4 * length  # every byte goes around almost twice
                if length >= world_size:
                    assert max(sent) - min(sent) <= 2 * 4 * world_size


WIRE = {"default": 24, "recursive_doubling": 48, "ring": 36}
"""Bytes of each of four processes for six float32: one vector, log2 4 vectors, and 2 * 3 / 4 of a vector."""


def _averaged(rank: int, world_size: int) -> dict[str, tuple[np.ndarray, int, int]]:
    found = {}
    for name in WIRE:
        transport = Transport(Members(2 * world_size, 1, rank, world_size), Clocks(torch.device("cpu")))
        rows = torch.from_numpy(_values(2 * world_size, 6))[transport.local].clone()
        transport.mean_(rows, name)
        with transport.uncounted():
            transport.mean_(rows, name)
        found[name] = rows.numpy(), transport.bytes_sent, transport.wire_bytes
    return found


def test_the_transport_counts_what_the_algorithm_and_what_the_process_sends():
    for found in run_processes(4, _averaged):
        for name, (rows, bytes_sent, wire_bytes) in found.items():
            np.testing.assert_allclose(rows, np.tile(_values(8, 6).mean(0), (2, 1)), rtol=0, atol=1e-6)
            assert bytes_sent == 24
            # On the ring six elements are parts of two and of one.
            assert abs(wire_bytes - WIRE[name]) <= (8 if name == "ring" else 0)
