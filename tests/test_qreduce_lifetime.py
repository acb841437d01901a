"""QReduceScatter: waiting, threads, signals, results that outlive it, and the end of the process."""

import threading
import time
from pathlib import Path

import numpy as np
import pytest
from divisions import STRATEGIES
from mpi4py import MPI
from run_mpi import run_mpi

import pchan

pytestmark = pytest.mark.mpi


@pytest.fixture
def basis():
    return pchan.PrimeBasis(100)


def ones(basis, n):
    return basis.residues(np.ones((n, n), dtype=object))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_test_never_waits_for_the_others(comm, basis, strategy):
    with pchan.QReduceScatter(comm, 4, basis, node_comm=MPI.COMM_SELF, strategy=strategy) as q:
        for _ in range(3):
            q.add(0, 0, ones(basis, 4))
            if comm.rank == 0:
                q.start()
                assert comm.size == 1 or not any(q.test() for _ in range(50))
            comm.Barrier()
            if comm.rank != 0:
                q.start()
            while not q.test():
                pass
            assert np.all(pchan.limbs_to_ints(q.limbs) == comm.size)


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_timeout_in_every_phase(comm, basis, strategy):
    with pchan.QReduceScatter(comm, 4, basis, node_comm=MPI.COMM_SELF, strategy=strategy) as q:
        q.add(0, 0, ones(basis, 4))
        if comm.rank == comm.size - 1:
            comm.Barrier()
            q.start()
        else:
            q.start()
            begin = time.monotonic()
            for timeout in (0, 0.01, 0.02):
                with pytest.raises(pchan.WaitTimeout, match="waits for"):
                    q.wait(timeout=timeout)
            assert time.monotonic() - begin < 5 and q.active
            comm.Barrier()
        q.wait(timeout=20)
        assert np.all(pchan.limbs_to_ints(q.limbs) == comm.size)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_test_raises_range_error_as_wait_does(comm, basis, strategy):
    with pchan.QReduceScatter(comm, 3, basis, strategy=strategy) as q:
        for _ in range(2):
            q.add(1, 1, basis.residues([[2**100 - 1]]))
        if comm.rank == 0:
            q.add(1, 1, basis.residues([[2**100 - 1]]))
        q.start()
        with pytest.raises(pchan.RangeError, match=r"\(1, 1\)"):
            while not q.test():
                pass
        assert not q.active
        q.start()
        q.wait()
        assert not pchan.limbs_to_ints(q.limbs).any()


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_range_error_names_the_first_of_many(basis, strategy):
    n = 60  # more elements than are restored at a time
    with pchan.QReduceScatter(MPI.COMM_SELF, n, basis, strategy=strategy) as q:
        for _ in range(2):
            for i, j in [(50, 55), (0, 3), (0, 4)]:
                q.add(i, j, basis.residues([[-(2**100) + 1]]))
        q.start()
        with pytest.raises(pchan.RangeError, match=r"\(0, 3\), owned by rank 0"):
            q.wait()


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_wrong_roots_are_an_error_on_all(comm, basis, strategy):
    with pchan.QReduceScatter(comm, 3, basis, strategy=strategy) as q:
        q.start()
        q.wait()
        last = comm.rank == comm.size - 1
        for wrong, own in [(comm.size, ValueError), (-1, ValueError), (2**70, ValueError), ("0", TypeError)]:
            with pytest.raises(own if last else ValueError):
                q.gather(root=wrong if last else 0)
        if comm.size > 1:
            with pytest.raises(ValueError, match="differ in root: 0 to 1"):
                q.gather(root=int(last))
        assert (q.gather(root=np.int64(0)) is None) == (comm.rank != 0)


