/* SPDX-License-Identifier: MIT
 *
 * Restored integers on their way, see pch_wide.h.
 *
 * restore gives |x| < 2^b with 2^b <= M / 2 < 2^(b + 1). A class without such an integer is restored after a shift
 * by A = M / 4, which brings it into that range; so every class gets an integer, exactly.
 */
#include "pch_wide.h"

#include <math.h>
#include <string.h>

typedef __int128 i128;

static int bits_of_modulus(const pchan_basis *basis)
{
    return (int)pch_bit_length(basis->modulus, basis->n_modulus_limbs);
}

static int n_limbs_for(const pchan_basis *basis, int n_parts)
{
    int n_bits = bits_of_modulus(basis) + 1; /* with the sign */
    for (int parts = n_parts; parts > 1; parts = (parts + 1) / 2) n_bits++;
    return (n_bits + 63) / 64;
}

int pch_wide_element(const pchan_basis *basis, int n_parts)
{
    return n_limbs_for(basis, n_parts) + 1;
}

/* A, and its words. */
static pchan_status make_shift(pch_wide *wide, pchan_error *err)
{
    const pchan_basis *part = wide->part;
    double *residues = NULL;
    pchan_status status;
    PCH_TRY(PCH_ALLOC(residues, (size_t)part->n_primes, err));
    for (int i = 0; i < wide->n_limbs; i++) {
        uint64_t above = i + 1 < wide->n_limbs ? wide->modulus[i + 1] : 0;
        wide->shift[i] = wide->modulus[i] >> 2 | above << 62;
    }
    uint64_t *low = wide->limbs;
    for (int i = 0; i < part->n_limbs; i++) low[i] = i < wide->n_limbs ? wide->shift[i] : 0;
    PCH_TRY(pchan_residues(part, low, 1, residues, err));
    ptrdiff_t each = sizeof *residues;
    const pchan_array array = {residues, PCHAN_FLOAT64, {(size_t)part->n_primes, 1, 1}, {each, each, each}};
    status = pchan_pack(part, &array, wide->shift_words, err);
done:
    pch_free(residues);
    return status;
}

pchan_status pch_wide_create(const pchan_basis *basis, int n_parts, pch_wide **out, pchan_error *err)
{
    pch_wide *wide = NULL;
    pchan_status status;
    *out = NULL;
    PCH_TRY(PCH_ALLOC(wide, 1, err));
    wide->basis = basis;
    wide->n_limbs = n_limbs_for(basis, n_parts);
    PCH_TRY(pchan_basis_create(bits_of_modulus(basis) - 2, 0, &wide->part, err));
    PCH_ASSERT(wide->part->n_primes == basis->n_primes);
    PCH_TRY(PCH_ALLOC(wide->modulus, (size_t)wide->n_limbs, err));
    PCH_TRY(PCH_ALLOC(wide->shift, (size_t)wide->n_limbs, err));
    PCH_TRY(PCH_ALLOC(wide->shift_words, (size_t)basis->n_words, err));
    PCH_TRY(PCH_ALLOC(wide->one, (size_t)basis->n_words, err));
    PCH_TRY(PCH_ALLOC(wide->limbs, PCH_WIDE_BLOCK * (size_t)wide->part->n_limbs, err));
    size_t scratch_bytes = pch_restore_scratch_bytes(wide->part);
    wide->restore_scratch = pch_alloc(1, scratch_bytes);
    if (!wide->restore_scratch) status = pch_fail_nomem(err, "restore", scratch_bytes);
    if (status != PCHAN_OK) goto done;
    for (int i = 0; i < wide->n_limbs && i < basis->n_modulus_limbs; i++) wide->modulus[i] = basis->modulus[i];
    PCH_TRY(make_shift(wide, err));
    *out = wide;
    return PCHAN_OK;
done:
    pch_wide_destroy(&wide);
    return status;
}

void pch_wide_destroy(pch_wide **place)
{
    pch_wide *wide = *place;
    if (!wide) return;
    pchan_basis_destroy(&wide->part);
    pch_free(wide->modulus);
    pch_free(wide->shift);
    pch_free(wide->shift_words);
    pch_free(wide->one);
    pch_free(wide->limbs);
    pch_free(wide->restore_scratch);
    pch_free(wide);
    *place = NULL;
}

/* sum += factor * x, modulo 2^(64 n). */
static void add_multiple(uint64_t *sum, const uint64_t *x, int n, int64_t factor)
{
    i128 carry = 0;
    for (int i = 0; i < n; i++) {
        carry += (i128)sum[i] + (i128)x[i] * factor;
        sum[i] = (uint64_t)carry;
        carry >>= 64;
    }
}

/* sum += x of n_x limbs, by sign. */
static void add_limbs(uint64_t *sum, int n, const uint64_t *x, int n_x)
{
    uint64_t sign = x[n_x - 1] >> 63 ? ~(uint64_t)0 : 0;
    unsigned long long carry = 0;
    for (int i = 0; i < n; i++) {
        unsigned long long s, more = __builtin_add_overflow(sum[i], i < n_x ? x[i] : sign, &s);
        more |= (unsigned long long)__builtin_add_overflow(s, carry, &s);
        sum[i] = s;
        carry = more;
    }
}

