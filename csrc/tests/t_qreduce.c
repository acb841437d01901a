/* SPDX-License-Identifier: MIT
 * QReduceScatter from C: every strategy, layout and division into nodes against words added and
 * restored here; range errors; arguments; memory; and a window that is shared. */
#include "testing_mpi.h"

#include "../core/pch_window.h"
#include "testing_basis.h"

static const char *const strategies[] = {"residues", "gather"};

static MPI_Comm split(int kind)
{
    int color = kind == 0 ? 0 : kind == 1 ? world_rank : kind == 2 ? world_rank > 0 : world_rank % 2;
    MPI_Comm node;
    MPI_Comm_split(MPI_COMM_WORLD, color, -world_rank, &node);
    return node;
}

/* What a rank adds, known to all: residues [n_primes][n][n], and its words. */
static void contribution(const pchan_basis *basis, int64_t n, int rank, int cycle, uint64_t *limbs,
                         double *residues)
{
    uint64_t seed = (uint64_t)(1000 * rank + cycle);
    int n_limbs = pchan_basis_n_limbs(basis);
    for (int64_t k = 0; k < n * n; k++) {
        random_integer(limbs + k * n_limbs, n_limbs, pchan_basis_bits(basis) - 3, &seed);
    }
    OK(pchan_residues(basis, limbs, (size_t)(n * n), residues, err));
}

typedef struct problem {
    pchan_basis *basis;
    int64_t n;
    uint64_t *limbs, *words, *sum, *want;
    double *residues;
} problem;

static problem make_problem(int bits, int64_t n)
{
    problem p = {.basis = make_basis(bits, 8), .n = n};
    size_t count = (size_t)(n * n), n_words = (size_t)pchan_basis_n_words(p.basis);
    size_t n_limbs = (size_t)pchan_basis_n_limbs(p.basis);
    p.limbs = calloc(count * n_limbs, 8);
    p.want = calloc(count * n_limbs, 8);
    p.words = calloc(count * n_words, 8);
    p.sum = calloc(count * n_words, 8);
    p.residues = calloc(count * (size_t)pchan_basis_n_primes(p.basis), 8);
    return p;
}

static void free_problem(problem *p)
{
    free(p->limbs);
    free(p->want);
    free(p->words);
    free(p->sum);
    free(p->residues);
    pchan_basis_destroy(&p->basis);
}

static pchan_array tile_of(const problem *p)
{
    ptrdiff_t n = (ptrdiff_t)p->n;
    size_t rows = (size_t)n;
    return (pchan_array){
        p->residues, PCHAN_FLOAT64, {(size_t)pchan_basis_n_primes(p->basis), rows, rows}, {8 * n * n, 8 * n, 8}};
}

static void one_cycle(problem *p, pchan_qreduce *q, uint64_t *mine, int cycle)
{
    size_t count = (size_t)(p->n * p->n), n_words = (size_t)pchan_basis_n_words(p->basis);
    pchan_array tile = tile_of(p);
    memset(p->sum, 0, count * n_words * 8);
    for (int r = 0; r < world_size; r++) {
        contribution(p->basis, p->n, r, cycle, p->limbs, p->residues);
        OK(pchan_pack(p->basis, &tile, p->words, err));
        pchan_accumulate(p->basis, p->sum, p->words, count);
        if (r == world_rank) OK(pchan_qreduce_add(q, 0, 0, &tile, err));
    }
    OK(pchan_restore_reference(p->basis, p->sum, count, p->want, err));
    OK(pchan_qreduce_start(q, err));
    OK(pchan_qreduce_wait(q, -1, err));
    int64_t n_local = pchan_qreduce_n_owned(q, world_rank);
    int64_t *rows = calloc((size_t)n_local + 1, 8), *cols = calloc((size_t)n_local + 1, 8);
    pchan_qreduce_owned(q, world_rank, rows, cols);
    int n_limbs = pchan_basis_n_limbs(p->basis);
    for (int64_t k = 0; k < n_local; k++) {
        const uint64_t *want = p->want + (rows[k] * p->n + cols[k]) * n_limbs;
        CHECK(!memcmp(mine + k * n_limbs, want, (size_t)n_limbs * 8), "cycle %d, (%lld, %lld)", cycle,
              (long long)rows[k], (long long)cols[k]);
    }
    free(rows);
    free(cols);
}