def test_misuse_of_the_methods_underneath(comm, basis):
    with pchan.QReduceScatter(comm, 5, basis) as q:
        for rank in (-1, comm.size, 2**40):
            with pytest.raises((ValueError, OverflowError)):
                q.n_owned(rank)
        with pytest.raises(ValueError):
            q.owned(comm.size, np.empty(1, np.int64), np.empty(1, np.int64))
        with pytest.raises(ValueError):
            q.set_output(np.empty(1000, np.uint64))
        with pytest.raises(TypeError):
            q.set_output(np.empty(len(q.rows) * basis.n_limbs))
        q.start()
        q.wait()
        with pytest.raises(ValueError):
            q.gather_into(0, None)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_results_outlive_it_and_belong_to_the_last_cycle(comm, basis, strategy):
    q = pchan.QReduceScatter(comm, 4, basis, strategy=strategy)
    limbs = q.limbs
    for k in (1, 2):
        for _ in range(k):
            q.add(0, 0, ones(basis, 4))
        q.start()
        q.wait()
        assert np.all(pchan.limbs_to_ints(limbs) == k * comm.size)
    rows, cols = q.rows, q.cols
    del q
    assert np.all(pchan.limbs_to_ints(limbs) == 2 * comm.size) and np.all(rows <= cols)
    for array in (limbs, rows, cols):
        with pytest.raises(ValueError):
            array[...] = 0


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_many_of_them_leave_nothing_behind(comm, basis, strategy):
    def held():
        maps = Path("/proc/self/maps").read_text().count("pchan-window")
        return maps, len(list(Path("/proc/self/fd").iterdir()))

    before = held()
    for _ in range(5):
        with pchan.QReduceScatter(comm, 4, basis, strategy=strategy) as q:
            assert held()[0] == before[0] + 1
            q.start()
            q.wait()
    assert held() == before


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_time_between_start_and_wait_is_not_counted(basis, strategy):
    with pchan.QReduceScatter(MPI.COMM_SELF, 4, basis, strategy=strategy) as q:
        q.start()
        time.sleep(0.3)
        q.wait()
        assert q.stats["exchange_s"] < 0.2


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.mpi(min_size=2)
def test_a_second_thread_is_refused_and_python_goes_on(comm, basis, strategy):
    if MPI.Query_thread() < MPI.THREAD_SERIALIZED:
        pytest.skip("MPI was not initialised for threads")
    with pchan.QReduceScatter(comm, 3, basis, strategy=strategy) as q:
        if comm.rank == 0:
            q.start()
            thread = threading.Thread(target=q.wait, kwargs={"timeout": 20})
            thread.start()
            time.sleep(0.05)
            for call in (q.start, q.free):
                with pytest.raises(pchan.StateError):
                    call()
            time.sleep(0.05)
        else:
            time.sleep(0.2)
            q.start()
            q.wait()
        if comm.rank == 0:
            thread.join()
        assert not q.active


@pytest.mark.launcher
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_an_interrupt_leaves_it_active(strategy):
    code = f"""
        import os, signal, threading, time
        from mpi4py import MPI
        import pchan
        comm = MPI.COMM_WORLD
        q = pchan.QReduceScatter(comm, 3, pchan.PrimeBasis(100), node_comm=MPI.COMM_SELF, strategy="{strategy}")
        if comm.rank == 0:
            q.start()
            threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
            try:
                q.wait()
            except KeyboardInterrupt:
                assert q.active
                print("interrupted")
        comm.Barrier()
        if comm.rank:
            q.start()
        q.wait()
        q.free()
        """
    run = run_mpi(2, code)
    assert run.stdout.split() == ["interrupted"] and run.returncode == 0, run.stdout + run.stderr


@pytest.mark.launcher
def test_a_forked_child_is_refused():
    code = """
        import os
        from mpi4py import MPI
        import pchan
        q = pchan.QReduceScatter(MPI.COMM_WORLD, 3, pchan.PrimeBasis(100))
        q.start()
        if (child := os.fork()) == 0:
            for call in (q.start, q.wait, q.test, q.gather):
                try:
                    call()
                except pchan.StateError:
                    continue
                os._exit(1)
            q.free()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        q.wait()
        print("good")
        """
    run = run_mpi(2, code)
    assert run.stdout.count("good") == 2 and not run.stderr, run.stdout + run.stderr


ENDINGS = {
    "never freed": "wait()",
    "freed after MPI": "wait(); MPI.Finalize(); free(); free()",
    "active": "comm.Barrier()",
    "active, MPI ends first": "comm.Barrier(); MPI.Finalize()",
}


@pytest.mark.launcher
@pytest.mark.parametrize("ending", ENDINGS)
def test_the_end_of_the_process_is_silent(ending):
    code = f"""
        from mpi4py import MPI
        import pchan
        comm = MPI.COMM_WORLD
        basis = pchan.PrimeBasis(300)
        plans = [
            pchan.QReduceScatter(comm, 30, basis, node_comm=MPI.COMM_SELF, strategy=s) for s in {STRATEGIES}
        ]
        def wait():
            for q in plans:
                q.wait()
        def free():
            for q in plans:
                q.free()
        for q in plans:
            q.add(0, 0, basis.residues([[1] * 30] * 30))
            q.start()
        {ENDINGS[ending]}
        """
    run = run_mpi(2, code, PYTHONWARNINGS="ignore")
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")
