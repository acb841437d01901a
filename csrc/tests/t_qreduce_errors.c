/* SPDX-License-Identifier: MIT
 * Under testing_mpi.h. Reduce-scatter: what is refused, and that all ranks hear of it; life, death and lack of
 * memory. */
#include "testing_qreduce.h"

#include "../core/pch_qreduce.h"

enum { N = 7 };

enum { PLENTY = 1 << 30 };
static int64_t available_bytes = PLENTY;
int64_t pch_available_bytes(void) /* stands in for that of memory.c */
{
    return available_bytes;
}

/* ---- creation ---- */

/* Every rank gets ARG, and a message with `text` in it. */
static void check_refused(MPI_Comm comm, int64_t n, const pchan_basis *basis, const pchan_qreduce_options *options,
                          const char *text)
{
    pchan_qreduce *q = NULL;
    pchan_error error = {0};
    pchan_status status = pchan_qreduce_create(comm, n, basis, options, &q, &error);
    CHECK(status == PCHAN_ERR_ARG && !q, "%s is accepted: %s", text, pchan_status_name(status));
    CHECK(strstr(error.message, text), "rank %d: '%s' does not tell of %s", world_rank, error.message, text);
}

static void check_arguments(const pchan_basis *basis)
{
    MPI_Comm null = MPI_COMM_NULL;
    bool last = world_rank == world_size - 1; /* the others' arguments are good */
    pchan_qreduce_options o = {0};
    check_refused(MPI_COMM_WORLD, last ? 0 : N, basis, &o, "n = 0");
    check_refused(MPI_COMM_WORLD, last ? -5 : N, basis, NULL, "n = -5");
    check_refused(MPI_COMM_WORLD, N, last ? NULL : basis, &o, "basis");
    o.strategy = last ? "magic" : NULL;
    check_refused(MPI_COMM_WORLD, N, basis, &o, "magic");
    o = (pchan_qreduce_options){.buffer_bytes = last ? -1 : 0};
    check_refused(MPI_COMM_WORLD, N, basis, &o, "buffer_bytes");
    o = (pchan_qreduce_options){.node_comm = last ? &null : NULL};
    check_refused(MPI_COMM_WORLD, N, basis, &o, "node_comm");
    o = (pchan_qreduce_options){.layout = {PCHAN_ELEMENT_CYCLIC, 7, 11, 0, NULL}};
    check_refused(MPI_COMM_WORLD, N, basis, &o, "grid");
    int32_t *owners = odd_owners(N, world_size);
    o.layout = (pchan_layout){PCHAN_CUSTOM, 0, 0, 0, owners};
    owners[3] = last ? world_size : owners[3];
    if (world_size == 1) check_refused(MPI_COMM_WORLD, N, basis, &o, "owner 1 of element (0, 3)");
    free(owners);
    o.layout.owners = NULL;
    check_refused(MPI_COMM_WORLD, N, basis, &o, "custom layout needs owners");
    pchan_qreduce *q = NULL;
    FAILS(PCHAN_ERR_NOMEM, pchan_qreduce_create(MPI_COMM_WORLD, last ? 900000000 : N, basis, NULL, &q, err));
    FAILS(PCHAN_ERR_ARG, pchan_qreduce_create(MPI_COMM_NULL, N, basis, NULL, &q, err));
}

