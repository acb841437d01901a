"""Local elements of Q as numbers of other libraries; checks that fail."""

import dataclasses
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from oracle import exact_gram, fraction_of

import pchan

pytestmark = pytest.mark.mpi
BITS = 150
ROWS = [[Fraction(3 * i - 7, j + 2) * 10**j for j in range(4)] for i in range(6)]


def gram(comm, rows=ROWS, **options):
    return pchan.gram(rows[comm.rank :: comm.size], comm, BITS, **options)


def exact_values(g):
    exact = exact_gram(ROWS)
    return [exact[i][j] for i, j in zip(g.q.rows, g.q.cols, strict=True)]


def test_normalised_elements(comm):
    g = gram(comm)
    values = [fraction_of(x) for x in g.values()]
    assert [fraction_of(x) for x in g.to_mpmath()] == values
    np.testing.assert_array_equal(g.to_float64(), [float(x) for x in values])


def test_normalised_elements_in_gmpy2(comm):
    gmpy2 = pytest.importorskip("gmpy2")
    g = gram(comm)
    numbers = g.to_gmpy2()
    assert [Fraction(*map(int, x.as_integer_ratio())) for x in numbers] == [fraction_of(x) for x in g.values()]
    assert all(x.precision == BITS + 64 for x in numbers) and gmpy2.get_context().precision == 53


def test_normalised_elements_in_flint(comm):
    pytest.importorskip("flint")
    g = gram(comm)
    for number, value in zip(g.to_flint(), g.values(), strict=True):
        mantissa, exponent = (int(x) for x in number.man_exp())
        assert mantissa * Fraction(2) ** exponent == fraction_of(value) and number.rad() == 0


def test_exact_fractions(comm):
    g = gram(comm, normalize=False)
    exact = exact_values(g)
    for number, value in zip(g.to_mpmath(), exact, strict=True):
        assert abs(fraction_of(number) - value) <= abs(value) / 2 ** (BITS + 64)
    assert g.to_float64().tolist() == [float(x) for x in exact]
    gmpy2 = pytest.importorskip("gmpy2")
    assert [type(x) for x in g.to_gmpy2()] == [gmpy2.mpq] * len(exact)
    assert [Fraction(int(x.numerator), int(x.denominator)) for x in g.to_gmpy2()] == exact
    pytest.importorskip("flint")
    assert [Fraction(int(x.p), int(x.q)) for x in g.to_flint()] == exact


def test_exact_integers(comm):
    g = gram(comm, [[10**200, 1], [3, -5]], normalize=False)
    values = g.values().tolist()
    assert [fraction_of(x) for x in g.to_mpmath()] == values
    assert [int(x) for x in pytest.importorskip("gmpy2") and g.to_gmpy2()] == values
    assert g.to_float64().tolist() == [float("inf") if x > 2**1024 else float(x) for x in values]
    assert [int(x) for x in pytest.importorskip("flint") and g.to_flint()] == values


def test_a_library_that_is_not_there(comm, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "flint", None)
    with pytest.raises(ImportError, match="pip install python-flint"):
        gram(comm).to_flint()


def with_element(g, element, value):
    """The same result with one element of Q' replaced where it is owned."""
    limbs = g.q.limbs.copy()
    for k in np.flatnonzero((g.q.rows == element[0]) & (g.q.cols == element[1])):
        limbs[k] = pchan.ints_to_limbs([value], limbs.shape[1])[0]
    g.q = dataclasses.replace(g.q, limbs=limbs)
    return g


@pytest.mark.parametrize(
    ("element", "value", "passes"),
    [
        ((1, 1), (1 << 2 * BITS) + (1 << 2 * BITS - BITS // 2), False),
        ((1, 1), (1 << 2 * BITS) - (1 << 2 * BITS - BITS // 2), False),
        ((1, 1), (1 << 2 * BITS) + (1 << 2 * BITS - BITS // 2 - 1), False),  # beyond norm 1
        ((1, 1), (1 << 2 * BITS) - (1 << 2 * BITS - BITS // 2 - 1), True),
        ((0, 3), (1 << 2 * BITS) + (1 << BITS + 10), False),
        ((0, 3), -(1 << 2 * BITS) - (1 << BITS + 10), False),
        ((0, 3), -(1 << 2 * BITS), True),
    ],
)
def test_check(comm, element, value, passes):
    g = gram(comm)
    assert g.check() is True
    assert with_element(g, element, value).check() is passes


def test_mpmath_working_precision_does_not_matter(comm):
    with mpmath.workprec(10):
        g = gram(comm, normalize=False)
        coarse = [x._mpf_ for x in g.to_mpmath()]
    assert coarse == [x._mpf_ for x in g.to_mpmath()]
