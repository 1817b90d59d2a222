"""One worker of an elastic run in a process of its own, which may be lost and come back."""

import os
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from resync.engine.clocks import Clocks
from resync.engine.elastic import Elastic
from resync.engine.elastic_transport import ElasticTransport
from resync.engine.membership import Membership, Resumed
from resync.engine.transport import Transport
from resync.errors import UserError
from resync.files import remove, write_text
from resync.processes.lock import alone, locked
from resync.processes.memory import keep_freed_memory
from resync.results import state
from resync.results.summary import has_results
from resync.run import Run
from resync.sync.elastic import ElasticTraining
from resync.train import elastic, provenance
from resync.train.build import build
from resync.train.checkpoint import newest_of
from resync.train.log import EVALUATIONS
from resync.train.loop import evaluate, train_step
from resync.train.losses import Diverged
from resync.train.publish import publish
from resync.train.session import Session

LIGHTHOUSE = "RESYNC_LIGHTHOUSE"
"""The environment variable with the address, host:port, at which the workers of an elastic run find each other."""


def train_replica(run: Run, out: Path) -> None:
    """Train with the worker RANK of an elastic run; whoever comes to the end first writes the results to `out`.

    The worker's own folder, `out`/workers/<worker>, has its log and, from when it was the first of the members,
    checkpoints. Who comes back takes the state of the others; when all have ended, they continue from the newest
    checkpoint. Raises UserError without a lighthouse, TimeoutError without enough workers.
    """
    assert run.elastic
    lighthouse, rank = os.environ.get(LIGHTHOUSE), os.environ.get("RANK", "")
    if not lighthouse or not rank.isdigit() or int(rank) >= run.workers:
        raise UserError(f"elastic: found {LIGHTHOUSE}={lighthouse} and RANK={rank}, allowed: the address of a "
                        f"lighthouse and a worker below {run.workers}; resync launch sets both")  # fmt: skip
    torch.set_num_threads(run.threads)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = run.precision == "tf32"
    keep_freed_memory()
    folder = out / "workers" / elastic.name_of(int(rank))
    with locked(folder), state.failures_recorded(folder, run):
        if has_results(out, run.hash):
            return
        job = provenance.Job()
        found = Elastic(
            lighthouse, elastic.name_of(int(rank)), run.elastic.needed(run.workers), run.workers,
            run.elastic.timeout_seconds,
        )  # fmt: skip
        transport = ElasticTransport(Membership(found), Clocks(torch.device("cpu")))
        session = build(run, folder, transport.clocks.device, int(rank), 1, transport=transport)
        session.job, session.elastic = job, (replica := Replica(session, int(rank)))
        assert session.log
        replica.resume(out.glob("workers/*/checkpoint"))
        replica.join()
        diverged = _train(session, replica)
        replica.leave()
        with alone(out / "publishing", "another worker of this run"):
            if not has_results(out, run.hash):
                session.log.directory = out
                write_text(out / "run.yaml", run.to_yaml())
                publish(session, out, diverged)
        session.log.close()
        state.clear(folder)


def _train(session: Session, replica: "Replica") -> Diverged | None:
    """Train to the end; a worker that the others have left behind goes on from their state."""
    sync, batches, evaluated = session.sync, replica.batches(), {0, *session.evaluation_steps}
    assert session.log
    while True:
        try:
            logged = session.log.rows[EVALUATIONS]
            if sync.steps in evaluated and not (logged and logged[-1]["step"] == sync.steps):
                evaluate(session)
            if session.has_ended():
                sync.close()
                with session.transport.uncounted():
                    sync.synchronise()
                return None
            train_step(session, *next(batches))
        except Resumed as found:
            replica.load(found)
        except Diverged as stop:
            return stop


class Replica(ElasticTraining):
    """The worker of this process among those that change."""

    def __init__(self, session: Session, worker: int) -> None:
        assert isinstance(session.transport, ElasticTransport)
        assert session.log
        self.session, self.worker, self.said = session, worker, 0
        self._is_late = False
        self.shared = elastic.shared_samples(session.run, session.sampler.num_samples)
        # What a newcomer gets beside weights, optimizer and algorithm.
        state = session.losses, session.clocks, session.transport, session.log
        membership = session.transport.membership
        membership.elastic = replace(membership.elastic, state=state, samples=self.shared)
        super().__init__(session.workers.models[0], session.workers, session.sync, session.transport)
        session.checkpoints.transport = Transport(1, session.clocks)  # a worker writes without the others
        self._passed = self._counts()

    def resume(self, checkpoints: Iterable[Path]) -> None:
        """Begin where the newest checkpoint was written, by any worker; whoever is further will be heard of."""
        own = self.session.checkpoints
        for leftover in own.directory.glob("*.partial"):
            remove(leftover)
        found = newest_of(checkpoints, own.identity)
        if found is None:
            return
        self.membership.adopt(found["membership"])
        self.restore(found)
        self._passed = self._counts()
        self.session.resumed_from = [*found["resumed_from"], self.session.sync.steps]
        self.session.earlier_jobs, self.session.job.first_step = found["jobs"], self.session.sync.steps

    def batches(self) -> Iterator[tuple[Any, Any]]:
        while True:
            with self.session.clocks.measure("data"):
                chosen = {self.worker: self.shared.next()}
                batch = elastic.batch_of(self.session, chosen, slice(self.worker, self.worker + 1))
            yield batch

    def after_step(self, lr: float) -> bool:
        self._is_late = False
        ended = super().after_step(lr)
        if ended and not self._is_late and self._is_due() and self.membership.index == 0:
            self._save()
        for step, members in self._members[self.said :]:
            elastic.say(self.session.run, step, members)
        self.said = len(self._members)
        return ended

    def load(self, found: Resumed, with_steps: bool = True) -> None:
        self._is_late = True  # its own steps since then are in its parameters, and nobody else's
        super().load(found, with_steps)

    def _counts(self) -> list[int]:
        """How often the intervals between two checkpoints have passed."""
        run, sync = self.session.run, self.session.sync
        settings = run.checkpoint
        every_epochs = settings.every_epochs and settings.every_epochs * run.steps_per_epoch
        counts = (sync.steps, settings.every_steps), (sync.steps, every_epochs), (sync.rounds, settings.every_rounds)
        return [count // every for count, every in counts if every]

    def _is_due(self) -> bool:
        before, self._passed = self._passed, self._counts()
        return (self._passed != before or self.session.checkpoints.is_overdue) and not self.session.has_ended()

    def _save(self) -> None:
        session = self.session
        shared = self.capture() | {"resumed_from": session.resumed_from, "jobs": session.jobs}
        session.checkpoints.save(session.sync.steps, [{}], shared)

    def leave(self) -> None:
        """Go on alone, with what is to be published."""
        self.membership.close()
        self.membership.members = [self.membership.replica]
        self.transport.follow()

    @property
    def _members(self) -> elastic.Members:
        """By change, without those after which the same workers met again."""
        found: elastic.Members = []
        for change in self.membership.changes:
            names = [name.split(":")[0] for name in change.members]
            if not found or names != found[-1][1]:
                found.append((change.step, names))
        return found

    def account(self) -> dict[str, Any]:
        return elastic.account(self.session.run, self._members, self.shared)
