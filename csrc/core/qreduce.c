/* SPDX-License-Identifier: MIT
 *
 * QReduceScatter, the table of contents: add packs tiles into the node's window; a cycle waits until
 * the node's ranks have arrived, runs the strategy's exchange (exchange, accumulate, restore), and
 * agrees on the first element out of range, which also tells that every window is zero again.
 *
 *     idle --add*--> idle --start--> ARRIVE --> EXCHANGE --> AGREE --> FINISHED = idle
 *
 * Nothing here waits: progress() goes as far as it can, and the waits call it until it is through.
 */
#include "pch_qreduce.h"

#include <pthread.h>
#include <sched.h>
#include <string.h>

/* ---- who may call ---- */

static pchan_status enter(pchan_qreduce *q, const char *what, pchan_error *err)
{
    if (!q) return pch_fail(err, PCHAN_ERR_ARG, "%s: no reduce-scatter", what);
    pchan_status status = pch_runtime_check(what, err);
    if (status != PCHAN_OK) return status;
    int inside = PCH_FREE;
    while (!atomic_compare_exchange_weak_explicit(&q->busy, &inside, PCH_CALLER, memory_order_acquire,
                                                  memory_order_relaxed)) {
        if (inside == PCH_CALLER) {
            return pch_fail(err, PCHAN_ERR_STATE, "%s: another thread is using this reduce-scatter", what);
        }
        if (inside == PCH_HELPER) sched_yield();
        inside = PCH_FREE;
    }
    if (!q->broken) return PCHAN_OK;
    atomic_store(&q->busy, PCH_FREE);
    return pch_fail(err, PCHAN_ERR_STATE, "%s: the reduce-scatter is broken by an earlier error", what);
}

static void leave(pchan_qreduce *q)
{
    atomic_store_explicit(&q->busy, PCH_FREE, memory_order_release);
}

/* ---- add ---- */

static pchan_status check_tile(const pchan_qreduce *q, int64_t i0, int64_t j0, const pchan_array *tile,
                               pchan_error *err)
{
    int64_t rows = (int64_t)tile->shape[1], cols = (int64_t)tile->shape[2], n = q->layout->n;
    if (tile->shape[0] != (size_t)q->basis->n_primes) {
        return pch_fail(err, PCHAN_ERR_ARG, "add: the tile has %zu residues per element, but the basis %d primes",
                        tile->shape[0], q->basis->n_primes);
    }
    if (i0 < 0 || j0 < 0 || rows > n || cols > n || i0 > n - rows || j0 > n - cols) {
        return pch_fail(err, PCHAN_ERR_ARG, "add: a tile of %lld x %lld at (%lld, %lld) does not fit n = %lld",
                        (long long)rows, (long long)cols, (long long)i0, (long long)j0, (long long)n);
    }
    return PCHAN_OK;
}

/* First column of the tile's row r that lies in the upper triangle. */
static int64_t first_upper(int64_t i0, int64_t j0, int64_t r, int64_t cols)
{
    int64_t c = i0 + r - j0;
    return c < 0 ? 0 : c < cols ? c : cols;
}

static pchan_status check_values(int64_t i0, int64_t j0, const pchan_array *tile, pchan_error *err)
{
    int64_t rows = (int64_t)tile->shape[1], cols = (int64_t)tile->shape[2];
    for (int64_t r = 0; r < rows; r++) {
        int64_t c = first_upper(i0, j0, r, cols);
        size_t bad;
        if (pch_pack_check(tile, (size_t)r, (size_t)c, (size_t)(cols - c), &bad) == PCHAN_OK) continue;
        return pch_fail(err, PCHAN_ERR_ARG,
                        "add: a residue of element (%lld, %lld) is not an integer of at most 2^53 in size",
                        (long long)(i0 + r), (long long)(j0 + (int64_t)bad));
    }
    return PCHAN_OK;
}

