/* SPDX-License-Identifier: MIT
 *
 * PrimeBasis: chooses the primes and makes the tables of the other pure stages. Runs once per
 * plan; plain long arithmetic on limbs is fast enough (a few milliseconds at 2,049 bits).
 */
#include "pch_basis.h"

#include <math.h>
#include <string.h>

typedef unsigned __int128 u128;

enum { LARGEST_PRIME = 1664510, PIECE_BITS = 24 }; /* floor(2^(62/3)) */

/* ---- numbers of many limbs ---- */

static uint64_t multiply_small(uint64_t *x, int n, uint64_t factor)
{
    u128 carry = 0;
    for (int i = 0; i < n; i++) {
        carry += (u128)x[i] * factor;
        x[i] = (uint64_t)carry;
        carry >>= 64;
    }
    return (uint64_t)carry;
}

static uint64_t divide_small(const uint64_t *x, int n, uint64_t divisor, uint64_t *quotient)
{
    u128 rest = 0;
    for (int i = n - 1; i >= 0; i--) {
        rest = rest << 64 | x[i];
        if (quotient) quotient[i] = (uint64_t)(rest / divisor);
        rest %= divisor;
    }
    return (uint64_t)rest;
}

static int bit_length(const uint64_t *x, int n)
{
    while (n > 0 && !x[n - 1]) n--;
    return n ? 64 * n - __builtin_clzll(x[n - 1]) : 0;
}

static double digit(const uint64_t *x, int n, int first_bit, int n_bits)
{
    int limb = first_bit / 64, shift = first_bit % 64;
    if (limb >= n) return 0;
    uint64_t value = x[limb] >> shift;
    if (shift && limb + 1 < n) value |= x[limb + 1] << (64 - shift);
    return (double)(value & (((uint64_t)1 << n_bits) - 1));
}

/* ---- numbers modulo a prime ---- */

static uint64_t inverse_mod(uint64_t x, uint64_t p)
{
    uint64_t result = 1; /* x^(p-2), Fermat */
    for (uint64_t e = p - 2, base = x % p; e; e >>= 1, base = base * base % p) {
        if (e & 1) result = result * base % p;
    }
    return result;
}

static double symmetric(uint64_t x, uint64_t p)
{
    return x > p / 2 ? (double)x - (double)p : (double)x;
}

static bool is_prime(uint32_t n)
{
    if (n % 2 == 0) return n == 2;
    for (uint32_t d = 3; d * d <= n; d += 2) {
        if (n % d == 0) return false;
    }
    return n > 1;
}

/* ---- tables ---- */

/* The largest primes, until the product has more than bits + 1 + check_bits bits. */
static pchan_status choose_primes(pchan_basis *basis, pchan_error *err)
{
    int target = basis->bits + 1 + basis->check_bits;
    int room = target / 20 + 2; /* every prime has more than 20 bits */
    basis->n_modulus_limbs = target / 64 + 2;
    pchan_status status;
    PCH_TRY(PCH_ALLOC(basis->primes, (size_t)room, err));
    PCH_TRY(PCH_ALLOC(basis->modulus, (size_t)basis->n_modulus_limbs, err));
    basis->modulus[0] = 1;
    for (uint32_t p = LARGEST_PRIME; bit_length(basis->modulus, basis->n_modulus_limbs) <= target; p--) {
        if (!is_prime(p)) continue;
        PCH_ASSERT(basis->n_primes < room);
        basis->primes[basis->n_primes++] = p;
        multiply_small(basis->modulus, basis->n_modulus_limbs, p);
    }
    basis->n_words = (basis->n_primes + 2) / 3;
done:
    return status;
}

