/* SPDX-License-Identifier: MIT
 * Under testing_mpi.h. Every MPI call of a reduce-scatter's start and wait fails once, with each strategy: an
 * error that names the operation where it happened; the other ranks' wait ends too, in good order or when its time
 * is over; the next object works. */
#include "testing_qreduce.h" /* first, see there */

#include "testing_faults.h"

enum { N = 5, PATIENCE_NS = 30000000 };

static pchan_basis *basis;

static object make(const char *strategy)
{
    MPI_Comm self = MPI_COMM_SELF;
    return make_object(MPI_COMM_WORLD, N, basis,
                       &(pchan_qreduce_options){.strategy = strategy, .node_comm = &self});
}

/* The other ranks may be stuck with it: its limbs stay where messages may still go. */
static void give_up(object *o, const char *strategy)
{
    bool active = pchan_qreduce_active(o->q);
    may_stay[BOOK_MAPS] += active; /* its window */
    if (!strcmp(strategy, "mpi"))
        may_stay[BOOK_REQUESTS] += active; /* a collective operation cannot be cancelled */
    pchan_qreduce_abandon(&o->q);
    if (!active) free(o->limbs);
    free(o->rows);
    free(o->cols);
}

/* Until all ranks are through, or one has failed: it may be slow, and the others must not wait for ever. */
static pchan_status wait_for_all(pchan_qreduce *q, pchan_error *error)
{
    pchan_status status = PCHAN_ERR_TIMEOUT;
    do {
        if (status == PCHAN_ERR_TIMEOUT) status = pchan_qreduce_wait(q, PATIENCE_NS, error);
    } while (!on_some(status != PCHAN_OK && status != PCHAN_ERR_TIMEOUT) && on_some(status == PCHAN_ERR_TIMEOUT));
    return status;
}

/* True when a call failed on some rank. */
static bool cycle_once(const char *strategy, const fault *f, long n, int culprit, const char *only)
{
    char name[60];
    snprintf(name, sizeof name, "a cycle, %s", strategy);
    watch(name, f, n, culprit, only);
    object o = make(strategy);
    matrix m = make_matrix(basis, N);
    fill_matrix(basis, &m, 1);
    add_all(o.q, &m);
    pchan_error error = {0};
    PMPI_Barrier(MPI_COMM_WORLD);
    arm(f, n, culprit, only);
    OK(pchan_qreduce_start(o.q, err));
    pchan_status status = wait_for_all(o.q, &error);
    const char *call = disarm(f);
    fault_counts.failed += call != NULL;
    fault_counts.errors += status != PCHAN_OK;
    CHECK(!call || status == PCHAN_ERR_MPI, "rank %d: %s, %s failed: %s", world_rank, fault_place, call,
          pchan_status_name(status));
    CHECK(status == PCHAN_OK || strstr(error.message, "wait"), "%s: '%s'", fault_place, error.message);
    CHECK(status != PCHAN_ERR_MPI || call, "%s: an error out of nothing: %s", fault_place, error.message);
    bool good = !on_some(status != PCHAN_OK);
    if (status == PCHAN_OK) check_result(&o, &m, fault_place);
    free_matrix(&m);
    if (call) { /* of a broken one nothing can be asked */
        CHECK(pchan_qreduce_wait(o.q, 0, NULL) == PCHAN_ERR_STATE, "%s: broken, but it can be waited for",
              fault_place);
        CHECK(pchan_qreduce_start(o.q, NULL) == PCHAN_ERR_STATE, "%s: broken, but it starts", fault_place);
    }
    if (good)
        free_object(&o);
    else
        give_up(&o, strategy);
    PMPI_Barrier(MPI_COMM_WORLD);
    o = make(strategy);
    run_cycle(&o, basis, N, 2, fault_place);
    free_object(&o);
    return on_some(call != NULL);
}

int main(int argc, char **argv)
{
    begin_mpi(&argc, &argv);
    pchan_set_allocator(&counting_door);
    basis = make_basis(100, 8);
    for (int s = 0; s < N_STRATEGIES; s++) {
        int last = world_size == 1 ? 0 : world_size, step = world_size > 2 && !soaking() ? 2 : 1;
        for (int culprit = step - 1; culprit <= last; culprit += step) { /* of three the middle one; all */
            long n = 0, k = 0;
            while (cycle_once(strategy_names[s], &fault_mpi, n, culprit, NULL)) n += every(3);
            while (cycle_once(strategy_names[s], &fault_message, k, culprit, "MPI_Testall")) k += every(3);
            CHECK(n > 0 || world_size == 1, "%s: no call failed", fault_place);
        }
    }
    pchan_basis_destroy(&basis);
    end_faults();
    return 0;
}
