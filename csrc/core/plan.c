/* SPDX-License-Identifier: MIT
 *
 * Making and freeing a reduce-scatter's plan. All checks that can differ between ranks are local,
 * and followed by an agreement, so that creation fails on all ranks or on none.
 */
#include "pch_qreduce.h"

#include <string.h>

static const pch_strategy *const strategies[] = {&pch_strategy_residues, &pch_strategy_gather};
enum { N_STRATEGIES = sizeof strategies / sizeof *strategies };

static int strategy_number(const char *name)
{
    if (!name) return 0;
    for (int k = 0; k < N_STRATEGIES; k++) {
        if (!strcmp(name, strategies[k]->name)) return k;
    }
    return -1;
}

/* ---- arguments ---- */

enum { N_PARAMETERS = 9 };
static const char *const parameter_names[N_PARAMETERS] = {"n",
                                                          "bits of the basis",
                                                          "check_bits of the basis",
                                                          "layout",
                                                          "rows of the grid",
                                                          "columns of the grid",
                                                          "block of the layout",
                                                          "strategy",
                                                          "buffer_bytes"};

static pchan_status check_arguments(const pchan_qreduce *q, int64_t n, const pchan_qreduce_options *o,
                                    pchan_error *err)
{
    if (n < 1) return pch_fail(err, PCHAN_ERR_ARG, "qreduce: n = %lld is not positive", (long long)n);
    if (!q->basis) return pch_fail(err, PCHAN_ERR_ARG, "qreduce: no basis");
    if (strategy_number(o->strategy) < 0) {
        return pch_fail(err, PCHAN_ERR_ARG, "qreduce: unknown strategy '%.40s'; there are residues and gather",
                        o->strategy);
    }
    if (o->buffer_bytes < 0) {
        return pch_fail(err, PCHAN_ERR_ARG, "qreduce: buffer_bytes = %lld is negative",
                        (long long)o->buffer_bytes);
    }
    if (o->node_comm && *o->node_comm == MPI_COMM_NULL) {
        return pch_fail(err, PCHAN_ERR_ARG, "qreduce: node_comm is MPI_COMM_NULL");
    }
    return PCHAN_OK;
}

/* All ranks must have passed the same. Collective. */
static pchan_status compare_arguments(const pchan_qreduce *q, int64_t n, const pchan_qreduce_options *o,
                                      pchan_error *err)
{
    int64_t both[2 * N_PARAMETERS] = {n,
                                      pchan_basis_bits(q->basis),
                                      pchan_basis_check_bits(q->basis),
                                      o->layout.kind,
                                      o->layout.grid_rows,
                                      o->layout.grid_cols,
                                      o->layout.block,
                                      strategy_number(o->strategy),
                                      o->buffer_bytes};
    for (int k = 0; k < N_PARAMETERS; k++) both[N_PARAMETERS + k] = -both[k];
    pchan_status status = PCH_MPI(
        MPI_Allreduce(MPI_IN_PLACE, both, 2 * N_PARAMETERS, MPI_INT64_T, MPI_MIN, q->comm), "MPI_Allreduce", err);
    for (int k = 0; k < N_PARAMETERS && status == PCHAN_OK; k++) {
        long long least = both[k], most = -both[N_PARAMETERS + k];
        if (least == most) continue;
        status = pch_fail(err, PCHAN_ERR_ARG, "qreduce: the ranks differ in %s: %lld to %lld", parameter_names[k],
                          least, most);
    }
    return status;
}

/* ---- nodes ---- */

/* Every rank of node_comm must be one of comm, or the rest of creation would wait for ever. Local. */
static pchan_status check_subset(const pchan_qreduce *q, MPI_Comm node_comm, pchan_error *err)
{
    MPI_Group whole, part;
    int n, inter = 0;
    MPI_Comm_test_inter(node_comm, &inter);
    if (inter) return pch_fail(err, PCHAN_ERR_ARG, "qreduce: node_comm is an intercommunicator");
    MPI_Comm_group(q->comm, &whole);
    MPI_Comm_group(node_comm, &part);
    MPI_Group_size(part, &n);
    pchan_status status = PCHAN_OK;
    for (int r = 0; r < n && status == PCHAN_OK; r++) {
        int rank;
        MPI_Group_translate_ranks(part, 1, &r, whole, &rank);
        if (rank == MPI_UNDEFINED)
            status = pch_fail(err, PCHAN_ERR_ARG, "qreduce: node_comm has ranks outside comm");
    }
    MPI_Group_free(&part);
    MPI_Group_free(&whole);
    return status;
}