static pchan_status make_words(pchan_basis *basis, pchan_error *err)
{
    pchan_status status = PCH_ALLOC(basis->words, (size_t)basis->n_words, err);
    if (status != PCHAN_OK) return status;
    for (int w = 0; w < basis->n_words; w++) {
        pch_word *word = &basis->words[w];
        uint64_t p[3];
        for (int k = 0; k < 3; k++) {
            int i = 3 * w + k;
            p[k] = i < basis->n_primes ? basis->primes[i] : 1;
            word->p[k] = (double)p[k];
            word->inverse[k] = 1.0 / (double)p[k];
        }
        word->p01 = p[0] * p[1];
        word->modulus = word->p01 * p[2];
        word->inv_01 = p[1] > 1 ? symmetric(inverse_mod(p[0], p[1]), p[1]) : 0;
        word->inv_012 = p[2] > 1 ? symmetric(inverse_mod(word->p01, p[2]), p[2]) : 0;
    }
    return PCHAN_OK;
}

static pchan_status make_powers(pchan_basis *basis, pchan_error *err)
{
    int whole = (64 * basis->n_limbs + PIECE_BITS - 1) / PIECE_BITS;
    basis->n_pieces = whole + 1;
    basis->n_prime_panels = (basis->n_primes + PCH_PANEL - 1) / PCH_PANEL;
    size_t n = (size_t)basis->n_prime_panels * (size_t)basis->n_pieces * PCH_PANEL;
    pchan_status status = PCH_ALLOC(basis->powers, n, err);
    if (status != PCHAN_OK) return status;
    for (int i = 0; i < basis->n_primes; i++) {
        uint64_t p = basis->primes[i], power = 1;
        double *column =
            basis->powers + (size_t)(i / PCH_PANEL) * (size_t)basis->n_pieces * PCH_PANEL + i % PCH_PANEL;
        for (int k = 0; k < whole; k++, power = (power << PIECE_BITS) % p) {
            column[k * PCH_PANEL] = symmetric(power, p);
        }
        uint64_t sign = 1; /* two's complement: a negative x is short of 2^(64 n_limbs) */
        for (int k = 0; k < 2 * basis->n_limbs; k++) sign = (sign << 32) % p;
        column[whole * PCH_PANEL] = -symmetric(sign, p);
    }
    return PCHAN_OK;
}

static pchan_status reserve_restore(pchan_basis *basis, pchan_error *err)
{
    basis->n_slots = 3 * basis->n_words;
    basis->digit_bits = (int)floor(33.3 - log2(basis->n_slots));
    if (basis->digit_bits > 26) basis->digit_bits = 26;
    int m_bits = bit_length(basis->modulus, basis->n_modulus_limbs);
    basis->n_digit_panels = (m_bits + 2 + basis->digit_bits * PCH_PANEL - 1) / (basis->digit_bits * PCH_PANEL);
    basis->n_digits = basis->n_digit_panels * PCH_PANEL;
    basis->n_wide_limbs = (basis->n_digits * basis->digit_bits + 63) / 64;
    if (basis->n_wide_limbs < basis->n_limbs) basis->n_wide_limbs = basis->n_limbs;
    size_t n_slots = (size_t)basis->n_slots, n_digits = (size_t)basis->n_digits;
    pchan_status status;
    PCH_TRY(PCH_ALLOC(basis->slot_prime, n_slots, err));
    PCH_TRY(PCH_ALLOC(basis->slot_inverse, n_slots, err));
    PCH_TRY(PCH_ALLOC(basis->weight_high, n_slots, err));
    PCH_TRY(PCH_ALLOC(basis->weight_low, n_slots, err));
    PCH_TRY(PCH_ALLOC(basis->cofactors, n_slots * n_digits, err));
    PCH_TRY(PCH_ALLOC(basis->modulus_digits, n_digits, err));
done:
    return status;
}

