/* SPDX-License-Identifier: MIT
 *
 * Rows of P with a binary exponent per entry, entry = integer * 2^exponent, to integers.
 *
 *   tops, squares   what column norms are made of
 *   quantize        integer * 2^shift / divisor, rounded
 *   align           integer * 2^shift, exact
 *
 *   limbs uint64[n_rows][n_cols][n_limbs], exponents int64[n_rows][n_cols]
 *     -->  limbs uint64[n_rows][n_cols][n_out], two's complement
 *
 * quantize multiplies by a reciprocal (Barrett 1986): the product of the leading limbs tells the
 * quotient and its fraction to within a few units of the last place, and only when an integer lies
 * as close as that, a full product decides.
 */
#include "pch_pure.h"

#include <string.h>

typedef unsigned __int128 u128;

/* |x| and its number of limbs that count. */
static int magnitude(const uint64_t *x, int n, uint64_t *m)
{
    uint64_t flip = x[n - 1] >> 63 ? ~(uint64_t)0 : 0, carry = flip & 1;
    for (int i = 0; i < n; i++) {
        m[i] = (x[i] ^ flip) + carry;
        carry = carry && m[i] == 0;
    }
    while (n > 0 && m[n - 1] == 0) n--;
    return n;
}

static uint64_t limb_at(const uint64_t *m, int n, int64_t i)
{
    return i >= 0 && i < n ? m[i] : 0;
}

/* Limb i of floor(m * 2^shift). */
static uint64_t shifted_limb(const uint64_t *m, int n, int64_t shift, int64_t i)
{
    int64_t first = 64 * i - shift, limb = first >> 6; /* arithmetic: towards minus infinity */
    int bit = (int)(first & 63);
    uint64_t low = limb_at(m, n, limb) >> bit;
    return bit ? low | limb_at(m, n, limb + 1) << (64 - bit) : low;
}

static void shifted(const uint64_t *m, int n, int64_t shift, uint64_t *out, int n_out)
{
    for (int i = 0; i < n_out; i++) out[i] = shifted_limb(m, n, shift, i);
}

/* Is m no multiple of 2^bits? */
static bool has_bits_below(const uint64_t *m, int n, int64_t bits)
{
    for (int i = 0; i < n && 64 * (int64_t)i < bits; i++) {
        int64_t left = bits - 64 * (int64_t)i;
        if (left >= 64 ? m[i] != 0 : m[i] << (64 - left) != 0) return true;
    }
    return false;
}

static void add_limb(uint64_t *sum, int n, uint64_t x)
{
    for (int i = 0; i < n && x; i++) {
        sum[i] += x;
        x = sum[i] < x;
    }
}

/* out[0 .. n] += x * factor; out[n] is written, not added to. */
static void add_product(const uint64_t *x, int n, uint64_t factor, uint64_t *out)
{
    uint64_t carry = 0;
    for (int i = 0; i < n; i++) {
        u128 t = (u128)x[i] * factor + out[i] + carry;
        out[i] = (uint64_t)t;
        carry = (uint64_t)(t >> 64);
    }
    out[n] = carry;
}

/* out [n_x + n_y] */
static void multiply(const uint64_t *x, int n_x, const uint64_t *y, int n_y, uint64_t *out)
{
    for (int i = 0; i < n_x; i++) out[i] = 0;
    for (int j = 0; j < n_y; j++) add_product(x, n_x, y[j], out + j);
}

/* out [2 n]: twice the products of different limbs, and the squares */
static void square(const uint64_t *x, int n, uint64_t *out)
{
    uint64_t carry = 0, doubled = 0;
    for (int i = 0; i < n; i++) out[i] = 0;
    for (int i = 0; i < n; i++) add_product(x + i + 1, n - i - 1, x[i], out + 2 * i + 1);
    for (int i = 0; i < n; i++) {
        uint64_t low = out[2 * i] << 1 | doubled, high = out[2 * i + 1] << 1 | out[2 * i] >> 63;
        doubled = out[2 * i + 1] >> 63;
        u128 s = (u128)x[i] * x[i], t = (u128)low + (uint64_t)s + carry;
        u128 u = (u128)high + (uint64_t)(s >> 64) + (uint64_t)(t >> 64);
        out[2 * i] = (uint64_t)t;
        out[2 * i + 1] = (uint64_t)u;
        carry = (uint64_t)(u >> 64);
    }
}

static void negate(uint64_t *x, int n)
{
    uint64_t carry = 1;
    for (int i = 0; i < n; i++) {
        x[i] = ~x[i] + carry;
        carry = carry && x[i] == 0;
    }
}

static void decrement(uint64_t *x, int n)
{
    for (int i = 0; i < n && x[i]-- == 0; i++) continue;
}

/* ---- norms ---- */

