"""The files of a table: Markdown, LaTeX (booktabs), PDF, PNG and SVG with the same cells, and their numbers as CSV."""

from resync.render.style import encode
from resync.render.table import Table
from resync.render.table_layout import fitted
from resync.render.table_picture import picture
from resync.render.table_tex import tex


def encode_table(table: Table, width: float, label: str) -> dict[str, bytes]:
    """The table in every format by suffix, at most `width` inches wide; `label` is for references in LaTeX."""
    layout = fitted(table.headings, table.rows, width)
    texts = {".md": table.markdown(), ".tex": tex(table, layout, label), ".csv": table.csv()}
    return encode(picture(table, layout), table.title) | {suffix: text.encode() for suffix, text in texts.items()}
