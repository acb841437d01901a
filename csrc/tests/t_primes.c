/* SPDX-License-Identifier: MIT
 * PrimeBasis: the primes are prime, distinct, decreasing, as few as suffice; sizes; errors; memory. */
#include "testing_basis.h"

#include <math.h>

static void check_basis(int bits, int check_bits)
{
    pchan_basis *basis = make_basis(bits, check_bits);
    const uint32_t *p = pchan_basis_primes(basis);
    int n = pchan_basis_n_primes(basis);
    double log2_product = 0;
    for (int i = 0; i < n; i++) {
        for (uint32_t d = 2; d * d <= p[i]; d++) CHECK(p[i] % d, "%u is divisible by %u", p[i], d);
        CHECK(p[i] < 1u << 21 && (i == 0 || p[i] < p[i - 1]), "prime %d of %d bits: %u", i, bits, p[i]);
        log2_product += log2(p[i]);
    }
    CHECK(log2_product > bits + 1 + check_bits - 1e-6, "%d bits: product 2^%f", bits, log2_product);
    CHECK(log2_product - log2(p[n - 1]) < bits + 1 + check_bits + 1e-6, "%d bits: a prime too many", bits);
    CHECK(pchan_basis_n_words(basis) == (n + 2) / 3, "%d words", pchan_basis_n_words(basis));
    CHECK(pchan_basis_n_limbs(basis) == (bits + 64) / 64, "%d limbs", pchan_basis_n_limbs(basis));
    CHECK(pchan_basis_bits(basis) == bits && pchan_basis_check_bits(basis) == check_bits, "bits");
    pchan_basis_destroy(&basis);
    CHECK(!basis, "destroy clears the pointer");
}

static void test_memory(void)
{
    pchan_set_allocator(&counting_door);
    for (int n = 0;; n++) {
        allocations_left = n;
        pchan_basis *basis = NULL;
        pchan_error err;
        pchan_status status = pchan_basis_create(200, 8, &basis, &err);
        if (status == PCHAN_OK) {
            CHECK(n > 5, "only %d allocations", n);
            pchan_basis_destroy(&basis);
            CHECK(blocks_in_use == 0, "%ld blocks left", blocks_in_use);
            break;
        }
        CHECK(status == PCHAN_ERR_NOMEM && !basis && blocks_in_use == 0, "allocation %d: %s, %ld blocks left", n,
              pchan_status_name(status), blocks_in_use);
    }
    allocations_left = -1;
    pchan_set_allocator(NULL);
}

int main(void)
{
    for (int i = 0; i < N_ALL_BITS; i++) check_basis(all_bits[i], i % 20);
    pchan_basis *basis = make_basis(2049, 8);
    CHECK(pchan_basis_n_words(basis) == 34, "2049 bits take %d words", pchan_basis_n_words(basis));
    CHECK(pchan_basis_primes(basis)[0] == 1664501, "first prime %u", pchan_basis_primes(basis)[0]);
    pchan_basis_destroy(&basis);
    pchan_basis_destroy(&basis);
    pchan_basis_destroy(NULL);
    pchan_error err;
    CHECK(pchan_basis_create(0, 8, &basis, &err) == PCHAN_ERR_ARG && !basis, "0 bits");
    CHECK(pchan_basis_create(PCHAN_MAX_BITS + 1, 8, &basis, NULL) == PCHAN_ERR_ARG, "too many bits");
    CHECK(pchan_basis_create(64, -1, &basis, &err) == PCHAN_ERR_ARG, "negative check_bits");
    test_memory();
    return 0;
}
