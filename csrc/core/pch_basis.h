/* SPDX-License-Identifier: MIT
 *
 * The residue number system: tables made once by primes.c, and the workers of the pure stages.
 *
 * Exactness.  All arithmetic on residues is float64 on integers below 2^53 in size, hence exact,
 * and stays exact if the compiler fuses multiply and add. With c_i symmetric, |c_i| < 2^19.67, and
 * cofactors M/p_i cut into digits of digit_bits, n products sum to less than n * 2^(19.67 +
 * digit_bits) <= 2^53.
 *
 * Order.  Residue tables are stored "by slot": slot k * n_words + w is the prime number 3 w + k,
 * so that the three residues of a run of words are three contiguous runs. Missing primes of the
 * last word have modulus 1 and weight 0.
 */
#ifndef PCH_BASIS_H
#define PCH_BASIS_H

#include "pch_pure.h"

enum { PCH_LANES = 4, PCH_PANEL = 8 }; /* integers and columns that the dot kernel takes at once */

typedef struct pch_word {    /* constants to join three residues into a word (Garner) */
    double p[3], inverse[3]; /* primes and 1/p */
    double inv_01, inv_012;  /* 1/p0 mod p1, 1/(p0 p1) mod p2 */
    uint64_t p01, modulus;   /* p0 p1, p0 p1 p2 */
} pch_word;

/* kernels.c: out[e][v] = sum over k of a[k][e] * b[k][v], for PCH_LANES x PCH_PANEL sums. */
typedef void pch_dot_kernel(const double *a, const double *b, size_t n, double *out);
pch_dot_kernel *pch_dot_best(void);
/* For tests: kernel 0, 1, ... and its name, NULL after the last; the portable one stands in for
 * those that this machine cannot run. */
pch_dot_kernel *pch_dot_by_number(int number, const char **name);

struct pchan_basis {
    int bits, check_bits, n_primes, n_words, n_limbs;
    uint32_t *primes;
    pch_word *words; /* [n_words] */

    /* residues: x = sum of 24-bit pieces of x times powers; powers [n_panels][n_pieces][PCH_PANEL],
     * the last piece is the sign: -2^(64 n_limbs) */
    int n_pieces, n_prime_panels;
    double *powers;

    /* restore, by slot: c = (high * weight_high + low * weight_low) mod p, where the word is
     * high * 2^31 + low; the product c * cofactors gives digits of x + q M */
    int n_slots, digit_bits, n_digits, n_digit_panels, n_wide_limbs;
    double *slot_prime, *slot_inverse, *weight_high, *weight_low;
    double *cofactors;      /* [n_digit_panels][n_slots][PCH_PANEL] */
    double *modulus_digits; /* [n_digit_panels * PCH_PANEL], of M */
    uint64_t *modulus;      /* M, [n_modulus_limbs] */
    int n_modulus_limbs;

    pch_dot_kernel *dot;
};

/* pack.c. One matrix row of a tile [n_primes][rows][cols], columns first_col .. first_col + n_cols - 1. */

/* PCHAN_ERR_ARG and *bad_col when some residue is not an integer of at most 2^53. */
pchan_status pch_pack_check(const pchan_array *tile, size_t row, size_t first_col, size_t n_cols, size_t *bad_col);

/* Residues already checked to words [n_cols][n_words]. */
void pch_pack_row_unchecked(const pchan_basis *basis, const pchan_array *tile, size_t row, size_t first_col,
                            size_t n_cols, uint64_t *words);

/* sum += words, one element. */
void pch_add_words(const pchan_basis *basis, uint64_t *sum, const uint64_t *words);

/* restore.c */
size_t pch_restore_scratch_bytes(const pchan_basis *basis);
/* As pchan_restore, without allocating; scratch of that size, 64-byte aligned. */
pchan_status pch_restore_unchecked(const pchan_basis *basis, const uint64_t *words, size_t n, uint64_t *limbs,
                                   void *scratch, size_t *bad_index);

/* limbs.c: is x (two's complement, n_wide limbs) within |x| < 2^bits? */
bool pch_limbs_in_range(const uint64_t *wide, int n_wide, int bits);

#endif
