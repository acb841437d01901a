/* SPDX-License-Identifier: MIT
 *
 * QReduceScatter, the table of contents: add (add.c) packs tiles into the node's window; a cycle waits
 * until the node's ranks have arrived, runs the strategy's exchange (exchange, accumulate, restore), and
 * agrees on the first element out of range, which also tells that every window is zero again.
 *
 *     idle --add*--> idle --start--> ARRIVE --> EXCHANGE --> AGREE --> FINISHED = idle
 *
 * Nothing here waits: progress() goes as far as it can, and the waits call it until it is through.
 * plan.c makes and frees the object, result.c answers questions.
 */
#include "pch_qreduce.h"

#include <pthread.h>
#include <string.h>

/* ---- who may call ---- */

pchan_status pch_qreduce_enter(pchan_qreduce *q, const char *what, pchan_error *err)
{
    if (!q) return pch_fail(err, PCHAN_ERR_ARG, "%s: no reduce-scatter", what);
    pchan_status status = pch_runtime_check(what, err);
    if (status != PCHAN_OK) return status;
    if (!pch_busy_enter(&q->busy)) {
        return pch_fail(err, PCHAN_ERR_STATE, "%s: another thread is using this reduce-scatter", what);
    }
    if (!q->broken) return PCHAN_OK;
    pch_qreduce_leave(q);
    return pch_fail(err, PCHAN_ERR_STATE, "%s: the reduce-scatter is broken by an earlier error", what);
}

void pch_qreduce_leave(pchan_qreduce *q)
{
    pch_busy_leave(&q->busy);
}

/* ---- progress ---- */

/* Active objects: whoever waits for one moves them all, so that two plans may be waited for in
 * different orders on different ranks. */
static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static pchan_qreduce *active_list;

static void list_add(pchan_qreduce *q)
{
    pthread_mutex_lock(&list_lock);
    q->next_active = active_list;
    active_list = q;
    pthread_mutex_unlock(&list_lock);
}

static void list_remove(pchan_qreduce *q)
{
    pthread_mutex_lock(&list_lock);
    for (pchan_qreduce **place = &active_list; *place; place = &(*place)->next_active) {
        if (*place != q) continue;
        *place = q->next_active;
        break;
    }
    pthread_mutex_unlock(&list_lock);
}

void pch_count_sent(pchan_qreduce *q, const pchan_channel *channel)
{
    pchan_operation op;
    for (int i = 0; i < pchan_channel_size(channel); i++) {
        if (pchan_channel_operation(channel, i, &op, NULL) != PCHAN_OK || op.kind != PCHAN_SEND) continue;
        if (q->node_of[op.peer] != q->node_of[q->rank]) q->stats.bytes_sent += op.bytes;
    }
}

void pch_mark_bad(pchan_qreduce *q, int64_t place)
{
    const pch_layout *l = q->layout;
    int64_t row, col;
    /* finding indices is slow, and an owner's places are in row-major order */
    if (q->bad_place >= 0 && place >= q->bad_place &&
        pch_layout_owner_of_place(l, place) == pch_layout_owner_of_place(l, q->bad_place))
        return;
    q->bad_place = place;
    pch_layout_find(l, place, &row, &col);
    if (row * l->n + col < q->first_bad) q->first_bad = row * l->n + col;
}

bool pch_qreduce_restore_own(pchan_qreduce *q, int64_t n_summed)
{
    enum { BLOCK = 1024 };
    int64_t n = n_summed - q->n_restored < BLOCK ? n_summed - q->n_restored : BLOCK;
    if (n > 0) {
        int64_t begin_ns = pch_now_ns();
        uint64_t *words = pch_words_at(q, q->first + q->n_restored);
        uint64_t *limbs = q->limbs + q->n_restored * q->basis->n_limbs;
        size_t bad = 0;
        if (pch_restore_unchecked(q->basis, words, (size_t)n, limbs, q->restore_scratch, &bad) != PCHAN_OK) {
            pch_mark_bad(q, q->first + q->n_restored + (int64_t)bad);
        }
        memset(words, 0, (size_t)pch_words_bytes(q, n));
        q->n_restored += n;
        q->stats.restore_ns += pch_now_ns() - begin_ns;
    }
    return q->n_restored == q->n_local;
}

static bool node_has_arrived(const pchan_qreduce *q)
{
    for (int r = 0; r < q->node_size; r++) {
        if (atomic_load_explicit(&q->window->counters[r].value, memory_order_acquire) < q->n_cycles) return false;
    }
    return true;
}

