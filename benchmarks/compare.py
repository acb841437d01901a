"""Compares two result files of one benchmark, and measures once more before it alarms.

    python benchmarks/compare.py OLD.json NEW.json [--limit 1.15] [--no-repeat]

Compared are ratios, not times: pchan's time in units of a baseline of the same run, so that a faster machine
changes little. What is worse in NEW by more than the limit is measured twice more on this machine, with NEW's
number of ranks (mpiexec must be on PATH); the least of the three counts. Exit code 0: nothing is worse; 1:
something is, and stays so; 2: the files cannot be compared.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
Ratios = dict[str, tuple[float, list[str]]]  # name: pchan's time / a baseline's, and the arguments that measure it


def channel(report: dict[str, Any]) -> Iterator[tuple[str, float, list[str]]]:
    for cell in report["cells"]:
        us = cell["us"]
        first = next(iter(us))
        size = [f"--bytes={cell['bytes']}", f"--pairs={cell['pairs']}", f"--pattern={report['pattern']}"]
        for name in us:
            if name.startswith("pchan"):
                where = f"{report['pattern']} {cell['bytes']} x {cell['pairs']}"
                yield f"{name} / {first}, {where}", us[name] / us[first], [*size, f"--systems={first},{name}"]


def qreduce(report: dict[str, Any]) -> Iterator[tuple[str, float, list[str]]]:
    for case in report["cases"]:
        results = case["results"]
        where = f"n = {case['n']}, {case['bits']} bits"
        for name in results:
            if name != "residues":
                ratio = results["residues"]["cpu_s"] / results[name]["cpu_s"]
                yield f"residues / {name}, {where}", ratio, [f"--n={case['n']}", f"--bits={case['bits']}"]


def gram(report: dict[str, Any]) -> Iterator[tuple[str, float, list[str]]]:
    for case in report["baselines"]:
        for name in ("flint", "gmpy2"):
            if f"{name}_s" in case:
                yield f"gram / {name}, n = {case['n']}", case["pchan_s"] / case[f"{name}_s"], report["arguments"]


READERS: dict[str, Callable[[dict[str, Any]], Iterator[tuple[str, float, list[str]]]]] = {
    "channel": channel,
    "qreduce": qreduce,
    "gram": gram,
}


def ratios(report: dict[str, Any]) -> Ratios:
    return {name: (ratio, arguments) for name, ratio, arguments in READERS[report["benchmark"]](report)}


def load(file: Path) -> dict[str, Any]:
    try:
        report: dict[str, Any] = json.loads(file.read_text())
        if not ratios(report):
            raise ValueError("nothing to compare in it")
        return report
    except (OSError, ValueError, KeyError, TypeError) as e:
        sys.stderr.write(f"compare.py: {file}: not a result of a benchmark of now ({type(e).__name__}: {e})\n")
        raise SystemExit(2) from None


def measure(report: dict[str, Any], arguments: list[str]) -> Ratios:
    """The ratios of one more run with these arguments; none where it cannot run."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "again.json")
        script = ROOT / "benchmarks" / f"bench_{report['benchmark']}.py"
        command = ["mpiexec", "-n", str(report["machine"]["ranks"]), sys.executable, str(script), *arguments]
        run = subprocess.run([*command, "--json", str(file)], stdout=subprocess.DEVNULL)
        return ratios(json.loads(file.read_text())) if run.returncode == 0 else {}


def confirm(report: dict[str, Any], worse: dict[str, float], measured: Ratios) -> dict[str, float]:
    """The least of what was measured and of two more runs, for each name that is worse."""
    runs: dict[tuple[str, ...], list[str]] = {}
    for name in worse:
        runs.setdefault(tuple(measured[name][1]), []).append(name)
    least = dict(worse)
    for arguments, names in runs.items():
        for _ in range(2):
            again = measure(report, list(arguments))
            for name in names:
                least[name] = min(least[name], again.get(name, (least[name],))[0])
    return least


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--limit", type=float, default=1.15, help="times the old ratio (default 1.15)")
    parser.add_argument("--no-repeat", action="store_true", help="alarm at once")
    options = parser.parse_args(argv)
    old, new = load(options.old), load(options.new)
    if old["benchmark"] != new["benchmark"] or old["machine"]["ranks"] != new["machine"]["ranks"]:
        sys.stderr.write("compare.py: the files are of different benchmarks or numbers of ranks\n")
        return 2
    before, after = ratios(old), ratios(new)
    both = [name for name in before if name in after]
    if not both:
        sys.stderr.write("compare.py: the files have no case in common\n")
        return 2
    for key in ("cpu", "mpi", "kernel"):
        if old["machine"].get(key) != new["machine"].get(key):
            print(f"CAUTION: {key}: {old['machine'].get(key)} before, {new['machine'].get(key)} now")
    worse = {name: after[name][0] for name in both if after[name][0] > options.limit * before[name][0]}
    if worse and not options.no_repeat:
        print(f"{len(worse)} of {len(both)} ratios are worse; measuring them twice more")
        worse = confirm(new, worse, after)
    for name in both:
        now = worse.get(name, after[name][0])
        change = now / before[name][0]
        alarm = "WORSE" if change > options.limit else "better" if change < 1 / options.limit else ""
        print(f"{name:60} {before[name][0]:8.3f} {now:8.3f} {change:6.2f} {alarm}".rstrip())
    alarms = sum(now > options.limit * before[name][0] for name, now in worse.items())
    print(f"{len(both)} ratios compared, {alarms} worse than {options.limit:g} times before")
    return 1 if alarms else 0


if __name__ == "__main__":
    raise SystemExit(main())
