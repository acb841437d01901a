/* SPDX-License-Identifier: MIT
 * Under testing_mpi.h. Every allocation, MPI call and system call of making a reduce-scatter with each strategy,
 * of gather, and of a team fails once. */
#include "testing_qreduce.h" /* first, see there */

#include "testing_faults.h"

enum { N = 5 };

static pchan_basis *basis;
static const char *strategy;
static bool fresh; /* communicators of which pchan keeps nothing yet */
static MPI_Comm comm = MPI_COMM_NULL, node = MPI_COMM_NULL;
static object made;
static pchan_team *team;
static uint64_t *all; /* at the root of gather */
static pchan_qreduce_stats *stats;

static void no_more(void)
{
}

static void prepare_comms(void)
{
    comm = MPI_COMM_WORLD;
    node = MPI_COMM_SELF;
    if (fresh) MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    if (fresh) MPI_Comm_dup(MPI_COMM_SELF, &node);
}

static void clean_comms(void)
{
    if (!fresh) return;
    MPI_Comm_free(&comm);
    MPI_Comm_free(&node);
}

/* ---- plans: nodes of one rank, so that messages travel ---- */

static pchan_status create(pchan_error *err)
{
    const pchan_qreduce_options options = {.strategy = strategy, .node_comm = &node};
    return pchan_qreduce_create(comm, N, basis, &options, &made.q, err);
}

static void destroy(void)
{
    OK(pchan_qreduce_destroy(&made.q, err));
}

static void complete_object(void)
{
    made.n_local = pchan_qreduce_n_owned(made.q, world_rank);
    made.rows = calloc((size_t)made.n_local + 1, 8);
    made.cols = calloc((size_t)made.n_local + 1, 8);
    made.limbs = calloc((size_t)made.n_local * (size_t)pchan_basis_n_limbs(basis) + 1, 8);
    pchan_qreduce_owned(made.q, world_rank, made.rows, made.cols);
    OK(pchan_qreduce_set_output(made.q, made.limbs, err));
}

static void use(void)
{
    complete_object();
    for (int cycle = 1; cycle <= 2; cycle++) run_cycle(&made, basis, N, cycle, fault_place);
}

static void clean_object(void)
{
    free_object(&made);
    clean_comms();
}

static const subject plan = {.name = "a plan",
                             .says = "qreduce",
                             .collective = true,
                             .prepare = prepare_comms,
                             .attempt = create,
                             .undo = destroy,
                             .prove = use,
                             .clean = clean_object};

static void fail_plans(const char *name, bool on_fresh)
{
    static char text[60];
    subject s = plan;
    snprintf(text, sizeof text, "a plan, %s%s", name, on_fresh ? ", fresh" : "");
    s.name = text;
    s.keeps = on_fresh;
    strategy = name;
    fresh = on_fresh;
    fail_each(&s, &fault_memory, 15);
    fail_each(&s, &fault_mpi, 20);
    fail_each(&s, &fault_system, 6);
    if (!strcmp(name, "residues")) fail_each(&s, &fault_message, 0); /* it connects */
    fresh = false;
}

/* ---- what is asked after a cycle ---- */

static void prepare_object(void)
{
    prepare_comms();
    OK(create(err));
    use();
}

static pchan_status gather(pchan_error *err)
{
    return pchan_qreduce_gather(made.q, world_size - 1, world_rank == world_size - 1 ? all : NULL, err);
}

static void check_gathered(void)
{
    matrix m = make_matrix(basis, N);
    fill_matrix(basis, &m, 2);
    const uint64_t *at = all;
    for (int r = 0; r < world_size && world_rank == world_size - 1; r++) {
        int64_t rows[N * N], cols[N * N], n = pchan_qreduce_n_owned(made.q, r);
        pchan_qreduce_owned(made.q, r, rows, cols);
        for (int64_t k = 0; k < n; k++, at += m.n_limbs) {
            CHECK(!memcmp(at, m.sum + (rows[k] * N + cols[k]) * m.n_limbs, (size_t)m.n_limbs * 8),
                  "%s: (%lld, %lld)", fault_place, (long long)rows[k], (long long)cols[k]);
        }
    }
    free_matrix(&m);
}

