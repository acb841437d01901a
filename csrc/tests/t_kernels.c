/* SPDX-License-Identifier: MIT
 * Every kernel that runs here, on values at the corners: pack against remainders, accumulate against
 * 128-bit sums, restore against its reference. And the choice of the kernel. */
#include "testing_basis.h"

#include <math.h>

typedef unsigned __int128 u128;

enum { COLS = 83, N = 37 };

/* ---- pack ---- */

/* Of int64 values: around 0, +-p/2, +-p, powers of two and the ends of the type's range. */
static int64_t corner(int64_t p, pchan_dtype dtype, uint64_t *seed)
{
    const int64_t most = dtype == PCHAN_FLOAT64 ? (int64_t)1 << 53 : dtype == PCHAN_INT64 ? INT64_MAX : UINT32_MAX;
    const int64_t least = dtype == PCHAN_FLOAT64 ? -most : dtype == PCHAN_INT64 ? INT64_MIN : 0;
    uint64_t choice = random_u64(seed);
    int64_t near = (int64_t)(choice >> 8 & 3) - 1, base;
    switch (choice % 8) {
        case 0: return most - (near & 1);
        case 1: return least + (near & 1);
        case 2: base = p / 2; break;
        case 3: base = p; break;
        case 4: base = (int64_t)1 << (choice >> 16) % (dtype == PCHAN_UINT32 ? 32 : 53); break;
        case 5: base = (int64_t)1 << (dtype == PCHAN_UINT32 ? 31 : 51); break; /* where the fast way ends */
        case 6: base = (int64_t)(choice >> 16) % (most / p) * p; break;
        default: base = 0;
    }
    base += near;
    if (choice >> 10 & 1 && dtype != PCHAN_UINT32) base = -base;
    return base < least ? least : base > most ? most : base;
}

static void store(void *data, pchan_dtype dtype, size_t k, int64_t value)
{
    if (dtype == PCHAN_FLOAT64) ((double *)data)[k] = (double)value;
    if (dtype == PCHAN_INT64) ((int64_t *)data)[k] = value;
    if (dtype == PCHAN_UINT32) ((uint32_t *)data)[k] = (uint32_t)value;
}

static void check_pack(const pchan_basis *basis, pchan_dtype dtype, uint64_t seed)
{
    const size_t n_primes = (size_t)basis->n_primes, n_words = (size_t)basis->n_words;
    const ptrdiff_t bytes = dtype == PCHAN_UINT32 ? 4 : 8;
    void *data = calloc(n_primes * COLS, 8);
    int64_t *values = calloc(n_primes * COLS, sizeof *values);
    uint64_t *words = calloc(COLS * n_words, sizeof *words);
    for (size_t k = 0; k < n_primes * COLS; k++) {
        values[k] = corner(basis->primes[k / COLS], dtype, &seed);
        store(data, dtype, k, values[k]);
    }
    const pchan_array a = {data, dtype, {n_primes, 1, COLS}, {bytes * COLS, bytes * COLS, bytes}};
    CHECK(pchan_pack(basis, &a, words, NULL) == PCHAN_OK, "pack");
    for (size_t k = 0; k < n_primes * COLS; k++) {
        uint64_t word = words[k % COLS * n_words + k / COLS / 3];
        int64_t p = basis->primes[k / COLS], want = (values[k] % p + p) % p;
        CHECK(word < basis->words[k / COLS / 3].modulus && word % (uint64_t)p == (uint64_t)want,
              "%s, type %d, %lld mod %lld gives %llu", basis->kernel->name, dtype, (long long)values[k],
              (long long)p, (unsigned long long)word);
    }
    free(data);
    free(values);
    free(words);
}

