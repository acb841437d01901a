"""A job whose last rank dies in a given phase: python -m mpi4py crashing.py PHASE HOW FILE, HOW one of DEATHS, or "none".

Rank 0 stays outside until the last rank, which is in the phase and waits there, is dead; it is rank 0 that sends the
signal. Ranks between are in the phase, too. Where a phase waits for nobody, the dying rank repeats it. The time of the
death goes into FILE: mpiexec may lose what is printed just before.
"""

import os
import signal
import sys
import threading
import time
from fractions import Fraction
from pathlib import Path

import numpy as np
from mpi4py import MPI

import pchan

DEATHS = {"SIGKILL": signal.SIGKILL, "SIGTERM": signal.SIGTERM, "SIGINT": signal.SIGINT, "abort": None}
INSIDE = 0.15  # seconds to get into the phase
comm = MPI.COMM_WORLD
basis = pchan.PrimeBasis(100)


def is_dead(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


class Job:
    """All phases, one after the other; every value is checked."""

    def __init__(self, phase, how, file):
        self.phase, self.how, self.file = phase, how, file
        self.dying = how != "none" and comm.rank == comm.size - 1

    def note_death(self):
        with open(self.file, "a") as file:
            file.write(f"{time.monotonic()}\n")

    def abort(self):
        self.note_death()
        comm.Abort(7)

    def kill(self, pid):
        """A rank may hear SIGINT only when the phase is over, for which it needs this one."""
        time.sleep(INSIDE)
        if self.how != "abort":
            self.note_death()
            os.kill(pid, DEATHS[self.how])
        end = time.monotonic() + (1 if self.how == "SIGINT" else 60)
        while not is_dead(pid) and time.monotonic() < end:
            time.sleep(0.01)

    def here(self, phase, repeat=None):
        """The place of a phase. repeat: what the dying rank does until its death, for phases that do not wait."""
        if phase != self.phase or self.how == "none":
            return
        pid = np.array([os.getpid()], dtype=np.int64)
        comm.Bcast(pid, root=comm.size - 1)
        comm.Barrier()
        if (phase, self.how) == ("finalize", "abort"):  # MPI_Abort is not for a thread beside MPI_Finalize
            if self.dying:
                time.sleep(INSIDE)  # the others are in it
                self.abort()
        elif comm.rank == 0:
            self.kill(int(pid[0]))
        elif self.dying:
            if self.how == "abort":
                threading.Timer(INSIDE, self.abort).start()
            while repeat:
                repeat()

    def channel(self):
        left, right = (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size
        ch = pchan.Channel(comm)
        arrays = [(pchan.empty(comm, 50_000), pchan.empty(comm, 50_000)), (np.zeros(3), np.zeros(3))]
        arrays.append((np.zeros(50_000), np.zeros(50_000)))

        def register():
            with pchan.Channel(comm) as other:
                other.send_init(arrays[1][0], right)

        self.here("registration", register)
        for out, into in arrays:
            out[:] = comm.rank
            ch.recv_init(into, left)
            ch.send_init(out, right)
        self.here("connect")
        ch.connect()
        for _ in range(3):
            ch.exchange(timeout=60)
            assert all(np.all(into == left) for _, into in arrays)
        ch.start()
        self.here("between start and wait", lambda: time.sleep(0.01))
        ch.wait(60)
        self.here("wait")
        ch.exchange()
        self.here("free", lambda: pchan.Channel(comm).free())
        ch.free()

    def sums(self):
        self.here("plan")
        q = pchan.QReduceScatter(comm, 40, basis)
        one = basis.residues(np.ones((40, 40), dtype=object))
        self.here("add", lambda: q.add(0, 0, one))
        for _ in range(2):
            q.add(0, 0, one)
            q.start()
            self.here("reduce-scatter's wait")
            q.wait()
            assert set(pchan.limbs_to_ints(q.limbs).tolist()) == {comm.size}
        q.free()
        self.here("gram")
        rows = [[Fraction(1, i + j + 1) for j in range(5)] for i in range(comm.rank, 8, comm.size)]
        assert pchan.gram(rows, comm, 256).cond_number() > 1

    def run(self):
        self.channel()
        self.sums()
        comm.Barrier()
        self.here("finalize")
        MPI.Finalize()
        while self.dying:
            time.sleep(0.01)
        print("good", flush=True)


if __name__ == "__main__":
    Job(*sys.argv[1:]).run()
