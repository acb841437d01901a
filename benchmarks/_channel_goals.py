"""What pchan's channels are to reach on KokkosComm's grid, and what they did."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from _measure import geometric_mean

SMALL = 512  # bytes; the goals' limit of small messages


def goals(cells: list[dict[str, Any]], names: list[str], crowded: bool) -> list[dict[str, Any]]:
    ours = [name for name in names if name.startswith("pchan")]
    return [row for name in ours for row in Goals(cells).of(name, crowded)]


class Goals:
    """What is to be reached, and what was: each method gives rows (text, value, sign, limit)."""

    def __init__(self, cells: list[dict[str, Any]]) -> None:
        self.cells = cells

    def ratio(self, over: str, under: str, smallest: int = 0, largest: float = math.inf, pairs: int = 0) -> float:
        """Geometric mean of the ratio of two systems' times; nan where nothing was measured."""
        chosen = [
            c["us"][over] / c["us"][under]
            for c in self.cells
            if smallest <= c["bytes"] <= largest and pairs in (0, c["pairs"]) and {over, under} <= set(c["us"])
        ]
        return geometric_mean(chosen)

    def crowded(self, name: str) -> list[tuple[str, float, str, float]]:
        return [("time / C Waitall, more ranks than cores", self.ratio(name, "raw_waitall"), "<=", 1.0)]

    def plain(self, name: str) -> list[tuple[str, float, str, float]]:
        smallest = next((c["us"] for c in self.cells if (c["bytes"], c["pairs"]) == (1, 1)), {})
        above = smallest.get(name, np.nan) - smallest.get("raw_testall", np.nan)
        mpi4py = self.ratio("mpi4py_persistent", name, largest=SMALL)
        return [
            ("time / C Waitall", self.ratio(name, "raw_waitall"), "<=", 1.0),
            (f"time / C Waitall, up to {SMALL} B", self.ratio(name, "raw_waitall", largest=SMALL), "<=", 0.7),
            ("us above C Testall, 1 B, 1 pair", float(above), "<=", 0.15),
            ("time / C Testall", self.ratio(name, "raw_testall"), "<=", 1.1),
            (f"mpi4py Prequest's time / time, up to {SMALL} B", mpi4py, ">=", 3.0),
        ]

    def connected(self, name: str) -> list[tuple[str, float, str, float]]:
        raw = [c["us"] for c in self.cells if {"raw_waitall", "raw_testall", name} <= set(c["us"])]
        worst = max((us[name] / min(us["raw_waitall"], us["raw_testall"]) for us in raw), default=np.nan)
        return [
            (f"C Waitall's time / time, up to {SMALL} B", self.ratio("raw_waitall", name, 0, SMALL), ">=", 8),
            (f"C Testall's time / time, up to {SMALL} B", self.ratio("raw_testall", name, 0, SMALL), ">=", 4),
            ("C Waitall's time / time, 16 pairs of 1 B", self.ratio("raw_waitall", name, 0, 1, 16), ">=", 25),
            ("C Waitall's time / time", self.ratio("raw_waitall", name), ">=", 2.5),
            ("worst cell: time / the better raw loop's", float(worst), "<=", 1.1),
        ]

    def shared(self, name: str) -> list[tuple[str, float, str, float]]:
        return [("C Waitall's time / time, from 32 KiB", self.ratio("raw_waitall", name, 32768), ">=", 2)]

    def of(self, name: str, crowded: bool) -> list[dict[str, Any]]:
        kinds = {"pchan_connected": self.connected, "pchan_shared": self.shared}
        rows = (self.crowded if crowded else kinds.get(name, self.plain))(name)
        return [
            {"system": name, "what": what, "value": round(value, 4), "goal": f"{sign} {limit:g}",
             "reached": bool(value <= limit if sign == "<=" else value >= limit)}
            for what, value, sign, limit in rows
            if not np.isnan(value)
        ]  # fmt: skip
