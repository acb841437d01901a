"""Integer arguments: the one check behind ranks, tags, counts, sizes and precisions."""

from __future__ import annotations

import operator
from typing import Any


def whole_number(value: Any, what: str, least: int = -(2**63), most: int = 2**63 - 1) -> int:
    """`value` as an int. TypeError for anything else, ValueError outside least..most; both name `what`."""
    try:
        number = operator.index(value)
    except Exception:  # also what a class of the caller's own raises
        raise TypeError(f"{what} must be an integer, not {type(value).__name__}") from None
    if not least <= number <= most:
        raise ValueError(f"{what} = {number} is not in {least}..{most}")
    return number