/* The integer of a class that restore finds out of range: x - A or x + A is within. limbs get that one;
 * returns the multiple of A to add. */
static int restore_shifted(pch_wide *wide, const uint64_t *words, uint64_t *limbs)
{
    size_t bad;
    for (int sign = 1; sign >= -1; sign -= 2) {
        for (int w = 0; w < wide->basis->n_words; w++) {
            uint64_t m = wide->basis->words[w].modulus, a = wide->shift_words[w];
            wide->one[w] = (words[w] % m + (sign > 0 ? m - a : a)) % m;
        }
        if (pch_restore_unchecked(wide->part, wide->one, 1, limbs, wide->restore_scratch, &bad) == PCHAN_OK)
            return sign;
    }
    PCH_ASSERT(false && "a class without an integer");
    return 0;
}

void pch_wide_add_words(pch_wide *wide, const uint64_t *words, size_t n, bool set, uint64_t *sums)
{
    size_t n_words = (size_t)wide->basis->n_words, n_part = (size_t)wide->part->n_limbs, done = 0;
    size_t element = (size_t)wide->n_limbs + 1;
    if (set) memset(sums, 0, n * element * sizeof *sums);
    while (done < n) {
        size_t bad = n - done;
        pchan_status status = pch_restore_unchecked(wide->part, words + done * n_words, n - done, wide->limbs,
                                                    wide->restore_scratch, &bad);
        if (status == PCHAN_OK) bad = n - done;
        for (size_t e = 0; e < bad; e++) {
            add_limbs(sums + (done + e) * element, wide->n_limbs, wide->limbs + e * n_part, (int)n_part);
        }
        done += bad;
        if (done == n) break;
        uint64_t *sum = sums + done * element;
        int multiple = restore_shifted(wide, words + done * n_words, wide->limbs);
        add_limbs(sum, wide->n_limbs, wide->limbs, (int)n_part);
        add_multiple(sum, wide->shift, wide->n_limbs, multiple);
        done++;
    }
}

static uint64_t seal_of(const uint64_t *x, int n)
{
    uint64_t sum = 0;
    for (int i = 0; i < n; i++) sum += x[i];
    return sum;
}

void pch_wide_seal(const pch_wide *wide, uint64_t *x, size_t n)
{
    for (size_t e = 0; e < n; e++, x += wide->n_limbs + 1) x[wide->n_limbs] = seal_of(x, wide->n_limbs);
}

bool pch_wide_check(const pch_wide *wide, const uint64_t *x, size_t n, size_t *bad_index)
{
    for (size_t e = 0; e < n; e++, x += wide->n_limbs + 1) {
        if (x[wide->n_limbs] == seal_of(x, wide->n_limbs)) continue;
        *bad_index = e;
        return false;
    }
    return true;
}

bool pch_wide_add(const pch_wide *wide, uint64_t *sums, const uint64_t *x, size_t n, size_t *bad_index)
{
    size_t element = (size_t)wide->n_limbs + 1;
    for (size_t e = 0; e < n; e++) add_limbs(sums + e * element, wide->n_limbs, x + e * element, wide->n_limbs);
    return pch_wide_check(wide, x, n, bad_index);
}

/* The top limbs of x relative to limb `top`. */
static double leading(const uint64_t *x, int n, int top)
{
    double value = ldexp((double)(int64_t)x[n - 1], 64 * (n - 1 - top));
    for (int i = n - 2; i >= 0 && i >= n - 4; i--) value += ldexp((double)x[i], 64 * (i - top));
    return value;
}

/* Brings a sum into |x| < 2^bits by a multiple of M; false when no multiple does. */
static bool reduce(const pch_wide *wide, uint64_t *sum)
{
    int n = wide->n_limbs, top = wide->basis->n_modulus_limbs - 1;
    double quotient = rint(leading(sum, n, top) / leading(wide->modulus, n, top));
    add_multiple(sum, wide->modulus, n, -(int64_t)quotient);
    if (pch_limbs_in_range(sum, n, wide->basis->bits)) return true;
    add_multiple(sum, wide->modulus, n, sum[n - 1] >> 63 ? 1 : -1); /* the quotient was rounded at a half */
    return pch_limbs_in_range(sum, n, wide->basis->bits);
}

bool pch_wide_finish(const pch_wide *wide, uint64_t *sums, size_t n, uint64_t *limbs, size_t *bad_index)
{
    size_t n_out = (size_t)wide->basis->n_limbs, n_limbs = (size_t)wide->n_limbs;
    bool good = true;
    for (size_t e = 0; e < n; e++, sums += n_limbs + 1, limbs += n_out) {
        bool fits = pch_limbs_in_range(sums, wide->n_limbs, wide->basis->bits) || reduce(wide, sums);
        memcpy(limbs, sums, (n_out < n_limbs ? n_out : n_limbs) * sizeof *limbs);
        for (size_t i = n_limbs; i < n_out; i++) limbs[i] = sums[n_limbs - 1] >> 63 ? ~(uint64_t)0 : 0;
        if (!fits && good) *bad_index = e;
        good = good && fits;
    }
    return good;
}
