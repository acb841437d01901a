/* SPDX-License-Identifier: MIT
 *
 * restore, the slow and obvious way: mixed radix digits of all primes (Garner 1959), then Horner's
 * rule on limbs. Shares nothing with restore.c but the primes, so that each can check the other.
 */
#include "pch_basis.h"

typedef unsigned __int128 u128;

static uint64_t power_mod(uint64_t x, uint64_t e, uint64_t p)
{
    uint64_t result = 1;
    for (x %= p; e; e >>= 1, x = x * x % p) {
        if (e & 1) result = result * x % p;
    }
    return result;
}

static bool is_canonical(const pchan_basis *basis, const uint64_t *words)
{
    for (int w = 0; w < basis->n_words; w++) {
        uint64_t modulus = 1;
        for (int i = 3 * w; i < 3 * w + 3 && i < basis->n_primes; i++) modulus *= basis->primes[i];
        if (words[w] >= modulus) return false;
    }
    return true;
}

/* x = v[0] + v[1] p[0] + v[2] p[0] p[1] + ..., 0 <= v[i] < p[i] */
static void mixed_radix(const pchan_basis *basis, const uint64_t *words, uint64_t *v)
{
    for (int i = 0; i < basis->n_primes; i++) {
        uint64_t p = basis->primes[i], value = 0, product = 1;
        for (int k = 0; k < i; k++) {
            value = (value + v[k] * product) % p;
            product = product * (basis->primes[k] % p) % p;
        }
        uint64_t r = words[i / 3] % p;
        v[i] = (r + p - value) % p * power_mod(product, p - 2, p) % p;
    }
}

static void multiply_add(uint64_t *x, int n, uint64_t factor, uint64_t summand)
{
    u128 carry = summand;
    for (int i = 0; i < n; i++) {
        carry += (u128)x[i] * factor;
        x[i] = (uint64_t)carry;
        carry >>= 64;
    }
}

/* x - M into y; true when x >= M - x, that is when x stands for a negative number. */
static bool subtract_modulus(const uint64_t *x, const uint64_t *modulus, int n, uint64_t *y)
{
    unsigned borrow = 0, less = 0;
    for (int i = 0; i < n; i++) {
        u128 d = (u128)x[i] - modulus[i] - borrow;
        y[i] = (uint64_t)d;
        borrow = d >> 64 ? 1 : 0;
    }
    for (int i = 0; i < n; i++) {
        uint64_t minus = ~y[i];
        u128 d = (u128)x[i] - minus - less;
        less = d >> 64 ? 1 : 0;
    }
    return !less; /* x >= ~y = M - x - 1; equality is x = (M - 1) / 2, outside every basis */
}

size_t pch_restore_reference_scratch_bytes(const pchan_basis *basis)
{
    return ((size_t)basis->n_primes + 3 * ((size_t)basis->n_modulus_limbs + 1)) * sizeof(uint64_t);
}

pchan_status pch_restore_reference_unchecked(const pchan_basis *basis, const uint64_t *words, size_t n,
                                             uint64_t *limbs, void *scratch, size_t *bad_index)
{
    int n_wide = basis->n_modulus_limbs + 1, n_limbs = basis->n_limbs;
    pchan_status status = PCHAN_OK;
    uint64_t *v = scratch, *x = v + basis->n_primes, *y = x + n_wide, *modulus = y + n_wide;
    for (int i = 0; i < n_wide; i++) modulus[i] = i < basis->n_modulus_limbs ? basis->modulus[i] : 0;
    for (size_t k = 0; k < n; k++) {
        mixed_radix(basis, words + k * (size_t)basis->n_words, v);
        for (int i = 0; i < n_wide; i++) x[i] = 0;
        for (int i = basis->n_primes - 1; i >= 0; i--) multiply_add(x, n_wide, basis->primes[i], v[i]);
        const uint64_t *value = subtract_modulus(x, modulus, n_wide, y) ? y : x;
        for (int i = 0; i < n_limbs; i++) {
            limbs[k * (size_t)n_limbs + (size_t)i] = i < n_wide ? value[i] : value == y ? ~(uint64_t)0 : 0;
        }
        bool canonical = is_canonical(basis, words + k * (size_t)basis->n_words);
        if (canonical && pch_limbs_in_range(value, n_wide, basis->bits)) continue;
        if (status == PCHAN_OK) *bad_index = k;
        status = PCHAN_ERR_RANGE;
    }
    return status;
}

pchan_status pchan_restore_reference(const pchan_basis *basis, const uint64_t *words, size_t n, uint64_t *limbs,
                                     pchan_error *err)
{
    size_t bad = 0, bytes = pch_restore_reference_scratch_bytes(basis);
    void *scratch = pch_alloc(1, bytes);
    if (!scratch) return pch_fail_nomem(err, "restore", bytes);
    pchan_status status = pch_restore_reference_unchecked(basis, words, n, limbs, scratch, &bad);
    pch_free(scratch);
    if (status == PCHAN_OK) return status;
    pch_tell(err, status, "restore: integer %zu does not satisfy |x| < 2^%d", bad, basis->bits);
    if (err) err->index = (int64_t)bad;
    return status;
}
