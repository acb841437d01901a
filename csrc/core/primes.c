/* SPDX-License-Identifier: MIT
 *
 * PrimeBasis: chooses the primes and makes the tables of the other pure stages. Runs once per
 * plan; plain long arithmetic on limbs is fast enough (a few milliseconds at 2,049 bits).
 */
#include "pch_basis.h"

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

static uint64_t digit(const uint64_t *x, int n, int first_bit, int n_bits)
{
    int limb = first_bit / 64, shift = first_bit % 64;
    if (limb >= n) return 0;
    uint64_t value = x[limb] >> shift;
    if (shift && limb + 1 < n) value |= x[limb + 1] << (64 - shift);
    return value & (((uint64_t)1 << n_bits) - 1);
}

/* ---- numbers modulo a prime ---- */

/* 1/x mod m for coprime x and m, m below 2^63: Euclid. */
static uint64_t inverse_mod(uint64_t x, uint64_t m)
{
    int64_t a = (int64_t)m, b = (int64_t)(x % m), s = 0, t = 1;
    while (b > 1) {
        int64_t quotient = a / b, rest = a % b, next = s - quotient * t;
        a = b, b = rest, s = t, t = next;
    }
    return (uint64_t)(t < 0 ? t + (int64_t)m : t);
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
    for (uint32_t p = LARGEST_PRIME; pch_bit_length(basis->modulus, basis->n_modulus_limbs) <= target; p--) {
        if (!is_prime(p)) continue;
        PCH_ASSERT(basis->n_primes < room);
        basis->primes[basis->n_primes++] = p;
        multiply_small(basis->modulus, basis->n_modulus_limbs, p);
    }
    basis->n_words = (basis->n_primes + 2) / 3;
done:
    return status;
}

static void fill_word(pch_word *word, const uint64_t p[3])
{
    const uint64_t p01 = p[0] * p[1];
    for (int k = 0; k < 3; k++) {
        word->p[k] = (double)p[k];
        word->inverse[k] = 1.0 / (double)p[k];
        word->two_32[k] = symmetric(((uint64_t)1 << 32) % p[k], p[k]);
    }
    word->inv_01 = p[1] > 1 ? symmetric(inverse_mod(p[0], p[1]), p[1]) : 0;
    word->inv_012 = p[2] > 1 ? symmetric(inverse_mod(p01, p[2]), p[2]) : 0;
    word->v1_weight = p[2] > 1 ? -symmetric(inverse_mod(p[1], p[2]), p[2]) : 0;
    word->p01_high = (double)(p01 >> PCH_SPLIT_BITS);
    word->p01_low = (double)(p01 & (((uint64_t)1 << PCH_SPLIT_BITS) - 1));
    word->modulus = p01 * p[2];
}

static pchan_status make_words(pchan_basis *basis, pchan_error *err)
{
    size_t n_words = (size_t)basis->n_words;
    pchan_status status;
    PCH_TRY(PCH_ALLOC(basis->words, n_words, err));
    PCH_TRY(PCH_ALLOC(basis->moduli, n_words * PCH_BATCH, err));
    for (size_t w = 0; w < n_words; w++) {
        uint64_t p[3];
        for (size_t k = 0; k < 3; k++) p[k] = 3 * w + k < (size_t)basis->n_primes ? basis->primes[3 * w + k] : 1;
        fill_word(&basis->words[w], p);
        for (size_t e = 0; e < PCH_BATCH; e++) basis->moduli[e * n_words + w] = basis->words[w].modulus;
    }
done:
    return status;
}

