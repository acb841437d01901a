/* SPDX-License-Identifier: MIT
 *
 * Strategy "gather", the reference: slow and obvious. Rank 0 collects every node's words, adds them
 * with %, restores them with pchan_restore_reference and deals the integers out. It shares neither
 * sums, nor restore, nor the way of the messages with the other strategies.
 */
#include "pch_qreduce.h"

#include <string.h>

typedef struct gather_plan {
    pchan_channel *collect, *deal;
    bool dealing;
    uint64_t *words; /* rank 0: [n_nodes - 1][all elements][n_words], of the other nodes */
    uint64_t *limbs; /* rank 0: of all elements; others: of their own */
} gather_plan;

static int64_t n_elements(const pchan_qreduce *q)
{
    return pch_layout_offset(q->layout, q->size);
}

/* The first rank of each node sends the node's words to rank 0. */
static pchan_status register_collect(pchan_qreduce *q, gather_plan *plan, pchan_error *err)
{
    int64_t n = n_elements(q) * q->basis->n_words;
    pchan_status status = PCHAN_OK;
    if (q->node_of[q->rank] != 0 && q->node_rank == 0) {
        return pchan_channel_send_init(plan->collect, q->window->words, n, MPI_UINT64_T, 0, q->tag + 1, NULL, err);
    }
    for (int m = 1; m < q->n_nodes && q->rank == 0 && status == PCHAN_OK; m++) {
        status = pchan_channel_recv_init(plan->collect, plan->words + (m - 1) * n, n, MPI_UINT64_T,
                                         q->members[q->node_first[m]], q->tag + 1, NULL, err);
    }
    return status;
}

/* Rank 0 sends each rank its integers. */
static pchan_status register_deal(pchan_qreduce *q, gather_plan *plan, pchan_error *err)
{
    int64_t n_limbs = q->basis->n_limbs;
    pchan_status status = PCHAN_OK;
    if (q->rank != 0) {
        return pchan_channel_recv_init(plan->deal, plan->limbs, q->n_local * n_limbs, MPI_UINT64_T, 0, q->tag + 1,
                                       NULL, err);
    }
    for (int o = 1; o < q->size && status == PCHAN_OK; o++) {
        status = pchan_channel_send_init(plan->deal, plan->limbs + pch_layout_offset(q->layout, o) * n_limbs,
                                         pch_layout_n_owned(q->layout, o) * n_limbs, MPI_UINT64_T, o, q->tag + 1,
                                         NULL, err);
    }
    return status;
}

static pchan_status gather_create(pchan_qreduce *q, pchan_error *err)
{
    const pchan_channel_options options = {.shared_comm = 1};
    gather_plan *plan;
    pchan_status status;
    PCH_TRY(PCH_ALLOC(plan, 1, err));
    q->plan = plan;
    size_t n_others = q->rank == 0 ? (size_t)(q->n_nodes - 1) * (size_t)n_elements(q) : 0;
    size_t n_words = n_others * (size_t)q->basis->n_words;
    size_t n_limbs = (size_t)(q->rank == 0 ? n_elements(q) : q->n_local) * (size_t)q->basis->n_limbs;
    PCH_TRY(PCH_ALLOC(plan->words, n_words, err));
    PCH_TRY(PCH_ALLOC(plan->limbs, n_limbs, err));
    PCH_TRY(pchan_channel_create(q->comm, &options, &plan->collect, err));
    PCH_TRY(pchan_channel_create(q->comm, &options, &plan->deal, err));
    PCH_TRY(register_collect(q, plan, err));
    PCH_TRY(register_deal(q, plan, err));
    q->stats.bytes_held += (int64_t)((n_words + n_limbs) * sizeof(uint64_t));
done:
    return status;
}

static pchan_status gather_begin(pchan_qreduce *q, pchan_error *err)
{
    gather_plan *plan = q->plan;
    plan->dealing = false;
    return pchan_channel_start(plan->collect, err);
}

/* Rank 0: sums of all nodes into its own node's window. */
static void add_nodes(pchan_qreduce *q, const gather_plan *plan)
{
    int64_t n = n_elements(q) * q->basis->n_words, begin_ns = pch_now_ns();
    uint64_t *sum = q->window->words;
    for (int m = 1; m < q->n_nodes; m++) {
        const uint64_t *words = plan->words + (m - 1) * n;
        for (int64_t k = 0; k < n; k++)
            sum[k] = (sum[k] + words[k]) % q->basis->words[k % q->basis->n_words].modulus;
    }
    q->stats.accumulate_ns += pch_now_ns() - begin_ns;
}

static pchan_status restore_all(pchan_qreduce *q, gather_plan *plan, pchan_error *err)
{
    pchan_error own = {0};
    int64_t begin_ns = pch_now_ns();
    pchan_status status =
        pchan_restore_reference(q->basis, q->window->words, (size_t)n_elements(q), plan->limbs, &own);
    q->stats.restore_ns += pch_now_ns() - begin_ns;
    if (status == PCHAN_ERR_RANGE) {
        q->first_bad = own.index;
        return PCHAN_OK;
    }
    if (status != PCHAN_OK && err) *err = own;
    return status;
}

/* What has been collected is summed at rank 0; every node's window is zero again. */
static pchan_status end_collect(pchan_qreduce *q, gather_plan *plan, pchan_error *err)
{
    pchan_status status = PCHAN_OK;
    if (q->rank == 0) {
        add_nodes(q, plan);
        PCH_TRY(restore_all(q, plan, err));
    }
    if (q->node_rank == 0) memset(q->window->words, 0, (size_t)pch_words_bytes(q, n_elements(q)));
    plan->dealing = true;
    status = pchan_channel_start(plan->deal, err);
done:
    return status;
}

static void count_bytes_sent(pchan_qreduce *q)
{
    if (q->node_of[q->rank] != 0 && q->node_rank == 0) q->stats.bytes_sent += pch_words_bytes(q, n_elements(q));
    for (int o = 1; o < q->size && q->rank == 0; o++) {
        int64_t n = q->node_of[o] == 0 ? 0 : pch_layout_n_owned(q->layout, o) * q->basis->n_limbs;
        q->stats.bytes_sent += n * (int64_t)sizeof(uint64_t);
    }
}

static pchan_status gather_progress(pchan_qreduce *q, bool *done, pchan_error *err)
{
    gather_plan *plan = q->plan;
    int finished;
    pchan_status status = PCHAN_OK;
    if (!plan->dealing) {
        PCH_TRY(pchan_channel_poll(plan->collect, 0, &finished, err));
        if (!finished) return PCHAN_OK;
        PCH_TRY(end_collect(q, plan, err));
    }
    PCH_TRY(pchan_channel_poll(plan->deal, 0, &finished, err));
    if (!finished) return PCHAN_OK;
    size_t bytes = (size_t)q->n_local * (size_t)q->basis->n_limbs * sizeof(uint64_t);
    if (bytes) memcpy(q->limbs, plan->limbs + (q->rank == 0 ? q->first * q->basis->n_limbs : 0), bytes);
    count_bytes_sent(q);
    *done = true;
done:
    return status;
}

static void gather_destroy(pchan_qreduce *q)
{
    gather_plan *plan = q->plan;
    if (!plan) return;
    pchan_channel_abandon(&plan->collect);
    pchan_channel_abandon(&plan->deal);
    pch_free(plan->words);
    pch_free(plan->limbs);
    pch_free(plan);
    q->plan = NULL;
}

const pch_strategy pch_strategy_gather = {"gather", gather_create, gather_begin, gather_progress, gather_destroy};
