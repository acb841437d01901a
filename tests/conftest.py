"""Tests under MPI: every rank runs the whole suite in step.

Each test gets a fresh communicator; its outcome is agreed over the ranks, so that a failure on one rank fails the
test on all and nobody waits in the next test for a rank that is still in this one. Rank 0 reports for all. A hang is
ended by faulthandler_timeout (pyproject.toml), which exits the process; mpiexec then ends the job.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from mpi4py import MPI

WORLD = MPI.COMM_WORLD
# the harness talks on a communicator of its own
HARNESS = WORLD.Dup() if WORLD.size > 1 else None

sys.path.insert(0, str(Path(__file__).parent))  # oracle.py, run_mpi.py

from divisions import node_comm  # noqa: E402, F401
from transports import transport  # noqa: E402, F401


def sdpb_data() -> Path:
    root = Path(__file__).resolve().parent.parent
    return Path(os.environ.get("PCHAN_TEST_DATA", root.parent / "shared" / "data" / "sdpb"))


@pytest.fixture
def sdpb() -> Path:
    path = sdpb_data()
    if not path.is_dir():
        pytest.skip(f"SDPB data absent: no folder {path} (set PCHAN_TEST_DATA)")
    return path


@pytest.fixture
def comm():
    """A communicator of this test's own over all ranks."""
    c = WORLD.Dup()
    yield c
    c.Free()


def pytest_runtest_setup(item):
    if item.get_closest_marker("launcher") and WORLD.size > 1:
        pytest.skip("starts MPI jobs of its own: runs where the suite has one rank")


def pytest_collection_finish(session):
    """All ranks must have collected the same tests, or they would run out of step."""
    if HARNESS is None:
        return
    names = [item.nodeid for item in session.items]
    if any(other != names for other in HARNESS.allgather(names)):
        pytest.exit("the ranks have collected different tests", returncode=3)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """Agrees the outcome of each phase: the first rank that failed speaks for all."""
    outcome = yield
    if HARNESS is None:
        return
    report = outcome.get_result()
    text = str(report.longrepr) if report.failed else ""
    everyone = HARNESS.allgather((report.outcome, text))
    failed = [(rank, text) for rank, (result, text) in enumerate(everyone) if result == "failed"]
    if failed:
        report.outcome = "failed"
        report.longrepr = "\n\n".join(f"on rank {rank} of {WORLD.size}:\n{text}" for rank, text in failed)
    elif len({result for result, _ in everyone}) > 1:
        report.outcome = "failed"
        report.longrepr = f"skipped on some ranks only: {[result for result, _ in everyone]}"


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config):
    """Only rank 0 writes a report file."""
    if WORLD.rank:
        config.option.xmlpath = None


@pytest.hookimpl(trylast=True)
def pytest_configure(config):
    """Only rank 0 writes to the terminal."""
    if WORLD.rank == 0:
        return
    reporter = config.pluginmanager.getplugin("terminalreporter")
    if reporter is not None:
        null = open(os.devnull, "w")  # noqa: SIM115
        reporter._tw._file = null


def pytest_report_header(config):
    import pchan

    library = MPI.Get_library_version().strip("\0").partition("\n")[0]
    return f"MPI: {WORLD.size} ranks, {library}; pchan {pchan.__version__} from {Path(pchan.__file__).parent}"


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session, exitstatus):
    if HARNESS is not None:
        session.exitstatus = max(HARNESS.allgather(int(exitstatus)))
