"""Pictures of the benchmarks' reports. Drawn by matplotlib, without a display."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import numpy as np  # noqa: E402
from matplotlib.axes import Axes  # noqa: E402
from matplotlib.figure import Figure  # noqa: E402

MARKERS = "osD^v<>Px*"


def draw(report: dict[str, Any], file: Path) -> None:
    figure = {"channel": channel, "qreduce": qreduce, "gram": gram}[report["benchmark"]](report)
    m = report["machine"]
    figure.supxlabel(f"{m['ranks']} ranks, {m['cpu']}, {m['mpi']}, pchan {m['pchan']}", fontsize=7, color="gray")
    figure.savefig(file, dpi=150)


def channel(report: dict[str, Any]) -> Figure:
    """Time against size, a line for each system, a panel for the least and the most pairs; below, the ratios."""
    cells = report["cells"]
    names, pairs = list(cells[0]["us"]), sorted({c["pairs"] for c in cells})
    ends = sorted({pairs[0], pairs[-1]})
    figure = Figure(figsize=(5.5 * len(ends), 9), layout="constrained")
    grid = figure.add_gridspec(2, len(ends), height_ratios=(3, 2))
    what = ("cells a side", "fields") if report["pattern"] == "halo" else ("bytes", "each way")
    for k, n in enumerate(ends):
        axes = figure.add_subplot(grid[0, k])
        _times(axes, [c for c in cells if c["pairs"] == n], names)
        axes.set(xlabel=what[0], title=f"{report['pattern']}: {n} {what[1]}")
    first, ours = names[0], _best(names)
    axes = figure.add_subplot(grid[1, :])
    _ratios(axes, cells, pairs, first, ours)
    axes.set(xlabel=what[0], ylabel=what[1])
    return figure


def _best(names: list[str]) -> str:
    """pchan's system to compare with the first one."""
    return next((n for n in ("pchan_connected", "pchan") if n in names), names[-1])


def _times(axes: Axes, cells: list[dict[str, Any]], names: list[str]) -> None:
    for marker, name in zip(MARKERS, names, strict=False):
        axes.loglog([c["bytes"] for c in cells], [c["us"][name] for c in cells], marker=marker, ms=4, label=name)
    axes.set(ylabel="µs per cycle")
    axes.grid(alpha=0.3, which="both")
    axes.legend(fontsize=7)


def _ratios(axes: Axes, cells: list[dict[str, Any]], pairs: list[int], first: str, ours: str) -> None:
    sizes = sorted({c["bytes"] for c in cells})
    ratio = np.full((len(pairs), len(sizes)), np.nan)
    for c in cells:
        ratio[pairs.index(c["pairs"]), sizes.index(c["bytes"])] = c["us"][first] / c["us"][ours]
    limit = max(2.0, float(np.nanmax(np.abs(np.log2(ratio)))))
    image = axes.imshow(np.log2(ratio), cmap="RdBu", vmin=-limit, vmax=limit, aspect="auto")
    for (i, j), value in np.ndenumerate(ratio):
        color = "white" if abs(np.log2(value)) > 0.7 * limit else "black"
        axes.text(j, i, f"{value:.2g}", ha="center", va="center", fontsize=8, color=color)
    axes.set_xticks(range(len(sizes)), [str(s) for s in sizes])
    axes.set_yticks(range(len(pairs)), [str(p) for p in pairs])
    axes.set_title(f"{first} / {ours} (blue: pchan is faster)", fontsize=10)
    axes.figure.colorbar(image, ax=axes, label="log2 of the ratio")


def qreduce(report: dict[str, Any]) -> Figure:
    """The last case's seconds per stage for each strategy; beside it, time against n."""
    figure = Figure(figsize=(11, 5), layout="constrained")
    stages, curve = figure.subplots(1, 2)
    case = report["cases"][-1]
    bars = {name: f["stages_s"] for name, f in case["results"].items() if f["stages_s"]}
    stacked(stages, bars, f"n = {case['n']}, {case['bits']} bits", "seconds, all ranks' clocks")
    for bits in sorted({c["bits"] for c in report["cases"]}):
        chosen = [c for c in report["cases"] if c["bits"] == bits]
        for marker, name in zip(MARKERS, chosen[0]["results"], strict=False):
            points = [(c["n"], c["results"][name]["cpu_s"]) for c in chosen if name in c["results"]]
            label = f"{name}, {bits} bits" if len({c["bits"] for c in report["cases"]}) > 1 else name
            curve.loglog(*zip(*points, strict=True), marker=marker, ms=4, label=label)
    curve.set(xlabel="n", ylabel="CPU seconds of a cycle, all ranks", title="one cycle")
    curve.grid(alpha=0.3, which="both")
    curve.legend(fontsize=6)
    return figure


def gram(report: dict[str, Any]) -> Figure:
    """Seconds per stage of the baselines' size and the larger ones; the cost per product."""
    figure = Figure(figsize=(11, 5), layout="constrained")
    stages, cost = figure.subplots(1, 2)
    bars = {
        f"n = {c['n']}\nK = {c['k']}": {k: v / c["pchan_s"] for k, v in c["stages_s"].items()}
        for c in report["scaling"]
    }
    stacked(stages, bars, "where the time goes", "part of the time")
    cost.semilogx([c["n"] for c in report["scaling"]], [c["ns_per_ijk"] for c in report["scaling"]], marker="o")
    cost.set(xlabel="n", ylabel="ns per (i ≤ j, k)", title="cost of a product", ylim=(0, None))
    cost.grid(alpha=0.3, which="both")
    return figure


def stacked(axes: Axes, bars: dict[str, dict[str, float]], title: str, unit: str) -> None:
    names = list(dict.fromkeys(stage for parts in bars.values() for stage in parts))
    below = np.zeros(len(bars))
    for name in names:
        heights = np.array([parts.get(name, 0.0) for parts in bars.values()])
        if heights.any():
            axes.bar(list(bars), heights, bottom=below, label=name.removesuffix("_s"))
            below += heights
    axes.set(ylabel=unit, title=title)
    axes.tick_params(axis="x", labelsize=7)
    axes.legend(fontsize=7)
