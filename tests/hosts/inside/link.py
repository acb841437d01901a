"""Measures the network between the first and the last rank with a channel: prints rtt_ms and mbit_s."""

import time

import numpy as np
from mpi4py import MPI

import pchan

comm = MPI.COMM_WORLD
peer = comm.size - 1 - comm.rank


def seconds(n):
    """For n doubles from rank 0 to the last one, and one double back: the shortest of 5."""
    data, answer, times = np.arange(n, dtype=float), np.zeros(1), []
    with pchan.Channel(comm) as there, pchan.Channel(comm) as home:
        if comm.rank == 0:
            there.send_init(data, peer)
            home.recv_init(answer, peer)
        elif comm.rank == comm.size - 1:
            there.recv_init(data, peer)
            home.send_init(answer, peer)
        for _ in range(5):
            comm.Barrier()
            begin = time.perf_counter()
            for ch in (there, home):
                ch.exchange(timeout=40)
            times.append(time.perf_counter() - begin)
    return min(times)


N = 2**19
rtt, long = seconds(1), seconds(N)
if comm.rank == 0:
    print(f"rtt_ms {1e3 * rtt:.3f} mbit_s {64e-6 * N / (long - rtt):.1f}")
