"""Random channels and reductions for a long time: every value checked, memory flat. Not collected by pytest.

mpiexec -n 4 python tests/soak.py --minutes 30 [--seed N] [--cycles N]

A round draws its messages, datatypes, transports and way of waiting from the seed and its number, the same on every
rank; --first-round repeats from one on. Ends after --minutes, or --cycles on each rank, whichever comes last.
"""

from __future__ import annotations

import argparse
import faulthandler
import gc
import hashlib
import os
import sys
import time
import traceback

import numpy as np
from divisions import DIVISIONS, STRATEGIES
from mpi4py import MPI
from oracle import random_ints

import pchan

COMM = MPI.COMM_WORLD
DTYPES = ["u1", "i2", "f4", "i8", "f8", "c16"]
SIZES = [0, 1, 8, 64, 500, 5000, 40_000]
TRANSPORTS = ["", "", "", "mpi", "shm", "cma"]
LAYOUTS = [pchan.ElementCyclic(), pchan.BlockCyclic((1, COMM.size), 2), pchan.PackedRows()]
FLAT_BYTES = 8 << 20


class Message:
    def __init__(self, rng: np.random.Generator, number: int) -> None:
        self.source, self.dest = (int(rank) for rank in rng.integers(0, COMM.size, 2))
        self.tag, self.number = int(rng.integers(0, 3)), number
        self.dtype, self.strided = np.dtype(rng.choice(DTYPES)), bool(rng.random() < 0.2)
        self.n = int(rng.choice(SIZES, p=[0.04, 0.3, 0.26, 0.2, 0.15, 0.03, 0.02]))
        shared = rng.random() < 0.2
        length = self.n * (1 + self.strided)
        # collective over the node, so on every rank
        room = [
            pchan.empty(COMM, length, self.dtype) if shared else np.empty(length, self.dtype) for _ in range(2)
        ]
        self.out, self.into = (array[:: 1 + self.strided] for array in room)

    def fill(self, cycle: int) -> None:
        self.out.fill((cycle + 7 * self.number) % 101)

    def check(self, cycle: int, whole: bool) -> None:
        wanted = (cycle + 7 * self.number) % 101
        if not ((self.into == wanted).all() if whole else self.n == 0 or self.into[0] == self.into[-1] == wanted):
            raise AssertionError(f"cycle {cycle}: {self.into} instead of {wanted}, message {vars(self)}")


def by_wait(ch: pchan.Channel) -> None:
    ch.wait()


def by_timeouts(ch: pchan.Channel) -> None:
    while True:
        try:
            return ch.wait(timeout=1e-4)
        except pchan.WaitTimeout:
            pass


def by_tests(ch: pchan.Channel) -> None:
    while not ch.test():
        pass


def one_by_one(ch: pchan.Channel) -> None:
    while ch.wait_any() is not None:
        pass


def channels(rng: np.random.Generator) -> int:
    """One to three channels, started together and waited for in an order of each rank's own. Cycles on this rank."""
    os.environ["PCHAN_TRANSPORT"] = str(rng.choice(TRANSPORTS))
    if not os.environ["PCHAN_TRANSPORT"]:
        del os.environ["PCHAN_TRANSPORT"]
    sets = [
        [Message(rng, k) for k in range(int(rng.choice([1, 2, 3, 8])))]
        for _ in range(int(rng.choice([1, 1, 2, 3])))
    ]
    connected, slow = rng.random(len(sets)) < 0.8, rng.random() < 0.1
    heavy = sum(m.n for messages in sets for m in messages) > 5000
    n_cycles = int(rng.integers(1, 100 if slow else 500 if heavy else 10_000))
    wait = [by_wait, by_wait, by_wait, by_timeouts, by_tests, one_by_one][int(rng.integers(0, 6))]
    order = np.random.default_rng([COMM.rank, n_cycles]).permutation(len(sets))
    made = [pchan.Channel(COMM) for _ in sets]
    for ch, messages, connect in zip(made, sets, connected, strict=True):
        for m in messages:
            if m.source == COMM.rank:
                ch.send_init(m.out, m.dest, m.tag)
            if m.dest == COMM.rank:
                ch.recv_init(m.into, m.source, m.tag)
        if connect:
            ch.connect()
    mine = [m for messages in sets for m in messages if m.source == COMM.rank]
    theirs = [m for messages in sets for m in messages if m.dest == COMM.rank]
    for cycle in range(n_cycles):
        for m in mine:
            m.fill(cycle)
        for m in theirs:
            m.into.fill(255)
        for ch in made:
            ch.start()
        if slow and cycle % COMM.size == COMM.rank:
            time.sleep(1e-3)
        for k in order:
            wait(made[k])
        for m in theirs:
            m.check(cycle, cycle % 16 == 0)
        if cycle % 100 == 99:
            COMM.Barrier()  # who only sends would be thousands of cycles ahead: MPI keeps them all
    for ch in made:
        ch.free()
    return n_cycles * len(sets)


