/* SPDX-License-Identifier: MIT
 *
 * Strategy "gather", the reference: slow and obvious. Rank 0 collects every node's words, adds them
 * with %, restores them with pchan_restore_reference and deals the integers out. It shares neither
 * sums, nor restore, nor messages with the other strategies. Its progress waits for the others.
 */
#include "pch_qreduce.h"

#include <string.h>

typedef struct gather_plan {
    uint64_t *sum, *received; /* rank 0: one owner's words */
    uint64_t *limbs;          /* rank 0: all owners' integers */
} gather_plan;

static pchan_status gather_create(pchan_qreduce *q, pchan_error *err)
{
    gather_plan *plan;
    pchan_status status;
    PCH_TRY(PCH_ALLOC(plan, 1, err));
    q->plan = plan;
    if (q->rank != 0) return PCHAN_OK;
    int64_t longest = 0, total = pch_layout_offset(q->layout, q->size);
    for (int o = 0; o < q->size; o++)
        longest = pch_layout_n_owned(q->layout, o) > longest ? pch_layout_n_owned(q->layout, o) : longest;
    size_t n_words = (size_t)longest * (size_t)q->basis->n_words,
           n_limbs = (size_t)total * (size_t)q->basis->n_limbs;
    PCH_TRY(PCH_ALLOC(plan->sum, n_words, err));
    PCH_TRY(PCH_ALLOC(plan->received, n_words, err));
    PCH_TRY(PCH_ALLOC(plan->limbs, n_limbs, err));
    q->stats.bytes_held += (int64_t)((2 * n_words + n_limbs) * sizeof(uint64_t));
done:
    return status;
}

static pchan_status gather_begin(pchan_qreduce *q, pchan_error *err)
{
    (void)q, (void)err;
    return PCHAN_OK;
}

/* MPI counts are ints, so long arrays go in pieces. */
static pchan_status move(pchan_qreduce *q, uint64_t *numbers, int64_t n, int peer, bool send, pchan_error *err)
{
    enum { PIECE = 1 << 24 };
    pchan_status status = PCHAN_OK;
    for (int64_t k = 0; k < n && status == PCHAN_OK; k += PIECE) {
        int count = (int)(n - k < PIECE ? n - k : PIECE);
        int code = send ? MPI_Send(numbers + k, count, MPI_UINT64_T, peer, q->tag + 1, q->comm)
                        : MPI_Recv(numbers + k, count, MPI_UINT64_T, peer, q->tag + 1, q->comm, MPI_STATUS_IGNORE);
        status = PCH_MPI(code, send ? "MPI_Send" : "MPI_Recv", err);
    }
    if (send && q->node_of[peer] != q->node_of[q->rank]) q->stats.bytes_sent += n * (int64_t)sizeof *numbers;
    return status;
}

static void add_words(const pchan_qreduce *q, uint64_t *sum, const uint64_t *words, int64_t n_elements)
{
    int n_words = q->basis->n_words;
    for (int64_t k = 0; k < n_elements * n_words; k++) {
        sum[k] = (sum[k] + words[k]) % q->basis->words[k % n_words].modulus;
    }
}

static pchan_status collect_owner(pchan_qreduce *q, gather_plan *plan, int owner, pchan_error *err)
{
    int64_t first = pch_layout_offset(q->layout, owner), n = pch_layout_n_owned(q->layout, owner);
    pchan_status status = PCHAN_OK;
    memcpy(plan->sum, pch_words_at(q, first), (size_t)pch_words_bytes(q, n));
    for (int m = 1; m < q->n_nodes; m++) {
        PCH_TRY(move(q, plan->received, n * q->basis->n_words, q->members[q->node_first[m]], false, err));
        int64_t begin_ns = pch_now_ns();
        add_words(q, plan->sum, plan->received, n);
        q->stats.accumulate_ns += pch_now_ns() - begin_ns;
    }
    int64_t begin_ns = pch_now_ns();
    pchan_error own = {0};
    status =
        pchan_restore_reference(q->basis, plan->sum, (size_t)n, plan->limbs + first * q->basis->n_limbs, &own);
    q->stats.restore_ns += pch_now_ns() - begin_ns;
    if (status == PCHAN_ERR_RANGE) {
        if (first + own.index < q->first_bad) q->first_bad = first + own.index;
        status = PCHAN_OK;
    } else if (status != PCHAN_OK && err) {
        *err = own;
    }
done:
    return status;
}

static pchan_status gather_progress(pchan_qreduce *q, bool *done, pchan_error *err)
{
    gather_plan *plan = q->plan;
    int64_t n_limbs = q->basis->n_limbs, total = pch_layout_offset(q->layout, q->size);
    pchan_status status = PCHAN_OK;
    if (q->rank == 0) {
        for (int o = 0; o < q->size; o++) PCH_TRY(collect_owner(q, plan, o, err));
        for (int o = 1; o < q->size; o++) {
            uint64_t *limbs = plan->limbs + pch_layout_offset(q->layout, o) * n_limbs;
            PCH_TRY(move(q, limbs, pch_layout_n_owned(q->layout, o) * n_limbs, o, true, err));
        }
        memcpy(q->limbs, plan->limbs, (size_t)(q->n_local * n_limbs) * sizeof *q->limbs);
    } else {
        for (int o = 0; o < q->size && q->node_rank == 0; o++) {
            uint64_t *words = pch_words_at(q, pch_layout_offset(q->layout, o));
            PCH_TRY(move(q, words, pch_layout_n_owned(q->layout, o) * q->basis->n_words, 0, true, err));
        }
        PCH_TRY(move(q, q->limbs, q->n_local * n_limbs, 0, false, err));
    }
    if (q->node_rank == 0) memset(q->window->words, 0, (size_t)pch_words_bytes(q, total));
    *done = true;
done:
    return status;
}

static void gather_destroy(pchan_qreduce *q)
{
    gather_plan *plan = q->plan;
    if (!plan) return;
    pch_free(plan->sum);
    pch_free(plan->received);
    pch_free(plan->limbs);
    pch_free(plan);
    q->plan = NULL;
}

const pch_strategy pch_strategy_gather = {"gather", gather_create, gather_begin, gather_progress, gather_destroy};
