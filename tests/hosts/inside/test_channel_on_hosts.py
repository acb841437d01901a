"""Channel between ranks on the same and on different hosts: run by tests/hosts/test_suite.py on two hosts or more."""

import os
import time

import numpy as np
import pytest
from mpi4py import MPI
from transports import transport  # noqa: F401

import pchan

pytestmark = pytest.mark.mpi(min_size=2)
POISON = -(2.0**60)


@pytest.fixture
def host(comm):
    """The host of every rank."""
    return comm.allgather(MPI.Get_processor_name())


def values(source, dest, k, cycle, n):
    """What message k of this pair carries in this cycle: no two alike."""
    return ((source * 16 + dest) * 100 + k) * 1e8 + cycle * 1e7 + np.arange(n)


def test_each_host_is_a_node_of_its_own(comm, host):
    assert len(set(host)) > 1, "these tests are for several hosts"
    node = comm.Split_type(MPI.COMM_TYPE_SHARED)
    assert node.size == host.count(host[comm.rank])
    node.Free()
    own = comm.allgather((os.stat("/dev/shm").st_dev, os.stat("/proc/self/ns/net").st_ino))
    for a, place_a in zip(own, host, strict=True):
        for b, place_b in zip(own, host, strict=True):
            assert (a == b) == (place_a == place_b) and (a[0] == b[0]) == (a[1] == b[1])
    with pchan.QReduceScatter(comm, 4, pchan.PrimeBasis(100)) as q:
        assert q.n_nodes == len(set(host))


FACES = [np.s_[:, :, 1], np.s_[2], np.s_[:, ::2, 3], np.s_[::-1, 1, ::3]]


def test_strided_faces_to_and_from_every_rank(comm, transport):  # noqa: F811
    out, into = np.zeros((2, comm.size, len(FACES), 6, 5, 4))
    everything = [(peer, k, face) for peer in range(comm.size) for k, face in enumerate(FACES)]
    with pchan.Channel(comm) as ch:
        for peer, k, face in everything:
            ch.recv_init(into[peer, k][face], peer, k)
            ch.send_init(out[peer, k][face], peer, k)
        transport(ch)
        for cycle in range(10):
            into[:], want = POISON, np.full_like(into, POISON)
            for peer, k, face in everything:
                shape = out[peer, k][face].shape
                n = int(np.prod(shape))
                out[peer, k][face] = values(comm.rank, peer, k, cycle, n).reshape(shape)
                want[peer, k][face] = values(peer, comm.rank, k, cycle, n).reshape(shape)
            ch.exchange(timeout=30)
            assert np.array_equal(into, want)  # what lies between the faces too


@pytest.mark.parametrize("transport", ["off", "auto"], indirect=True)
def test_long_and_short_messages_to_the_same_peers(comm, transport):  # noqa: F811
    sizes = [1, 2**17, 0, 3 * 2**17 + 1, 64]  # of 8 bytes: 1 MiB and above among short ones
    peers = [((comm.rank - d) % comm.size, (comm.rank + d) % comm.size) for d in (1, 2)]
    messages = [(*pair, d * len(sizes) + k, n) for d, pair in enumerate(peers) for k, n in enumerate(sizes)]
    out, into = ([np.zeros(n) for *_, n in messages] for _ in range(2))
    with pchan.Channel(comm) as ch:
        for (source, dest, k, _), sent, received in zip(messages, out, into, strict=True):
            ch.send_init(sent, dest, k % 3)
            ch.recv_init(received, source, k % 3)
        transport(ch)
        for cycle in range(3):
            for (_, dest, k, n), sent, received in zip(messages, out, into, strict=True):
                sent[:] = values(comm.rank, dest, k, cycle, n)
                received[:] = POISON
            ch.exchange(timeout=50)
            for (source, _, k, n), received in zip(messages, into, strict=True):
                assert np.array_equal(received, values(source, comm.rank, k, cycle, n))


