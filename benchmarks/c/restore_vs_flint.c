/* SPDX-License-Identifier: MIT
 *
 * restore, pack and accumulate per element at 2,049 bits, beside FLINT's fmpz_multi_CRT_ui on the
 * same primes. Interleaved repetitions on one core; prints the medians in ns and the ratio.
 *
 *   make -C csrc
 *   gcc -O3 -D_GNU_SOURCE benchmarks/c/restore_vs_flint.c csrc/core/{status,alloc,limbs,kernels,primes,residues,\
 *       pack,restore,restore_reference}.c -ffp-contract=fast -lflint -lgmp -lm -o build/restore_vs_flint
 *   taskset -c 0 build/restore_vs_flint
 */
#include "../../csrc/core/pch_basis.h"

#include <flint/flint.h>
#include <flint/fmpz.h>
#include <flint/fmpz_vec.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { BITS = 2049, N = 2000, REPETITIONS = 25 };

static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e9 * (double)t.tv_sec + (double)t.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double median(double *values)
{
    qsort(values, REPETITIONS, sizeof *values, by_value);
    return values[REPETITIONS / 2];
}

int main(void)
{
    pchan_basis *basis;
    if (pchan_basis_create(BITS, 8, &basis, NULL) != PCHAN_OK) return 1;
    size_t n_primes = (size_t)pchan_basis_n_primes(basis), n_limbs = (size_t)pchan_basis_n_limbs(basis);
    size_t n_words = (size_t)pchan_basis_n_words(basis);
    uint64_t *limbs = calloc(N * n_limbs, 8), *back = calloc(N * n_limbs, 8), *words = calloc(N * n_words, 8);
    uint64_t *sum = calloc(N * n_words, 8);
    double *residues = calloc(N * n_primes, 8);
    for (size_t k = 0; k < N; k++) {
        for (size_t i = 0; i + 1 < n_limbs; i++) limbs[k * n_limbs + i] = (uint64_t)rand() * 0x9e3779b97f4a7c15u;
    }
    if (pchan_residues(basis, limbs, N, residues, NULL) != PCHAN_OK) return 1;
    pchan_array tile = {residues, PCHAN_FLOAT64, {n_primes, 1, N}, {8 * N, 8 * N, 8}};

    mp_limb_t *primes = calloc(n_primes, sizeof *primes), *canonical = calloc(N * n_primes, sizeof *canonical);
    for (size_t i = 0; i < n_primes; i++) {
        primes[i] = pchan_basis_primes(basis)[i];
        for (size_t k = 0; k < N; k++) {
            double r = residues[i * N + k];
            canonical[k * n_primes + i] = (mp_limb_t)(r < 0 ? r + (double)primes[i] : r);
        }
    }
    fmpz_comb_t comb;
    fmpz_comb_temp_t scratch;
    fmpz_comb_init(comb, primes, (slong)n_primes);
    fmpz_comb_temp_init(scratch, comb);
    fmpz *out = _fmpz_vec_init(N);

    double restore[REPETITIONS], pack[REPETITIONS], accumulate[REPETITIONS], flint[REPETITIONS];
    for (int r = 0; r < REPETITIONS; r++) {
        double t0 = now_ns();
        if (pchan_pack(basis, &tile, words, NULL) != PCHAN_OK) return 1;
        double t1 = now_ns();
        pchan_accumulate(basis, sum, words, N);
        double t2 = now_ns();
        if (pchan_restore(basis, words, N, back, NULL) != PCHAN_OK) return 1;
        double t3 = now_ns();
        for (size_t k = 0; k < N; k++) fmpz_multi_CRT_ui(out + k, canonical + k * n_primes, comb, scratch, 1);
        double t4 = now_ns();
        pack[r] = (t1 - t0) / N;
        accumulate[r] = (t2 - t1) / N;
        restore[r] = (t3 - t2) / N;
        flint[r] = (t4 - t3) / N;
    }
    for (size_t k = 0; k < N; k++) {
        fmpz_t x;
        fmpz_init(x);
        fmpz_set_ui_array(x, limbs + k * n_limbs, (slong)n_limbs);
        if (!fmpz_equal(x, out + k)) return printf("FLINT disagrees at %zu\n", k), 1;
        for (size_t i = 0; i < n_limbs; i++) {
            if (back[k * n_limbs + i] != limbs[k * n_limbs + i]) return printf("restore is wrong at %zu\n", k), 1;
        }
        fmpz_clear(x);
    }
    double ours = median(restore), theirs = median(flint);
    printf("%d bits, %zu primes, kernel %s, ns per element (median of %d)\n", BITS, n_primes, pchan_kernel_name(),
           REPETITIONS);
    printf("pack %.0f  accumulate %.0f  restore %.0f  FLINT %.0f  FLINT/restore %.2f\n", median(pack),
           median(accumulate), ours, theirs, theirs / ours);
    return 0;
}
