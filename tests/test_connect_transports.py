"""Connected channels: the right bytes by every transport.  Values change every cycle, receive buffers are poisoned."""

import os
import random

import numpy as np
import pytest
from mpi4py import MPI

import pchan

pytestmark = pytest.mark.mpi


def neighbours(comm):
    return (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size


def pattern(shape, dtype, rank, cycle, message):
    n = int(np.prod(shape))
    return ((np.arange(n) * 7 + rank * 31 + cycle * 57 + message * 13) % 113).astype(dtype).reshape(shape)


@pytest.mark.parametrize("memory", ["ordinary", "shared"])
def test_ring_of_all_sizes(comm, transport, memory):
    right, left = neighbours(comm)
    sizes = [0, 1, 2, 3, 4, 5, 8, 13, 16, 17, 63, 64, 65, 511, 4096, 16384, 16385, 100_001, 1 << 20]
    make = (lambda n: pchan.empty(comm, n, np.uint8)) if memory == "shared" else (lambda n: np.empty(n, np.uint8))
    out, into = [make(n) for n in sizes], [make(n) for n in sizes]
    with pchan.Channel(comm) as ch:
        for k in range(len(sizes)):
            ch.send_init(out[k], right, k % 3)
            ch.recv_init(into[k], left, k % 3)
        transport(ch)
        for cycle in range(7):
            for k, n in enumerate(sizes):
                out[k][:] = pattern(n, np.uint8, comm.rank, cycle, k)
                into[k][:] = 0xAB
            ch.exchange(timeout=30)
            for k, n in enumerate(sizes):
                assert (into[k] == pattern(n, np.uint8, left, cycle, k)).all(), (ch[2 * k + 1], cycle)
            for k, n in enumerate(sizes):
                assert ch.statuses[2 * k + 1] == (left, k % 3, n)
                assert ch.statuses[2 * k] == (comm.rank, k % 3, n)


def views():
    """Pairs of views with equal shapes, not all contiguous."""
    yield np.zeros((9, 10, 11))[:, 3, :], np.zeros((9, 11))
    yield np.zeros((9, 10, 11))[2], np.zeros((11, 10)).T
    yield np.zeros((9, 10, 11))[::2, ::-1, 1:4], np.zeros((5, 10, 3), order="F")
    yield np.zeros((40, 3), np.int16)[:, 1], np.zeros(80, np.int16)[::-2]
    yield np.zeros((6, 5), "c16").T, np.zeros((5, 6), "c16")
    record = np.dtype([("a", "i1"), ("b", "f8"), ("c", "S3")])
    yield np.zeros((12, 4), record)[::3, 1:], np.zeros((4, 3), record)
    yield np.zeros((3, 300, 300))[:, ::2, 5], np.zeros((150, 3)).T


def test_strided_views(comm, transport):
    right, left = neighbours(comm)
    pairs = list(views())
    with pchan.Channel(comm) as ch:
        for k, (source, target) in enumerate(pairs):
            assert source.shape == target.shape
            ch.recv_init(target, left, k)
            ch.send_init(source, right, k)
        transport(ch)
        for cycle in range(3):
            for k, (source, target) in enumerate(pairs):
                values = pattern(source.size * source.dtype.itemsize, np.uint8, comm.rank, cycle, k)
                source[...] = values.view(source.dtype).reshape(source.shape)
                target[...] = np.zeros((), target.dtype)
            ch.exchange(timeout=30)
            for k, (source, target) in enumerate(pairs):
                values = pattern(source.size * source.dtype.itemsize, np.uint8, left, cycle, k)
                want = values.view(source.dtype).reshape(source.shape)
                assert np.ascontiguousarray(target).tobytes() == want.tobytes(), (k, cycle)


def test_derived_datatypes(comm, transport):
    right, left = neighbours(comm)
    column = MPI.DOUBLE.Create_vector(8, 1, 8).Commit()
    triple = MPI.DOUBLE.Create_contiguous(3).Commit()
    mixed = MPI.Datatype.Create_struct([2, 1], [0, 8], [MPI.INT, MPI.DOUBLE]).Commit()
    a, b, c, d = np.zeros((8, 8)), np.zeros(8), np.zeros(12), np.zeros((4, 3))
    e, f = np.zeros(5, [("i", "2i4"), ("d", "f8")]), np.zeros(5, [("i", "2i4"), ("d", "f8")])
    with pchan.Channel(comm) as ch:
        ch.send_init([a, 1, column], right, 0)
        ch.recv_init(b, left, 0)
        ch.send_init([c, 4, triple], right, 1)
        ch.recv_init(d.reshape(-1), left, 1)
        ch.send_init([e, 5, mixed], right, 2)
        ch.recv_init([f, 5, mixed], left, 2)
        for t in (column, triple, mixed):
            t.Free()
        transport(ch)
        for cycle in range(3):
            a[:] = pattern((8, 8), float, comm.rank, cycle, 0)
            c[:] = pattern(12, float, comm.rank, cycle, 1)
            e["i"], e["d"] = comm.rank + cycle, 10 * comm.rank + cycle
            b[:], d[:] = -1, -1
            f["i"] = -1
            ch.exchange(timeout=30)
            assert (b == pattern((8, 8), float, left, cycle, 0)[:, 0]).all()
            assert (d.reshape(-1) == pattern(12, float, left, cycle, 1)).all()
            assert (f["i"] == left + cycle).all() and (f["d"] == 10 * left + cycle).all()


def test_longer_receives_and_self_and_proc_null(comm, transport):
    right, left = neighbours(comm)
    out, into = np.zeros((3, 4)), np.full((5, 4), -1.0)
    mine, back = np.zeros(50_000), np.zeros(50_000)
    strided = np.full((10, 2), -1.0)
    short = np.zeros(6)
    with pchan.Channel(comm) as ch:
        ch.send_init(out, right)
        i = ch.recv_init(into, left)
        ch.send_init(mine, comm.rank, 5)
        ch.recv_init(back, comm.rank, 5)
        n = ch.recv_init(np.zeros(3), MPI.PROC_NULL)
        ch.send_init(np.zeros(3), MPI.PROC_NULL)
        ch.send_init(short, right, 6)
        ch.recv_init(strided[:, 1], left, 6)
        transport(ch)
        for cycle in range(4):
            out[:] = pattern((3, 4), float, comm.rank, cycle, 0)
            mine[:], short[:] = cycle, comm.rank + cycle
            into[:], back[:], strided[:] = -1, -1, -1
            ch.exchange(timeout=30)
            assert (into[:3] == pattern((3, 4), float, left, cycle, 0)).all() and (into[3:] == -1).all()
            assert (back == cycle).all()
            assert (strided[:6, 1] == left + cycle).all() and (strided[6:, 1] == -1).all()
            assert (strided[:, 0] == -1).all()
            assert ch.statuses[i] == (left, 0, 96) and ch.statuses[n] == (MPI.PROC_NULL, MPI.ANY_TAG, 0)


def test_many_to_many_with_equal_tags(comm, transport):
    """Everybody to everybody, several messages under one tag, in a random order of registration."""
    rng = random.Random(comm.rank)
    sends = [(p, k, np.zeros(1 + 3 * k)) for p in range(comm.size) for k in range(4)]
    recvs = [(p, k, np.zeros(1 + 3 * k)) for p in range(comm.size) for k in range(4)]
    order = [("s", *s) for s in sends] + [("r", *r) for r in recvs]
    rng.shuffle(order)
    # within one (peer, kind) the k-th must stay the k-th
    order.sort(key=lambda o: o[2])
    with pchan.Channel(comm) as ch:
        for kind, p, _, array in order:
            (ch.send_init if kind == "s" else ch.recv_init)(array, p, 9)
        transport(ch)
        for cycle in range(5):
            for p, k, array in sends:
                array[:] = 1000 * comm.rank + 100 * p + 10 * k + cycle
            for _, _, array in recvs:
                array[:] = -1
            ch.start()
            while not ch.test():
                pass
            for p, k, array in recvs:
                assert (array == 1000 * p + 100 * comm.rank + 10 * k + cycle).all()


def test_wait_any_gives_each_once(comm, transport):
    right, left = neighbours(comm)
    out, into = [np.zeros(n) for n in (1, 100, 10_000)], [np.zeros(n) for n in (1, 100, 10_000)]
    with pchan.Channel(comm) as ch:
        for k in range(3):
            ch.recv_init(into[k], left, k)
            ch.send_init(out[k], right, k)
        transport(ch)
        for cycle in range(4):
            for k in range(3):
                out[k][:], into[k][:] = 10 * cycle + k + comm.rank, -1
            ch.start()
            seen = []
            while (i := ch.wait_any(timeout=30)) is not None:
                seen.append(i)
                if i % 2 == 0:
                    assert (into[i // 2] == 10 * cycle + i // 2 + left).all()
            assert sorted(seen) == list(range(6)) and not ch.active


def test_transports_are_shown(comm, monkeypatch):
    if os.environ.get("PCHAN_TRANSPORT"):
        pytest.skip("one transport is forced")
    right, left = neighbours(comm)
    node = comm.Split_type(MPI.COMM_TYPE_SHARED)
    one_node = comm.allreduce(node.size == comm.size, MPI.LAND)
    node.Free()
    small, large = np.zeros(4), np.zeros(1 << 20)
    shared, target = pchan.empty(comm, 1 << 20), pchan.empty(comm, 1 << 20)
    with pchan.Channel(comm) as ch:
        for k, (a, b) in enumerate([(small, small.copy()), (large, large.copy()), (shared, target)]):
            ch.send_init(a, right, k)
            ch.recv_init(b, left, k)
        ch.send_init(small, MPI.PROC_NULL)
        assert {op.transport for op in ch} == {"mpi", "null"} and not ch.connected
        ch.connect()
        assert ch.connected
        names = [op.transport for op in ch]
        if one_node:
            assert names[0] == names[1] == "shm" and names[4] == names[5] == "shared"
            assert names[2] == names[3] and names[2] in ("cma", "mpi", "shared" if comm.size == 1 else "")
        assert names[6] == "null"


@pytest.mark.parametrize("first, others", [("0", "1"), ("1", "0")])
def test_settings_of_one_rank(comm, monkeypatch, first, others):
    """Ranks with other environments come to the same transports."""
    monkeypatch.setenv("PCHAN_CMA", first if comm.rank == 0 else others)
    monkeypatch.setenv("PCHAN_SHM_BYTES", "100" if comm.rank == 0 else "10000")
    right, left = neighbours(comm)
    out, into = [np.zeros(n) for n in (5, 500, 5000)], [np.zeros(n) for n in (5, 500, 5000)]
    with pchan.Channel(comm) as ch:
        for k in range(3):
            ch.recv_init(into[k], left)
            ch.send_init(out[k], right)
        ch.connect()
        for k in range(3):
            out[k][:] = comm.rank + k
        ch.exchange(timeout=30)
        assert all((into[k] == left + k).all() for k in range(3))
