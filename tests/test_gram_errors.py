"""Wrong input on one rank is an error on every rank, and names the rank, the row and the column."""

import re
from decimal import Decimal
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from mpi4py import MPI
from run_mpi import run_mpi

import pchan

pytestmark = pytest.mark.mpi

BAD = {
    "NaN": ([[1, 2], [3, float("nan")]], ValueError, "row 1, column 1 of P is NaN"),
    "infinity": ([[1, float("-inf")]], ValueError, "row 0, column 1 of P is infinite"),
    "mpf infinity": ([[mpmath.inf, 1]], ValueError, "row 0, column 0 of P is infinite"),
    "mpf NaN": ([[1, mpmath.nan]], ValueError, "row 0, column 1 of P is NaN"),
    "NaN in an array": (np.array([[1.0, 2.0], [np.nan, 1.0]]), ValueError, "row 1, column 0 of P is NaN"),
    "NaN in longdouble": (np.array([[1, np.nan]], dtype=np.longdouble), ValueError, "row 0, column 1 of P is NaN"),
    "ragged": ([[1, 2], [3]], ValueError, "row 1 of P has 1 columns, 2 were expected"),
    "no columns": ([[], []], ValueError, "no columns"),
    "array without columns": (np.empty((3, 0)), ValueError, "no columns"),
    "1-D": ([1, 2], ValueError, "must be 2-D: its row 0 is one int"),
    "1-D array": (np.arange(4.0), ValueError, r"must be 2-D, its shape is \(4,\)"),
    "3-D array": (np.ones((2, 2, 2)), ValueError, "must be 2-D"),
    "text": ([[1, "2"]], TypeError, "row 0, column 1 of P is a builtins.str"),
    "None": ([[None, 2]], TypeError, "row 0, column 0 of P is a builtins.NoneType"),
    "Decimal NaN": ([[Decimal("NaN"), 2]], ValueError, "row 0, column 0 of P is NaN"),
    "complex": ([[1, 2j]], TypeError, "row 0, column 1 of P is complex"),
    "mpc": ([[1, mpmath.mpc(1)]], TypeError, "row 0, column 1 of P is complex"),
    "complex array": (np.ones((2, 2), dtype=complex), TypeError, "dtype complex128"),
    "bool": ([[1, True]], TypeError, "row 0, column 1 of P is a bool"),
    "bool array": (np.ones((2, 2), dtype=bool), TypeError, "dtype bool"),
    "no rows but text": ("12", TypeError, "sequence of rows"),
    "not a sequence": (7, TypeError, "sequence of rows"),
    "iterator": (iter([[1, 2]]), TypeError, "sequence of rows"),
    "exponent": ([[mpmath.ldexp(1, 2**62), 1]], ValueError, "row 0, column 0 of P has an exponent beyond"),
}


@pytest.mark.parametrize(("bad", "error", "message"), BAD.values(), ids=BAD)
@pytest.mark.parametrize("planned", [False, True])
def test_bad_rows(comm, bad, error, message, planned):
    rank = comm.size - 1
    P = bad if comm.rank == rank else [[1, 2], [3, 5]]
    with pchan.GramPlan(comm, 2, 64) as plan:
        with pytest.raises(error, match=f"^rank {rank}: .*{message}"):
            plan(P) if planned else pchan.gram(P, comm, 64)
        assert plan([[1, 2]]).n_rows == comm.size  # and the plan serves on


def test_same_message_on_every_rank(comm):
    with pytest.raises(ValueError) as caught:
        pchan.gram([[1, float("nan") if comm.rank == comm.size // 2 else 0]], comm, 64)
    assert set(comm.allgather(str(caught.value))) == {f"rank {comm.size // 2}: row 0, column 1 of P is NaN"}


def test_columns_that_differ(comm):
    if comm.size == 1:
        pytest.skip("one rank")
    with pytest.raises(ValueError, match="P has 2 columns on rank 0 and 3 on rank 1"):
        pchan.gram([[1, 2]] if comm.rank != 1 else [[1, 2, 3]], comm, 64)


def test_columns_that_are_not_the_plans(comm):
    with pchan.GramPlan(comm, 2, 64) as plan, pytest.raises(ValueError, match="P has 3 columns, the plan 2"):
        plan([[1, 2, 3]])


def test_no_rows_anywhere(comm):
    with pytest.raises(ValueError, match="no rank has a row"):
        pchan.gram([], comm, 64)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("precision", (64, 65)),
        ("n", (2, 3)),
        ("normalize", (0, 1)),
        ("rounding", ("trunc", "nearest")),
        ("memory", (None, 10**9)),
        ("memory", (10**9, 10**8)),
    ],
)
def test_arguments_that_differ(comm, name, values):
    if comm.size == 1:
        pytest.skip("one rank")
    arguments = {"n": 2, "precision": 64} | {name: values[comm.rank == 1]}
    with pytest.raises(ValueError, match=f"{name} is . on rank 0|{name} is .* on rank 0 and .* on rank 1"):
        pchan.GramPlan(comm, **arguments)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"precision": 31}, ValueError, "precision = 31"),
        ({"precision": 32768}, ValueError, "precision = 32768"),
        ({"precision": 64.0}, TypeError, "precision must be an integer"),
        ({"precision": True}, TypeError, "precision must be an integer"),
        ({"n": 0}, ValueError, "n = 0"),
        ({"n": "2"}, TypeError, "n must be an integer"),
        ({"rounding": "up"}, ValueError, "rounding"),
        ({"strategy": "none"}, ValueError, "none"),
        ({"layout": 3}, TypeError, "layout"),
    ],
    ids=str,
)
def test_bad_argument_on_one_rank(comm, arguments, error, message):
    good = {"n": 2, "precision": 64}
    with pytest.raises(error, match=re.escape(message)):
        pchan.GramPlan(comm, **(good | arguments if comm.rank == comm.size - 1 else good))