static pchan_status find_node_comm(pchan_qreduce *q, const MPI_Comm *node_comm, pchan_error *err)
{
    pchan_error own = {0};
    pchan_status status;
    if (!node_comm) {
        PCH_TRY(pch_comm_node(q->entry, err));
        q->node = q->entry->node;
        return PCHAN_OK;
    }
    PCH_TRY(pch_agree(q->comm, check_subset(q, *node_comm, &own), &own, err));
    PCH_TRY(pch_comm_acquire(*node_comm, PCH_QREDUCES, &q->node_entry, err));
    q->node = q->node_entry->dup[PCH_QREDUCES];
done:
    return status;
}

/* leaders [size]: each rank's node by its lowest rank; nodes are numbered in that order. */
static pchan_status number_nodes(pchan_qreduce *q, const int *leaders, pchan_error *err)
{
    pchan_status status;
    PCH_TRY(PCH_ALLOC(q->node_of, (size_t)q->size, err));
    PCH_TRY(PCH_ALLOC(q->members, (size_t)q->size, err));
    PCH_TRY(PCH_ALLOC(q->node_first, (size_t)q->size + 1, err));
    for (int r = 0; r < q->size; r++) {
        q->node_of[r] = leaders[r] == r ? q->n_nodes++ : q->node_of[leaders[r]];
        q->node_first[q->node_of[r] + 1]++;
    }
    for (int m = 0; m < q->n_nodes; m++) q->node_first[m + 1] += q->node_first[m];
    for (int m = 0; m < q->n_nodes; m++) {
        int place = q->node_first[m];
        for (int r = 0; r < q->size; r++) {
            if (q->node_of[r] != m) continue;
            if (r == q->rank) q->node_rank = place - q->node_first[m];
            q->members[place++] = r;
        }
    }
done:
    return status;
}

static pchan_status find_nodes(pchan_qreduce *q, const MPI_Comm *node_comm, pchan_error *err)
{
    pchan_error own = {0};
    int *leaders = NULL, leader = q->rank, n_same = 0;
    pchan_status status;
    PCH_TRY(find_node_comm(q, node_comm, err));
    MPI_Comm_size(q->node, &q->node_size);
    PCH_TRY(pch_agree(q->comm, PCH_ALLOC(leaders, (size_t)q->size, &own), &own, err));
    PCH_TRY(PCH_MPI(MPI_Allreduce(MPI_IN_PLACE, &leader, 1, MPI_INT, MPI_MIN, q->node), "MPI_Allreduce", err));
    PCH_TRY(PCH_MPI(MPI_Allgather(&leader, 1, MPI_INT, leaders, 1, MPI_INT, q->comm), "MPI_Allgather", err));
    for (int r = 0; r < q->size; r++) n_same += leaders[r] == leader;
    if (n_same != q->node_size) {
        status = pch_fail(&own, PCHAN_ERR_ARG,
                          "qreduce: node_comm does not divide comm: it has %d ranks here, but %d say "
                          "that they are of this node",
                          q->node_size, n_same);
    } else {
        status = number_nodes(q, leaders, &own);
    }
    status = pch_agree(q->comm, status, &own, err);
done:
    pch_free(leaders);
    return status;
}

/* ---- the plan ---- */

static pchan_status reserve(pchan_qreduce *q, const pchan_qreduce_options *options, int64_t n, pchan_error *err)
{
    pchan_status status;
    PCH_TRY(pch_layout_create(&options->layout, n, q->size, &q->layout, err));
    q->first = pch_layout_offset(q->layout, q->rank);
    q->n_local = pch_layout_n_owned(q->layout, q->rank);
    PCH_TRY(PCH_ALLOC(q->stretch, (size_t)PCH_STRETCH * (size_t)q->basis->n_words, err));
    size_t scratch_bytes = pch_restore_scratch_bytes(q->basis);
    q->restore_scratch = pch_alloc(1, scratch_bytes);
    if (!q->restore_scratch) status = pch_fail_nomem(err, "restore", scratch_bytes);
done:
    return status;
}

