"""Memory of a process that trains on the CPU."""

import ctypes

TRIM_THRESHOLD, MMAP_MAX = -1, -4
"""Parameters of glibc's `mallopt`, from its malloc.h."""


def keep_freed_memory() -> None:
    """Let glibc keep freed memory for the next allocation, in this process and those that it forks from now on.

    By default it returns large blocks to the system, which has to map and zero their pages again for the tensors of the
    next step: up to a quarter of the processor time of a step on the CPU. Called once, before training; the process
    then holds its largest memory until it ends. No effect with another C library, nor on the memory of a GPU.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(TRIM_THRESHOLD, -1)  # the heap never shrinks
        mallopt(MMAP_MAX, 0)  # and large blocks lie in it
