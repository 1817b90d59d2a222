"""From the results of runs to the figures and tables of a paper. Never trains, never imports torch.

A kind of figure or table is a component: `render/<kind>.yaml` declares its options, and `render/<kind>.py`
has `prepare(data)`, which turns results into numbers to show. For a figure there is also `draw(prepared)`,
which only draws; for a table `prepare` returns a Table, which knows how to write itself.
"""

from resync.render.item import render

__all__ = ["render"]
