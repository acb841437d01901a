"""Faults of MPI libraries that the suite meets: who has each, and a program of plain mpi4py that shows it.

A test that a fault would fail carries `without(name)`: it is skipped where the library and its version are those of the
table, and nowhere else. test_mpi_faults.py runs the programs, and fails where the table is wrong either way.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest
from mpi4py import MPI


class Fault(NamedTuple):
    library: str  # as MPI.get_vendor() names it
    versions: tuple[tuple[int, int, int], ...]  # those seen with the fault
    what: str
    program: str  # for two ranks: prints "faulty" or "well" once


TRUNCATION = """
import numpy as np
from mpi4py import MPI
comm, n, room = MPI.COMM_WORLD, 100_000, 50_000
if comm.rank == 0:
    comm.Send(np.ones(n, "u1"), 1)
else:
    buf = np.zeros(n, "u1")
    try:
        comm.Recv(buf[:room], 0)
    except MPI.Exception:
        pass
    print("faulty" if buf[room:].any() else "well")
"""

LOST_REQUEST = """
import numpy as np
from mpi4py import MPI
comm = MPI.COMM_WORLD
if comm.rank == 0:
    comm.Send(np.ones(8, "u1"), 1)
else:
    request = comm.Recv_init(np.zeros(4, "u1"), 0)
    request.Start()
    try:
        request.Wait()
    except MPI.Exception:
        pass
    print("faulty" if request == MPI.REQUEST_NULL else "well")
"""

LEAK = """
from mpi4py import MPI
def pages():
    return int(open("/proc/self/statm").read().split()[1])
def make(n):
    for _ in range(n):
        MPI.DOUBLE.Create_hvector(4, 1, 16).Commit().Free()
make(1000)
before = pages()
make(50_000)
if MPI.COMM_WORLD.rank == 0:
    print("faulty" if pages() - before > 250 else "well")
"""

UNCOMMITTED = """
import numpy as np
from mpi4py import MPI
copy = MPI.DOUBLE.Create_vector(2, 1, 3).Dup()
try:
    MPI.COMM_SELF.Send_init([np.zeros(10), 1, copy], 0).Free()
    found = "faulty"
except MPI.Exception:
    found = "well"
if MPI.COMM_WORLD.rank == 0:
    print(found)
"""

FAULTS = {
    "truncation": Fault(
        "Open MPI",
        ((4, 1, 4), (5, 0, 11)),
        "a long truncated message of the same node is written past the receive buffer's end",
        TRUNCATION,
    ),
    "lost request": Fault(
        "Open MPI",
        ((4, 1, 4),),
        "a persistent request that fails is freed, so that it cannot be started again",
        LOST_REQUEST,
    ),
    "type leak": Fault("MPICH", ((4, 0, 2),), "every derived datatype leaks 64 bytes", LEAK),
    "uncommitted": Fault(
        "MPICH", ((4, 0, 2),), "the duplicate of an uncommitted datatype is taken as committed", UNCOMMITTED
    ),
}


def is_here(name: str) -> bool:
    fault = FAULTS[name]
    library, version = MPI.get_vendor()
    return library == fault.library and version in fault.versions


def without(name: str) -> pytest.MarkDecorator:
    """Skips where this MPI has the fault."""
    fault = FAULTS[name]
    versions = " and ".join(".".join(map(str, version)) for version in fault.versions)
    return pytest.mark.skipif(is_here(name), reason=f"{fault.library} {versions}: {fault.what}")


# MPIR_CVAR_NUM_CLIQUES makes one node pass for several
needs_cliques = pytest.mark.skipif(
    MPI.get_vendor()[0] != "MPICH", reason="only MPICH pretends that one node is several"
)
