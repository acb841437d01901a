/* SPDX-License-Identifier: MIT
 *
 * Nodes: which ranks share memory, and which of them sends what to the owners on other nodes.
 */
#include "pch_qreduce.h"

#include <string.h>

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
    MPI_Group whole = MPI_GROUP_NULL, part = MPI_GROUP_NULL;
    int inter = 0, *places = NULL;
    if (MPI_Comm_test_inter(node_comm, &inter) != MPI_SUCCESS || inter) {
        return pch_fail(err, PCHAN_ERR_ARG, "qreduce: node_comm is not an intracommunicator");
    }
    pchan_status status;
    PCH_TRY(PCH_MPI(MPI_Comm_group(q->comm, &whole), "MPI_Comm_group", err));
    PCH_TRY(PCH_MPI(MPI_Comm_group(node_comm, &part), "MPI_Comm_group", err));
    PCH_TRY(PCH_MPI(MPI_Group_size(part, n), "MPI_Group_size", err));
    bool subset = *n <= q->size;
    if (subset) PCH_TRY(PCH_ALLOC(places, (size_t)*n, err));
    for (int k = 0; k < *n && subset; k++) places[k] = k;
    if (subset)
        PCH_TRY(PCH_MPI(MPI_Group_translate_ranks(part, *n, places, whole, members), "MPI_Group_translate_ranks",
                        err));
    for (int k = 0; k < *n && subset; k++) subset = members[k] != MPI_UNDEFINED;
    if (!subset) status = pch_fail(err, PCHAN_ERR_ARG, "qreduce: node_comm has ranks outside comm");
done:
    pch_free(places);
    if (part != MPI_GROUP_NULL) MPI_Group_free(&part);
    if (whole != MPI_GROUP_NULL) MPI_Group_free(&whole);
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
    status = PCH_MPI(MPI_Allgather(&mine, N_FACTS, MPI_INT64_T, facts, N_FACTS, MPI_INT64_T, q->comm),
                     "MPI_Allgather", &own);
    if (status == PCHAN_OK) status = compare_facts(facts, q->rank, q->size, members, &own);
    status = pch_agree(q->comm, status, &own, err);
done:
    pch_free(facts);
    pch_free(members);
    return status;
}

/* leaders [size]: each rank's node by its lowest rank; nodes are numbered in that order. */
pchan_status pch_number_nodes(pchan_qreduce *q, const int *leaders, pchan_error *err)
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

pchan_status pch_find_nodes(pchan_qreduce *q, const MPI_Comm *node_comm, pchan_error *err)
{
    pchan_error own = {0};
    int *leaders = NULL, leader = q->rank;
    pchan_status status;
    PCH_TRY(check_node_comm(q, node_comm, err));
    PCH_TRY(pch_comm_choose_node(q->entry, node_comm, &q->node_entry, &q->node, err));
    MPI_Comm_size(q->node, &q->node_size);
    PCH_TRY(pch_agree(q->comm, PCH_ALLOC(leaders, (size_t)q->size, &own), &own, err));
    int least = MPI_Allreduce(MPI_IN_PLACE, &leader, 1, MPI_INT, MPI_MIN, q->node);
    int gathered = MPI_Allgather(&leader, 1, MPI_INT, leaders, 1, MPI_INT, q->comm); /* also after a failure */
    status = PCH_MPI(least ? least : gathered, "qreduce: finding nodes", &own);
    if (status == PCHAN_OK) status = pch_number_nodes(q, leaders, &own);
    status = pch_agree(q->comm, status, &own, err);
done:
    pch_free(leaders);
    return status;
}

/* ---- senders ---- */

/* Owners take turns over the ranks of a node: where all nodes have equally many ranks, ranks with equal index
 * talk. */
static void deal_by_index(pchan_qreduce *q, int node)
{
    int n_members = q->node_first[node + 1] - q->node_first[node], turn = 0;
    for (int k = 0; k < q->size; k++) {
        int owner = q->members[k];
        if (q->node_of[owner] == node) continue;
        q->sender[(size_t)node * (size_t)q->size + (size_t)owner] =
            q->members[q->node_first[node] + turn++ % n_members];
    }
}

/* Each part goes to the rank with the least so far, so that no rank carries more than its share by over one part
 * (list scheduling, Graham 1966). load [ranks of the node], zero. */
static void deal_by_load(pchan_qreduce *q, int node, int64_t *load)
{
    int first = q->node_first[node], n_members = q->node_first[node + 1] - first;
    for (int k = 0; k < q->size; k++) {
        int owner = q->members[k], least = 0;
        if (q->node_of[owner] == node) continue;
        for (int i = 1; i < n_members; i++) {
            if (load[i] < load[least]) least = i;
        }
        load[least] += pch_layout_n_owned(q->layout, owner);
        q->sender[(size_t)node * (size_t)q->size + (size_t)owner] = q->members[first + least];
    }
}

pchan_status pch_deal_senders(pchan_qreduce *q, pchan_error *err)
{
    int64_t *load = NULL;
    bool equal = true;
    pchan_status status;
    PCH_TRY(PCH_ALLOC(q->sender, (size_t)q->n_nodes * (size_t)q->size, err));
    PCH_TRY(PCH_ALLOC(load, (size_t)q->size, err));
    for (int m = 0; m < q->n_nodes; m++) {
        equal = equal && q->node_first[m + 1] - q->node_first[m] == q->node_first[1];
        for (int k = q->node_first[m]; k < q->node_first[m + 1]; k++) {
            int owner = q->members[k];
            q->sender[(size_t)m * (size_t)q->size + (size_t)owner] = owner;
        }
    }
    for (int m = 0; m < q->n_nodes; m++) {
        memset(load, 0, (size_t)q->size * sizeof *load);
        if (equal && q->strategy->by_index) {
            deal_by_index(q, m);
        } else {
            deal_by_load(q, m, load);
        }
    }
done:
    pch_free(load);
    return status;
}
