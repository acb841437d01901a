"""The benchmark of gram runs, compares with its baselines, and writes what it prints."""

import json
import sys
from pathlib import Path

import pytest
from run_mpi import run_mpi

BENCH = Path(__file__).resolve().parent.parent / "benchmarks" / "bench_gram.py"
pytestmark = pytest.mark.launcher


@pytest.mark.parametrize("ranks", [1, 2])
def test_shortest_form(tmp_path, ranks):
    path = tmp_path / "gram.json"
    done = run_mpi(ranks, [sys.executable, str(BENCH), "--quick", "--json", str(path)])
    assert done.returncode == 0, done.stderr
    results = json.loads(path.read_text())
    (case,) = results["baselines"]
    assert results["machine"]["ranks"] == ranks and case["pchan_s"] > 0
    assert case["gmpy2_over_pchan"] == case["gmpy2_s"] / case["pchan_s"]
    assert "gmpy2 loops" in done.stdout and len(results["scaling"]) == 1
