"""The figures and tables of a paper, drawn from the results of runs. Never trains, never imports torch.

A kind of figure or table is a component: `render/options/<kind>.py` declares its options, and `render/<kind>.py`
has `prepare(data)`, which turns results into the numbers to show. A figure also has `draw(prepared)`, which only
draws; for a table, `prepare` returns a Table, which writes itself. Importing this package imports nothing;
`resync.render.item.render` draws.
"""
