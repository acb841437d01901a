"""python -m pchan info and demo, and the examples."""

import sys

import pytest
from mpi_faults import needs_cliques
from run_mpi import run_mpi

pytestmark = pytest.mark.launcher
PCHAN = [sys.executable, "-m", "pchan"]


@pytest.mark.parametrize("n", [1, 2])
def test_info(n):
    run = run_mpi(n, [*PCHAN, "info"])
    assert run.returncode == 0 and run.stderr == "", run.stderr
    facts = dict(
        line.split(maxsplit=1)
        for line in run.stdout.splitlines()
        if not line.startswith(("MPI", "usable", "shared"))
    )
    assert (
        facts["ranks"] == str(n)
        and facts["nodes"].startswith("1 ")
        and facts["kernel"] in ("portable", "avx2", "avx512")
    )
    assert {"pchan", "numpy", "mpi4py", "builds", "CPU", "system", "environment"} <= set(facts)
    assert "mpmath" in facts["packages"] and "/" in run.stdout.partition("MPI's file")[2].splitlines()[0]
    assert run.stdout.count("MPI library") == 1


@needs_cliques
def test_info_counts_nodes():
    run = run_mpi(4, [*PCHAN, "info"], MPIR_CVAR_NUM_CLIQUES="2")
    assert "2 (at most 2 ranks each)" in run.stdout


def test_info_tells_what_the_environment_sets():
    run = run_mpi(2, [*PCHAN, "info"], PCHAN_TRANSPORT="mpi", MPIR_CVAR_CH4_CMA_ENABLE="0", PCHAN_SPIN_US="7")
    line = next(line for line in run.stdout.splitlines() if line.startswith("environment"))
    assert {"MPIR_CVAR_CH4_CMA_ENABLE=0", "PCHAN_SPIN_US=7", "PCHAN_TRANSPORT=mpi"} <= set(line.split())


def test_demo():
    run = run_mpi(2, [*PCHAN, "demo"])
    assert run.returncode == 0 and "Both results are correct." in run.stdout, run.stdout + run.stderr


@pytest.mark.parametrize(
    "arguments", [[], ["nonsense"], ["info", "extra"], ["gram"], ["gram", "x", "--precision", "many"]]
)
@pytest.mark.parametrize("n", [1, 2])
def test_bad_arguments_are_one_line(arguments, n):
    run = run_mpi(n, [*PCHAN, *arguments])
    assert run.returncode != 0 and run.stdout == "" and "Traceback" not in run.stderr
    assert len([line for line in run.stderr.splitlines() if "pchan" in line]) == 1, run.stderr


@pytest.mark.parametrize("n", [1, 2, 3, 4])
@pytest.mark.parametrize("name", ["heat2d", "gram_hilbert"])
def test_examples(name, n):
    run = run_mpi(n, [sys.executable, "-m", f"pchan.examples.{name}"])
    assert run.returncode == 0 and run.stdout and run.stderr == "", run.stdout + run.stderr
    if name == "heat2d":
        assert "difference: 0.0\n" in run.stdout
