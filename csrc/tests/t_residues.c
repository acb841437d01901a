/* SPDX-License-Identifier: MIT
 * residues against bit-by-bit division; every kernel; the range limits. */
#include "testing_basis.h"

enum { N = 23 };

static void check_residues(int bits, uint64_t seed)
{
    pchan_basis *basis = make_basis(bits, 8);
    uint64_t first_seed = seed;
    int n_limbs = pchan_basis_n_limbs(basis), n_primes = pchan_basis_n_primes(basis);
    uint64_t *x = calloc((size_t)(N * n_limbs), sizeof *x);
    double *r = calloc((size_t)(N * n_primes), sizeof *r);
    for (int k = 0; k < N; k++) random_integer(x + k * n_limbs, n_limbs, bits, &seed);
    const pch_kernel *kernel;
    pchan_error err;
    for (int number = 0; (kernel = pch_kernel_by_number(number)) && (basis->kernel = kernel); number++) {
        CHECK(pchan_residues(basis, x, N, r, &err) == PCHAN_OK, "%s", err.message);
        for (int i = 0; i < n_primes; i++) {
            int64_t p = pchan_basis_primes(basis)[i];
            for (int k = 0; k < N; k++) {
                int64_t got = (int64_t)r[i * N + k];
                int64_t want = (int64_t)slow_mod(x + k * n_limbs, n_limbs, (uint64_t)p);
                CHECK((got - want) % p == 0 && 2 * llabs(got) < p,
                      "%s, %d bits, seed %llu, integer %d mod %lld: %lld", kernel->name, bits,
                      (unsigned long long)first_seed, k, (long long)p, (long long)got);
            }
        }
    }
    free(x);
    free(r);
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
    check_residues(20000, 7); /* more pieces than one exact product can sum */
    return 0;
}
