/* SPDX-License-Identifier: MIT
 *
 * The protocol of one edge. Every shared word has one writer, but for `claimed`, which is taken by
 * compare-and-swap, and `done` and `error`, which its taker writes. Data written before a release store is
 * read after the acquire load that sees it.
 */
#include "pch_edge.h"

#include <string.h>

static size_t whole_lines(size_t bytes)
{
    return (bytes + PCH_LINE - 1) / PCH_LINE * PCH_LINE;
}

void pch_edge_plan(size_t data_bytes, int n_larges, pch_edge *edge, size_t *region_bytes)
{
    enum { WORTH_MORE_SLOTS = 32768 };
    edge->n_slots = data_bytes <= WORTH_MORE_SLOTS ? PCH_MOST_SLOTS : PCH_FEWEST_SLOTS;
    edge->slot_bytes = whole_lines(offsetof(pch_slot, data) + data_bytes);
    *region_bytes =
        sizeof(pch_control) + (size_t)edge->n_slots * edge->slot_bytes + (size_t)n_larges * sizeof(pch_claim);
}

void pch_edge_place(pch_edge *edge, void *region)
{
    char *at = region;
    edge->control = (pch_control *)at;
    at += sizeof(pch_control);
    edge->slots = (unsigned char *)at;
    at += (size_t)edge->n_slots * edge->slot_bytes;
    for (int k = 0; k < edge->n_larges; k++) edge->larges[k].claim = (pch_claim *)at + k;
}

static pch_slot *slot_of(const pch_edge *edge, uint64_t cycle)
{
    return (pch_slot *)(edge->slots + (size_t)(cycle % (unsigned)edge->n_slots) * edge->slot_bytes);
}

/* Sizes known to the compiler become single moves; small messages are mostly numbers. */
static inline void copy_bytes(void *to, const void *from, size_t n)
{
    switch (n) {
        case 1: memcpy(to, from, 1); break;
        case 2: memcpy(to, from, 2); break;
        case 4: memcpy(to, from, 4); break;
        case 8: memcpy(to, from, 8); break;
        case 16: memcpy(to, from, 16); break;
        default: pch_copy(to, from, n);
    }
}

/* Inline: start and poll know the direction, and a call costs as much as a small message. */
static inline int move_pieces(const pch_piece *pieces, int n, unsigned char *data, bool into_data)
{
    for (int k = 0; k < n; k++) {
        const pch_piece *p = &pieces[k];
        if (p->mover) {
            int code = p->mover->move(p->mover, p->memory, data + p->offset, p->bytes, into_data);
            if (code) return code;
        } else if (into_data) {
            copy_bytes(data + p->offset, p->memory, p->bytes);
        } else {
            copy_bytes(p->memory, data + p->offset, p->bytes);
        }
    }
    return 0;
}

int pch_pieces_move(const pch_piece *pieces, int n, unsigned char *data, bool into_data)
{
    return move_pieces(pieces, n, data, into_data);
}

/* Rare, so that nothing is reset in every cycle: a failure is known by its number. */
static void fail(pch_edge *edge, uint64_t cycle, int code)
{
    if (edge->failed != cycle) edge->code = 0;
    edge->failed = cycle;
    if (code) edge->code = code;
}

static void begin_larges(pch_edge *edge)
{
    edge->n_larges_left = edge->n_larges;
    edge->polls_left = PCH_POLLS_FOR_RECEIVER;
    for (int k = 0; k < edge->n_larges; k++) edge->larges[k].done = false;
}

void pch_edge_start_out(pch_edge *edge, uint64_t cycle)
{
    pch_slot *slot = slot_of(edge, cycle);
    uint64_t mark = cycle;
    if (edge->n_larges) begin_larges(edge);
    edge->passed = false;
    int code = move_pieces(edge->pieces, edge->n_pieces, slot->data, true);
    if (code) {
        fail(edge, cycle, code);
        mark |= PCH_SLOT_FAILED;
    }
    atomic_store_explicit(&slot->published, mark, memory_order_release);
}

void pch_edge_start_in(pch_edge *edge, uint64_t cycle)
{
    edge->passed = false;
    if (!edge->n_larges) return;
    begin_larges(edge);
    atomic_store_explicit(&edge->control->ready, cycle, memory_order_release);
}

/* One large message of a cycle that both ends have started. */
static void try_large(pch_edge *edge, pch_large *large, uint64_t cycle, bool outgoing, bool both_started)
{
    pch_claim *claim = large->claim;
    uint64_t before = cycle - 1;
    if (both_started && atomic_load_explicit(&claim->claimed, memory_order_relaxed) == before &&
        atomic_compare_exchange_strong_explicit(&claim->claimed, &before, cycle, memory_order_acq_rel,
                                                memory_order_relaxed)) {
        int error = 0;
        if (!large->reach) {
            error = pch_cma_copy(large->pid, large->local, large->remote, large->bytes, outgoing);
        } else if (outgoing) {
            pch_copy(large->reach, large->local, large->bytes);
        } else {
            pch_copy(large->local, large->reach, large->bytes);
        }
        atomic_store_explicit(&claim->error, error, memory_order_relaxed);
        atomic_store_explicit(&claim->done, cycle, memory_order_release);
    }
    if (atomic_load_explicit(&claim->done, memory_order_acquire) != cycle) return;
    large->done = true;
    large->error = atomic_load_explicit(&claim->error, memory_order_relaxed);
    if (large->error) fail(edge, cycle, 0);
    edge->n_larges_left--;
}

static void poll_larges(pch_edge *edge, uint64_t cycle, bool outgoing, bool both_started)
{
    for (int k = 0; k < edge->n_larges; k++) {
        if (!edge->larges[k].done) try_large(edge, &edge->larges[k], cycle, outgoing, both_started);
    }
}

bool pch_edge_poll_out(pch_edge *edge, uint64_t cycle)
{
    if (!edge->passed) {
        uint64_t enough = cycle + 1; /* less the number of slots; the counters begin at 0 */
        if (edge->consumed_seen + (unsigned)edge->n_slots < enough) {
            edge->consumed_seen = atomic_load_explicit(&edge->control->consumed, memory_order_acquire);
        }
        edge->passed = edge->consumed_seen + (unsigned)edge->n_slots >= enough;
    }
    if (edge->n_larges_left) {
        bool started = atomic_load_explicit(&edge->control->ready, memory_order_acquire) >= cycle;
        bool mine = started && edge->polls_left == 0;
        edge->polls_left -= started && !mine;
        poll_larges(edge, cycle, true, mine);
    }
    return edge->passed && edge->n_larges_left == 0;
}

static inline void empty_slot(pch_edge *edge, uint64_t cycle)
{
    edge->passed = true;
    atomic_store_explicit(&edge->control->consumed, cycle, memory_order_release);
}

bool pch_edge_poll_in(pch_edge *edge, uint64_t cycle)
{
    if (!edge->passed) {
        pch_slot *slot = slot_of(edge, cycle);
        uint64_t mark = atomic_load_explicit(&slot->published, memory_order_acquire);
        if (mark == cycle) {
            int code = move_pieces(edge->pieces, edge->n_pieces, slot->data, false);
            if (code) fail(edge, cycle, code);
            empty_slot(edge, cycle);
        } else if (mark == (cycle | PCH_SLOT_FAILED)) {
            fail(edge, cycle, PCH_SENDER_FAILED);
            empty_slot(edge, cycle);
        }
    }
    if (edge->n_larges_left) poll_larges(edge, cycle, false, edge->passed);
    return edge->passed && edge->n_larges_left == 0;
}
