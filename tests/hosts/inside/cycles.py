"""Cycles with checked values until the test says stop: python cycles.py FOLDER [--plain | --qreduce STRATEGY] [--timeout S] [--once] [--kill RANK]

Channel: a short and a long message between any two ranks, connected unless --plain. With --timeout, waits are repeated until they end; with --once
the first WaitTimeout is written to FOLDER and the rank stays where it is. --qreduce: QReduceScatter instead.

FOLDER/progress has each rank's number of finished cycles. FOLDER/stop ends all ranks after the same cycle, for
rank 0 tells of it in the values.
"""

import argparse
import os
import signal
import sys
import time
from pathlib import Path

import numpy as np
from mpi4py import MPI

import pchan

LENGTHS = (40, 2**15)  # of 8 bytes
KILL_AT = 20
comm = MPI.COMM_WORLD


def values(source, dest, k, cycle, stop):
    """Doubles that differ in every message; the first tells whether this is the last cycle."""
    return np.concatenate([[stop], ((source * 16 + dest) * 2 + k) * 1e8 + cycle * 1e3 + np.arange(LENGTHS[k] - 1)])


class Messages:
    """All ranks to all ranks."""

    def __init__(self, options):
        self.pairs = [(peer, k) for peer in range(comm.size) for k in range(len(LENGTHS))]
        self.out, self.into = ([np.zeros(LENGTHS[k]) for _, k in self.pairs] for _ in range(2))
        self.work = pchan.Channel(comm)
        for (peer, k), sent, received in zip(self.pairs, self.out, self.into, strict=True):
            self.work.send_init(sent, peer, k)
            self.work.recv_init(received, peer, k)
        if not options.plain:
            self.work.connect()

    def prepare(self, cycle, stop):
        for (peer, k), sent, received in zip(self.pairs, self.out, self.into, strict=True):
            sent[:] = values(comm.rank, peer, k, cycle, stop)
            received[:] = -1

    def check(self, cycle):
        """Whether this was the last cycle."""
        last = self.into[0][0]
        for (peer, k), received in zip(self.pairs, self.into, strict=True):
            want = values(peer, comm.rank, k, cycle, last if peer == 0 else 0)
            assert np.array_equal(received, want), f"cycle {cycle}: wrong values from rank {peer}, message {k}"
        return last == 1


class Sums:
    """Every rank adds rank + cycle + 1 to each element; rank 0 adds a large number in the last cycle."""

    def __init__(self, options):
        self.basis = pchan.PrimeBasis(100)
        self.work = pchan.QReduceScatter(comm, 40, self.basis, strategy=options.qreduce)

    def prepare(self, cycle, stop):
        value = comm.rank + cycle + 1 + (stop << 80)
        self.work.add(0, 0, self.basis.residues(np.full((40, 40), value, dtype=object)))

    def check(self, cycle):
        sums = set(pchan.limbs_to_ints(self.work.limbs).tolist())
        want = sum(rank + cycle + 1 for rank in range(comm.size))
        assert sums in ({want}, {want + (1 << 80)}), f"cycle {cycle}: wrong sums"
        return sums != {want}


def wait(work, options):
    """The number of timeouts."""
    timeouts = 0
    while True:
        try:
            work.wait(options.timeout)
            return timeouts
        except pchan.WaitTimeout as e:
            timeouts += 1
            if options.once:
                path = Path(options.folder, f"timeout-{comm.rank}")
                path.with_suffix(".new").write_text(str(e))
                path.with_suffix(".new").rename(path)
                signal.pause()


def main(options):
    progress = np.memmap(Path(options.folder, "progress"), dtype=np.int64, mode="r+")
    load = (Sums if options.qreduce else Messages)(options)
    cycle = timeouts = 0
    last = False
    while not last:
        stop = int(comm.rank == 0 and Path(options.folder, "stop").exists())
        load.prepare(cycle, stop)
        load.work.start()
        if cycle == KILL_AT and comm.rank == options.kill:
            Path(options.folder, "killed").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        timeouts += wait(load.work, options)
        last = load.check(cycle)
        cycle += 1
        progress[comm.rank] = cycle
        time.sleep(0.002)
    load.work.free()
    sys.stdout.write(f"good: rank {comm.rank}, {cycle} cycles, {timeouts} timeouts\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--plain", action="store_true")
    parser.add_argument("--qreduce")
    parser.add_argument("--once", action="store_true")
    parser.add_argument("--timeout", type=float)
    parser.add_argument("--kill", type=int)
    try:
        main(parser.parse_args())
    except BaseException as e:
        print(f"bad: rank {comm.rank}: {type(e).__name__}: {e}", file=sys.stderr, flush=True)
        comm.Abort(1)
