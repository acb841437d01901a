/* SPDX-License-Identifier: MIT
 *
 * Strategy "mpi": MPI_Reduce_scatter of uint32 residues, what a program would do with MPI alone. Where MPI has
 * persistent collectives (MPI 4) they are made once, elsewhere MPI_Ireduce_scatter serves.
 *
 *   window --take apart--> residues [owner][chunk][n_primes] --MPI--> sums of own chunk --pack--> window -->
 * restore
 *
 * A sum of up to 2,048 residues below 2^21 fits uint32, and of a node only one rank contributes to a part
 * (nodes.c); the others send zeros. One chunk of every part travels at a time. Collective calls must come in the
 * same order on all ranks, whatever order plans are waited for: so every plan has a communicator of its own.
 */
#include "pch_qreduce.h"

#include <limits.h>
#include <string.h>

enum { MAX_NODES = 2048, BLOCK = 256 };

#if MPI_VERSION >= 4
enum { PERSISTENT = 1 };
#else
enum { PERSISTENT = 0 };
#endif

typedef struct mpi_plan {
    MPI_Comm comm;
    int spare; /* its number; -1: none */
    int64_t chunk, n_rounds;
    int *counts;           /* [n_rounds][size], residues */
    uint32_t *sent, *sums; /* [size][chunk][n_primes], [chunk][n_primes] */
    uint64_t *reciprocals; /* [n_primes], 2^64 / p rounded down */
    MPI_Request *requests; /* [n_rounds] or one */

    int64_t round, done; /* elements of the owner at hand, or of the own chunk */
    int owner;
    int64_t place; /* in sent */
    enum { FILL, TRAVEL, UNPACK } stage;
} mpi_plan;

/* ---- sizes ---- */

static void choose_sizes(const pchan_qreduce *q, mpi_plan *plan)
{
    int64_t longest = pch_longest_part(q), element = q->basis->n_primes * (int64_t)sizeof(uint32_t);
    /* MPI's counts are ints, and those of all owners may be added up as such */
    int64_t chunk = q->buffer_bytes / (element * (q->size + 1)),
            most = pch_longest_count / q->basis->n_primes / q->size;
    plan->chunk = pch_chunk_elements(chunk < most ? chunk : most, longest);
    plan->n_rounds = (longest + plan->chunk - 1) / plan->chunk;
}

static int64_t chunk_length(const pchan_qreduce *q, const mpi_plan *plan, int owner, int64_t round)
{
    return pch_chunk_length(pch_layout_n_owned(q->layout, owner), plan->chunk, round);
}

static int64_t bytes_in_buffers(const pchan_qreduce *q, const mpi_plan *plan)
{
    return plan->chunk * (q->size + 1) * q->basis->n_primes * (int64_t)sizeof(uint32_t);
}

static int64_t bytes_in_counts(const pchan_qreduce *q, const mpi_plan *plan)
{
    return plan->n_rounds * (q->size * (int64_t)sizeof(int) + (int64_t)sizeof(MPI_Request));
}

static pchan_status mpi_measure(const pchan_qreduce *q, pchan_qreduce_figures *figures, pchan_error *err)
{
    mpi_plan sizes = {0};
    choose_sizes(q, &sizes);
    figures->bytes_held += bytes_in_buffers(q, &sizes) + bytes_in_counts(q, &sizes);
    for (int o = 0; o < q->size; o++) {
        if (q->node_of[o] == q->node_of[q->rank]) continue;
        figures->bytes_sent += pch_layout_n_owned(q->layout, o) * q->basis->n_primes * (int64_t)sizeof(uint32_t);
    }
    if (q->n_nodes > MAX_NODES) {
        return pch_fail(err, PCHAN_ERR_ARG, "qreduce: strategy mpi adds residues of at most %d nodes, not %d",
                        MAX_NODES, q->n_nodes);
    }
    return pch_check_rounds(q, sizes.n_rounds, err);
}

/* ---- the plan ---- */

static pchan_status make_requests(pchan_qreduce *q, mpi_plan *plan, pchan_error *err)
{
    pchan_status status = PCHAN_OK;
    for (int64_t k = 0; k < plan->n_rounds && PERSISTENT; k++) { /* all of them, in step with the other ranks */
#if MPI_VERSION >= 4
        pchan_error lost;
        pchan_status step =
            PCH_MPI(MPI_Reduce_scatter_init(plan->sent, plan->sums, plan->counts + k * q->size, MPI_UINT32_T,
                                            MPI_SUM, plan->comm, MPI_INFO_NULL, &plan->requests[k]),
                    "MPI_Reduce_scatter_init", status == PCHAN_OK ? err : &lost);
        if (step != PCHAN_OK) plan->requests[k] = MPI_REQUEST_NULL;
        if (status == PCHAN_OK) status = step;
#endif
    }
    return status;
}

