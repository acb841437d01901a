/* SPDX-License-Identifier: MIT
 *
 * Making and freeing a reduce-scatter's plan. All checks that can differ between ranks are local,
 * and followed by an agreement, so that creation fails on all ranks or on none.
 */
#include "pch_qreduce.h"

#include <stdio.h>
#include <string.h>

const pch_strategy *const pch_strategies[] = {&pch_strategy_residues, &pch_strategy_restored,
                                              &pch_strategy_ring,     &pch_strategy_ring_scan,
                                              &pch_strategy_mpi,      &pch_strategy_gather};
enum { N_STRATEGIES = sizeof pch_strategies / sizeof *pch_strategies };

int pch_strategy_number(const char *name)
{
    if (!name) return 0;
    for (int k = 0; k < N_STRATEGIES; k++) {
        if (!strcmp(name, pch_strategies[k]->name)) return k;
    }
    return -1;
}

/* ---- arguments ---- */

enum { LAYOUT = 3, STRATEGY = 7, N_PARAMETERS = 10 };
static const char *const parameter_names[N_PARAMETERS] = {"n",
                                                          "bits of the basis",
                                                          "check_bits of the basis",
                                                          "layout",
                                                          "rows of the grid",
                                                          "columns of the grid",
                                                          "block of the layout",
                                                          "strategy",
                                                          "buffer_bytes",
                                                          "owners of the layout (a checksum)"};

/* Before tables are made that would themselves not fit. In float64: the bytes may exceed 2^63. */
static pchan_status check_memory(const pchan_basis *basis, int64_t n, pchan_error *err)
{
    double bytes = 0.5 * (double)n * (double)(n + 1) * (double)basis->n_words * sizeof(uint64_t);
    int64_t available = pch_available_bytes();
    if (bytes < (double)available) return PCHAN_OK;
    return pch_fail(err, PCHAN_ERR_NOMEM,
                    "window: n = %lld takes %.4g bytes of node-shared memory, but only %.4g are available",
                    (long long)n, bytes, (double)available);
}

static pchan_status fail_strategy(const char *name, pchan_error *err)
{
    char names[160] = "";
    size_t used = 0;
    for (int k = 0; k < N_STRATEGIES && used < sizeof names; k++) {
        used += (size_t)snprintf(names + used, sizeof names - used, k ? ", %s" : "%s", pch_strategies[k]->name);
    }
    return pch_fail(err, PCHAN_ERR_ARG, "qreduce: unknown strategy '%.40s'; there are %s", name, names);
}

pchan_status pch_check_options(int64_t n, const pchan_basis *basis, const pchan_qreduce_options *o,
                               pchan_error *err)
{
    if (n < 1 || n > 1000000000)
        return pch_fail(err, PCHAN_ERR_ARG, "qreduce: n = %lld is not in 1..10^9", (long long)n);
    if (!basis) return pch_fail(err, PCHAN_ERR_ARG, "qreduce: no basis");
    if (pch_strategy_number(o->strategy) < 0) return fail_strategy(o->strategy, err);
    if (o->buffer_bytes < 0) {
        return pch_fail(err, PCHAN_ERR_ARG, "qreduce: buffer_bytes = %lld is negative",
                        (long long)o->buffer_bytes);
    }
    if (o->layout.kind == PCHAN_CUSTOM && !o->layout.owners)
        return pch_fail(err, PCHAN_ERR_ARG, "qreduce: a custom layout needs owners");
    return PCHAN_OK;
}

static pchan_status check_arguments(const pchan_qreduce *q, int64_t n, const pchan_qreduce_options *o,
                                    pchan_error *err)
{
    pchan_status status = pch_check_options(n, q->basis, o, err);
    if (status != PCHAN_OK) return status;
    if (o->node_comm && *o->node_comm == MPI_COMM_NULL) {
        return pch_fail(err, PCHAN_ERR_ARG, "qreduce: node_comm is MPI_COMM_NULL");
    }
    return check_memory(q->basis, n, err);
}

static const char *value_text(int parameter, int64_t value, char *text, size_t size)
{
    static const char *const layouts[] = {"element-cyclic", "block-cyclic", "packed rows", "custom"};
    if (parameter == STRATEGY) return pch_strategies[value]->name;
    if (parameter == LAYOUT && value >= 0 && value <= PCHAN_CUSTOM) return layouts[value];
    snprintf(text, size, "%lld", (long long)value);
    return text;
}

