"""The progress of a conversion, on a terminal."""

from collections.abc import Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")


def shown(items: Iterable[Item], of: str, unit: str, total: int | None = None) -> Iterator[Item]:
    """The items, and on a terminal a bar of how many have been taken; `total` where they have no length."""
    # Imported where it is used: who trains on prepared data does not need it.
    from tqdm import tqdm

    yield from tqdm(items, desc=of, unit=unit, total=total, disable=None)