static const subject gathering = {.name = "gather",
                                  .says = "gather",
                                  .collective = true,
                                  .prepare = prepare_object,
                                  .attempt = gather,
                                  .undo = no_more,
                                  .prove = check_gathered,
                                  .clean = clean_object};

static pchan_status gather_stats(pchan_error *err)
{
    return pchan_qreduce_gather_stats(made.q, 0, world_rank == 0 ? stats : NULL, err);
}

static void check_stats(void)
{
    if (world_rank == 0) CHECK(stats[0].n_local == made.n_local, "%s: wrong figures", fault_place);
}

/* add asks nobody for anything: nothing can fail. */
static pchan_status add(pchan_error *err)
{
    double zero = 0;
    pchan_array tile = {&zero, PCHAN_FLOAT64, {(size_t)pchan_basis_n_primes(basis), N, N}, {0, 0, 0}};
    return pchan_qreduce_add(made.q, 0, 0, &tile, err);
}

/* ---- team ---- */

static pchan_status make_team(pchan_error *err)
{
    return pchan_team_create(comm, &comm, 1000, &team, err);
}

static void destroy_team(void)
{
    pchan_team_destroy(&team);
}

static void use_team(void)
{
    int everybody = 0;
    OK(pchan_team_all(team, 1, &everybody, err));
    CHECK(everybody, "%s: not all", fault_place);
    if (world_rank == 0) ((volatile char *)pchan_team_data(team))[999] = 7;
    OK(pchan_team_all(team, world_rank != 0, &everybody, err));
    CHECK(!everybody && ((char *)pchan_team_data(team))[999] == 7, "%s: not shared", fault_place);
}

static void clean_team(void)
{
    destroy_team();
    clean_comms();
}

static const subject teams = {.name = "a team",
                              .says = "team",
                              .collective = true,
                              .prepare = prepare_comms,
                              .attempt = make_team,
                              .undo = destroy_team,
                              .prove = use_team,
                              .clean = clean_team};

int main(int argc, char **argv)
{
    begin_mpi(&argc, &argv);
    pchan_set_allocator(&counting_door);
    basis = make_basis(100, 8);
    all = calloc((size_t)(N * N * pchan_basis_n_limbs(basis)), 8);
    stats = calloc((size_t)world_size, sizeof *stats);
    for (int s = 0; s < N_STRATEGIES; s++) { /* makes what stays with the communicators */
        strategy = strategy_names[s];
        prepare_object();
        clean_object();
    }
    fail_plans("residues", true);
    for (int s = 0; s < N_STRATEGIES; s++) fail_plans(strategy_names[s], false);
    subject s = gathering;
    fail_each(&s, &fault_mpi, 3);
    fail_each(&s, &fault_memory, 0);
    s.name = "gather_stats", s.attempt = gather_stats, s.prove = check_stats;
    fail_each(&s, &fault_mpi, 3);
    s.name = "add", s.attempt = add, s.prove = no_more, s.collective = false;
    const fault *const faults[] = {&fault_memory, &fault_mpi, &fault_system};
    for (int k = 0; k < 3; k++)
        CHECK(!fail_once(&s, faults[k], 0, world_size, NULL), "add asks for %s", faults[k]->name);
    fresh = true;
    subject t = teams;
    t.keeps = true;
    for (int k = 0; k < 3; k++) fail_each(&t, faults[k], 2);
    fresh = false;
    make_team(NULL);
    destroy_team();
    for (int k = 0; k < 3; k++) fail_each(&teams, faults[k], 2);
    pchan_basis_destroy(&basis);
    free(all);
    free(stats);
    end_faults();
    return 0;
}
