"""The figures and tables of a paper, drawn from the results of runs. Never trains, never imports torch.

A kind of figure or table is a component: `render/options` declares its options, and `render/<kind>.py`
has `prepare(data)`, which turns results into the numbers to show. For a figure these are `points`, the rows of its CSV,
and `draw(prepared, width)` draws them; for a table, `prepare` returns a Table. Importing this package imports nothing;
`resync.papers.render.item.render` draws.
"""