static void check(int bits, int64_t n, int strategy, int layout, int nodes, int64_t buffer_bytes)
{
    problem p = make_problem(bits, n);
    MPI_Comm node = split(nodes);
    pchan_qreduce_options options = {
        .node_comm = &node, .strategy = strategies[strategy], .buffer_bytes = buffer_bytes};
    options.layout.kind = (pchan_layout_kind)layout;
    if (layout == PCHAN_BLOCK_CYCLIC) options.layout.block = 2;
    pchan_qreduce *q = NULL;
    OK(pchan_qreduce_create(MPI_COMM_WORLD, n, p.basis, &options, &q, err));
    size_t n_limbs = (size_t)pchan_basis_n_limbs(p.basis);
    uint64_t *mine = calloc((size_t)pchan_qreduce_n_owned(q, world_rank) * n_limbs + 1, 8);
    OK(pchan_qreduce_set_output(q, mine, err));
    for (int cycle = 0; cycle < 3; cycle++) one_cycle(&p, q, mine, cycle);
    uint64_t *all = calloc((size_t)(n * (n + 1) / 2) * n_limbs, 8);
    OK(pchan_qreduce_gather(q, 0, world_rank ? NULL : all, err));
    if (!world_rank) CHECK(!memcmp(all, mine, (size_t)pchan_qreduce_n_owned(q, 0) * n_limbs * 8), "gather");
    OK(pchan_qreduce_destroy(&q, err));
    MPI_Comm_free(&node);
    free(all);
    free(mine);
    free_problem(&p);
}

static void test_states_and_range(void)
{
    problem p = make_problem(70, 4);
    pchan_qreduce *q = NULL;
    pchan_array tile = tile_of(&p);
    OK(pchan_qreduce_create(MPI_COMM_WORLD, 4, p.basis, NULL, &q, err));
    uint64_t *mine = calloc((size_t)pchan_qreduce_n_owned(q, world_rank) * 2 + 1, 8);
    if (pchan_qreduce_n_owned(q, world_rank)) FAILS(PCHAN_ERR_STATE, pchan_qreduce_start(q, err));
    OK(pchan_qreduce_set_output(q, mine, err));
    FAILS(PCHAN_ERR_STATE, pchan_qreduce_wait(q, -1, err));
    FAILS(PCHAN_ERR_STATE, pchan_qreduce_gather(q, 0, mine, err));
    FAILS(PCHAN_ERR_ARG, pchan_qreduce_add(q, 1, 0, &tile, err));
    for (int k = 0; k < 16; k++) p.limbs[2 * k + 1] = 63; /* 63 * 2^64 < 2^70, twice that is not */
    OK(pchan_residues(p.basis, p.limbs, 16, p.residues, err));
    if (world_rank == world_size - 1) {
        OK(pchan_qreduce_add(q, 0, 0, &tile, err));
        tile.shape[1] = tile.shape[2] = 2;
        OK(pchan_qreduce_add(q, 1, 2, &tile, err));
    }
    OK(pchan_qreduce_start(q, err));
    FAILS(PCHAN_ERR_STATE, pchan_qreduce_start(q, err));
    FAILS(PCHAN_ERR_STATE, pchan_qreduce_add(q, 0, 0, &tile, err));
    FAILS(PCHAN_ERR_STATE, pchan_qreduce_destroy(&q, err));
    FAILS(PCHAN_ERR_RANGE, pchan_qreduce_wait(q, -1, err));
    uint64_t before = pchan_allocation_count();
    for (int cycle = 0; cycle < 50; cycle++) {
        OK(pchan_qreduce_add(q, 0, 0, &tile, err));
        OK(pchan_qreduce_start(q, err));
        pchan_error failure;
        pchan_status status = pchan_qreduce_wait(q, -1, &failure);
        CHECK(status == (world_size == 1 ? PCHAN_OK : PCHAN_ERR_RANGE), "cycle %d: %s", cycle, failure.message);
    }
    CHECK(pchan_allocation_count() == before, "a cycle allocates");
    OK(pchan_qreduce_destroy(&q, err));
    free(mine);
    free_problem(&p);
}

