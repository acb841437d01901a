/* SPDX-License-Identifier: MIT
 *
 * Integers for the tests of the pure stages: biased to corners, and slow arithmetic to check with.
 */
#ifndef PCHAN_TESTING_BASIS_H
#define PCHAN_TESTING_BASIS_H

#include "../core/pch_basis.h"
#include "testing.h"

#include <string.h>

static const int all_bits[] = {1, 2, 63, 64, 65, 100, 127, 128, 512, 1024, 2049, 4096, 8200};
enum { N_ALL_BITS = sizeof all_bits / sizeof *all_bits };

static inline pchan_basis *make_basis(int bits, int check_bits)
{
    pchan_basis *basis = NULL;
    pchan_error err;
    CHECK(pchan_basis_create(bits, check_bits, &basis, &err) == PCHAN_OK, "%d bits: %s", bits, err.message);
    return basis;
}

/* One that uses the kernel. */
static inline pchan_basis *make_basis_for(const pch_kernel *kernel, int bits, int check_bits)
{
    setenv("PCHAN_KERNEL", kernel->name, 1);
    pchan_basis *basis = make_basis(bits, check_bits);
    unsetenv("PCHAN_KERNEL");
    CHECK(basis->kernel == kernel, "%s instead of %s", basis->kernel->name, kernel->name);
    return basis;
}

static inline void negate(uint64_t *x, int n)
{
    uint64_t carry = 1;
    for (int i = 0; i < n; i++) {
        x[i] = ~x[i] + carry;
        carry = carry && x[i] == 0;
    }
}

/* |x| < 2^bits: random, short, all ones, one bit, zero; both signs. n_limbs holds bits + 1 bits. */
static inline void random_integer(uint64_t *x, int n_limbs, int bits, uint64_t *seed)
{
    uint64_t kind = random_u64(seed) % 6;
    memset(x, 0, (size_t)n_limbs * sizeof *x);
    int n_bits = kind == 1 ? (int)(random_u64(seed) % (uint64_t)bits) + 1 : bits;
    for (int b = 0; b < n_bits; b++) {
        bool set = kind == 2 || (kind <= 1 && random_u64(seed) & 1) || (kind == 3 && b == n_bits - 1);
        if (set) x[b / 64] |= (uint64_t)1 << (b % 64);
    }
    if (kind == 4) x[0] = 1;
    if (random_u64(seed) & 1) negate(x, n_limbs);
}

/* x mod p in [0, p), by bits: as obvious as can be. */
static inline uint64_t slow_mod(const uint64_t *x, int n_limbs, uint64_t p)
{
    uint64_t r = 0;
    for (int b = 64 * n_limbs - 1; b >= 0; b--) {
        uint64_t bit = x[b / 64] >> (b % 64) & 1;
        if (b == 64 * n_limbs - 1 && bit) {
            r = p - 1; /* the sign bit counts -1 */
        } else {
            r = (2 * r + bit) % p;
        }
    }
    return r;
}

static inline void slow_words(const pchan_basis *basis, const uint64_t *x, uint64_t *words)
{
    const uint32_t *p = pchan_basis_primes(basis);
    int n_primes = pchan_basis_n_primes(basis);
    for (int w = 0; w < pchan_basis_n_words(basis); w++) {
        uint64_t modulus = 1;
        for (int i = 3 * w; i < 3 * w + 3 && i < n_primes; i++) modulus *= p[i];
        words[w] = slow_mod(x, pchan_basis_n_limbs(basis), modulus);
    }
}

#endif
