"""Channel against raw MPI in C, mpi4py, and KokkosComm's old loop, on KokkosComm's grid, all in one run.

    mpiexec -n 2 python benchmarks/bench_channel.py [--full] [--json FILE]

Every rank sends to rank + 1 and receives from rank - 1, a number of messages (pairs) of some bytes each; a cycle
is one start and one wait; all is registered before. README.md in this folder has figures and what they mean.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import _native
import numpy as np
from _channel_systems import SYSTEMS, Setting, setting_for
from _measure import geometric_mean, machine, pin, sample
from mpi4py import MPI

BYTES = (1, 8, 64, 512, 4096, 32768, 262144, 2097152, 8388608)
PAIRS = (1, 2, 4, 8, 16)
SMALL = 512  # the goals' limit of small messages
FORMS = {"smoke": (0.02e6, 2), "short": (4e6, 7), "full": (10e6, 15)}  # ns a sample, repetitions


def parse() -> argparse.Namespace:
    def numbers(text: str) -> list[int]:
        return [int(item) for item in text.split(",")]

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--full", dest="form", action="store_const", const="full", help="longer and more samples")
    form.add_argument("--smoke", dest="form", action="store_const", const="smoke", help="does it run at all?")
    parser.add_argument("--json", metavar="FILE", help="writes all figures")
    parser.add_argument("--bytes", type=numbers, default=list(BYTES), metavar="N,...", help="sizes of a message")
    parser.add_argument("--pairs", type=numbers, default=list(PAIRS), metavar="N,...", help="messages each way")
    parser.add_argument("--systems", type=lambda s: s.split(","), metavar="NAME,...")
    parser.add_argument("--own-tags", action="store_true", help="a tag for each pair, instead of one for all")
    parser.set_defaults(form="short")
    arguments = parser.parse_args()
    unknown = set(arguments.systems or ()) - set(SYSTEMS)
    if unknown:
        parser.error(f"no such system: {', '.join(sorted(unknown))}; there are {', '.join(SYSTEMS)}")
    return arguments


def check(name: str, system: Any, setting: Setting) -> None:
    """One cycle must move the left neighbour's number into every buffer."""
    into = getattr(system, "into", setting.into)
    into[:] = 255
    setting.comm.Barrier()  # nobody writes into a buffer that is still being poisoned
    system.run(1)
    if not np.all(into[:, : setting.nbytes] == setting.left):
        raise SystemExit(f"{name} does not move the messages")


def measure(setting: Setting, names: list[str], form: str) -> dict[str, Any]:
    """One cell of the grid. Collective."""
    systems = {name: SYSTEMS[name].make(setting) for name in names}
    for name, system in systems.items():
        check(name, system, setting)
    cycles, times = sample(setting.comm, systems, *FORMS[form])
    for system in systems.values():
        system.free()
    quartiles = {name: np.percentile(t, [25, 50, 75]) for name, t in times.items()}
    return {
        "bytes": setting.nbytes,
        "pairs": len(setting.out),
        "cycles": cycles,
        "us": {name: round(float(q[1]), 4) for name, q in quartiles.items()},
        "us_quartiles": {name: [round(float(q[0]), 4), round(float(q[2]), 4)] for name, q in quartiles.items()},
    }


def table(cells: list[dict[str, Any]], names: list[str]) -> str:
    """Microseconds of the first system, and the others' times in units of it."""
    first, others = names[0], names[1:]
    rows = [["bytes", "pairs", f"{SYSTEMS[first].heading} us", *(SYSTEMS[name].heading for name in others)]]
    for cell in cells:
        us = cell["us"]
        ratios = (f"{us[name] / us[first]:.2f}" for name in others)
        rows.append([str(cell["bytes"]), str(cell["pairs"]), f"{us[first]:.3f}", *ratios])
    means = (f"{geometric_mean(c['us'][name] / c['us'][first] for c in cells):.2f}" for name in others)
    rows.append(["geometric mean", "", "", *means])
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    return "\n".join("  ".join(item.rjust(width) for item, width in zip(row, widths, strict=True)) for row in rows)


class Goals:
    """What is to be reached, and what was: each method gives rows (text, value, sign, limit)."""

    def __init__(self, cells: list[dict[str, Any]]) -> None:
        self.cells = cells

    def ratio(self, over: str, under: str, smallest: int = 0, largest: int = BYTES[-1], pairs: int = 0) -> float:
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


def main() -> None:
    arguments, comm, begin = parse(), MPI.COMM_WORLD, time.perf_counter()
    pinned = pin(comm)
    if arguments.systems is None:  # with more ranks than cores a spin takes a hundred times as long as the rest
        arguments.systems = [name for name in SYSTEMS if pinned or name != "raw_testall"]
    library = _native.load(comm)
    facts = machine(comm, pinned)
    cells = []
    for nbytes in arguments.bytes:
        for n_pairs in arguments.pairs:
            setting = setting_for(comm, library, nbytes, n_pairs, not arguments.own_tags)
            cells.append(measure(setting, arguments.systems, arguments.form))
    if comm.rank:
        return
    reached = [
        row
        for name in arguments.systems
        if name.startswith("pchan")
        for row in Goals(cells).of(name, crowded=not facts["pinned"])
    ]
    print(table(cells, arguments.systems))
    print("\nTimes in units of the first system's; medians of the maximum over ranks. Systems:")
    for name in arguments.systems:
        print(f"  {SYSTEMS[name].heading:13} {SYSTEMS[name].meaning}")
    print()
    for row in reached:
        verdict = "reached" if row["reached"] else "MISSED"
        print(f"  {row['system']:16} {row['what']:46} {row['value']:7.3f}  goal {row['goal']:7} {verdict}")
    pinning = "pinned" if facts["pinned"] else "not pinned"
    print(f"\n{facts['ranks']} ranks, {pinning}; {facts['cpu']}; {facts['mpi']}")
    print(f"{time.perf_counter() - begin:.0f} s")
    if arguments.json:
        grid = {"one_tag": not arguments.own_tags, "form": arguments.form}
        report = {"benchmark": "channel", **grid, "machine": facts, "goals": reached, "cells": cells}
        with open(arguments.json, "w") as f:
            json.dump(report, f, indent=1)
            f.write("\n")


if __name__ == "__main__":
    main()
