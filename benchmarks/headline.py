"""Draws the two pictures of the README from results/: docs/images/channel.svg and docs/images/qreduce.svg.

    python benchmarks/headline.py [--out FOLDER]

On a white ground of their own, so that they can be read on dark pages too. Each holds the digest of the file
that it was drawn from.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from pathlib import Path
from typing import Any

import _plots  # chooses a backend without display
import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

HERE = Path(__file__).resolve().parent
SOURCES = {"channel": "channel_2_ranks.json", "qreduce": "qreduce_4_ranks.json"}
SYSTEMS = {  # name in the file: label, colour
    "mpi4py_persistent": ("mpi4py Startall + Waitall", "#999999"),
    "raw_waitall": ("C MPI_Startall + MPI_Waitall", "#000000"),
    "pchan": ("pchan, not connected", "#e69f00"),
    "pchan_connected": ("pchan, connected", "#0072b2"),
}
OTHERS = {"mpi4py+gmpy2": "mpi4py, gmpy2", "sdpb pairwise": "as SDPB, pairs", "sdpb ring": "as SDPB, ring"}
PAIRS = 16


def channel(report: dict[str, Any]) -> Figure:
    """Time against size; how many times as fast as C."""
    cells = [c for c in report["cells"] if c["pairs"] == PAIRS]
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    times, ratios = figure.subplots(1, 2)
    sizes = [c["bytes"] for c in cells]
    for marker, (name, (label, color)) in zip("os^D", SYSTEMS.items(), strict=True):
        style = {"marker": marker, "ms": 4, "color": color, "label": label}
        times.loglog(sizes, [c["us"][name] for c in cells], **style)
        ratios.loglog(sizes, [c["us"]["raw_waitall"] / c["us"][name] for c in cells], **style)
    times.set(ylabel="time of a cycle (µs)", title=f"{PAIRS} messages each way between 2 ranks of a node")
    times.legend(fontsize=8)
    ratios.set(ylabel="times as fast as C", title="the same, relative to C MPI_Startall + MPI_Waitall")
    for axes in (times, ratios):
        axes.set_xlabel("size of a message (bytes)")
        _finish(axes)
    ratios.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}"))
    return figure


def qreduce(report: dict[str, Any]) -> Figure:
    """Stages of each strategy; beside them all competitors."""
    case = report["cases"][-1]
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    stages, total = figure.subplots(1, 2, width_ratios=(3, 4))
    bars = {name: f["stages_s"] for name, f in case["results"].items() if f["stages_s"]}
    ranks, cores = report["machine"]["ranks"], report["machine"]["cores"]
    _plots.stacked(stages, bars, "the stages of each strategy", f"clock time, {ranks} ranks on {cores} cores (s)")
    stages.legend(fontsize=7, ncols=3, loc="upper center")
    stages.margins(y=0.3)
    seconds = {OTHERS.get(name, name): f["cpu_s"] for name, f in case["results"].items()}
    colors = ["#0072b2" if name in bars else "#999999" for name in seconds]
    drawn = total.barh(list(seconds), list(seconds.values()), color=colors)
    total.bar_label(drawn, fmt="%.2g s", fontsize=8, padding=2)
    total.set(
        xlabel="processor time of a cycle, all ranks (s)",
        title=f"n = {case['n']}, {case['bits']} bits, {ranks} nodes of one rank",
    )
    total.invert_yaxis()
    total.margins(x=0.12)
    for axes in (stages, total):
        _finish(axes)
    return figure


def _finish(axes: Axes) -> None:
    axes.set_axisbelow(True)
    axes.grid(alpha=0.3)
    axes.title.set_fontsize(9)
    axes.tick_params(labelsize=8)


def draw(folder: Path) -> None:
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "pchan", "font.size": 9})
    for name, figure in (("channel", channel), ("qreduce", qreduce)):
        source = HERE / "results" / SOURCES[name]
        about = {"Date": None, "Source": f"{source.name} {hashlib.sha256(source.read_bytes()).hexdigest()}"}
        picture = figure(json.loads(source.read_text()))
        picture.savefig(folder / f"{name}.svg", facecolor="white", metadata=about)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=HERE.parent / "docs" / "images", metavar="FOLDER")
    draw(parser.parse_args(argv).out)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
