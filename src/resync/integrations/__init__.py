"""Adapters to trainers that own the loop: `resync.integrations.transformers` and `resync.integrations.lightning`.

Each needs its framework (`pip install resync-suite[transformers]`, `[lightning]`), whose data-parallel wrapper it takes
out of the way of an algorithm.
"""