/* One bad value at every place, beside values of either way; the first column is named. */
static void check_pack_refuses(const pchan_basis *basis)
{
    const double bad[] = {NAN,  -NAN, INFINITY, -INFINITY, 0.5, -1e-300, 2251799813685248.5, 9007199254740994.0,
                          1e300};
    const double beside[] = {0, 9007199254740992.0};
    const size_t n_primes = (size_t)basis->n_primes;
    double *r = calloc(n_primes * COLS, sizeof *r);
    uint64_t *words = calloc(COLS * (size_t)basis->n_words, sizeof *words);
    const pchan_array a = {r, PCHAN_FLOAT64, {n_primes, 1, COLS}, {8 * COLS, 8 * COLS, 8}};
    for (size_t k = 0; k < n_primes * COLS; k += 3) {
        size_t later = k % COLS + 1 < COLS ? COLS - 1 : k; /* a bad value of another prime, in a later column */
        r[later] = later == k ? 0 : NAN;
        for (size_t b = 0; b < sizeof bad / sizeof *bad; b++) {
            pchan_error err = {0};
            r[(k + 9) % (n_primes * COLS)] = beside[b % 2];
            r[k] = bad[b];
            pchan_status status = pchan_pack(basis, &a, words, &err);
            CHECK(status == PCHAN_ERR_ARG && err.index == (int64_t)(k % COLS), "%s: %g at %zu is %s, index %lld",
                  basis->kernel->name, bad[b], k, pchan_status_name(status), (long long)err.index);
        }
        r[k] = r[later] = r[(k + 9) % (n_primes * COLS)] = 0;
    }
    CHECK(pchan_pack(basis, &a, words, NULL) == PCHAN_OK, "zeros are refused");
    free(r);
    free(words);
}

/* ---- accumulate ---- */

static uint64_t corner_word(uint64_t m, uint64_t *seed)
{
    const uint64_t choices[] = {0, 1, m - 1, m - 2, m / 2, m / 2 + 1, random_u64(seed) % m, random_u64(seed) % m};
    return choices[random_u64(seed) % 8];
}

static void check_accumulate(const pchan_basis *basis, size_t n, uint64_t seed)
{
    const size_t n_words = (size_t)basis->n_words, total = n * n_words;
    uint64_t *sum = calloc(total + 1, 8), *words = calloc(total + 1, 8), *want = calloc(total + 1, 8);
    for (size_t k = 0; k < total; k++) {
        uint64_t m = basis->words[k % n_words].modulus;
        const uint64_t wrong[] = {
            m, m + 1, (uint64_t)1 << 62, (uint64_t)1 << 63, ((uint64_t)1 << 63) + m - 1, UINT64_MAX};
        sum[k] = corner_word(m, &seed);
        words[k] = corner_word(m, &seed);
        want[k] = (uint64_t)(((u128)sum[k] + words[k]) % m);
        if (random_u64(&seed) % 16 == 0) {
            *(random_u64(&seed) % 2 ? &sum[k] : &words[k]) = wrong[random_u64(&seed) % 6];
            want[k] = UINT64_MAX;
        }
    }
    sum[total] = 12345;
    pchan_accumulate(basis, sum, words, n);
    for (size_t k = 0; k < total; k++) {
        CHECK(sum[k] == want[k], "%s, %zu integers, word %zu: %llu instead of %llu", basis->kernel->name, n, k,
              (unsigned long long)sum[k], (unsigned long long)want[k]);
    }
    CHECK(sum[total] == 12345, "%s writes behind the sum", basis->kernel->name);
    free(sum);
    free(words);
    free(want);
}

/* ---- restore ---- */

/* (a) any canonical words, mostly far out of range; (b) +-(2^bits - 1) and +-2^bits; (c) a word too large. */
static void make_words(const pchan_basis *basis, uint64_t *words, uint64_t *seed)
{
    const int bits = basis->bits, n_words = basis->n_words, n = bits / 64 + 2;
    uint64_t kind = random_u64(seed) % 6, x[PCHAN_MAX_BITS / 64 + 2] = {0};
    if (kind < 2) {
        for (int w = 0; w < n_words; w++) {
            uint64_t m = basis->words[w].modulus;
            words[w] = kind == 0 ? corner_word(m, seed) : m - 1 - random_u64(seed) % 2;
        }
        return;
    }
    x[bits / 64] = (uint64_t)1 << bits % 64;
    if (kind > 2) { /* 2^bits - 1 */
        for (int i = 0; i < bits / 64; i++) x[i] = UINT64_MAX;
        x[bits / 64]--;
    }
    if (random_u64(seed) % 2) negate(x, n);
    for (int w = 0; w < n_words; w++) words[w] = slow_mod(x, n, basis->words[w].modulus);
    if (kind == 5) {
        uint64_t *word = &words[random_u64(seed) % (uint64_t)n_words], m = basis->words[word - words].modulus;
        *word += random_u64(seed) % 2 ? m : (uint64_t)1 << (62 + random_u64(seed) % 2);
    }
}