static pchan_status begin_exchange(pchan_qreduce *q, pchan_error *err)
{
    if (!node_has_arrived(q)) return PCHAN_OK;
    q->phase = PCH_EXCHANGE;
    return q->strategy->begin(q, err);
}

/* As far as possible without waiting. */
static pchan_status progress(pchan_qreduce *q, pchan_error *err)
{
    pchan_status status = PCHAN_OK;
    bool done = false;
    if (q->phase == PCH_ARRIVE) PCH_TRY(begin_exchange(q, err));
    if (q->phase == PCH_EXCHANGE) {
        PCH_TRY(q->strategy->progress(q, &done, err));
        if (done) {
            q->phase = PCH_AGREE;
            PCH_TRY(pch_agreement_begin(&q->agreement, q->first_bad, err));
        }
    }
    if (q->phase == PCH_AGREE) {
        done = false;
        PCH_TRY(pch_agreement_progress(&q->agreement, &done, err));
        if (done) q->phase = PCH_FINISHED;
    }
done:
    return status;
}

void pch_qreduces_move(const pchan_qreduce *q)
{
    if (pthread_mutex_trylock(&list_lock) != 0) return; /* another thread is at it, or we are already */
    for (pchan_qreduce *other = active_list; other; other = other->next_active) {
        if (other == q || other->failure.status != PCHAN_OK) continue;
        if (!pch_busy_help(&other->busy)) continue;
        pchan_error failure = {0};
        if (progress(other, &failure) != PCHAN_OK) other->failure = failure;
        pch_qreduce_leave(other);
    }
    pthread_mutex_unlock(&list_lock);
}

/* ---- the cycle ---- */

pchan_status pchan_qreduce_start(pchan_qreduce *q, pchan_error *err)
{
    pchan_status status = pch_qreduce_enter(q, "start", err);
    if (status != PCHAN_OK) return status;
    if (q->active) {
        status = pch_fail(err, PCHAN_ERR_STATE, "start: the reduce-scatter is active; wait for it first");
    } else if (!q->limbs && q->n_local) {
        status = pch_fail(err, PCHAN_ERR_STATE, "start: no output; call pchan_qreduce_set_output first");
    }
    if (status != PCHAN_OK) goto done;
    q->active = true;
    q->phase = PCH_ARRIVE;
    q->first_bad = INT64_MAX;
    q->bad_place = -1;
    q->n_restored = 0;
    q->n_cycles++;
    atomic_store_explicit(&q->window->counters[q->node_rank].value, q->n_cycles, memory_order_release);
    list_add(q);
    /* messages may travel while the caller does something else; an error is for wait to report */
    pchan_error failure = {0};
    if (begin_exchange(q, &failure) != PCHAN_OK) q->failure = failure;
done:
    pch_qreduce_leave(q);
    return status;
}

static pchan_status fail_range(const pchan_qreduce *q, int64_t element, pchan_error *err)
{
    const pch_layout *l = q->layout;
    int64_t row = element / l->n, col = element % l->n;
    int owner = pch_layout_owner(l, row, col);
    pch_tell(err, PCHAN_ERR_RANGE, "wait: element (%lld, %lld), owned by rank %d, does not satisfy |x| < 2^%d",
             (long long)row, (long long)col, owner, q->basis->bits);
    if (err) err->rank = owner;
    if (err) err->index = pch_layout_position(l, row, col);
    return PCHAN_ERR_RANGE;
}

static pchan_status finish(pchan_qreduce *q, pchan_error *err)
{
    list_remove(q);
    q->active = false;
    q->n_finished++;
    q->last = q->stats;
    q->stats = (pchan_qreduce_stats){.bytes_held = q->last.bytes_held, .n_local = q->n_local};
    int64_t element = q->agreement.value;
    return element == INT64_MAX ? PCHAN_OK : fail_range(q, element, err);
}

static pchan_status break_down(pchan_qreduce *q, pchan_status status)
{
    list_remove(q);
    q->broken = true;
    return status;
}

/* Progress until the cycle is over or budget_ns (< 0: no limit) has passed. */
static pchan_status advance(pchan_qreduce *q, int64_t budget_ns, pchan_error *err)
{
    pch_backoff backoff;
    pch_backoff_init(&backoff, q->entry->spin_ns, budget_ns);
    do {
        if (q->failure.status != PCHAN_OK) {
            if (err) *err = q->failure;
            return q->failure.status;
        }
        pchan_status status = progress(q, err);
        if (status != PCHAN_OK || q->phase == PCH_FINISHED) return status;
        pch_qreduces_move(q);
    } while (budget_ns != 0 && pch_backoff_next(&backoff));
    return PCHAN_OK;
}

