/* SPDX-License-Identifier: MIT
 *
 * Matrices of known integers for the tests of the reduce-scatter. Their sum is taken in two's
 * complement limbs, so it shares nothing with residues.
 */
#ifndef PCHAN_TESTING_QREDUCE_H
#define PCHAN_TESTING_QREDUCE_H

#include "testing_mpi.h" /* first, see there */

#include "testing_basis.h"

/* Divisions of the ranks into nodes. */
enum { ONE_NODE, EACH_RANK, UNEQUAL, CYCLIC, N_DIVISIONS };

static inline MPI_Comm divide(int division)
{
    const int colors[] = {0, world_rank, world_rank > 0, world_rank % 2};
    MPI_Comm node;
    /* in reverse order within a node: nothing may depend on it */
    MPI_Comm_split(MPI_COMM_WORLD, colors[division], -world_rank, &node);
    return node;
}

static const char *const strategy_names[] = {"residues", "restored", "ring", "ring_scan", "mpi", "gather"};
enum { N_STRATEGIES = sizeof strategy_names / sizeof *strategy_names };

/* A custom layout that is not separable, and leaves the last of several ranks without elements. */
static inline int32_t *odd_owners(int n, int n_ranks)
{
    int32_t *owners = calloc((size_t)n * (size_t)n, sizeof *owners);
    int m = n_ranks > 1 ? n_ranks - 1 : 1, k = 0;
    for (int i = 0; i < n; i++) {
        for (int j = i; j < n; j++) owners[k++] = (i * i + 3 * j + i * j) % 7 % m;
    }
    return owners;
}

static inline void add_limbs(uint64_t *sum, const uint64_t *x, int n)
{
    uint64_t carry = 0;
    for (int k = 0; k < n; k++) {
        uint64_t s = sum[k] + x[k], more = s < x[k];
        sum[k] = s + carry;
        carry = more | (sum[k] < s);
    }
}

/* The n x n integers, row-major, that a rank adds in a cycle, known to every rank; the sum over ranks stays in
 * range. */
static inline void rank_integers(const pchan_basis *basis, int n, int rank, int cycle, uint64_t *limbs)
{
    uint64_t seed = (uint64_t)(1000 * cycle + rank) * 77 + (uint64_t)n;
    int n_limbs = pchan_basis_n_limbs(basis);
    int bits = pchan_basis_bits(basis) - 2; /* of up to 4 ranks */
    for (int k = 0; k < n * n; k++) random_integer(limbs + k * n_limbs, n_limbs, bits, &seed);
}

typedef struct matrix {
    int n, n_limbs, n_primes;
    uint64_t *limbs, *sum; /* [n][n][n_limbs] */
    double *residues;      /* [n_primes][n][n] */
} matrix;

static inline matrix make_matrix(const pchan_basis *basis, int n)
{
    matrix m = {.n = n, .n_limbs = pchan_basis_n_limbs(basis), .n_primes = pchan_basis_n_primes(basis)};
    size_t nn = (size_t)n * (size_t)n;
    m.limbs = calloc(nn * (size_t)m.n_limbs, 8);
    m.sum = calloc(nn * (size_t)m.n_limbs, 8);
    m.residues = calloc(nn * (size_t)m.n_primes, 8);
    return m;
}

static inline void free_matrix(matrix *m)
{
    free(m->limbs);
    free(m->sum);
    free(m->residues);
}

/* m->sum over all ranks, m->residues of this rank's part. */
static inline void fill_matrix(const pchan_basis *basis, matrix *m, int cycle)
{
    size_t nn = (size_t)m->n * (size_t)m->n;
    memset(m->sum, 0, nn * (size_t)m->n_limbs * 8);
    for (int r = 0; r < world_size; r++) {
        rank_integers(basis, m->n, r, cycle, m->limbs);
        for (size_t k = 0; k < nn; k++)
            add_limbs(m->sum + k * (size_t)m->n_limbs, m->limbs + k * (size_t)m->n_limbs, m->n_limbs);
    }
    rank_integers(basis, m->n, world_rank, cycle, m->limbs);
    OK(pchan_residues(basis, m->limbs, nn, m->residues, err));
}

/* The part [rows][cols] of the residues from (i0, j0) on, without a copy. */
static inline pchan_array part_of(const matrix *m, int i0, int j0, int rows, int cols)
{
    size_t n = (size_t)m->n;
    return (pchan_array){.data = m->residues + (size_t)i0 * n + (size_t)j0,
                         .dtype = PCHAN_FLOAT64,
                         .shape = {(size_t)m->n_primes, (size_t)rows, (size_t)cols},
                         .strides = {(ptrdiff_t)(n * n * 8), (ptrdiff_t)(n * 8), 8}};
}

static inline void add_part(pchan_qreduce *q, const matrix *m, int i0, int j0, int rows, int cols)
{
    pchan_array tile = part_of(m, i0, j0, rows, cols);
    OK(pchan_qreduce_add(q, i0, j0, &tile, err));
}

static inline void add_all(pchan_qreduce *q, const matrix *m)
{
    add_part(q, m, 0, 0, m->n, m->n);
}

/* A reduce-scatter with memory for its results. */
typedef struct object {
    pchan_qreduce *q;
    int64_t n_local, *rows, *cols;
    uint64_t *limbs;
} object;

static inline object make_object(MPI_Comm comm, int n, const pchan_basis *basis,
                                 const pchan_qreduce_options *options)
{
    object o = {0};
    int rank;
    OK(pchan_qreduce_create(comm, n, basis, options, &o.q, err));
    MPI_Comm_rank(comm, &rank);
    o.n_local = pchan_qreduce_n_owned(o.q, rank);
    o.rows = calloc((size_t)o.n_local + 1, 8);
    o.cols = calloc((size_t)o.n_local + 1, 8);
    o.limbs = calloc((size_t)o.n_local * (size_t)pchan_basis_n_limbs(basis) + 1, 8);
    pchan_qreduce_owned(o.q, rank, o.rows, o.cols);
    OK(pchan_qreduce_set_output(o.q, o.limbs, err));
    return o;
}

static inline void free_object(object *o)
{
    OK(pchan_qreduce_destroy(&o->q, err));
    free(o->rows);
    free(o->cols);
    free(o->limbs);
}

static inline void check_result(const object *o, const matrix *m, const char *what)
{
    for (int64_t k = 0; k < o->n_local; k++) {
        const uint64_t *want = m->sum + (o->rows[k] * m->n + o->cols[k]) * m->n_limbs;
        CHECK(!memcmp(o->limbs + k * m->n_limbs, want, (size_t)m->n_limbs * 8),
              "rank %d of %d, %s, n = %d: (%lld, %lld)", world_rank, world_size, what, m->n, (long long)o->rows[k],
              (long long)o->cols[k]);
    }
}

static inline void run_cycle(object *o, const pchan_basis *basis, int n, int cycle, const char *what)
{
    matrix m = make_matrix(basis, n);
    fill_matrix(basis, &m, cycle);
    add_all(o->q, &m);
    OK(pchan_qreduce_start(o->q, err));
    OK(pchan_qreduce_wait(o->q, -1, err));
    check_result(o, &m, what);
    free_matrix(&m);
}

#endif
