"""How the benchmarks measure: pinned ranks, interleaved samples, the median of the maximum over ranks."""

from __future__ import annotations

import gc
import math
import os
import platform
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import mpi4py
import numpy as np
import numpy.typing as npt
from mpi4py import MPI

import pchan
from pchan._info import cpu, usable_cores
from pchan._select import mpi_library

ROOT = Path(__file__).resolve().parent.parent


def pin(comm: MPI.Intracomm) -> bool:
    """Gives each rank a processor of its own where a node has enough of them. Collective; true when all did."""
    node = comm.Split_type(MPI.COMM_TYPE_SHARED)
    cpus = usable_cores(node)
    enough = node.size <= len(cpus)
    if comm.allreduce(enough, MPI.LAND):
        os.sched_setaffinity(0, {cpus[node.rank]})
    node.Free()
    return len(os.sched_getaffinity(0)) == 1 and enough


def sample(
    comm: MPI.Intracomm, systems: Mapping[str, Any], sample_ns: float, repetitions: int
) -> tuple[dict[str, int], dict[str, npt.NDArray[np.float64]]]:
    """Cycles a sample, and microseconds a cycle by repetition (the slowest rank's), for each system. Collective.

    All systems are measured once in every repetition, in another order each time, so that a disturbance meets all
    of them alike. A sample is as many cycles as take about `sample_ns`; before it come some cycles that
    do not count, and a barrier.
    """
    names = list(systems)
    cycles = {name: _calibrate(comm, systems[name], sample_ns) for name in names}
    order = np.random.default_rng(1)  # the same on all ranks
    times = np.zeros((len(names), repetitions))
    gc.collect()
    gc.disable()
    for r in range(repetitions):
        for s in order.permutation(len(names)):
            run, n = systems[names[s]].run, cycles[names[s]]
            run(max(1, n // 20))
            comm.Barrier()
            times[s, r] = run(n) / n / 1000
    gc.enable()
    comm.Allreduce(MPI.IN_PLACE, times, MPI.MAX)
    return cycles, dict(zip(names, times, strict=True))


def _calibrate(comm: MPI.Intracomm, system: Any, sample_ns: float) -> int:
    """The number of cycles that take about `sample_ns`. Collective."""
    n = 1
    while True:
        comm.Barrier()
        ns = comm.allreduce(system.run(n), MPI.MAX)
        if ns > sample_ns / 2 or n > sample_ns:
            return max(1, int(n * min(1.0, sample_ns / ns)))
        n = max(2 * n, min(8 * n, int(n * sample_ns / ns)))


def geometric_mean(values: Iterable[float]) -> float:
    logarithms = [math.log(v) for v in values]
    return math.exp(math.fsum(logarithms) / len(logarithms)) if logarithms else math.nan


def machine(comm: MPI.Intracomm, pinned: bool) -> dict[str, Any]:
    """What the figures depend on; no names of hosts or folders. Collective."""
    with pchan.Channel(comm) as channel:
        spin_us = channel.spin_us
    node = comm.Split_type(MPI.COMM_TYPE_SHARED)
    cores = len(usable_cores(node))
    crowded = comm.allreduce(node.size > cores, MPI.LOR)
    node.Free()
    return {
        "ranks": comm.size,
        "cores": cores,
        "pinned": bool(comm.allreduce(pinned, MPI.LAND)),
        "oversubscribed": crowded,
        "spin_us": spin_us,
        "cpu": cpu(),
        "kernel": pchan._core.kernel,
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "mpi": " ".join(mpi_library().split()),
        "thread_level": MPI.Query_thread(),
        "python": platform.python_version(),
        "mpi4py": mpi4py.__version__,
        "numpy": np.__version__,
        "pchan": pchan.__version__,
        "commit": _commit(),
    }


def _commit() -> str:
    def git(*arguments: str) -> str:
        run = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=True)
        return run.stdout.strip()

    try:
        changed = git("status", "--porcelain", "--untracked-files=no")
        return git("rev-parse", "HEAD") + (" with changes" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
