"""connect(): pairing, and what it says when the two ends do not fit."""

import numpy as np
import pytest
from mpi4py import MPI

import pchan

pytestmark = pytest.mark.mpi


def neighbours(comm):
    return (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size


def refuse(ch, *texts, exact=None):
    """connect() fails on every rank with the same text, and the channel is as it was."""
    with pytest.raises(pchan.MatchError) as e:
        ch.connect()
    for text in texts:
        assert text in str(e.value), str(e.value)
    if exact is not None:
        assert str(e.value).startswith(f"connect: {exact} ") and str(e.value).count("\n") == exact
    assert not ch.connected and not ch.active
    return str(e.value)


def still_works(comm):
    """Another channel on the same communicator."""
    right, left = neighbours(comm)
    out, into = np.full(3, float(comm.rank)), np.zeros(3)
    with pchan.Channel(comm) as ch:
        ch.send_init(out, right)
        ch.recv_init(into, left)
        ch.connect()
        ch.exchange(timeout=30)
        assert (into == left).all()


def test_missing_receive(comm):
    right, left = neighbours(comm)
    with pchan.Channel(comm) as ch:
        ch.send_init(np.zeros(3), right, 4)
        if comm.rank == 0:
            ch.send_init(np.zeros(5), right, 7)
        ch.recv_init(np.zeros(3), left, 4)
        text = refuse(ch, exact=1)
        assert (
            f"rank 0 operation 1 (send to {1 % comm.size}, tag 7, 40 bytes of float64): no receive on rank" in text
        )
        assert len(ch) == 2 + (comm.rank == 0)  # as registered
    still_works(comm)


def test_missing_send_and_stranger(comm):
    """A rank that is named by another one and names nobody itself."""
    last = comm.size - 1
    with pchan.Channel(comm) as ch:
        if comm.rank == 0:
            ch.recv_init(np.zeros(2, "i4"), last, 1)
            ch.send_init(np.zeros(2, "i4"), last, 2)
        refuse(
            ch, f"rank 0 operation 0 (recv from {last}, tag 1, 8 bytes of int32): no send on rank {last}", exact=2
        )
    still_works(comm)


def test_every_fault_on_every_rank(comm):
    right, left = neighbours(comm)
    with pchan.Channel(comm) as ch:
        ch.send_init(np.zeros(3), right, 0)
        ch.recv_init(np.zeros(2), left, 0)
        text = refuse(ch, "longer than its receive", exact=comm.size)
        for r in range(comm.size):
            assert f"rank {r} operation 0 (send to {(r + 1) % comm.size}, tag 0, 24 bytes of float64)" in text
            assert f"rank {r} operation 1 (recv from {(r - 1) % comm.size}, tag 0, 16 bytes of float64)" in text
    assert len(set(comm.allgather(text))) == 1
    still_works(comm)


@pytest.mark.parametrize(
    "send, recv, why",
    [
        (np.zeros(4), np.zeros(4, "i8"), "element types differ"),
        (np.zeros(4, "f4"), np.zeros(2), "element types differ"),
        (np.zeros(4, [("a", "i4"), ("b", "f4")]), np.zeros(4, [("a", "i4"), ("c", "f4")]), "element types differ"),
        (np.zeros((3, 4)), np.zeros((4, 3)), "shapes differ"),
        (np.zeros((2, 3, 4)), np.zeros((6, 4)), "shapes differ"),
        (np.zeros((3, 4)), [np.zeros((3, 4), order="F"), MPI.DOUBLE], "transpose"),
        ([np.zeros((4, 3), order="F"), MPI.DOUBLE], np.zeros((4, 3)), "transpose"),
        (np.zeros((5, 4)), np.zeros((3, 4)), "longer than its receive"),
    ],
)
def test_misfits(comm, send, recv, why):
    right, left = neighbours(comm)
    with pchan.Channel(comm) as ch:
        ch.send_init(send, right)
        ch.recv_init(recv, left)
        refuse(ch, why, exact=comm.size)


@pytest.mark.parametrize(
    "send, recv",
    [
        (np.zeros(4, "l"), np.zeros(4, "q")),
        (np.zeros((3, 4)), np.zeros(12)),
        (np.zeros((3, 1, 4)), np.zeros((3, 4))),
        (np.zeros((3, 4)), np.zeros((5, 4))),
        (np.zeros((3, 4)), np.zeros((3, 4), order="F")),
        (np.zeros(5, "datetime64[s]"), np.zeros(5, "datetime64[s]")),
        (np.zeros(3, "S7"), np.zeros(3, "S7")),
        (np.zeros(8, "u1"), [bytearray(8), MPI.BYTE]),
        ([np.zeros((4, 3), order="F"), MPI.DOUBLE], [np.zeros((4, 5), order="F"), MPI.DOUBLE]),
    ],
)
def test_fits(comm, send, recv):
    right, left = neighbours(comm)
    with pchan.Channel(comm) as ch:
        ch.send_init(send, right)
        ch.recv_init(recv, left)
        ch.connect()
        ch.exchange(timeout=30)


def test_an_empty_derived_datatype_fits_any(comm):
    right, left = neighbours(comm)
    nothing = MPI.INT.Create_vector(0, 3, 4).Commit()
    into = np.full(3, -1.0)
    with pchan.Channel(comm) as ch:
        ch.send_init([np.zeros(4, "i4"), 1, nothing], right, 1)
        ch.recv_init(into, left, 1)
        ch.send_init(np.zeros(0), right, 2)
        ch.recv_init([np.zeros(4, "i4"), 1, nothing], left, 2)
        ch.connect()
        ch.exchange(timeout=30)
        assert (into == -1).all() and ch.statuses[1] == (left, 1, 0)
    with pchan.Channel(comm) as ch:
        ch.send_init(into, right)
        ch.recv_init([np.zeros(4, "i4"), 1, nothing], left)
        refuse(ch, "longer than its receive")
    nothing.Free()


@pytest.mark.any_source
def test_wildcards(comm):
    right, left = neighbours(comm)
    with pchan.Channel(comm, private=False) as ch:
        ch.send_init(np.zeros(1), right)
        ch.recv_init(np.zeros(1), MPI.ANY_SOURCE if comm.rank == 0 else left, MPI.ANY_TAG)
        text = refuse(ch, "recv from ANY_SOURCE, tag ANY_TAG", "wildcard")
        assert text.count("wildcard") == comm.size
        # unconnected it works, wildcards included
        ch.exchange(timeout=30)


def test_works_unconnected_after_a_match_error(comm):
    right, left = neighbours(comm)
    out, into = np.full(3, float(comm.rank)), np.zeros(3, "i8")
    with pchan.Channel(comm) as ch:
        ch.send_init(out, right)
        ch.recv_init(into, left)
        refuse(ch)
        ch.exchange(timeout=30)
        assert (into.view("f8") == left).all()
        refuse(ch)


def test_states(comm):
    right, left = neighbours(comm)
    ch = pchan.Channel(comm)
    ch.send_init(np.zeros(1), right)
    ch.recv_init(np.zeros(1), left)
    ch.start()
    with pytest.raises(pchan.StateError, match="connect.*active"):
        ch.connect()
    ch.wait(30)
    ch.connect()
    with pytest.raises(pchan.StateError, match="connect.*connected already"):
        ch.connect()
    for register in (ch.send_init, ch.recv_init):
        with pytest.raises(pchan.StateError, match="connected"):
            register(np.zeros(1), left)
    with pytest.raises(pchan.StateError):
        ch.wait()
    ch.exchange(timeout=30)
    ch.free()
    with pytest.raises(pchan.StateError, match="connect.*freed"):
        ch.connect()


def test_active_on_one_rank_fails_on_all(comm):
    with pchan.Channel(comm) as ch:
        ch.send_init(np.zeros(1), comm.rank)
        ch.recv_init(np.zeros(1), comm.rank)
        if comm.rank == 0:
            ch.start()
        with pytest.raises(pchan.StateError, match="active"):
            ch.connect()
        if comm.rank == 0:
            ch.wait(30)
        ch.connect()
        ch.exchange(timeout=30)


def test_empty_channels(comm):
    with pchan.Channel(comm) as ch:
        ch.connect()
        for _ in range(3):
            ch.exchange(timeout=30)
        assert ch.statuses == []


def test_private_false_connects_too(comm):
    right, left = neighbours(comm)
    out, into = np.full(100, float(comm.rank)), np.zeros(100)
    with pchan.Channel(comm, private=False) as ch:
        ch.send_init(out, right, 3)
        ch.recv_init(into, left, 3)
        ch.connect()
        ch.exchange(timeout=30)
        assert (into == left).all()


@pytest.mark.parametrize("mode", ["mpi", "bundle", "shm", None])
def test_channels_never_cross(comm, monkeypatch, mode):
    """Channels with equal tags, and an unconnected one beside them, started in different orders."""
    if mode:
        monkeypatch.setenv("PCHAN_TRANSPORT", mode)
    right, left = neighbours(comm)
    channels, arrays = [], []
    for k in range(5):
        ch, out, into = pchan.Channel(comm), np.full(4, 10.0 * k + comm.rank), np.full(4, -1.0)
        ch.send_init(out, right, 0)
        ch.recv_init(into, left, 0)
        if k != 2:
            ch.connect()
        channels.append(ch)
        arrays.append(into)
    order = list(range(5)) if comm.rank % 2 else [4, 1, 2, 0, 3]
    for k in order:
        channels[k].start()
    for k in reversed(order):
        channels[k].wait(30)
    assert all((arrays[k] == 10 * k + left).all() for k in range(5))
    for k in order:
        channels[k].free()


def test_communicator_may_be_freed_before_connect(comm):
    mine = comm.Dup()
    right, left = neighbours(comm)
    out, into = np.full(2, float(comm.rank)), np.zeros(2)
    ch = pchan.Channel(mine)
    ch.send_init(out, right)
    ch.recv_init(into, left)
    mine.Free()
    ch.connect()
    ch.exchange(timeout=30)
    assert (into == left).all()
    ch.free()
