"""Python imports this first in a rank that torchrun starts as a command: its moments count as those of a fork do."""

import os
import sys

import moments

if "RANK" in os.environ:
    moments.watch(sys.orig_argv)
