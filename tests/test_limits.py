"""A machine that gives less than usual: right values by another way, or an error that names the operation, on all ranks."""

import os
import platform
import re
import sys
from pathlib import Path

import pytest
from isolated import isolated

pytestmark = pytest.mark.launcher
PROGRAM = str(Path(__file__).with_name("limited.py"))
N = 2
NO_CMA = "MPIR_CVAR_CH4_CMA_ENABLE=0"  # tells MPICH, which tries it all the same, see docs/reliability.md
NO_SHM_COLLECTIVES = "MPIR_CVAR_COLL_SHM_LIMIT_PER_NODE=0"  # or MPICH ends by SIGBUS in a full /dev/shm
CONNECTED, BY_MPI, NO_MEMORY = "shm shm cma cma", "shm shm mpi mpi", "bundle bundle mpi mpi"
GOOD = {"connect": CONNECTED, "empty": "True", "residues": "True"}
OPERATION = {"empty": "empty", "residues": "qreduce"}
FULL = r"MemoryError: STEP: window: \d+ bytes of shared memory: No space left on device"
UNMAPPED = r"MemoryError: STEP: window: mapping \d+ bytes: Cannot allocate memory"
NO_FILES = r"OSError: STEP: window: shared memory: Too many open files"
# limit: (environment, what differs from GOOD: transports, or the error of all ranks, where STEP is the operation)
LIMITS: dict[str, tuple[list[str], dict[str, str]]] = {
    "none": ([], {}),
    "full /dev/shm": ([NO_SHM_COLLECTIVES], {}),
    "no memfd_create": ([], {}),
    "full /dev/shm, no memfd_create": ([NO_SHM_COLLECTIVES], {"empty": FULL, "residues": FULL}),
    "no process_vm_readv, writev: EPERM": ([NO_CMA], {"connect": BY_MPI}),
    "no process_vm_readv, writev: ENOSYS": ([NO_CMA], {"connect": BY_MPI}),
    "no process_vm_readv, writev on one rank": ([NO_CMA], {"connect": BY_MPI}),
    "no process_vm_writev": ([], {"connect": BY_MPI}),
    "no ptrace": ([NO_CMA], {"connect": BY_MPI}),
    "RLIMIT_AS": ([], {"empty": UNMAPPED, "residues": UNMAPPED}),
    "RLIMIT_AS on one rank": ([], {"empty": UNMAPPED, "residues": UNMAPPED}),
    "RLIMIT_MEMLOCK": ([], {}),
    "RLIMIT_NOFILE": ([], {"connect": NO_MEMORY, "empty": NO_FILES, "residues": NO_FILES}),
}


def job_under(limit, environment, folder):
    """On a /dev/shm of 96 MiB."""
    if "no " in limit and platform.machine() != "x86_64":
        pytest.skip("filters system calls by their numbers on x86-64")
    mpiexec = os.environ.get("PCHAN_TEST_MPIEXEC", "mpiexec")
    python = ["env", *environment, mpiexec, "-n", str(N), sys.executable, "-m", "mpi4py", PROGRAM, limit]
    return isolated([python], folder, "size=96m")[0]


@pytest.mark.parametrize("limit", LIMITS)
def test_a_limit(limit, tmp_path):
    environment, differs = LIMITS[limit]
    job = job_under(limit, environment, tmp_path)
    assert job.returncode == 0, job
    for step, usual in GOOD.items():
        want = differs.get(step, usual)
        found = re.findall(rf"^{step} \| (.*)$", job.output, re.M)
        assert len(found) == N, job
        for text in found:
            if "Error" in want:
                want = want.replace("STEP", OPERATION[step])
                assert re.fullmatch(want, re.sub(r"rank \d: ", "", text)), (step, text)
            else:
                assert text == f"good: {want}", (step, text)
    assert [name for name in job.left if name != "/dev/shm/filler"] == []


def test_mpich_without_being_told(tmp_path):
    """Where MPICH tries a forbidden call, wait's error names the message, and nothing is left."""
    job = job_under("no process_vm_readv, writev: EPERM", [], tmp_path)
    if "MPIError" in job.output:
        assert job.returncode != 0 and re.search(
            r"MPIError: operation 3 \(recv from \d, tag 0, 400000 bytes\)", job.output
        )
    else:  # an MPICH that looks first
        assert job.returncode == 0 and job.output.count(f"good: {BY_MPI}") == N
    assert [name for name in job.left if not name.startswith("/dev/shm/mpich_shm_")] == []
