"""What a paper is: experiments, items, published values and claims; only this room reads their YAML."""

from resync.papers.paper.suite import Suite, load_suite

__all__ = ["Suite", "load_suite"]
