/* SPDX-License-Identifier: MIT
 * Under testing_mpi.h. Reduce-scatter: two plans at a time, adds at the same time, hundreds of cycles in a row
 * without allocation. */
#include "testing_qreduce.h"

/* Two plans, waited for in opposite order: nobody waits for ever. */
static void check_two_plans(const pchan_basis *basis)
{
    enum { N = 6 };
    for (int s = 0; s < 2 * N_STRATEGIES; s++) { /* with itself, and with the next */
        MPI_Comm self = MPI_COMM_SELF;
        matrix m = make_matrix(basis, N);
        object o[2];
        for (int k = 0; k < 2; k++) {
            const char *name = strategy_names[(k ? (s + 1) / 2 : s / 2) % N_STRATEGIES];
            o[k] = make_object(MPI_COMM_WORLD, N, basis,
                               &(pchan_qreduce_options){.node_comm = &self, .strategy = name});
        }
        for (int cycle = 0; cycle < 3; cycle++) {
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
static void check_cycles_in_a_row(const pchan_basis *basis, const char *strategy, int division, int n_cycles)
{
    enum { N = 5 };
    MPI_Comm node = divide(division);
    pchan_qreduce_options options = {.node_comm = &node, .strategy = strategy, .buffer_bytes = 400};
    object o = make_object(MPI_COMM_WORLD, N, basis, &options);
    double one = 1;
    const pchan_array ones = {&one, PCHAN_FLOAT64, {(size_t)pchan_basis_n_primes(basis), N, N}, {0, 0, 0}};
    uint64_t allocations = pchan_allocation_count();
    for (int cycle = 0; cycle < n_cycles; cycle++) {
        if (cycle == 1) allocations = pchan_allocation_count();
        OK(pchan_qreduce_add(o.q, 0, 0, &ones, err));
        OK(pchan_qreduce_start(o.q, err));
        OK(pchan_qreduce_wait(o.q, -1, err));
        for (int64_t k = 0; k < o.n_local; k++) {
            uint64_t got = o.limbs[k * pchan_basis_n_limbs(basis)];
            CHECK(got == (uint64_t)world_size, "%s, division %d, cycle %d: %llu additions", strategy, division,
                  cycle, (unsigned long long)got);
        }
    }
    CHECK(pchan_allocation_count() == allocations, "%s: allocations in %d cycles", strategy, n_cycles);
    free_object(&o);
    MPI_Comm_free(&node);
}

int main(int argc, char **argv)
{
    begin_mpi(&argc, &argv);
    pchan_basis *basis = make_basis(150, 8);
    for (int s = 0; s < N_STRATEGIES; s++) {
        for (int division = 0; division < N_DIVISIONS; division++) {
            check_cycles_in_a_row(basis, strategy_names[s], division, division == UNEQUAL ? 200 : 5);
        }
    }
    check_two_plans(basis);
    check_concurrent_adds(basis);
    pchan_basis_destroy(&basis);
    MPI_Finalize();
    return 0;
}
