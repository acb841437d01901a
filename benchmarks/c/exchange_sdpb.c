/* SPDX-License-Identifier: MIT
 *
 * SDPB's exchange, for bench_qreduce.py to compare with: residues in float64, FLINT's CRT, GMP floats that are
 * serialized, sent, deserialized and added one by one. One rank per node. Element-cyclic owners.
 *
 *   pairwise   for offset = 1 .. ranks - 1: restore and serialize what rank + offset owns, MPI_Sendrecv, add what
 * came from rank - offset ring       everything restored first; ranks - 1 steps of: receive from rank - 1, add the
 * own numbers, send to rank + 1; every step asks for the owner of each (i, j)
 *
 * Written after the description of SDPB's algorithm, not after its source. Built by bench_qreduce.py:
 *   mpicc -O3 -shared -fPIC exchange_sdpb.c -lflint -lgmp -o exchange_sdpb.so
 */
#include <flint/flint.h>
#include <flint/fmpz.h>
#include <flint/fmpz_vec.h>
#include <gmp.h>
#include <mpi.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct exchange {
    MPI_Comm comm;
    int rank, size, grid_rows, grid_cols, n_primes, n_limbs;
    long n, n_total, n_longest; /* rows; elements; of the largest part */
    const double *residues;     /* [n_primes][n_total], upper triangle by rows, 0 <= r < p; borrowed */
    fmpz_comb_t comb;
    fmpz_comb_temp_t scratch;
    mp_limb_t *one; /* residues of one element */
    mpf_t *numbers; /* ring: of all elements, else of the own ones */
    char *buffers[2];
} exchange;

static int owner_of(const exchange *x, long i, long j)
{
    return (int)(i % x->grid_rows + j % x->grid_cols * x->grid_rows);
}

/* size and exponent, then all limbs that the precision has: 12 + 8 (limbs + 1) bytes */
static size_t number_bytes(const exchange *x)
{
    return 12 + 8 * (size_t)(x->n_limbs + 1);
}

static void serialize(const exchange *x, const mpf_t number, char *out)
{
    int size = number->_mp_size, n = abs(size);
    long exponent = number->_mp_exp;
    memcpy(out, &size, 4);
    memcpy(out + 4, &exponent, 8);
    memcpy(out + 12, number->_mp_d, 8 * (size_t)n);
    memset(out + 12 + 8 * n, 0, 8 * (size_t)(x->n_limbs + 1 - n));
}

static void deserialize(const char *in, mpf_t number)
{
    int size;
    long exponent;
    memcpy(&size, in, 4);
    memcpy(&exponent, in + 4, 8);
    number->_mp_size = size;
    number->_mp_exp = exponent;
    memcpy(number->_mp_d, in + 12, 8 * (size_t)abs(size));
}

static void restore(exchange *x, long element, fmpz_t integer, mpf_t number)
{
    for (int k = 0; k < x->n_primes; k++) x->one[k] = (mp_limb_t)x->residues[k * x->n_total + element];
    fmpz_multi_CRT_ui(integer, x->one, x->comb, x->scratch, 1);
    fmpz_get_mpf(number, integer);
}

exchange *exchange_create(MPI_Comm comm, long n, int n_primes, const uint32_t *primes, int bits, int grid_rows,
                          const double *residues, int ring)
{
    exchange *x = calloc(1, sizeof *x);
    x->comm = comm;
    MPI_Comm_rank(comm, &x->rank);
    MPI_Comm_size(comm, &x->size);
    x->grid_rows = grid_rows;
    x->grid_cols = x->size / grid_rows;
    x->n_primes = n_primes;
    x->n = n;
    x->n_total = n * (n + 1) / 2;
    x->residues = residues;
    x->one = calloc((size_t)n_primes, sizeof *x->one);
    for (int k = 0; k < n_primes; k++) x->one[k] = primes[k];
    fmpz_comb_init(x->comb, x->one, n_primes);
    fmpz_comb_temp_init(x->scratch, x->comb);
    long *counts = calloc((size_t)x->size, sizeof *counts);
    for (long i = 0; i < n; i++) {
        for (long j = i; j < n; j++) counts[owner_of(x, i, j)]++;
    }
    for (int r = 0; r < x->size; r++) {
        if (counts[r] > x->n_longest) x->n_longest = counts[r];
    }
    long n_numbers = ring ? x->n_total : counts[x->rank];
    free(counts);
    x->numbers = calloc((size_t)n_numbers + 1, sizeof *x->numbers);
    for (long k = 0; k < n_numbers; k++) mpf_init2(x->numbers[k], (mp_bitcnt_t)bits);
    mpf_init2(x->numbers[n_numbers], (mp_bitcnt_t)bits);
    x->n_limbs = x->numbers[n_numbers]->_mp_prec;
    mpf_clear(x->numbers[n_numbers]);
    for (int b = 0; b < 2; b++) x->buffers[b] = calloc((size_t)x->n_longest + 1, number_bytes(x));
    return x;
}

