/* SPDX-License-Identifier: MIT
 *
 * Strategy "restored", SDPB's: for offset = 1 .. nodes - 1 every node restores the elements owned on node + offset
 * and sends them as integers, receives its own from node - offset, and adds them. Ranks with equal index within
 * their node talk; where nodes differ in size, nodes.c deals the parts.
 *
 *   window --restore--> integers --exchange--> received integers --add--> sums --finish--> limbs
 *
 * Each of these steps runs in chunks, and within a chunk over the offsets: round = chunk (nodes - 1) + offset - 1,
 * one Channel each. Two rounds are under way at a time, so that the next one is restored while one travels. All
 * work is done in blocks, so that a step of progress is short.
 */
#include "pch_qreduce.h"
#include "pch_wide.h"

#include <string.h>

enum { IN_FLIGHT = 2 };

typedef struct restored_plan {
    pch_wide *wide;
    int64_t element;  /* limbs on the way */
    int64_t chunk;    /* elements of a part that travel in a round */
    int64_t n_rounds; /* the same on all ranks */
    int n_offsets, most_sends;
    pchan_channel **rounds;
    uint64_t *received; /* [IN_FLIGHT][chunk][element] */
    uint64_t *sent;     /* [IN_FLIGHT][most_sends][chunk][element] */
    uint64_t *sums;     /* [chunk][element] */

    int64_t filling, round, n_begun; /* next round to restore, to receive; chunks whose own part is in sums */
    int fill_send;                   /* of the round being restored: slice, and element within its chunk */
    int64_t fill_done, own_done;
} restored_plan;

/* ---- sizes ---- */

static int target_node(const pchan_qreduce *q, int offset)
{
    return (q->node_of[q->rank] + offset) % q->n_nodes;
}

/* How many parts of one node the busiest rank of the busiest node sends. */
static int most_sends_of_all(const pchan_qreduce *q)
{
    int most = 0;
    for (int from = 0; from < q->n_nodes; from++) {
        for (int to = 0; to < q->n_nodes; to++) {
            int n_from = q->node_first[from + 1] - q->node_first[from];
            for (int k = 0; k < n_from && from != to; k++) {
                int n = 0, sender = q->members[q->node_first[from] + k];
                for (int o = q->node_first[to]; o < q->node_first[to + 1]; o++)
                    n += pch_sender(q, from, q->members[o]) == sender;
                if (n > most) most = n;
            }
        }
    }
    return most;
}

static void choose_sizes(const pchan_qreduce *q, restored_plan *plan)
{
    plan->element = pch_wide_element(q->basis, q->n_nodes);
    plan->n_offsets = q->n_nodes - 1;
    plan->most_sends = most_sends_of_all(q);
    int64_t n_buffers = q->n_nodes > 1 ? IN_FLIGHT * (1 + (int64_t)plan->most_sends) + 1 : 1;
    int64_t longest = pch_longest_part(q);
    plan->chunk = pch_chunk_elements(q->buffer_bytes / (n_buffers * plan->element * 8), longest);
    plan->n_rounds = (longest + plan->chunk - 1) / plan->chunk * plan->n_offsets;
}

static int64_t buffer_limbs(const restored_plan *plan)
{
    int64_t n_exchanged = plan->n_offsets ? IN_FLIGHT * (1 + (int64_t)plan->most_sends) : 0;
    return (n_exchanged + 1) * plan->chunk * plan->element;
}

static pchan_status restored_measure(const pchan_qreduce *q, pchan_qreduce_figures *figures, pchan_error *err)
{
    restored_plan sizes = {0};
    choose_sizes(q, &sizes);
    figures->bytes_held += buffer_limbs(&sizes) * 8;
    figures->bytes_sent += pch_elements_sent(q) * sizes.element * 8;
    return pch_check_rounds(q, sizes.n_rounds, err);
}

/* Elements of a part of n in the chunk of a round. */
static int64_t chunk_length(const restored_plan *plan, int64_t n, int64_t round)
{
    return pch_chunk_length(n, plan->chunk, plan->n_offsets ? round / plan->n_offsets : round);
}

static int64_t chunk_first(const restored_plan *plan, int64_t round)
{
    return (plan->n_offsets ? round / plan->n_offsets : round) * plan->chunk;
}

static int offset_of(const restored_plan *plan, int64_t round)
{
    return (int)(round % plan->n_offsets) + 1;
}