static void test_arguments(void)
{
    problem p = make_problem(70, 3);
    pchan_qreduce *q = NULL;
    bool wrong = world_rank == world_size - 1; /* on one rank: an error on all */
    pchan_qreduce_options o = {0};
    FAILS(PCHAN_ERR_ARG, pchan_qreduce_create(MPI_COMM_WORLD, wrong ? 0 : 3, p.basis, NULL, &q, err));
    FAILS(PCHAN_ERR_ARG, pchan_qreduce_create(MPI_COMM_WORLD, 3, wrong ? NULL : p.basis, NULL, &q, err));
    o.strategy = wrong ? "none" : "residues";
    FAILS(PCHAN_ERR_ARG, pchan_qreduce_create(MPI_COMM_WORLD, 3, p.basis, &o, &q, err));
    o = (pchan_qreduce_options){.layout = {PCHAN_ELEMENT_CYCLIC, 7, 5, 0}};
    FAILS(PCHAN_ERR_ARG, pchan_qreduce_create(MPI_COMM_WORLD, 3, p.basis, &o, &q, err));
    if (world_size > 1) {
        FAILS(PCHAN_ERR_ARG, pchan_qreduce_create(MPI_COMM_WORLD, wrong ? 4 : 3, p.basis, NULL, &q, err));
        o = (pchan_qreduce_options){.strategy = wrong ? "gather" : NULL};
        FAILS(PCHAN_ERR_ARG, pchan_qreduce_create(MPI_COMM_WORLD, 3, p.basis, &o, &q, err));
    }
    CHECK(!q, "a reduce-scatter in spite of its arguments");
    free_problem(&p);
}

/* One rank at a time runs out of memory, at every place. */
static void test_memory(void)
{
    problem p = make_problem(70, 3);
    pchan_set_allocator(&counting_door);
    for (int culprit = 0; culprit < world_size; culprit++) {
        for (long n = 0;; n++) {
            MPI_Comm comm;
            MPI_Comm_dup(MPI_COMM_WORLD, &comm);
            long before = blocks_in_use;
            allocations_left = world_rank == culprit ? n : -1;
            pchan_error failure;
            pchan_qreduce *q = NULL;
            pchan_qreduce_options options = {.strategy = strategies[n % 2]};
            pchan_status status = pchan_qreduce_create(comm, 3, p.basis, &options, &q, &failure);
            allocations_left = -1;
            CHECK(status == PCHAN_OK || (status == PCHAN_ERR_NOMEM && !q), "request %ld: %s: %s", n,
                  pchan_status_name(status), failure.message);
            OK(pchan_qreduce_destroy(&q, err));
            MPI_Comm_free(&comm);
            CHECK(blocks_in_use == before, "request %ld: %ld blocks left", n, blocks_in_use - before);
            if (status == PCHAN_OK && n % 2) break;
        }
    }
    pchan_set_allocator(NULL);
    free_problem(&p);
}

static void test_window(void)
{
    pch_window *window = NULL;
    OK(pch_window_create(MPI_COMM_WORLD, 8 * 1000, &window, err));
    for (int k = 0; k < 1000; k++) CHECK(window->words[k] == 0, "word %d is not zero", k);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int k = 0; k < 20000; k++) {
        pch_window_lock(window, 5);
        window->words[7]++;
        pch_window_unlock(window, 5);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    CHECK(window->words[7] == 20000u * (unsigned)world_size, "%llu", (unsigned long long)window->words[7]);
    MPI_Barrier(MPI_COMM_WORLD);
    pch_window_destroy(&window);
    FAILS(PCHAN_ERR_NOMEM, pch_window_create(MPI_COMM_WORLD, (int64_t)1 << 46, &window, err));
    CHECK(!window, "a window without memory");
}

int main(int argc, char **argv)
{
    begin_mpi(&argc, &argv);
    test_window();
    for (int strategy = 0; strategy < 2; strategy++) {
        for (int layout = 0; layout < 3; layout++) {
            for (int nodes = 0; nodes < 4; nodes++) check(130, 7, strategy, layout, nodes, 0);
        }
    }
    check(2049, 5, 0, 0, 1, 0);
    check(300, 9, 0, 0, 1, 1);
    check(300, 9, 0, 2, 1, 700);
    check(64, 1, 0, 0, 1, 0);
    test_states_and_range();
    test_arguments();
    test_memory();
    MPI_Finalize();
    return 0;
}
