"""The audit as JSON for programs and for the pages of the site, and as Markdown for people."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path

from resync.audit import score
from resync.audit.headline import headline, sentence, totals
from resync.audit.rows import LOG_CLAIM, LOGS, ROUNDS, Audit, ClaimRow, Ours, ValueRow
from resync.audit.verdicts import FAILURES, VERDICTS
from resync.files import write_text
from resync.results.evidence import difference_text
from resync.settings.errors import suggestion
from resync.text_tables import json_text, markdown, markdown_text


def write(audit: Audit, directory: Path) -> list[Path]:
    """Write `audit.json` and `audit.md` into `directory`; return the paths."""
    files = [directory / f"audit.{suffix}" for suffix in _WRITERS]
    for file, writer in zip(files, _WRITERS.values(), strict=True):
        write_text(file, writer(audit))
    return files


def to_json(audit: Audit) -> str:
    """Every row and claim with all its fields; a number that is NaN or infinite becomes null."""
    scored = score.score(audit)
    content = {
        "scale": audit.scale,
        "score": asdict(scored) if scored else None,
        "sentence": sentence(audit),
        "headline": headline(audit),
        "totals": asdict(totals(audit)),
        "failed": audit.failed,
        "outcomes": score.OUTCOMES,
        "why_undecided": score.WHY,
        "verdicts": {word: meaning for word, (_, meaning) in VERDICTS.items()},
        "signs": {word: sign for word, (sign, _) in VERDICTS.items()},
        "failures": FAILURES,
        "rows": [asdict(row) for row in audit.rows],
        "claims": [asdict(claim) for claim in audit.claims],
        "damaged": audit.damaged,
        "missing_items": {paper: [item.model_dump() for item in items] for paper, items in audit.missing.items()},
    }
    return json_text(content, indent=1) + "\n"


def find(audit: Audit, ids: Iterable[str]) -> dict[str, ValueRow | ClaimRow]:
    """The claims and published numbers with these ids, `paper/id`, or `id` if no other paper has it, by `paper/id`.

    Raises ValueError for an unknown or ambiguous id.
    """
    lines = [line for line in audit.lines if line.kind not in (LOGS, LOG_CLAIM, ROUNDS)]
    known = {f"{line.paper}/{name}": line for line in lines for name in _ids(line)}
    found = {}
    for wanted in ids:
        names = [name for name in known if wanted in (name, _bare(name))]
        if len(names) > 1:
            raise ValueError(f"{wanted}: found in several papers, allowed: {' or '.join(names)}")
        if not names:
            paper, slash, _ = wanted.rpartition("/")
            of = [name for name in known if name.startswith(f"{paper}/")] if slash else [*known, *map(_bare, known)]
            allowed = f"an id in audit.json{suggestion(wanted, of)}"
            raise ValueError(f"claim or published number: found {wanted!r}, allowed: {allowed}")
        found[names[0]] = known[names[0]]
    return found


def _bare(name: str) -> str:
    """The id without its paper."""
    return name.partition("/")[2]


def answer(found: Mapping[str, ValueRow | ClaimRow], as_json: bool) -> str:
    """The verdicts on some claims and published numbers: JSON with all that is known of them, or a line each."""
    if as_json:
        return json_text({name: asdict(line) for name, line in found.items()}, indent=1)
    return "\n".join(f"{name}: {line.verdict}: {line.reason}" for name, line in found.items())


def _ids(line: ValueRow | ClaimRow) -> list[str]:
    """The ids of a line: of a published quantity, those of all its sources."""
    return [line.id, *(other.id for other in line.also)] if isinstance(line, ValueRow) else [line.id]


def to_markdown(audit: Audit) -> str:
    """The score, a few sentences, then two tables per paper: its numbers and its claims."""
    lines = [f"# Audit, {audit.scale} scale", "", *(f"* {line}" for line in headline(audit)), ""]
    headings = ["part", "weight", *score.OUTCOMES, "why undecided"]
    shares = [[" / ".join(names[1:] or names), *numbers, why] for names, *numbers, why in _shares(audit)]
    lines += [*markdown(headings, shares, "lrrrrrl"), ""]
    lines += [*(f"* {markdown_text(line)}" for line in audit.damaged_runs), ""] if audit.damaged_runs else []
    for paper, part in _parts(audit):
        lines += [f"## {paper}", "", sentence(part), ""]
        headings = ["what", "metric", "published", "ours", "difference", "verdict", "reason"]
        lines += markdown(headings, map(_markdown_row, part.rows), "llllrll")
        lines += [""]
        if part.claims:
            headings = ["claim", "metric", "ours, from best to worst", "verdict", "reason"]
            lines += ["### Claims", "", *markdown(headings, map(_markdown_claim, part.claims), "lllll"), ""]
        if missing := part.missing[paper]:
            lines += [
                "### Not regenerated",
                "",
                *(f"* {markdown_text(f'{item.title}: {item.reason}')}" for item in missing),
                "",
            ]
    lines += [f"{sign} {word}: {meaning}  " for word, (sign, meaning) in VERDICTS.items()]
    return "\n".join(lines) + "\n"


def _shares(audit: Audit) -> Iterator[tuple[tuple[str, ...], str, str, str, str, str, str]]:
    """Weight, outcomes and reasons in percent of the papers, or of the sections, figures and tables of a single one."""
    whole = score.score(audit)
    papers = whole.parts if whole else {}
    several = len(audit.papers) > 1
    for paper, found in papers.items():
        yield _percentages((audit.papers[paper],), found)
        for section, part in ({} if several else found.parts).items():
            yield _percentages((audit.papers[paper], section), part)
            for item, own in part.parts.items():
                yield _percentages((audit.papers[paper], section, item), own)


def _percentages(names: tuple[str, ...], found: score.Score) -> tuple[tuple[str, ...], str, str, str, str, str, str]:
    numbers = (found.weight, found.reproduced, found.holds, found.fails, found.undecided)
    weight, reproduced, holds, fails, undecided = (score.percent(share) for share in numbers)
    return names, weight, reproduced, holds, fails, undecided, score.reasons(found)


_WRITERS: dict[str, Callable[[Audit], str]] = {"json": to_json, "md": to_markdown}


def _parts(audit: Audit) -> list[tuple[str, Audit]]:
    """The papers with at least one row or claim, each with its part of the audit."""
    return [(paper, audit.of(paper)) for paper in dict.fromkeys(line.paper for line in audit.lines)]


def _markdown_row(row: ValueRow) -> list[str]:
    sign = VERDICTS[row.verdict][0]
    where = f"{row.label} ({row.item or f'{row.experiment}/{row.series}'})"
    published = f"{row.reference.text} ({row.reference.status})"
    return [
        where,
        row.metric,
        published,
        _ours(row.ours),
        difference_text(row.difference),
        f"{sign} {row.verdict}",
        row.reason,
    ]


def _markdown_claim(claim: ClaimRow) -> list[str]:
    sign = VERDICTS[claim.verdict][0]
    what = f"{claim.statement} ({claim.status}: {claim.source})"
    sides = "; ".join(f"{side.label}: {_ours(side.ours)}" for side in claim.sides)
    metric = claim.metric if claim.at_epoch is None else f"{claim.metric} at epoch {claim.at_epoch:g}"
    return [what, metric, sides, f"{sign} {claim.verdict}", claim.reason]


def _ours(ours: Ours) -> str:
    """`80.974 ± 0.052 (n=3) [paper]`, with the number of imported seeds if there are any."""
    imported = f", {ours.imported} imported" if ours.imported else ""
    return f"{ours.text} [{ours.scale}{imported}]"
