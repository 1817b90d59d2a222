"""Variables of the shell that libraries read, and that must decide nothing of what is trained or drawn.

Those that choose kernels or the order of sums, and so the last bits, are recorded with a run (`of_numbers`): some are
needed, as for deterministic products on a GPU. Of the others, which are left alone, OMP_NUM_THREADS is set by `launch`,
wandb gets its settings from the run, Snakemake its profile from `resync run`, and dates are in UTC.
"""

import os
import sys
from io import TextIOWrapper

_SETTINGS = {
    "MPLBACKEND": "agg",  # a notebook's, which matplotlib of another environment does not have
    "MATPLOTLIBRC": os.devnull,  # a damaged file would end every figure
}
_WITHOUT = (
    # Other products than the run's `precision` says.
    "NVIDIA_TF32_OVERRIDE", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
    # The commit of another repository, as in a hook of git.
    "GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_OBJECT_DIRECTORY", "GIT_NAMESPACE",
    # A date in every drawn file.
    "SOURCE_DATE_EPOCH",
    # The device of DeepSpeed, in place of the run's.
    "DS_ACCELERATOR",
)  # fmt: skip
_OF_NUMBERS = (
    "ATEN_CPU_CAPABILITY", "CUBLAS_WORKSPACE_CONFIG", "CUDNN_", "DNNL_", "KMP_", "MKL_", "NCCL_ALGO", "NCCL_PROTO",
    "NPY_DISABLE_CPU_FEATURES", "ONEDNN_", "OPENBLAS_", "PYTHONHASHSEED",
)  # fmt: skip
"""How the names begin of variables on which the last bits of a training may depend."""
OF_A_LAUNCHER = (
    "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT",
    "CROSS_RANK", "CROSS_SIZE", "LOCAL_SIZE",
)  # fmt: skip
"""With these, torchrun and DeepSpeed tell their ranks who they are: no other process may take them for its own."""


def leave() -> None:
    """Make this process, and those that it starts, independent of the variables of the shell."""
    os.environ.update(_SETTINGS)
    for name in _WITHOUT:
        os.environ.pop(name, None)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="replace")  # PYTHONIOENCODING or a locale may lack letters of names and units


def of_numbers() -> dict[str, str]:
    """The variables that are set of those on which the last bits of a training may depend; none of them is a secret."""
    return {name: value for name, value in sorted(os.environ.items()) if name.startswith(_OF_NUMBERS)}
