/* SPDX-License-Identifier: MIT
 *
 * Making and freeing a reduce-scatter's plan. All checks that can differ between ranks are local,
 * and followed by an agreement, so that creation fails on all ranks or on none.
 */
#include "pch_qreduce.h"

#include <stdio.h>
#include <string.h>

static const pch_strategy *const strategies[] = {&pch_strategy_residues, &pch_strategy_gather};
enum { N_STRATEGIES = sizeof strategies / sizeof *strategies };

static int strategy_number(const char *name)
{
    if (!name) return 0;
    for (int k = 0; k < N_STRATEGIES; k++) {
        if (!strcmp(name, strategies[k]->name)) return k;
    }
    return -1;
}

/* ---- arguments ---- */

enum { LAYOUT = 3, STRATEGY = 7, N_PARAMETERS = 9 };
static const char *const parameter_names[N_PARAMETERS] = {"n",
                                                          "bits of the basis",
                                                          "check_bits of the basis",
                                                          "layout",
                                                          "rows of the grid",
                                                          "columns of the grid",
                                                          "block of the layout",
                                                          "strategy",
                                                          "buffer_bytes"};

/* Before tables are made that would themselves not fit. In float64: the bytes may exceed 2^63. */
static pchan_status check_memory(const pchan_qreduce *q, int64_t n, pchan_error *err)
{
    double bytes = 0.5 * (double)n * (double)(n + 1) * (double)pch_words_bytes(q, 1);
    int64_t available = pch_available_bytes();
    if (bytes < (double)available) return PCHAN_OK;
    return pch_fail(err, PCHAN_ERR_NOMEM,
                    "window: n = %lld takes %.4g bytes of node-shared memory, but only %.4g are available",
                    (long long)n, bytes, (double)available);
}

static pchan_status check_arguments(const pchan_qreduce *q, int64_t n, const pchan_qreduce_options *o,
                                    pchan_error *err)
{
    if (n < 1) return pch_fail(err, PCHAN_ERR_ARG, "qreduce: n = %lld is not positive", (long long)n);
    if (!q->basis) return pch_fail(err, PCHAN_ERR_ARG, "qreduce: no basis");
    if (strategy_number(o->strategy) < 0) {
        return pch_fail(err, PCHAN_ERR_ARG, "qreduce: unknown strategy '%.40s'; there are residues and gather",
                        o->strategy);
    }
    if (o->buffer_bytes < 0) {
        return pch_fail(err, PCHAN_ERR_ARG, "qreduce: buffer_bytes = %lld is negative",
                        (long long)o->buffer_bytes);
    }
    if (o->node_comm && *o->node_comm == MPI_COMM_NULL) {
        return pch_fail(err, PCHAN_ERR_ARG, "qreduce: node_comm is MPI_COMM_NULL");
    }
    return check_memory(q, n, err);
}

static const char *value_text(int parameter, int64_t value, char *text, size_t size)
{
    static const char *const layouts[] = {"element-cyclic", "block-cyclic", "packed rows"};
    if (parameter == STRATEGY) return strategies[value]->name;
    if (parameter == LAYOUT && value >= 0 && value <= PCHAN_PACKED_ROWS) return layouts[value];
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
                                      strategy_number(o->strategy),
                                      o->buffer_bytes};
    for (int k = 0; k < N_PARAMETERS; k++) both[N_PARAMETERS + k] = -both[k];
    pchan_status status = PCH_MPI(
        MPI_Allreduce(MPI_IN_PLACE, both, 2 * N_PARAMETERS, MPI_INT64_T, MPI_MIN, q->comm), "MPI_Allreduce", err);
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

/* ---- nodes ---- */

/* What a rank says about its node_comm. All members of a node must say the same, and so must all ranks
 * about whether there is one: otherwise the next collective call on it would wait for ever. */
typedef struct node_facts {
    int64_t given, n_members, leader;
    uint64_t hash; /* of the members, in order */
} node_facts;
enum { N_FACTS = sizeof(node_facts) / sizeof(int64_t) };

