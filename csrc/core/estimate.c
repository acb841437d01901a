/* SPDX-License-Identifier: MIT
 *
 * What a plan will hold and send, told before anything of its size is allocated. The plan itself uses the same
 * arithmetic, once for its own rank; here a plan on paper is measured as each of the ranks in turn.
 */
#include "pch_qreduce.h"

int64_t pch_window_bytes(const pchan_qreduce *q)
{
    return pch_words_bytes(q, pch_layout_offset(q->layout, q->size)) + pch_layout_places_bytes(q->layout);
}

pchan_status pch_measure(const pchan_qreduce *q, pchan_qreduce_figures *figures, pchan_error *err)
{
    *figures = (pchan_qreduce_figures){
        .n_local = q->n_local,
        .node_bytes = pch_window_bytes(q),
        .bytes_held = pch_window_bytes(q) / q->node_size + pch_layout_bytes(q->layout),
    };
    return q->strategy->measure(q, figures, err);
}

static void become(pchan_qreduce *q, int rank)
{
    int node = q->node_of[rank];
    q->rank = rank;
    q->node_size = q->node_first[node + 1] - q->node_first[node];
    q->first = pch_layout_offset(q->layout, rank);
    q->n_local = pch_layout_n_owned(q->layout, rank);
    for (int k = 0; k < q->node_size; k++) {
        if (q->members[q->node_first[node] + k] == rank) q->node_rank = k;
    }
}

/* leaders [size]: the lowest rank of each rank's node. */
static pchan_status find_leaders(const int *nodes, int size, int *leaders, pchan_error *err)
{
    int *first = NULL; /* by node number */
    pchan_status status = PCH_ALLOC(first, (size_t)size, err);
    for (int r = size - 1; r >= 0 && status == PCHAN_OK; r--) {
        if (nodes[r] < 0 || nodes[r] >= size) {
            status = pch_fail(err, PCHAN_ERR_ARG, "estimate: node %d of rank %d is not in 0..%d", nodes[r], r,
                              size - 1);
        } else {
            first[nodes[r]] = r;
        }
    }
    for (int r = 0; r < size && status == PCHAN_OK; r++) leaders[r] = first[nodes[r]];
    pch_free(first);
    return status;
}

static pchan_status plan_on_paper(pchan_qreduce *q, int64_t n, const pchan_qreduce_options *options,
                                  const int *nodes, pchan_error *err)
{
    int *leaders = NULL;
    pchan_status status;
    PCH_TRY(PCH_ALLOC(leaders, (size_t)q->size, err));
    PCH_TRY(find_leaders(nodes, q->size, leaders, err));
    PCH_TRY(pch_number_nodes(q, leaders, err));
    PCH_TRY(pch_layout_create(&options->layout, n, q->size, &q->layout, err));
    status = pch_deal_senders(q, err);
done:
    pch_free(leaders);
    return status;
}

pchan_status pchan_qreduce_estimate(int64_t n, const pchan_basis *basis, const pchan_qreduce_options *options,
                                    int n_ranks, const int *nodes, pchan_qreduce_figures *ranks, pchan_error *err)
{
    const pchan_qreduce_options defaults = {0};
    const pchan_qreduce_options *o = options ? options : &defaults;
    pchan_status status = pch_check_options(n, basis, o, err);
    if (status != PCHAN_OK) return status;
    if (n_ranks < 1) return pch_fail(err, PCHAN_ERR_ARG, "estimate: %d ranks", n_ranks);
    pchan_qreduce q = {.size = n_ranks,
                       .basis = basis,
                       .strategy = pch_strategies[pch_strategy_number(o->strategy)],
                       .buffer_bytes = o->buffer_bytes ? o->buffer_bytes : PCH_BUFFER_BYTES};
    PCH_TRY(plan_on_paper(&q, n, o, nodes, err));
    for (int r = 0; r < n_ranks; r++) {
        become(&q, r);
        PCH_TRY(pch_measure(&q, &ranks[r], err));
    }
done:
    pch_layout_destroy(&q.layout);
    pch_free(q.sender);
    pch_free(q.node_first);
    pch_free(q.members);
    pch_free(q.node_of);
    return status;
}
