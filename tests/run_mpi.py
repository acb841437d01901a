"""Starts MPI jobs from tests, with a watchdog."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

# of the job this process belongs to: an mpiexec inside would take them for its own
FOREIGN = ("PMI", "MPI_", "PMIX", "HYDRA", "OMPI_", "PRTE", "MPIEXEC", "MPIR_CVAR")
# Open MPI: as root, with more ranks than cores, without a word on networks that are not there
OPEN_MPI = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "OMPI_MCA_mca_base_component_show_load_errors": "0",
}


def clean_environment(**extra: str) -> dict[str, str]:
    env = {k: v for k, v in os.environ.items() if not k.startswith(FOREIGN)}
    return env | OPEN_MPI | extra


def run_mpi(
    n: int, code: str | list[str], timeout: float = 60, cwd: str = "/", **env: str
) -> subprocess.CompletedProcess[str]:
    """Runs Python code (or a command line) on n ranks; its output is in the result. Kills the job after `timeout`."""
    args = code if isinstance(code, list) else [sys.executable, "-c", textwrap.dedent(code)]
    launcher = [os.environ.get("PCHAN_TEST_MPIEXEC", "mpiexec"), "-n", str(n)]
    env = clean_environment(MPIEXEC_TIMEOUT=str(int(timeout)), **env)
    return subprocess.run(
        [*launcher, *args], env=env, capture_output=True, text=True, timeout=timeout + 30, cwd=cwd
    )
