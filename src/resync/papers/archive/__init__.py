"""Archives of results: what runs measured, packed small enough for git, and everything that follows from it.

Three subjects: packing (`pack`, `unpack`, `crate`, `environment`, `diff`), drawing everything again from packed runs
(`redraw`, `build`, `reference`, `rounding`), and keeping README.md and the docs in step with what the repository's own
archive shows (`page_blocks`, `page_claims`, `page_quotes`).
"""
