/* SPDX-License-Identifier: MIT
 *
 * pack, accumulate and restore per element at 2,049 bits, for every kernel that this machine runs,
 * and FLINT's fmpz_multi_CRT_ui on the same primes where its headers are installed (HAVE_FLINT).
 * Interleaved repetitions on one core; prints medians of processor time, in ns, and what the issue
 * of speed turns on: FLINT's time over restore's.
 *
 *   make -C csrc bench
 */
#include "../../csrc/core/pch_basis.h"

#ifdef HAVE_FLINT
#include <flint/flint.h>
#include <flint/fmpz.h>
#include <flint/fmpz_vec.h>
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BITS = 2049, ROWS = 16, COLS = 256, N = ROWS * COLS, REPETITIONS = 15 };
enum { PACK_F64, PACK_I64, PACK_U32, PACK_STRIDED, ACCUMULATE, RESTORE, FLINT, N_STAGES };

static const char *const titles[] = {"pack f64",   "pack i64", "pack u32", "pack strided",
                                     "accumulate", "restore",  "FLINT"};

typedef struct problem {
    pchan_basis *basis; /* of the kernel under test */
    size_t n_primes, n_words, n_limbs;
    uint64_t *limbs, *words, *sum, *back;
    pchan_array tiles[4]; /* one for each pack stage */
} problem;

static double processor_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
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

static void must(pchan_status status, const char *what)
{
    if (status == PCHAN_OK) return;
    printf("%s fails\n", what);
    exit(1);
}

static void *array(size_t n, size_t bytes)
{
    void *block = calloc(n, bytes);
    if (!block) must(PCHAN_ERR_NOMEM, "calloc");
    return block;
}

/* The same residues as float64, int64, uint32, and float64 with the primes fastest. */
static void make_tiles(problem *p, const double *residues)
{
    double *f64 = array(N * p->n_primes, 8), *strided = array(N * p->n_primes, 8);
    int64_t *i64 = array(N * p->n_primes, 8);
    uint32_t *u32 = array(N * p->n_primes, 4);
    for (size_t i = 0; i < p->n_primes; i++) {
        for (size_t k = 0; k < N; k++) {
            double r = residues[i * N + k];
            f64[i * N + k] = strided[k * p->n_primes + i] = r;
            i64[i * N + k] = (int64_t)r;
            u32[i * N + k] = (uint32_t)((int64_t)r + (r < 0 ? pchan_basis_primes(p->basis)[i] : 0));
        }
    }
    const ptrdiff_t unit = (ptrdiff_t)p->n_primes * 8;
    p->tiles[0] = (pchan_array){f64, PCHAN_FLOAT64, {p->n_primes, ROWS, COLS}, {8 * N, 8 * COLS, 8}};
    p->tiles[1] = (pchan_array){i64, PCHAN_INT64, {p->n_primes, ROWS, COLS}, {8 * N, 8 * COLS, 8}};
    p->tiles[2] = (pchan_array){u32, PCHAN_UINT32, {p->n_primes, ROWS, COLS}, {4 * N, 4 * COLS, 4}};
    p->tiles[3] = (pchan_array){strided, PCHAN_FLOAT64, {p->n_primes, ROWS, COLS}, {8, COLS * unit, unit}};
}

static problem make_problem(void)
{
    problem p = {0};
    must(pchan_basis_create(BITS, 8, &p.basis, NULL), "basis");
    p.n_primes = (size_t)pchan_basis_n_primes(p.basis);
    p.n_words = (size_t)pchan_basis_n_words(p.basis);
    p.n_limbs = (size_t)pchan_basis_n_limbs(p.basis);
    p.limbs = array(N * p.n_limbs, 8);
    p.back = array(N * p.n_limbs, 8);
    p.words = array(N * p.n_words, 8);
    p.sum = array(N * p.n_words, 8);
    double *residues = array(N * p.n_primes, 8);
    for (size_t k = 0; k < N; k++) {
        for (size_t i = 0; i + 1 < p.n_limbs; i++) {
            p.limbs[k * p.n_limbs + i] = (uint64_t)rand() * 0x9e3779b97f4a7c15u;
        }
    }
    must(pchan_residues(p.basis, p.limbs, N, residues, NULL), "residues");
    make_tiles(&p, residues);
    free(residues);
    return p;
}

