/* SPDX-License-Identifier: MIT
 *
 * Strategy "gather", the reference: slow and obvious. Rank 0 collects every node's words, adds them
 * with % and deals the sums out; owners restore them by mixed radix, as pchan_restore_reference. It shares neither
 * sums, nor restore, nor the way of the messages with the other strategies.
 */
#include "pch_qreduce.h"

#include <string.h>

typedef struct gather_plan {
    pchan_channel *collect, *deal;
    enum { COLLECT, DEAL, RESTORE } stage;
    uint64_t *words; /* rank 0: [n_nodes - 1][all elements][n_words], of the other nodes; others: own sums */
    void *scratch;
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

/* Rank 0 sends each rank its sums, from its window. */
static pchan_status register_deal(pchan_qreduce *q, gather_plan *plan, pchan_error *err)
{
    int64_t n_words = q->basis->n_words;
    pchan_status status = PCHAN_OK;
    if (q->rank != 0) {
        return pchan_channel_recv_init(plan->deal, plan->words, q->n_local * n_words, MPI_UINT64_T, 0, q->tag + 1,
                                       NULL, err);
    }
    for (int o = 1; o < q->size && status == PCHAN_OK; o++) {
        status = pchan_channel_send_init(plan->deal, pch_words_at(q, pch_layout_offset(q->layout, o)),
                                         pch_layout_n_owned(q->layout, o) * n_words, MPI_UINT64_T, o, q->tag + 1,
                                         NULL, err);
    }
    return status;
}

static int64_t buffer_elements(const pchan_qreduce *q)
{
    return q->rank == 0 ? (q->n_nodes - 1) * n_elements(q) : q->n_local;
}

static pchan_status gather_measure(const pchan_qreduce *q, pchan_qreduce_figures *figures, pchan_error *err)
{
    (void)err;
    figures->bytes_held += pch_words_bytes(q, buffer_elements(q));
    if (q->node_of[q->rank] != 0 && q->node_rank == 0) figures->bytes_sent += pch_words_bytes(q, n_elements(q));
    for (int o = 1; o < q->size && q->rank == 0; o++) {
        if (q->node_of[o] != 0) figures->bytes_sent += pch_words_bytes(q, pch_layout_n_owned(q->layout, o));
    }
    return PCHAN_OK;
}

static pchan_status gather_create(pchan_qreduce *q, pchan_error *err)
{
    const pchan_channel_options options = {.shared_comm = 1};
    gather_plan *plan;
    pchan_status status;
    PCH_TRY(PCH_ALLOC(plan, 1, err));
    q->plan = plan;
    size_t n_words = (size_t)buffer_elements(q) * (size_t)q->basis->n_words;
    PCH_TRY(PCH_ALLOC(plan->words, n_words, err));
    size_t scratch_bytes = pch_restore_reference_scratch_bytes(q->basis);
    plan->scratch = pch_alloc(1, scratch_bytes);
    if (!plan->scratch) status = pch_fail_nomem(err, "restore", scratch_bytes);
    if (status != PCHAN_OK) goto done;
    PCH_TRY(pchan_channel_create(q->comm, &options, &plan->collect, err));
    PCH_TRY(pchan_channel_create(q->comm, &options, &plan->deal, err));
    PCH_TRY(register_collect(q, plan, err));
    PCH_TRY(register_deal(q, plan, err));
    q->stats.bytes_held += (int64_t)(n_words * sizeof(uint64_t));
done:
    return status;
}

static pchan_status gather_begin(pchan_qreduce *q, pchan_error *err)
{
    gather_plan *plan = q->plan;
    plan->stage = COLLECT;
    return pchan_channel_start(plan->collect, err);
}

/* Rank 0: sums of all nodes into its own node's window. */
static void add_nodes(pchan_qreduce *q, const gather_plan *plan)
{
    int64_t n = n_elements(q) * q->basis->n_words, begin_ns = pch_now_ns();
    uint64_t *sum = q->window->words;
    for (int m = 1; m < q->n_nodes; m++) {
        const uint64_t *words = plan->words + (m - 1) * n;
        for (int64_t k = 0; k < n; k++) {
            uint64_t modulus = q->basis->words[k % q->basis->n_words].modulus;
            sum[k] = (sum[k] % modulus + words[k] % modulus) % modulus;
        }
    }
    q->stats.accumulate_ns += pch_now_ns() - begin_ns;
}

/* What has been collected is summed at rank 0; the other nodes' windows are zero again. */
static pchan_status end_collect(pchan_qreduce *q, gather_plan *plan, pchan_error *err)
{
    if (q->rank == 0) add_nodes(q, plan);
    if (q->node_rank == 0 && q->rank != 0) memset(q->window->words, 0, (size_t)pch_words_bytes(q, n_elements(q)));
    plan->stage = DEAL;
    return pchan_channel_start(plan->deal, err);
}

static void restore_block(pchan_qreduce *q, gather_plan *plan)
{
    enum { BLOCK = 16 };
    int64_t left = q->n_local - q->n_restored, n = left < BLOCK ? left : BLOCK, begin_ns = pch_now_ns();
    const uint64_t *words = q->rank == 0 ? pch_words_at(q, q->first) : plan->words;
    size_t bad;
    pchan_status status =
        pch_restore_reference_unchecked(q->basis, words + q->n_restored * q->basis->n_words, (size_t)n,
                                        q->limbs + q->n_restored * q->basis->n_limbs, plan->scratch, &bad);
    if (status != PCHAN_OK) pch_mark_bad(q, q->first + q->n_restored + (int64_t)bad);
    q->n_restored += n;
    q->stats.restore_ns += pch_now_ns() - begin_ns;
}

static void end_cycle(pchan_qreduce *q, const gather_plan *plan)
{
    pch_count_sent(q, plan->collect);
    pch_count_sent(q, plan->deal);
    if (q->rank == 0) memset(q->window->words, 0, (size_t)pch_words_bytes(q, n_elements(q)));
}

static pchan_status gather_progress(pchan_qreduce *q, bool *done, pchan_error *err)
{
    gather_plan *plan = q->plan;
    int finished;
    pchan_status status = PCHAN_OK;
    if (plan->stage == COLLECT) {
        PCH_TRY(pchan_channel_poll(plan->collect, 0, &finished, err));
        if (!finished) return PCHAN_OK;
        PCH_TRY(end_collect(q, plan, err));
    }
    if (plan->stage == DEAL) {
        PCH_TRY(pchan_channel_poll(plan->deal, 0, &finished, err));
        if (!finished) return PCHAN_OK;
        plan->stage = RESTORE;
    }
    if (q->n_restored < q->n_local) restore_block(q, plan);
    *done = q->n_restored == q->n_local;
    if (*done) end_cycle(q, plan);
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
    pch_free(plan->scratch);
    pch_free(plan);
    q->plan = NULL;
}

const pch_strategy pch_strategy_gather = {.name = "gather",
                                          .measure = gather_measure,
                                          .create = gather_create,
                                          .begin = gather_begin,
                                          .progress = gather_progress,
                                          .destroy = gather_destroy};
