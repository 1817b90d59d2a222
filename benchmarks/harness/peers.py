"""Environments of peers, each with the same torch as ours: `python -m benchmarks.harness.peers`, or made on first use.

They lie in benchmarks/.peers. uv installs them from the package index, as hard links to its cache where it can.
"""

import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path

from benchmarks.harness.cases import Unavailable
from resync.base.files import write_text

FOLDER = Path(__file__).parents[1] / ".peers"


@dataclass(frozen=True)
class Peer:
    """What is installed beside torch, and the import that must succeed in the end."""

    packages: tuple[str, ...]
    check: str


PEERS = {
    "accelerate": Peer(("accelerate==1.15.0",), "import accelerate"),
    "decent-dp": Peer(("decent-dp==0.2.3", "numpy"), "import decent_dp.ddp"),
    "fairscale": Peer(
        ("fairscale==0.4.13", "numpy"),
        "from fairscale.experimental.nn.data_parallel import SlowMoDistributedDataParallel",
    ),
    "torchft": Peer(("torchft==0.2.0", "numpy"), "import torchft"),
}


@cache
def python(peer: str) -> Path:
    """The interpreter in the environment of a peer.

    Raises Unavailable, in which the last line of the error is, if the peer cannot be installed and imported.
    """
    folder, parts = FOLDER / peer, PEERS[peer]
    interpreter, installed = folder / "bin/python", folder / "installed"
    wanted = " ".join([f"torch=={version('torch')}", *parts.packages])
    if not installed.exists() or installed.read_text() != wanted:
        uv = shutil.which("uv") or str(Path(sys.executable).with_name("uv"))
        _do(peer, [uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(folder)])
        _do(peer, [uv, "pip", "install", "--quiet", "--python", str(interpreter), *wanted.split()])
        _do(peer, [str(interpreter), "-c", parts.check])
        write_text(installed, wanted)
    return interpreter


def _do(peer: str, command: list[str]) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=900)
    except FileNotFoundError:
        raise Unavailable(f"{peer} could not be installed: uv is not there") from None
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{peer} could not be installed within 15 minutes") from None
    except subprocess.CalledProcessError as error:
        lines = [line.strip() for line in (error.stderr or error.stdout).splitlines() if line.strip()]
        last = lines[-1].replace(str(FOLDER), "") if lines else f"exit status {error.returncode}"
        raise Unavailable(f"{peer} could not be installed: {last}") from None


def main() -> None:
    """Make all environments."""
    for peer in PEERS:
        try:
            print(f"{peer}: {python(peer).relative_to(FOLDER)}")
        except Unavailable as reason:
            print(reason)


if __name__ == "__main__":
    main()