@pytest.mark.parametrize("seed", range(2))
def test_unequal_sets_of_messages(comm, transport, seed):  # noqa: F811
    """Who sends how many messages of which size to whom is random; odd seeds leave the last rank without any."""
    rng = np.random.default_rng(seed)
    ranks = comm.size - seed % 2
    messages = []
    for k in range(60):
        source, dest, tag = (int(x) for x in rng.integers((ranks, ranks, 3)))
        messages.append((source, dest, tag, k, int(rng.choice([0, 1, 5, 64, 1000, 20_000]))))
    buffers = [np.zeros(n) for *_, n in messages]
    copies = [np.zeros(n) for *_, n in messages]
    with pchan.Channel(comm) as ch:
        for (source, dest, tag, *_), sent, received in zip(messages, buffers, copies, strict=True):
            if source == comm.rank:
                ch.send_init(sent, dest, tag)
            if dest == comm.rank:
                ch.recv_init(received, source, tag)
        transport(ch)
        for cycle in range(8):
            for (source, dest, _, k, n), sent, received in zip(messages, buffers, copies, strict=True):
                sent[:] = values(source, dest, k, cycle, n)
                received[:] = POISON
            ch.start()
            ch.wait(timeout=30)
            for (source, dest, _, k, n), received in zip(messages, copies, strict=True):
                want = values(source, dest, k, cycle, n) if dest == comm.rank else POISON
                assert np.all(received == want)


@pytest.mark.parametrize("transport", ["off", "auto"], indirect=True)
def test_two_channels_waited_for_in_opposite_orders(comm, transport):  # noqa: F811
    """Each rank waits first for the channel whose messages the other half waits for last."""
    channels, into, out = [], np.zeros((2, comm.size, 300)), np.zeros((2, comm.size, 300))
    for c in range(2):
        ch = pchan.Channel(comm)
        for peer in range(comm.size):
            ch.send_init(out[c, peer], peer, 5)
            ch.recv_init(into[c, peer], peer, 5)
        transport(ch)
        channels.append(ch)
    order = (0, 1) if comm.rank % 2 else (1, 0)
    for cycle in range(20):
        into[:] = POISON
        for c in order:
            for peer in range(comm.size):
                out[c, peer] = values(comm.rank, peer, c, cycle, 300)
        for c in range(2):  # registration order of the channels: plain ones share a tag
            channels[c].start()
        for c in order:
            channels[c].wait(timeout=30)
        for c in range(2):
            for peer in range(comm.size):
                assert np.array_equal(into[c, peer], values(peer, comm.rank, c, cycle, 300))
    for ch in channels:
        ch.free()


@pytest.mark.parametrize("transport", ["off", "auto"], indirect=True)
def test_a_late_rank_times_out_its_peers_by_name(comm, transport):  # noqa: F811
    """Rank 0 starts late: its peers on all hosts name its messages, wait again, and get the right values."""
    out, into = np.zeros((2, comm.size, 100))
    with pchan.Channel(comm) as ch:
        for peer in range(comm.size):
            ch.recv_init(into[peer], peer, peer)
            ch.send_init(out[peer], peer, comm.rank)
        transport(ch)
        for cycle in range(3):
            into[:] = POISON
            for peer in range(comm.size):
                out[peer] = values(comm.rank, peer, 0, cycle, 100)
            comm.Barrier()
            if comm.rank == 0:
                time.sleep(0.4)
            ch.start()
            if comm.rank:
                with pytest.raises(pchan.WaitTimeout, match=r"operation 0 \(recv from 0, tag 0, 800 bytes\)"):
                    ch.wait(timeout=0.1)
                assert ch.active
            ch.wait(timeout=30)
            for peer in range(comm.size):
                assert np.array_equal(into[peer], values(peer, comm.rank, 0, cycle, 100))


def test_transports_tell_who_is_on_the_same_host(comm, host):
    with pchan.Channel(comm) as ch:
        for peer in range(comm.size):
            if peer != comm.rank:
                for n in (1, 2**18):
                    ch.send_init(np.zeros(n), peer, n)
                    ch.recv_init(np.zeros(n), peer, n)
        assert {op.transport for op in ch} == {"mpi"}
        ch.connect()
        for op in ch:
            if host[op.peer] == host[comm.rank]:
                assert op.transport == "shm" if op.nbytes == 8 else op.transport in ("cma", "mpi"), op
            else:
                assert op.transport == ("bundle" if op.nbytes == 8 else "mpi"), op
        ch.exchange(timeout=30)
