"""Channel: what moves in a cycle, and in which order."""

import numpy as np
import pytest
from mpi4py import MPI

import pchan

pytestmark = pytest.mark.mpi


def neighbours(comm):
    return (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size


def test_ring_moves_new_values_in_every_cycle(comm):
    left, right = neighbours(comm)
    out, into = np.zeros(50), np.zeros(50)
    with pchan.Channel(comm) as ch:
        assert ch.send_init(out, right, tag=3) == 0
        assert ch.recv_init(into, left, tag=3) == 1
        for cycle in range(20):
            out[:] = np.arange(50) + 1000 * comm.rank + cycle
            into[:] = -1
            ch.start()
            assert ch.active
            ch.wait()
            assert not ch.active
            assert np.array_equal(into, np.arange(50) + 1000 * left + cycle)


def test_equal_peer_and_tag_meet_in_the_order_of_registration(comm):
    left, right = neighbours(comm)
    n = 9
    out, into = np.zeros((n, 3), dtype=int), np.zeros((n, 3), dtype=int)
    ch = pchan.Channel(comm)
    for k in range(n):  # sends and receives interleaved, and in blocks
        ch.send_init(out[k], right, tag=1)
        if k % 2:
            ch.recv_init(into[k - 1], left, tag=1)
            ch.recv_init(into[k], left, tag=1)
    ch.recv_init(into[n - 1], left, tag=1)
    for cycle in range(5):
        out[:] = np.arange(n)[:, None] + 100 * comm.rank + 1000 * cycle
        ch.exchange()
        assert np.array_equal(into, out - 100 * comm.rank + 100 * left)
    ch.free()


def test_all_to_all_with_different_sizes(comm):
    ch = pchan.Channel(comm)
    into = {}
    for peer in range(comm.size):
        ch.send_init(np.full(comm.rank + 1, comm.rank, dtype=np.int32), peer)
        into[peer] = np.zeros(peer + 1, dtype=np.int32)
        ch.recv_init(into[peer], peer)
    ch.exchange()
    for peer, array in into.items():
        assert np.array_equal(array, np.full(peer + 1, peer))
    ch.free()


def test_self_proc_null_zero_bytes_and_empty(comm):
    mine, copy, untouched, empty = np.arange(4.0), np.zeros(4), np.full(3, 7.0), np.zeros(0)
    with pchan.Channel(comm) as ch:
        ch.recv_init(untouched, MPI.PROC_NULL, 5)
        ch.send_init(mine, comm.rank, 1)
        ch.recv_init(copy, comm.rank, 1)
        ch.send_init(mine, MPI.PROC_NULL)
        ch.send_init(empty, comm.rank, 2)
        ch.recv_init(empty, comm.rank, 2)
        for _ in range(3):
            copy[:] = 0
            ch.exchange()
            assert np.array_equal(copy, mine) and np.array_equal(untouched, np.full(3, 7.0))
        null = (MPI.PROC_NULL, MPI.ANY_TAG, 0)
        assert ch.statuses == [
            null,
            (comm.rank, 1, 32),
            (comm.rank, 1, 32),
            null,
            (comm.rank, 2, 0),
            (comm.rank, 2, 0),
        ]
    with pchan.Channel(comm) as ch:
        assert len(ch) == 0
        ch.exchange()
        assert ch.statuses == []
    with pchan.Channel(comm) as ch:  # nothing but PROC_NULL
        ch.recv_init(untouched, MPI.PROC_NULL)
        ch.start()
        assert ch.test() is True
        assert ch.statuses == [null]


def test_statuses_tell_the_bytes_that_came(comm):
    left, right = neighbours(comm)
    room = np.zeros(10)
    with pchan.Channel(comm) as ch:
        ch.recv_init(room, left, 4)
        ch.send_init(np.arange(6.0), right, 4)
        with pytest.raises(pchan.StateError):
            _ = ch.statuses
        ch.exchange()
        assert ch.statuses == [(left, 4, 48), (comm.rank, 4, 48)]


@pytest.mark.any_source
def test_wildcards_receive_what_comes(comm):
    into = np.zeros(1)
    with pchan.Channel(comm) as ch:
        ch.send_init(np.array([5.0 + comm.rank]), (comm.rank + 1) % comm.size, 8)
        ch.recv_init(into, MPI.ANY_SOURCE, MPI.ANY_TAG)
        ch.exchange()
        left = (comm.rank - 1) % comm.size
        assert into[0] == 5.0 + left and ch.statuses[1] == (left, 8, 8)


def test_wait_any_gives_every_index_once_and_ends_the_cycle(comm):
    into = np.zeros((comm.size, 2))
    ch = pchan.Channel(comm)
    assert ch.wait_any() is None
    for peer in range(comm.size):
        ch.recv_init(into[peer], peer)
        ch.send_init(np.full(2, comm.rank + 1.0), peer)
    ch.recv_init(np.zeros(1), MPI.PROC_NULL)
    for _ in range(3):
        into[:] = 0
        ch.start()
        seen = []
        for _ in range(len(ch)):
            i = ch.wait_any()
            seen.append(i)
            if i < 2 * comm.size and i % 2 == 0:
                assert into[i // 2, 0] == i // 2 + 1
        assert sorted(seen) == list(range(len(ch))) and not ch.active
        assert ch.wait_any() is None
        assert ch.statuses[0] == (0, 0, 16)
    ch.start()
    first = ch.wait_any()
    ch.wait()  # the rest
    assert first is not None and not ch.active and np.array_equal(into[:, 1], np.arange(comm.size) + 1)
    ch.free()


def test_wait_any_lets_a_rank_compute_on_what_has_come(comm):
    """The second message of a peer is sent only after rank 0 has computed on the first: to wait for all would hang."""
    peers = range(1, comm.size) if comm.size > 1 else [0]
    out, into = np.zeros((2, 3)), np.full((comm.size, 2, 3), -1.0)
    with pchan.Channel(comm) as gather, pchan.Channel(comm) as second:
        if comm.rank == 0:
            for peer in peers:
                for k in range(2):
                    gather.recv_init(into[peer, k], peer, k)
        if comm.rank in peers:
            gather.send_init(out[0], 0, 0)
            second.send_init(out[1], 0, 1)
        for cycle in range(3):
            into[:], order = -1, []
            out[:] = [[10.0 * comm.rank + cycle], [10.0 * comm.rank + cycle + 0.5]]
            gather.start()
            if comm.rank == 0:
                while (i := gather.wait_any(timeout=30)) is not None:
                    kind, peer, tag, *_ = gather[i]
                    if kind == "send":
                        continue
                    order.append((peer, tag))
                    assert np.all(into[peer, tag] == 10 * peer + cycle + tag / 2)  # the computation
                    if tag == 0 and peer:
                        comm.send("computed", peer)
                    elif tag == 0:
                        second.exchange()
                assert sorted(order) == [(peer, k) for peer in peers for k in range(2)]
                assert all(order.index((peer, 0)) < order.index((peer, 1)) for peer in peers)
            else:
                assert comm.recv(source=0) == "computed"
                second.exchange()
                gather.wait()


def test_test_loop_finishes(comm):
    left, right = neighbours(comm)
    out, into = np.full(100_000, float(comm.rank)), np.zeros(100_000)
    with pchan.Channel(comm) as ch:
        ch.send_init(out, right)
        ch.recv_init(into, left)
        ch.start()
        while not ch.test():
            pass
        assert into[0] == left and into[-1] == left
        with pytest.raises(pchan.StateError):
            ch.test()


@pytest.mark.any_source
def test_plain_mpi_on_the_other_side(comm):
    left, right = neighbours(comm)
    into, plain = np.zeros(3), np.zeros(3)
    with pchan.Channel(comm, private=False) as ch:
        ch.recv_init(into, MPI.ANY_SOURCE, 5)
        ch.send_init(np.full(3, 2.0 + comm.rank), right, 6)
        for _ in range(2):
            ch.start()
            request = comm.Isend(np.full(3, 1.0 + comm.rank), right, 5)
            comm.Recv(plain, left, 6)
            ch.wait()
            request.Wait()
            assert into[0] == 1.0 + left and plain[0] == 2.0 + left
            assert ch.statuses[0] == (left, 5, 24)


def test_private_messages_never_meet_plain_ones(comm):
    left, right = neighbours(comm)
    into, plain = np.zeros(1), np.zeros(1)
    with pchan.Channel(comm) as ch:
        ch.recv_init(into, left, 0)
        ch.send_init(np.array([10.0 + comm.rank]), right, 0)
        request = comm.Irecv(plain, left, 0)
        ch.exchange()
        comm.Send(np.array([20.0 + comm.rank]), right, 0)
        request.Wait()
        assert (into[0], plain[0]) == (10.0 + left, 20.0 + left)


def test_two_channels_on_one_communicator(comm):
    left, right = neighbours(comm)
    a, b = np.zeros(1), np.zeros(1)
    one, two = pchan.Channel(comm), pchan.Channel(comm)
    one.recv_init(a, left, 1)
    one.send_init(np.array([1.0]), right, 1)
    two.recv_init(b, left, 2)
    two.send_init(np.array([2.0]), right, 2)
    order = (one, two) if comm.rank % 2 else (two, one)
    for ch in order:
        ch.start()
    for ch in reversed(order):
        ch.wait()
    assert (a[0], b[0]) == (1.0, 2.0)
    one.free()
    two.free()


def test_operations_by_index(comm):
    ch = pchan.Channel(comm)
    ch.send_init(np.zeros(3), 0, 9)
    ch.recv_init(np.zeros(4, dtype=np.int16), MPI.PROC_NULL)
    assert len(ch) == 2 and not ch.connected and ch
    assert ch[0] == pchan.Operation("send", 0, 9, 24, "mpi") and ch[0].nbytes == 24
    assert ch[-1].kind == "recv" and ch[1].peer == MPI.PROC_NULL and ch[1].nbytes == 8
    with pytest.raises(IndexError):
        ch[2]
    assert "2 operations" in repr(ch)
    ch.free()
    assert "freed" in repr(ch)


def test_more_operations_after_a_cycle(comm):
    left, right = neighbours(comm)
    into = np.zeros((30, 1))
    ch = pchan.Channel(comm)
    for k in range(30):
        ch.recv_init(into[k], left, k % 3)
        ch.send_init(np.array([float(k)]), right, k % 3)
        ch.exchange()
        assert np.array_equal(into[: k + 1, 0], np.arange(k + 1))
    ch.free()
