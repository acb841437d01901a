"""The benchmarks run, in their shortest form, and write what they measured."""

import json
import sys
from pathlib import Path

import pytest
from run_mpi import run_mpi

ROOT = Path(__file__).resolve().parent.parent
pytestmark = pytest.mark.launcher


@pytest.mark.parametrize("n", [2, 3])
def test_bench_channel(tmp_path, n):
    report = tmp_path / "report.json"
    script = [sys.executable, str(ROOT / "benchmarks" / "bench_channel.py"), "--smoke", "--json", str(report)]
    run = run_mpi(n, [*script, "--bytes", "1,4096", "--pairs", "1,4"])
    assert run.returncode == 0 and "geometric mean" in run.stdout, run.stdout + run.stderr
    figures = json.loads(report.read_text())
    assert [(c["bytes"], c["pairs"]) for c in figures["cells"]] == [(1, 1), (1, 4), (4096, 1), (4096, 4)]
    systems = {"raw_waitall", "temporaries", "mpi4py_persistent", "mpi4py_nonblocking", "pchan", "pchan_core"}
    for cell in figures["cells"]:
        assert systems <= set(cell["us"]) and all(us > 0 for us in cell["us"].values())
    assert figures["machine"]["ranks"] == n and figures["goals"]
    assert str(ROOT) not in report.read_text() and str(Path.home()) + "/" not in report.read_text()
    assert sum(line.startswith("geometric mean") for line in run.stdout.splitlines()) == 1


@pytest.mark.parametrize("n", [2, 3])
def test_bench_qreduce(tmp_path, n):
    """Every competitor checks its own result."""
    report = tmp_path / "report.json"
    script = [sys.executable, str(ROOT / "benchmarks" / "bench_qreduce.py"), "--n", "40", "--bits", "128"]
    run = run_mpi(n, [*script, "--repetitions", "1", "--json", str(report)])
    assert run.returncode == 0 and f"{n} nodes of 1 rank" in run.stdout, run.stdout + run.stderr
    (case,) = json.loads(report.read_text())["cases"]
    names = {"residues", "restored", "ring", "ring_scan", "mpi"}
    assert names <= set(case["results"])
    for figures in case["results"].values():
        assert figures["cpu_s"] > 0 and figures["wall_s"] > 0 and figures["bytes_held"] > 0
