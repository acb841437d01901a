"""What the benchmarks have in common: options, the noise of the machine, reports as JSON and pictures."""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from _measure import machine
from mpi4py import MPI

from pchan import _parser
from pchan._progress import Progress, bar

__all__ = ["Parser", "Progress", "Run", "bar"]


class Parser(_parser.Parser):
    """With the options that every benchmark has."""

    def __init__(self, name: str, description: str | None) -> None:
        super().__init__(
            prog=f"python -m pchan bench {name}",
            description=description,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        self.add_argument("--json", type=Path, metavar="FILE", help="write all figures")
        self.add_argument(
            "--plot", type=Path, metavar="FILE", help="draw them (.png, .svg, .pdf; needs matplotlib)"
        )

    def parse(self, argv: Sequence[str] | None) -> argparse.Namespace:
        """The options; before anything is measured it is clear that the files can be written."""
        options = self.parse_args(argv)
        options.argv = list(sys.argv[1:] if argv is None else argv)
        for file in (options.json, options.plot):
            if file and not file.absolute().parent.is_dir():
                self.error(f"no such folder: {file.parent}")
        if options.plot:
            try:
                import matplotlib  # noqa: F401
            except ImportError:
                self.error("--plot needs matplotlib: pip install matplotlib")
        return options


class Run:
    """One run of a benchmark: what it depends on, and how much else went on meanwhile."""

    def __init__(self, comm: MPI.Intracomm, name: str, options: argparse.Namespace, pinned: bool) -> None:
        self.comm, self.name, self.options = comm, name, options
        self.facts = machine(comm, pinned)
        self.node = comm.Split_type(MPI.COMM_TYPE_SHARED)
        self.load = os.getloadavg()[0]
        self.begin = time.perf_counter()
        self.own, self.busy, self.stolen = _own_seconds(), *_machine_seconds()

    def noise(self) -> dict[str, float]:
        """Processor seconds per second that others took on a node, and that the hypervisor kept. Collective."""
        seconds = time.perf_counter() - self.begin
        busy, stolen = _machine_seconds()
        own = self.node.allreduce(_own_seconds() - self.own)
        others = max(0.0, (busy - self.busy - own) / seconds)
        worst = [self.comm.allreduce(x, MPI.MAX) for x in (self.load, others, (stolen - self.stolen) / seconds)]
        names = ("load_before", "others_cores", "stolen_cores")
        return {name: round(x, 3) for name, x in zip(names, worst, strict=True)}

    def finish(self, figures: dict[str, Any]) -> None:
        """Prints what was run on, and writes what was asked for. Collective; the figures are rank 0's."""
        noise, seconds = self.noise(), time.perf_counter() - self.begin
        self.node.Free()
        if self.comm.rank:
            return
        report = {
            "benchmark": self.name,
            "arguments": _without_files(self.options.argv),
            "seconds": round(seconds, 1),
            "machine": self.facts,
            "noise": noise,
            **figures,
        }
        print(f"\n{about(report)}")
        if self.options.json:
            self.options.json.write_text(json.dumps(report, indent=1) + "\n")
        if self.options.plot:
            import _plots

            _plots.draw(report, self.options.plot)


def about(report: dict[str, Any]) -> str:
    """The machine in one line, and what makes the figures less certain."""
    m, noise = report["machine"], report["noise"]
    pinning = "each pinned to a core" if m["pinned"] else "not pinned"
    lines = [
        f"{m['ranks']} ranks on {m['cores']} cores, {pinning}; {m['cpu']}, kernel {m['kernel']}; {m['mpi']}; "
        f"pchan {m['pchan']}; {report['seconds']:.0f} s"
    ]
    lines += [f"CAUTION: {what}" for what in cautions(m, noise)]
    return "\n".join(lines)


def cautions(facts: dict[str, Any], noise: dict[str, float]) -> list[str]:
    found = []
    if facts["oversubscribed"]:
        found.append(f"oversubscribed: {facts['ranks']} ranks take turns on {facts['cores']} cores")
    elif not facts["pinned"]:
        found.append("ranks are not pinned, and may be moved from core to core")
    if noise["others_cores"] > 0.05 * facts["cores"]:
        found.append(f"noisy: other programs kept {noise['others_cores']:.2f} cores busy meanwhile")
    if noise["stolen_cores"] > 0.02:
        found.append(f"noisy: the hypervisor kept {noise['stolen_cores']:.2f} cores from this machine")
    return found


def _without_files(argv: Sequence[str]) -> list[str]:
    words, kept = iter(argv), []
    for word in words:
        if word in ("--json", "--plot"):
            next(words, None)
        elif not word.startswith(("--json=", "--plot=")):
            kept.append(word)
    return kept


def _own_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return sum(u.ru_utime + u.ru_stime for u in usage)


def _machine_seconds() -> tuple[float, float]:
    """Processor seconds that were used, and that were stolen, since the machine began; zeros outside Linux."""
    try:
        with open("/proc/stat") as f:
            ticks = [int(word) for word in f.readline().split()[1:]]
    except (OSError, ValueError):
        return 0.0, 0.0
    per_second = os.sysconf("SC_CLK_TCK")
    user, nice, system, _idle, _iowait, irq, softirq, steal = ticks[:8]
    return (user + nice + system + irq + softirq) / per_second, steal / per_second
