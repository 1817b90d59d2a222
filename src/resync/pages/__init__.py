"""HTML pages with a common frame and style sheet; each page is a single file that works offline."""

from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

_HERE = Path(__file__).parent


def fill(template: Path, **content: Any) -> str:
    """The page that a template renders from `content`; the template extends `frame.html.j2`."""
    environment = Environment(
        loader=FileSystemLoader([template.parent, _HERE]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    style = (_HERE / "style.css").read_text(encoding="utf-8")
    return environment.get_template(template.name).render(style=style, **content)