static pchan_status start_request(pchan_qreduce *q, mpi_plan *plan, pchan_error *err)
{
    MPI_Request *request = &plan->requests[plan->round];
    if (PERSISTENT) return PCH_MPI(MPI_Start(request), "MPI_Start", err);
    return PCH_MPI(MPI_Ireduce_scatter(plan->sent, plan->sums, plan->counts + plan->round * q->size, MPI_UINT32_T,
                                       MPI_SUM, plan->comm, request),
                   "MPI_Ireduce_scatter", err);
}

static pchan_status reserve(pchan_qreduce *q, mpi_plan *plan, pchan_error *err)
{
    int n_primes = q->basis->n_primes;
    pchan_status status;
    PCH_TRY(PCH_ALLOC(plan->requests, (size_t)plan->n_rounds, err));
    for (int64_t k = 0; k < plan->n_rounds; k++) plan->requests[k] = MPI_REQUEST_NULL;
    PCH_TRY(PCH_ALLOC(plan->counts, (size_t)plan->n_rounds * (size_t)q->size, err));
    for (int64_t k = 0; k < plan->n_rounds; k++) {
        for (int o = 0; o < q->size; o++)
            plan->counts[k * q->size + o] = (int)chunk_length(q, plan, o, k) * n_primes;
    }
    PCH_TRY(PCH_ALLOC(plan->sums, (size_t)(plan->chunk * n_primes), err));
    PCH_TRY(PCH_ALLOC(plan->sent, (size_t)(plan->chunk * n_primes) * (size_t)q->size, err));
    PCH_TRY(PCH_ALLOC(plan->reciprocals, (size_t)n_primes, err));
    for (int i = 0; i < n_primes; i++) plan->reciprocals[i] = UINT64_MAX / q->basis->primes[i];
done:
    return status;
}

static pchan_status mpi_create(pchan_qreduce *q, pchan_error *err)
{
    pchan_error own = {0};
    mpi_plan *plan = NULL;
    pchan_status status = PCH_ALLOC(plan, 1, &own);
    if (plan) {
        q->plan = plan;
        plan->spare = -1;
        choose_sizes(q, plan);
        status = reserve(q, plan, &own);
    }
    PCH_TRY(pch_agree(q->comm, status, &own, err)); /* what follows is collective */
    PCH_TRY(pch_comm_take_spare(q->entry, &plan->spare, &plan->comm, err));
    PCH_TRY(make_requests(q, plan, err));
    q->stats.bytes_held += bytes_in_buffers(q, plan) + bytes_in_counts(q, plan);
done:
    return status;
}

static void free_requests(mpi_plan *plan)
{
    for (int64_t k = 0; plan->requests && k < plan->n_rounds; k++) {
        if (plan->requests[k] != MPI_REQUEST_NULL) MPI_Request_free(&plan->requests[k]);
    }
}

/* A collective operation on its way can neither be cancelled nor freed; it gets a moment to arrive. */
static void mpi_finalize(pchan_qreduce *q)
{
    mpi_plan *plan = q->plan;
    int flag = 1;
    if (!plan->requests) return;
    if (q->active && plan->stage == TRAVEL && plan->round < plan->n_rounds) {
        pch_backoff backoff;
        pch_backoff_init(&backoff, 0, pch_grace_ns());
        do {
            if (MPI_Test(&plan->requests[plan->round], &flag, MPI_STATUS_IGNORE) != MPI_SUCCESS) flag = 0;
        } while (!flag && pch_backoff_next(&backoff));
        if (!flag) plan->requests[plan->round] = MPI_REQUEST_NULL;
    }
    free_requests(plan);
}

static void mpi_destroy(pchan_qreduce *q)
{
    mpi_plan *plan = q->plan;
    if (!plan) return;
    if (!q->finalized && !pch_runtime_is_forked()) {
        free_requests(plan);
        if (plan->spare >= 0) pch_comm_return_spare(q->entry, plan->spare);
    }
    pch_free(plan->requests);
    pch_free(plan->counts);
    pch_free(plan->sent);
    pch_free(plan->sums);
    pch_free(plan->reciprocals);
    pch_free(plan);
    q->plan = NULL;
}

/* ---- the cycle ---- */

static void begin_round(mpi_plan *plan)
{
    plan->stage = FILL;
    plan->owner = 0;
    plan->done = plan->place = 0;
}

static pchan_status mpi_begin(pchan_qreduce *q, pchan_error *err)
{
    mpi_plan *plan = q->plan;
    (void)err;
    plan->round = 0;
    begin_round(plan);
    return PCHAN_OK;
}

