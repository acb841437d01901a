/* SPDX-License-Identifier: MIT
 * restore and its reference, on every kernel: they give back the integer that slow_words packed, find
 * 2^bits too large and notice as many flipped bits as the spare bits promise. */
#include "testing_basis.h"

#include <math.h>

enum { N = 21 };

static void check_both(const pchan_basis *basis, const char *kernel, const uint64_t *words, const uint64_t *x,
                       int n)
{
    int n_limbs = pchan_basis_n_limbs(basis);
    uint64_t *limbs = calloc((size_t)(n * n_limbs), sizeof *limbs);
    pchan_error err;
    CHECK(pchan_restore(basis, words, (size_t)n, limbs, &err) == PCHAN_OK, "%s", err.message);
    CHECK(!memcmp(limbs, x, (size_t)(n * n_limbs) * 8), "restore, %d bits, %s", pchan_basis_bits(basis), kernel);
    memset(limbs, 0, (size_t)(n * n_limbs) * 8);
    CHECK(pchan_restore_reference(basis, words, (size_t)n, limbs, &err) == PCHAN_OK, "%s", err.message);
    CHECK(!memcmp(limbs, x, (size_t)(n * n_limbs) * 8), "reference, %d bits", pchan_basis_bits(basis));
    free(limbs);
}

static void check_values(int bits, uint64_t seed)
{
    const int check_bits = (int)(seed % 30);
    pchan_basis *basis = make_basis(bits, check_bits);
    int n_limbs = pchan_basis_n_limbs(basis), n_words = pchan_basis_n_words(basis);
    uint64_t *x = calloc((size_t)(N * n_limbs), sizeof *x), *words = calloc((size_t)(N * n_words), sizeof *words);
    for (int k = 0; k < N; k++) {
        random_integer(x + k * n_limbs, n_limbs, bits, &seed);
        slow_words(basis, x + k * n_limbs, words + k * n_words);
    }
    const pch_kernel *kernel;
    for (int number = 0; (kernel = pch_kernel_by_number(number)); number++) {
        pchan_basis_destroy(&basis);
        basis = make_basis_for(kernel, bits, check_bits);
        check_both(basis, kernel->name, words, x, N);
        check_both(basis, kernel->name, words, x, 1);
    }
    free(x);
    free(words);
    pchan_basis_destroy(&basis);
}

/* +-2^bits: one more limb than the basis may have, so the words come from shifted residues */
static void check_limits(int bits)
{
    pchan_basis *basis = make_basis(bits, 8), *wider = make_basis(bits + 64, 8);
    int n_limbs = pchan_basis_n_limbs(wider), n_words = pchan_basis_n_words(basis);
    uint64_t *x = calloc((size_t)n_limbs, sizeof *x), *limbs = calloc((size_t)n_limbs, sizeof *x);
    uint64_t *words = calloc((size_t)n_words, sizeof *words);
    const uint32_t *p = pchan_basis_primes(basis);
    for (int sign = 0; sign < 2; sign++) {
        memset(x, 0, (size_t)n_limbs * 8);
        x[bits / 64] = (uint64_t)1 << (bits % 64);
        if (sign) negate(x, n_limbs);
        for (int w = 0; w < n_words; w++) {
            uint64_t modulus = 1;
            for (int i = 3 * w; i < 3 * w + 3 && i < pchan_basis_n_primes(basis); i++) modulus *= p[i];
            words[w] = slow_mod(x, n_limbs, modulus);
        }
        pchan_error err = {0};
        pchan_status status = pchan_restore(basis, words, 1, limbs, &err);
        CHECK(status == PCHAN_ERR_RANGE && err.index == 0, "%s2^%d is accepted", sign ? "-" : "", bits);
        status = pchan_restore_reference(basis, words, 1, limbs, &err);
        CHECK(status == PCHAN_ERR_RANGE && err.index == 0, "reference: %s2^%d is accepted", sign ? "-" : "", bits);
    }
    free(x);
    free(limbs);
    free(words);
    pchan_basis_destroy(&basis);
    pchan_basis_destroy(&wider);
}

/* ---- flipped bits ---- */

typedef struct flips {
    int canonical, too_large, missed;
    double expected; /* of missed: 2^-h for each canonical one, with h spare bits */
} flips;

