/* SPDX-License-Identifier: MIT
 *
 * The end of a reduce-scatter's cycle: the minimum of one number over all ranks, by messages that
 * were registered at plan time. No collective call of MPI, because two plans may be waited for in
 * different orders on different ranks.
 */
#include "pch_qreduce.h"

pchan_status pch_agreement_create(pchan_qreduce *q, pchan_error *err)
{
    pch_agreement *a = &q->agreement;
    const pchan_channel_options options = {.shared_comm = 1};
    pchan_status status = PCHAN_OK;
    for (int64_t distance = 1; distance < q->size; distance *= 2) {
        int s = a->n_steps++;
        int to = (int)((q->rank + distance) % q->size), from = (int)((q->rank - distance + q->size) % q->size);
        PCH_TRY(pchan_channel_create(q->comm, &options, &a->channels[s], err));
        PCH_TRY(pchan_channel_recv_init(a->channels[s], &a->received[s], 1, MPI_INT64_T, from, q->tag, NULL, err));
        PCH_TRY(pchan_channel_send_init(a->channels[s], &a->sent[s], 1, MPI_INT64_T, to, q->tag, NULL, err));
    }
done:
    return status;
}

static pchan_status begin_step(pch_agreement *a, pchan_error *err)
{
    if (a->step == a->n_steps) return PCHAN_OK;
    a->sent[a->step] = a->value;
    return pchan_channel_start(a->channels[a->step], err);
}

pchan_status pch_agreement_begin(pch_agreement *a, int64_t value, pchan_error *err)
{
    a->step = 0;
    a->value = value;
    return begin_step(a, err);
}

pchan_status pch_agreement_progress(pch_agreement *a, bool *done, pchan_error *err)
{
    while (a->step < a->n_steps) {
        int finished;
        pchan_status status = pchan_channel_poll(a->channels[a->step], 0, &finished, err);
        if (status != PCHAN_OK || !finished) return status;
        if (a->received[a->step] < a->value) a->value = a->received[a->step];
        a->step++;
        status = begin_step(a, err);
        if (status != PCHAN_OK) return status;
    }
    *done = true;
    return PCHAN_OK;
}

void pch_agreement_destroy(pch_agreement *a)
{
    for (int s = 0; s < a->n_steps; s++) pchan_channel_abandon(&a->channels[s]);
}
