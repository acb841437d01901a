"""QReduceScatter against Python integers: every strategy, layout and division into nodes gives the same bits."""

import ctypes

import numpy as np
import pytest
from divisions import STRATEGIES
from mpi4py import MPI
from oracle import element_cyclic_owner, random_ints, symmetric

import pchan

pytestmark = pytest.mark.mpi

LAYOUTS = [None, "element row", "block", "packed"]
NODES = ["default", "one", "each", "uneven", "cyclic"]


def make_layout(name, size):
    return {
        None: None,
        "element row": pchan.ElementCyclic((1, size)),
        "block": pchan.BlockCyclic((size, 1), 3),
        "packed": pchan.PackedRows(),
    }[name]


def make_node_comm(name, comm):
    if name == "default":
        return None
    color = {"one": 0, "each": comm.rank, "uneven": int(comm.rank > 0), "cyclic": comm.rank % 2}[name]
    return comm.Split(color, -comm.rank)  # ranks within a node in another order


def contributions(comm, basis, n, seed):
    """What every rank adds, known to all: [size][n][n] of Python ints whose sum fits the basis."""
    rng = np.random.default_rng(seed)
    return random_ints(rng, basis.bits - comm.size.bit_length(), (comm.size, n, n))


class MallInfo(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_int) for name in "arena ordblks smblks hblks hblkhd usm fsm uord ford keep".split()
    ]


def allocated_bytes():
    """By malloc, modulo 2**32; what glibc holds free does not count, as it does among resident pages."""
    mallinfo = ctypes.CDLL(None).mallinfo
    mallinfo.restype = MallInfo
    info = mallinfo()
    return info.uord + info.hblkhd


def cycle(q, ints):
    q.add(0, 0, q.basis.residues(ints))
    q.start()
    q.wait()


