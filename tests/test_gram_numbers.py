"""gram takes the numbers of every library exactly."""

from decimal import Decimal
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from oracle import exact_gram

import pchan
from pchan._exact import Fixed, Ratios
from pchan._numbers import convert

pytestmark = pytest.mark.mpi


def exactly(P, **options):
    """Entries of P as Fractions."""
    exact = convert(P, **options)
    if isinstance(exact, Fixed):
        exact = Ratios(
            pchan.limbs_to_ints(exact.limbs), exact.exponents, np.full(exact.limbs.shape[:2], 1), exact.n
        )
    return [
        [Fraction(int(m)) * Fraction(2) ** int(e) / int(d) for m, e, d in zip(*row, strict=True)]
        for row in zip(exact.mantissas, exact.exponents, exact.denominators, strict=True)
    ]


FLOATS = [[0.1, -3.0], [2.0**-1074, 1.7e308], [0.0, -0.0]]


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, ">f8", np.longdouble, object])
def test_float_arrays(dtype):
    rows = [[x if abs(x) < 6e4 else 5.5 for x in row] for row in FLOATS] if dtype == np.float16 else FLOATS
    with np.errstate(over="ignore"):
        array = np.array(
            [[x if abs(x) < 1e38 or dtype != np.float32 else 7.0 for x in row] for row in rows], dtype
        )
    expected = [[Fraction(*x.as_integer_ratio()) for x in row] for row in array.tolist()]
    assert exactly(array) == expected
    assert exactly(np.asfortranarray(array)[::-1]) == expected[::-1]
    assert exactly(list(array)) == expected


def test_longdouble_keeps_all_its_bits():
    x = np.longdouble(1) + np.finfo(np.longdouble).eps
    assert exactly([[x]]) == [[Fraction(*x.as_integer_ratio())]] != [[1]]


@pytest.mark.parametrize("dtype", [np.int8, np.uint64, np.int64])
def test_integer_arrays(dtype):
    info = np.iinfo(dtype)
    array = np.array([[info.min, info.max, 0]], dtype=dtype)
    assert exactly(array) == [array[0].tolist()]
    assert exactly([list(array[0])]) == [array[0].tolist()]


def test_python_numbers():
    row = [3, -(10**400), 0.1, Fraction(-7, 12), Fraction(1, 3**50)]
    assert exactly([row]) == [[Fraction(x) for x in row]]
    assert exactly((tuple(row),)) == exactly([row])


def test_decimals():
    row = [Decimal("0.1"), Decimal(-3), Decimal("1E-40"), Decimal("123456789123456789e20"), Decimal("-0"), 7, 0.5]
    assert exactly([row]) == [[Fraction(x) for x in row]]
    with pytest.raises(ValueError, match="row 0, column 1 of P is NaN"):
        convert([[1, Decimal("sNaN")]])
    with pytest.raises(ValueError, match="row 0, column 0 of P is infinite"):
        convert([[Decimal("-Infinity")]])
    with pytest.raises(ValueError, match="row 0, column 0 of P has a decimal exponent beyond 300000"):
        convert([[Decimal("1E+999999999999")]])


def test_rows_of_many_kinds_and_sizes():
    """Few numbers a row and many, kinds that change from row to row and within one, limbs that grow."""
    rows = [[3, -(2**70)], [0.5, -(2.0**-30)], [mpmath.mpf(5), 7], [-(10**300), 1], [-1, 1]] * 4000
    assert exactly(rows) == [[Fraction(int(x)) if x == int(x) else Fraction(x) for x in row] for row in rows]


def test_one_integer_far_longer_than_the_others_is_not_padded_for():
    rows = [[1, 2]] * 50 + [[10**40_000, -3]]
    assert isinstance(convert(rows), Ratios)
    assert exactly(rows) == rows


def test_mpmath_numbers():
    own = mpmath.MPContext()
    own.prec = 300
    third = own.mpf(1) / 3
    (row,) = exactly([[mpmath.mpf(-1.5), third, mpmath.mpf(0), mpmath.ldexp(1, -5000)]])
    assert row[0] == Fraction(-3, 2) and abs(row[1] - Fraction(1, 3)) < Fraction(1, 2**300)
    assert row[2:] == [0, Fraction(1, 2**5000)]
    assert exactly(mpmath.matrix([[1, 2], [3, 4.5]])) == [[1, 2], [3, Fraction(9, 2)]]


def test_gmpy2_numbers():
    gmpy2 = pytest.importorskip("gmpy2")
    row = [
        gmpy2.mpz(-(2**90)),
        gmpy2.mpq(5, 12),
        gmpy2.mpfr("0.1"),
        gmpy2.mpfr(0),
        gmpy2.mpfr(-0.0),
        gmpy2.xmpz(6),
    ]
    assert exactly([row]) == [[-(2**90), Fraction(5, 12), Fraction(0.1), 0, 0, 6]]
    with pytest.raises(ValueError, match="row 0, column 1 of P is NaN"):
        convert([[1, gmpy2.mpfr("nan")]])
    with pytest.raises(ValueError, match="infinite"):
        convert([[gmpy2.mpfr("-inf")]])
    with pytest.raises(TypeError, match="complex"):
        convert([[gmpy2.mpc(1)]])


def test_flint_numbers():
    flint = pytest.importorskip("flint")
    ball = flint.arb(1) / 3
    row = [flint.fmpz(-(2**90)), flint.fmpq(5, 12), flint.arb(0.1), ball]
    mantissa, exponent = (int(x) for x in ball.mid().man_exp())
    middle = mantissa * Fraction(2) ** exponent
    assert exactly([row]) == [[-(2**90), Fraction(5, 12), Fraction(0.1), middle]]
    assert exactly(flint.fmpz_mat([[1, 2], [3, 4]])) == [[1, 2], [3, 4]]
    with pytest.raises(ValueError, match="NaN or infinite"):
        convert([[flint.arb("nan")]])
    with pytest.raises(TypeError, match="complex"):
        convert([[flint.acb(1)]])


def test_fixed_point_limbs(comm):
    ints = np.array([[5, -(2**100)], [2**127 - 1, 0]], dtype=object)
    limbs = pchan.ints_to_limbs(ints, 2)
    assert exactly(limbs, scale_bits=60) == [[Fraction(x, 2**60) for x in row] for row in ints.tolist()]
    g = pchan.gram(limbs if comm.rank == 0 else limbs[:0], comm, 64, scale_bits=60, normalize=False)
    matrix = g.gather()
    if comm.rank == 0:
        assert matrix.tolist() == exact_gram(exactly(limbs, scale_bits=60))


@pytest.mark.parametrize("none", [[], (), np.empty((0, 2)), np.empty(0), np.empty((0, 2), dtype=object)], ids=repr)
def test_ranks_without_rows_learn_the_columns(comm, none):
    g = pchan.gram([[1, 2], [3, 5]] if comm.rank == comm.size - 1 else none, comm, 64, normalize=False)
    matrix = g.gather()
    assert (matrix is None) == (comm.rank != 0)
    assert matrix is None or matrix.tolist() == [[10, 17], [17, 29]]
