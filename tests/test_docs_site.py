"""The pages of docs/ as a site: no broken link or anchor, no request to another server, and a reference."""

import os
import re
import subprocess
import sys
from pathlib import Path
from runpy import run_path

import pytest

from resync.tools.cli.declare import VERBS

ROOT = Path(__file__).parents[1]


def test_the_pictures_are_what_their_script_draws():
    drawn = run_path(str(ROOT / "docs/pictures.py"))["pictures"]()
    written = {path: path.read_text() for path in (ROOT / "docs/pictures").iterdir()}
    assert written == drawn, "draw them again: python docs/pictures.py"
    pages = (ROOT / "docs/concepts.md").read_text() + (ROOT / "README.md").read_text()
    assert [path.name for path in drawn if f"pictures/{path.name})" not in pages] == []


@pytest.mark.slow
def test_the_site_is_complete_and_needs_no_other_server(tmp_path: Path):
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(tmp_path)]
    env = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    pages = {path.relative_to(tmp_path).as_posix(): path.read_text() for path in tmp_path.rglob("*.html")}
    loaded = [
        address
        for text in pages.values()
        for address in re.findall(r"<(?:script|link|img)\b[^>]*?(?:src|href)=\"?(https?://[^\" >]+)", text)
    ]
    assert loaded == []
    pictures = {
        tmp_path / Path(name).parent / source
        for name, text in pages.items()
        for source in re.findall(r"<img\b[^>]*?src=\"?([^\" >]+)", text)
        if not source.startswith("data:")
    }
    assert len(pictures) > 10
    assert [path for path in pictures if not path.is_file()] == []
    expected = {f"{page.stem}.html" for page in (ROOT / "docs").glob("*.md")}
    readme = (ROOT / "README.md").read_text()
    assert [page for page in (ROOT / "docs").glob("*.md") if f"](docs/{page.name})" not in readme] == []
    assert [page.name for page in (ROOT / "docs").glob("*.md") if "At the end " not in page.read_text()[:700]] == []
    assert (tmp_path / "search/search_index.js").is_file()  # which a browser reads from the file system, too
    assert expected | {
        "index.html",
        *(f"reference/{name}.html" for name in ("cli", "settings", "papers", "metrics", "library")),
    } <= set(pages)
    assert all(f'id="{verb}"' in pages["reference/cli.html"] for verb in VERBS)
    assert "Assran et al. 2019, Algorithm 1" in pages["reference/library.html"]