/* One repetition: ns per element of every stage but FLINT's. */
static void run_kernel(problem *p, double *ns)
{
    double begin;
    for (int stage = PACK_F64; stage <= PACK_STRIDED; stage++) {
        memset(p->words, 0, N * p->n_words * 8);
        begin = processor_ns();
        must(pchan_pack(p->basis, &p->tiles[stage], p->words, NULL), titles[stage]);
        ns[stage] = (processor_ns() - begin) / N;
    }
    begin = processor_ns();
    pchan_accumulate(p->basis, p->sum, p->words, N);
    ns[ACCUMULATE] = (processor_ns() - begin) / N;
    begin = processor_ns();
    must(pchan_restore(p->basis, p->words, N, p->back, NULL), "restore");
    ns[RESTORE] = (processor_ns() - begin) / N;
    if (memcmp(p->back, p->limbs, N * p->n_limbs * 8)) must(PCHAN_ERR_RANGE, "the round trip");
}

#ifdef HAVE_FLINT

typedef struct flint_problem {
    mp_limb_t *canonical; /* [N][n_primes] */
    fmpz_comb_t comb;
    fmpz_comb_temp_t scratch;
    fmpz *out;
} flint_problem;

static void make_flint(const problem *p, flint_problem *f)
{
    mp_limb_t *primes = array(p->n_primes, sizeof *primes);
    f->canonical = array(N * p->n_primes, sizeof *f->canonical);
    for (size_t i = 0; i < p->n_primes; i++) {
        primes[i] = pchan_basis_primes(p->basis)[i];
        const uint32_t *row = (const uint32_t *)p->tiles[2].data + i * N;
        for (size_t k = 0; k < N; k++) f->canonical[k * p->n_primes + i] = row[k];
    }
    fmpz_comb_init(f->comb, primes, (slong)p->n_primes);
    fmpz_comb_temp_init(f->scratch, f->comb);
    f->out = _fmpz_vec_init(N);
    free(primes);
}

static double run_flint(const problem *p, flint_problem *f)
{
    double begin = processor_ns();
    for (size_t k = 0; k < N; k++) {
        fmpz_multi_CRT_ui(f->out + k, f->canonical + k * p->n_primes, f->comb, f->scratch, 1);
    }
    return (processor_ns() - begin) / N;
}

static void compare_flint(const problem *p, const flint_problem *f)
{
    fmpz_t x;
    fmpz_init(x);
    for (size_t k = 0; k < N; k++) {
        fmpz_set_ui_array(x, p->limbs + k * p->n_limbs, (slong)p->n_limbs);
        if (!fmpz_equal(x, f->out + k)) must(PCHAN_ERR_RANGE, "agreement with FLINT");
    }
    fmpz_clear(x);
}

#endif

int main(void)
{
    enum { MOST_KERNELS = 8 };
    static double ns[MOST_KERNELS][N_STAGES][REPETITIONS];
    problem p = make_problem();
    int n_kernels = 0;
    while (n_kernels < MOST_KERNELS && pch_kernel_by_number(n_kernels)) n_kernels++;
#ifdef HAVE_FLINT
    flint_problem f;
    make_flint(&p, &f);
#endif
    pchan_basis *bases[MOST_KERNELS];
    for (int k = 0; k < n_kernels; k++) {
        setenv("PCHAN_KERNEL", pch_kernel_by_number(k)->name, 1);
        must(pchan_basis_create(BITS, 8, &bases[k], NULL), "basis");
    }
    for (int r = 0; r < REPETITIONS; r++) {
        for (int k = 0; k < n_kernels; k++) {
            double once[N_STAGES] = {0};
            p.basis = bases[k];
            run_kernel(&p, once);
#ifdef HAVE_FLINT
            once[FLINT] = run_flint(&p, &f);
#endif
            for (int stage = 0; stage < N_STAGES; stage++) ns[k][stage][r] = once[stage];
        }
    }
#ifdef HAVE_FLINT
    compare_flint(&p, &f);
#endif
    printf("%d bits, %zu primes, ns of processor time per element, median of %d\n%-10s", BITS, p.n_primes,
           REPETITIONS, "kernel");
    for (int stage = 0; stage < N_STAGES; stage++) printf("%14s", titles[stage]);
    printf("%14s\n", "FLINT/restore");
    for (int k = 0; k < n_kernels; k++) {
        printf("%-10s", pch_kernel_by_number(k)->name);
        for (int stage = 0; stage < N_STAGES; stage++) printf("%14.0f", median(ns[k][stage]));
        printf("%14.2f\n", median(ns[k][FLINT]) / median(ns[k][RESTORE]));
    }
    return 0;
}
