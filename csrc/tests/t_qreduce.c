/* SPDX-License-Identifier: MIT
 * Under testing_mpi.h. Reduce-scatter: the sums, for every strategy, layout and division into nodes, over several
 * cycles. */
#include "testing_qreduce.h"

static void check_gather(const object *o, const matrix *m, int root, const char *what)
{
    int64_t total = (int64_t)m->n * (m->n + 1) / 2, place = 0;
    uint64_t *all = world_rank == root ? calloc((size_t)(total * m->n_limbs), 8) : NULL;
    int64_t *rows = calloc((size_t)total, 8), *cols = calloc((size_t)total, 8);
    OK(pchan_qreduce_gather(o->q, root, all, err));
    for (int r = 0; r < world_size; r++) {
        int64_t n = pchan_qreduce_n_owned(o->q, r);
        pchan_qreduce_owned(o->q, r, rows, cols);
        for (int64_t k = 0; k < n && all; k++, place++) {
            const uint64_t *want = m->sum + (rows[k] * m->n + cols[k]) * m->n_limbs;
            CHECK(!memcmp(all + place * m->n_limbs, want, (size_t)m->n_limbs * 8), "%s: gather, (%lld, %lld)",
                  what, (long long)rows[k], (long long)cols[k]);
        }
    }
    CHECK(!all || place == total, "%s: gather of %lld elements", what, (long long)place);
    free(all);
    free(rows);
    free(cols);
}

/* Parts of the matrix in random order and sizes: each element once. */
static void add_in_parts(pchan_qreduce *q, const matrix *m, uint64_t *seed)
{
    for (int i = 0; i < m->n;) {
        int rows = 1 + (int)(random_u64(seed) % 5);
        if (rows > m->n - i) rows = m->n - i;
        for (int j = 0; j < m->n;) {
            int cols = 1 + (int)(random_u64(seed) % 9);
            if (cols > m->n - j) cols = m->n - j;
            add_part(q, m, i, j, rows, cols);
            j += cols;
        }
        i += rows;
    }
}

/* What goes to an owner on another node leaves each node once, and no rank carries more than its share by over one
 * owner's part. */
static void check_traffic(const object *o, const pchan_basis *basis, const char *strategy)
{
    int node = pchan_qreduce_node(o->q, world_rank), n_members = 0, n_others = 0;
    int64_t element = 8 * pchan_basis_n_words(basis), there = 0, largest = 0, sent = 0;
    int64_t *all = calloc((size_t)world_size, 8);
    pchan_qreduce_stats stats;
    pchan_qreduce_get_stats(o->q, &stats);
    MPI_Allgather(&stats.bytes_sent, 1, MPI_INT64_T, all, 1, MPI_INT64_T, MPI_COMM_WORLD);
    for (int r = 0; r < world_size; r++) {
        int64_t part = pchan_qreduce_n_owned(o->q, r) * element;
        bool here = pchan_qreduce_node(o->q, r) == node;
        n_members += here;
        n_others += !here && part > 0;
        there += here ? 0 : part;
        sent += here ? all[r] : 0;
        if (!here && part > largest) largest = part;
    }
    free(all);
    if (!strcmp(strategy, "gather")) return;
    CHECK(sent == there, "node %d sends %lld bytes, not %lld", node, (long long)sent, (long long)there);
    int64_t most = (n_others + n_members - 1) / n_members * largest;
    CHECK(stats.bytes_sent <= most, "a rank sends %lld bytes of %lld", (long long)stats.bytes_sent,
          (long long)there);
    CHECK(stats.n_local == o->n_local && stats.bytes_held > 0 && stats.exchange_ns >= 0, "stats");
}

static void check_sums(const pchan_basis *basis, int n, const pchan_qreduce_options *options, const char *what)
{
    object o = make_object(MPI_COMM_WORLD, n, basis, options);
    matrix m = make_matrix(basis, n);
    uint64_t seed = (uint64_t)world_rank + 1, allocations = 0;
    for (int cycle = 0; cycle < 3; cycle++) {
        fill_matrix(basis, &m, cycle);
        if (cycle == 1) allocations = pchan_allocation_count();
        if (cycle == 0) add_all(o.q, &m);
        if (cycle > 0) add_in_parts(o.q, &m, &seed);
        OK(pchan_qreduce_start(o.q, err));
        OK(pchan_qreduce_wait(o.q, -1, err));
        check_result(&o, &m, what);
        check_gather(&o, &m, cycle % world_size, what);
    }
    if (strcmp(options->strategy, "gather") != 0) {                 /* the reference restore allocates */
        uint64_t more = pchan_allocation_count() - allocations - 1; /* residues of fill_matrix: 1 a call */
        CHECK(more <= 1, "%s: %llu allocations in 2 cycles", what, (unsigned long long)more);
    }
    check_traffic(&o, basis, options->strategy);
    free_matrix(&m);
    free_object(&o);
}

static void check_all_layouts(const pchan_basis *basis, int n, pchan_qreduce_options options, int division)
{
    const pchan_layout layouts[] = {{PCHAN_ELEMENT_CYCLIC, 0, 0, 0},
                                    {PCHAN_ELEMENT_CYCLIC, 1, world_size, 0},
                                    {PCHAN_BLOCK_CYCLIC, world_size, 1, 3},
                                    {PCHAN_PACKED_ROWS, 0, 0, 0}};
    for (size_t k = 0; k < sizeof layouts / sizeof *layouts; k++) {
        char what[80];
        options.layout = layouts[k];
        snprintf(what, sizeof what, "%s, layout %zu, division %d", options.strategy, k, division);
        check_sums(basis, n, &options, what);
    }
}