static void add_stretch(pchan_qreduce *q, int64_t i, int64_t j, int64_t n)
{
    int n_words = q->basis->n_words;
    pch_window_lock(q->window, (size_t)i);
    for (int64_t k = 0; k < n; k++) {
        uint64_t *sum = pch_words_at(q, pch_layout_position(q->layout, i, j + k));
        pch_add_words(q->basis, sum, q->stretch + k * n_words);
    }
    pch_window_unlock(q->window, (size_t)i);
}

static void add_row(pchan_qreduce *q, int64_t i0, int64_t j0, const pchan_array *tile, int64_t r)
{
    int64_t cols = (int64_t)tile->shape[2];
    for (int64_t c = first_upper(i0, j0, r, cols); c < cols; c += PCH_STRETCH) {
        int64_t n = cols - c < PCH_STRETCH ? cols - c : PCH_STRETCH;
        int64_t begin_ns = pch_now_ns();
        pch_pack_row_unchecked(q->basis, tile, (size_t)r, (size_t)c, (size_t)n, q->stretch);
        q->stats.pack_ns += pch_now_ns() - begin_ns;
        add_stretch(q, i0 + r, j0 + c, n);
    }
}

pchan_status pchan_qreduce_add(pchan_qreduce *q, int64_t i0, int64_t j0, const pchan_array *tile, pchan_error *err)
{
    pchan_status status = enter(q, "add", err);
    if (status != PCHAN_OK) return status;
    int64_t begin_ns = pch_now_ns(), packed_ns = q->stats.pack_ns;
    if (q->active) {
        status = pch_fail(err, PCHAN_ERR_STATE, "add: the reduce-scatter is active; wait for it first");
        goto done;
    }
    PCH_TRY(check_tile(q, i0, j0, tile, err));
    PCH_TRY(check_values(i0, j0, tile, err));
    for (int64_t r = 0; r < (int64_t)tile->shape[1]; r++) add_row(q, i0, j0, tile, r);
    q->stats.add_ns += pch_now_ns() - begin_ns - (q->stats.pack_ns - packed_ns);
done:
    leave(q);
    return status;
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

void pch_qreduce_restore_own(pchan_qreduce *q)
{
    int64_t begin_ns = pch_now_ns();
    size_t bad;
    uint64_t *words = pch_words_at(q, q->first);
    if (pch_restore_unchecked(q->basis, words, (size_t)q->n_local, q->limbs, q->restore_scratch, &bad) !=
        PCHAN_OK) {
        q->first_bad = q->first + (int64_t)bad;
    }
    memset(words, 0, (size_t)pch_words_bytes(q, q->n_local));
    q->stats.restore_ns += pch_now_ns() - begin_ns;
}

static bool node_has_arrived(const pchan_qreduce *q)
{
    for (int r = 0; r < q->node_size; r++) {
        if (atomic_load_explicit(&q->window->counters[r].value, memory_order_acquire) < q->n_cycles) return false;
    }
    return true;
}

/* As far as possible without waiting. */
static pchan_status progress(pchan_qreduce *q, pchan_error *err)
{
    pchan_status status = PCHAN_OK;
    bool done = false;
    if (q->phase == PCH_ARRIVE && node_has_arrived(q)) {
        q->phase = PCH_EXCHANGE;
        PCH_TRY(q->strategy->begin(q, err));
    }
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

static void progress_others(const pchan_qreduce *q)
{
    if (pthread_mutex_trylock(&list_lock) != 0) return;
    for (pchan_qreduce *other = active_list; other; other = other->next_active) {
        if (other == q || other->failure.status != PCHAN_OK) continue;
        int inside = PCH_FREE;
        if (!atomic_compare_exchange_strong(&other->busy, &inside, PCH_HELPER)) continue;
        pchan_error failure = {0};
        if (progress(other, &failure) != PCHAN_OK) other->failure = failure;
        leave(other);
    }
    pthread_mutex_unlock(&list_lock);
}

/* ---- the cycle ---- */

pchan_status pchan_qreduce_start(pchan_qreduce *q, pchan_error *err)
{
    pchan_status status = enter(q, "start", err);
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
    q->started_ns = pch_now_ns();
    q->n_cycles++;
    atomic_store_explicit(&q->window->counters[q->node_rank].value, q->n_cycles, memory_order_release);
    list_add(q);
done:
    leave(q);
    return status;
}

static pchan_status fail_range(const pchan_qreduce *q, int64_t place, pchan_error *err)
{
    const pch_layout *l = q->layout;
    int owner = 0;
    while (l->offset[owner + 1] <= place) owner++;
    int64_t row = 0, col = 0;
    for (int64_t i = 0; i < l->n; i++) {
        for (int64_t j = i; j < l->n; j++) {
            if (pch_layout_position(l, i, j) != place) continue;
            row = i;
            col = j;
            i = l->n;
            break;
        }
    }
    pch_fail(err, PCHAN_ERR_RANGE, "wait: element (%lld, %lld), owned by rank %d, does not satisfy |x| < 2^%d",
             (long long)row, (long long)col, owner, q->basis->bits);
    if (err) err->rank = owner;
    if (err) err->index = place;
    return PCHAN_ERR_RANGE;
}

static pchan_status finish(pchan_qreduce *q, pchan_error *err)
{
    list_remove(q);
    q->active = false;
    q->n_finished++;
    q->stats.exchange_ns = pch_now_ns() - q->started_ns - q->stats.accumulate_ns - q->stats.restore_ns;
    q->last = q->stats;
    q->stats = (pchan_qreduce_stats){.bytes_held = q->last.bytes_held, .n_local = q->n_local};
    int64_t place = q->agreement.value;
    return place == INT64_MAX ? PCHAN_OK : fail_range(q, place, err);
}

static pchan_status break_down(pchan_qreduce *q, pchan_status status)
{
    list_remove(q);
    q->broken = true;
    return status;
}

/* Progress for at most budget_ns (< 0: no limit), then *finished tells. */
static pchan_status run(pchan_qreduce *q, int64_t budget_ns, bool *finished, pchan_error *err)
{
    *finished = false;
    if (!q->active) {
        return pch_fail(err, PCHAN_ERR_STATE, "wait: the reduce-scatter is not active; start it first");
    }
    pch_backoff backoff;
    pch_backoff_init(&backoff, q->entry->spin_ns, budget_ns);
    do {
        if (q->failure.status != PCHAN_OK) {
            if (err) *err = q->failure;
            return break_down(q, q->failure.status);
        }
        pchan_status status = progress(q, err);
        if (status != PCHAN_OK) return break_down(q, status);
        if (q->phase == PCH_FINISHED) {
            *finished = true;
            return finish(q, err);
        }
        progress_others(q);
    } while (budget_ns != 0 && pch_backoff_next(&backoff));
    return PCHAN_OK;
}

pchan_status pchan_qreduce_poll(pchan_qreduce *q, int64_t budget_ns, int *out, pchan_error *err)
{
    bool finished = false;
    *out = 0;
    pchan_status status = enter(q, "wait", err);
    if (status != PCHAN_OK) return status;
    status = run(q, budget_ns < 0 ? 0 : budget_ns, &finished, err);
    *out = finished;
    leave(q);
    return status;
}

pchan_status pchan_qreduce_wait(pchan_qreduce *q, int64_t timeout_ns, pchan_error *err)
{
    static const char *const waits_for[] = {"ranks of this node that have not started", "messages of the exchange",
                                            "other ranks to finish", "nothing"};
    bool finished = false;
    pchan_status status = enter(q, "wait", err);
    if (status != PCHAN_OK) return status;
    status = run(q, timeout_ns, &finished, err);
    if (status == PCHAN_OK && !finished) {
        status =
            pch_fail(err, PCHAN_ERR_TIMEOUT, "wait: the reduce-scatter still waits for %s", waits_for[q->phase]);
    }
    leave(q);
    return status;
}

/* ---- results ---- */

static pchan_status move_limbs(pchan_qreduce *q, uint64_t *limbs, int64_t n, int peer, bool send, pchan_error *err)
{
    enum { PIECE = 1 << 24 };
    pchan_status status = PCHAN_OK;
    for (int64_t k = 0; k < n && status == PCHAN_OK; k += PIECE) {
        int count = (int)(n - k < PIECE ? n - k : PIECE);
        int code = send ? MPI_Send(limbs + k, count, MPI_UINT64_T, peer, q->tag + 2, q->comm)
                        : MPI_Recv(limbs + k, count, MPI_UINT64_T, peer, q->tag + 2, q->comm, MPI_STATUS_IGNORE);
        status = PCH_MPI(code, "gather", err);
    }
    return status;
}

pchan_status pchan_qreduce_gather(pchan_qreduce *q, int root, uint64_t *limbs, pchan_error *err)
{
    pchan_status status = enter(q, "gather", err);
    if (status != PCHAN_OK) return status;
    int64_t n_limbs = q->basis->n_limbs;
    if (q->active || q->n_finished == 0) {
        status = pch_fail(err, PCHAN_ERR_STATE,
                          q->active ? "gather: the reduce-scatter is active; wait for it first"
                                    : "gather: no cycle has been finished");
    } else if (root < 0 || root >= q->size) {
        status =
            pch_fail(err, PCHAN_ERR_ARG, "gather: root %d is not a rank of a communicator of %d", root, q->size);
    } else if (q->rank != root) {
        status = move_limbs(q, q->limbs, q->n_local * n_limbs, root, true, err);
    } else {
        for (int r = 0; r < q->size && status == PCHAN_OK; r++) {
            uint64_t *place = limbs + pch_layout_offset(q->layout, r) * n_limbs;
            int64_t n = pch_layout_n_owned(q->layout, r) * n_limbs;
            if (r != root) status = move_limbs(q, place, n, r, false, err);
            if (r == root && n) memcpy(place, q->limbs, (size_t)n * sizeof *place);
        }
    }
    leave(q);
    return status;
}

pchan_status pchan_qreduce_set_output(pchan_qreduce *q, uint64_t *limbs, pchan_error *err)
{
    pchan_status status = enter(q, "set_output", err);
    if (status != PCHAN_OK) return status;
    if (q->active) {
        status = pch_fail(err, PCHAN_ERR_STATE, "set_output: the reduce-scatter is active; wait for it first");
    } else {
        q->limbs = limbs;
    }
    leave(q);
    return status;
}

int64_t pchan_qreduce_n_owned(const pchan_qreduce *q, int rank)
{
    return pch_layout_n_owned(q->layout, rank);
}

void pchan_qreduce_owned(const pchan_qreduce *q, int rank, int64_t *rows, int64_t *cols)
{
    pch_layout_owned(q->layout, rank, rows, cols);
}

int pchan_qreduce_active(const pchan_qreduce *q)
{
    return q->active;
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

/* ---- the end ---- */

pchan_status pchan_qreduce_destroy(pchan_qreduce **place, pchan_error *err)
{
    if (!place || !*place) return PCHAN_OK;
    pchan_qreduce *q = *place;
    if (q->active && !q->broken && !q->finalized && !pch_runtime_is_forked()) {
        return pch_fail(err, PCHAN_ERR_STATE, "free: the reduce-scatter is active; wait for it first");
    }
    int inside = PCH_FREE;
    if (!atomic_compare_exchange_strong(&q->busy, &inside, PCH_CALLER)) {
        return pch_fail(err, PCHAN_ERR_STATE, "free: another thread is using this reduce-scatter");
    }
    pch_qreduce_dispose(q);
    *place = NULL;
    return PCHAN_OK;
}

void pchan_qreduce_abandon(pchan_qreduce **place)
{
    if (!place || !*place) return;
    pchan_qreduce *q = *place;
    list_remove(q);
    if (q->active && !q->broken && !q->finalized && !pch_runtime_is_forked()) {
        q->abandoned = true;
    } else {
        pch_qreduce_dispose(q);
    }
    *place = NULL;
}
