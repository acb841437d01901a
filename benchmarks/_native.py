"""c/channel_loops.c and csrc/core as a shared library: built with the compiler of mpi4py's MPI, and loaded."""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from mpi4py import MPI

ROOT = Path(__file__).resolve().parent.parent
FLAGS = [
    "-std=c11",
    "-D_GNU_SOURCE",
    "-O3",
    "-fPIC",
    "-shared",
    "-pthread",
    "-fvisibility=hidden",
    "-ffp-contract=fast",
]


class Message(ctypes.Structure):
    """bench_message of channel_loops.c."""

    _fields_ = [
        ("buffer", ctypes.c_void_p),
        ("count", ctypes.c_int64),
        ("datatype", ctypes.c_uint64),
        ("peer", ctypes.c_int),
        ("tag", ctypes.c_int),
        ("is_send", ctypes.c_int),
        ("phase", ctypes.c_int),
    ]


def _compiler() -> str:
    from pchan import _select

    name = "mpicc_abi" if _select.abi_of_mpi4py() == "abi" else "mpicc"
    path = os.pathsep.join([sysconfig.get_path("scripts"), os.environ.get("PATH", "")])
    found = os.environ.get("MPICC") or shutil.which(name, path=path)
    return found or sys.exit(f"the benchmark needs {name}, the MPI compiler of mpi4py's MPI: set MPICC")


def _cache() -> Path:
    """In a checkout its build folder; an installed package's files may belong to someone else."""
    if (ROOT / "pyproject.toml").exists():
        return ROOT / "build" / "benchmarks"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pchan"


def _build() -> Path:
    """The library's file, compiled unless one of the same sources and compiler is there."""
    sources = [ROOT / "benchmarks" / "c" / "channel_loops.c", *sorted((ROOT / "csrc" / "core").glob("*.c"))]
    compiler = _compiler()
    digest = hashlib.sha256(compiler.encode())
    for file in [*sources, *sorted((ROOT / "csrc").rglob("*.h"))]:
        digest.update(file.read_bytes())
    target = _cache() / f"channel_loops-{digest.hexdigest()[:16]}.so"
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        unfinished = target.with_suffix(f".{os.getpid()}")
        subprocess.run([compiler, *FLAGS, *map(str, sources), "-lm", "-o", str(unfinished)], check=True)
        unfinished.rename(target)
    return target


def load(comm: MPI.Intracomm) -> ctypes.CDLL:
    """Collective: rank 0 builds, all load."""
    failure, target = "", None
    if comm.rank == 0:
        try:
            target = _build()
        except (OSError, SystemExit) as e:
            failure = str(e)
        except subprocess.CalledProcessError as e:
            failure = f"{e.cmd[0]} cannot compile the loops in C"
    failure, target = comm.bcast((failure, target))
    if failure:
        raise SystemExit(failure if comm.rank == 0 else 1)
    library = ctypes.CDLL(str(target))
    library.bench_create.restype = ctypes.c_void_p
    library.bench_create.argtypes = [
        ctypes.c_char_p, ctypes.c_uint64, ctypes.c_int, ctypes.c_int, ctypes.POINTER(Message)
    ]  # fmt: skip
    library.bench_run.restype = ctypes.c_int64
    library.bench_run.argtypes = [ctypes.c_void_p, ctypes.c_int64]
    library.bench_destroy.restype = None
    library.bench_destroy.argtypes = [ctypes.c_void_p]
    return library
