"""``python -m pchan info``: all that a bug report needs."""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import sys
from importlib import metadata
from typing import Any

import mpi4py
import numpy as np
from mpi4py import MPI

from . import _core, _select


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser("info", help="versions, MPI, nodes and kernels")
    parser.set_defaults(func=run)


def info(comm: MPI.Intracomm) -> dict[str, str]:
    """Facts about this installation and job. Collective over `comm`."""
    import pchan

    node = comm.Split_type(MPI.COMM_TYPE_SHARED)
    leaders = np.array([node.rank == 0, node.size], dtype=np.int64)
    nodes, most = leaders.copy(), leaders.copy()
    comm.Allreduce(leaders, nodes, op=MPI.SUM)
    comm.Allreduce(leaders, most, op=MPI.MAX)
    cores = len(usable_cores(node))
    crowded = np.array([node.size > cores], dtype=np.int64)
    comm.Allreduce(MPI.IN_PLACE, crowded, op=MPI.MAX)
    node.Free()
    with pchan.Channel(comm) as channel:
        spin = channel.spin_us
    return {
        "pchan": pchan.__version__,
        "builds": f"{', '.join(_select.installed_builds())} (in use: {_core.__name__.rpartition('_')[2]})",
        "python": f"{platform.python_version()} ({sys.executable})",
        "numpy": np.__version__,
        "mpi4py": mpi4py.__version__,
        "packages": _packages(),
        "MPI library": _select.mpi_library(),
        "MPI's file": _core.mpi_library.rpartition("(")[2].rstrip(")"),
        "MPI standard": ".".join(map(str, MPI.Get_version())),
        "MPI ABI": _select.BUILDS[_select.abi_of_mpi4py()],
        "thread level": _thread_level(),
        "ranks": str(comm.size),
        "nodes": f"{nodes[0]} (at most {most[1]} ranks each)",
        "usable cores": f"{cores} on this node" + ("; more ranks than cores" if crowded[0] else ""),
        "spin": f"{spin:g} us" + (" (PCHAN_SPIN_US)" if "PCHAN_SPIN_US" in os.environ else ""),
        "CPU": cpu(),
        "kernel": _core.kernel + (" (PCHAN_KERNEL)" if "PCHAN_KERNEL" in os.environ else ""),
        "system": " ".join((platform.system(), platform.release(), platform.machine(), *platform.libc_ver())),
        "shared memory": _shared_memory(),
        "environment": _settings(),
    }


def usable_cores(node: MPI.Comm) -> list[int]:
    """Processors of all ranks of a node, as launchers may bind each to its own. Collective over `node`."""
    mine = os.sched_getaffinity(0)
    last = np.array([max(mine)], dtype=np.int64)
    node.Allreduce(MPI.IN_PLACE, last, op=MPI.MAX)
    usable = np.zeros(int(last[0]) + 1, dtype=np.int64)
    usable[list(mine)] = 1
    node.Allreduce(MPI.IN_PLACE, usable, op=MPI.MAX)
    return np.flatnonzero(usable).tolist()


def _packages() -> str:
    """What gram uses where it is installed."""
    found = []
    for name in ("mpmath", "gmpy2", "python-flint", "threadpoolctl"):
        try:
            found.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            found.append(f"no {name}")
    return ", ".join(found)


def _shared_memory() -> str:
    """What connected channels and windows depend on."""
    try:
        usage = shutil.disk_usage("/dev/shm")
        text = f"/dev/shm {usage.free / 2**30:.3g} of {usage.total / 2**30:.3g} GiB free"
    except OSError:
        text = "no /dev/shm"
    try:
        with open("/proc/sys/kernel/yama/ptrace_scope") as f:
            text += f", ptrace_scope {f.read().strip()}"
    except OSError:
        pass
    return text


def _settings() -> str:
    """Variables that change what pchan, MPI or BLAS do."""
    prefixes = ("PCHAN_", "MPIR_CVAR_", "OMPI_MCA_", "UCX_", "FI_", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    return " ".join(f"{k}={v}" for k, v in sorted(os.environ.items()) if k.startswith(prefixes)) or "nothing set"


def _thread_level() -> str:
    names = ("SINGLE", "FUNNELED", "SERIALIZED", "MULTIPLE")
    levels = {getattr(MPI, f"THREAD_{name}"): name for name in names}
    return levels.get(MPI.Query_thread(), "unknown")


def cpu() -> str:
    try:
        with open("/proc/cpuinfo") as f:
            return next(line.partition(":")[2].strip() for line in f if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or "unknown"


def run(_args: argparse.Namespace) -> int:
    facts = info(MPI.COMM_WORLD)
    if MPI.COMM_WORLD.rank == 0:
        for name, value in facts.items():
            print(f"{name:13} {value}")
    return 0
