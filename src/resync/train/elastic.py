"""A run whose workers may be lost and come back: which samples they get, who takes part, and what is said of it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from resync.data.shared_samples import SharedSamples
from resync.engine.elastic_transport import SimulatedTransport
from resync.run import Run
from resync.run.elastic import away
from resync.streams import stream_seed
from resync.train.session import Session

Members = list[tuple[int, list[str]]]
"""After which step a change was made, and the members from then on."""


def name_of(worker: int) -> str:
    """The name of a worker among the members, whose order is that of their names."""
    return f"{worker:05d}"


def shared_samples(run: Run, size: int) -> SharedSamples:
    """The samples of a data set of this size, as the members of a run take them."""
    return SharedSamples(size, run.local_batch_size, seed=run.seed)


def account(run: Run, members: Members, samples: SharedSamples) -> dict[str, Any]:
    """What the summary says: the members over time, who was away, and the samples that were lost and given again."""
    everybody = [name_of(worker) for worker in range(run.workers)]
    absences = [each for each in away([(0, everybody), *members]) if each[2] is None or each[1] <= each[2]]
    return {
        "members": [[step, [int(name) for name in names]] for step, names in members],
        "away": [[int(name), first, back] for name, first, back in sorted(absences)],
        "samples_given": samples.given,
        "samples_lost": samples.returned,
    }


def say(run: Run, step: int, members: Sequence[str]) -> None:
    """Log the members from now on."""
    listed = ", ".join(str(int(each)) for each in members)
    print(f"{run.id}: after step {step}: {len(members)} of {run.workers} workers: {listed}", flush=True)


def batch_of(session: Session, chosen: Mapping[int, Any], workers: slice) -> tuple[Any, Any]:
    """Inputs and targets [k, b, ...] of the next step for these workers, with the indices `chosen` of their samples."""
    run, step = session.run, session.sync.steps
    any_of_them = next(iter(chosen.values()))
    sampler = replace(
        session.sampler, steps=1, orders=[chosen.get(worker, any_of_them) for worker in range(run.workers)],
        seed=stream_seed(run.seed, "shared augmentation", epoch=step),
    )  # fmt: skip
    inputs, targets = next(session.data.batches(sampler, 0, 0, workers))
    for transform in session.transforms:
        inputs, targets = transform(inputs, targets, step, workers.start)
    return inputs, targets


class SimulatedMembers:
    """All workers in this process, which leave and come back at the steps of `elastic.away`.

    A worker that is lost takes no part from the next exchange on, and one that comes back takes the state of a member
    after a round, as in processes of their own. Meanwhile its row repeats what the first member does.
    """

    def __init__(self, session: Session) -> None:
        assert isinstance(session.transport, SimulatedTransport)
        self.session, self.transport, self.sync = session, session.transport, session.sync
        self.samples = shared_samples(session.run, session.sampler.num_samples)
        self.members: Members = [(0, self._names)]
        self.rested = 0
        self.samples.begin_round(self._names, self._names[0])

    @property
    def _names(self) -> list[str]:
        return [name_of(worker) for worker in self.transport.present]

    def _away(self, step: int) -> set[int]:
        run = self.session.run
        assert run.elastic
        return {worker for worker in range(run.workers) if run.elastic.is_away(worker, step)}

    def batches(self) -> Iterator[tuple[Any, Any]]:
        everybody = slice(0, self.session.run.workers)
        while True:
            with self.session.clocks.measure("data"):
                chosen = {int(name): indices for name, indices in self.samples.next_of_all().items()}
                batch = batch_of(self.session, chosen, everybody)
            yield batch

    def after_backward(self) -> None:
        gone = self._away(self.sync.steps + 1)
        self._change([worker for worker in self.transport.present if worker not in gone])
        self.sync.after_backward()

    def after_step(self, lr: float) -> bool:
        ended = self.sync.after_step(lr)
        if ended:
            self._rest()
        return ended

    def _rest(self) -> None:
        """After a round: those who are back take the state of a member, and all share the next samples."""
        self.rested = self.sync.steps
        self.samples.end_round(self._names)
        here, gone = self.transport.present, self._away(self.rested + 1)
        back = [worker for worker in range(self.session.run.workers) if worker not in {*here, *gone}]
        self._copy({worker: here[index % len(here)] for index, worker in enumerate(back)})
        self._change(sorted([*here, *back]))
        rows = self.session.workers.rows.data
        for worker in gone:
            rows[worker] = rows[self.transport.present[0]]
        self.samples.begin_round(self._names, self._names[0])

    def _change(self, present: list[int]) -> None:
        if present != self.transport.present:
            self.transport.change(present)
            self.members.append((self.rested, self._names))
            say(self.session.run, self.rested, self._names)

    def _copy(self, donors: Mapping[int, int]) -> None:
        for name in ("workers", "engine", "sync", "losses") if donors else ():
            part = self.session.parts[name]
            state = part.state_dict()
            with torch.no_grad():
                for values in state["workers"].values():
                    for worker, donor in donors.items():
                        values[worker] = values[donor]
            part.load_state_dict(state)

    def account(self) -> dict[str, Any]:
        return account(self.session.run, self.members, self.samples)

    def state_dict(self) -> dict[str, Any]:
        return {
            "members": list(self.members), "rested": self.rested, "present": self.transport.present,
            "samples": self.samples.state_dict(),
        }  # fmt: skip

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.members, self.rested = list(state["members"]), state["rested"]
        self.transport.change(state["present"])
        self.samples.load_state_dict(state["samples"])
