"""PrimeBasis against Python integers."""

import copy
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import random_ints
from run_mpi import run_mpi

import pchan

BITS = [1, 64, 65, 100, 512, 1024, 2049, 4096]


def bases():
    return pytest.mark.parametrize("bits", BITS)


@bases()
def test_primes_and_sizes(bits):
    basis = pchan.PrimeBasis(bits, check_bits=11)
    product = 1
    for p in basis.primes:
        product *= int(p)
    assert product >= 2 ** (bits + 12) > product // int(basis.primes[-1])
    assert len(set(basis.primes)) == basis.n_primes and basis.primes.max() < 2**21
    assert basis.primes.dtype == np.uint32 and not basis.primes.flags.writeable
    assert basis.n_words == -(-basis.n_primes // 3) and basis.n_limbs == -(-(bits + 1) // 64)
    assert (basis.bits, basis.check_bits) == (bits, 11)
    assert pchan.PrimeBasis(2049).n_words == 34


@bases()
def test_residues_and_restore(bits):
    basis = pchan.PrimeBasis(bits)
    ints = random_ints(np.random.default_rng(bits), bits, (5, 4))
    limit = 2**bits - 1
    ints[0, :3] = [limit, -limit, 0]
    residues = basis.residues(ints)
    assert residues.dtype == np.float64 and residues.shape == (basis.n_primes, 5, 4)
    for p, r in zip(basis.primes, residues, strict=True):
        assert np.all(np.abs(r) <= (int(p) - 1) // 2)
        assert all((int(a) - b) % int(p) == 0 for a, b in zip(r.flat, ints.flat, strict=True))
    limbs = basis.restore(residues)
    assert limbs.dtype == np.uint64 and limbs.shape == (5, 4, basis.n_limbs)
    assert np.array_equal(pchan.limbs_to_ints(limbs), ints)


@bases()
def test_any_representative_and_any_strides(bits):
    basis = pchan.PrimeBasis(bits)
    rng = np.random.default_rng(bits)
    ints = random_ints(rng, bits, (6,))
    p = basis.primes.astype(np.int64)[:, None]
    canonical = basis.residues(ints).astype(np.int64) % p
    for spread, dtype in [(2**31, np.float64), (2**40, np.int64), (2**10, np.uint32)]:
        k = rng.integers(0 if dtype == np.uint32 else -spread, spread, canonical.shape)
        residues = (canonical + k * p).astype(dtype)
        wide = np.zeros((residues.shape[1], 2 * residues.shape[0]), dtype=dtype)
        wide[:, ::2] = residues.T
        for view in (residues, np.asfortranarray(residues), wide[:, ::2].T, residues[::-1].copy()[::-1]):
            assert np.array_equal(pchan.limbs_to_ints(basis.restore(view)), ints)
    assert np.array_equal(pchan.limbs_to_ints(basis.restore(canonical[:, ::-1])), ints[::-1])


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(BITS), st.integers(0, 30), st.data())
def test_round_trip(bits, check_bits, data):
    basis = pchan.PrimeBasis(bits, check_bits)
    x = data.draw(st.integers(-(2**bits) + 1, 2**bits - 1))
    assert pchan.limbs_to_ints(basis.restore(basis.residues(x))) == x


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 6), st.data())
def test_limbs(n_limbs, data):
    half = 2 ** (64 * n_limbs - 1)
    ints = data.draw(
        st.lists(st.integers(-half, half - 1) | st.sampled_from([-half, half - 1, 0, -1]), max_size=5)
    )
    limbs = pchan.ints_to_limbs(ints, n_limbs)
    assert limbs.dtype == np.uint64 and limbs.shape == (len(ints), n_limbs)
    assert list(pchan.limbs_to_ints(limbs)) == ints
    for x, row in zip(ints, limbs, strict=True):
        assert sum(int(limb) << 64 * k for k, limb in enumerate(row)) == x % 2 ** (64 * n_limbs)


def test_shapes():
    basis = pchan.PrimeBasis(70)
    for ints in (5, np.int8(-3), [], [[]], [1, 2], np.arange(6, dtype=np.uint16).reshape(1, 2, 3)):
        shape = np.shape(ints)
        residues = basis.residues(ints)
        assert residues.shape == (basis.n_primes, *shape)
        restored = pchan.limbs_to_ints(basis.restore(residues))
        assert restored.shape == shape and np.array_equal(restored.astype(object), np.asarray(ints, dtype=object))


@pytest.mark.parametrize("bits", [63, 64, 100])
def test_range(bits):
    basis = pchan.PrimeBasis(bits)
    wider = pchan.PrimeBasis(bits + 1, check_bits=7)
    assert wider.n_primes == basis.n_primes
    for x in (2**bits, -(2**bits)):
        with pytest.raises(pchan.RangeError, match="integer 1"):
            basis.residues([0, x])
        with pytest.raises(pchan.RangeError, match="integer 1"):
            basis.restore(wider.residues([0, x]))


