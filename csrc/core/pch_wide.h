/* SPDX-License-Identifier: MIT
 *
 * Restored integers on their way, for the strategies that send integers instead of residues.
 *
 * A node's part of a sum is known modulo M only, and need not lie within the basis. So a part is any integer
 * of its class with |x| <= M / 2, a sum of parts is taken as it comes, and finish() gives the one integer of the
 * sum's class with |x| < 2^bits.
 *
 * An element is n_limbs limbs, two's complement, wide enough for the sum of n_parts parts, and a seal, the sum of
 * the limbs modulo 2^64: an integer has no spare residues to show that a bit was flipped on the way.
 */
#ifndef PCH_WIDE_H
#define PCH_WIDE_H

#include "pch_basis.h"

enum { PCH_WIDE_BLOCK = 256 }; /* elements restored at a time */

typedef struct pch_wide {
    const pchan_basis *basis; /* borrowed */
    pchan_basis *part;        /* the same primes, |x| < 2^(bits of M - 2) */
    int n_limbs;
    uint64_t *modulus;     /* M, [n_limbs] */
    uint64_t *shift;       /* A = M / 4 rounded down, [n_limbs] */
    uint64_t *shift_words; /* A, [n_words] */
    uint64_t *limbs, *one; /* scratch: [PCH_WIDE_BLOCK][limbs of part], and words of one element */
    void *restore_scratch;
} pch_wide;

/* Limbs of an element with its seal, for sums of n_parts. Pure. */
int pch_wide_element(const pchan_basis *basis, int n_parts);

/* ARG when the basis has too many bits, NOMEM. */
pchan_status pch_wide_create(const pchan_basis *basis, int n_parts, pch_wide **wide, pchan_error *err);
void pch_wide_destroy(pch_wide **wide);

/* Adds the integers of words [n][n_words] to sums [n][n_limbs + 1]; with `set` it overwrites them. n at most
 * PCH_WIDE_BLOCK. Seals are not touched. */
void pch_wide_add_words(pch_wide *wide, const uint64_t *words, size_t n, bool set, uint64_t *sums);

/* Adds element by element. False when the seal of some x does not fit; *bad_index is the first one. */
bool pch_wide_add(const pch_wide *wide, uint64_t *sums, const uint64_t *x, size_t n, size_t *bad_index);
bool pch_wide_check(const pch_wide *wide, const uint64_t *x, size_t n, size_t *bad_index);
void pch_wide_seal(const pch_wide *wide, uint64_t *x, size_t n);

/* Sums to limbs [n][n_limbs of the basis], sums are overwritten. False when some integer of a class is not
 * |x| < 2^bits; *bad_index is the first one. */
bool pch_wide_finish(const pch_wide *wide, uint64_t *sums, size_t n, uint64_t *limbs, size_t *bad_index);

#endif
