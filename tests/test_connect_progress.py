"""Connected channels keep MPI's promises: once both ends have started, either can finish alone, and every wait moves
everything."""

import os
import random
import sys
import threading
import time

import numpy as np
import pytest
from divisions import STRATEGIES
from mpi4py import MPI
from run_mpi import run_mpi
from transports import TRANSPORTS

import pchan

pytestmark = pytest.mark.mpi
SIZES = (1, 300, 40_000)


def make(comm, transport, tag=0):
    """A channel that sends SIZES doubles to the right and receives them from the left."""
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    ch, out, into = pchan.Channel(comm), [np.zeros(n) for n in SIZES], [np.zeros(n) for n in SIZES]
    for k in range(len(SIZES)):
        ch.recv_init(into[k], left, tag + k)
        ch.send_init(out[k], right, tag + k)
    transport(ch)
    return ch, out, into


def fill(out, value):
    for a in out:
        a[:] = value


def check(into, value):
    assert all((a == value).all() for a in into), [set(a.tolist()) for a in into]
    fill(into, -1)


def test_waits_in_opposite_order(comm, transport):
    left = (comm.rank - 1) % comm.size
    channels = [make(comm, transport) for _ in range(3)]
    order = channels if comm.rank % 2 else channels[::-1]
    for cycle in range(20):
        for k, (ch, out, _) in enumerate(channels):
            fill(out, 100 * cycle + 10 * k + comm.rank)
            ch.start()
        for ch, _, _ in order:
            ch.wait(30)
        for k, (_, _, into) in enumerate(channels):
            check(into, 100 * cycle + 10 * k + left)
    for ch, _, _ in channels:
        ch.free()