static double spare_bits(const pchan_basis *basis)
{
    double h = -pchan_basis_bits(basis) - 1;
    for (int i = 0; i < pchan_basis_n_primes(basis); i++) h += log2(pchan_basis_primes(basis)[i]);
    return h;
}

/* Restores x with bit `bit` of word w flipped: as it is, and (as in a message) after it was
 * accumulated to the words of 0. */
static void flip(const pchan_basis *basis, const uint64_t *x, uint64_t w, uint64_t bit, flips *count)
{
    uint64_t words[40], sum[40] = {0}, limbs[17];
    const size_t bytes = (size_t)pchan_basis_n_limbs(basis) * 8;
    slow_words(basis, x, words);
    words[w] ^= (uint64_t)1 << bit;
    pchan_accumulate(basis, sum, words, 1);
    bool too_large = words[w] >= basis->words[w].modulus;
    CHECK(too_large || !memcmp(sum, words, 8 * (size_t)pchan_basis_n_words(basis)), "0 + words");
    bool accepted = pchan_restore(basis, words, 1, limbs, NULL) == PCHAN_OK;
    CHECK(!(accepted && too_large), "bit %d: a word too large is accepted", (int)bit);
    CHECK(!accepted || memcmp(limbs, x, bytes), "bit %d of word %d changes nothing", (int)bit, (int)w);
    CHECK(accepted == (pchan_restore_reference(basis, words, 1, limbs, NULL) == PCHAN_OK), "reference");
    CHECK(accepted == (pchan_restore(basis, sum, 1, limbs, NULL) == PCHAN_OK), "sum");
    CHECK(accepted == (pchan_restore_reference(basis, sum, 1, limbs, NULL) == PCHAN_OK), "reference, sum");
    count->too_large += too_large;
    count->canonical += !too_large;
    count->missed += accepted;
    if (!too_large) count->expected += exp2(-spare_bits(basis));
}

/* Bases of about 0 to 20 spare bits: of 50,000 flips 3,000 should be missed, within a few hundred. */
static void check_flips(void)
{
    flips count = {0};
    uint64_t seed = 5;
    for (int bits = 300; bits < 1000; bits += 7) {
        pchan_basis *basis = make_basis(bits, 0);
        int n_limbs = pchan_basis_n_limbs(basis), n_words = pchan_basis_n_words(basis);
        for (int k = 0; k < 500; k++) {
            uint64_t x[17] = {0};
            for (int b = 0; b < bits; b++) x[b / 64] |= (random_u64(&seed) & 1) << b % 64;
            if (k % 2) negate(x, n_limbs);
            flip(basis, x, random_u64(&seed) % (uint64_t)n_words, random_u64(&seed) % 64, &count);
        }
        pchan_basis_destroy(&basis);
    }
    CHECK(count.too_large > 2 * 50000 / 64, "%d words too large", count.too_large);
    CHECK(fabs(count.missed - count.expected) < 0.1 * count.expected && count.expected > 1000,
          "%d of %d flips were missed, and %.0f expected", count.missed, count.canonical, count.expected);
    flips rare = {0};
    pchan_basis *basis = make_basis(512, 20);
    for (uint64_t w = 0; w < (uint64_t)pchan_basis_n_words(basis); w++) {
        const uint64_t x[17] = {w};
        for (uint64_t bit = 0; bit < 64; bit++) flip(basis, x, w, bit, &rare);
    }
    CHECK(rare.missed == 0, "%d flips were missed in spite of %.1f spare bits", rare.missed, spare_bits(basis));
    pchan_basis_destroy(&basis);
}

int main(void)
{
    for (int i = 0; i < N_ALL_BITS; i++) {
        for (uint64_t round = 0; round < 5; round++) check_values(all_bits[i], 100 * (uint64_t)i + round);
        check_limits(all_bits[i]);
    }
    check_flips();
    pchan_basis *basis = make_basis(64, 8);
    uint64_t words[8] = {0}, limbs[2];
    pchan_set_allocator(&counting_door);
    allocations_left = 0;
    CHECK(pchan_restore(basis, words, 1, limbs, NULL) == PCHAN_ERR_NOMEM, "restore without memory");
    CHECK(pchan_restore_reference(basis, words, 1, limbs, NULL) == PCHAN_ERR_NOMEM, "reference without memory");
    pchan_set_allocator(NULL);
    pchan_basis_destroy(&basis);
    return 0;
}
