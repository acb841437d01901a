/* SPDX-License-Identifier: MIT
 *
 * restore: words to integers by the Chinese remainder theorem.
 *
 *   c_i = r_i (M/p_i)^-1 mod p_i,   x = sum c_i (M/p_i) - q M,   q = round(sum c_i / p_i)
 *
 * The sum is a product of the c_i with a table of the digits of M/p_i, exact in float64, for
 * PCH_LANES integers at a time so that the table is read from the cache once for all of them;
 * carries turn the digits into limbs. q is right when |x| < M / 2 by more than rounding, which
 * the spare bits of the basis ensure for every |x| < 2^bits; any other x fails the range test.
 *
 *   words uint64[n][n_words], canonical  -->  limbs uint64[n][n_limbs], two's complement
 */
#include "pch_basis.h"
#include "pch_mod.h"

#include <math.h>
#include <string.h>

typedef struct scratch {
    double *c;      /* [n_slots][PCH_LANES] */
    double *digits; /* [PCH_LANES][n_digits] */
    uint64_t *wide; /* [n_wide_limbs] */
} scratch;

size_t pch_restore_scratch_bytes(const pchan_basis *basis)
{
    size_t n = (size_t)basis->n_slots * (PCH_LANES + 2) + (size_t)basis->n_digits * PCH_LANES +
               (size_t)basis->n_wide_limbs + 1;
    return n * sizeof(double);
}

static scratch divide_scratch(const pchan_basis *basis, void *memory)
{
    double *c = memory;
    double *digits = c + (size_t)basis->n_slots * PCH_LANES;
    return (scratch){c, digits, (uint64_t *)(digits + (size_t)basis->n_digits * PCH_LANES)};
}

/* c of one integer into lane e; returns the sum of c_i / p_i. */
static double weigh(const pchan_basis *basis, const uint64_t *words, double *c)
{
    double sum = 0;
    int n_words = basis->n_words;
    for (int k = 0; k < 3; k++) {
        const double *prime = basis->slot_prime + k * n_words, *inverse = basis->slot_inverse + k * n_words;
        const double *weight_high = basis->weight_high + k * n_words,
                     *weight_low = basis->weight_low + k * n_words;
        double *out = c + (size_t)k * (size_t)n_words * PCH_LANES;
        for (int w = 0; w < n_words; w++) {
            double high = (double)(int32_t)(words[w] >> 31), low = (double)(int32_t)(words[w] & 0x7fffffff);
            double r = pch_reduce(high * weight_high[w] + low * weight_low[w], prime[w], inverse[w]);
            out[w * PCH_LANES] = r;
            sum += r * inverse[w];
        }
    }
    return sum;
}

/* digits minus q M, with carries, to limbs; true when |x| < 2^bits. */
static bool carry(const pchan_basis *basis, const double *digits, double q, uint64_t *wide, uint64_t *limbs)
{
    int bits = basis->digit_bits, filled = 0, n = 0;
    int64_t rest = 0;
    const int64_t mask = ((int64_t)1 << bits) - 1;
    uint64_t limb = 0;
    for (int d = 0; d < basis->n_digits; d++) {
        rest += (int64_t)(digits[d] - q * basis->modulus_digits[d]);
        uint64_t digit = (uint64_t)(rest & mask);
        rest >>= bits; /* arithmetic: towards minus infinity */
        limb |= digit << filled;
        filled += bits;
        if (filled >= 64) {
            wide[n++] = limb;
            filled -= 64;
            limb = filled ? digit >> (bits - filled) : 0;
        }
    }
    if (n < basis->n_wide_limbs) wide[n++] = filled ? limb | (uint64_t)rest << filled : (uint64_t)rest;
    while (n < basis->n_wide_limbs) wide[n++] = rest < 0 ? ~(uint64_t)0 : 0;
    memcpy(limbs, wide, (size_t)basis->n_limbs * sizeof *limbs);
    return pch_limbs_in_range(wide, basis->n_wide_limbs, basis->bits);
}

pchan_status pch_restore_unchecked(const pchan_basis *basis, const uint64_t *words, size_t n, uint64_t *limbs,
                                   void *memory, size_t *bad_index)
{
    scratch s = divide_scratch(basis, memory);
    size_t n_words = (size_t)basis->n_words, n_limbs = (size_t)basis->n_limbs, n_slots = (size_t)basis->n_slots;
    pchan_status status = PCHAN_OK;
    for (size_t first = 0; first < n; first += PCH_LANES) {
        size_t n_lanes = n - first < PCH_LANES ? n - first : PCH_LANES;
        double q[PCH_LANES] = {0}, block[PCH_LANES * PCH_PANEL];
        if (n_lanes < PCH_LANES) memset(s.c, 0, n_slots * PCH_LANES * sizeof *s.c);
        for (size_t e = 0; e < n_lanes; e++) q[e] = rint(weigh(basis, words + (first + e) * n_words, s.c + e));
        for (int panel = 0; panel < basis->n_digit_panels; panel++) {
            basis->dot(s.c, basis->cofactors + (size_t)panel * n_slots * PCH_PANEL, n_slots, block);
            for (size_t e = 0; e < PCH_LANES; e++) {
                memcpy(s.digits + e * (size_t)basis->n_digits + (size_t)panel * PCH_PANEL, block + e * PCH_PANEL,
                       PCH_PANEL * sizeof *block);
            }
        }
        for (size_t e = 0; e < n_lanes; e++) {
            const double *digits = s.digits + e * (size_t)basis->n_digits;
            if (carry(basis, digits, q[e], s.wide, limbs + (first + e) * n_limbs)) continue;
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
    pch_fail(err, status, "restore: integer %zu does not satisfy |x| < 2^%d", bad, basis->bits);
    if (err) err->index = (int64_t)bad;
    return status;
}
