/* SPDX-License-Identifier: MIT
 * pack from every type of residue, any representative and stride, against slow_words; accumulate
 * against the words of the sum; what is refused. */
#include "testing_basis.h"

#include <math.h>

enum { ROWS = 3, COLS = 70 };

typedef struct fixture {
    pchan_basis *basis;
    int n_primes, n_words, n_limbs, bits;
    uint64_t *x, *words, *want;
} fixture;

static fixture make_fixture(int bits, uint64_t *seed)
{
    fixture f = {.basis = make_basis(bits, 8), .bits = bits};
    f.n_primes = pchan_basis_n_primes(f.basis);
    f.n_words = pchan_basis_n_words(f.basis);
    f.n_limbs = pchan_basis_n_limbs(f.basis);
    f.x = calloc((size_t)(ROWS * COLS * f.n_limbs), sizeof *f.x);
    f.words = calloc((size_t)(ROWS * COLS * f.n_words), sizeof *f.words);
    f.want = calloc((size_t)(ROWS * COLS * f.n_words), sizeof *f.want);
    for (int k = 0; k < ROWS * COLS; k++) {
        random_integer(f.x + k * f.n_limbs, f.n_limbs, bits, seed);
        slow_words(f.basis, f.x + k * f.n_limbs, f.want + k * f.n_words);
    }
    return f;
}

static void free_fixture(fixture *f)
{
    free(f->x);
    free(f->words);
    free(f->want);
    pchan_basis_destroy(&f->basis);
}

/* A representative of x mod p: canonical, symmetric, or near the largest that the type allows. */
static int64_t representative(int64_t r, int64_t p, pchan_dtype dtype, uint64_t *seed)
{
    const int64_t most = dtype == PCHAN_FLOAT64 ? (int64_t)1 << 53 : dtype == PCHAN_INT64 ? INT64_MAX : UINT32_MAX;
    const int64_t least = dtype == PCHAN_UINT32 ? 0 : dtype == PCHAN_INT64 ? INT64_MIN : -most;
    switch (random_u64(seed) % 4) {
        case 0: return r;
        case 1: return r + (most - r) / p * p;
        case 2: return least == 0 ? r : r - (r - (least + p)) / p * p;
        default: return r + (int64_t)(random_u64(seed) % (uint64_t)((most - r) / p)) * p;
    }
}

static void check_dtype(fixture *f, pchan_dtype dtype, int step, uint64_t *seed)
{
    size_t size = dtype == PCHAN_UINT32 ? 4 : 8;
    size_t n = (size_t)(f->n_primes * ROWS * COLS) * (size_t)abs(step);
    char *data = calloc(n, size);
    /* stored [cols][primes][rows], every step-th element, backwards for a negative step */
    ptrdiff_t unit = (ptrdiff_t)size * step;
    char *origin = step > 0 ? data : data + (n - 1) * size;
    pchan_array a = {
        origin, dtype, {(size_t)f->n_primes, ROWS, COLS}, {unit * ROWS, unit, unit * ROWS * f->n_primes}};
    for (int i = 0; i < f->n_primes; i++) {
        int64_t p = pchan_basis_primes(f->basis)[i];
        for (int k = 0; k < ROWS * COLS; k++) {
            int64_t r = (int64_t)(f->want[k * f->n_words + i / 3] % (uint64_t)p);
            int64_t value = representative(r, p, dtype, seed);
            char *place = origin + i * a.strides[0] + k / COLS * a.strides[1] + k % COLS * a.strides[2];
            if (dtype == PCHAN_FLOAT64) *(double *)(void *)place = (double)value;
            if (dtype == PCHAN_INT64) *(int64_t *)(void *)place = value;
            if (dtype == PCHAN_UINT32) *(uint32_t *)(void *)place = (uint32_t)value;
        }
    }
    pchan_error err;
    CHECK(pchan_pack(f->basis, &a, f->words, &err) == PCHAN_OK, "%s", err.message);
    for (int k = 0; k < ROWS * COLS * f->n_words; k++) {
        CHECK(f->words[k] == f->want[k], "%d bits, type %d, step %d: word %d is %llu instead of %llu", f->bits,
              dtype, step, k, (unsigned long long)f->words[k], (unsigned long long)f->want[k]);
    }
    free(data);
}

static void check_refused(fixture *f)
{
    size_t n = (size_t)(f->n_primes * ROWS * COLS);
    double *r = calloc(n, sizeof *r);
    const ptrdiff_t row = COLS * sizeof(double);
    pchan_array a = {r, PCHAN_FLOAT64, {(size_t)f->n_primes, ROWS, COLS}, {ROWS * row, row, sizeof(double)}};
    const double bad[] = {NAN, INFINITY, -INFINITY, 0.5, 9007199254740994.0, -1e300};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        pchan_error err = {0};
        r[n - 2] = bad[i];
        pchan_status status = pchan_pack(f->basis, &a, f->words, &err);
        CHECK(status == PCHAN_ERR_ARG && err.index == ROWS * COLS - 2, "%g is accepted (%s)", bad[i], err.message);
    }
    r[n - 2] = 9007199254740992.0;
    CHECK(pchan_pack(f->basis, &a, f->words, NULL) == PCHAN_OK, "2^53 is refused");
    a.shape[0]++;
    CHECK(pchan_pack(f->basis, &a, f->words, NULL) == PCHAN_ERR_ARG, "one prime too many is accepted");
    free(r);
}

/* words(x) + words(y) = words(x + y); x and y a bit shorter than the basis */
static void check_accumulate(int bits, uint64_t *seed)
{
    pchan_basis *basis = make_basis(bits, 8);
    int n_limbs = pchan_basis_n_limbs(basis), n_words = pchan_basis_n_words(basis);
    uint64_t x[200], y[200], sum[200], words[3][200];
    for (int k = 0; k < 50; k++) {
        random_integer(x, n_limbs, bits - 1, seed);
        random_integer(y, n_limbs, bits - 1, seed);
        uint64_t carry = 0;
        for (int i = 0; i < n_limbs; i++) {
            unsigned __int128 s = (unsigned __int128)x[i] + y[i] + carry;
            sum[i] = (uint64_t)s;
            carry = (uint64_t)(s >> 64);
        }
        slow_words(basis, x, words[0]);
        slow_words(basis, y, words[1]);
        slow_words(basis, sum, words[2]);
        pchan_accumulate(basis, words[0], words[1], 1);
        CHECK(!memcmp(words[0], words[2], (size_t)n_words * 8), "%d bits, pair %d", bits, k);
    }
    pchan_basis_destroy(&basis);
}

int main(void)
{
    uint64_t seed = 20261201;
    const int bits[] = {1, 40, 65, 512, 2049, 4096};
    for (size_t i = 0; i < sizeof bits / sizeof *bits; i++) {
        fixture f = make_fixture(bits[i], &seed);
        for (int dtype = PCHAN_FLOAT64; dtype <= PCHAN_UINT32; dtype++) {
            check_dtype(&f, (pchan_dtype)dtype, 1, &seed);
            check_dtype(&f, (pchan_dtype)dtype, -3, &seed);
        }
        check_refused(&f);
        free_fixture(&f);
        if (bits[i] > 1) check_accumulate(bits[i], &seed);
    }
    return 0;
}
