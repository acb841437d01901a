/* SPDX-License-Identifier: MIT
 *
 * A channel's cycle: start, then poll until every operation is done. The usual cycle is a few
 * MPI_Startall, a loop of MPI_Test on the last receive, then one of MPI_Testall; wait_any, timeouts
 * and errors switch the rest of the cycle to an MPI_Test for each operation ("one by one").
 */
#include "pch_channel.h"

#include <stdio.h>
#include <string.h>

/* ---- start ---- */

/* Comparing each operation with the others of its run is quadratic, so runs are kept short. */
enum { LONGEST_RUN = 256 };

static bool may_join(const pchan_channel *channel, const pch_run *r, int i)
{
    const pch_operation *op = &channel->operations[i];
    if (r->first + r->count != i || r->count == LONGEST_RUN) return false;
    if (channel->connection) return true; /* each has a tag of its own */
    if (op->peer == MPI_ANY_SOURCE || op->tag == MPI_ANY_TAG) return false;
    for (int k = r->first; k < i; k++) {
        const pch_operation *other = &channel->operations[k];
        if (other->peer == op->peer && other->tag == op->tag) return false;
        if (other->peer == MPI_ANY_SOURCE || other->tag == MPI_ANY_TAG) return false;
    }
    return true;
}

/* What a failed operation shows where MPI leaves its status as it was. */
static MPI_Status blank_status(const pch_operation *op)
{
    MPI_Status status;
    memset(&status, 0, sizeof status);
    status.MPI_SOURCE = op->peer;
    status.MPI_TAG = op->tag;
    return status;
}

static void find_runs_of(pchan_channel *channel, pchan_kind kind)
{
    pch_run *last = NULL;
    for (int i = 0; i < channel->n; i++) {
        const pch_operation *op = &channel->operations[i];
        if (op->kind != kind || channel->requests[i] == MPI_REQUEST_NULL) continue;
        if (last && may_join(channel, last, i)) {
            last->count++;
        } else {
            last = &channel->runs[channel->n_runs++];
            *last = (pch_run){i, 1};
        }
    }
}

static void find_runs(pchan_channel *channel)
{
    channel->n_runs = 0;
    channel->last_recv = -1;
    find_runs_of(channel, PCHAN_RECV);
    if (channel->n_runs && channel->n_real > 2) { /* two requests are looked at as fast as one */
        const pch_run *last = &channel->runs[channel->n_runs - 1];
        channel->last_recv = last->first + last->count - 1;
        channel->last_status = blank_status(&channel->operations[channel->last_recv]);
    }
    find_runs_of(channel, PCHAN_SEND);
    channel->runs_current = true;
}

static void mark_done(pchan_channel *channel, int index, const MPI_Status *status, int code)
{
    pch_operation *op = &channel->operations[index];
    if (op->done) return;
    op->done = true;
    op->mpi_code = code;
    channel->n_left--;
    channel->statuses[index] = *status;
    if (code == MPI_SUCCESS) channel->ready[channel->n_ready++] = index;
}

/* Operations from `run` on were not started: they count as failed, the others go on. */
static void give_up_from(pchan_channel *channel, int first_run, int code)
{
    for (int r = first_run; r < channel->n_runs; r++) {
        for (int k = 0; k < channel->runs[r].count; k++) {
            int i = channel->runs[r].first + k;
            MPI_Status blank = blank_status(&channel->operations[i]);
            mark_done(channel, i, &blank, code);
        }
    }
}

static void begin_one_by_one(pchan_channel *channel)
{
    channel->one_by_one = true;
    channel->n_left = channel->n;
    channel->n_ready = channel->n_taken = 0;
    for (int i = 0; i < channel->n; i++) {
        pch_operation *op = &channel->operations[i];
        op->done = op->peer == MPI_PROC_NULL;
        op->mpi_code = MPI_SUCCESS;
        op->system_code = 0;
        if (op->done) {
            channel->ready[channel->n_ready++] = i;
            channel->n_left--;
        }
    }
    if (channel->last_is_done) mark_done(channel, channel->last_recv, &channel->last_status, MPI_SUCCESS);
}

static int start_runs(pchan_channel *channel, int *failed_run)
{
    for (int r = 0; r < channel->n_runs; r++) {
        pch_run piece = channel->runs[r];
        MPI_Request *first = &channel->requests[piece.first];
        int code = piece.count == 1 ? MPI_Start(first) : MPI_Startall(piece.count, first);
        if (code != MPI_SUCCESS) {
            *failed_run = r;
            return code;
        }
    }
    return MPI_SUCCESS;
}