void pchan_fixed_tops(const pchan_fixed *p, int64_t *tops, int64_t *bottom)
{
    for (size_t k = 0; k < p->n_rows * p->n_cols; k++) {
        const uint64_t *x = p->limbs + k * (size_t)p->n_limbs;
        uint64_t flip = x[p->n_limbs - 1] >> 63 ? ~(uint64_t)0 : 0;
        int n = p->n_limbs, zeros = 0;
        while (n > 0 && x[n - 1] == flip) n--;
        while (zeros < p->n_limbs && x[zeros] == 0) zeros++;
        if (zeros == p->n_limbs) continue;
        /* |x| has one bit more than ~x for negative powers of two */
        int64_t bits = n ? 64 * (int64_t)n - __builtin_clzll(x[n - 1] ^ flip) : 0;
        int64_t low = 64 * (int64_t)zeros + __builtin_ctzll(x[zeros]);
        if (flip && low >= bits) bits = low + 1;
        int64_t top = p->exponents[k] + bits, *column = &tops[k % p->n_cols];
        if (top > *column) *column = top;
        if (p->exponents[k] + low < *bottom) *bottom = p->exponents[k] + low;
    }
}

/* sum += ceil(x * 2^shift) */
static void add_shifted(const uint64_t *x, int n, int64_t shift, uint64_t *sum, int n_sum)
{
    int64_t first = shift > 0 ? shift >> 6 : 0, last = (pch_bit_length(x, n) + shift + 63) >> 6;
    uint64_t carry = shift < 0 && has_bits_below(x, n, -shift);
    for (int64_t i = first; i < n_sum && (i < last || carry); i++) {
        u128 t = (u128)sum[i] + shifted_limb(x, n, shift, i) + carry;
        sum[i] = (uint64_t)t;
        carry = (uint64_t)(t >> 64);
    }
}

pchan_status pchan_fixed_squares(const pchan_fixed *p, const int64_t *shifts, uint64_t *sums, int n_sum,
                                 pchan_error *err)
{
    uint64_t *m = NULL;
    pchan_status status;
    PCH_TRY(PCH_ALLOC(m, 3 * (size_t)p->n_limbs, err));
    uint64_t *squared = m + p->n_limbs;
    for (size_t k = 0; k < p->n_rows * p->n_cols; k++) {
        int n = magnitude(p->limbs + k * (size_t)p->n_limbs, p->n_limbs, m);
        size_t column = k % p->n_cols;
        if (n == 0) continue;
        square(m, n, squared);
        add_shifted(squared, 2 * n, shifts[column] + 2 * p->exponents[k], sums + column * (size_t)n_sum, n_sum);
    }
done:
    pch_free(m);
    return status;
}

/* ---- integers ---- */

typedef struct quotient { /* what one entry needs, and scratch */
    const pchan_divisors *by;
    int n_recip, n_out;
    bool nearest;
    uint64_t *m;       /* [n_limbs] */
    uint64_t *lead;    /* [n_recip] leading limbs of m, the first bit at the top */
    uint64_t *product; /* [n_recip + 2] */
    uint64_t *full;    /* [n_out + 1 + n_limbs of divisors] */
    uint64_t *odd;     /* [n_out + 1] */
} quotient;

/* x * 2^shift >= y? Both positive. */
static bool at_least(const uint64_t *x, int n_x, int64_t shift, const uint64_t *y, int n_y)
{
    int64_t bits_x = pch_bit_length(x, n_x) + shift, bits_y = pch_bit_length(y, n_y);
    if (bits_x != bits_y) return bits_x > bits_y;
    int64_t x_shift = shift > 0 ? shift : 0, y_shift = shift < 0 ? -shift : 0;
    for (int64_t i = (bits_y + y_shift - 1) / 64; i >= 0; i--) {
        uint64_t a = shifted_limb(x, n_x, x_shift, i), b = shifted_limb(y, n_y, y_shift, i);
        if (a != b) return a > b;
    }
    return true;
}

/* Is m * 2^shift / divisor at least the integer `out`, or out - 1/2? */
static bool reaches(quotient *q, int n, int64_t shift, const uint64_t *divisor, const uint64_t *out)
{
    int n_div = q->by->n_limbs;
    shifted(out, q->n_out, q->nearest, q->odd, q->n_out + 1);
    if (q->nearest) { /* 2 m 2^shift >= (2 out - 1) divisor */
        decrement(q->odd, q->n_out + 1);
        shift += 1;
    }
    multiply(q->odd, q->n_out + 1, divisor, n_div, q->full);
    return at_least(q->m, n, shift, q->full, q->n_out + 1 + n_div);
}

/* product [n_recip + 1] = lead * reciprocal / 2^(64 n_recip), too small by less than n_recip + 1: partial
 * products that lie below are left out (Krandick and Johnson 1993). */