/* members [size of comm]: ranks in comm of the n ranks of node_comm. Local. */
static pchan_status find_members(const pchan_qreduce *q, MPI_Comm node_comm, int *members, int *n,
                                 pchan_error *err)
{
    MPI_Group whole, part;
    int inter = 0, *places = NULL;
    if (MPI_Comm_test_inter(node_comm, &inter) != MPI_SUCCESS || inter) {
        return pch_fail(err, PCHAN_ERR_ARG, "qreduce: node_comm is not an intracommunicator");
    }
    MPI_Comm_group(q->comm, &whole);
    MPI_Comm_group(node_comm, &part);
    MPI_Group_size(part, n);
    pchan_status status = PCHAN_OK;
    bool subset = *n <= q->size;
    if (subset) PCH_TRY(PCH_ALLOC(places, (size_t)*n, err));
    for (int k = 0; k < *n && subset; k++) places[k] = k;
    if (subset) MPI_Group_translate_ranks(part, *n, places, whole, members);
    for (int k = 0; k < *n && subset; k++) subset = members[k] != MPI_UNDEFINED;
    if (!subset) status = pch_fail(err, PCHAN_ERR_ARG, "qreduce: node_comm has ranks outside comm");
done:
    pch_free(places);
    MPI_Group_free(&part);
    MPI_Group_free(&whole);
    return status;
}

static node_facts describe_node(const int *members, int n)
{
    node_facts facts = {1, n, members[0], 14695981039346656037u}; /* FNV-1a */
    for (int k = 0; k < n; k++) {
        facts.hash = (facts.hash ^ (uint64_t)members[k]) * 1099511628211u;
        if (members[k] < facts.leader) facts.leader = members[k];
    }
    return facts;
}

static pchan_status compare_facts(const node_facts *facts, int rank, int size, const int *members,
                                  pchan_error *err)
{
    const node_facts *mine = &facts[rank];
    for (int r = 0; r < size; r++) {
        if (facts[r].given == mine->given) continue;
        return pch_fail(err, PCHAN_ERR_ARG, "qreduce: a node_comm is given on some ranks only (not on rank %d)",
                        mine->given ? r : rank);
    }
    for (int k = 0; k < mine->n_members; k++) {
        if (!memcmp(&facts[members[k]], mine, sizeof *mine)) continue;
        return pch_fail(err, PCHAN_ERR_ARG,
                        "qreduce: node_comm does not divide comm: rank %d has rank %d in it, but the "
                        "node_comm there has other ranks",
                        rank, members[k]);
    }
    return PCHAN_OK;
}

/* Do all ranks' node_comms (NULL: none) divide comm? Collective. */
static pchan_status check_node_comm(const pchan_qreduce *q, const MPI_Comm *node_comm, pchan_error *err)
{
    pchan_error own = {0};
    node_facts mine = {0}, *facts = NULL;
    int *members = NULL, n = 0;
    pchan_status status = PCH_ALLOC(facts, (size_t)q->size, &own);
    if (status == PCHAN_OK) status = PCH_ALLOC(members, (size_t)q->size, &own);
    if (status == PCHAN_OK && node_comm) status = find_members(q, *node_comm, members, &n, &own);
    PCH_TRY(pch_agree(q->comm, status, &own, err));
    if (node_comm) mine = describe_node(members, n);
    PCH_TRY(PCH_MPI(MPI_Allgather(&mine, N_FACTS, MPI_INT64_T, facts, N_FACTS, MPI_INT64_T, q->comm),
                    "MPI_Allgather", err));
    status = pch_agree(q->comm, compare_facts(facts, q->rank, q->size, members, &own), &own, err);
done:
    pch_free(facts);
    pch_free(members);
    return status;
}

static pchan_status find_node_comm(pchan_qreduce *q, const MPI_Comm *node_comm, pchan_error *err)
{
    pchan_error own = {0};
    pchan_status status;
    PCH_TRY(check_node_comm(q, node_comm, err));
    status = node_comm ? pch_comm_acquire(*node_comm, PCH_QREDUCES, &q->node_entry, &own)
                       : pch_comm_node(q->entry, &own);
    PCH_TRY(pch_agree(q->comm, status, &own, err));
    q->node = node_comm ? q->node_entry->dup[PCH_QREDUCES] : q->entry->node;
done:
    return status;
}