/* A bundle that does not start counts as failed; wait names its operations. */
static pchan_status start_connection(pchan_channel *channel, pchan_error *err)
{
    int code = pch_connection_start(channel->connection);
    return PCH_MPI(code, "start: MPI_Start of small messages to one rank", err);
}

pchan_status pchan_channel_start(pchan_channel *channel, pchan_error *err)
{
    pchan_status status = pch_channel_enter(channel, "start", err);
    if (status != PCHAN_OK) return status;
    if (channel->active) {
        status = pch_fail(err, PCHAN_ERR_STATE, "start: the channel is active; wait for it first");
    } else if (channel->broken) {
        status = pch_fail(err, PCHAN_ERR_STATE, "start: the channel is broken by an earlier MPI error");
    }
    if (status != PCHAN_OK) goto done;
    if (!channel->runs_current) find_runs(channel);
    for (int i = 0; i < channel->n && channel->n_real; i++) channel->statuses[i].MPI_ERROR = MPI_SUCCESS;
    pch_backoff_init(&channel->backoff, channel->spin_ns, -1);
    channel->one_by_one = channel->last_is_done = false;
    channel->requests_done = channel->n_real == 0;
    channel->active = true;
    int failed_run = 0, code = start_runs(channel, &failed_run);
    if (channel->connection) status = start_connection(channel, err);
    if (code != MPI_SUCCESS) {
        begin_one_by_one(channel);
        give_up_from(channel, failed_run, code);
        char what[160];
        pch_operation_text(channel, channel->runs[failed_run].first, what, sizeof what);
        status = pch_fail_mpi(err, code, what);
        if (err) err->index = channel->runs[failed_run].first;
    }
done:
    pch_channel_leave(channel);
    return status;
}

/* ---- poll ---- */

/* MPI_Test, not MPI_Testsome: MPICH 5.0.2 leaves the error field of the latter's statuses unset, and
 * MPI_Test raises its errors on the request's communicator, where ours return. */
static void poll_each(pchan_channel *channel)
{
    for (int i = 0; i < channel->n && channel->n_left > 0; i++) {
        if (channel->operations[i].done) continue;
        int flag = 0, code = MPI_SUCCESS;
        MPI_Status status = blank_status(&channel->operations[i]);
        if (channel->requests[i] != MPI_REQUEST_NULL) {
            code = MPI_Test(&channel->requests[i], &flag, &status);
        } else {
            flag = pch_connection_done(channel->connection, i, &code, &channel->operations[i].system_code);
        }
        if (flag || code != MPI_SUCCESS) mark_done(channel, i, &status, code);
    }
}

/* Some statuses hold an error (or an MPI says so): sort the operations into done and pending. */
static void sort_statuses(pchan_channel *channel)
{
    begin_one_by_one(channel);
    for (int i = 0; i < channel->n; i++) {
        MPI_Status s = channel->statuses[i];
        if (channel->operations[i].done) continue;
        /* none of MPI's, unless it failed: Open MPI 4.1 has freed it then */
        if (channel->requests[i] == MPI_REQUEST_NULL && s.MPI_ERROR == MPI_SUCCESS) continue;
        if (s.MPI_ERROR != MPI_ERR_PENDING) mark_done(channel, i, &s, s.MPI_ERROR);
    }
}

static bool any_error(const pchan_channel *channel)
{
    for (int i = 0; i < channel->n; i++) {
        if (channel->statuses[i].MPI_ERROR != MPI_SUCCESS) return true;
    }
    return false;
}

/* Is the receive that was started last still on its way? MPI_Testall looks at every request in every
 * poll: with 16 messages each way that takes 1.6 times as long as waiting for the last receive first. */
static bool last_is_pending(pchan_channel *channel)
{
    int last = channel->last_recv, flag = 0;
    if (last < 0 || channel->last_is_done) return false;
    int code = MPI_Test(&channel->requests[last], &flag, &channel->last_status);
    if (code != MPI_SUCCESS) {
        begin_one_by_one(channel);
        mark_done(channel, last, &channel->last_status, code);
    } else if (flag) {
        channel->last_is_done = true; /* MPI_Testall will give an empty status for it */
    }
    return !flag;
}