static void leading_product(quotient *q, const uint64_t *reciprocal)
{
    int t = q->n_recip;
    q->product[0] = 0;
    for (int i = 0; i < t; i++) add_product(reciprocal + t - 1 - i, i + 1, q->lead[i], q->product);
    memmove(q->product, q->product + 1, (size_t)t * sizeof *q->product);
    q->product[t] = 0;
}

/* |entry|, n limbs in q->m, times 2^shift / divisor of the column to out [n_out]; false: too large. */
static bool divide(quotient *q, int n, int64_t shift, size_t column, uint64_t *out)
{
    int t = q->n_recip;
    const uint64_t *divisor = q->by->limbs + column * (size_t)q->by->n_limbs;
    const uint64_t slack = (uint64_t)t + 8; /* units: leading_product, two for the reciprocal, one for lead */
    int64_t bits = pch_bit_length(q->m, n), bits_div = pch_bit_length(divisor, q->by->n_limbs);
    int64_t top = bits + shift - bits_div + 1; /* 2^(top - 2) < quotient < 2^top */
    memset(out, 0, (size_t)q->n_out * sizeof *out);
    if (bits == 0 || bits_div == 0 || top <= (q->nearest ? -1 : 0)) return true;
    if (top > 64 * (int64_t)q->n_out - 1) return false;
    shifted(q->m, n, 64 * (int64_t)t - bits, q->lead, t);
    leading_product(q, q->by->reciprocals + column * (size_t)t);
    int64_t point = 64 * (int64_t)t - top; /* bits behind the binary point */
    if (q->nearest) {
        int64_t half = point - 1;
        add_limb(q->product + half / 64, t + 1 - (int)(half / 64), (uint64_t)1 << (half % 64));
    }
    add_limb(q->product, t + 1, slack);
    shifted(q->product, t + 1, -point, out, q->n_out);
    if (q->product[0] >= slack || has_bits_below(q->product + 1, t, point - 64)) return true;
    if (pch_bit_length(out, q->n_out) && !reaches(q, n, shift, divisor, out)) decrement(out, q->n_out);
    return true;
}

static pchan_status too_large(const pchan_fixed *p, size_t k, const char *what, int n_out, pchan_error *err)
{
    pch_tell(err, PCHAN_ERR_RANGE, "%s: entry (%zu, %zu) does not fit %d limbs", what, k / p->n_cols,
             k % p->n_cols, n_out);
    if (err) err->index = (int64_t)k;
    return PCHAN_ERR_RANGE;
}

pchan_status pchan_fixed_quantize(const pchan_fixed *p, const pchan_divisors *by, int nearest, uint64_t *out,
                                  int n_out, pchan_error *err)
{
    int t = n_out + 2;
    uint64_t *scratch = NULL;
    pchan_status status;
    PCH_TRY(PCH_ALLOC(scratch, (size_t)(p->n_limbs + 2 * t + 2 + 2 * (n_out + 1) + by->n_limbs), err));
    quotient q = {.by = by, .n_recip = t, .n_out = n_out, .nearest = nearest != 0, .m = scratch};
    q.lead = q.m + p->n_limbs;
    q.product = q.lead + t;
    q.odd = q.product + t + 2;
    q.full = q.odd + n_out + 1;
    for (size_t k = 0; k < p->n_rows * p->n_cols; k++) {
        const uint64_t *x = p->limbs + k * (size_t)p->n_limbs;
        uint64_t *y = out + k * (size_t)n_out;
        size_t column = k % p->n_cols;
        int n = magnitude(x, p->n_limbs, q.m);
        if (!divide(&q, n, p->exponents[k] + by->shifts[column], column, y)) {
            status = too_large(p, k, "quantize", n_out, err);
            goto done;
        }
        if (x[p->n_limbs - 1] >> 63) negate(y, n_out);
    }
done:
    pch_free(scratch);
    return status;
}

pchan_status pchan_fixed_align(const pchan_fixed *p, int64_t exponent, uint64_t *out, int n_out, pchan_error *err)
{
    uint64_t *m = NULL;
    pchan_status status;
    PCH_TRY(PCH_ALLOC(m, (size_t)p->n_limbs, err));
    for (size_t k = 0; k < p->n_rows * p->n_cols; k++) {
        const uint64_t *x = p->limbs + k * (size_t)p->n_limbs;
        uint64_t *y = out + k * (size_t)n_out;
        int n = magnitude(x, p->n_limbs, m);
        int64_t shift = n ? p->exponents[k] - exponent : 0;
        if (has_bits_below(m, n, -shift) || pch_bit_length(m, n) + shift > 64 * (int64_t)n_out - 1) {
            status = too_large(p, k, "align", n_out, err);
            goto done;
        }
        shifted(m, n, shift, y, n_out);
        if (x[p->n_limbs - 1] >> 63) negate(y, n_out);
    }
done:
    pch_free(m);
    return status;
}
