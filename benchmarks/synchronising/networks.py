"""Networks of processes: the loopback of a namespace of its own, or an interface each, shaped to a rate.

They need the tools `ip` and `tc`, and the right to use them.
"""

import os
import subprocess
from dataclasses import dataclass

from benchmarks.harness import Unavailable

_PREFIX = f"bench{os.getpid()}"


@dataclass(frozen=True)
class Network:
    """The namespace of every process, and the interface through which they talk."""

    namespaces: list[str]
    interface: str

    def remove(self) -> None:
        """Delete the namespaces, and with them all interfaces."""
        for name in dict.fromkeys([*self.namespaces, f"{_PREFIX}hub"]):
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def loopback(size: int) -> Network:
    """One namespace for all, whose counters count nothing else."""
    name = f"{_PREFIX}lo"
    _do("ip", "netns", "add", name)
    _do("ip", "-n", name, "link", "set", "lo", "up")
    return Network([name] * size, "lo")


def shaped(size: int, rate: str) -> Network:
    """A namespace each, whose interface sends at most `rate`, as tc writes it, to a switch without limits."""
    hub, names = f"{_PREFIX}hub", [f"{_PREFIX}n{rank}" for rank in range(size)]
    _do("ip", "netns", "add", hub)
    _do("ip", "-n", hub, "link", "add", "switch", "type", "bridge")
    _do("ip", "-n", hub, "link", "set", "switch", "up")
    for rank, name in enumerate(names):
        _do("ip", "netns", "add", name)
        _do("ip", "-n", hub, "link", "add", f"port{rank}", "type", "veth", "peer", "name", "eth0", "netns", name)
        _do("ip", "-n", hub, "link", "set", f"port{rank}", "master", "switch", "up")
        _do("ip", "-n", name, "addr", "add", f"10.77.0.{rank + 1}/24", "dev", "eth0")
        _do("ip", "-n", name, "link", "set", "lo", "up")
        _do("ip", "-n", name, "link", "set", "eth0", "up")
        _do("tc", "-n", name, "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", rate, "burst", "128kb", "latency",
            "100ms")  # fmt: skip
    return Network(names, "eth0")


def _do(*command: str) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, text=True)
    except FileNotFoundError:
        raise Unavailable(f"no network of its own: {command[0]} is not installed") from None
    except subprocess.CalledProcessError as error:
        raise Unavailable(f"no network of its own: {error.stderr.strip()}") from None
