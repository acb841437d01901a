/* SPDX-License-Identifier: MIT
 *
 * Strategy "residues": every node sends each owner its slice of the window; the owner adds the
 * words it receives to its own node's slice and restores each element once.
 *
 * The exchange goes in rounds, one Channel each, registered at plan time: round k moves chunk k of
 * every slice. Two rounds are under way at a time, with a buffer each, so that words are
 * accumulated, and complete sums restored, while the next ones travel. Sends come straight from the
 * window.
 *
 * Which rank of a node sends which slices: nodes.c.
 */
#include "pch_qreduce.h"

#include <string.h>

enum { IN_FLIGHT = 2 };

typedef struct transfer { /* of one chunk per round */
    int peer;
    int64_t first, n; /* the slice: places in the window */
} transfer;

typedef struct residues_plan {
    int64_t chunk; /* elements per message */
    int n_sends, n_recvs, n_rounds, round;
    transfer *sends; /* slices of other nodes' owners that this rank sends */
    int *sources;    /* [n_recvs] ranks that send this rank's slice, one per other node */
    pchan_channel **rounds;
    uint64_t *buffers; /* [IN_FLIGHT][n_recvs][at most chunk][n_words] */
    int64_t buffer_elements;
} residues_plan;

static void find_transfers(const pchan_qreduce *q, residues_plan *plan)
{
    int node = q->node_of[q->rank];
    for (int o = 0; o < q->size; o++) {
        if (q->node_of[o] == node || !pch_contributes(q, o)) continue;
        plan->sends[plan->n_sends++] =
            (transfer){o, pch_layout_offset(q->layout, o), pch_layout_n_owned(q->layout, o)};
    }
    for (int m = 0; m < q->n_nodes && q->n_local; m++) {
        if (m != node) plan->sources[plan->n_recvs++] = pch_sender(q, m, q->rank);
    }
}

/* Of what travels. */
static int64_t longest_slice(const pchan_qreduce *q)
{
    return q->n_nodes > 1 ? pch_longest_part(q) : 0;
}

static int64_t at_most(int64_t n, int64_t limit)
{
    return n < limit ? n : limit;
}

/* Elements per message: the same on all ranks. No more than fit the buffers; and so few that there is something to
 * do while the next ones travel, but not so few that messages cost more than their bytes. */
static int64_t chunk_elements(const pchan_qreduce *q)
{
    enum { ROUNDS = 8, LEAST_BYTES = 256 << 10 };
    int64_t room = q->buffer_bytes / IN_FLIGHT / (q->n_nodes > 1 ? q->n_nodes - 1 : 1) / pch_words_bytes(q, 1);
    int64_t share = (longest_slice(q) + ROUNDS - 1) / ROUNDS, least = LEAST_BYTES / pch_words_bytes(q, 1);
    int64_t chunk = at_most(room, share < least ? least : share);
    return chunk < 1 ? 1 : chunk;
}

/* The same on all ranks, because connect is collective. */
static int64_t count_rounds(const pchan_qreduce *q, int64_t chunk)
{
    return (longest_slice(q) + chunk - 1) / chunk;
}

static pchan_status residues_measure(const pchan_qreduce *q, pchan_qreduce_figures *figures, pchan_error *err)
{
    int64_t chunk = chunk_elements(q), n_rounds = count_rounds(q, chunk);
    figures->bytes_sent += pch_words_bytes(q, pch_elements_sent(q));
    figures->bytes_held += pch_words_bytes(q, at_most(q->n_local, chunk)) * IN_FLIGHT * (q->n_nodes - 1);
    return pch_check_rounds(q, n_rounds, err);
}

static uint64_t *buffer_of(const pchan_qreduce *q, const residues_plan *plan, int round, int recv)
{
    int64_t number = (int64_t)(round % IN_FLIGHT) * plan->n_recvs + recv;
    return plan->buffers + number * plan->buffer_elements * q->basis->n_words;
}

static pchan_status make_round(pchan_qreduce *q, residues_plan *plan, int k, pchan_error *err)
{
    const pchan_channel_options options = {.shared_comm = 1};
    int64_t n_words = q->basis->n_words;
    pchan_status status;
    PCH_TRY(pchan_channel_create(q->comm, &options, &plan->rounds[k], err));
    int64_t n = pch_chunk_length(q->n_local, plan->chunk, k);
    for (int r = 0; r < plan->n_recvs && n; r++) {
        PCH_TRY(pchan_channel_recv_init(plan->rounds[k], buffer_of(q, plan, k, r), n * n_words, MPI_UINT64_T,
                                        plan->sources[r], q->tag + 1, NULL, err));
    }
    for (int s = 0; s < plan->n_sends; s++) {
        const transfer *t = &plan->sends[s];
        n = pch_chunk_length(t->n, plan->chunk, k);
        if (!n) continue;
        PCH_TRY(pchan_channel_send_init(plan->rounds[k], pch_words_at(q, t->first + k * plan->chunk), n * n_words,
                                        MPI_UINT64_T, t->peer, q->tag + 1, NULL, err));
    }
done:
    return status;
}

/* Between nodes that are one machine in truth, messages need no MPI; connect finds the way. It is collective and
 * costs a few messages per round. */
