/* SPDX-License-Identifier: MIT
 * Restored integers on their way: sums of parts from any class come out as the one integer in range, seals show
 * every flipped bit, and sums out of range are named. */
#include "testing_basis.h"

#include "../core/pch_wide.h"

enum { N_MOST = 300, N_PARTS = 5 };

static void random_words(const pchan_basis *basis, uint64_t *words, uint64_t *seed)
{
    for (int w = 0; w < basis->n_words; w++) words[w] = random_u64(seed) % basis->words[w].modulus;
}

/* last = total - the others, modulo each word's modulus */
static void complete(const pchan_basis *basis, uint64_t *const *parts, int n_parts, const uint64_t *total)
{
    for (int w = 0; w < basis->n_words; w++) {
        uint64_t m = basis->words[w].modulus, rest = total[w];
        for (int k = 0; k + 1 < n_parts; k++) rest = (rest + m - parts[k][w]) % m;
        parts[n_parts - 1][w] = rest;
    }
}

/* Parts are random classes, so almost all lie outside the basis, and about half of their sums outside +-M / 2. */
static void check_sums(int bits, int check_bits, int n_parts)
{
    const size_t n_all = bits > 130 ? 20 : N_MOST; /* more than one block, where the check is fast */
    pchan_basis *basis = make_basis(bits, check_bits);
    pch_wide *wide = NULL;
    pchan_error err;
    CHECK(pch_wide_create(basis, n_parts, &wide, &err) == PCHAN_OK, "%d bits: %s", bits, err.message);
    size_t element = (size_t)pch_wide_element(basis, n_parts), n_limbs = (size_t)basis->n_limbs, bad = 99;
    size_t n_words = (size_t)basis->n_words;
    CHECK(element == (size_t)wide->n_limbs + 1, "size of an element");
    uint64_t seed = (uint64_t)(bits + 1000 * n_parts), *total = calloc(n_words, 8), *parts[N_PARTS];
    uint64_t *want = calloc(n_all * n_limbs, 8), *got = calloc(n_all * n_limbs, 8),
             *sums = calloc(n_all * element, 8);
    uint64_t *x = calloc(element * n_all, 8);
    for (int k = 0; k < n_parts; k++) parts[k] = calloc(n_all * n_words, 8);
    for (size_t e = 0; e < n_all; e++) {
        uint64_t *mine[N_PARTS];
        for (int k = 0; k < n_parts; k++) random_words(basis, mine[k] = parts[k] + e * n_words, &seed);
        random_integer(want + e * n_limbs, (int)n_limbs, bits, &seed);
        slow_words(basis, want + e * n_limbs, total);
        complete(basis, mine, n_parts, total);
    }
    for (int k = 0; k < n_parts; k++) {
        for (size_t e = 0; e < n_all; e += PCH_WIDE_BLOCK) {
            size_t n = n_all - e < PCH_WIDE_BLOCK ? n_all - e : PCH_WIDE_BLOCK;
            pch_wide_add_words(wide, parts[k] + e * n_words, n, true, x + e * element);
        }
        pch_wide_seal(wide, x, n_all);
        if (k == 0) memcpy(sums, x, n_all * element * 8);
        if (k > 0) CHECK(pch_wide_add(wide, sums, x, n_all, &bad), "seal of %zu", bad);
    }
    CHECK(pch_wide_finish(wide, sums, n_all, got, &bad), "%d bits, %d parts: %zu out of range", bits, n_parts,
          bad);
    for (size_t k = 0; k < n_all * n_limbs; k++)
        CHECK(got[k] == want[k], "%d bits, %d parts: integer %zu", bits, n_parts, k / n_limbs);
    for (int k = 0; k < n_parts; k++) free(parts[k]);
    free(total), free(want), free(got), free(sums), free(x);
    pch_wide_destroy(&wide);
    pchan_basis_destroy(&basis);
}

/* 2^bits - 1 is in range, one more is not. */
static void check_range(int bits)
{
    pchan_basis *basis = make_basis(bits, 8);
    pch_wide *wide = NULL;
    CHECK(pch_wide_create(basis, 2, &wide, NULL) == PCHAN_OK, "create");
    size_t element = (size_t)wide->n_limbs + 1, bad = 99;
    uint64_t *x = calloc(3 * element, 8), *limbs = calloc(3 * (size_t)basis->n_limbs, 8);
    for (int b = 0; b < bits; b++) x[b / 64] |= (uint64_t)1 << b % 64;
    CHECK(pch_wide_finish(wide, x, 3, limbs, &bad), "2^%d - 1 is refused", bits);
    x[element + (size_t)bits / 64] = (uint64_t)1 << bits % 64;
    CHECK(!pch_wide_finish(wide, x, 3, limbs, &bad) && bad == 1, "2^%d is accepted", bits);
    free(x), free(limbs);
    pch_wide_destroy(&wide);
    pchan_basis_destroy(&basis);
}

static void check_seals(void)
{
    pchan_basis *basis = make_basis(200, 8);
    pch_wide *wide = NULL;
    CHECK(pch_wide_create(basis, 3, &wide, NULL) == PCHAN_OK, "create");
    size_t element = (size_t)wide->n_limbs + 1, bad;
    uint64_t seed = 5, *x = calloc(2 * element, 8), *sum = calloc(2 * element, 8);
    for (size_t k = 0; k < 2 * element; k++) x[k] = random_u64(&seed);
    pch_wide_seal(wide, x, 2);
    CHECK(pch_wide_check(wide, x, 2, &bad), "seal");
    for (size_t b = 0; b < 64 * element; b++) {
        x[element + b / 64] ^= (uint64_t)1 << b % 64;
        bad = 99;
        CHECK(!pch_wide_add(wide, sum, x, 2, &bad) && bad == 1, "bit %zu passes", b);
        x[element + b / 64] ^= (uint64_t)1 << b % 64;
    }
    free(x), free(sum);
    pch_wide_destroy(&wide);
    pchan_basis_destroy(&basis);
}

int main(void)
{
    for (int b = 0; b < N_ALL_BITS; b++) {
        for (int n_parts = 1; n_parts <= N_PARTS; n_parts++) {
            check_sums(all_bits[b], 8, n_parts);
            check_sums(all_bits[b], 0, n_parts);
        }
        check_range(all_bits[b]);
    }
    check_seals();
    pchan_set_allocator(&counting_door);
    pchan_basis *basis = make_basis(100, 8);
    pchan_status status = PCHAN_ERR_NOMEM;
    for (long k = 0; status == PCHAN_ERR_NOMEM; k++) {
        pch_wide *wide = NULL;
        long before = blocks_in_use;
        allocations_left = k;
        status = pch_wide_create(basis, 2, &wide, NULL);
        allocations_left = -1;
        CHECK((status == PCHAN_OK) == (wide != NULL), "request %ld", k);
        pch_wide_destroy(&wide);
        CHECK(blocks_in_use == before, "request %ld: blocks lost", k);
    }
    pchan_basis_destroy(&basis);
    return 0;
}