void exchange_destroy(exchange *x, int ring)
{
    long k = 0;
    for (long i = 0; i < x->n; i++) {
        for (long j = i; j < x->n; j++) {
            if (ring || owner_of(x, i, j) == x->rank) mpf_clear(x->numbers[k++]);
        }
    }
    fmpz_comb_temp_clear(x->scratch);
    fmpz_comb_clear(x->comb);
    free(x->numbers);
    free(x->one);
    free(x->buffers[0]);
    free(x->buffers[1]);
    free(x);
}

double exchange_bytes(const exchange *x, int ring)
{
    double numbers = (ring ? (double)x->n_total : (double)x->n_longest) * (8.0 * (x->n_limbs + 1) + sizeof(mpf_t));
    return 8.0 * x->n_primes * (double)x->n_total + numbers + 2.0 * (double)x->n_longest * (double)number_bytes(x);
}

static void sendrecv(exchange *x, long n_out, int to, long n_in, int from)
{
    size_t bytes = number_bytes(x);
    MPI_Sendrecv(x->buffers[0], (int)(n_out * (long)bytes), MPI_BYTE, to, 0, x->buffers[1],
                 (int)(n_in * (long)bytes), MPI_BYTE, from, 0, x->comm, MPI_STATUS_IGNORE);
}

void exchange_pairwise(exchange *x)
{
    fmpz_t integer;
    mpf_t other;
    fmpz_init(integer);
    mpf_init2(other, mpf_get_prec(x->numbers[0]));
    size_t bytes = number_bytes(x);
    for (int offset = 0; offset < x->size; offset++) {
        int to = (x->rank + offset) % x->size, from = (x->rank - offset + x->size) % x->size;
        long element = 0, n_out = 0, n_in = 0;
        for (long i = 0; i < x->n; i++) {
            for (long j = i; j < x->n; j++, element++) {
                int owner = owner_of(x, i, j);
                if (owner == x->rank) n_in++;
                if (owner != to) continue;
                restore(x, element, integer, offset ? other : x->numbers[n_out]);
                if (offset) serialize(x, other, x->buffers[0] + (size_t)n_out * bytes);
                n_out++;
            }
        }
        if (!offset) continue;
        sendrecv(x, n_out, to, n_in, from);
        for (long k = 0; k < n_in; k++) {
            deserialize(x->buffers[1] + (size_t)k * bytes, other);
            mpf_add(x->numbers[k], x->numbers[k], other);
        }
    }
    mpf_clear(other);
    fmpz_clear(integer);
}

/* One part: numbers of `part` from in (NULL: none yet) plus the own ones, to out (NULL: into the own numbers). */
static long add_part(exchange *x, int part, const char *in, char *out, mpf_t other)
{
    size_t bytes = number_bytes(x);
    long element = 0, n = 0;
    for (long i = 0; i < x->n; i++) {
        for (long j = i; j < x->n; j++, element++) {
            if (owner_of(x, i, j) != part) continue;
            if (in) deserialize(in + (size_t)n * bytes, other);
            if (in) mpf_add(other, other, x->numbers[element]);
            if (out) serialize(x, in ? other : x->numbers[element], out + (size_t)n * bytes);
            if (!out) mpf_set(x->numbers[element], other);
            n++;
        }
    }
    return n;
}

static long part_length(const exchange *x, int part)
{
    long n = 0;
    for (long i = 0; i < x->n; i++) {
        for (long j = i; j < x->n; j++) n += owner_of(x, i, j) == part;
    }
    return n;
}

void exchange_ring(exchange *x)
{
    fmpz_t integer;
    mpf_t other;
    fmpz_init(integer);
    mpf_init2(other, mpf_get_prec(x->numbers[0]));
    for (long k = 0; k < x->n_total; k++) restore(x, k, integer, x->numbers[k]);
    int left = (x->rank - 1 + x->size) % x->size, right = (x->rank + 1) % x->size;
    long n_out = x->size > 1 ? add_part(x, left, NULL, x->buffers[0], other) : 0;
    for (int step = 0; step + 1 < x->size; step++) {
        int part = ((x->rank - 2 - step) % x->size + x->size) % x->size;
        sendrecv(x, n_out, right, part_length(x, part), left);
        n_out = add_part(x, part, x->buffers[1], part == x->rank ? NULL : x->buffers[0], other);
    }
    mpf_clear(other);
    fmpz_clear(integer);
}

/* Own element number k as mantissa * 2^exponent. */
double exchange_result(exchange *x, int ring, long number, long *exponent)
{
    long element = 0, n = 0;
    for (long i = 0; i < x->n; i++) {
        for (long j = i; j < x->n; j++, element++) {
            if (owner_of(x, i, j) != x->rank || n++ != number) continue;
            return mpf_get_d_2exp(exponent, x->numbers[ring ? element : number]);
        }
    }
    return 0;
}

/* A scan alone, as in each step of the ring: how many elements `part` owns. */
long exchange_scan(const exchange *x, int part)
{
    return part_length(x, part);
}
