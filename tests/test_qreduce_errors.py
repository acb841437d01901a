"""QReduceScatter: what is refused, everywhere; life and death."""

import copy
import gc
import pickle
import warnings

import numpy as np
import pytest
from divisions import STRATEGIES
from mpi4py import MPI
from mpi_faults import needs_cliques
from run_mpi import run_mpi

import pchan

pytestmark = pytest.mark.mpi


@pytest.fixture(scope="module")
def basis():
    return pchan.PrimeBasis(100)


def test_bad_arguments_on_one_rank_are_an_error_on_all(comm, basis):
    good = {
        "n": 4,
        "basis": basis,
        "layout": None,
        "node_comm": None,
        "strategy": "residues",
        "buffer_bytes": 1 << 20,
    }
    cases = [
        (ValueError, {"n": 0}),
        (ValueError, {"n": -3}),
        (ValueError, {"n": 2**70}),
        (TypeError, {"n": 4.0}),
        (TypeError, {"n": "4"}),
        (TypeError, {"basis": 100}),
        (ValueError, {"strategy": "magic"}),
        (TypeError, {"strategy": 3}),
        (ValueError, {"strategy": "a\0b"}),
        (ValueError, {"strategy": "\ud800"}),
        (ValueError, {"buffer_bytes": -1}),
        (TypeError, {"layout": "cyclic"}),
        (ValueError, {"layout": pchan.ElementCyclic((5, 7))}),
        (TypeError, {"node_comm": 3}),
        (ValueError, {"node_comm": MPI.COMM_NULL}),
    ]
    if comm.size > 1:  # different, though each is good
        cases += [
            (ValueError, {"n": 5}),
            (ValueError, {"basis": pchan.PrimeBasis(101)}),
            (ValueError, {"basis": pchan.PrimeBasis(100, 9)}),
            (ValueError, {"layout": pchan.PackedRows()}),
            (ValueError, {"strategy": "gather"}),
            (ValueError, {"buffer_bytes": 5}),
        ]
    for error, change in cases:
        for culprit in {0, comm.size - 1}:
            options = good | (change if comm.rank == culprit else {})
            n, b = options.pop("n"), options.pop("basis")
            with pytest.raises(error):
                pchan.QReduceScatter(comm, n, b, **options)
    with pchan.QReduceScatter(comm, 4, basis) as q:  # the communicator is as good as before
        q.start()
        q.wait()


@pytest.mark.mpi(min_size=2)
def test_node_comm_must_divide_comm(comm, basis):
    half = comm.Split(comm.rank % 2)
    with pytest.raises(ValueError, match="node_comm"):  # one rank says it is alone, its partners do not
        pchan.QReduceScatter(half, 3, basis, node_comm=comm)
    half.Free()


def test_layout_arguments():
    for wrong in [(0, 1), (1, -1), (1,), (1, 2, 3)]:
        with pytest.raises(ValueError):
            pchan.ElementCyclic(wrong)
    with pytest.raises(ValueError):
        pchan.BlockCyclic((1, 1), 0)
    for wrong in ["ab", (1.5, 2), 3]:
        with pytest.raises(TypeError):
            pchan.ElementCyclic(wrong)
    with pytest.raises(TypeError):
        pchan.BlockCyclic(None, 2)
    assert pchan.PackedRows() == pchan.PackedRows() and pchan.BlockCyclic((2, 1), 3).block == 3


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_bad_tiles_add_nothing(comm, basis, strategy):
    with pchan.QReduceScatter(comm, 4, basis, strategy=strategy) as q:
        tile = basis.residues(np.ones((2, 3), dtype=object))
        for i0, j0 in [(-1, 0), (3, 0), (0, 2), (2**40, 0), (0, 2**70), (-(2**70), 0)]:
            with pytest.raises(ValueError):
                q.add(i0, j0, tile)
        for wrong in (tile[:-1], tile[:, 0], tile[None], np.float64(1)):
            with pytest.raises(ValueError):
                q.add(0, 0, wrong)
        for dtype in (np.float32, np.int32, np.uint64, object, ">f8"):
            with pytest.raises(TypeError):
                q.add(0, 0, tile.astype(dtype))
        for bad in (np.nan, np.inf, 0.5, 2.0**53 + 2):
            wrong = tile.copy()
            wrong[-1, 1, 2] = bad
            with pytest.raises(ValueError, match=r"\(1, 2\)"):
                q.add(0, 0, wrong)
        with pytest.raises(TypeError):
            q.add(0.5, 0, tile)
        q.start()
        q.wait()
        assert not pchan.limbs_to_ints(q.limbs).any()


