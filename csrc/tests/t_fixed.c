/* SPDX-License-Identifier: MIT
 * fixed point: quotients whose remainder is known, at both ends of its range; squares and tops against
 * 128-bit arithmetic; shifts that lose bits are refused. */
#include "testing_basis.h"

typedef unsigned __int128 u128;

static void product(const uint64_t *x, int n_x, const uint64_t *y, int n_y, uint64_t *out)
{
    memset(out, 0, (size_t)(n_x + n_y) * sizeof *out);
    for (int i = 0; i < n_x; i++) {
        uint64_t carry = 0;
        for (int j = 0; j < n_y; j++) {
            u128 t = (u128)x[i] * y[j] + out[i + j] + carry;
            out[i + j] = (uint64_t)t;
            carry = (uint64_t)(t >> 64);
        }
        out[i + n_y] = carry;
    }
}

static int bits_of(const uint64_t *x, int n)
{
    for (int b = 64 * n - 1; b >= 0; b--) {
        if (x[b / 64] >> (b % 64) & 1) return b + 1;
    }
    return 0;
}

static int compare(const uint64_t *x, const uint64_t *y, int n)
{
    for (int i = n - 1; i >= 0; i--) {
        if (x[i] != y[i]) return x[i] > y[i] ? 1 : -1;
    }
    return 0;
}

/* r = 2 r + bit - (d if that is not larger); returns whether d was taken away. One limb more than d. */
static int step(uint64_t *r, const uint64_t *d, int n, uint64_t bit)
{
    for (int i = 0; i < n; i++) {
        uint64_t top = r[i] >> 63;
        r[i] = r[i] << 1 | bit;
        bit = top;
    }
    if (compare(r, d, n) < 0) return 0;
    uint64_t borrow = 0;
    for (int i = 0; i < n; i++) {
        u128 t = (u128)r[i] - d[i] - borrow;
        r[i] = (uint64_t)t;
        borrow = (uint64_t)(t >> 64) & 1;
    }
    return 1;
}

/* floor((2^(bits(d) - 1 + 64 t) - 1) / d), bit by bit */
static void make_reciprocal(const uint64_t *d, int n_d, int t, uint64_t *out)
{
    uint64_t r[40] = {0}, wide[40] = {0};
    memcpy(wide, d, (size_t)n_d * sizeof *d);
    memset(out, 0, (size_t)t * sizeof *out);
    for (int b = bits_of(d, n_d) - 1 + 64 * t - 1; b >= 0; b--) {
        int bit = step(r, wide, n_d + 1, 1);
        if (b < 64 * t && bit) out[b / 64] |= (uint64_t)1 << (b % 64);
    }
}

enum { MAX_OUT = 8, MAX_DIV = 9, MAX_X = MAX_OUT + MAX_DIV + 1 };