def test_corruption_is_noticed():
    basis = pchan.PrimeBasis(1024, check_bits=20)
    residues = basis.residues(random_ints(np.random.default_rng(3), 1024, (50,)))
    for k in range(50):
        changed = residues[:, k].copy()
        changed[k % basis.n_primes] += 1 + k
        with pytest.raises(pchan.RangeError):
            basis.restore(changed)


def test_flipped_bits():
    """A word that becomes too large is always refused; others are missed as often as the spare bits tell."""
    rng = np.random.default_rng(11)
    too_large = missed = expected = 0
    for bits in range(300, 1000, 11):
        basis = pchan.PrimeBasis(bits, check_bits=1)
        product = np.prod(basis.primes.astype(object))
        moduli = [np.prod(basis.primes[k : k + 3].astype(object)) for k in range(0, basis.n_primes, 3)]
        ints = np.array(
            [int.from_bytes(rng.bytes(126), "little") % 2 ** (bits + 1) - 2**bits + 1 for _ in range(100)]
        )
        words = np.array([[int(x) % m for m in moduli] for x in ints], dtype=np.uint64)
        limbs = np.empty((1, basis.n_limbs), dtype=np.uint64)
        for x, row in zip(ints, words, strict=True):
            w, bit = int(rng.integers(basis.n_words)), int(rng.integers(64))
            row[w] ^= np.uint64(1 << bit)
            wrong = int(row[w]) >= moduli[w]
            too_large += wrong
            expected += 0 if wrong else 2 ** (bits + 1) / product
            try:
                basis.restore_into(row, limbs)
            except pchan.RangeError:
                continue
            assert not wrong and abs(int(pchan.limbs_to_ints(limbs)[0]) - int(x)) % (product // moduli[w]) == 0
            missed += 1
    assert too_large > 150 and expected > 100 and 0.75 * expected < missed < 1.25 * expected


KERNEL = """
import hashlib, numpy as np, pchan
basis = pchan.PrimeBasis(2049)
rng = np.random.default_rng(1)
ints = [int.from_bytes(rng.bytes(256), "little") - 2**2047 for _ in range(100)]
residues = basis.residues(ints)
assert list(pchan.limbs_to_ints(basis.restore(residues))) == ints
words = np.empty((100, basis.n_words), dtype=np.uint64)
basis.pack_into(residues, words)
print(pchan._core.kernel, hashlib.sha256(words).hexdigest())
"""


@pytest.mark.launcher
def test_every_kernel():
    """PCHAN_KERNEL chooses, all give the same bits, and what this machine does not have is refused."""
    fastest, digest = run_mpi(1, KERNEL, PCHAN_KERNEL="").stdout.split()
    ran = []
    for name in ("portable", "avx2", "avx512", "abacus"):
        run = run_mpi(1, KERNEL, PCHAN_KERNEL=name)
        if run.returncode == 0:
            assert run.stdout.split() == [name, digest]
            ran.append(name)
        else:
            assert f"ValueError: basis: PCHAN_KERNEL={name}" in run.stderr and fastest in run.stderr
    assert ran[0] == "portable" and ran[-1] == fastest != "abacus"


def test_refused():
    basis = pchan.PrimeBasis(64)
    good = basis.residues([1, 2])
    for x in (1.0, "1", None, [1, 2.5], [[True]], 1j):
        with pytest.raises(TypeError):
            basis.residues(x)
    with pytest.raises(TypeError, match="at 1"):
        basis.residues([1, None])
    for dtype in (np.float32, np.int32, np.uint64, object, ">f8", complex):
        with pytest.raises(TypeError):
            basis.restore(good.astype(dtype))
    for wrong in (good[:-1], good.T, np.float64(1)):
        with pytest.raises(ValueError):
            basis.restore(wrong)
    for x in (np.nan, np.inf, -np.inf, 0.5, 2.0**53 + 2):
        bad = good.copy()
        bad[1, 1] = x
        with pytest.raises(ValueError, match="integer 1"):
            basis.restore(bad)
    for arguments in [(0,), (-5,), (70000,), (64, -1), (64, 65), (2**70,)]:
        with pytest.raises(ValueError):
            pchan.PrimeBasis(*arguments)
    for arguments in [("64",), (64.0,), (None,), ()]:
        with pytest.raises(TypeError):
            pchan.PrimeBasis(*arguments)
    for ints, n, error in [
        ([2**63], 1, ValueError),
        ([-(2**63) - 1], 1, ValueError),
        ([1.5], 1, TypeError),
        ([1], 0, ValueError),
    ]:
        with pytest.raises(error):
            pchan.ints_to_limbs(ints, n)
    with pytest.raises(TypeError):
        pchan.limbs_to_ints(np.zeros((2, 2)))
    with pytest.raises(ValueError):
        pchan.limbs_to_ints(np.zeros((), dtype=np.uint64))


def test_equality_and_copies():
    basis = pchan.PrimeBasis(100, 9)
    assert basis == pchan.PrimeBasis(100, 9) != pchan.PrimeBasis(100) and hash(basis) == hash(
        pchan.PrimeBasis(100, 9)
    )
    assert repr(basis) == "PrimeBasis(bits=100, check_bits=9)"
    assert pickle.loads(pickle.dumps(basis)) == copy.copy(basis) == copy.deepcopy(basis) == basis
