/* SPDX-License-Identifier: MIT
 *
 * The residue number system: tables made once by primes.c, and the workers of the pure stages.
 *
 * Exactness.  Arithmetic on residues is float64 on integers below 2^53 in size, hence exact, and
 * stays exact if the compiler fuses multiply and add. The sums of restore are uint64: n words give
 * 2 n + 1 products, c = low + 2^32 high with low < 2^32 and high < 1.25 * 2^30, with digits of
 * digit_bits, and a carry; (5.25 n + 1) 2^(30 + digit_bits) <= 2^64 holds them.
 */
#ifndef PCH_BASIS_H
#define PCH_BASIS_H

#include "pch_pure.h"

enum {
    PCH_LANES = 4, /* integers and columns that the dot kernel takes at once */
    PCH_PANEL = 8,
    PCH_BATCH = 16,     /* integers that restore takes at once */
    PCH_SPLIT_BITS = 21 /* p0 p1 = p01_high * 2^21 + p01_low */
};

typedef struct pch_word {    /* constants to join three residues into a word (Garner), symmetric */
    double p[3], inverse[3]; /* primes and 1/p; missing primes are 1 */
    double two_32[3];        /* 2^32 mod p */
    double inv_01, inv_012;  /* 1/p0 mod p1, 1/(p0 p1) mod p2 */
    double v1_weight;        /* -1/p1 mod p2 */
    double p01_high, p01_low;
    uint64_t modulus; /* p0 p1 p2, below 2^62 */
} pch_word;

/* kernels.c. All pointers may be unaligned. */
typedef struct pch_kernel {
    const char *name;
    /* out[e][v] = sum over k of a[k][e] * b[k][v], for PCH_LANES x PCH_PANEL sums */
    void (*dot)(const double *a, const double *b, size_t n, double *out);
    /* sum[i] = (sum[i] + words[i]) mod moduli[i]; all ones when either is not canonical */
    void (*accumulate)(const uint64_t *moduli, uint64_t *sum, const uint64_t *words, size_t n);
    /* n residues of each of three primes, contiguous, to words; n a multiple of 8. False, and out
     * undefined, when some float64 is not an integer or not below 2^51 in size. */
    bool (*join)(const pch_word *word, const void *const r[3], pchan_dtype dtype, size_t n, uint64_t *out);
    /* c [n_slots][PCH_BATCH] to x, wide [n_wide_limbs][PCH_BATCH], `columns` digits at a time */
    void (*restore)(const pchan_basis *basis, const uint64_t *c, uint64_t *wide);
    int columns;
} pch_kernel;

/* The fastest that runs here, or the one that PCHAN_KERNEL names. PCHAN_ERR_ARG. */
pchan_status pch_kernel_choose(const pch_kernel **kernel, pchan_error *err);
/* Kernel 0 (the portable one), 1, ... of those that run here; NULL after the last. */
const pch_kernel *pch_kernel_by_number(int number);

struct pchan_basis {
    int bits, check_bits, n_primes, n_words, n_limbs;
    uint32_t *primes;
    pch_word *words;  /* [n_words] */
    uint64_t *moduli; /* of the words, PCH_BATCH times over: [PCH_BATCH][n_words] */

    /* residues: x = sum of 24-bit pieces of x times powers [n_primes / PCH_LANES][n_pieces][PCH_LANES] */
    int n_pieces;
    double *powers;

    /* restore, with m a word's modulus: c = word * (M/m)^-1 mod m, by Shoup's multiplication with
     * weight_shoup = floor(weight * 2^64 / m). Slots 2 w and 2 w + 1 are the halves of c of word w,
     * the last is q; their products with the cofactors are the digits of x in two's
     * complement, enough for its sign. n_wide_limbs hold them. */
    int n_slots, digit_bits, n_digits, n_wide_limbs;
    uint64_t *weight, *weight_shoup; /* [n_words] */
    double *word_inverse;            /* 1/m, [n_words] */
    uint32_t *cofactors;             /* digits of M/m, 2^32 M/m and -M: [n_digits / columns][n_slots][columns] */
    uint64_t *modulus;               /* M, [n_modulus_limbs] */
    int n_modulus_limbs;

    const pch_kernel *kernel; /* decides the order of the cofactors */
};

/* pack.c. Columns first_col .. first_col + n_cols - 1 of one row of a tile [n_primes][rows][cols]
 * to words [n_cols][n_words]. PCHAN_ERR_ARG and *bad_col, the first column where some residue is
 * not an integer of at most 2^53: words are then undefined. */
pchan_status pch_pack_row(const pchan_basis *basis, const pchan_array *tile, size_t row, size_t first_col,
                          size_t n_cols, uint64_t *words, size_t *bad_col);

/* words = -words, n elements. */
void pch_negate_words(const pchan_basis *basis, uint64_t *words, size_t n);

/* restore.c */
size_t pch_restore_scratch_bytes(const pchan_basis *basis);
/* As pchan_restore, without allocating; scratch of that size. */
pchan_status pch_restore_unchecked(const pchan_basis *basis, const uint64_t *words, size_t n, uint64_t *limbs,
                                   void *scratch, size_t *bad_index);

/* restore_reference.c: the same. */
size_t pch_restore_reference_scratch_bytes(const pchan_basis *basis);
pchan_status pch_restore_reference_unchecked(const pchan_basis *basis, const uint64_t *words, size_t n,
                                             uint64_t *limbs, void *scratch, size_t *bad_index);

/* limbs.c: is x (two's complement, n_wide limbs) within |x| < 2^bits? */
bool pch_limbs_in_range(const uint64_t *wide, int n_wide, int bits);

#endif