/* x = q d + r must give q for 0 <= r < d, and with rounding q + 1 from r >= d / 2 on; negative, and shifted. */
static void check_quotient(int n_out, int n_div, uint64_t seed)
{
    uint64_t q[MAX_OUT] = {0}, d[MAX_DIV], x[MAX_X] = {0}, recip[MAX_OUT + 2], out[MAX_OUT], first = seed;
    int n_x = n_out + n_div + 1;
    random_integer(q, n_out, 64 * n_out - 4, &seed);
    if (q[n_out - 1] >> 63) negate(q, n_out);
    random_integer(d, n_div, 64 * n_div - 1, &seed);
    if (d[n_div - 1] >> 63) negate(d, n_div);
    if (bits_of(d, n_div) == 0) d[0] = 3;
    make_reciprocal(d, n_div, n_out + 2, recip);
    int kind = (int)(random_u64(&seed) % 4); /* remainder 0, d - 1, (d - 1) / 2, (d + 1) / 2 */
    product(q, n_out, d, n_div, x);
    uint64_t r[MAX_X] = {0};
    memcpy(r, d, (size_t)n_div * sizeof *d);
    uint64_t odd = kind == 3 ? 1 : (uint64_t)-1;
    for (int i = 0; i < n_x && kind; i++) { /* r + 1 or r - 1 */
        r[i] += odd;
        if (kind == 3 ? r[i] != 0 : r[i] != ~(uint64_t)0) break;
    }
    for (int i = 0; i < n_x && kind >= 2; i++) r[i] = r[i] >> 1 | (i + 1 < n_x ? r[i + 1] << 63 : 0);
    uint64_t carry = 0;
    for (int i = 0; i < n_x && kind; i++) {
        u128 t = (u128)x[i] + r[i] + carry;
        x[i] = (uint64_t)t;
        carry = (uint64_t)(t >> 64);
    }
    bool up = kind == 1 ? bits_of(d, n_div) > 1 : kind == 3 && (d[0] & 1);
    if (kind == 3 && !(d[0] & 1)) up = true;         /* r = d / 2: a tie, away from zero */
    if (kind == 3 && bits_of(d, n_div) == 1) return; /* d = 1 has no such remainder */
    bool negative = random_u64(&seed) & 1;
    if (negative) negate(x, n_x);
    int64_t exponent = (int64_t)(random_u64(&seed) % 1000) - 500, shift = -exponent;
    const pchan_fixed p = {x, &exponent, 1, 1, n_x};
    const pchan_divisors by = {d, recip, &shift, n_div};
    for (int nearest = 0; nearest < 2; nearest++) {
        pchan_error err = {0};
        CHECK(pchan_fixed_quantize(&p, &by, nearest, out, n_out, &err) == PCHAN_OK, "%s", err.message);
        uint64_t want[MAX_OUT];
        memcpy(want, q, sizeof want);
        for (int i = 0; i < n_out && nearest && up && ++want[i] == 0; i++) continue;
        if (negative) negate(want, n_out);
        CHECK(compare(out, want, n_out) == 0, "n_out %d, n_div %d, seed %llu, kind %d, nearest %d: %llx, not %llx",
              n_out, n_div, (unsigned long long)first, kind, nearest, (unsigned long long)out[0],
              (unsigned long long)want[0]);
    }
}

/* Quotients of any size, among them those below one, against 128-bit arithmetic. */
static void check_small(uint64_t seed)
{
    int bits = (int)(random_u64(&seed) % 62) + 1;
    int64_t x = (int64_t)(random_u64(&seed) >> (64 - bits)), exponent = 0;
    uint64_t d = (random_u64(&seed) >> (random_u64(&seed) % 63)) | 1, recip[3], out;
    int64_t shift = (int64_t)(random_u64(&seed) % 100) - 40;
    if (bits + shift > 120) return;
    u128 n = shift >= 0 ? (u128)x << shift : (u128)x, by = shift >= 0 ? d : (u128)d << -shift;
    if (n / by >= (u128)1 << 60) return;
    make_reciprocal(&d, 1, 3, recip);
    const pchan_fixed p = {(uint64_t *)&x, &exponent, 1, 1, 1};
    const pchan_divisors divisors = {&d, recip, &shift, 1};
    for (int nearest = 0; nearest < 2; nearest++) {
        CHECK(pchan_fixed_quantize(&p, &divisors, nearest, &out, 1, NULL) == PCHAN_OK, "range");
        uint64_t want = (uint64_t)(nearest ? (2 * n + by) / (2 * by) : n / by);
        CHECK(out == want, "%lld * 2^%lld / %llu, nearest %d: %llu, not %llu", (long long)x, (long long)shift,
              (unsigned long long)d, nearest, (unsigned long long)out, (unsigned long long)want);
    }
}

static void check_norms(uint64_t seed)
{
    int64_t x[6], exponents[6], tops[2] = {-1000, -1000}, bottom = 1000, want_tops[2] = {-1000, -1000}, low = 1000;
    int64_t shifts[2] = {(int64_t)(random_u64(&seed) % 20) - 10, -3};
    uint64_t sums[2][3] = {{0}};
    u128 want[2] = {0};
    for (int k = 0; k < 6; k++) {
        x[k] = (int64_t)random_u64(&seed) >> (20 + random_u64(&seed) % 44);
        if (random_u64(&seed) % 4 == 0) x[k] = -((int64_t)1 << random_u64(&seed) % 40);
        exponents[k] = (int64_t)(random_u64(&seed) % 9) - 4;
        if (!x[k]) continue;
        uint64_t size = (uint64_t)(x[k] < 0 ? -x[k] : x[k]);
        int64_t top = exponents[k] + bits_of(&size, 1), shift = shifts[k % 2] + 2 * exponents[k];
        if (top > want_tops[k % 2]) want_tops[k % 2] = top;
        if (exponents[k] + __builtin_ctzll(size) < low) low = exponents[k] + __builtin_ctzll(size);
        u128 square = (u128)size * size;
        want[k % 2] += shift >= 0 ? square << shift : (square + (((u128)1 << -shift) - 1)) >> -shift;
    }
    const pchan_fixed p = {(uint64_t *)x, exponents, 3, 2, 1};
    pchan_fixed_tops(&p, tops, &bottom);
    CHECK(tops[0] == want_tops[0] && tops[1] == want_tops[1] && bottom == low, "tops, seed %llu",
          (unsigned long long)seed);
    CHECK(pchan_fixed_squares(&p, shifts, sums[0], 3, NULL) == PCHAN_OK, "squares");
    for (int c = 0; c < 2; c++) {
        CHECK(sums[c][0] == (uint64_t)want[c] && sums[c][1] == (uint64_t)(want[c] >> 64) && !sums[c][2],
              "squares");
    }
}

