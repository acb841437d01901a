/* SPDX-License-Identifier: MIT
 *
 * pack: three residues to one word, w = x mod p0 p1 p2, by mixed radix digits (Garner 1959):
 *   v1 = (r1 - r0) / p0 mod p1,  v2 = (r2 - r0 - p0 v1) / (p0 p1) mod p2,  w = r0 + p0 v1 + p0 p1 v2.
 * accumulate: sums of words modulo p0 p1 p2.
 *
 *   residues [n_primes][rows][cols], any representative  -->  words uint64[...][n_words], canonical
 *
 * Columns are taken in stretches: the three residues of a word are three short contiguous arrays,
 * read where they are if possible and copied otherwise, and the kernel joins them.
 */
#include "pch_basis.h"
#include "pch_mod.h"

#include <math.h>
#include <string.h>

enum { STRETCH = 64, STEP = 8 }; /* kernels take multiples of STEP */

#define LARGEST_INTEGER 9007199254740992.0 /* 2^53 */

static const double zeros[STRETCH]; /* residues modulo 1 */

static const char *address(const pchan_array *a, size_t prime, size_t row, size_t col)
{
    return (const char *)a->data + (ptrdiff_t)prime * a->strides[0] + (ptrdiff_t)row * a->strides[1] +
           (ptrdiff_t)col * a->strides[2];
}

static size_t round_up(size_t n)
{
    return (n + STEP - 1) / STEP * STEP;
}

/* n residues as a contiguous array of round_up(n). */
static const void *contiguous(const pchan_array *tile, const char *place, size_t n, void *copy)
{
    const size_t bytes = tile->dtype == PCHAN_UINT32 ? 4 : 8;
    const ptrdiff_t stride = tile->strides[2];
    const bool dense = stride == (ptrdiff_t)bytes;
    if (dense && n % STEP == 0) return place;
    char *out = copy;
    memset(out, 0, round_up(n) * bytes);
    if (dense) {
        memcpy(out, place, n * bytes);
    } else if (bytes == 4) {
        for (size_t c = 0; c < n; c++, place += stride) memcpy(out + 4 * c, place, 4);
    } else {
        for (size_t c = 0; c < n; c++, place += stride) memcpy(out + 8 * c, place, 8);
    }
    return out;
}

static bool is_integer(double x)
{
    const double half = LARGEST_INTEGER / 2; /* from here on every float64 is an integer */
    double size = fabs(x);
    return size >= half ? size <= LARGEST_INTEGER : (size + half) - half == size; /* false for NaN */
}

/* Integers up to 2^53 to symmetric residues. Above 2^52 a multiple of p comes off first, so that
 * the reduction is exact. False when one is no such integer. */
static bool reduce_large(const void *in, size_t n, double p, double inverse, double *out)
{
    const double half = LARGEST_INTEGER / 2, multiple = p * 2147483648.0;
    for (size_t c = 0; c < n; c++) {
        double x;
        memcpy(&x, (const char *)in + c * sizeof x, sizeof x);
        if (!is_integer(x)) return false;
        x -= x > half ? multiple : x < -half ? -multiple : 0;
        out[c] = pch_reduce(x, p, inverse);
    }
    return true;
}

/* The way of float64 residues that the kernel refuses. */
static bool join_large(const pchan_basis *basis, const pch_word *word, const void *const r[3], size_t n,
                       uint64_t *joined)
{
    double reduced[3][STRETCH];
    for (int k = 0; k < 3; k++) {
        if (!reduce_large(r[k], n, word->p[k], word->inverse[k], reduced[k])) return false;
    }
    return basis->kernel->join(word, (const void *const[3]){reduced[0], reduced[1], reduced[2]}, PCHAN_FLOAT64, n,
                               joined);
}

static bool pack_stretch(const pchan_basis *basis, const pchan_array *tile, size_t row, size_t col, size_t n,
                         uint64_t *words)
{
    size_t n_words = (size_t)basis->n_words, n_primes = (size_t)basis->n_primes;
    uint64_t copies[3][STRETCH], joined[STRETCH];
    for (size_t w = 0; w < n_words; w++) {
        const pch_word *word = &basis->words[w];
        const void *r[3];
        for (size_t k = 0; k < 3; k++) {
            size_t prime = 3 * w + k;
            r[k] = prime < n_primes ? contiguous(tile, address(tile, prime, row, col), n, copies[k]) : zeros;
        }
        if (!basis->kernel->join(word, r, tile->dtype, round_up(n), joined) &&
            !join_large(basis, word, r, round_up(n), joined)) {
            return false;
        }
        for (size_t c = 0; c < n; c++) words[c * n_words + w] = joined[c];
    }
    return true;
}

static size_t first_bad_column(const pchan_array *tile, size_t row, size_t col)
{
    for (;; col++) {
        for (size_t i = 0; i < tile->shape[0]; i++) {
            double x;
            memcpy(&x, address(tile, i, row, col), sizeof x);
            if (!is_integer(x)) return col;
        }
    }
}

pchan_status pch_pack_row(const pchan_basis *basis, const pchan_array *tile, size_t row, size_t first_col,
                          size_t n_cols, uint64_t *words, size_t *bad_col)
{
    for (size_t c = 0; c < n_cols; c += STRETCH) {
        size_t n = n_cols - c < STRETCH ? n_cols - c : STRETCH;
        if (pack_stretch(basis, tile, row, first_col + c, n, words + c * (size_t)basis->n_words)) continue;
        *bad_col = first_bad_column(tile, row, first_col + c);
        return PCHAN_ERR_ARG;
    }
    return PCHAN_OK;
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
        uint64_t *out = words + row * cols * (size_t)basis->n_words;
        if (pch_pack_row(basis, residues, row, 0, cols, out, &bad) == PCHAN_OK) continue;
        pch_tell(err, PCHAN_ERR_ARG, "pack: residue of integer %zu is not an integer of at most 2^53 in size",
                 row * cols + bad);
        if (err) err->index = (int64_t)(row * cols + bad);
        return PCHAN_ERR_ARG;
    }
    return PCHAN_OK;
}

void pch_negate_words(const pchan_basis *basis, uint64_t *words, size_t n)
{
    for (size_t k = 0; k < n; k++) {
        for (int w = 0; w < basis->n_words; w++, words++) *words = *words ? basis->words[w].modulus - *words : 0;
    }
}

void pchan_accumulate(const pchan_basis *basis, uint64_t *sum, const uint64_t *words, size_t n)
{
    size_t n_words = (size_t)basis->n_words;
    for (size_t k = 0; k < n; k += PCH_BATCH) {
        size_t count = n - k < PCH_BATCH ? n - k : PCH_BATCH;
        basis->kernel->accumulate(basis->moduli, sum + k * n_words, words + k * n_words, count * n_words);
    }
}