/* Each rank's arguments are good, but they differ. */
static void check_differences(const pchan_basis *basis)
{
    bool last = world_rank == world_size - 1;
    pchan_basis *bits = make_basis(101, 8), *check_bits = make_basis(100, 9);
    pchan_qreduce_options o = {0};
    check_refused(MPI_COMM_WORLD, last ? N + 1 : N, basis, &o, "differ in n: 7 and 8");
    check_refused(MPI_COMM_WORLD, N, last ? bits : basis, &o, "differ in bits of the basis");
    check_refused(MPI_COMM_WORLD, N, last ? check_bits : basis, &o, "differ in check_bits");
    o.layout.kind = last ? PCHAN_PACKED_ROWS : PCHAN_ELEMENT_CYCLIC;
    check_refused(MPI_COMM_WORLD, N, basis, &o, "differ in layout: element-cyclic and packed rows");
    o.layout = last ? (pchan_layout){0, 1, world_size, 0, NULL} : (pchan_layout){0, world_size, 1, 0, NULL};
    check_refused(MPI_COMM_WORLD, N, basis, &o, "differ in rows of the grid");
    o.layout = (pchan_layout){PCHAN_BLOCK_CYCLIC, 1, world_size, last ? 2 : 3, NULL};
    check_refused(MPI_COMM_WORLD, N, basis, &o, "differ in block");
    int32_t *owners = odd_owners(N, world_size);
    o.layout = (pchan_layout){PCHAN_CUSTOM, 0, 0, 0, owners};
    owners[5] = last ? 1 : 0;
    check_refused(MPI_COMM_WORLD, N, basis, &o, "differ in owners of the layout");
    free(owners);
    o = (pchan_qreduce_options){.strategy = last ? "gather" : "residues"};
    check_refused(MPI_COMM_WORLD, N, basis, &o, "differ in strategy: residues and gather");
    o = (pchan_qreduce_options){.buffer_bytes = last ? 5 : 6};
    check_refused(MPI_COMM_WORLD, N, basis, &o, "differ in buffer_bytes");
    pchan_basis_destroy(&bits);
    pchan_basis_destroy(&check_bits);
}

/* node_comms that do not divide comm would leave somebody waiting. */
static void check_node_comms(const pchan_basis *basis)
{
    MPI_Comm self = MPI_COMM_SELF, world = MPI_COMM_WORLD, each = divide(EACH_RANK);
    bool last = world_rank == world_size - 1;
    pchan_qreduce_options o = {.node_comm = last ? &self : NULL};
    check_refused(world, N, basis, &o, "some ranks only");
    o.node_comm = last ? &self : &world;
    check_refused(world, N, basis, &o, "does not divide");
    o.node_comm = last ? &world : &self;
    check_refused(world, N, basis, &o, "does not divide");
    o.node_comm = &world;
    check_refused(each, N, basis, &o, "outside comm");
    MPI_Comm_free(&each);
}

/* ---- values ---- */

static pchan_array one_element(const pchan_basis *basis, const double *residues)
{
    return (pchan_array){residues, PCHAN_FLOAT64, {(size_t)pchan_basis_n_primes(basis), 1, 1}, {8, 8, 8}};
}

/* 2^bits at (i, j), from the last rank; all ranks hear of it; the next cycle is right. */
static void check_range(const pchan_basis *basis, const char *strategy, int division)
{
    MPI_Comm node = divide(division);
    object o =
        make_object(MPI_COMM_WORLD, N, basis, &(pchan_qreduce_options){.strategy = strategy, .node_comm = &node});
    uint64_t *half = calloc((size_t)pchan_basis_n_limbs(basis), 8);
    double *residues = calloc((size_t)pchan_basis_n_primes(basis), 8);
    int b = pchan_basis_bits(basis) - 1;
    half[b / 64] = (uint64_t)1 << (b % 64);
    OK(pchan_residues(basis, half, 1, residues, err));
    pchan_array tile = one_element(basis, residues);
    for (int t = 0; t < 2 && world_rank == world_size - 1; t++) {
        OK(pchan_qreduce_add(o.q, 2, 4, &tile, err));
        OK(pchan_qreduce_add(o.q, 5, 6, &tile, err));
    }
    OK(pchan_qreduce_start(o.q, err));
    pchan_error error = {0};
    CHECK(pchan_qreduce_wait(o.q, -1, &error) == PCHAN_ERR_RANGE, "%s: out of range, but '%s'", strategy,
          error.message);
    CHECK(strstr(error.message, "(2, 4)"), "'%s'", error.message);
    int64_t rows[N * N], cols[N * N], n = pchan_qreduce_n_owned(o.q, error.rank), k = 0;
    pchan_qreduce_owned(o.q, error.rank, rows, cols);
    while (k < n && (rows[k] != 2 || cols[k] != 4)) k++;
    CHECK(k < n, "rank %d does not own (2, 4)", error.rank);
    CHECK(!pchan_qreduce_active(o.q), "active after a range error");
    run_cycle(&o, basis, N, 1, "after a range error");
    free(half);
    free(residues);
    free_object(&o);
    MPI_Comm_free(&node);
}