def check(q, comm, total):
    """The owned elements and the gathered matrix."""
    assert np.array_equal(pchan.limbs_to_ints(q.limbs), total[q.rows, q.cols])
    matrix = q.gather(root=comm.size - 1)
    if comm.rank == comm.size - 1:
        assert np.array_equal(matrix, symmetric(total))
    else:
        assert matrix is None


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("nodes", NODES)
def test_sum(comm, strategy, layout, nodes):
    basis, n = pchan.PrimeBasis(200), 11
    node_comm = make_node_comm(nodes, comm)
    with pchan.QReduceScatter(
        comm, n, basis, layout=make_layout(layout, comm.size), node_comm=node_comm, strategy=strategy
    ) as q:
        for seed in range(3):
            parts = contributions(comm, basis, n, seed)
            cycle(q, parts[comm.rank])
            check(q, comm, parts.sum(axis=0))
    if node_comm:
        node_comm.Free()


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("buffer_bytes", [0, 1, 500, 1 << 20])
@pytest.mark.parametrize("bits", [1, 64, 1000, 2049, 4200])
def test_bits_and_small_buffers(comm, bits, buffer_bytes, strategy):
    basis, n = pchan.PrimeBasis(bits + comm.size.bit_length()), 5
    with pchan.QReduceScatter(
        comm, n, basis, node_comm=MPI.COMM_SELF, buffer_bytes=buffer_bytes, strategy=strategy
    ) as q:
        parts = contributions(comm, basis, n, 7)
        cycle(q, parts[comm.rank])
        check(q, comm, parts.sum(axis=0))


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("layout", [None, "packed"])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_fewer_rows_than_ranks(comm, n, layout, strategy):
    basis = pchan.PrimeBasis(90)
    with pchan.QReduceScatter(
        comm, n, basis, layout=make_layout(layout, comm.size), node_comm=MPI.COMM_SELF, strategy=strategy
    ) as q:
        parts = contributions(comm, basis, n, 1)
        cycle(q, parts[comm.rank])
        check(q, comm, parts.sum(axis=0))
        assert sum(comm.allgather(len(q.rows))) == n * (n + 1) // 2


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_owners_are_those_of_elemental(comm, strategy):
    with pchan.QReduceScatter(comm, 9, pchan.PrimeBasis(64), strategy=strategy) as q:
        mine = [
            (i, j) for i in range(9) for j in range(i, 9) if element_cyclic_owner(i, j, comm.size) == comm.rank
        ]
        assert list(zip(q.rows, q.cols, strict=True)) == mine
        assert (q.rows.dtype, q.limbs.dtype, q.limbs.shape) == (np.int64, np.uint64, (len(mine), q.basis.n_limbs))
        for array in (q.rows, q.cols, q.limbs):
            assert not array.flags.writeable


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_tiles_of_every_kind(comm, strategy):
    basis, n = pchan.PrimeBasis(300), 13
    rng = np.random.default_rng(5 + comm.rank)
    total = np.zeros((n, n), dtype=object)
    p = basis.primes.astype(np.int64)[:, None, None]
    with pchan.QReduceScatter(comm, n, basis, strategy=strategy) as q:
        for k in range(12):
            rows, cols = rng.integers(0, n + 1, 2)
            i0, j0 = (int(rng.integers(0, n - m + 1)) for m in (rows, cols))
            ints = random_ints(rng, 280, (rows, cols))
            total[i0 : i0 + rows, j0 : j0 + cols] += ints
            residues = basis.residues(ints)
            canonical = residues.astype(np.int64) % p
            tile = [
                residues,
                canonical + p * 2**40,
                (canonical + p).astype(np.uint32),
                np.asfortranarray(canonical - p * 1000).astype(float),
                np.repeat(canonical[:, ::-1], 3, axis=2)[:, ::-1, ::3],
            ][k % 5]
            q.add(i0, j0, tile)
        q.start()
        q.wait()
        everyone = comm.allgather(total)
        check(q, comm, np.sum(everyone, axis=0))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_lower_elements_of_a_tile_are_ignored(comm, strategy):
    basis = pchan.PrimeBasis(64)
    with pchan.QReduceScatter(comm, 4, basis, strategy=strategy) as q:
        tile = basis.residues(np.arange(16, dtype=object).reshape(4, 4))
        tile[:, 2, 1] = np.nan
        q.add(0, 0, tile)
        q.add(3, 0, basis.residues([[1, 1, 1]]))
        q.start()
        q.wait()
        want = np.arange(16, dtype=object).reshape(4, 4) * comm.size
        check(q, comm, want)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_only_the_total_need_be_in_range(comm, strategy):
    basis = pchan.PrimeBasis(64)
    big = pchan.PrimeBasis(71, check_bits=1)
    assert big.n_primes == basis.n_primes
    with pchan.QReduceScatter(comm, 3, basis, node_comm=MPI.COMM_SELF, strategy=strategy) as q:
        value = 5 + (2**70 if comm.rank == 0 and comm.size > 1 else 0) - (2**70 if comm.rank == 1 else 0)
        q.add(0, 0, big.residues(np.full((3, 3), value, dtype=object)))
        q.start()
        q.wait()
        check(q, comm, np.full((3, 3), 5 * comm.size, dtype=object))


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("nodes", ["default", "each"])
def test_range_error_on_every_rank_and_the_next_cycle_is_right(comm, strategy, nodes):
    basis, n = pchan.PrimeBasis(100), 6
    node_comm = make_node_comm(nodes, comm)
    with pchan.QReduceScatter(comm, n, basis, strategy=strategy, node_comm=node_comm) as q:
        bad = basis.residues([[2**100 - 1]])
        if comm.rank == comm.size - 1:
            q.add(2, 5, bad)
            q.add(2, 5, bad)
        q.start()
        owner = element_cyclic_owner(2, 5, comm.size)
        with pytest.raises(pchan.RangeError, match=rf"\(2, 5\), owned by rank {owner}"):
            q.wait()
        assert not q.active
        parts = contributions(comm, basis, n, 2)
        cycle(q, parts[comm.rank])
        check(q, comm, parts.sum(axis=0))
    if node_comm:
        node_comm.Free()


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("layout", ["block", "packed", "custom"])
def test_range_error_names_the_first_element_whoever_owns_it(comm, strategy, layout, node_comm):
    """In row-major order: the same for any number of ranks, layout, division and strategy."""
    basis, last = pchan.PrimeBasis(100), comm.size - 1
    where = {
        "block": pchan.BlockCyclic((1, comm.size), 2),
        "packed": pchan.PackedRows(),
        "custom": pchan.CustomLayout(lambda i, j: last - (i + j) % comm.size),
    }[layout]
    with pchan.QReduceScatter(comm, 9, basis, layout=where, strategy=strategy, node_comm=node_comm) as q:
        for i, j in [(8, 8), (3, 3), (0, 7), (0, 3), (2, 4)]:
            if comm.rank == last:
                for _ in range(2):
                    q.add(i, j, basis.residues([[2**100 - 1]]))
        q.start()
        owner = next(r for r, own in enumerate(comm.allgather((0, 3) in zip(q.rows, q.cols, strict=True))) if own)
        with pytest.raises(pchan.RangeError, match=rf"\(0, 3\), owned by rank {owner},"):
            q.wait()


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_flipped_bit_is_noticed(comm, strategy):
    basis = pchan.PrimeBasis(500, check_bits=30)
    with pchan.QReduceScatter(comm, 3, basis, node_comm=MPI.COMM_SELF, strategy=strategy) as q:
        for k in range(5):
            tile = basis.residues(np.full((3, 3), 12345, dtype=object))
            if comm.rank == 0:
                tile[k, 0, 2] += 1 << k
            q.add(0, 0, tile)
            q.start()
            with pytest.raises(pchan.RangeError):
                q.wait()


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_all_ranks_add_to_the_same_elements_at_once(comm, strategy):
    basis, n = pchan.PrimeBasis(80), 20
    tile = basis.residues(np.ones((n, n), dtype=object))
    with pchan.QReduceScatter(comm, n, basis, strategy=strategy) as q:
        for _ in range(30):
            q.add(0, 0, tile)
        q.start()
        q.wait()
        check(q, comm, np.full((n, n), 30 * comm.size, dtype=object))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_hundreds_of_cycles(comm, strategy):
    basis = pchan.PrimeBasis(70)
    tile = basis.residues(np.ones((3, 3), dtype=object))
    with pchan.QReduceScatter(comm, 3, basis, node_comm=MPI.COMM_SELF, buffer_bytes=1, strategy=strategy) as q:
        q.add(0, 0, tile)
        q.start()
        q.wait()
        count = pchan._core.allocation_count()
        for k in range(300):
            if k == 50:
                before = allocated_bytes()
            for _ in range(1 + k % 3):
                q.add(0, 0, tile)
            q.start()
            q.wait()
            assert np.all(pchan.limbs_to_ints(q.limbs) == (1 + k % 3) * comm.size)
        assert pchan._core.allocation_count() == count
        assert (allocated_bytes() - before + 2**31) % 2**32 - 2**31 < 250 * 512


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_two_plans_waited_for_in_opposite_orders(comm, strategy):
    basis = pchan.PrimeBasis(70)
    ones = basis.residues(np.ones((4, 4), dtype=object))
    plans = [pchan.QReduceScatter(comm, 4, basis, node_comm=MPI.COMM_SELF, strategy=strategy) for _ in range(2)]
    for _ in range(10):
        for k, q in enumerate(plans):
            for _ in range(k + 1):
                q.add(0, 0, ones)
            q.start()
        for q in plans if comm.rank % 2 else plans[::-1]:
            q.wait()
        for k, q in enumerate(plans):
            assert np.all(pchan.limbs_to_ints(q.limbs) == (k + 1) * comm.size)
    for q in plans if comm.rank % 2 else plans[::-1]:
        q.free()


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_test_and_channels_go_on_beside_it(comm, strategy):
    basis = pchan.PrimeBasis(70)
    into = np.zeros(1)
    ch = pchan.Channel(comm)
    ch.send_init(np.ones(1), (comm.rank + 1) % comm.size, 0)
    ch.recv_init(into, (comm.rank - 1) % comm.size, 0)
    with pchan.QReduceScatter(comm, 2, basis, node_comm=MPI.COMM_SELF, strategy=strategy) as q:
        q.add(0, 0, basis.residues(np.ones((2, 2), dtype=object)))
        q.start()
        ch.start()
        while not q.test():
            pass
        ch.wait()
        assert into[0] == 1 and np.all(pchan.limbs_to_ints(q.limbs) == comm.size)
        with pytest.raises(pchan.StateError):
            q.test()
    ch.free()


def test_stats(comm):
    basis, n = pchan.PrimeBasis(1000), 20
    with pchan.QReduceScatter(comm, n, basis, node_comm=MPI.COMM_SELF) as q:
        parts = contributions(comm, basis, n, 1)
        cycle(q, parts[comm.rank])
        s = q.stats
        assert {"add_s", "pack_s", "exchange_s", "accumulate_s", "restore_s", "bytes_sent", "bytes_held"} <= set(s)
        assert s["pack_s"] > 0 and s["restore_s"] > 0 and s["exchange_s"] >= 0
        element = 8 * basis.n_words
        upper = n * (n + 1) // 2
        assert s["bytes_sent"] == (upper - len(q.rows)) * element
        assert s["bytes_held"] >= upper * element