static pchan_status make_exchange(pchan_qreduce *q, pchan_error *err)
{
    pchan_status status = q->strategy->create(q, err);
    if (status == PCHAN_OK) status = pch_agreement_create(q, err);
    return status;
}

static void finalize_qreduce(pch_live *live)
{
    pchan_qreduce *q = (pchan_qreduce *)((char *)live - offsetof(pchan_qreduce, live));
    q->finalized = true;
    if (q->abandoned) {
        pch_qreduce_dispose(q);
        return;
    }
    q->strategy->destroy(q);
    pch_agreement_destroy(&q->agreement);
    q->agreement.n_steps = 0;
    pch_comm_release(&q->node_entry);
    pch_comm_release(&q->entry);
}

static pchan_status fill_plan(pchan_qreduce *q, int64_t n, const pchan_qreduce_options *options, pchan_error *err)
{
    pchan_error own = {0};
    pchan_status status;
    PCH_TRY(pch_agree(q->comm, check_arguments(q, n, options, &own), &own, err));
    PCH_TRY(compare_arguments(q, n, options, err));
    q->strategy = strategies[strategy_number(options->strategy)];
    q->buffer_bytes = options->buffer_bytes ? options->buffer_bytes : 64 << 20;
    q->tag = pch_comm_take_tags(q->entry, 3);
    PCH_TRY(find_nodes(q, options->node_comm, err));
    PCH_TRY(pch_agree(q->comm, reserve(q, options, n, &own), &own, err));
    int64_t window_bytes = pch_words_bytes(q, pch_layout_offset(q->layout, q->size));
    PCH_TRY(pch_agree(q->comm, pch_window_create(q->node, window_bytes, &q->window, &own), &own, err));
    q->stats.bytes_held = window_bytes / q->node_size + pch_layout_bytes(q->layout);
    PCH_TRY(pch_agree(q->comm, make_exchange(q, &own), &own, err));
    q->stats.n_local = q->n_local;
    q->last = q->stats;
done:
    return status;
}

pchan_status pchan_qreduce_create(MPI_Comm comm, int64_t n, const pchan_basis *basis,
                                  const pchan_qreduce_options *options, pchan_qreduce **out, pchan_error *err)
{
    const pchan_qreduce_options defaults = {0};
    pchan_qreduce *q = NULL;
    pch_comm *entry = NULL;
    pchan_error own = {0};
    *out = NULL;
    pchan_status status;
    PCH_TRY(pch_comm_acquire(comm, PCH_QREDUCES, &entry, err));
    PCH_TRY(pch_agree(entry->dup[PCH_QREDUCES], PCH_ALLOC(q, 1, &own), &own, err));
    q->entry = entry;
    entry = NULL;
    q->comm = q->entry->dup[PCH_QREDUCES];
    q->rank = q->entry->rank;
    q->size = q->entry->size;
    q->basis = basis;
    q->first_bad = INT64_MAX;
    PCH_TRY(fill_plan(q, n, options ? options : &defaults, err));
    pch_live_add(&q->live, finalize_qreduce);
    *out = q;
    return PCHAN_OK;
done:
    pch_comm_release(&entry);
    if (q && q->entry) {
        pch_qreduce_dispose(q);
    } else {
        pch_free(q);
    }
    return status;
}

void pch_qreduce_dispose(pchan_qreduce *q)
{
    pch_live_remove(&q->live);
    if (q->strategy) q->strategy->destroy(q);
    pch_agreement_destroy(&q->agreement);
    pch_window_destroy(&q->window);
    pch_layout_destroy(&q->layout);
    pch_free(q->restore_scratch);
    pch_free(q->stretch);
    pch_free(q->node_first);
    pch_free(q->members);
    pch_free(q->node_of);
    if (!pch_runtime_is_forked()) {
        pch_comm_release(&q->node_entry);
        pch_comm_release(&q->entry);
    }
    pch_free(q);
}
