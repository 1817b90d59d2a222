"""Numbers that are zero up to rounding: their digits are those of a processor, and say nothing of a result."""

ROUNDING = 1e-14
"""What is left of a number after a subtraction has no digits below this part of it: some tens of float64's units."""


def without_noise(rest: float, of: float) -> float:
    """`rest`, or 0 if it is only the rounding of numbers of the size of `of`, from which it was computed."""
    return 0.0 if abs(rest) <= ROUNDING * abs(of) else rest


def difference(one: float, other: float) -> float:
    """`one` - `other`, 0 if it is only rounding."""
    return without_noise(one - other, other)