static void fill_slot(pchan_basis *basis, int i, uint64_t *cofactor)
{
    uint64_t p = basis->primes[i];
    int n = basis->n_modulus_limbs, slot = i % 3 * basis->n_words + i / 3;
    divide_small(basis->modulus, n, p, cofactor);
    uint64_t weight = inverse_mod(divide_small(cofactor, n, p, NULL), p);
    basis->slot_prime[slot] = (double)p;
    basis->slot_inverse[slot] = 1.0 / (double)p;
    basis->weight_low[slot] = symmetric(weight, p);
    basis->weight_high[slot] = symmetric((weight << 31) % p, p);
    for (int d = 0; d < basis->n_digits; d++) {
        size_t row = (size_t)(d / PCH_PANEL) * (size_t)basis->n_slots + (size_t)slot;
        basis->cofactors[row * PCH_PANEL + (size_t)(d % PCH_PANEL)] =
            digit(cofactor, n, d * basis->digit_bits, basis->digit_bits);
    }
}

static pchan_status make_restore(pchan_basis *basis, pchan_error *err)
{
    uint64_t *cofactor = NULL;
    pchan_status status;
    PCH_TRY(reserve_restore(basis, err));
    PCH_TRY(PCH_ALLOC(cofactor, (size_t)basis->n_modulus_limbs, err));
    for (int slot = 0; slot < basis->n_slots; slot++) basis->slot_prime[slot] = basis->slot_inverse[slot] = 1;
    for (int i = 0; i < basis->n_primes; i++) fill_slot(basis, i, cofactor);
    for (int d = 0; d < basis->n_digits; d++) {
        basis->modulus_digits[d] =
            digit(basis->modulus, basis->n_modulus_limbs, d * basis->digit_bits, basis->digit_bits);
    }
done:
    pch_free(cofactor);
    return status;
}

pchan_status pchan_basis_create(int bits, int check_bits, pchan_basis **out, pchan_error *err)
{
    *out = NULL;
    if (bits < 1 || bits > PCHAN_MAX_BITS) {
        return pch_fail(err, PCHAN_ERR_ARG, "basis: bits = %d is not in 1..%d", bits, PCHAN_MAX_BITS);
    }
    if (check_bits < 0 || check_bits > 64) {
        return pch_fail(err, PCHAN_ERR_ARG, "basis: check_bits = %d is not in 0..64", check_bits);
    }
    pchan_basis *basis = NULL;
    pchan_status status;
    PCH_TRY(PCH_ALLOC(basis, 1, err));
    basis->bits = bits;
    basis->check_bits = check_bits;
    basis->n_limbs = (bits + 1 + 63) / 64;
    basis->dot = pch_dot_best();
    PCH_TRY(choose_primes(basis, err));
    PCH_TRY(make_words(basis, err));
    PCH_TRY(make_powers(basis, err));
    PCH_TRY(make_restore(basis, err));
    *out = basis;
    return PCHAN_OK;
done:
    pchan_basis_destroy(&basis);
    return status;
}

void pchan_basis_destroy(pchan_basis **place)
{
    if (!place || !*place) return;
    pchan_basis *basis = *place;
    pch_free(basis->primes);
    pch_free(basis->words);
    pch_free(basis->powers);
    pch_free(basis->slot_prime);
    pch_free(basis->slot_inverse);
    pch_free(basis->weight_high);
    pch_free(basis->weight_low);
    pch_free(basis->cofactors);
    pch_free(basis->modulus_digits);
    pch_free(basis->modulus);
    pch_free(basis);
    *place = NULL;
}

int pchan_basis_bits(const pchan_basis *basis)
{
    return basis->bits;
}

int pchan_basis_check_bits(const pchan_basis *basis)
{
    return basis->check_bits;
}

int pchan_basis_n_primes(const pchan_basis *basis)
{
    return basis->n_primes;
}

int pchan_basis_n_words(const pchan_basis *basis)
{
    return basis->n_words;
}

int pchan_basis_n_limbs(const pchan_basis *basis)
{
    return basis->n_limbs;
}

const uint32_t *pchan_basis_primes(const pchan_basis *basis)
{
    return basis->primes;
}