static void check_restore(const pchan_basis *basis, uint64_t seed)
{
    const size_t n_words = (size_t)basis->n_words, n_limbs = (size_t)basis->n_limbs;
    uint64_t *words = calloc(N * n_words, 8), *want = calloc(N * n_limbs, 8), *got = calloc(N * n_limbs, 8);
    int64_t first_bad = -1;
    int n_good = 0;
    for (size_t k = 0; k < N; k++) {
        make_words(basis, words + k * n_words, &seed);
        pchan_error one, err = {.index = -1};
        pchan_status status = pchan_restore_reference(basis, words + k * n_words, 1, want + k * n_limbs, &err);
        if (status == PCHAN_OK) n_good++;
        if (status != PCHAN_OK && first_bad < 0) first_bad = (int64_t)k;
        CHECK(pchan_restore(basis, words + k * n_words, 1, got, &one) == status,
              "%s, %d bits: refused by one of restore and its reference", basis->kernel->name, basis->bits);
        CHECK(status != PCHAN_OK || !memcmp(got, want + k * n_limbs, n_limbs * 8), "%s, %d bits, seed %llu",
              basis->kernel->name, basis->bits, (unsigned long long)seed);
    }
    CHECK(n_good > 2 && n_good < N - 2, "%d of %d in range", n_good, N);
    pchan_error err = {.index = -1};
    CHECK(pchan_restore(basis, words, N, got, &err) == PCHAN_ERR_RANGE && err.index == first_bad,
          "%s, %d bits: first bad integer %lld instead of %lld", basis->kernel->name, basis->bits,
          (long long)err.index, (long long)first_bad);
    for (size_t k = 0; k < N; k++) {
        bool good = pchan_restore_reference(basis, words + k * n_words, 1, want, NULL) == PCHAN_OK;
        CHECK(!good || !memcmp(got + k * n_limbs, want, n_limbs * 8), "%s, %d bits, integer %zu of a batch",
              basis->kernel->name, basis->bits, k);
    }
    free(words);
    free(want);
    free(got);
}

/* ---- the choice ---- */

static void check_choice(void)
{
    const pch_kernel *kernel, *last = NULL;
    pchan_basis *basis;
    pchan_error err = {0};
    unsetenv("PCHAN_KERNEL");
    const char *fastest = pchan_kernel_name();
    for (int number = 0; (kernel = pch_kernel_by_number(number)); number++) {
        setenv("PCHAN_KERNEL", kernel->name, 1);
        CHECK(!strcmp(pchan_kernel_name(), kernel->name), "PCHAN_KERNEL=%s gives %s", kernel->name,
              pchan_kernel_name());
        last = kernel;
    }
    CHECK(!strcmp(pch_kernel_by_number(0)->name, "portable") && !strcmp(last->name, fastest), "fastest: %s",
          fastest);
    setenv("PCHAN_KERNEL", "abacus", 1);
    CHECK(pchan_basis_create(64, 8, &basis, &err) == PCHAN_ERR_ARG && strstr(err.message, "abacus"), "%s",
          err.message);
    unsetenv("PCHAN_KERNEL");
}

static void check_kernel(const pch_kernel *kernel)
{
    const int bits[] = {1, 20, 40, 64, 127, 1024, 2049, 5000};
    const size_t counts[] = {1, 2, 3, 16, 17, 50};
    for (size_t i = 0; i < sizeof bits / sizeof *bits; i++) {
        pchan_basis *basis = make_basis_for(kernel, bits[i], (int)i * 3);
        for (int dtype = PCHAN_FLOAT64; dtype <= PCHAN_UINT32; dtype++) {
            check_pack(basis, (pchan_dtype)dtype, 100 * (uint64_t)i + (uint64_t)dtype);
        }
        if (bits[i] < 1000) check_pack_refuses(basis);
        for (size_t k = 0; k < 6; k++) check_accumulate(basis, counts[k], 7 * (uint64_t)i + k);
        for (uint64_t seed = 1; seed <= 8; seed++) check_restore(basis, 1000 * (uint64_t)i + seed);
        pchan_basis_destroy(&basis);
    }
}

int main(void)
{
    const pch_kernel *kernel;
    for (int number = 0; (kernel = pch_kernel_by_number(number)); number++) check_kernel(kernel);
    check_choice();
    return 0;
}
