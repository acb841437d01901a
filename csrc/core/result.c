/* SPDX-License-Identifier: MIT
 *
 * What can be asked of a reduce-scatter: the whole matrix at one rank, who owns what, figures.
 */
#include "pch_qreduce.h"

#include <string.h>

static int move_piece(const pchan_qreduce *q, uint64_t *limbs, int n, int peer, bool send)
{
    return send ? MPI_Send(limbs, n, MPI_UINT64_T, peer, q->tag + 2, q->comm)
                : MPI_Recv(limbs, n, MPI_UINT64_T, peer, q->tag + 2, q->comm, MPI_STATUS_IGNORE);
}

static pchan_status move_limbs(pchan_qreduce *q, uint64_t *limbs, int64_t n, int peer, bool send, pchan_error *err)
{
    /* what MPI does not take travels empty, because the other end waits for it */
    const int64_t piece = pch_longest_count < 1 << 24 ? pch_longest_count : 1 << 24;
    pchan_status status = PCHAN_OK;
    for (int64_t k = 0; k < n; k += piece) {
        int count = (int)(n - k < piece ? n - k : piece);
        int code = move_piece(q, limbs + k, count, peer, send);
        if (code != MPI_SUCCESS) move_piece(q, limbs + k, 0, peer, send);
        if (code != MPI_SUCCESS && status == PCHAN_OK) status = pch_fail_mpi(err, code, "gather");
    }
    return status;
}

/* Fails on all ranks when one is not ready, or when they do not mean the same root. */
static pchan_status check_gather(const pchan_qreduce *q, int root, const void *limbs, pchan_error *err)
{
    pchan_error own = {0};
    pchan_status status = PCHAN_OK;
    if (q->active || q->n_finished == 0) {
        status = pch_fail(&own, PCHAN_ERR_STATE,
                          q->active ? "gather: the reduce-scatter is active; wait for it first"
                                    : "gather: no cycle has been finished");
    } else if (root < 0 || root >= q->size) {
        status =
            pch_fail(&own, PCHAN_ERR_ARG, "gather: root %d is not a rank of a communicator of %d", root, q->size);
    } else if (q->rank == root && !limbs) {
        status = pch_fail(&own, PCHAN_ERR_ARG, "gather: no memory given at the root");
    }
    int both[2] = {root, -root};
    PCH_TRY(pch_agree(q->comm, status, &own, err));
    status = PCH_MPI(MPI_Allreduce(MPI_IN_PLACE, both, 2, MPI_INT, MPI_MIN, q->comm), "gather", &own);
    if (status == PCHAN_OK && both[0] != -both[1]) {
        status = pch_fail(&own, PCHAN_ERR_ARG, "gather: the ranks differ in root: %d to %d", both[0], -both[1]);
    }
    status = pch_agree(q->comm, status, &own, err);
done:
    return status;
}

pchan_status pchan_qreduce_gather(pchan_qreduce *q, int root, uint64_t *limbs, pchan_error *err)
{
    pchan_status status = pch_qreduce_enter(q, "gather", err);
    if (status != PCHAN_OK) return status;
    int64_t n_limbs = q->basis->n_limbs;
    pchan_error own = {0}, lost;
    PCH_TRY(check_gather(q, root, limbs, err));
    if (q->rank != root) status = move_limbs(q, q->limbs, q->n_local * n_limbs, root, true, &own);
    for (int r = 0; r < q->size && q->rank == root; r++) {
        uint64_t *place = limbs + pch_layout_offset(q->layout, r) * n_limbs;
        int64_t n = pch_layout_n_owned(q->layout, r) * n_limbs;
        pchan_status step = PCHAN_OK;
        if (r != root) step = move_limbs(q, place, n, r, false, status == PCHAN_OK ? &own : &lost);
        if (r == root && n) memcpy(place, q->limbs, (size_t)n * sizeof *place);
        if (status == PCHAN_OK) status = step;
    }
    status = pch_agree(q->comm, status, &own, err);
done:
    pch_qreduce_leave(q);
    return pch_conclude("gather", status, err);
}

pchan_status pchan_qreduce_gather_stats(pchan_qreduce *q, int root, pchan_qreduce_stats *stats, pchan_error *err)
{
    pchan_status status = pch_qreduce_enter(q, "gather", err);
    if (status != PCHAN_OK) return status;
    int bytes = (int)sizeof q->last;
    pchan_error own = {0};
    PCH_TRY(check_gather(q, root, stats, err));
    int code = MPI_Gather(&q->last, bytes, MPI_BYTE, stats, bytes, MPI_BYTE, root, q->comm);
    status = pch_agree(q->comm, PCH_MPI(code, "gather: MPI_Gather", &own), &own, err);
done:
    pch_qreduce_leave(q);
    return pch_conclude("gather", status, err);
}

pchan_status pchan_qreduce_flip_bit(pchan_qreduce *q, int64_t i, int64_t j, int word, int bit, pchan_error *err)
{
    pchan_status status = pch_qreduce_enter(q, "flip_bit", err);
    if (status != PCHAN_OK) return status;
    int64_t n = q->layout->n;
    if (i < 0 || i > j || j >= n || word < 0 || word >= q->basis->n_words || bit < 0 || bit > 63) {
        status = pch_fail(err, PCHAN_ERR_ARG, "flip_bit: no bit %d of word %d of element (%lld, %lld)", bit, word,
                          (long long)i, (long long)j);
    } else {
        pch_words_at(q, pch_layout_position(q->layout, i, j))[word] ^= (uint64_t)1 << bit;
    }
    pch_qreduce_leave(q);
    return status;
}

int64_t pchan_qreduce_n_owned(const pchan_qreduce *q, int rank)
{
    return rank < 0 || rank >= q->size ? 0 : pch_layout_n_owned(q->layout, rank);
}

void pchan_qreduce_owned(const pchan_qreduce *q, int rank, int64_t *rows, int64_t *cols)
{
    if (rank >= 0 && rank < q->size) pch_layout_owned(q->layout, rank, rows, cols);
}

void pchan_qreduce_get_stats(const pchan_qreduce *q, pchan_qreduce_stats *stats)
{
    *stats = q->last;
}

int pchan_qreduce_n_nodes(const pchan_qreduce *q)
{
    return q->n_nodes;
}

int pchan_qreduce_node(const pchan_qreduce *q, int rank)
{
    return q->node_of[rank];
}