@pytest.mark.parametrize("first", [0, 1])
def test_peer_in_a_plain_mpi_call(comm, transport, first):
    """One end starts and goes into a blocking receive; the other end's wait must end all the same."""
    ch, out, into = make(comm, transport)
    left, right = (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size
    stuck = comm.rank % 2 == first
    token = np.zeros(1)
    for cycle in range(6):
        fill(out, 10 * cycle + comm.rank)
        ch.start()
        if comm.size % 2 == 0 and stuck:
            comm.Recv(token, source=left, tag=99)
            ch.wait(30)
        else:
            ch.wait(30)
            if comm.size % 2 == 0:
                comm.Send(token, dest=right, tag=99)
        check(into, 10 * cycle + left)
    ch.free()


def test_peer_in_a_barrier_after_start(comm, transport):
    ch, out, into = make(comm, transport)
    left = (comm.rank - 1) % comm.size
    for cycle in range(6):
        fill(out, 10 * cycle + comm.rank)
        ch.start()
        if comm.rank % 2:
            ch.wait(30)
            comm.Barrier()
        else:
            comm.Barrier()
            ch.wait(30)
        check(into, 10 * cycle + left)
    ch.free()


@pytest.mark.parametrize("kind", ["auto", "shm", "cma", "one copy"])
def test_peer_asleep(comm, tmp_path_factory, monkeypatch, kind):
    """Rank 0 starts and is then away from MPI until the others have finished."""
    if comm.size == 1:
        pytest.skip("Test requires 2 MPI processes")
    node = comm.Split_type(MPI.COMM_TYPE_SHARED)
    one_node = comm.allreduce(node.size == comm.size, MPI.LAND)
    node.Free()
    if not one_node:
        pytest.skip("ranks on several nodes: MPI needs the peer for long messages")
    for name, value in TRANSPORTS[kind].items():
        monkeypatch.setenv(name, value)
    folder = comm.bcast(str(tmp_path_factory.mktemp("asleep")) if comm.rank == 0 else None)
    ch, out, into = make(comm, lambda c: c.connect())
    if any(op.transport == "mpi" for op in ch):
        ch.free()
        pytest.skip("no process_vm_readv here")
    fill(out, comm.rank)
    ch.start()
    comm.Barrier()
    if comm.rank == 0:
        end = time.monotonic() + 30
        while len(os.listdir(folder)) < comm.size - 1 and time.monotonic() < end:
            time.sleep(0.01)
        finished = len(os.listdir(folder))
        ch.wait(30)
        assert finished == comm.size - 1
    else:
        ch.wait(30)
        open(os.path.join(folder, str(comm.rank)), "w").close()
    check(into, (comm.rank - 1) % comm.size)
    ch.free()


def test_one_way_with_a_slow_end(comm, transport):
    """The sender runs ahead as far as it can; nothing is overwritten or lost."""
    if comm.size == 1:
        pytest.skip("Test requires 2 MPI processes")
    rng = random.Random(comm.rank)
    for slow in (0, 1):
        with pchan.Channel(comm) as ch:
            small, large = np.zeros(3), np.zeros(20_000)
            if comm.rank < 2:
                for array in (small, large):
                    (ch.send_init if comm.rank == 0 else ch.recv_init)(array, 1 - comm.rank)
            transport(ch)
            for cycle in range(40):
                if comm.rank == slow and rng.random() < 0.3:
                    time.sleep(0.002)
                if comm.rank == 0:
                    small[:], large[:] = cycle, 2 * cycle
                ch.exchange(timeout=30)
                if comm.rank == 1:
                    assert (small == cycle).all() and (large == 2 * cycle).all()
                    small[:], large[:] = -1, -1


def test_one_rank_much_slower(comm, transport):
    ch, out, into = make(comm, transport)
    left = (comm.rank - 1) % comm.size
    for cycle in range(8):
        if comm.rank == comm.size - 1:
            time.sleep(0.01)
        fill(out, 10 * cycle + comm.rank)
        ch.exchange(timeout=30)
        check(into, 10 * cycle + left)
    ch.free()


def test_timeout_names_what_is_missing_and_can_be_repeated(comm, transport):
    if comm.size == 1:
        pytest.skip("Test requires 2 MPI processes")
    ch, out, into = make(comm, transport)
    left = (comm.rank - 1) % comm.size
    for cycle in range(3):
        fill(out, 10 * cycle + comm.rank)
        if comm.rank == 1:
            ch.start()
            with pytest.raises(pchan.WaitTimeout, match=rf"operation 0 \(recv from {left}, tag 0, 8 bytes\)"):
                ch.wait(0.02)
            assert ch.active
            with pytest.raises(pchan.StateError, match="active"):
                ch.free()
        comm.Barrier()
        if comm.rank != 1:
            ch.start()
        ch.wait(30)
        check(into, 10 * cycle + left)
        comm.Barrier()
    ch.free()


def test_test_loops_move_other_channels(comm, transport):
    """Rank 0 only ever tests A while the others wait for B, which rank 0 has started."""
    a, b = make(comm, transport), make(comm, transport)
    left = (comm.rank - 1) % comm.size
    for cycle in range(5):
        for ch, out, _ in (a, b):
            fill(out, 10 * cycle + comm.rank)
            ch.start()
        if comm.rank == 0:
            while not a[0].test():
                pass
            b[0].wait(30)
        else:
            b[0].wait(30)
            a[0].wait(30)
        check(a[2], 10 * cycle + left)
        check(b[2], 10 * cycle + left)
    a[0].free()
    b[0].free()


@pytest.mark.parametrize("transport", ["off", "auto"], indirect=True)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_channel_wait_moves_a_reduce_scatter(comm, transport, strategy):
    """Rank 0 waits for the channel first, the others for the reduce-scatter, which needs rank 0."""
    n, basis = 30, pchan.PrimeBasis(200)
    node = comm.Split(comm.rank)
    tile = basis.residues(np.array([[comm.rank + i + j for j in range(n)] for i in range(n)], dtype=object))
    with pchan.QReduceScatter(comm, n, basis, node_comm=node, strategy=strategy, buffer_bytes=4000) as q:
        ch, out, into = make(comm, transport)
        for cycle in range(2):
            q.add(0, 0, tile)
            fill(out, comm.rank + cycle)
            q.start()
            if comm.rank == 0:
                ch.exchange(timeout=60)
                q.wait(60)
            else:
                q.wait(60)
                ch.exchange(timeout=60)
            check(into, (comm.rank - 1) % comm.size + cycle)
            want = [sum(r + i + j for r in range(comm.size)) for i, j in zip(q.rows, q.cols, strict=True)]
            assert list(pchan.limbs_to_ints(q.limbs)) == want
        ch.free()
    node.Free()


def test_two_threads_with_a_channel_each(comm, transport):
    if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
        pytest.skip("needs MPI_THREAD_MULTIPLE")
    left, errors = (comm.rank - 1) % comm.size, []
    # connected channels never cross-match; unconnected ones in two threads need tags of their own
    channels = [make(comm, transport, tag=10 * k if transport.name == "off" else 0) for k in range(2)]

    def work(ch, out, into, k):
        try:
            for cycle in range(60):
                fill(out, 100 * cycle + 10 * k + comm.rank)
                ch.exchange(timeout=60)
                check(into, 100 * cycle + 10 * k + left)
        except Exception as e:
            errors.append(e)

    threads = [threading.Thread(target=work, args=(*c, k)) for k, c in enumerate(channels)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors, errors
    for ch, _, _ in channels:
        ch.free()


def test_free_in_any_order(comm, transport):
    left = (comm.rank - 1) % comm.size
    channels = [make(comm, transport) for _ in range(4)]
    order = list(range(4))
    random.Random(comm.rank).shuffle(order)
    for ch, out, into in channels:
        fill(out, comm.rank)
        ch.exchange(timeout=30)
        check(into, left)
    for k in order[:2]:
        channels[k][0].free()
    ch, out, into = make(comm, transport)
    fill(out, 7 + comm.rank)
    ch.exchange(timeout=30)
    check(into, 7 + left)
    for k in order[2:]:
        channels[k][0].free()
    ch.free()


INTERRUPTED = """
import os, signal, sys, threading, time
import numpy as np
from mpi4py import MPI
import pchan
comm = MPI.COMM_WORLD
ch, a, b = pchan.Channel(comm), np.zeros(50000), np.zeros(50000)
ch.recv_init(b, 1 - comm.rank); ch.send_init(a, 1 - comm.rank); ch.connect()
a[:] = comm.rank
if comm.rank == 0:
    ch.start()
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    try:
        ch.wait()
        print("not interrupted")
    except KeyboardInterrupt:
        assert ch.active
    comm.Barrier()
    ch.wait(30)
else:
    comm.Barrier()
    ch.exchange(timeout=30)
assert (b == 1 - comm.rank).all()
ch.free()
comm.Barrier()
if comm.rank == 0: print("fine")
"""


@pytest.mark.launcher
@pytest.mark.parametrize("kind", ["auto", "mpi", "shm", "cma"])
def test_ctrl_c(kind):
    run = run_mpi(2, [sys.executable, "-c", INTERRUPTED], **TRANSPORTS[kind])
    assert run.returncode == 0 and run.stdout.split() == ["fine"], run.stdout + run.stderr


KILLED = """
import os, signal, sys, time
import numpy as np
from mpi4py import MPI
import pchan
comm = MPI.COMM_WORLD
a, b = pchan.empty(comm, 50000), pchan.empty(comm, 50000)
ch = pchan.Channel(comm)
left, right = (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size
for x, y in ((a, b), (np.zeros(3), np.zeros(3)), (np.zeros(50000), np.zeros(50000))):
    ch.recv_init(y, left); ch.send_init(x, right)
ch.connect()
for _ in range(3): ch.exchange()
where = sys.argv[1]
if comm.rank == 1 and where == "before start": os.kill(os.getpid(), signal.SIGKILL)
ch.start()
if comm.rank == 1: os.kill(os.getpid(), signal.SIGKILL)
ch.wait()
ch.exchange()
ch.exchange()
"""


@pytest.mark.launcher
@pytest.mark.parametrize("where", ["before start", "after start"])
def test_a_killed_rank_leaves_nothing(where):
    before = set(os.listdir("/dev/shm"))
    begin = time.monotonic()
    run = run_mpi(3, [sys.executable, "-c", KILLED, where], timeout=40)
    assert run.returncode != 0 and time.monotonic() - begin < 30, run.stdout + run.stderr
    assert {n for n in set(os.listdir("/dev/shm")) - before if "pchan" in n} == set()


DROPPED = """
import sys, warnings
import numpy as np
from mpi4py import MPI
import pchan
warnings.simplefilter("ignore")
comm = MPI.COMM_WORLD
left, right = (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size
kept = []
for k in range(4):
    ch = pchan.Channel(comm)
    for n in (3, 50000):
        ch.recv_init(np.zeros(n), left); ch.send_init(np.zeros(n), right)
    ch.connect()
    ch.exchange()
    if k % 2: ch.start()
    if k < 2: kept.append(ch)
    del ch
if sys.argv[1] == "uneven" and comm.rank == 0: kept[0].start()
print("end", flush=True)
"""


@pytest.mark.launcher
@pytest.mark.parametrize("kind", ["auto", "mpi", "bundle"])
@pytest.mark.parametrize("how", ["even", "uneven"])
def test_exit_while_active_is_silent(kind, how):
    run = run_mpi(2, [sys.executable, "-c", DROPPED, how], **TRANSPORTS[kind])
    assert run.returncode == 0 and run.stdout.count("end") == 2 and not run.stderr, run.stdout + run.stderr
