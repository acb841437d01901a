"""Channel against raw MPI in C, mpi4py, and KokkosComm's old loop, on KokkosComm's grid, all in one run.

    mpiexec -n 2 python -m pchan bench channel [--full] [--json FILE] [--plot FILE]
    mpiexec -n 2 python -m pchan bench channel --pattern pingpong --pairs 1
    mpiexec -n 4 python -m pchan bench channel --pattern halo

ring: every rank sends to rank + 1 and receives from rank - 1, a number of messages (pairs) of some bytes each.
pingpong: from rank 0 to rank 1 and back, as OSU's osu_latency_persistent. halo: 26 neighbours in a periodic box
of n x n x n cells, faces strided, as many fields as "pairs". A cycle is one start and one wait (ping-pong: two);
all is registered before. README.md in this folder has figures and what they mean.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from typing import Any

import _native
import numpy as np
from _channel_goals import goals
from _channel_systems import SYSTEMS, Setting
from _measure import geometric_mean, pin, sample
from _patterns import PATTERNS, node_shared
from _report import Parser, Progress, Run, bar
from mpi4py import MPI

SIZES = {  # bytes of a message; of a halo the cells a side
    "ring": ((1, 8, 64, 512, 4096, 32768, 262144, 2097152, 8388608), (1, 2, 4, 8, 16)),
    "pingpong": ((1, 8, 64, 512, 4096, 32768, 262144, 2097152), (1,)),
    "halo": ((4, 8, 16, 32, 64), (1, 4)),
}
FORMS = {"smoke": (0.02e6, 2), "short": (4e6, 7), "full": (10e6, 15)}  # ns a sample, repetitions


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    def numbers(text: str) -> list[int]:
        return [int(item) for item in text.split(",")]

    parser = Parser("channel", __doc__)
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--full", dest="form", action="store_const", const="full", help="longer and more samples")
    form.add_argument("--smoke", dest="form", action="store_const", const="smoke", help="does it run at all?")
    parser.add_argument("--pattern", choices=PATTERNS, default="ring", help="of messages (default ring)")
    parser.add_argument(
        "--bytes", type=numbers, metavar="N,...", help="sizes of a message; of a halo, cells a side"
    )
    parser.add_argument("--pairs", type=numbers, metavar="N,...", help="messages each way; of a halo, fields")
    parser.add_argument("--systems", type=lambda s: s.split(","), metavar="NAME,...", help=", ".join(SYSTEMS))
    parser.add_argument("--own-tags", action="store_true", help="a tag for each pair, instead of one for all")
    parser.set_defaults(form="short")
    options = parser.parse(argv)
    sizes, pairs = SIZES[options.pattern]
    options.bytes, options.pairs = options.bytes or list(sizes), options.pairs or list(pairs)
    if min(*options.bytes, *options.pairs) < 1:
        parser.error("--bytes and --pairs are numbers above 0")
    unknown = set(options.systems or ()) - set(SYSTEMS)
    if unknown:
        parser.error(f"no such system: {', '.join(sorted(unknown))}; there are {', '.join(SYSTEMS)}")
    if options.pattern == "pingpong" and MPI.COMM_WORLD.size < 2:
        parser.error("a ping-pong takes two ranks")
    return options


def check(name: str, system: Any, comm: MPI.Intracomm) -> None:
    """One cycle must move what the neighbours have into every buffer."""
    system.pattern.poison()
    comm.Barrier()  # nobody writes into a buffer that is still being poisoned
    system.run(1)
    if not system.pattern.right():
        raise SystemExit(f"{name} does not move the messages")
    comm.Barrier()


def measure(setting: Setting, names: list[str], form: str) -> dict[str, Any]:
    """One cell of the grid. Collective."""
    systems = {name: SYSTEMS[name].make(setting) for name in names}
    for name, system in systems.items():
        check(name, system, setting.comm)
    cycles, times = sample(setting.comm, systems, *FORMS[form])
    for system in systems.values():
        system.free()
    quartiles = {name: np.percentile(t, [25, 50, 75]) for name, t in times.items()}
    return {
        "cycles": cycles,
        "us": {name: round(float(q[1]), 4) for name, q in quartiles.items()},
        "us_quartiles": {name: [round(float(q[0]), 4), round(float(q[2]), 4)] for name, q in quartiles.items()},
    }


def grid(comm: MPI.Intracomm, options: argparse.Namespace, progress: Progress | None) -> list[dict[str, Any]]:
    library, cells = _native.load(comm), []
    make = PATTERNS[options.pattern]
    for nbytes in options.bytes:
        for pairs in options.pairs:
            build = partial(make, comm, nbytes=nbytes, pairs=pairs, one_tag=not options.own_tags)
            setting = Setting(comm, library, build(np.empty), partial(build, node_shared(comm)))
            cell = measure(setting, options.systems, options.form)
            cells.append({"bytes": nbytes, "pairs": pairs} | cell)
            if progress:
                progress(len(cells), len(options.bytes) * len(options.pairs))
    return cells


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


def main(argv: Sequence[str] | None = None) -> int:
    options, comm = parse(argv), MPI.COMM_WORLD
    pinned = pin(comm)
    if options.systems is None:  # with more ranks than cores a spin takes a hundred times as long as the rest
        options.systems = [name for name in SYSTEMS if pinned or name != "raw_testall"]
    run = Run(comm, "channel", options, pinned)
    with bar(f"bench channel, {options.pattern}", comm.rank == 0) as progress:
        cells = grid(comm, options, progress)
    reached = goals(cells, options.systems, crowded=not pinned) if options.pattern == "ring" else []
    if comm.rank == 0:
        show(cells, options.systems, reached)
    run.finish(
        {
            "pattern": options.pattern,
            "one_tag": not options.own_tags,
            "form": options.form,
            "goals": reached,
            "cells": cells,
        }
    )
    return 0


def show(cells: list[dict[str, Any]], names: list[str], reached: list[dict[str, Any]]) -> None:
    print(table(cells, names))
    print("\nTimes in units of the first system's; medians of the maximum over ranks. Systems:")
    for name in names:
        print(f"  {SYSTEMS[name].heading:13} {SYSTEMS[name].meaning}")
    if reached:
        print()
    for row in reached:
        verdict = "reached" if row["reached"] else "MISSED"
        print(f"  {row['system']:16} {row['what']:46} {row['value']:7.3f}  goal {row['goal']:7} {verdict}")


if __name__ == "__main__":
    raise SystemExit(main())
