/* SPDX-License-Identifier: MIT
 *
 * Parts of the matrix in chunks, which travel in rounds: what the strategies have in common.
 */
#include "pch_qreduce.h"

enum { MAX_ROUNDS = 1 << 24 };

int64_t pch_longest_part(const pchan_qreduce *q)
{
    int64_t longest = 0;
    for (int o = 0; o < q->size; o++) {
        if (pch_layout_n_owned(q->layout, o) > longest) longest = pch_layout_n_owned(q->layout, o);
    }
    return longest;
}

int64_t pch_elements_sent(const pchan_qreduce *q)
{
    int64_t n = 0;
    for (int o = 0; o < q->size; o++) {
        if (q->node_of[o] != q->node_of[q->rank] && pch_contributes(q, o)) n += pch_layout_n_owned(q->layout, o);
    }
    return n;
}

int64_t pch_chunk_elements(int64_t fit, int64_t longest)
{
    return fit < 1 ? 1 : fit < longest ? fit : longest;
}

int64_t pch_chunk_length(int64_t n, int64_t chunk, int64_t number)
{
    int64_t left = n - number * chunk;
    return left < 0 ? 0 : left < chunk ? left : chunk;
}

pchan_status pch_check_rounds(const pchan_qreduce *q, int64_t n_rounds, pchan_error *err)
{
    if (n_rounds <= MAX_ROUNDS) return PCHAN_OK;
    return pch_fail(err, PCHAN_ERR_ARG,
                    "qreduce: buffer_bytes = %lld is too small: the exchange would take %lld rounds",
                    (long long)q->buffer_bytes, (long long)n_rounds);
}
