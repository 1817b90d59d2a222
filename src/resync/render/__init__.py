"""From the results of runs to the figures and tables of a paper. Never trains, never imports torch.

A kind of figure or table is a component: `render/options/<kind>.py` declares its options, and `render/<kind>.py`
has `prepare(data, options)`, which turns results into numbers to show. For a figure there is also `draw(prepared)`,
which only draws; for a table `prepare` returns a Table, which knows how to write itself. Importing this package imports
nothing; `resync.render.item.render` draws.
"""