def reduction(rng: np.random.Generator) -> int:
    """A plan of each strategy, the same sums; returns cycles."""
    n, bits, n_cycles = int(rng.integers(1, 40)), int(rng.integers(2, 1500)), int(rng.integers(1, 20))
    basis, layout = pchan.PrimeBasis(bits + COMM.size), LAYOUTS[int(rng.integers(0, len(LAYOUTS)))]
    color = list(DIVISIONS.values())[int(rng.integers(0, len(DIVISIONS)))](COMM.rank)
    node = COMM.Split(color, -COMM.rank)
    room, strategies = int(rng.choice([0, 300, 1 << 20])), rng.permutation(STRATEGIES)[:2]
    plans = [
        pchan.QReduceScatter(COMM, n, basis, layout=layout, node_comm=node, strategy=str(s), buffer_bytes=room)
        for s in strategies
    ]
    for _ in range(n_cycles):
        parts = random_ints(rng, bits, (COMM.size, n, n))
        total, residues, digests = parts.sum(axis=0), basis.residues(parts[COMM.rank]), set()
        for q in plans:
            q.add(0, 0, residues)
            q.start()
            by_timeouts(q)
            if not np.array_equal(pchan.limbs_to_ints(q.limbs), total[q.rows, q.cols]):
                raise AssertionError(f"wrong sum: {strategies}, n = {n}, {bits} bits, {layout}")
            digests.add(hashlib.sha256(q.limbs.tobytes()).hexdigest())
        assert len(digests) == 1
    for q in plans:
        q.free()
    node.Free()
    return n_cycles * len(plans)


def held() -> dict[str, int]:
    with open("/proc/self/statm") as f:
        pages = int(f.read().split()[1])
    return {"bytes": pages * 4096, "files": len(os.listdir("/proc/self/fd")), "objects": len(gc.get_objects())}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--cycles", type=int, default=0)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--first-round", type=int, default=0)
    options = parser.parse_args()
    seed = COMM.bcast(options.seed if options.seed is not None else int.from_bytes(os.urandom(4), "little"))
    begin = told = time.monotonic()
    n_round, done, sums, samples = options.first_round, 0, 0, []
    while COMM.bcast(time.monotonic() - begin < 60 * options.minutes or done < options.cycles):
        faulthandler.dump_traceback_later(300, exit=True)
        rng = np.random.default_rng([seed, n_round])
        if rng.random() < 0.9:
            done += channels(rng)
        else:
            sums += reduction(rng)
        n_round += 1
        gc.collect()
        samples.append(held())
        if COMM.rank == 0 and time.monotonic() - told > 30:
            told = time.monotonic()
            line = f"{told - begin:.0f} s, round {n_round}, {done} cycles, {sums} sums, {samples[-1]}"
            print(line, flush=True)
    faulthandler.cancel_dump_traceback_later()
    early, late = (samples[k * len(samples) // 4 : (k + 1) * len(samples) // 4] for k in (1, 3))
    growth = {key: max(s[key] for s in late) - max(s[key] for s in early) for key in samples[0]} if early else {}
    limits = {"bytes": FLAT_BYTES, "files": 0, "objects": 1000}
    judged = len(samples) >= 200  # before, first use of this and that by MPI looks like growth
    bad = [key for key, value in growth.items() if judged and value > limits[key]]
    worst = COMM.gather((growth, bad))
    if worst is not None:
        print(f"seed {seed}: {n_round} rounds, {done} cycles on each of {COMM.size} ranks, {sums} sums,", end=" ")
        print(f"every value right, {time.monotonic() - begin:.0f} s")
        print("growth from the second quarter to the last, by rank:", *(g for g, _ in worst), sep="\n  ")
        flat = "memory flat" if judged else "too short to judge memory"
        print("MEMORY GREW" if any(b for _, b in worst) else flat, flush=True)
    return int(any(b for _, b in COMM.bcast(worst)))


if __name__ == "__main__":
    try:
        status = main()
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        COMM.Abort(1)
    sys.exit(status)