/* (2^b - 1)^2 = 2^(2 b) - 2^(b + 1) + 1 */
static void check_long_square(int n_limbs)
{
    uint64_t x[20] = {0}, sums[44] = {0};
    int64_t exponent = 0, shift = 0;
    int b = 64 * n_limbs - 7;
    for (int i = 0; i < b; i++) x[i / 64] |= (uint64_t)1 << (i % 64);
    const pchan_fixed p = {x, &exponent, 1, 1, n_limbs};
    CHECK(pchan_fixed_squares(&p, &shift, sums, 44, NULL) == PCHAN_OK, "squares");
    for (int i = 0; i < 64 * 44; i++) {
        int bit = (int)(sums[i / 64] >> (i % 64) & 1);
        CHECK(bit == (i == 0 || (i > b && i < 2 * b)), "%d limbs, bit %d", n_limbs, i);
    }
}

static void check_align(void)
{
    int64_t x[2] = {-12, 5}, exponents[2] = {-2, 70};
    uint64_t out[2][3];
    pchan_error err;
    pchan_fixed p = {(uint64_t *)x, exponents, 1, 2, 1};
    CHECK(pchan_fixed_align(&p, 0, out[0], 3, &err) == PCHAN_OK, "%s", err.message);
    CHECK(out[0][0] == (uint64_t)-3 && out[0][2] == ~(uint64_t)0 && out[1][1] == 5 << 6 && !out[1][0], "align");
    CHECK(pchan_fixed_align(&p, 1, out[0], 3, &err) == PCHAN_ERR_RANGE && err.index == 0, "-3 is odd");
    CHECK(pchan_fixed_align(&p, 0, out[0], 1, &err) == PCHAN_ERR_RANGE && err.index == 1, "5 * 2^70 does not fit");
}

static void check_errors(void)
{
    int64_t x = 1, exponent = 0, shift = 64;
    uint64_t d = 1, recip[3], out;
    pchan_error err = {0};
    make_reciprocal(&d, 1, 3, recip);
    const pchan_fixed p = {(uint64_t *)&x, &exponent, 1, 1, 1};
    const pchan_divisors by = {&d, recip, &shift, 1};
    CHECK(pchan_fixed_quantize(&p, &by, 0, &out, 1, &err) == PCHAN_ERR_RANGE && err.index == 0, "2^64 in a limb");
    d = 0;
    CHECK(pchan_fixed_quantize(&p, &by, 0, &out, 1, &err) == PCHAN_OK && out == 0, "a zero column");
    pchan_set_allocator(&counting_door);
    allocations_left = 0;
    CHECK(pchan_fixed_quantize(&p, &by, 0, &out, 1, &err) == PCHAN_ERR_NOMEM, "memory");
    CHECK(pchan_fixed_squares(&p, &shift, &out, 1, &err) == PCHAN_ERR_NOMEM, "memory");
    CHECK(pchan_fixed_align(&p, 0, &out, 1, &err) == PCHAN_ERR_NOMEM, "memory");
    allocations_left = -1;
    pchan_set_allocator(NULL);
}

int main(void)
{
    for (uint64_t seed = 1; seed < 300; seed++) {
        for (int n_out = 1; n_out <= MAX_OUT; n_out += 3) {
            for (int n_div = 1; n_div <= MAX_DIV; n_div += 2) check_quotient(n_out, n_div, seed * 100);
        }
        for (uint64_t k = 0; k < 30; k++) check_small(seed * 1000 + k);
        check_norms(seed);
    }
    for (int n_limbs = 1; n_limbs <= 20; n_limbs++) check_long_square(n_limbs);
    check_align();
    check_errors();
    return 0;
}
