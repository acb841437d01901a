"""The test harness itself: a failure on one rank is everyone's, and a hang ends by itself."""

import shutil
import sys
import time
from pathlib import Path

import pytest
from run_mpi import run_mpi

pytestmark = pytest.mark.launcher
HERE = Path(__file__).parent

SUITE = """
import pytest
from mpi4py import MPI

def test_first(comm):
    assert comm.rank != 1, "rank one fails before the barrier"
    comm.Barrier()

def test_second(comm):
    comm.Barrier()
    assert comm.allreduce(1) == comm.size

@pytest.mark.mpi(min_size=9)
def test_never(comm):
    assert False

def test_rank_zero_fails(comm):
    assert comm.rank
"""

HANG = """
def test_hang(comm):
    if comm.rank == 0:
        comm.recv(source=1)
"""

UNEQUAL = """
from mpi4py import MPI
if MPI.COMM_WORLD.rank:
    def test_only_on_one(comm):
        pass
def test_everywhere(comm):
    pass
"""


def run_suite(tmp_path, text, *options, n=2):
    for name in ("conftest.py", "divisions.py", "run_mpi.py", "transports.py"):
        shutil.copy(HERE / name, tmp_path)
    (tmp_path / "test_it.py").write_text(text)
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\naddopts = --with-mpi -p no:cacheprovider\nmarkers = launcher\n"
    )
    arguments = [
        "-q",
        "--color=no",
        "--rootdir",
        str(tmp_path),
        "-c",
        str(tmp_path / "pytest.ini"),
        *options,
        str(tmp_path),
    ]
    return run_mpi(n, [sys.executable, "-m", "pytest", *arguments], timeout=50)


def test_one_rank_fails(tmp_path):
    # the barrier of the first test is never entered by rank 1, so the comm of that test must not be freed by a barrier
    run = run_suite(tmp_path, SUITE.replace("    comm.Barrier()\n\ndef test_second", "\ndef test_second"))
    assert run.returncode == 1, run.stdout + run.stderr
    assert "2 failed, 1 passed, 1 skipped" in run.stdout and run.stdout.count("2 failed") == 1
    assert "on rank 1 of 2" in run.stdout and "rank one fails" in run.stdout and "on rank 0 of 2" in run.stdout


def test_a_hang_ends(tmp_path):
    begin = time.monotonic()
    run = run_suite(tmp_path, HANG, "-o", "faulthandler_timeout=3", "-o", "faulthandler_exit_on_timeout=true")
    assert run.returncode != 0 and time.monotonic() - begin < 40


def test_ranks_that_collect_different_tests(tmp_path):
    run = run_suite(tmp_path, UNEQUAL)
    assert run.returncode == 3 and "different tests" in run.stdout + run.stderr