/* Two plans, waited for in opposite order: nobody waits for ever. */
static void check_two_plans(const pchan_basis *basis)
{
    enum { N = 6 };
    for (int s = 0; s < N_STRATEGIES * N_STRATEGIES; s++) {
        MPI_Comm self = MPI_COMM_SELF;
        matrix m = make_matrix(basis, N);
        object o[2];
        for (int k = 0; k < 2; k++) {
            const char *name = strategy_names[k ? s % N_STRATEGIES : s / N_STRATEGIES];
            o[k] = make_object(MPI_COMM_WORLD, N, basis,
                               &(pchan_qreduce_options){.node_comm = &self, .strategy = name});
        }
        for (int cycle = 0; cycle < 5; cycle++) {
            fill_matrix(basis, &m, cycle);
            for (int k = 0; k < 2; k++) {
                add_all(o[k].q, &m);
                OK(pchan_qreduce_start(o[k].q, err));
            }
            for (int k = 0; k < 2; k++) OK(pchan_qreduce_wait(o[(k + world_rank) % 2].q, -1, err));
            for (int k = 0; k < 2; k++) check_result(&o[k], &m, "two plans");
        }
        free_object(&o[world_rank % 2]);
        free_object(&o[(world_rank + 1) % 2]);
        free_matrix(&m);
    }
}

/* All ranks add to the same elements at the same time. */
static void check_concurrent_adds(const pchan_basis *basis)
{
    enum { N = 30, N_TIMES = 50 };
    object o = make_object(MPI_COMM_WORLD, N, basis, NULL);
    double one = 1; /* with strides of 0: every element's residues are 1 */
    const pchan_array ones = {&one, PCHAN_FLOAT64, {(size_t)pchan_basis_n_primes(basis), N, N}, {0, 0, 0}};
    MPI_Barrier(MPI_COMM_WORLD);
    for (int t = 0; t < N_TIMES; t++) OK(pchan_qreduce_add(o.q, 0, 0, &ones, err));
    OK(pchan_qreduce_start(o.q, err));
    int finished = 0;
    while (!finished) OK(pchan_qreduce_poll(o.q, 0, &finished, err));
    for (int64_t k = 0; k < o.n_local; k++) {
        uint64_t got = o.limbs[k * pchan_basis_n_limbs(basis)];
        CHECK(got == (uint64_t)(N_TIMES * world_size), "(%lld, %lld): %llu additions", (long long)o.rows[k],
              (long long)o.cols[k], (unsigned long long)got);
    }
    free_object(&o);
}

/* Nothing but the cycles themselves keeps the ranks in step: who adds early must not be wiped out. */
static void check_cycles_in_a_row(const pchan_basis *basis, const char *strategy, int division)
{
    enum { N = 5, N_CYCLES = 200 };
    MPI_Comm node = divide(division);
    pchan_qreduce_options options = {.node_comm = &node, .strategy = strategy, .buffer_bytes = 400};
    object o = make_object(MPI_COMM_WORLD, N, basis, &options);
    double one = 1;
    const pchan_array ones = {&one, PCHAN_FLOAT64, {(size_t)pchan_basis_n_primes(basis), N, N}, {0, 0, 0}};
    for (int cycle = 0; cycle < N_CYCLES; cycle++) {
        OK(pchan_qreduce_add(o.q, 0, 0, &ones, err));
        OK(pchan_qreduce_start(o.q, err));
        OK(pchan_qreduce_wait(o.q, -1, err));
        for (int64_t k = 0; k < o.n_local; k++) {
            uint64_t got = o.limbs[k * pchan_basis_n_limbs(basis)];
            CHECK(got == (uint64_t)world_size, "%s, division %d, cycle %d: %llu additions", strategy, division,
                  cycle, (unsigned long long)got);
        }
    }
    free_object(&o);
    MPI_Comm_free(&node);
}

int main(int argc, char **argv)
{
    begin_mpi(&argc, &argv);
    pchan_basis *basis = make_basis(150, 8), *small = make_basis(10, 0), *large = make_basis(2049, 8);
    for (int division = -1; division < N_DIVISIONS; division++) {
        MPI_Comm node = division < 0 ? MPI_COMM_NULL : divide(division);
        for (int s = 0; s < N_STRATEGIES; s++) {
            pchan_qreduce_options options = {.node_comm = division < 0 ? NULL : &node,
                                             .strategy = strategy_names[s]};
            check_all_layouts(basis, 11, options, division);
            if (division != EACH_RANK) continue;
            check_all_layouts(basis, 1, options, division);
            check_all_layouts(basis, 2, options, division);
            options.buffer_bytes = 1;
            check_sums(large, 5, &options, "2049 bits, buffer_bytes = 1");
            options.buffer_bytes = 1000;
            check_sums(small, 40, &options, "10 bits, buffer_bytes = 1000");
        }
        if (division >= 0) MPI_Comm_free(&node);
        for (int s = 0; s < N_STRATEGIES && division >= 0; s++) {
            check_cycles_in_a_row(basis, strategy_names[s], division);
        }
    }
    check_two_plans(basis);
    check_concurrent_adds(basis);
    pchan_basis_destroy(&basis);
    pchan_basis_destroy(&small);
    pchan_basis_destroy(&large);
    MPI_Finalize();
    return 0;
}