def test_bad_communicator():
    with pytest.raises(TypeError, match="Intracomm"):
        pchan.gram([[1]], None, 64)
    with pytest.raises(TypeError, match="Intracomm"):
        pchan.GramPlan("comm", 1, 64)


def test_exact_products_that_are_too_long(comm):
    rows = [[mpmath.ldexp(1, 40_000), 1]] if comm.rank == comm.size - 1 else [[1, 1]]
    with pytest.raises(ValueError, match=r"need 8000[0-9] bits"):
        pchan.gram(rows, comm, 64, normalize=False)
    rows = [[mpmath.ldexp(1, -(10**15)), 1]] if comm.rank == comm.size - 1 else [[1, 1]]
    with pytest.raises(ValueError, match="use normalize=True"):
        pchan.gram(rows, comm, 64, normalize=False)


def test_common_denominator_that_is_too_long(comm):
    rows = [[Fraction(1, 3**50_000 + 2 * comm.rank)]]
    with pytest.raises(ValueError, match="use normalize=True"):
        pchan.gram(rows, comm, 64, normalize=False)


def test_bad_root(comm):
    g = pchan.gram([[1, 2]], comm, 64)
    for gather in (g.gather, g.q.gather):
        with pytest.raises(ValueError, match="root 9"):
            gather(9)
        with pytest.raises(TypeError):
            gather("0")
    if comm.size > 1:
        with pytest.raises(ValueError, match="root is 0 on rank 0 and 1 on rank 1"):
            g.gather(min(comm.rank, 1))


def test_check_needs_normalised_columns(comm):
    with pytest.raises(ValueError, match="normalize=False"):
        pchan.gram([[1, 2]], comm, 64, normalize=False).check()


def test_options_that_are_wrong_on_one_rank_only(comm):
    good = {"normalize": True, "memory": 1 << 20}
    cases = [
        (TypeError, {"nonsense": 1}),
        (TypeError, {"normalize": np.array([1, 2])}),
        (TypeError, {"memory": 1.5}),
        (ValueError, {"memory": 0}),
        (ValueError, {"memory": -5}),
        (ValueError, {"memory": 2**100}),
        (TypeError, {"memory": True}),
        (TypeError, {"scale_bits": 1.5}),
        (TypeError, {"scale_bits": float("nan")}),
        (TypeError, {"scale_bits": "1"}),
        (ValueError, {"scale_bits": -1}),
        (ValueError, {"scale_bits": 2**80}),
    ]
    for error, change in cases:
        options = good | (change if comm.rank == comm.size - 1 else {})
        with pytest.raises(error):
            pchan.gram(np.ones((2, 3)), comm, 64, **options)


def test_plan_freed_on_one_rank(comm):
    plan = pchan.GramPlan(comm, 2, 64)
    if comm.rank == comm.size - 1:
        plan.free()
    with pytest.raises(pchan.StateError, match="free"):
        plan([[1, 2]])
    plan.free()


def test_plan_called_by_its_own_progress(comm):
    messages = []

    def progress(done, total):
        with pytest.raises(pchan.StateError) as caught:
            plan([[1, 2]])
        messages.append(str(caught.value))

    alone = MPI.COMM_SELF  # elsewhere the other ranks would not be in the inner call
    with pchan.GramPlan(alone, 2, 64, progress=progress) as plan:
        g = plan([[3, 4]])
    assert g.check() and set(messages) == {"GramPlan: called while it runs, by `progress` or another thread"}


@pytest.mark.launcher
def test_gram_after_finalize():
    run = run_mpi(
        1,
        """
        from mpi4py import MPI
        import pchan
        plan = pchan.GramPlan(MPI.COMM_WORLD, 2, 64)
        MPI.Finalize()
        for call in (lambda: pchan.gram([[1]], MPI.COMM_SELF, 64), lambda: pchan.GramPlan(MPI.COMM_SELF, 2, 64), lambda: plan([[1, 2]])):
            try:
                call()
            except pchan.StateError as e:
                print(e)
        """,
    )
    assert run.returncode == 0 and run.stdout.count("finalised") == 3, run.stdout + run.stderr