static uint64_t *received_at(const restored_plan *plan, int64_t round)
{
    return plan->received + round % IN_FLIGHT * plan->chunk * plan->element;
}

static uint64_t *sent_at(const restored_plan *plan, int64_t round, int send)
{
    return plan->sent + (round % IN_FLIGHT * plan->most_sends + send) * plan->chunk * plan->element;
}

/* The send-th owner on the node of a round that this rank serves; -1: no more. */
static int owner_at(const pchan_qreduce *q, const restored_plan *plan, int64_t round, int send)
{
    int node = target_node(q, offset_of(plan, round));
    for (int k = q->node_first[node]; k < q->node_first[node + 1]; k++) {
        if (pch_contributes(q, q->members[k]) && send-- == 0) return q->members[k];
    }
    return -1;
}

/* ---- the plan ---- */

static pchan_status make_round(pchan_qreduce *q, restored_plan *plan, int64_t round, pchan_error *err)
{
    const pchan_channel_options options = {.shared_comm = 1};
    pchan_channel **channel = &plan->rounds[round];
    int from = (q->node_of[q->rank] - offset_of(plan, round) + q->n_nodes) % q->n_nodes, owner;
    int64_t n = chunk_length(plan, q->n_local, round);
    pchan_status status;
    PCH_TRY(pchan_channel_create(q->comm, &options, channel, err));
    if (n) {
        PCH_TRY(pchan_channel_recv_init(*channel, received_at(plan, round), n * plan->element, MPI_UINT64_T,
                                        pch_sender(q, from, q->rank), q->tag + 1, NULL, err));
    }
    for (int s = 0; (owner = owner_at(q, plan, round, s)) >= 0; s++) {
        n = chunk_length(plan, pch_layout_n_owned(q->layout, owner), round);
        if (!n) continue;
        PCH_TRY(pchan_channel_send_init(*channel, sent_at(plan, round, s), n * plan->element, MPI_UINT64_T, owner,
                                        q->tag + 1, NULL, err));
    }
done:
    return status;
}

static pchan_status restored_create(pchan_qreduce *q, pchan_error *err)
{
    restored_plan *plan;
    pchan_status status;
    PCH_TRY(PCH_ALLOC(plan, 1, err));
    q->plan = plan;
    choose_sizes(q, plan);
    PCH_TRY(pch_wide_create(q->basis, q->n_nodes, &plan->wide, err));
    PCH_TRY(PCH_ALLOC(plan->received, (size_t)buffer_limbs(plan), err));
    int64_t each = plan->chunk * plan->element;
    plan->sent = plan->received + (plan->n_offsets ? IN_FLIGHT * each : 0);
    plan->sums = plan->sent + (plan->n_offsets ? IN_FLIGHT * plan->most_sends * each : 0);
    PCH_TRY(PCH_ALLOC(plan->rounds, (size_t)plan->n_rounds, err));
    for (int64_t k = 0; k < plan->n_rounds; k++) PCH_TRY(make_round(q, plan, k, err));
    q->stats.bytes_held += buffer_limbs(plan) * 8;
done:
    return status;
}

static void restored_destroy(pchan_qreduce *q)
{
    restored_plan *plan = q->plan;
    if (!plan) return;
    for (int64_t k = 0; plan->rounds && k < plan->n_rounds; k++) pchan_channel_abandon(&plan->rounds[k]);
    pch_wide_destroy(&plan->wide);
    pch_free(plan->rounds);
    pch_free(plan->received);
    pch_free(plan);
    q->plan = NULL;
}

/* ---- the cycle ---- */

static pchan_status restored_begin(pchan_qreduce *q, pchan_error *err)
{
    restored_plan *plan = q->plan;
    (void)err;
    plan->filling = plan->round = plan->n_begun = plan->fill_done = plan->own_done = 0;
    plan->fill_send = 0;
    return PCHAN_OK;
}

/* Words of up to PCH_WIDE_BLOCK elements from place on as integers; the words are zero then. Returns how many. */
static int64_t restore_block(pchan_qreduce *q, pch_wide *wide, int64_t place, int64_t n, uint64_t *integers)
{
    int64_t begin_ns = pch_now_ns();
    if (n > PCH_WIDE_BLOCK) n = PCH_WIDE_BLOCK;
    pch_wide_add_words(wide, pch_words_at(q, place), (size_t)n, true, integers);
    memset(pch_words_at(q, place), 0, (size_t)pch_words_bytes(q, n));
    q->stats.restore_ns += pch_now_ns() - begin_ns;
    return n;
}

