"""Adapters to trainers that own the loop: `resync.integrations.transformers` and `resync.integrations.lightning`.

Each needs its framework (the extras `transformers` and `lightning`), whose data-parallel wrapper it takes
out of the way of an algorithm.
"""
