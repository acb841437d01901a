/* SPDX-License-Identifier: MIT
 * residues against bit-by-bit division; every kernel; the range limits. */
#include "testing_basis.h"

enum { N = 23 };

static void check_residues(int bits, uint64_t seed)
{
    pchan_basis *basis = make_basis(bits, 8);
    const uint64_t first_seed = seed;
    int n_limbs = pchan_basis_n_limbs(basis), n_primes = pchan_basis_n_primes(basis);
    uint64_t *x = calloc((size_t)(N * n_limbs), sizeof *x);
    double *r = calloc((size_t)(N * n_primes), sizeof *r);
    int64_t *wanted = calloc((size_t)(N * n_primes), sizeof *wanted);
    for (int k = 0; k < N; k++) {
        random_integer(x + k * n_limbs, n_limbs, bits, &seed);
        for (int i = 0; i < n_primes; i++) {
            wanted[i * N + k] = (int64_t)slow_mod(x + k * n_limbs, n_limbs, pchan_basis_primes(basis)[i]);
        }
    }
    const pch_kernel *kernel;
    pchan_error err;
    for (int number = 0; (kernel = pch_kernel_by_number(number)); number++) {
        pchan_basis_destroy(&basis);
        basis = make_basis_for(kernel, bits, 8);
        CHECK(pchan_residues(basis, x, N, r, &err) == PCHAN_OK, "%s", err.message);
        for (int i = 0; i < n_primes; i++) {
            int64_t p = pchan_basis_primes(basis)[i];
            for (int k = 0; k < N; k++) {
                int64_t got = (int64_t)r[i * N + k], want = wanted[i * N + k];
                CHECK((got - want) % p == 0 && 2 * llabs(got) < p,
                      "%s, %d bits, seed %llu, integer %d mod %lld: %lld", kernel->name, bits,
                      (unsigned long long)first_seed, k, (long long)p, (long long)got);
            }
        }
    }
    free(x);
    free(r);
    free(wanted);
    pchan_basis_destroy(&basis);
}

/* Fewer limbs than the basis has, into part of a wider table. */
static void check_part(int bits, int n_limbs, uint64_t seed)
{
    pchan_basis *basis = make_basis(bits, 8);
    enum { STRIDE = N + 3 };
    int n_primes = pchan_basis_n_primes(basis);
    uint64_t *x = calloc((size_t)(N * n_limbs), sizeof *x);
    double *r = calloc((size_t)(STRIDE * n_primes), sizeof *r);
    for (int i = 0; i < STRIDE * n_primes; i++) r[i] = 0.5;
    for (int k = 0; k < N; k++) random_integer(x + k * n_limbs, n_limbs, 64 * n_limbs - 1, &seed);
    CHECK(pchan_residues_strided(basis, x, n_limbs, N, r + 1, STRIDE, NULL) == PCHAN_OK, "%d limbs", n_limbs);
    for (int i = 0; i < n_primes; i++) {
        int64_t p = pchan_basis_primes(basis)[i];
        for (int k = 0; k < N; k++) {
            int64_t got = (int64_t)r[i * STRIDE + 1 + k],
                    want = (int64_t)slow_mod(x + k * n_limbs, n_limbs, (uint64_t)p);
            CHECK((got - want) % p == 0 && 2 * llabs(got) < p, "%d limbs, integer %d mod %lld", n_limbs, k,
                  (long long)p);
        }
        CHECK(r[i * STRIDE] == 0.5 && r[i * STRIDE + 1 + N] == 0.5, "prime %d: written beside the table", i);
    }
    pchan_error err;
    CHECK(pchan_residues_strided(basis, x, 0, 1, r, 1, &err) == PCHAN_ERR_ARG, "no limbs");
    CHECK(pchan_residues_strided(basis, x, pchan_basis_n_limbs(basis) + 1, 1, r, 1, &err) == PCHAN_ERR_ARG,
          "too many");
    free(x);
    free(r);
    pchan_basis_destroy(&basis);
}

/* Either side of where a symmetric residue changes its sign, after a quotient of many bits. */
static void check_halves(int bits)
{
    pchan_basis *basis = make_basis(bits, 8);
    int n_primes = pchan_basis_n_primes(basis), n_limbs = pchan_basis_n_limbs(basis);
    double *r = calloc((size_t)n_primes, sizeof *r);
    uint64_t *x = calloc((size_t)n_limbs, sizeof *x), seed = 5;
    for (int k = 0; k < (bits > 4096 ? 1 : 8) * n_primes; k++) {
        uint64_t p = pchan_basis_primes(basis)[k % n_primes], carry = k & 1 ? (p - 1) / 2 : (p + 1) / 2;
        random_integer(x, n_limbs, bits - 22, &seed);
        for (int i = 0; i < n_limbs; i++) { /* x = p x + carry, modulo 2^(64 n_limbs) */
            unsigned __int128 t = (unsigned __int128)x[i] * p + carry;
            x[i] = (uint64_t)t;
            carry = (uint64_t)(t >> 64);
        }
        CHECK(pchan_residues(basis, x, 1, r, NULL) == PCHAN_OK, "range");
        double want = (double)(p - 1) / 2 * (k & 1 ? 1 : -1);
        CHECK(r[k % n_primes] == want, "%d bits, k = %d: %g, not %g", bits, k, r[k % n_primes], want);
    }
    free(r);
    free(x);
    pchan_basis_destroy(&basis);
}

static void check_range(int bits)
{
    pchan_basis *basis = make_basis(bits, 8);
    int n_limbs = pchan_basis_n_limbs(basis);
    uint64_t *x = calloc((size_t)n_limbs, sizeof *x);
    double *r = calloc((size_t)pchan_basis_n_primes(basis), sizeof *r);
    pchan_error err = {0};
    if (bits % 64) { /* 2^bits fits into the limbs only then */
        x[bits / 64] = (uint64_t)1 << (bits % 64);
        pchan_status status = pchan_residues(basis, x, 1, r, &err);
        CHECK(status == PCHAN_ERR_RANGE && err.index == 0, "2^%d is accepted", bits);
        negate(x, n_limbs);
        CHECK(pchan_residues(basis, x, 1, r, NULL) == PCHAN_ERR_RANGE, "-2^%d is accepted", bits);
        x[0] += 1;
        CHECK(pchan_residues(basis, x, 1, r, NULL) == PCHAN_OK, "-2^%d + 1 is refused", bits);
    }
    free(x);
    free(r);
    pchan_basis_destroy(&basis);
}

int main(void)
{
    for (int i = 0; i < N_ALL_BITS; i++) {
        check_residues(all_bits[i], 1000 + (uint64_t)i);
        check_range(all_bits[i]);
    }
    check_halves(2049);
    check_halves(8200);
    for (int n_limbs = 1; n_limbs < 20; n_limbs++) check_part(2049, n_limbs, (uint64_t)n_limbs);
    check_residues(20000, 7); /* more pieces than one exact product can sum */
    return 0;
}
