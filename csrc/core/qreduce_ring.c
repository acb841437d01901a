/* SPDX-License-Identifier: MIT
 *
 * Strategies "ring" and "ring_scan": SDPB's reduce-scatter before version 2.6, over all ranks. In step s a rank
 * sends what it has of part rank - 1 - s to rank + 1, receives part rank - 2 - s from rank - 1, and adds its own
 * integers to it; after size - 1 steps the part it holds is its own, complete. Two buffers of the largest part (or
 * of a chunk of it, where they would exceed buffer_bytes).
 *
 * A node's words are in its window once, so of the ranks of a node only the one that nodes.c deals a part to adds
 * to it. Each step must find the elements of its part: "ring" has a list of their indices, made at plan time;
 * "ring_scan" asks for the owner of every (i, j), as SDPB did.
 */
#include "pch_qreduce.h"
#include "pch_wide.h"

#include <string.h>

typedef struct ring_plan {
    pch_wide *wide;
    int64_t element, chunk, n_chunks; /* limbs on the way; elements of a part in a message */
    int n_steps;                      /* of a chunk */
    pchan_channel **rounds;           /* [n_chunks][n_steps] */
    uint64_t *buffers[2];             /* [chunk][element] */
    uint64_t *words, *integers;       /* of a block: [PCH_WIDE_BLOCK][n_words], [...][element] */
    int32_t *rows, *cols;             /* ring: of all elements, by place; ring_scan: NULL */

    int64_t at;           /* chunk */
    int step;             /* -1: the chunk's first part is being filled */
    bool travelling;      /* the step's message; afterwards own integers are added */
    int64_t n_added;      /* elements of the chunk */
    int64_t i, j, n_seen; /* ring_scan: where the scan is, elements of the part before that */
} ring_plan;

static bool scans(const pchan_qreduce *q)
{
    return q->strategy == &pch_strategy_ring_scan;
}

/* ---- sizes ---- */

static void choose_sizes(const pchan_qreduce *q, ring_plan *plan)
{
    int64_t longest = pch_longest_part(q);
    plan->element = pch_wide_element(q->basis, q->n_nodes);
    plan->n_steps = q->size - 1;
    plan->chunk = pch_chunk_elements(q->buffer_bytes / (2 * plan->element * 8), longest);
    plan->n_chunks = (longest + plan->chunk - 1) / plan->chunk;
}

static int64_t list_bytes(const pchan_qreduce *q)
{
    return scans(q) ? 0 : pch_layout_offset(q->layout, q->size) * 2 * (int64_t)sizeof(int32_t);
}

static int64_t chunk_length(const pchan_qreduce *q, const ring_plan *plan, int part, int64_t chunk)
{
    return pch_chunk_length(pch_layout_n_owned(q->layout, part), plan->chunk, chunk);
}

static pchan_status ring_measure(const pchan_qreduce *q, pchan_qreduce_figures *figures, pchan_error *err)
{
    ring_plan sizes = {0};
    choose_sizes(q, &sizes);
    figures->bytes_held += 2 * sizes.chunk * sizes.element * 8 + list_bytes(q);
    if (q->node_of[(q->rank + 1) % q->size] != q->node_of[q->rank]) {
        figures->bytes_sent += (pch_layout_offset(q->layout, q->size) - q->n_local) * sizes.element * 8;
    }
    return pch_check_rounds(q, sizes.n_chunks * sizes.n_steps, err);
}

/* ---- the plan ---- */

/* The part that a rank has after `step` steps, step from -1 on. */
static int part_after(const pchan_qreduce *q, int step)
{
    return (int)(((int64_t)q->rank - 2 - step + 2 * (int64_t)q->size) % q->size);
}

static pchan_status make_round(pchan_qreduce *q, ring_plan *plan, int64_t chunk, int step, pchan_error *err)
{
    const pchan_channel_options options = {.shared_comm = 1};
    pchan_channel **channel = &plan->rounds[chunk * plan->n_steps + step];
    int64_t n_in = chunk_length(q, plan, part_after(q, step), chunk) * plan->element;
    int64_t n_out = chunk_length(q, plan, part_after(q, step - 1), chunk) * plan->element;
    int left = (q->rank + q->size - 1) % q->size, right = (q->rank + 1) % q->size;
    pchan_status status;
    PCH_TRY(pchan_channel_create(q->comm, &options, channel, err));
    if (n_in) {
        PCH_TRY(pchan_channel_recv_init(*channel, plan->buffers[(step + 1) % 2], n_in, MPI_UINT64_T, left,
                                        q->tag + 1, NULL, err));
    }
    if (n_out) {
        PCH_TRY(pchan_channel_send_init(*channel, plan->buffers[step % 2], n_out, MPI_UINT64_T, right, q->tag + 1,
                                        NULL, err));
    }
done:
    return status;
}