static pchan_status connect_rounds(pchan_qreduce *q, residues_plan *plan, pchan_error *err)
{
    enum { MOST_CONNECTED = 64 };
    int n_here = 1, other_node_here;
    pchan_status status;
    PCH_TRY(pch_comm_node(q->entry, err));
    MPI_Comm_size(q->entry->node, &n_here);
    other_node_here = n_here > q->node_size;
    pchan_error own = {0};
    status = PCH_MPI(MPI_Allreduce(MPI_IN_PLACE, &other_node_here, 1, MPI_INT, MPI_MAX, q->comm), "MPI_Allreduce",
                     &own);
    PCH_TRY(pch_agree(q->comm, status, &own, err));
    if (!other_node_here || plan->n_rounds > MOST_CONNECTED) return PCHAN_OK;
    for (int k = 0; k < plan->n_rounds; k++) PCH_TRY(pch_channel_connect(plan->rounds[k], err));
done:
    return status;
}

static pchan_status make_plan(pchan_qreduce *q, pchan_error *err)
{
    residues_plan *plan;
    pchan_status status;
    PCH_TRY(PCH_ALLOC(plan, 1, err));
    q->plan = plan;
    PCH_TRY(PCH_ALLOC(plan->sends, (size_t)q->size, err));
    PCH_TRY(PCH_ALLOC(plan->sources, (size_t)q->n_nodes, err));
    find_transfers(q, plan);
    plan->chunk = chunk_elements(q);
    plan->n_rounds = (int)count_rounds(q, plan->chunk);
    plan->buffer_elements = at_most(q->n_local, plan->chunk);
    size_t n = (size_t)(IN_FLIGHT * plan->n_recvs) * (size_t)plan->buffer_elements * (size_t)q->basis->n_words;
    PCH_TRY(PCH_ALLOC(plan->buffers, n, err));
    PCH_TRY(PCH_ALLOC(plan->rounds, (size_t)plan->n_rounds, err));
    for (int k = 0; k < plan->n_rounds; k++) PCH_TRY(make_round(q, plan, k, err));
    q->stats.bytes_held += (int64_t)(n * sizeof(uint64_t));
done:
    return status;
}

static pchan_status residues_create(pchan_qreduce *q, pchan_error *err)
{
    pchan_error own = {0};
    pchan_status status = pch_agree(q->comm, make_plan(q, &own), &own, err);
    return status == PCHAN_OK ? connect_rounds(q, q->plan, err) : status;
}

static pchan_status residues_begin(pchan_qreduce *q, pchan_error *err)
{
    residues_plan *plan = q->plan;
    pchan_status status = PCHAN_OK;
    plan->round = 0;
    for (int k = 0; k < IN_FLIGHT && k < plan->n_rounds && status == PCHAN_OK; k++) {
        status = pchan_channel_start(plan->rounds[k], err);
    }
    return status;
}

/* What round k received is added, what it sent is zeroed. */
static void finish_round(pchan_qreduce *q, residues_plan *plan, int k)
{
    int64_t begin_ns = pch_now_ns(), n = pch_chunk_length(q->n_local, plan->chunk, k);
    for (int r = 0; r < plan->n_recvs && n; r++) {
        pchan_accumulate(q->basis, pch_words_at(q, q->first + k * plan->chunk), buffer_of(q, plan, k, r),
                         (size_t)n);
    }
    q->stats.accumulate_ns += pch_now_ns() - begin_ns;
    for (int s = 0; s < plan->n_sends; s++) {
        const transfer *t = &plan->sends[s];
        n = pch_chunk_length(t->n, plan->chunk, k);
        if (n) memset(pch_words_at(q, t->first + k * plan->chunk), 0, (size_t)pch_words_bytes(q, n));
        q->stats.bytes_sent += pch_words_bytes(q, n);
    }
}

static pchan_status residues_progress(pchan_qreduce *q, bool *done, pchan_error *err)
{
    residues_plan *plan = q->plan;
    pchan_status status = PCHAN_OK;
    while (plan->round < plan->n_rounds) {
        int finished;
        PCH_TRY(pchan_channel_poll(plan->rounds[plan->round], 0, &finished, err));
        if (!finished) {
            int64_t n_summed = plan->round * plan->chunk;
            if (plan->n_recvs) pch_qreduce_restore_own(q, n_summed < q->n_local ? n_summed : q->n_local);
            return PCHAN_OK;
        }
        finish_round(q, plan, plan->round++);
        int next = plan->round + IN_FLIGHT - 1;
        if (next < plan->n_rounds) PCH_TRY(pchan_channel_start(plan->rounds[next], err));
    }
    *done = pch_qreduce_restore_own(q, q->n_local);
done:
    return status;
}

static void residues_destroy(pchan_qreduce *q)
{
    residues_plan *plan = q->plan;
    if (!plan) return;
    for (int k = 0; plan->rounds && k < plan->n_rounds; k++) pchan_channel_abandon(&plan->rounds[k]);
    pch_free(plan->rounds);
    pch_free(plan->sends);
    pch_free(plan->sources);
    pch_free(plan->buffers);
    pch_free(plan);
    q->plan = NULL;
}

const pch_strategy pch_strategy_residues = {.name = "residues",
                                            .measure = residues_measure,
                                            .create = residues_create,
                                            .begin = residues_begin,
                                            .progress = residues_progress,
                                            .destroy = residues_destroy};