/* One look at the requests; requests_done or one_by_one tells what came of it. */
static pchan_status poll_requests(pchan_channel *channel, pchan_error *err)
{
    if (last_is_pending(channel) || channel->one_by_one) return PCHAN_OK;
    int flag = 0, code = MPI_Testall(channel->n, channel->requests, &flag, channel->statuses);
    if (code == MPI_SUCCESS && !flag) return PCHAN_OK;
    int class = MPI_SUCCESS;
    if (code != MPI_SUCCESS) MPI_Error_class(code, &class);
    if (class != MPI_SUCCESS && class != MPI_ERR_IN_STATUS)
        return pch_fail_mpi(err, code, "wait: MPI_Testall"); /* tells nothing; the channel stays active */
    /* Open MPI has both missed and invented MPI_ERR_IN_STATUS: the statuses decide. */
    if (any_error(channel))
        sort_statuses(channel);
    else
        channel->requests_done = true;
    if (channel->last_is_done) channel->statuses[channel->last_recv] = channel->last_status;
    return PCHAN_OK;
}

/* One look at all operations. *finished: none is left. */
static pchan_status poll(pchan_channel *channel, bool *finished, pchan_error *err)
{
    pchan_status status = PCHAN_OK;
    bool moved = !channel->connection || pch_connection_poll(channel->connection);
    if (!channel->one_by_one && !channel->requests_done) status = poll_requests(channel, err);
    if (status != PCHAN_OK) return status;
    if (channel->connection && moved && !channel->one_by_one && channel->requests_done &&
        pch_connection_failed(channel->connection)) {
        begin_one_by_one(channel); /* to tell which */
    }
    if (channel->one_by_one) poll_each(channel);
    *finished = channel->one_by_one ? channel->n_left == 0 : moved && channel->requests_done;
    return PCHAN_OK;
}

/* A wait in vain lets everything else in this process move: other channels, reduce-scatters, and MPI. */
static void be_patient(pchan_channel *channel, bool sleepy)
{
    enum { POLLS_PER_ROUND = 32 };
    if (++channel->idle_polls % POLLS_PER_ROUND && !sleepy) return;
    pch_connections_move(channel->connection);
    pch_qreduces_move(NULL);
    int flag; /* MPICH moves nothing in an MPI_Iprobe that finds a message: look for what never comes */
    if (channel->connection)
        MPI_Iprobe(channel->rank, PCH_NOBODYS_TAG, channel->entry->dup[PCH_WIRE], &flag, MPI_STATUS_IGNORE);
}

static pchan_status fail_operation(const pchan_channel *channel, int index, pchan_error *err)
{
    const pch_operation *op = &channel->operations[index];
    char what[160];
    pch_operation_text(channel, index, what, sizeof what);
    pchan_status status = PCHAN_ERR_MPI;
    if (op->system_code) {
        status = pch_fail(err, PCHAN_ERR_SYSTEM, "%s: copying from process to process: %s", what,
                          strerror(op->system_code));
    } else if (op->mpi_code == PCH_SENDER_FAILED) {
        pch_tell(err, status, "%s: its sender could not pack a message", what);
        if (err) err->mpi_code = MPI_ERR_OTHER;
    } else {
        status = pch_fail_mpi(err, op->mpi_code, what);
    }
    if (err) err->index = index;
    return status;
}

/* The cycle is over: reports the first operation that failed. */
static pchan_status finish(pchan_channel *channel, pchan_error *err)
{
    channel->active = false;
    channel->n_cycles++;
    if (channel->connection) channel->connection->running = false;
    if (!channel->one_by_one) return PCHAN_OK;
    int failed = -1;
    for (int i = channel->n - 1; i >= 0; i--) {
        const pch_operation *op = &channel->operations[i];
        if (op->mpi_code == MPI_SUCCESS && op->system_code == 0) continue;
        failed = i;
        /* Open MPI 4.1 frees a persistent request that failed: there is nothing left to start */
        if (!channel->connection && channel->requests[i] == MPI_REQUEST_NULL) channel->broken = true;
    }
    return failed < 0 ? PCHAN_OK : fail_operation(channel, failed, err);
}

static pchan_status fail_timeout(pchan_channel *channel, pchan_error *err)
{
    pch_tell(err, PCHAN_ERR_TIMEOUT, "wait: %d of %d operations unfinished:", channel->n_left, channel->n);
    if (!err) return PCHAN_ERR_TIMEOUT;
    for (int i = 0; i < channel->n; i++) {
        if (channel->operations[i].done) continue;
        if (err->index < 0) err->index = i;
        char text[160];
        pch_operation_text(channel, i, text, sizeof text);
        size_t used = strlen(err->message);
        if (used + strlen(text) + 8 > sizeof err->message) {
            snprintf(err->message + used, sizeof err->message - used, " ...");
            break;
        }
        snprintf(err->message + used, sizeof err->message - used, " %s;", text);
    }
    return PCHAN_ERR_TIMEOUT;
}

