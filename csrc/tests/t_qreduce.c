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

/* What travels and what is held is what the estimate told. Where nodes talk to owners, no rank carries more than
 * its share by over one owner's part. */
static void check_traffic(const object *o, const pchan_basis *basis, int n, const pchan_qreduce_options *options)
{
    int node = pchan_qreduce_node(o->q, world_rank), n_members = 0,
        *nodes = calloc((size_t)world_size, sizeof *nodes);
    int64_t there = 0, largest = 0, most = 0;
    pchan_qreduce_figures *figures = calloc((size_t)world_size, sizeof *figures);
    pchan_qreduce_stats stats, *all = calloc((size_t)world_size, sizeof *all);
    for (int r = 0; r < world_size; r++) nodes[r] = pchan_qreduce_node(o->q, r);
    OK(pchan_qreduce_estimate(n, basis, options, world_size, nodes, figures, err));
    pchan_qreduce_get_stats(o->q, &stats);
    CHECK(stats.n_local == o->n_local && stats.exchange_ns >= 0, "stats");
    const pchan_qreduce_figures *mine = &figures[world_rank];
    CHECK(stats.n_local == mine->n_local, "estimate of n_local");
    CHECK(stats.bytes_sent == mine->bytes_sent, "%s: rank %d sent %lld bytes, not %lld", options->strategy,
          world_rank, (long long)stats.bytes_sent, (long long)mine->bytes_sent);
    CHECK(stats.bytes_held == mine->bytes_held, "%s: rank %d holds %lld bytes, not %lld", options->strategy,
          world_rank, (long long)stats.bytes_held, (long long)mine->bytes_held);
    OK(pchan_qreduce_gather_stats(o->q, 0, world_rank == 0 ? all : NULL, err));
    for (int r = 0; r < world_size && world_rank == 0; r++) {
        CHECK(all[r].bytes_sent == figures[r].bytes_sent && all[r].n_local == figures[r].n_local, "gather_stats");
    }
    int64_t element = 8 * pchan_basis_n_words(basis);
    for (int r = 0; r < world_size; r++) {
        int64_t part = pchan_qreduce_n_owned(o->q, r) * element;
        n_members += nodes[r] == node;
        there += nodes[r] == node ? 0 : part;
        if (nodes[r] == node && figures[r].bytes_sent > most) most = figures[r].bytes_sent;
        if (nodes[r] != node && part > largest) largest = part;
    }
    free(nodes), free(figures), free(all);
    if (strcmp(options->strategy, "residues") != 0) return;
    CHECK(most <= there / n_members + largest, "a rank sends %lld bytes of %lld", (long long)most,
          (long long)there);
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
    uint64_t more = pchan_allocation_count() - allocations - 1; /* residues of fill_matrix: 1 a call */
    CHECK(more <= 1, "%s: %llu allocations in 2 cycles", what, (unsigned long long)more);
    check_traffic(&o, basis, n, options);
    free_matrix(&m);
    free_object(&o);
}

static void check_all_layouts(const pchan_basis *basis, int n, pchan_qreduce_options options, int division)
{
    int32_t *owners = odd_owners(n, world_size);
    const pchan_layout layouts[] = {{PCHAN_ELEMENT_CYCLIC, 0, 0, 0, NULL},
                                    {PCHAN_ELEMENT_CYCLIC, 1, world_size, 0, NULL},
                                    {PCHAN_BLOCK_CYCLIC, world_size, 1, 3, NULL},
                                    {PCHAN_PACKED_ROWS, 0, 0, 0, NULL},
                                    {PCHAN_CUSTOM, 0, 0, 0, owners}};
    for (size_t k = 0; k < sizeof layouts / sizeof *layouts; k++) {
        char what[80];
        options.layout = layouts[k];
        snprintf(what, sizeof what, "%s, layout %zu, division %d", options.strategy, k, division);
        check_sums(basis, n, &options, what);
    }
    free(owners);
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
            check_sums(basis, 1, &options, "n = 1");
            check_sums(basis, 2, &options, "n = 2");
            options.buffer_bytes = 1;
            check_sums(large, 5, &options, "2049 bits, buffer_bytes = 1");
            options.buffer_bytes = 1000;
            check_sums(small, 40, &options, "10 bits, buffer_bytes = 1000");
        }
        if (division >= 0) MPI_Comm_free(&node);
    }
    pchan_basis_destroy(&basis);
    pchan_basis_destroy(&small);
    pchan_basis_destroy(&large);
    MPI_Finalize();
    return 0;
}
