"""Plain mpi4py, no pchan: a ring that receives from ANY_SOURCE. Aborts with code 3 where MPI does not finish one.

MPICH 5.0.2 over UCX does so between hosts: the data have come, the request never completes, or the process crashes.
It does not over OFI. https://github.com/pmodels/mpich/pull/7745 describes a like fault.
"""

import time

import numpy as np
from mpi4py import MPI

comm = MPI.COMM_WORLD
out, into = np.zeros(1), np.zeros(1)
for cycle in range(300):
    out[0] = cycle
    receive = comm.Irecv(into, MPI.ANY_SOURCE, 8)
    requests = [receive, comm.Isend(out, (comm.rank + 1) % comm.size, 8)]
    limit = time.monotonic() + 3
    while not MPI.Request.Testall(requests):
        if time.monotonic() > limit:
            print(f"rank {comm.rank}, cycle {cycle}: not received from ANY_SOURCE; buffer {into[0]}", flush=True)
            comm.Abort(3)
comm.Barrier()
