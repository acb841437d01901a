"""Channel: what is freed when, and that nothing grows."""

import gc
import sys
import time
import warnings

import numpy as np
import pytest
from mpi4py import MPI
from mpi_faults import without
from run_mpi import run_mpi

import pchan

pytestmark = pytest.mark.mpi


def resident_bytes():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * 4096


def test_the_communicator_may_be_freed(comm):
    own = comm.Dup()
    ch = pchan.Channel(own)
    into = np.zeros(1)
    ch.send_init(np.array([3.0]), (comm.rank + 1) % comm.size)
    ch.recv_init(into, (comm.rank - 1) % comm.size)
    own.Free()
    ch.exchange()
    ch.exchange()
    assert into[0] == 3
    ch.free()


def test_communicators_do_not_run_out(comm):
    for k in range(2200 if comm.size <= 2 else 200):  # MPICH has 2,046; slow where ranks share cores
        own = comm.Dup()
        ch = pchan.Channel(own)
        pchan.Channel(own).free()
        if k % 2:
            ch.free()
            own.Free()
        else:
            own.Free()
            ch.free()


def test_garbage_collection_frees_idle_channels(comm):
    a = np.zeros(10)
    for _ in range(50):
        ch = pchan.Channel(comm)
        ch.send_init(a, 0)
        del ch
    gc.collect()
    assert sys.getrefcount(a) <= 2


def test_dropping_an_active_channel_warns_and_keeps_the_buffer(comm):
    a = np.zeros(10)
    ch = pchan.Channel(comm)
    ch.recv_init(a, comm.rank, 1)
    ch.start()
    before = sys.getrefcount(a)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        del ch
        gc.collect()
    assert [w.category for w in caught] == [ResourceWarning]
    assert sys.getrefcount(a) == before
    with pchan.Channel(comm) as other:  # the message still has where to go
        other.send_init(np.ones(10), comm.rank, 1)
        other.exchange()


def few_ranks(comm, many, few):
    """So many repetitions where ranks have cores of their own, so few where they take turns."""
    return many if comm.size <= 2 else few


@without("type leak")
def test_creation_leaves_memory_flat(comm):
    a, b = np.zeros(8), np.zeros(8)

    def create(n):
        for _ in range(n):
            with pchan.Channel(comm) as ch:
                ch.send_init(a, comm.rank)
                ch.recv_init(b[::2], comm.rank)
                ch.recv_init(b[1::2], MPI.PROC_NULL)

    create(1000)
    before = resident_bytes()
    create(few_ranks(comm, 100_000, 5_000))
    assert resident_bytes() - before < 1 << 20


def ring(comm, n):
    ch = pchan.Channel(comm)
    for k in range(n):
        ch.send_init(np.zeros(4), (comm.rank + 1) % comm.size, k)
        ch.recv_init(np.zeros(4), (comm.rank - 1) % comm.size, k)
    return ch


def test_cycles_leave_memory_flat(comm):
    ch = ring(comm, 1)

    def cycles(n):
        for _ in range(n):
            ch.start()
            ch.wait()

    cycles(1000)
    comm.allreduce(0.0, MPI.MAX)
    before, begin, n, wanted = resident_bytes(), time.monotonic(), 0, few_ranks(comm, 1_000_000, 20_000)
    while n < wanted and comm.allreduce(time.monotonic() - begin, MPI.MAX) < 25:
        cycles(10_000)
        n += 10_000
    if n < wanted:
        warnings.warn(f"the machine is busy: only {n} cycles of {wanted} in 25 s", stacklevel=1)
    assert resident_bytes() - before < 1 << 19
    ch.free()


def every_call(ch, n):
    """n cycles by each of the calls that finish one."""
    for _ in range(n):
        ch.start()
        ch.wait()
        ch.exchange()
        ch.start()
        while not ch.test():
            pass
        ch.start()
        while ch.wait_any() is not None:
            pass


def test_no_python_object_is_allocated_per_cycle(comm):
    ch = ring(comm, 8)
    every_call(ch, 100)
    gc.collect()
    count, blocks = pchan._core.allocation_count(), sys.getallocatedblocks()
    every_call(ch, few_ranks(comm, 1000, 100))
    assert pchan._core.allocation_count() == count
    assert sys.getallocatedblocks() - blocks < 20
    ch.free()