/* One block of what the next round sends; starts the round when all is there. */
static pchan_status fill(pchan_qreduce *q, restored_plan *plan, pchan_error *err)
{
    int64_t round = plan->filling;
    int owner = owner_at(q, plan, round, plan->fill_send);
    if (owner < 0) {
        plan->filling++;
        plan->fill_send = 0;
        return pchan_channel_start(plan->rounds[round], err);
    }
    int64_t n = chunk_length(plan, pch_layout_n_owned(q->layout, owner), round);
    if (plan->fill_done < n) {
        int64_t place = pch_layout_offset(q->layout, owner) + chunk_first(plan, round) + plan->fill_done;
        uint64_t *out = sent_at(plan, round, plan->fill_send) + plan->fill_done * plan->element;
        int64_t n_done = restore_block(q, plan->wide, place, n - plan->fill_done, out);
        pch_wide_seal(plan->wide, out, (size_t)n_done);
        plan->fill_done += n_done;
    }
    if (plan->fill_done >= n) {
        plan->fill_done = 0;
        plan->fill_send++;
    }
    return PCHAN_OK;
}

/* The chunk's sums to limbs. */
static void finish_chunk(pchan_qreduce *q, restored_plan *plan, int64_t round)
{
    int64_t n = chunk_length(plan, q->n_local, round), first = chunk_first(plan, round), begin_ns = pch_now_ns();
    size_t bad;
    if (!pch_wide_finish(plan->wide, plan->sums, (size_t)n, q->limbs + first * q->basis->n_limbs, &bad))
        pch_mark_bad(q, q->first + first + (int64_t)bad);
    plan->own_done = 0;
    q->stats.restore_ns += pch_now_ns() - begin_ns;
}

/* One block of the node's own part of the chunk into sums; true when it is all there. */
static bool begin_chunk(pchan_qreduce *q, restored_plan *plan, int64_t round)
{
    int64_t n = chunk_length(plan, q->n_local, round), k = plan->own_done;
    if (k >= n) return true;
    plan->own_done += restore_block(q, plan->wide, q->first + chunk_first(plan, round) + k, n - k,
                                    plan->sums + k * plan->element);
    return plan->own_done >= n;
}

static void finish_round(pchan_qreduce *q, restored_plan *plan)
{
    int64_t round = plan->round++, n = chunk_length(plan, q->n_local, round), begin_ns = pch_now_ns();
    size_t bad;
    if (!pch_wide_add(plan->wide, plan->sums, received_at(plan, round), (size_t)n, &bad))
        pch_mark_bad(q, q->first + chunk_first(plan, round) + (int64_t)bad);
    q->stats.accumulate_ns += pch_now_ns() - begin_ns;
    pch_count_sent(q, plan->rounds[round]);
    if (offset_of(plan, round) == plan->n_offsets) finish_chunk(q, plan, round);
}

/* One node: nothing travels. */
static bool restore_alone(pchan_qreduce *q, restored_plan *plan)
{
    if (chunk_first(plan, plan->round) >= q->n_local) return true;
    if (begin_chunk(q, plan, plan->round)) finish_chunk(q, plan, plan->round++);
    return false;
}

static pchan_status restored_progress(pchan_qreduce *q, bool *done, pchan_error *err)
{
    restored_plan *plan = q->plan;
    pchan_status status = PCHAN_OK;
    int finished = 0;
    if (plan->n_offsets == 0) {
        *done = restore_alone(q, plan);
        return PCHAN_OK;
    }
    if (plan->filling < plan->n_rounds && plan->filling < plan->round + IN_FLIGHT) PCH_TRY(fill(q, plan, err));
    if (plan->round < plan->filling && begin_chunk(q, plan, plan->round)) {
        PCH_TRY(pchan_channel_poll(plan->rounds[plan->round], 0, &finished, err));
        if (finished) finish_round(q, plan);
    }
    *done = plan->round == plan->n_rounds;
done:
    return status;
}

const pch_strategy pch_strategy_restored = {.name = "restored",
                                            .by_index = true,
                                            .measure = restored_measure,
                                            .create = restored_create,
                                            .begin = restored_begin,
                                            .progress = restored_progress,
                                            .destroy = restored_destroy};