/* Words [n][n_words] to canonical residues [n][n_primes]; the words are zero then. */
static void take_apart(const pchan_basis *basis, const uint64_t *reciprocals, uint64_t *words, int64_t n,
                       uint32_t *residues)
{
    for (int64_t e = 0; e < n; e++, words += basis->n_words, residues += basis->n_primes) {
        for (int i = 0; i < basis->n_primes; i++) {
            uint64_t w = words[i / 3], p = basis->primes[i];
            uint64_t r = w - (uint64_t)((unsigned __int128)w * reciprocals[i] >> 64) * p;
            residues[i] = (uint32_t)(r < p ? r : r - p);
        }
        memset(words, 0, (size_t)basis->n_words * sizeof *words);
    }
}

/* One block of what travels in the round; starts it when all is there. */
static pchan_status fill(pchan_qreduce *q, mpi_plan *plan, pchan_error *err)
{
    int64_t begin_ns = pch_now_ns(), n_primes = q->basis->n_primes;
    if (plan->owner == q->size) {
        plan->stage = TRAVEL;
        return start_request(q, plan, err);
    }
    int64_t n = chunk_length(q, plan, plan->owner, plan->round), left = n - plan->done;
    if (left > 0 && pch_contributes(q, plan->owner)) {
        int64_t first = pch_layout_offset(q->layout, plan->owner) + plan->round * plan->chunk + plan->done;
        if (left > BLOCK) left = BLOCK;
        take_apart(q->basis, plan->reciprocals, pch_words_at(q, first), left, plan->sent + plan->place * n_primes);
    } else if (left > 0) {
        memset(plan->sent + plan->place * n_primes, 0, (size_t)(left * n_primes) * sizeof *plan->sent);
    }
    plan->done += left;
    plan->place += left;
    if (plan->done >= n) {
        plan->owner++;
        plan->done = 0;
    }
    q->stats.restore_ns += pch_now_ns() - begin_ns;
    return PCHAN_OK;
}

/* One block of sums back to words, in the own slice. */
static void unpack(pchan_qreduce *q, mpi_plan *plan)
{
    int64_t n = chunk_length(q, plan, q->rank, plan->round), left = n - plan->done, begin_ns = pch_now_ns();
    int64_t n_primes = q->basis->n_primes, first = plan->round * plan->chunk + plan->done;
    if (left > BLOCK) left = BLOCK;
    const ptrdiff_t each = sizeof *plan->sums;
    const pchan_array tile = {plan->sums + plan->done * n_primes,
                              PCHAN_UINT32,
                              {(size_t)n_primes, 1, (size_t)left},
                              {each, 0, each * (ptrdiff_t)n_primes}};
    size_t none; /* every uint32 is a residue */
    if (left > 0)
        (void)pch_pack_row(q->basis, &tile, 0, 0, (size_t)left, pch_words_at(q, q->first + first), &none);
    plan->done += left;
    q->stats.accumulate_ns += pch_now_ns() - begin_ns;
}

static void count_sent(pchan_qreduce *q, const mpi_plan *plan)
{
    for (int o = 0; o < q->size; o++) {
        if (q->node_of[o] == q->node_of[q->rank]) continue;
        q->stats.bytes_sent += plan->counts[plan->round * q->size + o] * (int64_t)sizeof(uint32_t);
    }
}

static pchan_status test_request(pchan_qreduce *q, mpi_plan *plan, pchan_error *err)
{
    int flag = 0;
    pchan_status status =
        PCH_MPI(MPI_Test(&plan->requests[plan->round], &flag, MPI_STATUS_IGNORE), "MPI_Reduce_scatter", err);
    if (status != PCHAN_OK || !flag) return status;
    plan->stage = UNPACK;
    plan->done = 0;
    count_sent(q, plan);
    return PCHAN_OK;
}

static pchan_status mpi_progress(pchan_qreduce *q, bool *done, pchan_error *err)
{
    mpi_plan *plan = q->plan;
    pchan_status status = PCHAN_OK;
    if (plan->round == plan->n_rounds) {
        *done = pch_qreduce_restore_own(q, q->n_local);
        return PCHAN_OK;
    }
    if (plan->stage == FILL) PCH_TRY(fill(q, plan, err));
    if (plan->stage == TRAVEL) PCH_TRY(test_request(q, plan, err));
    if (plan->stage != UNPACK) return PCHAN_OK;
    unpack(q, plan);
    if (plan->done < chunk_length(q, plan, q->rank, plan->round)) return PCHAN_OK;
    plan->round++;
    begin_round(plan);
done:
    return status;
}

const pch_strategy pch_strategy_mpi = {.name = "mpi",
                                       .measure = mpi_measure,
                                       .create = mpi_create,
                                       .begin = mpi_begin,
                                       .progress = mpi_progress,
                                       .destroy = mpi_destroy,
                                       .finalize = mpi_finalize};