static pchan_status run(pchan_qreduce *q, int64_t budget_ns, bool *finished, pchan_error *err)
{
    *finished = false;
    if (!q->active) {
        return pch_fail(err, PCHAN_ERR_STATE, "wait: the reduce-scatter is not active; start it first");
    }
    int64_t begin_ns = pch_now_ns(), computed_ns = q->stats.accumulate_ns + q->stats.restore_ns;
    pchan_status status = advance(q, budget_ns, err);
    computed_ns = q->stats.accumulate_ns + q->stats.restore_ns - computed_ns;
    q->stats.exchange_ns += pch_now_ns() - begin_ns - computed_ns;
    if (status != PCHAN_OK) return break_down(q, pch_conclude("wait", status, err));
    *finished = q->phase == PCH_FINISHED;
    return *finished ? finish(q, err) : PCHAN_OK;
}

pchan_status pchan_qreduce_poll(pchan_qreduce *q, int64_t budget_ns, int *out, pchan_error *err)
{
    bool finished = false;
    *out = 0;
    pchan_status status = pch_qreduce_enter(q, "wait", err);
    if (status != PCHAN_OK) return status;
    status = run(q, budget_ns < 0 ? 0 : budget_ns, &finished, err);
    *out = finished;
    pch_qreduce_leave(q);
    return status;
}

pchan_status pchan_qreduce_wait(pchan_qreduce *q, int64_t timeout_ns, pchan_error *err)
{
    static const char *const waits_for[] = {"ranks of this node that have not started", "messages of the exchange",
                                            "other ranks to finish", "nothing"};
    bool finished = false;
    pchan_status status = pch_qreduce_enter(q, "wait", err);
    if (status != PCHAN_OK) return status;
    status = run(q, timeout_ns, &finished, err);
    if (status == PCHAN_OK && !finished) {
        const char *what = waits_for[q->phase]; // NOLINT(clang-analyzer-security.ArrayBound): one for each phase
        status = pch_fail(err, PCHAN_ERR_TIMEOUT, "wait: the reduce-scatter still waits for %s", what);
    }
    pch_qreduce_leave(q);
    return status;
}

/* ---- output ---- */

pchan_status pchan_qreduce_set_output(pchan_qreduce *q, uint64_t *limbs, pchan_error *err)
{
    pchan_status status = pch_qreduce_enter(q, "set_output", err);
    if (status != PCHAN_OK) return status;
    if (q->active) {
        status = pch_fail(err, PCHAN_ERR_STATE, "set_output: the reduce-scatter is active; wait for it first");
    } else {
        q->limbs = limbs;
    }
    pch_qreduce_leave(q);
    return status;
}

int pchan_qreduce_active(const pchan_qreduce *q)
{
    return q->active;
}

/* ---- the end ---- */

/* An active one, broken or not, may still have messages on their way from and into its memory: it is
 * kept until MPI_Finalize. */
static void end(pchan_qreduce *q)
{
    if (q->active && !q->finalized && !pch_runtime_is_forked()) {
        q->abandoned = true;
    } else {
        pch_qreduce_dispose(q);
    }
}

pchan_status pchan_qreduce_destroy(pchan_qreduce **place, pchan_error *err)
{
    if (!place || !*place) return PCHAN_OK;
    pchan_qreduce *q = *place;
    if (q->active && !q->broken && !q->finalized && !pch_runtime_is_forked()) {
        return pch_fail(err, PCHAN_ERR_STATE, "free: the reduce-scatter is active; wait for it first");
    }
    int inside; /* in a forked child for ever, so there nobody is waited for */
    if (pch_runtime_is_forked() ? !pch_busy_take(&q->busy, PCH_CALLER, &inside) : !pch_busy_enter(&q->busy)) {
        return pch_fail(err, PCHAN_ERR_STATE, "free: another thread is using this reduce-scatter");
    }
    end(q);
    *place = NULL;
    return PCHAN_OK;
}

void pchan_qreduce_abandon(pchan_qreduce **place)
{
    if (!place || !*place) return;
    list_remove(*place);
    end(*place);
    *place = NULL;
}
