"""pchan.empty: arrays in node-shared memory."""

import gc
import os
import sys

import numpy as np
import pytest
from mpi4py import MPI
from run_mpi import run_mpi

import pchan

pytestmark = pytest.mark.mpi


def mapped():
    with open("/proc/self/maps") as f:
        return sum("pchan-window" in line for line in f)


@pytest.mark.parametrize(
    "shape, dtype", [(5, float), ((3, 4), "f4"), ((), "c16"), ((0, 3), "i2"), ([2, 2], [("a", "i4"), ("b", "S3")])]
)
def test_is_an_ordinary_array(comm, shape, dtype):
    a = pchan.empty(comm, shape, dtype)
    assert a.shape == np.empty(shape, dtype).shape and a.dtype == np.dtype(dtype)
    assert a.flags.c_contiguous and a.flags.writeable and a.flags.aligned
    assert a.nbytes == 0 or a.ctypes.data % 4096 == 0
    assert not a.tobytes().strip(b"\0")


def test_default_is_float64(comm):
    assert pchan.empty(comm, 3).dtype == np.float64


def test_each_rank_has_its_own(comm):
    a = pchan.empty(comm, 1000 + comm.rank, np.int64)
    a[:] = comm.rank
    comm.Barrier()
    assert (a == comm.rank).all()
    a += 1
    a[::2] *= 2
    assert a[0] == 2 * (comm.rank + 1) and a[1] == comm.rank + 1


def test_with_mpi4py_itself(comm):
    a, b = pchan.empty(comm, 50_000), pchan.empty(comm, 50_000)
    a[:], b[:] = comm.rank, -1
    comm.Sendrecv(a, (comm.rank + 1) % comm.size, 0, b, (comm.rank - 1) % comm.size, 0)
    assert (b == (comm.rank - 1) % comm.size).all()
    comm.Allreduce(MPI.IN_PLACE, a)
    assert (a == sum(range(comm.size))).all()


def test_slices_as_buffers(comm):
    a, b = pchan.empty(comm, (100, 1000)), pchan.empty(comm, (100, 1000))
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    with pchan.Channel(comm) as ch:
        for k, part in enumerate([np.s_[3:50], np.s_[60, :], np.s_[:, 7], np.s_[99:]]):
            ch.send_init(a[part], right, k)
            ch.recv_init(b[part], left, k)
        ch.connect()
        for cycle in range(3):
            a[:] = np.arange(100_000).reshape(100, 1000) + 7 * cycle + comm.rank
            b[:] = -1
            ch.exchange(timeout=30)
            want = np.arange(100_000).reshape(100, 1000) + 7 * cycle + left
            for part in (np.s_[3:50], np.s_[60, :], np.s_[:, 7], np.s_[99:]):
                assert (b[part] == want[part]).all()
            assert b[55, 0] == -1


def test_memory_goes_with_the_last_array(comm):
    gc.collect()
    before = mapped()
    a = pchan.empty(comm, 10_000)
    view = a[5:7]
    assert mapped() == before + 1
    del a
    view[:] = 3
    assert mapped() == before + 1
    del view
    assert mapped() == before


def test_a_connected_channel_keeps_the_peers_memory(comm):
    """The arrays of this rank go; those that its channel needs of others stay mapped."""
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    gc.collect()
    before = mapped()
    out, into = pchan.empty(comm, 100_000), pchan.empty(comm, 100_000)
    unused = pchan.empty(comm, 10)
    ch = pchan.Channel(comm)
    ch.send_init(out, right)
    ch.recv_init(into, left)
    ch.connect()
    del unused
    out[:] = comm.rank
    del out
    ch.exchange(timeout=30)
    assert (into == left).all()
    ch.free()
    del into
    gc.collect()
    assert mapped() == before


def test_outlives_its_communicator(comm):
    mine = comm.Dup()
    a = pchan.empty(mine, 1000)
    mine.Free()
    a[:] = 1
    assert a.sum() == 1000


@pytest.mark.parametrize(
    "shape, dtype, error",
    [
        (-1, float, ValueError),
        ((2, -3), float, ValueError),
        (2.5, float, TypeError),
        ("ab", float, TypeError),
        (3, object, TypeError),
        (3, "no such type", TypeError),
        (2**48, float, ValueError),
        (2**45, float, MemoryError),
        ((1,) * 65, float, ValueError),
        ((1,) * 64, (float, (2,)), ValueError),
        ((0, 2**70), float, ValueError),
    ],
)
def test_bad_arguments_on_one_rank_fail_on_all(comm, shape, dtype, error):
    bad = comm.rank == comm.size - 1
    with pytest.raises(error):
        pchan.empty(comm, shape if bad else 3, dtype if bad else float)
    assert pchan.empty(comm, 3).sum() == 0


def test_bad_communicators(comm):
    for bad in (None, MPI.COMM_NULL, 3):
        with pytest.raises(TypeError, match="empty: comm"):
            pchan.empty(bad, 3)


END = """
import numpy as np, pchan, sys
from mpi4py import MPI
a = pchan.empty(MPI.COMM_WORLD, 1000)
sys.modules["keep"] = a
if sys.argv[1] == "finalize":
    MPI.Finalize()
    a[:] = 1
    del sys.modules["keep"], a
print("end")
"""


@pytest.mark.launcher
@pytest.mark.parametrize("how", ["finalize", "exit"])
def test_goes_in_any_order(how):
    before = set(os.listdir("/dev/shm"))
    run = run_mpi(2, [sys.executable, "-c", END, how])
    assert run.returncode == 0 and run.stdout.count("end") == 2 and not run.stderr, run.stdout + run.stderr
    assert not {n for n in set(os.listdir("/dev/shm")) - before if "pchan" in n}
