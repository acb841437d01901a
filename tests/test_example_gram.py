"""The examples of gram."""

from fractions import Fraction

import mpmath
import numpy as np
import pytest
from oracle import exact_gram
from pchan.examples import gram_handover, gram_hilbert, sdpb_q

pytestmark = pytest.mark.mpi


@pytest.mark.parametrize(("n", "precision"), [(1, 64), (12, 1024), (25, 300)])
def test_hilbert_matrix_to_the_stated_accuracy(comm, n, precision):
    report = gram_hilbert.run(comm, n=n, precision=precision)
    assert report["within_bound"]
    assert 0 <= report["max_error"] <= report["bound"] <= mpmath.ldexp(2 * n, -precision)
    assert report["cond_number"] > 1 or n == 1


def test_nodes_integrate_exactly():
    nodes = [gram_hilbert.legendre_node(k, 5, 200) for k in range(5)]
    with mpmath.workprec(200):
        for power in range(10):
            integral = sum(weight * x**power for x, weight in nodes)
            assert abs(integral - mpmath.mpf(1) / (power + 1)) < mpmath.ldexp(1, -190)


@pytest.mark.sdpb_data
def test_sdpb_q(comm, sdpb):
    report = sdpb_q.run(comm, str(sdpb / "dfibo"), 256)
    assert report["check"] and abs(report["cond_number"] - 1886.3345) < 1e-3
    assert ("smallest_eigenvalue_above" in report) == (comm.rank == 0)


@pytest.mark.parametrize(("n", "block"), [(10, 2), (7, 3), (1, 4)])
def test_hand_over_to_scalapack_and_flint(comm, n, block):
    report = gram_handover.run(comm, n=n, block=block)
    (r, c), q = (
        report["grid"],
        np.array(exact_gram([[Fraction(1, i + j + 1) for j in range(n)] for i in range(n)])),
    )
    row, column = comm.rank % r, comm.rank // r
    rows = [i for i in range(n) if i // block % r == row]
    cols = [j for j in range(n) if j // block % c == column]
    mine = np.triu(q.astype(float))[np.ix_(rows, cols)]
    np.testing.assert_allclose(report["local"], mine, rtol=1e-15)
    pytest.importorskip("flint")
    with mpmath.workprec(500):
        hilbert = mpmath.det(mpmath.hilbert(n)) ** 2
        assert abs(report["determinant"] / hilbert - 1) < 1e-12