def strided(array):
    """The same values at other strides."""
    wide = np.zeros([2 * m for m in array.shape], dtype=array.dtype)
    wide[::2, ::2, ::2] = array
    apart = np.zeros(array.nbytes + 1, dtype=np.uint8)[1:].view(array.dtype).reshape(array.shape)
    apart[...] = array
    return [
        array.copy(),
        np.asfortranarray(array),
        array[::-1, ::-1, ::-1].copy()[::-1, ::-1, ::-1],
        wide[::2, ::2, ::2],
        apart,
    ]


@pytest.mark.parametrize("bad", [np.nan, -np.nan, np.inf, -np.inf, -0.5, 5e-324, 2.0**51 + 0.5, -(2.0**53) - 2])
def test_wrong_values_are_found_at_any_strides(comm, basis, bad):
    with pchan.QReduceScatter(comm, 5, basis) as q:
        for tile in strided(basis.residues(np.ones((2, 3), dtype=object))):
            for k, r, c in [(0, 0, 0), (basis.n_primes // 2, 0, 2), (basis.n_primes - 1, 1, 1)]:
                right, tile[k, r, c] = tile[k, r, c], bad
                with pytest.raises(ValueError, match=rf"\({r}, {c + 2}\)"):
                    q.add(0, 2, tile)
                tile[k, r, c] = right
        q.start()
        q.wait()
        assert not pchan.limbs_to_ints(q.limbs).any()


@pytest.mark.parametrize("dtype", ["f8", "i8", "u4"])
def test_right_values_are_added_at_any_strides(comm, basis, dtype):
    extreme = {"f8": -(2.0**53), "i8": -(2**63), "u4": 2**32 - 1}[dtype]
    values = np.array([[1, 2, 3], [0, 5, extreme]], dtype=dtype)
    tiles = strided(np.broadcast_to(values, (basis.n_primes, 2, 3)))
    with pchan.QReduceScatter(comm, 5, basis) as q:
        for tile in tiles:
            q.add(0, 2, tile)
        q.add(0, 2, np.broadcast_to(values, (basis.n_primes, 2, 3)))
        q.start()
        q.wait()
        want = np.zeros((5, 5), dtype=object)
        want[:2, 2:] = [[int(x) for x in row] for row in values]
        want *= comm.size * (len(tiles) + 1)
        assert np.array_equal(pchan.limbs_to_ints(q.limbs), want[q.rows, q.cols])


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_long_tile_is_taken_back(comm, basis, strategy):
    """add goes through a tile in stretches of columns; those added before a wrong value must go again."""
    n = 150
    rng = np.random.default_rng(comm.rank)
    tile = basis.residues(rng.integers(-1000, 1000, (3, n)))
    with pchan.QReduceScatter(comm, n, basis, strategy=strategy) as q:
        for r, c in [(0, 0), (0, 63), (0, 64), (1, 1), (1, 140), (2, 131), (2, n - 1)]:
            wrong = tile.copy()
            wrong[0, r, c] = np.nan
            with pytest.raises(ValueError, match=rf"\({r}, {c}\)"):
                q.add(0, 0, wrong)
        q.start()
        q.wait()
        assert not pchan.limbs_to_ints(q.limbs).any()


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_states(comm, basis, strategy):
    q = pchan.QReduceScatter(comm, 3, basis, strategy=strategy)
    for call in (q.wait, q.test, q.gather):
        with pytest.raises(pchan.StateError):
            call()
    tile = basis.residues(np.ones((3, 3), dtype=object))
    q.add(0, 0, tile)
    q.start()
    for call in (q.start, q.free, q.gather, lambda: q.add(0, 0, tile)):
        with pytest.raises(pchan.StateError):
            call()
    assert q.active
    q.wait()
    with pytest.raises(pchan.StateError):
        q.wait()
    with pytest.raises(ValueError):
        q.gather(root=comm.size)
    limbs, rows = q.limbs, q.rows
    q.free()
    q.free()
    assert np.all(pchan.limbs_to_ints(limbs) == comm.size) and len(rows) == len(limbs)
    for call in (q.start, q.wait, q.test, q.gather, lambda: q.add(0, 0, tile), lambda: q.stats):
        with pytest.raises(pchan.StateError):
            call()
    assert not q.active and q.freed


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.mpi(min_size=2)
def test_timeout_leaves_it_active(comm, basis, strategy):
    with pchan.QReduceScatter(comm, 3, basis, strategy=strategy) as q:
        q.add(0, 0, basis.residues(np.ones((3, 3), dtype=object)))
        if comm.rank == 0:
            q.start()
            with pytest.raises(pchan.WaitTimeout, match="not started"):
                q.wait(timeout=0.05)
            assert q.active and q.test() is False
        comm.Barrier()
        if comm.rank != 0:
            q.start()
        q.wait(timeout=20)
        assert np.all(pchan.limbs_to_ints(q.limbs) == comm.size)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_communicator_may_be_freed(comm, basis, strategy):
    own, node = comm.Dup(), comm.Dup()
    q = pchan.QReduceScatter(own, 3, basis, node_comm=node, strategy=strategy)
    own.Free()
    node.Free()
    q.add(0, 0, basis.residues(np.ones((3, 3), dtype=object)))
    q.start()
    q.wait()
    matrix = q.gather()
    assert comm.rank or np.all(matrix == comm.size)
    q.free()


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_freed_in_any_order_and_by_garbage_collection(comm, basis, strategy):
    plans = [pchan.QReduceScatter(comm, 3, basis, node_comm=MPI.COMM_SELF, strategy=strategy) for _ in range(4)]
    order = np.random.default_rng(comm.rank).permutation(4)
    for k in order[:2]:
        plans[k].free()
    del plans
    gc.collect()
    with pchan.QReduceScatter(comm, 3, basis, strategy=strategy) as q:
        q.start()
        q.wait()


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_dropping_an_active_one_warns(comm, basis, strategy):
    own = comm.Dup()
    q = pchan.QReduceScatter(own, 3, basis, strategy=strategy)
    q.start()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        del q
        gc.collect()
    assert [w.category for w in caught] == [ResourceWarning]
    own.Free()


def test_pickle_and_copy_are_refused(comm, basis):
    with pchan.QReduceScatter(comm, 3, basis) as q:
        for function in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(TypeError):
                function(q)
        assert "n=3" in repr(q)


def test_memory_that_is_not_there_is_refused(comm):
    basis = pchan.PrimeBasis(2049)
    with pytest.raises(MemoryError, match="window"):
        pchan.QReduceScatter(comm, 300_000, basis, layout=pchan.PackedRows())
    with pchan.QReduceScatter(comm, 3, basis) as q:
        q.start()
        q.wait()


CLIQUES = """
    from mpi4py import MPI
    import numpy as np, pchan
    comm = MPI.COMM_WORLD
    basis = pchan.PrimeBasis(300)
    for strategy in pchan.qreduce.STRATEGIES:
        q = pchan.QReduceScatter(comm, 9, basis, strategy=strategy)
        assert q.n_nodes == 2, q.n_nodes
        for k in range(3):
            ints = np.array([[(i + 1) * (j + 2) ** 50 + comm.rank + k for j in range(9)] for i in range(9)], dtype=object)
            q.add(0, 0, basis.residues(ints))
            q.start()
            q.wait()
            want = [comm.size * ((i + 1) * (j + 2) ** 50 + k) + sum(range(comm.size)) for i, j in zip(q.rows.tolist(), q.cols.tolist())]
            assert list(pchan.limbs_to_ints(q.limbs)) == want
    print("good")
    """


@pytest.mark.launcher
@needs_cliques
@pytest.mark.parametrize("n", [2, 3, 4])
def test_nodes_by_cliques(n):
    run = run_mpi(n, CLIQUES, MPIR_CVAR_NUM_CLIQUES="2")
    assert run.stdout.count("good") == n and run.stderr == "", run.stdout + run.stderr


@pytest.mark.launcher
def test_a_killed_rank_leaves_nothing_behind():
    import os

    before = set(os.listdir("/dev/shm"))
    run = run_mpi(
        2,
        """
        import os, signal
        from mpi4py import MPI
        import pchan
        q = pchan.QReduceScatter(MPI.COMM_WORLD, 50, pchan.PrimeBasis(2049))
        q.start()
        if MPI.COMM_WORLD.rank:
            os.kill(os.getpid(), signal.SIGKILL)
        q.wait()
        """,
    )
    assert run.returncode != 0
    assert not [name for name in set(os.listdir("/dev/shm")) - before if "pchan" in name]
