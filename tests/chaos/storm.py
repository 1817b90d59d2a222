"""`make chaos STORM=1`: workers of elastic trainings are killed, stopped and cut off, and what that costs.

Eight replicas train a linear model with noise, with 50 ms of waiting in every step in place of a large model. Each
method first trains without faults for a while. torchft's own Local SGD and DiLoCo get the same faults.
"""

import argparse
import ctypes
import gc
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache
from importlib import import_module
from math import nan
from pathlib import Path
from statistics import median
from typing import Any

os.environ |= {"OMP_NUM_THREADS": "1", "RUST_LOG": "error", "TORCH_CPP_LOG_LEVEL": "ERROR"}  # before torch is imported

import torch
from torch import nn

import resync

NAMES = "abcdefgh"
STEP, PERIOD, WAIT, GRACE = 0.05, 10, 25, 35
METHODS: dict[str, Any] = {
    "Local SGD": resync.LocalSGD(period=PERIOD),
    "DiLoCo": resync.DiLoCo(period=PERIOD),
    "SGP": resync.SGP(),
    "Local SGD of torchft": None,
    "DiLoCo of torchft": None,
}
_NEW_NETWORK = 0x40000000
Record = Callable[[int, int, int], None]
"""Notes a step: its number, the number of members, and the epoch."""


def _data(generator: torch.Generator | None, noise: float) -> tuple[torch.Tensor, torch.Tensor]:
    truth = torch.randn(64, 4, generator=torch.Generator().manual_seed(0))
    inputs = torch.randn(16 if generator else 512, 64, generator=generator or torch.Generator().manual_seed(1))
    return inputs, inputs @ truth + noise * torch.randn(len(inputs), 4, generator=generator)


def _step(model: nn.Module, optimizer: torch.optim.Optimizer, generator: torch.Generator) -> None:
    inputs, targets = _data(generator, 1.0)
    time.sleep(STEP)
    optimizer.zero_grad()
    nn.functional.mse_loss(model(inputs), targets).backward()
    optimizer.step()


def _resync(model: nn.Module, address: str, name: str, method: str, until: float, record: Record) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    elastic = resync.Elastic(
        address, name, min_replicas=2, timeout=2, wait=WAIT, every=1 if method != "SGP" else PERIOD
    )
    sync = resync.attach(model, optimizer, METHODS[method], elastic=elastic)
    assert sync.elastic
    generator = torch.Generator().manual_seed(time.monotonic_ns())
    members = sync.elastic.membership
    try:
        while time.monotonic() < until:
            _step(model, optimizer, generator)
            record(sync.steps, len(members.members), members.epoch)
    except TimeoutError:
        if time.monotonic() < until:  # the others have ended
            raise


def _torchft(model: nn.Module, address: str, name: str, method: str, until: float, record: Record) -> None:
    """As in torchft's examples, with its limits as short as those of `_resync`."""
    from torch.distributed import TCPStore
    from torchft import Manager
    from torchft.local_sgd import DiLoCo, LocalSGD
    from torchft.process_group import ProcessGroupGloo

    optimizer, host = torch.optim.SGD(model.parameters(), lr=0.05), _own_address(name, address)
    socket.gethostname = lambda: host  # by which others fetch its state, which a name of this machine would not reach
    outer = torch.optim.SGD(model.parameters(), lr=0.7, momentum=0.9, nesterov=True)
    state = {"model": model, "optimizer": optimizer, "outer": outer}

    def load(found: dict[str, Any]) -> None:
        for key, part in state.items():
            part.load_state_dict(found[key])

    store = TCPStore(host, 0, is_master=True, wait_for_workers=False)
    limit = timedelta(seconds=2)
    manager = Manager(
        pg=ProcessGroupGloo(timeout=limit), min_replica_size=2, load_state_dict=load,
        state_dict=lambda: {key: part.state_dict() for key, part in state.items()}, replica_id=name, rank=0,
        world_size=1, store_addr=host, store_port=store.port, lighthouse_addr=f"http://{address}", hostname=host,
        use_async_quorum=False, timeout=limit, quorum_timeout=timedelta(seconds=60), connect_timeout=limit,
    )  # fmt: skip
    own = (
        LocalSGD(manager, model, optimizer, sync_every=PERIOD)
        if method.startswith("Local")
        else DiLoCo(manager, [model], optimizer, outer, sync_every=PERIOD)
    )
    generator, steps = torch.Generator().manual_seed(time.monotonic_ns()), 0
    with own:
        while time.monotonic() < until:
            _step(model, optimizer, generator)
            steps += 1
            record(steps, manager.num_participants() if manager._quorum_future else 0, manager._quorum_id)