static pchan_status check_active(const pchan_channel *channel, const char *what, pchan_error *err)
{
    if (channel->broken) return pch_fail(err, PCHAN_ERR_STATE, "%s: the channel is broken by an MPI error", what);
    if (channel->active) return PCHAN_OK;
    return pch_fail(err, PCHAN_ERR_STATE, "%s: the channel is not active; start it first", what);
}

/* Polls until the cycle is over or the time is. */
static pchan_status poll_for(pchan_channel *channel, int64_t budget_ns, bool *finished, pchan_error *err)
{
    pch_backoff_resume(&channel->backoff, budget_ns);
    do {
        pchan_status status = poll(channel, finished, err);
        if (status != PCHAN_OK || *finished) return status;
        be_patient(channel, channel->backoff.sleepy);
    } while (pch_backoff_next(&channel->backoff));
    return PCHAN_OK;
}

pchan_status pchan_channel_poll(pchan_channel *channel, int64_t budget_ns, int *finished, pchan_error *err)
{
    *finished = 0;
    pchan_status status = pch_channel_enter(channel, "wait", err);
    if (status != PCHAN_OK) return status;
    bool over = false;
    PCH_TRY(check_active(channel, "wait", err));
    PCH_TRY(budget_ns > 0 ? poll_for(channel, budget_ns, &over, err) : poll(channel, &over, err));
    if (over)
        status = finish(channel, err);
    else if (budget_ns == 0)
        be_patient(channel, false);
    *finished = over;
done:
    pch_channel_leave(channel);
    return status;
}

pchan_status pchan_channel_wait(pchan_channel *channel, int64_t timeout_ns, pchan_error *err)
{
    pchan_status status = pch_channel_enter(channel, "wait", err);
    if (status != PCHAN_OK) return status;
    bool finished = false;
    PCH_TRY(check_active(channel, "wait", err));
    PCH_TRY(poll_for(channel, timeout_ns, &finished, err));
    if (!finished) { /* a last look, one by one, to say what is missing */
        if (!channel->one_by_one) begin_one_by_one(channel);
        PCH_TRY(poll(channel, &finished, err));
    }
    status = finished ? finish(channel, err) : fail_timeout(channel, err);
done:
    pch_channel_leave(channel);
    return status;
}

pchan_status pchan_channel_wait_any(pchan_channel *channel, int64_t timeout_ns, int *index, pchan_error *err)
{
    *index = -1;
    pchan_status status = pch_channel_enter(channel, "wait_any", err);
    if (status != PCHAN_OK) return status;
    if (!channel->active && !channel->broken) goto done;
    PCH_TRY(check_active(channel, "wait_any", err));
    if (!channel->one_by_one) begin_one_by_one(channel);
    bool finished = channel->n_left == 0;
    pch_backoff_resume(&channel->backoff, timeout_ns);
    while (channel->n_taken == channel->n_ready && !finished) {
        PCH_TRY(poll(channel, &finished, err));
        if (channel->n_taken < channel->n_ready || finished) break;
        be_patient(channel, channel->backoff.sleepy);
        if (!pch_backoff_next(&channel->backoff)) {
            status = fail_timeout(channel, err);
            goto done;
        }
    }
    if (channel->n_taken < channel->n_ready) *index = channel->ready[channel->n_taken++];
    /* Whoever takes as many indices as there are operations may start again at once. */
    bool last = channel->n_left == 0 && channel->n_taken == channel->n_ready;
    if (last && (*index < 0 || channel->n_ready == channel->n)) status = finish(channel, err);
done:
    pch_channel_leave(channel);
    return status;
}

/* What nobody waits for any more gets a moment to arrive; then receives are cancelled. Sends can
 * not be: freed, they go as far as MPI takes them. */
void pch_channel_finish_at_finalize(pchan_channel *channel)
{
    bool finished = false;
    pch_backoff backoff;
    if (!channel->one_by_one) begin_one_by_one(channel);
    pch_backoff_init(&backoff, 0, pch_grace_ns());
    do {
        if (poll(channel, &finished, NULL) != PCHAN_OK || finished) break;
    } while (pch_backoff_next(&backoff));
    for (int i = 0; i < channel->n && !finished; i++) {
        const pch_operation *op = &channel->operations[i];
        if (op->done || op->kind != PCHAN_RECV || channel->requests[i] == MPI_REQUEST_NULL) continue;
        if (MPI_Cancel(&channel->requests[i]) == MPI_SUCCESS) MPI_Wait(&channel->requests[i], MPI_STATUS_IGNORE);
    }
    if (channel->connection && !finished) pch_connection_cancel(channel->connection);
}