static void check_tiles(const pchan_basis *basis)
{
    object o = make_object(MPI_COMM_WORLD, N, basis, NULL);
    matrix m = make_matrix(basis, N);
    fill_matrix(basis, &m, 3);
    const int places[][2] = {{-1, 0}, {0, -1}, {N - 1, 0}, {0, N - 1}};
    pchan_array tile = part_of(&m, 0, 0, 2, 2);
    for (int k = 0; k < 4; k++) {
        FAILS(PCHAN_ERR_ARG, pchan_qreduce_add(o.q, places[k][0], places[k][1], &tile, err));
    }
    tile.shape[0]--;
    FAILS(PCHAN_ERR_ARG, pchan_qreduce_add(o.q, 0, 0, &tile, err));
    tile = part_of(&m, 0, 0, N, N);
    double *last = &m.residues[(size_t)m.n_primes * N * N - 1], value = *last;
    const double bad[] = {0.0 / 0.0, 1.0 / 0.0, 0.5, 9007199254740994.0};
    for (int k = 0; k < 4; k++) {
        *last = bad[k];
        pchan_error error = {0};
        CHECK(pchan_qreduce_add(o.q, 0, 0, &tile, &error) == PCHAN_ERR_ARG, "%g is accepted", bad[k]);
        CHECK(strstr(error.message, "(6, 6)"), "'%s'", error.message);
    }
    *last = value;
    m.residues[N] = bad[0]; /* (1, 0): below the diagonal */
    add_all(o.q, &m);
    OK(pchan_qreduce_start(o.q, err));
    OK(pchan_qreduce_wait(o.q, -1, err));
    check_result(&o, &m, "nothing added by what was refused");
    free_matrix(&m);
    free_object(&o);
}

/* ---- states ---- */

