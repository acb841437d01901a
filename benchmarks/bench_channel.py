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
    setting.into[:] = 255
    system.run(1)
    if not np.all(setting.into[:, : setting.nbytes] == setting.left):
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


def goals(cells: list[dict[str, Any]], name: str, crowded: bool) -> list[dict[str, Any]]:
    """What is to be reached by the system `name`, and what was."""

    def ratio(over: str, under: str, largest: int = BYTES[-1]) -> float:
        chosen = [c["us"] for c in cells if c["bytes"] <= largest and over in c["us"] and under in c["us"]]
        return geometric_mean(us[over] / us[under] for us in chosen)

    if crowded:
        rows = [("time / C Waitall, more ranks than cores", ratio(name, "raw_waitall"), "<=", 1.0)]
    else:
        smallest = next((c["us"] for c in cells if (c["bytes"], c["pairs"]) == (1, 1)), {})
        above = smallest.get(name, np.nan) - smallest.get("raw_testall", np.nan)
        rows = [
            ("time / C Waitall", ratio(name, "raw_waitall"), "<=", 1.0),
            (f"time / C Waitall, up to {SMALL} B", ratio(name, "raw_waitall", SMALL), "<=", 0.7),
            ("us above C Testall, 1 B, 1 pair", float(above), "<=", 0.15),
            ("time / C Testall", ratio(name, "raw_testall"), "<=", 1.1),
            (
                f"mpi4py Prequest's time / time, up to {SMALL} B",
                ratio("mpi4py_persistent", name, SMALL),
                ">=",
                3.0,
            ),
        ]
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
        for row in goals(cells, name, crowded=not facts["pinned"])
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
