"""gram at scale: memory that is bounded and told before, tasks that are shared, one result for all of it."""

import re
import time

import numpy as np
import pytest
from run_mpi import run_mpi

import pchan
from pchan._blocks import plan_blocks
from pchan._syrk import Work
from pchan.qreduce import STRATEGIES

pytestmark = pytest.mark.mpi

N, K, BITS = 7, 9, 200


def integers(k=K, n=N, seed=3):
    rng = np.random.default_rng(seed)
    return [[int.from_bytes(rng.bytes(20), "little", signed=True) for _ in range(n)] for _ in range(k)]


def least_memory(comm, n=N, bits=BITS, rows=K):
    with pytest.raises(ValueError, match="too few") as caught:
        pchan.GramPlan.estimate(n, bits, rows, ranks=comm.size, memory=1)
    return int(re.search(r"at least (\d+)", str(caught.value)).group(1))


def test_any_memory_gives_the_same_bits_and_is_kept_to(comm):
    rows, passes, digests = integers(), [], set()
    least = least_memory(comm)
    for memory in (least, least * 5 // 4, least * 2, least * 8, None):
        g = pchan.gram(rows[comm.rank :: comm.size], comm, BITS, memory=memory)
        used = comm.allreduce(g.stats["bytes_held"] + g.stats["bytes_work"])
        assert memory is None or used <= memory
        passes.append(comm.allreduce(g.stats["n_passes"], op=max_of))
        digests.add(g.sha256())
    assert passes == sorted(passes, reverse=True) and passes[0] > 100 and passes[-1] == 1
    assert len(digests) == 1


def max_of(a, b):
    return max(a, b)


def test_too_little_memory_is_an_error_that_tells_how_much(comm):
    least = least_memory(comm)
    with pytest.raises(ValueError, match=f"at least {least} are needed"):
        pchan.GramPlan(comm, N, BITS, memory=least - 1)
    with pchan.GramPlan(comm, N, BITS, memory=least):
        pass
    with pytest.raises(ValueError, match="too few for a node"):
        pchan.gram(integers()[comm.rank :: comm.size], comm, BITS, normalize=False, memory=1000)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("normalize", [True, False])
def test_estimate_knows_every_strategy_and_several_nodes(comm, strategy, normalize):
    """The least memory that it names is the least that a plan takes."""
    if comm.size % 2:
        pytest.skip("one rank" if comm.size == 1 else "Test requires 2 MPI or 4")
    options = {"strategy": strategy, "layout": pchan.PackedRows(), "buffer_bytes": 300}
    entry_bits = None if normalize else 160
    with pytest.raises(ValueError, match="too few") as caught:
        shape = {"rows": 5, "ranks": comm.size // 2, "nodes": 2, "entry_bits": entry_bits}
        pchan.GramPlan.estimate(N, BITS, memory=1, **shape, **options)
    least = int(re.search(r"at least (\d+)", str(caught.value)).group(1))
    node_comm, rows = comm.Split(comm.rank // (comm.size // 2)), integers(10)
    rows[0][0] = 2**160 - 1
    mine = rows[comm.rank :: comm.size]
    pchan.gram(mine, comm, BITS, memory=least, node_comm=node_comm, normalize=normalize, **options)
    with pytest.raises(ValueError, match=f"at least {least} are needed"):
        pchan.gram(mine, comm, BITS, memory=least - 1, node_comm=node_comm, normalize=normalize, **options)
    node_comm.Free()


@pytest.mark.parametrize("ranks", [1, 7, 128])
@pytest.mark.parametrize(("k", "n"), [(0, 1), (1, 1), (5, 3), (400, 200), (20_000, 30), (3000, 1500)])
def test_blocks_fit_and_more_memory_is_never_slower(k, n, ranks):
    basis, n_limbs = pchan.PrimeBasis(2049), 17
    passes = []
    for room in (1 << e for e in range(12, 40)):
        blocks = plan_blocks(basis, k, n, n_limbs, ranks, room)
        if blocks is None:
            assert not passes
            continue
        assert blocks.n_bytes(basis, n, n_limbs, ranks) <= room
        assert 1 <= blocks.rows * (int(basis.primes[0]) // 2) ** 2 <= 2**53 and blocks.tile <= n
        passes.append(blocks.n_passes(k, n))
    assert passes[-1] == max(1, -(-k // blocks.rows)) and passes[-1] <= min(passes)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("normalize", [True, False])
def test_every_division_into_nodes(comm, strategy, normalize):
    rows, digests = integers(), set()
    colors = {
        "one": 0,
        "cyclic": comm.rank % 2,
        "blocks": comm.rank // 2,
        "unequal": comm.rank > 0,
        "each": comm.rank,
    }
    for color in colors.values():
        node_comm = comm.Split(int(color))
        mine = rows if comm.rank == comm.size - 1 else []
        options = {"strategy": strategy, "node_comm": node_comm, "normalize": normalize}
        g = pchan.gram(mine, comm, BITS, **options)
        digests.add(g.sha256())
        node_comm.Free()
    digests.add(pchan.gram(rows[comm.rank :: comm.size], comm, BITS, normalize=normalize).sha256())
    assert len(digests) == 1


def test_tasks_are_dealt_once_each_and_by_speed(comm):
    work = Work(comm, None, 4096)
    for n_tasks in (0, 1, 40):
        mine = []
        with work.together():
            for task in work.deal(n_tasks):
                mine.append(task)
                time.sleep(0.03 if comm.rank == 0 else 0.001)
        assert sorted(sum(comm.allgather(mine), [])) == list(range(n_tasks))
    if comm.size > 1:
        shares = comm.allgather(len(mine))
        assert shares[0] < max(shares[1:])


def test_all_ranks_multiply_when_one_has_all_rows(comm):
    calls = []

    def progress(done, total):
        calls.append((done, total))
        time.sleep(0.02)  # long enough for the others to take the next ones

    rows = integers(30, 100)
    pchan.gram(rows if comm.rank == comm.size - 1 else [], comm, 64, progress=progress)
    everyone = comm.allgather(calls)
    (total,) = {total for calls in everyone for _, total in calls}
    assert sorted(done for calls in everyone for done, _ in calls) == list(range(1, total + 1))
    assert all(everyone) or total < comm.size


def test_an_error_amid_the_products_is_raised_on_every_rank(comm):
    broken = [True]

    def progress(done, total):
        if broken and comm.rank == comm.size - 1:
            broken.clear()
            raise ArithmeticError("broken on purpose")
        time.sleep(0.01)

    rows = integers(30, 100)
    with pchan.GramPlan(comm, 100, 64, progress=progress) as plan:
        mine = rows[comm.rank :: comm.size]
        with pytest.raises(ArithmeticError, match="broken on purpose"):
            plan(mine)
        assert plan(mine).sha256() == pchan.gram(mine, comm, 64).sha256()


USED = """
    import numpy as np
    from mpi4py import MPI
    import pchan
    comm = MPI.COMM_WORLD
    def used():
        text = open("/proc/self/smaps_rollup").read()
        return comm.allreduce(1024 * int(text.split("Pss:")[1].split()[0]))
    n, k, bits = 300, 600, 256
    limbs = np.random.default_rng(comm.rank).integers(0, 2**62, (k // comm.size, n, 4), dtype=np.uint64)
    pchan.gram(limbs[:2], comm, bits, scale_bits=0)  # libraries are loaded now
    estimates = [pchan.GramPlan.estimate(n, bits, k, ranks=comm.size)]
    estimates.append(pchan.GramPlan.estimate(n, bits, k, ranks=comm.size, memory=estimates[0].total // 2))
    for estimate in estimates:
        before = used()
        plan = pchan.GramPlan(comm, n, bits, memory=estimate.total)
        g = plan(limbs, scale_bits=0)
        first = used() - before
        for _ in range(3):
            g = plan(limbs, scale_bits=0)
        last = used() - before
        if comm.rank == 0:
            print(estimate.total, first, last, estimate.n_passes, flush=True)
        plan.free()
        del plan, g
"""


@pytest.mark.launcher
@pytest.mark.parametrize("ranks", [1, 2])
def test_memory_is_what_the_estimate_says_and_stays_flat(ranks):
    done = run_mpi(ranks, USED)
    assert done.returncode == 0, done.stderr
    lines = [list(map(int, line.split())) for line in done.stdout.splitlines()]
    assert len(lines) == 2 and lines[0][3] == 1 < lines[1][3]
    slack = 24 << 20  # what Python, NumPy and BLAS keep by the way
    for total, first, last, _ in lines:
        assert total / 3 < first < total + slack
        assert last < first + slack / 3


@pytest.mark.launcher
def test_one_digest_for_ranks_and_nodes_from_the_command_line(tmp_path):
    np.save(tmp_path / "p.npy", np.random.default_rng(1).normal(size=(50, 12)))
    digests = set()
    for ranks, cliques in [(1, 1), (3, 1), (2, 2), (4, 2)]:
        command = ["python", "-m", "pchan", "gram", str(tmp_path / "p.npy"), "--precision", "128"]
        done = run_mpi(ranks, command, MPIR_CVAR_NUM_CLIQUES=str(cliques))
        assert done.returncode == 0, done.stderr
        digests.add(re.search(r"^sha256 +(\w{64})", done.stdout, re.M).group(1))
    assert len(digests) == 1
