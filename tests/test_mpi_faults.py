"""The table of MPI faults is true of the MPI at hand: what it lists is there, and what it does not list is not."""

import sys

import pytest
from mpi_faults import FAULTS, is_here
from run_mpi import run_mpi

pytestmark = pytest.mark.launcher


@pytest.mark.parametrize("name", FAULTS)
def test_the_table_is_true(name):
    run = run_mpi(2, [sys.executable, "-c", FAULTS[name].program])
    assert run.stdout.split() == ["faulty" if is_here(name) else "well"], run.stdout + run.stderr
