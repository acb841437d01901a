"""gram against Fractions: norms, scaled integers, error bound, exact results, condition number."""

import random
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from oracle import exact_gram, fraction_of, pivot_quotient, quantized_gram

import pchan
from pchan.qreduce import STRATEGIES

pytestmark = pytest.mark.mpi

# sha256() of rational_rows() at 150 bits
SHA256 = "f1c35ce950fb179898049701099315113c7f3946768219352f3206b4d1ff53d7"
DEALS = ["cyclic", "all on the last", "none on the first", "blocks"]


def deal(rows, comm, how="cyclic"):
    """This rank's part of rows that all ranks know."""
    size, rank = comm.size, comm.rank
    if how == "all on the last":
        return rows if rank == size - 1 else []
    if how == "none on the first" and size > 1:
        return rows[rank - 1 :: size - 1] if rank else []
    if how == "blocks":
        return rows[len(rows) * rank // size : len(rows) * (rank + 1) // size]
    return rows[rank::size]


def rational_rows(k=9, n=5, seed=1):
    """Fractions of many sizes and signs, with some zeros."""
    bits = random.Random(seed).getrandbits  # the same in every version
    entries = [Fraction((bits(4) - 7) * 10 ** bits(5), bits(20) + 1) for _ in range(k * n)]
    return [entries[i * n : (i + 1) * n] for i in range(k)]


def check_norms(norms, rows, precision):
    """Never below the true norm, and above it by less than 2**-(precision + 62) of it."""
    for norm, column in zip(norms, zip(*rows, strict=True), strict=True):
        square = sum(Fraction(x) ** 2 for x in column)
        assert square <= fraction_of(norm) ** 2
        assert fraction_of(norm) ** 2 <= square * (1 + Fraction(2, 2 ** (precision + 62)))


def check_bound(matrix, rows, norms, precision):
    """abs(dQ_ij) <= 2 sqrt(K) 2**-N norm_i norm_j."""
    exact = exact_gram(rows)
    unit = 4 * len(rows) * Fraction(1, 4**precision)
    squares = [fraction_of(norm) ** 2 for norm in norms]
    for i, j in np.ndindex(*matrix.shape):
        error = abs(fraction_of(matrix[i, j]) - exact[i][j])
        assert error**2 <= unit * squares[i] * squares[j]


@pytest.mark.parametrize("rounding", ["trunc", "nearest"])
@pytest.mark.parametrize("how", DEALS)
@pytest.mark.parametrize("precision", [32, 200])
def test_rows_of_fractions(comm, rounding, how, precision):
    rows = rational_rows()
    g = pchan.gram(deal(rows, comm, how), comm, precision, rounding=rounding)
    scaled, matrix, checked = g.q.gather(), g.gather(), g.check()
    assert checked and (g.n, g.n_rows) == (5, 9)
    check_norms(g.norms, rows, precision)
    if comm.rank == 0:
        assert np.array_equal(scaled, quantized_gram(rows, g.norms, precision, rounding))
        check_bound(matrix, rows, g.norms, precision)
    else:
        assert scaled is None and matrix is None


def test_local_values_are_the_gathered_ones(comm):
    g = pchan.gram(deal(rational_rows(), comm), comm, 100)
    matrix = g.gather(root=comm.size - 1)
    if comm.rank == comm.size - 1:
        assert np.array_equal(matrix, matrix.T)
        matrix = [[x._mpf_ for x in row] for row in matrix]  # a pickled mpf is rounded
    matrix = comm.bcast(matrix, root=comm.size - 1)
    places = zip(g.q.rows.tolist(), g.q.cols.tolist(), strict=True)
    assert [x._mpf_ for x in g.values()] == [matrix[i][j] for i, j in places]


LAYOUTS = [pchan.ElementCyclic(), pchan.PackedRows(), "blocks"]


@pytest.mark.parametrize("how", DEALS)
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_same_bits_for_every_deal_and_number_of_ranks(comm, how, strategy, layout):
    layout = pchan.BlockCyclic((1, comm.size), 2) if layout == "blocks" else layout
    g = pchan.gram(deal(rational_rows(), comm, how), comm, 150, strategy=strategy, layout=layout)
    assert g.sha256() == SHA256


def test_same_bits_for_every_division_into_nodes(comm):
    node_comm = comm.Split(comm.rank % 2)
    g = pchan.gram(deal(rational_rows(), comm), comm, 150, node_comm=node_comm)
    assert g.sha256() == SHA256
    node_comm.Free()


def test_columns_of_very_different_sizes(comm):
    rows = [[x * 10 ** (170 * (j % 2)) for j, x in enumerate(row)] for row in rational_rows()]
    g = pchan.gram(deal(rows, comm), comm, 128)
    check_norms(g.norms, rows, 128)
    matrix = g.gather()
    if comm.rank == 0:
        check_bound(matrix, rows, g.norms, 128)


def test_far_off_exponents_cost_no_memory(comm):
    huge, tiny = mpmath.ldexp(3, 10**15), mpmath.ldexp(1, -(10**15))
    g = pchan.gram(deal([[huge, tiny], [tiny, tiny], [-huge, 0]], comm), comm, 64)
    scaled = g.q.gather()
    if comm.rank == 0:
        assert abs(scaled[0, 0] / 4**64 - 1) < 1e-9 and scaled[0, 1] > 0
    assert g.norms[0] > huge > g.norms[1]


def test_zero_columns(comm):
    g = pchan.gram(deal([[0, 3, 0.0], [0, -4, mpmath.mpf(0)]], comm), comm, 64)
    matrix, checked = g.gather(), g.check()
    assert checked and g.norms.tolist() == [0, 5, 0]
    if comm.rank == 0:
        assert abs(matrix[1, 1] - 25) < 1e-15 and (matrix != 0).sum() == 1


def test_norms_are_rounded_up(comm):
    norms = pchan.gram(deal([[1, 4], [Fraction(1, 2**9000), 3]], comm), comm, 64).norms
    assert [fraction_of(norm) for norm in norms] == [1 + Fraction(1, 2**127), 5]


def test_norms_are_exact_when_they_can_be(comm):
    g = pchan.gram(deal([[3, Fraction(4, 3)], [4, 1]], comm), comm, 80)
    assert g.norms[0] == 5
    assert fraction_of(g.norms[1]) >= Fraction(5, 3)


@pytest.mark.parametrize("how", DEALS)
def test_exact_integers(comm, how):
    rng = np.random.default_rng(2)
    rows = [[int(x) ** 9 for x in row] for row in rng.integers(-(10**9), 10**9, (7, 4))]
    matrix = pchan.gram(deal(rows, comm, how), comm, 64, normalize=False).gather()
    if comm.rank == 0:
        assert all(type(x) is int for x in matrix.ravel())
        assert matrix.tolist() == exact_gram(rows)


def test_exact_integers_are_their_own_limbs(comm):
    g = pchan.gram(deal([[4, 8], [16, -4]], comm), comm, 64, normalize=False)
    matrix = np.array([[272, -32], [-32, 80]], dtype=object)
    assert pchan.limbs_to_ints(g.q.limbs).tolist() == matrix[g.q.rows, g.q.cols].tolist()
    assert g.norms.tolist() == [1, 1]


def test_exact_fractions_and_floats(comm):
    rows = [[*row, 0.1 * i, 2.0**-1074] for i, row in enumerate(rational_rows(6, 3))]
    matrix = pchan.gram(deal(rows, comm), comm, 64, normalize=False).gather()
    if comm.rank == 0:
        assert matrix.tolist() == exact_gram(rows)


def test_floats_that_are_integers_stay_integers(comm):
    rows = np.arange(12.0).reshape(6, 2)
    matrix = pchan.gram(deal(rows, comm), comm, 64, normalize=False).gather()
    if comm.rank == 0:
        assert matrix.tolist() == (rows.T @ rows).astype(int).tolist() and type(matrix[0, 0]) is int


def test_more_rows_than_one_exact_product_holds(comm):
    # Residues as large as they get, all of one sign, and odd, so that float64 would lose the last bit.
    largest = (int(pchan.PrimeBasis(64).primes[0]) - 1) // 2
    rows = np.full((30_001, 2), largest - 1 + largest % 2)
    matrix = pchan.gram(deal(rows, comm, "all on the last"), comm, 64, normalize=False).gather()
    if comm.rank == 0:
        assert np.array_equal(matrix, np.full((2, 2), len(rows) * int(rows[0, 0]) ** 2, dtype=object))


def test_plan_gives_results_that_stay(comm):
    first, second = rational_rows(seed=5), rational_rows(seed=6)
    with pchan.GramPlan(comm, 5, 90) as plan:
        g = plan(deal(first, comm))
        before = g.sha256()
        h = plan(deal(second, comm, "all on the last"))
        assert h.sha256() != before
    assert g.sha256() == before == pchan.gram(deal(first, comm, "blocks"), comm, 90).sha256()
    assert not g.q.limbs.flags.writeable
    with pytest.raises(pchan.StateError):
        plan(deal(first, comm))


def test_plan_without_any_rows(comm):
    with pchan.GramPlan(comm, 3, 64) as plan:
        g = plan([])
    assert g.norms.tolist() == [0, 0, 0] and g.n_rows == 0
    matrix = g.gather()
    assert (matrix is None) == (comm.rank != 0)
    assert matrix is None or not matrix.any()


def test_exact_plan_grows_with_its_input(comm):
    inputs = [[[3 * scale, scale], [scale, -2 * scale]] for scale in (1, 10**300, 7)]
    with pchan.GramPlan(comm, 2, 64, normalize=False) as plan:
        matrices = [plan(deal(rows, comm)).gather() for rows in inputs]
    if comm.rank == 0:
        assert [matrix.tolist() for matrix in matrices] == [exact_gram(rows) for rows in inputs]


@pytest.mark.parametrize("options", [{}, {"normalize": False}], ids=str)
def test_cond_number(comm, options):
    rows = rational_rows(8, 4, seed=7)
    cond = pchan.gram(deal(rows, comm), comm, 256, **options).cond_number()
    exact = pivot_quotient(exact_gram(rows))
    assert abs(fraction_of(cond) / exact - 1) < Fraction(1, 2**180)
    assert len(set(comm.allgather(cond._mpf_))) == 1


def test_results_do_not_depend_on_the_working_precision(comm):
    with mpmath.workprec(20):
        g = pchan.gram(deal(rational_rows(), comm), comm, 150)
        cond = g.cond_number()
        assert g.sha256() == SHA256
    assert cond._mpf_ == g.cond_number()._mpf_ and cond._mpf_[3] > 150


SINGULAR = {
    "equal columns": [[1, 2, 1], [3, 5, 3], [4, 4, 4]],
    "sum of two": [[0.1, 0.2, Fraction(0.1) + Fraction(0.2)], [3, 5, 8], [7, -4, 3]],
    "zero column": [[1, 0], [2, 0]],
    "fewer rows than columns": [[1, 2, 3], [4, 5, 7]],
    "no rows": [],
}


@pytest.mark.parametrize("rows", SINGULAR.values(), ids=SINGULAR)
@pytest.mark.parametrize("normalize", [True, False])
def test_cond_number_of_a_singular_matrix(comm, rows, normalize):
    with pchan.GramPlan(comm, len(rows[0]) if rows else 3, 128, normalize=normalize) as plan:
        g = plan(deal(rows, comm))
    with pytest.raises(ArithmeticError, match="singular"):
        g.cond_number()