static pchan_status make_lists(pchan_qreduce *q, ring_plan *plan, pchan_error *err)
{
    int64_t n = q->layout->n;
    pchan_status status;
    PCH_TRY(PCH_ALLOC(plan->rows, (size_t)pch_layout_offset(q->layout, q->size), err));
    PCH_TRY(PCH_ALLOC(plan->cols, (size_t)pch_layout_offset(q->layout, q->size), err));
    for (int64_t i = 0; i < n; i++) {
        for (int64_t j = i; j < n; j++) {
            int64_t place = pch_layout_position(q->layout, i, j);
            plan->rows[place] = (int32_t)i;
            plan->cols[place] = (int32_t)j;
        }
    }
done:
    return status;
}

static pchan_status ring_create(pchan_qreduce *q, pchan_error *err)
{
    ring_plan *plan;
    pchan_status status;
    PCH_TRY(PCH_ALLOC(plan, 1, err));
    q->plan = plan;
    choose_sizes(q, plan);
    PCH_TRY(pch_wide_create(q->basis, q->n_nodes, &plan->wide, err));
    if (!scans(q)) PCH_TRY(make_lists(q, plan, err));
    for (int b = 0; b < 2; b++) PCH_TRY(PCH_ALLOC(plan->buffers[b], (size_t)(plan->chunk * plan->element), err));
    PCH_TRY(PCH_ALLOC(plan->words, PCH_WIDE_BLOCK * (size_t)q->basis->n_words, err));
    PCH_TRY(PCH_ALLOC(plan->integers, PCH_WIDE_BLOCK * (size_t)plan->element, err));
    PCH_TRY(PCH_ALLOC(plan->rounds, (size_t)(plan->n_chunks * plan->n_steps), err));
    for (int64_t c = 0; c < plan->n_chunks; c++) {
        for (int s = 0; s < plan->n_steps; s++) PCH_TRY(make_round(q, plan, c, s, err));
    }
    q->stats.bytes_held += 2 * plan->chunk * plan->element * 8 + list_bytes(q);
done:
    return status;
}

static void ring_destroy(pchan_qreduce *q)
{
    ring_plan *plan = q->plan;
    if (!plan) return;
    for (int64_t k = 0; plan->rounds && k < plan->n_chunks * plan->n_steps; k++)
        pchan_channel_abandon(&plan->rounds[k]);
    pch_wide_destroy(&plan->wide);
    for (int b = 0; b < 2; b++) pch_free(plan->buffers[b]);
    pch_free(plan->rounds);
    pch_free(plan->words);
    pch_free(plan->integers);
    pch_free(plan->rows);
    pch_free(plan->cols);
    pch_free(plan);
    q->plan = NULL;
}

/* ---- the cycle ---- */

static void begin_part(ring_plan *plan)
{
    plan->n_added = plan->i = plan->j = plan->n_seen = 0;
}

static pchan_status ring_begin(pchan_qreduce *q, pchan_error *err)
{
    ring_plan *plan = q->plan;
    (void)err;
    plan->at = 0;
    plan->step = -1;
    plan->travelling = false;
    begin_part(plan);
    return PCHAN_OK;
}

/* An element's words out of the window into the block. */
static void take(pchan_qreduce *q, ring_plan *plan, int64_t place, int64_t number)
{
    size_t bytes = (size_t)pch_words_bytes(q, 1);
    memcpy(plan->words + number * q->basis->n_words, pch_words_at(q, place), bytes);
    memset(pch_words_at(q, place), 0, bytes);
}

/* The next of the part's elements, at most n, by the list. */
static int64_t take_by_list(pchan_qreduce *q, ring_plan *plan, int part, int64_t n)
{
    int64_t first = pch_layout_offset(q->layout, part) + plan->at * plan->chunk + plan->n_added;
    for (int64_t k = 0; k < n; k++) {
        take(q, plan, pch_layout_position(q->layout, plan->rows[first + k], plan->cols[first + k]), k);
    }
    return n;
}