FORGETFUL = """
    import numpy as np, sys
    from mpi4py import MPI
    import pchan
    comm = MPI.COMM_WORLD
    own = comm.Dup()
    channels = []
    for c in (comm, own, MPI.COMM_SELF):
        ch = pchan.Channel(c)
        ch.send_init(np.zeros((4, 4))[:, 1], c.rank)
        ch.recv_init(np.zeros(4), c.rank)
        ch.exchange()
        channels.append(ch)
    {ending}
    """


@pytest.mark.launcher
@pytest.mark.parametrize(
    "ending",
    [
        "pass",
        "MPI.Finalize()",
        "channels[0].start()",
        "channels[0].start(); MPI.Finalize(); del channels, ch",
        "own.Free()",
        "sys.modules['keep'] = channels",
        "MPI.Finalize(); channels[0].free(); channels[1].freed",
        "q = pchan.QReduceScatter(comm, 5, pchan.PrimeBasis(100)); q.start(); q.wait()",
        "q = pchan.QReduceScatter(comm, 5, pchan.PrimeBasis(100)); q.start()",
    ],
)
@pytest.mark.parametrize("n", [1, 2])
def test_the_end_is_silent_whatever_was_forgotten(ending, n):
    run = run_mpi(
        n,
        "import warnings; warnings.simplefilter('ignore')\n"
        + FORGETFUL.replace("\n    ", "\n").format(ending=ending),
    )
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")


WITHOUT_MPI = """
    import mpi4py
    mpi4py.rc.initialize = False
    import numpy as np
    from mpi4py import MPI
    import pchan

    def refused(when, *calls):
        for call in calls:
            try:
                call()
            except pchan.StateError as e:
                assert f"MPI is {when}" in str(e), e
            else:
                raise AssertionError(f"accepted while MPI is {when}")

    def creations():
        for comm in (MPI.COMM_WORLD, MPI.COMM_SELF, MPI.COMM_NULL):
            for private in (True, False):
                yield lambda: pchan.Channel(comm, private)

    refused("not initialised", *creations())
    assert not MPI.Is_initialized()
    MPI.Init()
    a = np.zeros((4, 4))
    idle, active, plain = pchan.Channel(MPI.COMM_WORLD), pchan.Channel(MPI.COMM_SELF), pchan.Channel(MPI.COMM_SELF, False)
    for ch in (idle, active, plain):
        ch.recv_init(a[:, 1], 0)
        ch.send_init(a[:, 2], 0)
        ch.exchange()
    active.start()
    MPI.Finalize()
    refused("finalised", *creations())
    for ch in (idle, active, plain):
        refused("finalised", ch.start, ch.wait, ch.test, ch.exchange, ch.wait_any, lambda: ch.statuses)
        for buf in (a, a[:, 0], [a, MPI.DOUBLE], [a, 2, "d"]):
            refused("finalised", lambda: ch.send_init(buf, 0), lambda: ch.recv_init(buf, 0))
        assert len(ch) == 2 and ch[0].nbytes == 32 and "2 operations" in repr(ch) and not ch.active
        ch.free()
        ch.free()
    print("good")
    """


@pytest.mark.launcher
def test_use_before_init_and_after_finalize_is_a_state_error():
    run = run_mpi(1, WITHOUT_MPI)
    assert (run.returncode, run.stdout.split(), run.stderr) == (0, ["good"], ""), run.stdout + run.stderr


@pytest.mark.launcher
def test_ctrl_c_leaves_the_channel_active():
    run = run_mpi(
        1,
        """
        import numpy as np, os, signal, threading
        from mpi4py import MPI
        import pchan
        into = np.zeros(1)
        ch = pchan.Channel(MPI.COMM_SELF)
        ch.recv_init(into, 0)
        ch.start()
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
        try:
            ch.wait()
        except KeyboardInterrupt:
            print("interrupted", ch.active)
        other = pchan.Channel(MPI.COMM_SELF)
        other.send_init(np.ones(1), 0)
        other.exchange()
        ch.wait()
        print(into[0])
        """,
    )
    assert run.stdout.split() == ["interrupted", "True", "1.0"], run.stdout + run.stderr
