"""What connect() costs: milliseconds for 100 operations of each rank, all of one kind.

    mpiexec -n 4 python benchmarks/bench_connect.py

The first connect on a communicator also makes a duplicate of it, and is told apart.
"""

from __future__ import annotations

import time

import numpy as np
from mpi4py import MPI

import pchan

N_OPERATIONS = 100
REPETITIONS = 15


def ring(comm: MPI.Intracomm, nbytes: int) -> pchan.Channel:
    ch = pchan.Channel(comm)
    for k in range(N_OPERATIONS // 2):
        ch.recv_init(np.zeros(nbytes, np.uint8), (comm.rank - 1) % comm.size, k)
        ch.send_init(np.zeros(nbytes, np.uint8), (comm.rank + 1) % comm.size, k)
    return ch


def timed(comm: MPI.Intracomm, nbytes: int) -> float:
    """Milliseconds of the slowest rank. Collective."""
    with ring(comm, nbytes) as ch:
        comm.Barrier()
        begin = time.perf_counter()
        ch.connect()
        seconds: float = comm.allreduce(time.perf_counter() - begin, MPI.MAX)
        ch.exchange()
    return 1e3 * seconds


def main() -> None:
    comm = MPI.COMM_WORLD
    first = timed(comm, 8)
    if comm.rank == 0:
        print(f"{comm.size} ranks, {N_OPERATIONS} operations each; the first connect {first:.3f} ms")
    for nbytes in (8, 512, 65536, 1 << 20):
        ms = sorted(timed(comm, nbytes) for _ in range(REPETITIONS))
        if comm.rank == 0:
            median = ms[len(ms) // 2]
            verdict = "reached" if median < 1 else "MISSED"
            print(
                f"  {nbytes:8} bytes: median {median:.3f} ms, best {ms[0]:.3f}; goal below 1: {verdict}",
                flush=True,
            )


if __name__ == "__main__":
    main()
