/* SPDX-License-Identifier: MIT
 *
 * pack: three residues to one word, w = x mod p0 p1 p2, by mixed radix digits (Garner 1959):
 *   v1 = (r1 - r0) / p0 mod p1,  v2 = (r2 - r0 - p0 v1) / (p0 p1) mod p2,  w = r0 + p0 v1 + p0 p1 v2.
 * accumulate: sums of words modulo p0 p1 p2.
 *
 *   residues [n_primes][rows][cols], any representative  -->  words uint64[...][n_words], canonical
 *
 * Columns are taken in stretches so that the three residues of a word are three short arrays and
 * the arithmetic on them vectorises.
 */
#include "pch_basis.h"
#include "pch_mod.h"

#include <math.h>

enum { STRETCH = 64 };

#define LARGEST_INTEGER 9007199254740992.0 /* 2^53 */

static const char *address(const pchan_array *a, size_t prime, size_t row, size_t col)
{
    return (const char *)a->data + (ptrdiff_t)prime * a->strides[0] + (ptrdiff_t)row * a->strides[1] +
           (ptrdiff_t)col * a->strides[2];
}

pchan_status pch_pack_check(const pchan_array *tile, size_t row, size_t first_col, size_t n_cols, size_t *bad_col)
{
    const double half = LARGEST_INTEGER / 2; /* from here on every float64 is an integer */
    if (tile->dtype != PCHAN_FLOAT64) return PCHAN_OK;
    for (size_t i = 0; i < tile->shape[0]; i++) {
        const char *place = address(tile, i, row, first_col);
        for (size_t c = 0; c < n_cols; c++, place += tile->strides[2]) {
            double x = *(const double *)place;
            double size = fabs(x);
            bool integer = size >= half ? size <= LARGEST_INTEGER : (size + half) - half == size;
            if (integer) continue; /* false for NaN */
            *bad_col = first_col + c;
            return PCHAN_ERR_ARG;
        }
    }
    return PCHAN_OK;
}

/* Representatives to [0, p). A float64 above 2^52 first loses a multiple of p that leaves it in
 * the range where the reduction is exact. */
static void load_float64(const char *place, ptrdiff_t stride, size_t n, double p, double inverse, double *r)
{
    const double half = LARGEST_INTEGER / 2, multiple = p * 2147483648.0;
    for (size_t c = 0; c < n; c++, place += stride) {
        double x = *(const double *)place;
        x -= x > half ? multiple : 0;
        x += x < -half ? multiple : 0;
        r[c] = pch_canonical(pch_reduce(x, p, inverse), p);
    }
}

static void load_int64(const char *place, ptrdiff_t stride, size_t n, double p, double inverse, double *r)
{
    double two_32 = pch_canonical(pch_reduce(4294967296.0, p, inverse), p);
    for (size_t c = 0; c < n; c++, place += stride) {
        int64_t x = *(const int64_t *)place;
        double high = (double)(int32_t)(x >> 32), low = (double)(uint32_t)x;
        r[c] = pch_canonical(pch_reduce(high * two_32 + low, p, inverse), p);
    }
}

static void load_uint32(const char *place, ptrdiff_t stride, size_t n, double p, double inverse, double *r)
{
    for (size_t c = 0; c < n; c++, place += stride) {
        r[c] = pch_canonical(pch_reduce((double)*(const uint32_t *)place, p, inverse), p);
    }
}

static void load(const pchan_array *tile, size_t prime, size_t row, size_t col, size_t n, double p, double inverse,
                 double *r)
{
    const char *place = address(tile, prime, row, col);
    ptrdiff_t stride = tile->strides[2];
    switch (tile->dtype) {
        case PCHAN_FLOAT64: load_float64(place, stride, n, p, inverse, r); break;
        case PCHAN_INT64: load_int64(place, stride, n, p, inverse, r); break;
        case PCHAN_UINT32: load_uint32(place, stride, n, p, inverse, r); break;
    }
}