def _own_address(name: str, lighthouse: str) -> str:
    return lighthouse.rpartition(":")[0].rpartition(".")[0] + f".{NAMES.index(name) + 2}" if can_cut() else "127.0.0.1"


def _run(folder: Path, name: str, address: str, method: str, until: float) -> None:
    """A replica, which appends a line to its file after every step, and its loss at the end."""
    log = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(os.open(folder / f"{name}.err", os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
    os.dup2(2, 1)
    if can_cut():
        os.environ["GLOO_SOCKET_IFNAME"] = f"{_PREFIX}{name}1"
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.setns(os.open(f"/run/netns/{_PREFIX}{name}", os.O_RDONLY), _NEW_NETWORK):
            raise OSError(ctypes.get_errno(), "setns")
    torch.set_num_threads(1)

    def record(step: int, members: int, epoch: int) -> None:
        os.write(log, f"{time.monotonic():.3f} {step} {members} {epoch}\n".encode())

    torch.manual_seed(0)
    model = nn.Linear(64, 4)
    (_torchft if method.endswith("torchft") else _resync)(model, address, name, method, until, record)
    with torch.no_grad():
        inputs, targets = _data(None, 0.0)
        (folder / f"{name}.loss").write_text(str(nn.functional.mse_loss(model(inputs), targets).item()))


@dataclass
class Fault:
    """A fault: at `begin` the victim was struck, at `end` it was started again, continued or connected."""

    kind: str
    victim: str
    begin: float
    end: float = float("inf")


@dataclass
class Storm:
    """One training under faults; `times` are those of steps by replica: (time, step, members, epoch)."""

    method: str
    folder: Path
    address: str
    outage: float
    faults: list[Fault] = field(default_factory=list)
    pids: dict[str, int] = field(default_factory=dict)
    _out: dict[str, Fault] = field(default_factory=dict)

    def start(self, name: str, until: float) -> None:
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                signal.signal(signal.SIGINT, signal.SIG_DFL)
                _run(self.folder, name, self.address, self.method, until)
                code = 0
            except BaseException as error:
                (self.folder / f"{name}.failed").write_text(f"{type(error).__name__}: {error}")
            os._exit(code)
        self.pids[name] = pid

    def run(self, seconds: float, every: float, seed: int) -> None:
        """Train for so long, with a fault now and then; the last outage ends before the training."""
        choice, begin = random.Random(seed), time.monotonic()
        until, due = begin + seconds, begin + 5 + every / 2
        try:
            for name in NAMES:
                self.start(name, until)
            while (now := time.monotonic()) < until:
                for fault in [each for each in self._out.values() if now > each.end]:
                    self._return(fault)
                if now > due and until - now > self.outage + 5:
                    due += every
                    self._strike(choice, until)
                time.sleep(0.05)
            while any(_lives(pid) for pid in self.pids.values()) and time.monotonic() < until + GRACE:
                time.sleep(0.1)
        finally:
            for pid in self.pids.values():
                if _lives(pid):
                    os.kill(pid, signal.SIGKILL)
                    os.waitpid(pid, 0)

    def _strike(self, choice: random.Random, until: float) -> None:
        kind = ("kill", "stop", "cut")[len(self.faults) % (3 if can_cut() else 2)]
        victim = choice.choice([name for name in NAMES if name not in self._out])
        fault = Fault(kind, victim, time.monotonic())
        self.faults.append(fault)
        if kind == "kill":
            os.kill(self.pids[victim], signal.SIGKILL)
            os.waitpid(self.pids[victim], 0)
            fault.end = fault.begin
            self.start(victim, until)
            return
        self._out[victim] = fault
        fault.end = fault.begin + self.outage
        if kind == "stop":
            os.kill(self.pids[victim], signal.SIGSTOP)
        else:
            _ip(f"link set {_PREFIX}{victim}0 down")

    def _return(self, fault: Fault) -> None:
        del self._out[fault.victim]
        fault.end = time.monotonic()
        if fault.kind == "cut":
            _ip(f"link set {_PREFIX}{fault.victim}0 up")
        else:
            os.kill(self.pids[fault.victim], signal.SIGCONT)

    def times(self) -> dict[str, list[tuple[float, int, int, int]]]:
        files = {name: self.folder / name for name in NAMES}
        lines = {name: path.read_text().splitlines() if path.exists() else [] for name, path in files.items()}
        return {
            name: [(float(a), int(b), int(c), int(d)) for a, b, c, d in (line.split() for line in own)]
            for name, own in lines.items()
        }

    def row(self, base: float) -> str:
        """The line of the table; `base` is the steps a second of a member without faults."""
        times = self.times()
        pauses: dict[str, list[float]] = {"kill": [], "stop": [], "cut": []}
        back = []
        for fault in self.faults:
            away = {each.victim for each in self.faults if each.begin <= fault.begin + 8 and each.end > fault.begin - 3}
            gaps = [
                later[0] - earlier[0]
                for name in NAMES
                if name not in away | {fault.victim}
                for earlier, later in zip(times[name], times[name][1:], strict=False)
                if later[0] > fault.begin and earlier[0] < fault.begin + 8
            ]
            pauses[fault.kind].append(max(gaps, default=float("nan")))
            back.append(seconds_until_back(fault, times[fault.victim]))
        trained = [own for own in times.values() if own]
        begin, end = min(own[0][0] for own in trained), max(own[-1][0] for own in trained)

        def present(at: float) -> int:
            return len(NAMES) - len({each.victim for each in self.faults if each.begin <= at < each.end})

        taking_part = [min(1.0, each[2] / present(each[0])) for own in times.values() for each in own]
        ticks = range(int(end - begin))
        expected = base * sum(present(begin + tick) for tick in ticks)
        losses = [float(path.read_text()) for path in self.folder.glob("*.loss")]
        cells = [
            self.method, str(len(self.faults)),
            *(f"{median(each):.1f}, {max(each):.1f}" if each else "-" for each in pauses.values()),
            f"{median(back):.1f}, {max(back):.1f}" if back else "-",
            f"{100 * sum(map(len, times.values())) / expected:.0f}",
            f"{100 * sum(taking_part) / len(taking_part):.0f}",
            str(len(NAMES) - len(losses)),
            f"{min(losses, default=nan):.3f} to {max(losses, default=nan):.3f}",
        ]  # fmt: skip
        return "| " + " | ".join(cells) + " |"


def seconds_until_back(fault: Fault, steps: list[tuple[float, int, int, int]]) -> float:
    """From the end of a fault to the first step of the victim (`steps`: its own) with members of a later epoch."""
    epoch = max((each[3] for each in steps if each[0] < fault.end), default=0)
    returned = (at for at, _, members, new in steps if at > fault.end and members > 1 and new > epoch)
    return next(returned, float("inf")) - fault.end


def _lives(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == 0
    except ChildProcessError:  # waited for before
        return False


def _ip(command: str) -> None:
    subprocess.run(["ip", *command.split()], check=True)


@cache
def can_cut() -> bool:
    """Whether this machine allows network namespaces."""
    try:
        done = subprocess.run(["ip", "netns", "add", f"rs{os.getpid()}"], check=False, capture_output=True)
        subprocess.run(["ip", "netns", "del", f"rs{os.getpid()}"], check=False, capture_output=True)
    except FileNotFoundError:
        return False
    return done.returncode == 0


_PREFIX, _NET = f"rs{os.getpid() % 10**6}", f"10.{100 + os.getpid() % 100}.{os.getpid() // 100 % 250}"
"""Names and addresses of this storm's network."""


@contextmanager
def _network() -> Iterator[str]:
    """A network with a namespace for every replica, or loopback; the address of the lighthouse."""
    if not can_cut():
        yield "127.0.0.1"
        return
    bridge = f"{_PREFIX}br"
    try:
        _ip(f"link add {bridge} type bridge")
        _ip(f"addr add {_NET}.1/24 dev {bridge}")
        _ip(f"link set {bridge} up")
        for number, name in enumerate(NAMES):
            space = f"{_PREFIX}{name}"
            _ip(f"netns add {space}")
            _ip(f"link add {space}0 type veth peer name {space}1 netns {space}")
            _ip(f"link set {space}0 master {bridge} up")
            _ip(f"-n {space} addr add {_NET}.{number + 2}/24 dev {space}1")
            _ip(f"-n {space} link set {space}1 up")
            _ip(f"-n {space} link set lo up")
        yield f"{_NET}.1"
    finally:
        spaces = [f"{_PREFIX}{name}" for name in NAMES]
        links = [f"link del {name}" for name in (*(f"{space}0" for space in spaces), bridge)]  # a space goes later
        for command in (*links, *(f"netns del {space}" for space in spaces)):
            subprocess.run(["ip", *command.split()], check=False, capture_output=True)


@contextmanager
def _lighthouse(host: str) -> Iterator[str]:
    receiver, sender = os.pipe()
    pid = os.fork()
    if pid == 0:
        from torchft.coordination import LighthouseServer

        silent = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silent, 1)
        os.dup2(silent, 2)
        lighthouse = LighthouseServer(
            bind=f"{host}:0", min_replicas=2, join_timeout_ms=1000, quorum_tick_ms=20, heartbeat_timeout_ms=1000
        )
        os.write(sender, lighthouse.address().rpartition(":")[2].encode())
        signal.pause()
        os._exit(0)
    try:
        yield f"{host}:{os.read(receiver, 8).decode()}"
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def prepare() -> None:
    """Import what replicas need, before they are forked."""
    for module in ("torch._dynamo", "resync.library", "torchft.local_sgd", "torchft.checkpointing.http_transport"):
        import_module(module)
    gc.freeze()


def storm(method: str, seconds: float, every: float, seed: int, folder: Path, outage: float = 20) -> Storm:
    folder.mkdir(parents=True)
    with _network() as host, _lighthouse(host) as address:
        found = Storm(method, folder, address, outage)
        found.run(seconds, every, seed)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="make chaos STORM=1", description=__doc__)
    parser.add_argument(
        "--seconds",
        type=float,
        default=600,
        help="of the three methods of resync together; torchft's two last as long as one",
    )
    parser.add_argument("--every", type=float, default=15, help="seconds between two faults")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--keep", type=Path, help="folder for the logs")
    options = parser.parse_args()
    prepare()
    print("| method | faults | pause of survivors after a kill (median, longest), s | after a stop | after a cut | "
          "victim back, s | steps, % of those without faults | members, % of those present | hang or failed | "
          "loss of the replicas |")  # fmt: skip
    print("| --- " * 10 + "|", flush=True)
    failed = 0
    with tempfile.TemporaryDirectory() as temporary:
        for method in options.methods.split(","):
            folder = (options.keep or Path(temporary)) / method.replace(" ", "_")
            calm = storm(method, max(15, options.seconds / 30), 1e9, 0, folder / "calm")
            times = calm.times()
            lengths = [own[-1][0] - own[0][0] for own in times.values() if len(own) > 1]
            base = sum(map(len, times.values())) / sum(lengths)
            print(calm.row(base), flush=True)
            hit = storm(method, options.seconds / 3, options.every, options.seed, folder / "storm")
            print(hit.row(base), flush=True)
            lost = [name for name in NAMES if not (folder / "storm" / f"{name}.loss").exists()]
            failed += bool(lost) and not method.endswith("torchft")
    print(f"load average: {os.getloadavg()}")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
