/* SPDX-License-Identifier: MIT
 * restore and its reference, on every kernel: they give back the integer that slow_words packed, find
 * 2^bits too large and notice changed words. */
#include "testing_basis.h"

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
    pchan_basis *basis = make_basis(bits, (int)(seed % 30));
    int n_limbs = pchan_basis_n_limbs(basis), n_words = pchan_basis_n_words(basis);
    uint64_t *x = calloc((size_t)(N * n_limbs), sizeof *x), *words = calloc((size_t)(N * n_words), sizeof *words);
    for (int k = 0; k < N; k++) {
        random_integer(x + k * n_limbs, n_limbs, bits, &seed);
        slow_words(basis, x + k * n_limbs, words + k * n_words);
    }
    const pch_kernel *kernel;
    for (int number = 0; (kernel = pch_kernel_by_number(number)) && (basis->kernel = kernel); number++) {
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

/* A changed word gives an integer anywhere below M, so 16 spare bits miss about one change in 65,536. */
static void check_corruption(void)
{
    pchan_basis *basis = make_basis(1024, 16);
    int n_limbs = pchan_basis_n_limbs(basis), n_words = pchan_basis_n_words(basis), missed = 0;
    uint64_t x[20], words[40], limbs[20], seed = 5;
    for (int k = 0; k < 500; k++) {
        random_integer(x, n_limbs, 1024, &seed);
        slow_words(basis, x, words);
        uint64_t w = random_u64(&seed) % (uint64_t)n_words, bit = (uint64_t)1 << random_u64(&seed) % 60;
        words[w] = (words[w] ^ bit) % basis->words[w].modulus;
        missed += pchan_restore(basis, words, 1, limbs, NULL) == PCHAN_OK;
    }
    CHECK(missed <= 1, "%d of 500 changed words were not noticed", missed);
    pchan_basis_destroy(&basis);
}

int main(void)
{
    for (int i = 0; i < N_ALL_BITS; i++) {
        for (uint64_t round = 0; round < 5; round++) check_values(all_bits[i], 100 * (uint64_t)i + round);
        check_limits(all_bits[i]);
    }
    check_corruption();
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
