/* SPDX-License-Identifier: MIT
 *
 * restore: words to integers by the Chinese remainder theorem, on the words' moduli m = p0 p1 p2.
 *
 *   c_w = word_w (M/m_w)^-1 mod m_w,   x = sum c_w (M/m_w) - q M,   q = round(sum c_w / m_w)
 *
 * The c are computed one by one with 64-bit multiplications (Shoup's: the quotient by a constant's
 * precomputed reciprocal) and written lane by lane. The sum is a product of their halves and q with
 * a table of digits, for PCH_BATCH integers at a time so that the table is read once for all of
 * them; carries turn the digits into limbs, in vectors too (kernels.c).
 *
 * q is right when |x| < M / 2 by more than rounding, for the sum is in float64: the spare bits
 * ensure it for every |x| < 2^bits; without any, M / 2^(bits + 1) - 1 is still above 2^-12 for all
 * the bases there are. Any other x fails the range test, and a word that is not canonical is
 * refused whatever x is.
 *
 *   words uint64[n][n_words], canonical  -->  limbs uint64[n][n_limbs], two's complement
 */
#include "pch_basis.h"

#include <string.h>

typedef unsigned __int128 u128;

enum { ALIGNMENT = 64 };

typedef struct scratch {
    uint64_t *c;    /* [n_slots][PCH_BATCH] */
    uint64_t *wide; /* [n_wide_limbs][PCH_BATCH] */
} scratch;

size_t pch_restore_scratch_bytes(const pchan_basis *basis)
{
    size_t rows = (size_t)basis->n_slots + (size_t)basis->n_wide_limbs;
    return rows * PCH_BATCH * sizeof(uint64_t) + ALIGNMENT;
}

static scratch divide_scratch(const pchan_basis *basis, void *memory)
{
    char *aligned = (char *)memory + (ALIGNMENT - (uintptr_t)memory % ALIGNMENT);
    uint64_t *c = (uint64_t *)(void *)aligned;
    return (scratch){c, c + (size_t)basis->n_slots * PCH_BATCH};
}

/* The slots of one integer into its lane; false when a word is not canonical. */
static bool weigh(const pchan_basis *basis, const uint64_t *words, uint64_t *c)
{
    double sum = 0, other = 0; /* in turn, for an addition takes longer than the rest */
    bool canonical = true;
    for (int w = 0; w < basis->n_words; w++, c += 2 * PCH_BATCH) {
        uint64_t word = words[w], m = basis->moduli[w];
        canonical &= word < m;
        word = word < m ? word : 0;
        uint64_t quotient = (uint64_t)((u128)word * basis->weight_shoup[w] >> 64);
        uint64_t value = word * basis->weight[w] - quotient * m; /* below 1.25 m */
        c[0] = value;                                            /* the kernel takes the low half */
        c[PCH_BATCH] = value >> 32;
        double next = other + (double)(int64_t)value * basis->word_inverse[w];
        other = sum;
        sum = next;
    }
    c[0] = (uint64_t)(int64_t)(sum + other + 0.5);
    return canonical;
}

/* A lane of the kernel's result to limbs; true when |x| < 2^bits. */
static bool unload(const pchan_basis *basis, const uint64_t *lane, uint64_t *limbs)
{
    int n = basis->n_limbs;
    for (int i = 0; i < n; i++) limbs[i] = lane[i * PCH_BATCH];
    uint64_t sign = limbs[n - 1] >> 63 ? ~(uint64_t)0 : 0, wrong = 0;
    for (int i = n; i < basis->n_wide_limbs; i++) wrong |= lane[i * PCH_BATCH] ^ sign;
    return !wrong && pch_limbs_in_range(limbs, n, basis->bits);
}

pchan_status pch_restore_unchecked(const pchan_basis *basis, const uint64_t *words, size_t n, uint64_t *limbs,
                                   void *memory, size_t *bad_index)
{
    scratch s = divide_scratch(basis, memory);
    size_t n_words = (size_t)basis->n_words, n_limbs = (size_t)basis->n_limbs;
    pchan_status status = PCHAN_OK;
    memset(s.c, 0, (size_t)basis->n_slots * PCH_BATCH * sizeof *s.c); /* lanes never used */
    for (size_t first = 0; first < n; first += PCH_BATCH) {
        size_t n_lanes = n - first < PCH_BATCH ? n - first : PCH_BATCH;
        bool good[PCH_BATCH];
        for (size_t e = 0; e < n_lanes; e++) good[e] = weigh(basis, words + (first + e) * n_words, s.c + e);
        basis->kernel->restore(basis, s.c, s.wide);
        for (size_t e = 0; e < n_lanes; e++) {
            if (unload(basis, s.wide + e, limbs + (first + e) * n_limbs) && good[e]) continue;
            if (status == PCHAN_OK) *bad_index = first + e;
            status = PCHAN_ERR_RANGE;
        }
    }
    return status;
}

pchan_status pchan_restore(const pchan_basis *basis, const uint64_t *words, size_t n, uint64_t *limbs,
                           pchan_error *err)
{
    size_t bad = 0;
    void *memory = pch_alloc(1, pch_restore_scratch_bytes(basis));
    if (!memory) return pch_fail_nomem(err, "restore", pch_restore_scratch_bytes(basis));
    pchan_status status = pch_restore_unchecked(basis, words, n, limbs, memory, &bad);
    pch_free(memory);
    if (status == PCHAN_OK) return status;
    pch_tell(err, status, "restore: integer %zu does not satisfy |x| < 2^%d", bad, basis->bits);
    if (err) err->index = (int64_t)bad;
    return status;
}