/* All ranks must have passed the same. Collective. */
static pchan_status compare_arguments(const pchan_qreduce *q, int64_t n, const pchan_qreduce_options *o,
                                      pchan_error *err)
{
    int64_t both[2 * N_PARAMETERS] = {n,
                                      pchan_basis_bits(q->basis),
                                      pchan_basis_check_bits(q->basis),
                                      o->layout.kind,
                                      o->layout.grid_rows,
                                      o->layout.grid_cols,
                                      o->layout.block,
                                      pch_strategy_number(o->strategy),
                                      o->buffer_bytes,
                                      pch_layout_checksum(&o->layout, n)};
    for (int k = 0; k < N_PARAMETERS; k++) both[N_PARAMETERS + k] = -both[k];
    pchan_status status =
        PCH_MPI(MPI_Allreduce(MPI_IN_PLACE, both, 2 * N_PARAMETERS, MPI_INT64_T, MPI_MIN, q->comm),
                "qreduce: MPI_Allreduce", err);
    for (int k = 0; k < N_PARAMETERS && status == PCHAN_OK; k++) {
        int64_t least = both[k], most = -both[N_PARAMETERS + k];
        char texts[2][24];
        if (least == most) continue;
        status =
            pch_fail(err, PCHAN_ERR_ARG, "qreduce: the ranks differ in %s: %s and %s", parameter_names[k],
                     value_text(k, least, texts[0], sizeof *texts), value_text(k, most, texts[1], sizeof *texts));
    }
    return status;
}

/* ---- the plan ---- */

static pchan_status reserve(pchan_qreduce *q, const pchan_qreduce_options *options, int64_t n, pchan_error *err)
{
    pchan_status status;
    PCH_TRY(pch_layout_create(&options->layout, n, q->size, &q->layout, err));
    q->first = pch_layout_offset(q->layout, q->rank);
    q->n_local = pch_layout_n_owned(q->layout, q->rank);
    PCH_TRY(pch_deal_senders(q, err));
    PCH_TRY(PCH_ALLOC(q->stretch, (size_t)PCH_STRETCH * (size_t)q->basis->n_words, err));
    size_t scratch_bytes = pch_restore_scratch_bytes(q->basis);
    q->restore_scratch = pch_alloc(1, scratch_bytes);
    if (!q->restore_scratch) status = pch_fail_nomem(err, "restore", scratch_bytes);
done:
    return status;
}

/* Can the node hold the window, and the buffers and results of all its ranks? Collective over q->node. */
static pchan_status check_node_memory(const pchan_qreduce *q, pchan_error *err)
{
    pchan_qreduce_figures figures = {0};
    pchan_error own = {0};
    pchan_status status;
    PCH_TRY(pch_agree(q->comm, pch_measure(q, &figures, &own), &own, err));
    int64_t element = (q->basis->n_limbs + 2) * (int64_t)sizeof(uint64_t); /* limbs, row and column */
    int64_t all = figures.bytes_held + q->n_local * element, available = pch_available_bytes();
    status = PCH_MPI(MPI_Allreduce(MPI_IN_PLACE, &all, 1, MPI_INT64_T, MPI_SUM, q->node), "MPI_Allreduce", &own);
    if (status == PCHAN_OK && all > available) {
        status =
            pch_fail(&own, PCHAN_ERR_NOMEM,
                     "window, buffers and results: %lld bytes on this node (%lld of them the window), but only "
                     "%lld are available",
                     (long long)all, (long long)figures.node_bytes, (long long)available);
    }
    status = pch_agree(q->comm, status, &own, err);
done:
    return status;
}

static void touch(const pchan_qreduce *q, int64_t first, int64_t n)
{
    enum { PAGE_WORDS = 512 };
    volatile uint64_t *words = pch_words_at(q, first);
    for (int64_t k = 0; k < n * q->basis->n_words; k += PAGE_WORDS) words[k] = 0;
    if (n) words[n * q->basis->n_words - 1] = 0;
}

/* Pages lie near the rank that touches them first: here the one that will restore or send them. */
static void touch_own_pages(const pchan_qreduce *q)
{
    for (int o = 0; o < q->size; o++) {
        if (pch_contributes(q, o)) touch(q, pch_layout_offset(q->layout, o), pch_layout_n_owned(q->layout, o));
    }
}