static pchan_status make_powers(pchan_basis *basis, pchan_error *err)
{
    basis->n_pieces = (64 * basis->n_limbs + PIECE_BITS - 1) / PIECE_BITS;
    size_t n_pieces = (size_t)basis->n_pieces;
    size_t n_rows = (size_t)(basis->n_primes + PCH_LANES - 1) / PCH_LANES * PCH_LANES;
    pchan_status status = PCH_ALLOC(basis->powers, n_rows * n_pieces, err);
    if (status != PCHAN_OK) return status;
    for (int i = 0; i < basis->n_primes; i++) {
        uint64_t p = basis->primes[i], power = 1;
        double *column = basis->powers + (size_t)(i / PCH_LANES) * n_pieces * PCH_LANES + i % PCH_LANES;
        for (size_t k = 0; k < n_pieces; k++, power = (power << PIECE_BITS) % p) {
            column[k * PCH_LANES] = symmetric(power, p);
        }
    }
    return PCHAN_OK;
}

static pchan_status reserve_restore(pchan_basis *basis, pchan_error *err)
{
    size_t n_words = (size_t)basis->n_words;
    int bits = 31; /* a digit is a uint32; see "Exactness" in pch_basis.h */
    while (21 * n_words + 4 > (size_t)1 << (36 - bits)) bits--;
    int needed = (int)pch_bit_length(basis->modulus, basis->n_modulus_limbs) +
                 2; /* |x| < 2 M, whatever the words; and M > 2^bits */
    int columns = basis->kernel->columns;
    basis->digit_bits = bits;
    basis->n_digits = (needed + bits * columns - 1) / (bits * columns) * columns;
    basis->n_wide_limbs = (basis->n_digits * bits + 63) / 64;
    basis->n_slots = 2 * basis->n_words + 1;
    pchan_status status;
    PCH_TRY(PCH_ALLOC(basis->weight, n_words, err));
    PCH_TRY(PCH_ALLOC(basis->weight_shoup, n_words, err));
    PCH_TRY(PCH_ALLOC(basis->word_inverse, n_words, err));
    PCH_TRY(PCH_ALLOC(basis->cofactors, (size_t)basis->n_slots * (size_t)basis->n_digits, err));
done:
    return status;
}

/* The digits of x 2^shift as the slot's row of the table. */
static void fill_slot(pchan_basis *basis, int slot, const uint64_t *x, int n, int shift)
{
    const int bits = basis->digit_bits, columns = basis->kernel->columns;
    for (int d = 0; d < basis->n_digits; d++) {
        int first = d * bits - shift, below = first < 0 ? -first : 0;
        int row = d / columns * basis->n_slots + slot;
        uint64_t value = below < bits ? digit(x, n, first + below, bits - below) << below : 0;
        basis->cofactors[(size_t)row * (size_t)columns + (size_t)(d % columns)] = (uint32_t)value;
    }
}

static pchan_status make_restore(pchan_basis *basis, pchan_error *err)
{
    uint64_t *x = NULL; /* room for all digits of -M */
    pchan_status status;
    PCH_TRY(reserve_restore(basis, err));
    int n = basis->n_modulus_limbs, n_room = n + basis->n_wide_limbs;
    PCH_TRY(PCH_ALLOC(x, (size_t)n_room, err));
    for (int w = 0; w < basis->n_words; w++) {
        uint64_t m = basis->words[w].modulus;
        divide_small(basis->modulus, n, m, x);
        uint64_t weight = inverse_mod(divide_small(x, n, m, NULL), m);
        basis->weight[w] = weight;
        basis->weight_shoup[w] = (uint64_t)(((u128)weight << 64) / m);
        basis->word_inverse[w] = 1.0 / (double)m;
        fill_slot(basis, 2 * w, x, n, 0);
        fill_slot(basis, 2 * w + 1, x, n, 32);
    }
    uint64_t carry = 1;
    for (int i = 0; i < n_room; i++) {
        x[i] = ~(i < n ? basis->modulus[i] : 0) + carry;
        carry = carry && !x[i];
    }
    fill_slot(basis, 2 * basis->n_words, x, n_room, 0);
done:
    pch_free(x);
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
    PCH_TRY(pch_kernel_choose(&basis->kernel, err));
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
    pch_free(basis->moduli);
    pch_free(basis->powers);
    pch_free(basis->cofactors);
    pch_free(basis->weight);
    pch_free(basis->weight_shoup);
    pch_free(basis->word_inverse);
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