/* The same by looking at all (i, j). */
static int64_t take_by_scan(pchan_qreduce *q, ring_plan *plan, int part, int64_t n)
{
    const pch_layout *layout = q->layout;
    int64_t first = plan->at * plan->chunk, n_taken = 0;
    for (; plan->i < layout->n; plan->i++, plan->j = plan->i) {
        for (; plan->j < layout->n; plan->j++) {
            if (pch_layout_owner(layout, plan->i, plan->j) != part || plan->n_seen++ < first) continue;
            if (n_taken == n) { /* of the next block */
                plan->n_seen--;
                return n_taken;
            }
            take(q, plan, pch_layout_position(layout, plan->i, plan->j), n_taken++);
        }
    }
    return n_taken;
}

/* One block of the node's own integers onto the part in `buffer`; true when all are added. */
static bool add_own(pchan_qreduce *q, ring_plan *plan, int part, uint64_t *buffer, bool set)
{
    int64_t left = chunk_length(q, plan, part, plan->at) - plan->n_added, begin_ns = pch_now_ns();
    int64_t n = left < PCH_WIDE_BLOCK ? left : PCH_WIDE_BLOCK;
    uint64_t *place = buffer + plan->n_added * plan->element;
    if (left <= 0) return true;
    if (!pch_contributes(q, part)) {
        if (set) memset(place, 0, (size_t)(left * plan->element) * sizeof *place);
        return true;
    }
    n = scans(q) ? take_by_scan(q, plan, part, n) : take_by_list(q, plan, part, n);
    pch_wide_add_words(plan->wide, plan->words, (size_t)n, set, place);
    plan->n_added += n;
    q->stats.restore_ns += pch_now_ns() - begin_ns;
    return left == n;
}

/* The step's part is complete here: on it goes, or it is this rank's own. */
static pchan_status end_step(pchan_qreduce *q, ring_plan *plan, uint64_t *buffer, int part, pchan_error *err)
{
    int64_t n = chunk_length(q, plan, part, plan->at), first = plan->at * plan->chunk;
    size_t bad;
    begin_part(plan);
    plan->step++;
    plan->travelling = plan->step < plan->n_steps;
    if (plan->travelling) {
        pch_wide_seal(plan->wide, buffer, (size_t)n);
        return pchan_channel_start(plan->rounds[plan->at * plan->n_steps + plan->step], err);
    }
    int64_t begin_ns = pch_now_ns();
    if (n && !pch_wide_finish(plan->wide, buffer, (size_t)n, q->limbs + first * q->basis->n_limbs, &bad))
        pch_mark_bad(q, q->first + first + (int64_t)bad);
    q->stats.restore_ns += pch_now_ns() - begin_ns;
    plan->at++;
    plan->step = -1;
    return PCHAN_OK;
}

static void check_received(pchan_qreduce *q, ring_plan *plan, const uint64_t *buffer, int part)
{
    size_t bad;
    int64_t begin_ns = pch_now_ns(), n = chunk_length(q, plan, part, plan->at);
    if (!pch_wide_check(plan->wide, buffer, (size_t)n, &bad))
        pch_mark_bad(q, pch_layout_offset(q->layout, part) + plan->at * plan->chunk + (int64_t)bad);
    q->stats.accumulate_ns += pch_now_ns() - begin_ns;
}

static pchan_status ring_progress(pchan_qreduce *q, bool *done, pchan_error *err)
{
    ring_plan *plan = q->plan;
    pchan_status status = PCHAN_OK;
    int finished;
    if (plan->at < plan->n_chunks) {
        int part = part_after(q, plan->step);
        uint64_t *buffer = plan->buffers[(plan->step + 1) % 2];
        if (plan->travelling) {
            const pchan_channel *channel = plan->rounds[plan->at * plan->n_steps + plan->step];
            PCH_TRY(pchan_channel_poll(plan->rounds[plan->at * plan->n_steps + plan->step], 0, &finished, err));
            if (!finished) return PCHAN_OK;
            plan->travelling = false;
            pch_count_sent(q, channel);
            check_received(q, plan, buffer, part);
        }
        if (add_own(q, plan, part, buffer, plan->step < 0)) PCH_TRY(end_step(q, plan, buffer, part, err));
    }
    *done = plan->at == plan->n_chunks;
done:
    return status;
}

const pch_strategy pch_strategy_ring = {.name = "ring",
                                        .measure = ring_measure,
                                        .create = ring_create,
                                        .begin = ring_begin,
                                        .progress = ring_progress,
                                        .destroy = ring_destroy};
const pch_strategy pch_strategy_ring_scan = {.name = "ring_scan",
                                             .measure = ring_measure,
                                             .create = ring_create,
                                             .begin = ring_begin,
                                             .progress = ring_progress,
                                             .destroy = ring_destroy};