/* The table of a custom layout lies behind the words. Filled by the node's first rank. */
static pchan_status make_window(pchan_qreduce *q, const pchan_qreduce_options *options, pchan_error *err)
{
    pchan_error own = {0};
    pchan_status status;
    PCH_TRY(
        pch_agree(q->comm, pch_window_create(q->node, pch_window_bytes(q), false, &q->window, &own), &own, err));
    if (pch_layout_places_bytes(q->layout)) {
        int64_t *places = (int64_t *)pch_words_at(q, pch_layout_offset(q->layout, q->size));
        status = pch_layout_set_places(q->layout, places, q->node_rank == 0 ? options->layout.owners : NULL, &own);
    }
    touch_own_pages(q);
    status = pch_agree(q->comm, status, &own, err);
done:
    return status;
}

static pchan_status make_exchange(pchan_qreduce *q, pchan_error *err)
{
    pchan_status status = q->strategy->create(q, err);
    if (status == PCHAN_OK) status = pch_agreement_create(q, err);
    return status;
}

static pchan_qreduce *kept; /* abandoned ones, so that their memory is still known to somebody */

/* The channels are in the list of living objects too and see to their own requests. Memory stays: MPI
 * may still send from it. */
static void finalize_qreduce(pch_live *live)
{
    pchan_qreduce *q = (pchan_qreduce *)((char *)live - offsetof(pchan_qreduce, live));
    q->finalized = true;
    if (q->plan && q->strategy->finalize) q->strategy->finalize(q);
    pch_comm_release(&q->node_entry);
    pch_comm_release(&q->entry);
    if (!q->abandoned) return;
    q->next_active = kept;
    kept = q;
}

static pchan_status fill_plan(pchan_qreduce *q, int64_t n, const pchan_qreduce_options *options, pchan_error *err)
{
    pchan_error own = {0};
    pchan_status status;
    PCH_TRY(pch_agree(q->comm, check_arguments(q, n, options, &own), &own, err));
    PCH_TRY(pch_agree(q->comm, compare_arguments(q, n, options, &own), &own, err));
    q->strategy = pch_strategies[pch_strategy_number(options->strategy)];
    q->buffer_bytes = options->buffer_bytes ? options->buffer_bytes : PCH_BUFFER_BYTES;
    q->tag = pch_comm_take_tags(q->entry, 3);
    PCH_TRY(pch_find_nodes(q, options->node_comm, err));
    PCH_TRY(pch_agree(q->comm, reserve(q, options, n, &own), &own, err));
    PCH_TRY(check_node_memory(q, err));
    PCH_TRY(make_window(q, options, err));
    q->stats.bytes_held = pch_window_bytes(q) / q->node_size + pch_layout_bytes(q->layout);
    PCH_TRY(pch_agree(q->comm, make_exchange(q, &own), &own, err));
    q->stats.n_local = q->n_local;
    q->last = q->stats;
done:
    return status;
}

pchan_status pchan_qreduce_create(MPI_Comm comm, int64_t n, const pchan_basis *basis,
                                  const pchan_qreduce_options *options, pchan_qreduce **out, pchan_error *err)
{
    const pchan_qreduce_options defaults = {0};
    pchan_qreduce *q = NULL;
    pch_comm *entry = NULL;
    pchan_error own = {0};
    *out = NULL;
    pchan_status status;
    PCH_TRY(pch_comm_acquire(comm, PCH_QREDUCES, &entry, err));
    PCH_TRY(pch_agree(entry->dup[PCH_QREDUCES], PCH_ALLOC(q, 1, &own), &own, err));
    q->entry = entry;
    entry = NULL;
    q->comm = q->entry->dup[PCH_QREDUCES];
    q->rank = q->entry->rank;
    q->size = q->entry->size;
    q->basis = basis;
    pch_live_add(&q->live, finalize_qreduce);
    PCH_TRY(fill_plan(q, n, options ? options : &defaults, err));
    PCH_TRY(pch_conclude("qreduce", PCHAN_OK, err));
    *out = q;
    return PCHAN_OK;
done:
    pch_comm_release(&entry);
    if (q && q->entry) {
        pch_qreduce_dispose(q);
    } else {
        pch_free(q);
    }
    return pch_conclude("qreduce", status, err);
}

void pch_qreduce_dispose(pchan_qreduce *q)
{
    pch_live_remove(&q->live);
    if (q->strategy) q->strategy->destroy(q);
    pch_agreement_destroy(&q->agreement);
    pch_window_destroy(&q->window);
    pch_layout_destroy(&q->layout);
    pch_free(q->restore_scratch);
    pch_free(q->stretch);
    pch_free(q->sender);
    pch_free(q->node_first);
    pch_free(q->members);
    pch_free(q->node_of);
    if (!pch_runtime_is_forked()) {
        pch_comm_release(&q->node_entry);
        pch_comm_release(&q->entry);
    }
    pch_free(q);
}