/* leaders [size]: each rank's node by its lowest rank; nodes are numbered in that order. */
static pchan_status number_nodes(pchan_qreduce *q, const int *leaders, pchan_error *err)
{
    pchan_status status;
    PCH_TRY(PCH_ALLOC(q->node_of, (size_t)q->size, err));
    PCH_TRY(PCH_ALLOC(q->members, (size_t)q->size, err));
    PCH_TRY(PCH_ALLOC(q->node_first, (size_t)q->size + 1, err));
    for (int r = 0; r < q->size; r++) {
        q->node_of[r] = leaders[r] == r ? q->n_nodes++ : q->node_of[leaders[r]];
        q->node_first[q->node_of[r] + 1]++;
    }
    for (int m = 0; m < q->n_nodes; m++) q->node_first[m + 1] += q->node_first[m];
    for (int m = 0; m < q->n_nodes; m++) {
        int place = q->node_first[m];
        for (int r = 0; r < q->size; r++) {
            if (q->node_of[r] != m) continue;
            if (r == q->rank) q->node_rank = place - q->node_first[m];
            q->members[place++] = r;
        }
    }
done:
    return status;
}

static pchan_status find_nodes(pchan_qreduce *q, const MPI_Comm *node_comm, pchan_error *err)
{
    pchan_error own = {0};
    int *leaders = NULL, leader = q->rank;
    pchan_status status;
    PCH_TRY(find_node_comm(q, node_comm, err));
    MPI_Comm_size(q->node, &q->node_size);
    PCH_TRY(pch_agree(q->comm, PCH_ALLOC(leaders, (size_t)q->size, &own), &own, err));
    PCH_TRY(PCH_MPI(MPI_Allreduce(MPI_IN_PLACE, &leader, 1, MPI_INT, MPI_MIN, q->node), "MPI_Allreduce", err));
    PCH_TRY(PCH_MPI(MPI_Allgather(&leader, 1, MPI_INT, leaders, 1, MPI_INT, q->comm), "MPI_Allgather", err));
    status = pch_agree(q->comm, number_nodes(q, leaders, &own), &own, err);
done:
    pch_free(leaders);
    return status;
}

/* ---- the plan ---- */

static pchan_status reserve(pchan_qreduce *q, const pchan_qreduce_options *options, int64_t n, pchan_error *err)
{
    pchan_status status;
    PCH_TRY(pch_layout_create(&options->layout, n, q->size, &q->layout, err));
    q->first = pch_layout_offset(q->layout, q->rank);
    q->n_local = pch_layout_n_owned(q->layout, q->rank);
    PCH_TRY(PCH_ALLOC(q->stretch, (size_t)PCH_STRETCH * (size_t)q->basis->n_words, err));
    size_t scratch_bytes = pch_restore_scratch_bytes(q->basis);
    q->restore_scratch = pch_alloc(1, scratch_bytes);
    if (!q->restore_scratch) status = pch_fail_nomem(err, "restore", scratch_bytes);
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
    PCH_TRY(compare_arguments(q, n, options, err));
    q->strategy = strategies[strategy_number(options->strategy)];
    q->buffer_bytes = options->buffer_bytes ? options->buffer_bytes : 64 << 20;
    q->tag = pch_comm_take_tags(q->entry, 3);
    PCH_TRY(find_nodes(q, options->node_comm, err));
    PCH_TRY(pch_agree(q->comm, reserve(q, options, n, &own), &own, err));
    int64_t window_bytes = pch_words_bytes(q, pch_layout_offset(q->layout, q->size));
    PCH_TRY(pch_agree(q->comm, pch_window_create(q->node, window_bytes, false, &q->window, &own), &own, err));
    q->stats.bytes_held = window_bytes / q->node_size + pch_layout_bytes(q->layout);
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
    q->first_bad = INT64_MAX;
    pch_live_add(&q->live, finalize_qreduce);
    PCH_TRY(fill_plan(q, n, options ? options : &defaults, err));
    *out = q;
    return PCHAN_OK;
done:
    pch_comm_release(&entry);
    if (q && q->entry) {
        pch_qreduce_dispose(q);
    } else {
        pch_free(q);
    }
    return status;
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
    pch_free(q->node_first);
    pch_free(q->members);
    pch_free(q->node_of);
    if (!pch_runtime_is_forked()) {
        pch_comm_release(&q->node_entry);
        pch_comm_release(&q->entry);
    }
    pch_free(q);
}
