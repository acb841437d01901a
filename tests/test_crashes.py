"""A rank that dies in any phase: the job ends within seconds, nothing is left, and the next job works."""

import os
import sys
from pathlib import Path

import pytest
from crashing import DEATHS
from isolated import isolated

PROGRAM = str(Path(__file__).with_name("crashing.py"))
PHASES = [
    "registration",
    "connect",
    "between start and wait",
    "wait",
    "plan",
    "add",
    "reduce-scatter's wait",
    "gram",
    "free",
    "finalize",
]
SECONDS = 30  # from a death to the end of mpiexec; less than one on an idle machine


def phases(n, how):
    """All with PCHAN_SOAK=1; otherwise every phase has one death on 2 ranks and another on 3."""
    if os.environ.get("PCHAN_SOAK") == "1":
        return PHASES
    deaths = list(DEATHS)
    return [phase for k, phase in enumerate(PHASES) if deaths[(k + n) % len(deaths)] == how]


def test_every_phase_and_every_death_has_its_turn():
    for n in (2, 3):
        assert set(sum((phases(n, how) for how in DEATHS), [])) == set(PHASES)
        assert all(phases(n, how) for how in DEATHS)


@pytest.mark.launcher
@pytest.mark.parametrize("n", [2, 3])
@pytest.mark.parametrize("how", DEATHS)
def test_a_rank_dies(how, n, tmp_path):
    """One phase after the other: each job finds the machine as the one before has left it, and so does a good one."""
    mpiexec = os.environ.get("PCHAN_TEST_MPIEXEC", "mpiexec")
    python = [mpiexec, "-n", str(n), sys.executable, "-m", "mpi4py", PROGRAM]
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    deaths = [tmp_path / f"death in {phase}" for phase in phases(n, how)]
    commands = [[*python, phase, how, str(file)] for phase, file in zip(phases(n, how), deaths, strict=True)]
    jobs = isolated([*commands, [*python, "none", "none", ""]], temporary)
    for phase, file, job in zip(phases(n, how), deaths, jobs, strict=False):  # fewer jobs if one did not end
        assert job.returncode not in (0, None), (phase, job)
        assert file.exists(), (phase, job)
        (died,) = file.read_text().split()
        assert "AssertionError" not in job.output, (phase, job)
        # at finalize nobody needs the dead one any more
        assert "good" not in job.output or phase == "finalize", (phase, job)
        assert job.ended - float(died) < SECONDS, (phase, job)
        # MPICH's own, of a job that was killed: see docs/reliability.md
        assert [name for name in job.left if not name.startswith("/dev/shm/mpich_shm_")] == [], (phase, job)
    assert len(jobs) == len(commands) + 1
    assert jobs[-1].returncode == 0 and jobs[-1].output.count("good") == n, jobs[-1]