static void check_states(const pchan_basis *basis, const char *strategy)
{
    pchan_qreduce *q = NULL;
    pchan_qreduce_options options = {.strategy = strategy};
    double zero = 0;
    pchan_array tile = {&zero, PCHAN_FLOAT64, {(size_t)pchan_basis_n_primes(basis), 1, 1}, {0, 0, 0}};
    int finished = 7;
    FAILS(PCHAN_ERR_ARG, pchan_qreduce_start(NULL, err));
    OK(pchan_qreduce_create(MPI_COMM_WORLD, N, basis, &options, &q, err));
    FAILS(PCHAN_ERR_STATE, pchan_qreduce_start(q, err)); /* no output */
    OK(pchan_qreduce_destroy(&q, err));
    object o = make_object(MPI_COMM_WORLD, N, basis, &options);
    uint64_t *all = calloc((size_t)(N * N * pchan_basis_n_limbs(basis)), 8);
    FAILS(PCHAN_ERR_STATE, pchan_qreduce_wait(o.q, -1, err));
    FAILS(PCHAN_ERR_STATE, pchan_qreduce_poll(o.q, 0, &finished, err));
    CHECK(!finished, "finished on failure");
    FAILS(PCHAN_ERR_STATE, pchan_qreduce_gather(o.q, 0, all, err));
    MPI_Barrier(MPI_COMM_WORLD);
    if (world_rank == 0) {
        OK(pchan_qreduce_start(o.q, err));
        FAILS(PCHAN_ERR_STATE, pchan_qreduce_start(o.q, err));
        FAILS(PCHAN_ERR_STATE, pchan_qreduce_add(o.q, 0, 0, &tile, err));
        FAILS(PCHAN_ERR_STATE, pchan_qreduce_set_output(o.q, o.limbs, err));
        FAILS(PCHAN_ERR_STATE, pchan_qreduce_destroy(&o.q, err));
        if (world_size > 1) { /* the others have not started: nobody may block on them */
            FAILS(PCHAN_ERR_TIMEOUT, pchan_qreduce_wait(o.q, 1000000, err));
            OK(pchan_qreduce_poll(o.q, 0, &finished, err));
            CHECK(!finished && pchan_qreduce_active(o.q), "finished alone");
        }
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (world_rank != 0) OK(pchan_qreduce_start(o.q, err));
    OK(pchan_qreduce_wait(o.q, -1, err));
    bool last = world_rank == world_size - 1;
    FAILS(PCHAN_ERR_ARG, pchan_qreduce_gather(o.q, last ? -1 : 0, all, err));
    FAILS(PCHAN_ERR_ARG, pchan_qreduce_gather(o.q, last ? world_size : 0, all, err));
    FAILS(PCHAN_ERR_ARG, pchan_qreduce_gather(o.q, 0, NULL, err));
    if (world_size > 1) FAILS(PCHAN_ERR_ARG, pchan_qreduce_gather(o.q, last, all, err));
    OK(pchan_qreduce_gather(o.q, 0, all, err));
    free(all);
    free_object(&o);
}

static void check_freed_communicators(const pchan_basis *basis)
{
    MPI_Comm comm, node = divide(EACH_RANK);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    object o = make_object(comm, N, basis, &(pchan_qreduce_options){.node_comm = &node});
    MPI_Comm_free(&comm);
    MPI_Comm_free(&node);
    run_cycle(&o, basis, N, 4, "communicators freed");
    free_object(&o);
}

/* ---- memory ---- */

/* Each allocation of a creation fails once, on one rank: an error on all, and nothing is left. `fresh`: on
 * communicators whose duplicates are yet to be made, too. */
static void check_no_memory(const pchan_basis *basis, const char *strategy, int culprit, bool fresh)
{
    MPI_Comm node = MPI_COMM_SELF, comm = MPI_COMM_WORLD;
    pchan_qreduce_options options = {.strategy = strategy, .node_comm = &node};
    pchan_status status = PCHAN_ERR_NOMEM;
    if (!fresh) { /* what is kept per communicator stays */
        object o = make_object(comm, N, basis, &options);
        free_object(&o);
    }
    for (long k = 0; status == PCHAN_ERR_NOMEM; k++) {
        pchan_qreduce *q = NULL;
        if (fresh) MPI_Comm_dup(MPI_COMM_WORLD, &comm);
        if (fresh) MPI_Comm_dup(MPI_COMM_SELF, &node);
        long before = blocks_in_use;
        allocations_left = world_rank == culprit ? k : -1;
        status = pchan_qreduce_create(comm, N, basis, &options, &q, NULL);
        allocations_left = -1;
        CHECK(status == PCHAN_OK || status == PCHAN_ERR_NOMEM, "request %ld: %s", k, pchan_status_name(status));
        CHECK((status == PCHAN_OK) == (q != NULL), "request %ld: %p", k, (void *)q);
        CHECK(status == PCHAN_ERR_NOMEM || k > 15, "only %ld requests", k);
        OK(pchan_qreduce_destroy(&q, err));
        if (fresh) MPI_Comm_free(&comm);
        if (fresh) MPI_Comm_free(&node);
        CHECK(blocks_in_use == before, "request %ld: %ld blocks lost", k, blocks_in_use - before);
    }
}

/* What the fullest node needs, results included, is enough; a byte less is refused on every rank, before there is
 * a window. */
static void check_node_memory(const pchan_basis *basis, const char *strategy, int division)
{
    enum { LARGE = 100 }; /* beside it a window's header is small */
    int nodes[8];
    MPI_Comm node = divide(division);
    MPI_Allgather(&(int){division == ONE_NODE    ? 0
                         : division == EACH_RANK ? world_rank
                                                 : world_rank > 0},
                  1, MPI_INT, nodes, 1, MPI_INT, MPI_COMM_WORLD);
    pchan_qreduce_options options = {.strategy = strategy, .node_comm = &node};
    pchan_qreduce_figures ranks[8];
    int64_t needs[8] = {0}, most = 0;
    OK(pchan_qreduce_estimate(LARGE, basis, &options, world_size, nodes, ranks, err));
    for (int r = 0; r < world_size; r++) {
        needs[nodes[r]] += ranks[r].bytes_held + ranks[r].n_local * (8 * pchan_basis_n_limbs(basis) + 16);
        if (needs[nodes[r]] > most) most = needs[nodes[r]];
    }
    pchan_qreduce *q = NULL;
    available_bytes = most;
    OK(pchan_qreduce_create(MPI_COMM_WORLD, LARGE, basis, &options, &q, err));
    OK(pchan_qreduce_destroy(&q, err));
    long before = blocks_in_use;
    pchan_error error = {0};
    char text[40];
    snprintf(text, sizeof text, "results: %lld bytes", (long long)most);
    available_bytes = most - 1;
    pchan_status status = pchan_qreduce_create(MPI_COMM_WORLD, LARGE, basis, &options, &q, &error);
    CHECK(status == PCHAN_ERR_NOMEM && !q, "%s: a byte too few: %s", strategy, pchan_status_name(status));
    CHECK(strstr(error.message, text), "%s: '%s' does not tell of %s", strategy, error.message, text);
    CHECK(blocks_in_use == before, "%ld blocks lost", blocks_in_use - before);
    available_bytes = PLENTY;
    MPI_Comm_free(&node);
}

static int destroy(void *given)
{
    pchan_qreduce *q = given;
    return (int)pchan_qreduce_destroy(&q, NULL);
}

/* A helper of before the fork is not there to leave: an error, not a wait. */
static void check_fork(const pchan_basis *basis)
{
    object o = make_object(MPI_COMM_WORLD, N, basis, &(pchan_qreduce_options){0});
    atomic_store(&o.q->busy, PCH_HELPER);
    int status = in_forked_child(destroy, o.q);
    CHECK(status == PCHAN_ERR_STATE, "free in a forked child: %d", status);
    pch_qreduce_leave(o.q);
    free_object(&o);
}

/* Given up with messages on their way: MPI_Finalize copes. */
static void abandon_some(const pchan_basis *basis)
{
    for (int s = 0; s < N_STRATEGIES; s++) {
        MPI_Comm self = MPI_COMM_SELF;
        pchan_qreduce_options options = {.strategy = strategy_names[s], .node_comm = &self};
        object o = make_object(MPI_COMM_WORLD, N, basis, &options);
        OK(pchan_qreduce_start(o.q, err));
        MPI_Barrier(MPI_COMM_WORLD);
        pchan_qreduce_abandon(&o.q); /* o.limbs stays for MPI */
        pchan_qreduce_abandon(&o.q);
        CHECK(!o.q, "abandon leaves the pointer");
        free(o.rows);
        free(o.cols);
    }
}

int main(int argc, char **argv)
{
    begin_mpi(&argc, &argv);
    pchan_set_allocator(&counting_door);
    pchan_basis *basis = make_basis(100, 8);
    check_arguments(basis);
    if (world_size > 1) {
        check_differences(basis);
        check_node_comms(basis);
    }
    for (int s = 0; s < N_STRATEGIES; s++) {
        check_range(basis, strategy_names[s], ONE_NODE);
        check_range(basis, strategy_names[s], EACH_RANK);
        check_states(basis, strategy_names[s]);
        check_no_memory(basis, strategy_names[s], s % world_size, s == 0);
        for (int d = ONE_NODE; d <= UNEQUAL; d++) check_node_memory(basis, strategy_names[s], d);
    }
    check_tiles(basis);
    check_freed_communicators(basis);
    check_fork(basis);
    pchan_qreduce *none = NULL;
    OK(pchan_qreduce_destroy(NULL, err));
    OK(pchan_qreduce_destroy(&none, err));
    abandon_some(basis);
    MPI_Finalize();
    return 0;
}
