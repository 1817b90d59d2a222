"""Draws docs/pictures/*.svg, what the workers of each method do in twelve steps: `python docs/pictures.py`.

Time goes from left to right, and every worker has a line. A test compares the files with what this draws.
"""

from collections.abc import Iterator
from pathlib import Path

FOLDER = Path(__file__).with_name("pictures")
STEPS, LEFT, WIDTH, ROW, TOP = 12, 74, 31, 24, 26
COMPUTED = 0.62  # of the time of a step, the rest of which is for messages
STEP, AVERAGE, OUTER, MESSAGE = "#0072b2", "#d55e00", "#a3477f", "#1b7f5f"

Mark = tuple[str, float, int, float, int]
"""What is drawn (`bar`, `outer`, `arrow`), and from and to which step and worker."""


def rounds(lengths: list[int], kind: str, workers: int) -> Iterator[Mark]:
    """A bar over all workers after each round."""
    end = 0
    for length in lengths:
        end += length
        yield kind, end - 0.5, 0, end - 0.5, workers - 1


def gossip(travels: float) -> Iterator[Mark]:
    """A message from every worker to one peer after each step, at a distance that doubles from step to step."""
    for step in range(STEPS):
        for worker in range(4):
            if (end := step + COMPUTED + travels) < STEPS:
                yield "arrow", step + COMPUTED, worker, end, (worker + 2 ** (step % 2)) % 4


def asynchronous() -> Iterator[Mark]:
    """Pairs that average when both have time."""
    for start, one, other in (
        (1.1, 0, 1),
        (2.3, 2, 3),
        (3.6, 1, 2),
        (5.2, 0, 3),
        (6.9, 0, 1),
        (8.4, 2, 3),
        (9.8, 1, 2),
    ):
        yield "arrow", start, one, start + 0.35, other
        yield "arrow", start, other, start + 0.35, one


def pairs() -> Iterator[Mark]:
    """Random pairs after every round of four."""
    for end, partners in ((4, ((0, 2), (1, 3))), (8, ((0, 1), (2, 3))), (12, ((0, 3), (1, 2)))):
        for one, other in partners:
            yield "arrow", end - 1 + COMPUTED, one, end - 0.02, other
            yield "arrow", end - 1 + COMPUTED, other, end - 0.02, one


def fragments() -> Iterator[Mark]:
    """Two halves in turn, each sent during a step."""
    for end in range(2, STEPS, 2):
        yield "part", end - 0.5, 0, end + 0.5, 3


METHODS: dict[str, tuple[str, list[Mark]]] = {
    "allreduce": ("All-reduce: an average of the gradients in every step", [*rounds([1] * STEPS, "bar", 4)]),
    "local": ("Local SGD, H = 4: an average of the parameters after every round", [*rounds([4] * 3, "bar", 4)]),
    "qsr": ("QSR: H grows as the learning rate falls", [*rounds([2, 3, 7], "bar", 4)]),
    "diloco": ("DiLoCo, SlowMo: an average, then a step of an outer optimizer", [*rounds([4] * 3, "outer", 4)]),
    "streaming_diloco": ("Streaming DiLoCo: parts take turns, and travel during local steps", [*fragments()]),
    "noloco": ("NoLoCo: an outer step on averages of random pairs", [*pairs()]),
    "sgp": ("SGP: a message to one peer after every step, another peer each time", [*gossip(0.36)]),
    "osgp": ("OSGP: the same, while the next gradient is computed", [*gossip(1)]),
    "adpsgd": ("AD-PSGD: pairs average in the background, and nobody waits", [*asynchronous()]),
}


def picture(title: str, marks: list[Mark], free: bool) -> str:
    """The SVG of a method; with `free`, every worker has a speed of its own."""
    height, width = TOP + 4 * ROW + 8, LEFT + STEPS * WIDTH + 8
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" font-family="sans-serif" font-size="13"><title>{title}</title>',
        '<defs><marker id="tip" viewBox="0 0 6 6" refX="5" refY="3" markerWidth="6" markerHeight="6" orient="auto">'
        f'<path d="M0 0L6 3L0 6z" fill="{MESSAGE}"/></marker></defs>',
        f'<rect width="{width}" height="{height}" rx="4" fill="#fff"/>',
        f'<text x="8" y="16" fill="#222">{title}</text>',
    ]
    for worker in range(4):
        lines.append(f'<text x="8" y="{_y(worker) + 4:g}" fill="#555" font-size="12">worker {worker}</text>')
        speed = 1 - 0.12 * worker if free else 1
        for step in range(int(STEPS * speed)):
            start = LEFT + step * WIDTH / speed
            lines.append(
                f'<rect x="{start:.1f}" y="{_y(worker) - 5:g}" width="{COMPUTED * WIDTH / speed:.1f}" height="10" '
                f'rx="3" fill="{STEP}" opacity=".75"/>'
            )
    return "\n".join([*lines, *map(_drawn, marks), "</svg>", ""])


def _drawn(mark: Mark) -> str:
    kind, start, one, end, other = mark
    x, y, to_x, to_y = _x(start), _y(one), _x(end), _y(other)
    if kind == "arrow":
        return (
            f'<line x1="{x:.1f}" y1="{y:g}" x2="{to_x:.1f}" y2="{to_y:g}" stroke="{MESSAGE}" stroke-width="1.4" '
            'marker-end="url(#tip)"/>'
        )
    if kind == "part":
        return (
            f'<path d="M{x + 7:.1f} {y - 8:g}H{to_x + 5:.1f}V{to_y + 8:g}H{x + 7:.1f}z" fill="{AVERAGE}" opacity=".22" '
            f'stroke="{AVERAGE}"/>'
        )
    x += 9
    bar = f'<line x1="{x:.1f}" y1="{y - 9:g}" x2="{x:.1f}" y2="{to_y + 9:g}" stroke="{AVERAGE}" stroke-width="3"/>'
    if kind == "bar":
        return bar
    circles = "".join(f'<circle cx="{x:.1f}" cy="{_y(worker):g}" r="5" fill="{OUTER}"/>' for worker in range(4))
    return bar + circles


def _x(step: float) -> float:
    return LEFT + step * WIDTH


def _y(worker: int) -> float:
    return TOP + ROW * (worker + 0.5)


def pictures() -> dict[Path, str]:
    """Every file with its content."""
    drawn = {name: picture(title, marks, name == "adpsgd") for name, (title, marks) in METHODS.items()}
    drawn["overview"] = overview([drawn[name] for name in ("allreduce", "local", "qsr", "diloco", "sgp", "osgp")])
    return {FOLDER / f"{name}.svg": text for name, text in drawn.items()}


def overview(drawn: list[str]) -> str:
    """Pictures in two columns, as one."""
    height, width = TOP + 4 * ROW + 16, LEFT + STEPS * WIDTH + 16
    parts = [
        text.replace("<svg ", f'<svg x="{number % 2 * width}" y="{number // 2 * height}" ', 1)
        for number, text in enumerate(drawn)
    ]
    size = f'viewBox="0 0 {2 * width} {height * ((len(drawn) + 1) // 2)}" width="{2 * width}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">\n{"".join(parts)}</svg>\n'


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for path, text in pictures().items():
        path.write_text(text)