static inline __attribute__((always_inline)) void join_body(const pch_word *word, const double *r0,
                                                            const double *r1, const double *r2, size_t n,
                                                            double *low, double *high)
{
    const double p0 = word->p[0], p1 = word->p[1], p2 = word->p[2];
    const double inverse1 = word->inverse[1], inverse2 = word->inverse[2];
    for (size_t c = 0; c < n; c++) {
        double d1 = pch_reduce(r1[c] - r0[c], p1, inverse1);
        double v1 = pch_canonical(pch_reduce(d1 * word->inv_01, p1, inverse1), p1);
        double w01 = r0[c] + p0 * v1;
        double d2 = pch_reduce(r2[c] - w01, p2, inverse2);
        low[c] = w01;
        high[c] = pch_canonical(pch_reduce(d2 * word->inv_012, p2, inverse2), p2);
    }
}

static void join_words(const pch_word *word, double r[3][STRETCH], size_t n, uint64_t *out, size_t n_words)
{
    double low[STRETCH], high[STRETCH];
    join_body(word, r[0], r[1], r[2], n, low, high);
    for (size_t c = 0; c < n; c++) {
        out[c * n_words] = (uint64_t)(int64_t)low[c] + word->p01 * (uint64_t)(int64_t)high[c];
    }
}

void pch_pack_row_unchecked(const pchan_basis *basis, const pchan_array *tile, size_t row, size_t first_col,
                            size_t n_cols, uint64_t *words)
{
    size_t n_words = (size_t)basis->n_words, n_primes = (size_t)basis->n_primes;
    double r[3][STRETCH];
    for (size_t col = 0; col < n_cols; col += STRETCH) {
        size_t n = n_cols - col < STRETCH ? n_cols - col : STRETCH;
        for (size_t w = 0; w < n_words; w++) {
            const pch_word *word = &basis->words[w];
            for (size_t k = 0; k < 3; k++) {
                if (3 * w + k < n_primes) {
                    load(tile, 3 * w + k, row, first_col + col, n, word->p[k], word->inverse[k], r[k]);
                } else {
                    for (size_t c = 0; c < n; c++) r[k][c] = 0; /* modulo 1 */
                }
            }
            join_words(word, r, n, words + col * n_words + w, n_words);
        }
    }
}

pchan_status pchan_pack(const pchan_basis *basis, const pchan_array *residues, uint64_t *words, pchan_error *err)
{
    size_t rows = residues->shape[1], cols = residues->shape[2];
    if (residues->shape[0] != (size_t)basis->n_primes) {
        return pch_fail(err, PCHAN_ERR_ARG, "pack: %zu residues per integer, but the basis has %d primes",
                        residues->shape[0], basis->n_primes);
    }
    for (size_t row = 0; row < rows; row++) {
        size_t bad;
        if (pch_pack_check(residues, row, 0, cols, &bad) != PCHAN_OK) {
            pch_fail(err, PCHAN_ERR_ARG, "pack: residue of integer %zu is not an integer of at most 2^53 in size",
                     row * cols + bad);
            if (err) err->index = (int64_t)(row * cols + bad);
            return PCHAN_ERR_ARG;
        }
        pch_pack_row_unchecked(basis, residues, row, 0, cols, words + row * cols * (size_t)basis->n_words);
    }
    return PCHAN_OK;
}

void pch_add_words(const pchan_basis *basis, uint64_t *sum, const uint64_t *words)
{
    for (int w = 0; w < basis->n_words; w++) {
        uint64_t modulus = basis->words[w].modulus, s = sum[w] + words[w];
        sum[w] = s >= modulus ? s - modulus : s;
    }
}

void pchan_accumulate(const pchan_basis *basis, uint64_t *sum, const uint64_t *words, size_t n)
{
    size_t n_words = (size_t)basis->n_words;
    for (size_t i = 0; i < n; i++) pch_add_words(basis, sum + i * n_words, words + i * n_words);
}
