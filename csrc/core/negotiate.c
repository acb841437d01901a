/* SPDX-License-Identifier: MIT
 *
 * The talk of connect. No rank knows who will name it in a table, so the exchange ends by nonblocking
 * consensus: synchronous sends, and a barrier that each rank enters when its own have been received
 * (T. Hoefler, C. Siebert, A. Lumsdaine, "Scalable communication protocols for dynamic sparse data
 * exchange", PPoPP 2010). It costs a rank its own peers and a barrier.
 */
#include "pch_negotiate.h"

#include "pch_signature.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

/* ---- tables ---- */

static bool is_told(const pch_operation *op)
{
    return op->peer >= 0 && op->tag >= 0;
}

/* Whether MPI_Pack gives the bare data of this type. */
static bool packs_bare(MPI_Datatype type, MPI_Comm comm, int64_t bytes)
{
    int size = 0, packed = -1;
    if (bytes > INT_MAX || MPI_Type_size(type, &size) != MPI_SUCCESS) return false;
    return MPI_Pack_size(1, type, comm, &packed) == MPI_SUCCESS && packed == size;
}

static pchan_status fill_row(const pch_negotiation *g, int i, const pch_signature *signature, pch_row *row,
                             pchan_error *err)
{
    const pch_operation *op = &g->channel->operations[i];
    const pch_detail *d = &g->channel->details[i];
    MPI_Count size = 0;
    pchan_status status = PCH_MPI(MPI_Type_size_x(d->type, &size), "connect: MPI_Type_size_x", err);
    *row = (pch_row){.kind = op->kind,
                     .peer = op->peer,
                     .tag = op->tag,
                     .index = i,
                     .bytes = op->bytes,
                     .unit = d->n_dims >= 0 ? d->element_bytes : (int64_t)size,
                     .signature = signature->hash,
                     .address = (uint64_t)(uintptr_t)d->buf,
                     .n_dims = d->stated_dims,
                     .column_major = d->column_major};
    memcpy(row->shape, d->stated_shape, sizeof row->shape);
    memcpy(row->element, signature->name, sizeof row->element);
    if (d->element[0]) {
        row->signature = pch_hash_text(d->element);
        memcpy(row->element, d->element, sizeof row->element);
    }
    bool dense = op->bytes == 0 || (d->n_dims < 0 && signature->dense);
    if (dense) row->flags = PCH_DENSE | PCH_MOVABLE;
    if (d->n_dims >= 0 || packs_bare(d->type, g->wire, op->bytes)) row->flags |= PCH_MOVABLE;
    if (dense && op->bytes > 0) pch_segment_find(d->buf, (size_t)op->bytes, &row->segment, &row->offset);
    return status;
}

static void tell_wildcard(pch_negotiation *g, int i)
{
    const pch_operation *op = &g->channel->operations[i];
    pch_row row = {.kind = op->kind, .peer = op->peer, .tag = op->tag, .index = i, .bytes = op->bytes};
    snprintf(row.element, sizeof row.element, "any type");
    pch_fault_row(&g->faults, &row, g->channel->rank,
                  "a wildcard cannot be connected; name the source and the tag");
}

static pchan_status make_rows(pch_negotiation *g, pch_row **rows, int *n_rows, pchan_error *err)
{
    const pchan_channel *channel = g->channel;
    pch_signature signature = {0};
    MPI_Datatype last = MPI_DATATYPE_NULL;
    pchan_status status = PCH_ALLOC(*rows, (size_t)channel->n, err);
    for (int i = 0; i < channel->n && status == PCHAN_OK; i++) {
        const pch_operation *op = &channel->operations[i];
        if (op->peer == MPI_PROC_NULL) continue;
        if (!is_told(op)) {
            tell_wildcard(g, i);
            continue;
        }
        MPI_Datatype type = channel->details[i].type;
        if (type != last) status = pch_signature_of(type, &signature, err);
        last = type;
        if (status == PCHAN_OK) status = fill_row(g, i, &signature, &(*rows)[(*n_rows)++], err);
    }
    return status;
}

static uint64_t probe_value; /* read by peers that try process_vm_readv */

static void fill_head(pch_head *head, int64_t n_rows)
{
    if (!probe_value && getrandom(&probe_value, sizeof probe_value, 0) < 0) probe_value = (uint64_t)pch_now_ns();
    pch_connect_settings(head);
    head->n_rows = n_rows;
    head->pid = getpid();
    head->cma = pch_cma_allowed();
    head->probe_address = (uint64_t)(uintptr_t)&probe_value;
    head->probe_value = probe_value;
}

/* Which peers share this rank's node. */
static pchan_status find_nodes(pch_negotiation *g, pchan_error *err)
{
    MPI_Group all = MPI_GROUP_NULL, node = MPI_GROUP_NULL;
    int *ranks = NULL;
    size_t n = (size_t)g->n_peers;
    pchan_status status;
    PCH_TRY(PCH_ALLOC(ranks, 2 * n, err));
    for (size_t p = 0; p < n; p++) ranks[p] = g->peers[p].rank;
    PCH_TRY(PCH_MPI(MPI_Comm_group(g->wire, &all), "MPI_Comm_group", err));
    PCH_TRY(PCH_MPI(MPI_Comm_group(g->channel->entry->node, &node), "MPI_Comm_group", err));
    PCH_TRY(PCH_MPI(MPI_Group_translate_ranks(all, g->n_peers, ranks, node, ranks + n),
                    "MPI_Group_translate_ranks", err));
    for (size_t p = 0; p < n; p++) g->peers[p].same_node = ranks[n + p] != MPI_UNDEFINED;
done:
    if (all != MPI_GROUP_NULL) MPI_Group_free(&all);
    if (node != MPI_GROUP_NULL) MPI_Group_free(&node);
    pch_free(ranks);
    return status;
}

static int count_peers(const pch_row *rows, int n)
{
    int n_peers = 0;
    for (int k = 0; k < n; k++) n_peers += k == 0 || rows[k].peer != rows[k - 1].peer;
    return n_peers;
}

/* One message per peer, all in one block. */
static void write_messages(pch_negotiation *g, const pch_row *rows, int n)
{
    unsigned char *at = g->messages;
    for (int first = 0, p = 0; first < n; p++) {
        int end = first;
        while (end < n && rows[end].peer == rows[first].peer) end++;
        pch_peer *peer = &g->peers[p];
        peer->rank = (int)rows[first].peer;
        peer->message = at;
        peer->message_bytes = sizeof(pch_head) + (size_t)(end - first) * sizeof *rows;
        fill_head((pch_head *)at, end - first);
        memcpy(at + sizeof(pch_head), rows + first, (size_t)(end - first) * sizeof *rows);
        pch_table_read(at, peer->message_bytes, peer->rank, &peer->mine);
        at += peer->message_bytes;
        first = end;
    }
}

pchan_status pch_negotiation_begin(pch_negotiation *g, pchan_error *err)
{
    pch_row *rows = NULL;
    int n_rows = 0, node_size;
    pchan_status status;
    MPI_Comm_size(g->channel->entry->node, &node_size);
    PCH_TRY(PCH_ALLOC(g->node_bytes, (size_t)node_size, err));
    PCH_TRY(make_rows(g, &rows, &n_rows, err));
    pch_rows_sort(rows, (size_t)n_rows);
    int n_peers = count_peers(rows, n_rows);
    PCH_TRY(PCH_ALLOC(g->peers, (size_t)n_peers, err));
    PCH_TRY(PCH_ALLOC(g->messages, (size_t)n_peers * sizeof(pch_head) + (size_t)n_rows * sizeof *rows, err));
    PCH_TRY(PCH_ALLOC(g->talk, 2 * (size_t)n_peers, err));
    PCH_TRY(PCH_ALLOC(g->requests, (size_t)g->channel->n, err));
    g->n_peers = n_peers;
    write_messages(g, rows, n_rows);
    PCH_TRY(pch_connection_create(g->channel->n, n_peers, &g->connection, err));
    PCH_TRY(find_nodes(g, err));
    for (int p = 0; p < n_peers; p++) {
        if (g->peers[p].message_bytes > INT_MAX)
            status = pch_fail(err, PCHAN_ERR_ARG, "connect: too many operations for one peer");
    }
done:
    pch_free(rows);
    return status;
}

/* ---- exchange ---- */

static pch_peer *peer_of_rank(pch_negotiation *g, int rank)
{
    int low = 0, high = g->n_peers;
    while (low < high) {
        int middle = (low + high) / 2;
        if (g->peers[middle].rank < rank)
            low = middle + 1;
        else
            high = middle;
    }
    return low < g->n_peers && g->peers[low].rank == rank ? &g->peers[low] : NULL;
}

/* Takes a table that has come. Whoever names us without our naming him tells that himself. What cannot be
 * kept is received all the same: its sender waits for that. */
static pchan_status take_table(pch_negotiation *g, MPI_Message *message, const MPI_Status *envelope,
                               pchan_error *err)
{
    int bytes = 0;
    char scrap[1];
    pch_peer *peer = peer_of_rank(g, envelope->MPI_SOURCE);
    pchan_status status =
        PCH_MPI(MPI_Get_count(envelope, MPI_BYTE, &bytes), "connect: MPI_Get_count of a table", err);
    if (status == PCHAN_OK && peer && !peer->received) {
        peer->received = pch_alloc((size_t)bytes, 1);
        if (!peer->received) status = pch_fail_nomem(err, "a peer's table", (size_t)bytes);
    }
    void *room = peer ? peer->received : NULL;
    if (room) peer->received_bytes = (size_t)bytes;
    int code = MPI_Mrecv(room ? room : scrap, room ? bytes : 0, MPI_BYTE, message, MPI_STATUS_IGNORE);
    int class = MPI_SUCCESS;
    if (code != MPI_SUCCESS) MPI_Error_class(code, &class);
    bool untouched = class != MPI_SUCCESS && class != MPI_ERR_TRUNCATE && *message != MPI_MESSAGE_NULL;
    if (untouched) MPI_Mrecv(scrap, 0, MPI_BYTE, message, MPI_STATUS_IGNORE);
    return room ? PCH_MPI(code, "connect: MPI_Mrecv", err) : status;
}

/* Sent all tables? Then the barrier; *over when all ranks are in it. */
static int enter_barrier(pch_negotiation *g, MPI_Request *barrier, int *over)
{
    int sent = 0, code;
    if (*barrier != MPI_REQUEST_NULL) {
        code = MPI_Test(barrier, over, MPI_STATUS_IGNORE);
        *over = *barrier == MPI_REQUEST_NULL;
        return code;
    }
    code = MPI_Testall(g->n_peers, g->talk, &sent, MPI_STATUSES_IGNORE);
    if (code == MPI_SUCCESS && sent) code = MPI_Ibarrier(g->wire, barrier);
    return code;
}

/* Others wait for this rank, so it goes on after a failure, unless failures are all there is. */
pchan_status pch_negotiation_exchange(pch_negotiation *g, pchan_error *err)
{
    enum { MOST_FAILURES = 100 };
    pchan_status status = PCHAN_OK, step;
    MPI_Request barrier = MPI_REQUEST_NULL;
    pchan_error later;
    int over = 0, n_failures = 0;
    for (int p = 0; p < g->n_peers; p++) {
        const pch_peer *peer = &g->peers[p];
        g->talk[p] = MPI_REQUEST_NULL;
        int code = MPI_Issend(peer->message, (int)peer->message_bytes, MPI_BYTE, peer->rank, PCH_TABLE_TAG,
                              g->wire, &g->talk[p]);
        if (code != MPI_SUCCESS && status == PCHAN_OK) status = pch_fail_mpi(err, code, "connect: MPI_Issend");
    }
    pch_backoff backoff;
    pch_backoff_init(&backoff, g->channel->spin_ns, -1);
    while (!over && n_failures < MOST_FAILURES) {
        MPI_Message message;
        MPI_Status envelope;
        int there = 0;
        step = PCH_MPI(MPI_Improbe(MPI_ANY_SOURCE, PCH_TABLE_TAG, g->wire, &there, &message, &envelope),
                       "connect: MPI_Improbe", status == PCHAN_OK ? err : &later);
        if (step == PCHAN_OK && there)
            step = take_table(g, &message, &envelope, status == PCHAN_OK ? err : &later);
        if (status == PCHAN_OK) status = step;
        n_failures += step != PCHAN_OK;
        if (there) continue;
        step = PCH_MPI(enter_barrier(g, &barrier, &over), "connect: exchanging tables",
                       status == PCHAN_OK ? err : &later);
        if (status == PCHAN_OK) status = step;
        n_failures += step != PCHAN_OK;
        if (!over) pch_backoff_next(&backoff);
    }
    return status;
}

/* ---- pairs ---- */

static pchan_status make_room(pch_peer *peer, pchan_error *err)
{
    pchan_status status;
    int64_t n_out = peer->mine.n_sends < peer->theirs.n_recvs ? peer->mine.n_sends : peer->theirs.n_recvs;
    int64_t n_in = peer->mine.n_recvs < peer->theirs.n_sends ? peer->mine.n_recvs : peer->theirs.n_sends;
    size_t n = (size_t)(n_in + n_out);
    PCH_TRY(PCH_ALLOC(peer->in, (size_t)n_in, err));
    PCH_TRY(PCH_ALLOC(peer->out, (size_t)n_out, err));
    PCH_TRY(PCH_ALLOC(peer->reached, n, err));
    PCH_TRY(PCH_ALLOC(peer->reply_message, sizeof(pch_reply) + n, err));
    PCH_TRY(PCH_ALLOC(peer->answer_message, sizeof(pch_reply) + n, err));
    peer->reply_bits = peer->reply_message + sizeof(pch_reply);
    peer->answer_bits = peer->answer_message + sizeof(pch_reply);
    peer->reply.offset = -1;
done:
    return status;
}

pchan_status pch_negotiation_pair(pch_negotiation *g, pchan_error *err)
{
    int me = g->channel->rank;
    for (int p = 0; p < g->n_peers; p++) {
        pch_peer *peer = &g->peers[p];
        if (peer->received && !pch_table_read(peer->received, peer->received_bytes, me, &peer->theirs)) {
            return pch_fail(err, PCHAN_ERR_SYSTEM,
                            "connect: what rank %d sent is no table; another version of pchan?", peer->rank);
        }
        pchan_status status = make_room(peer, err);
        if (status != PCHAN_OK) return status;
        const pch_table *mine = &peer->mine, *theirs = &peer->theirs;
        peer->n_out = pch_pair_up(mine->sends, mine->n_sends, theirs->recvs, theirs->n_recvs, me, peer->rank, true,
                                  false, peer->out, &g->faults);
        peer->n_in = pch_pair_up(theirs->sends, theirs->n_sends, mine->recvs, mine->n_recvs, peer->rank, me, false,
                                 true, peer->in, &g->faults);
    }
    return PCHAN_OK;
}

/* ---- agreement ---- */

enum { MOST_TEXT = 1 << 16 };

/* The faults of all ranks as one text, the same everywhere. */
static pchan_status gather_faults(pch_negotiation *g, char **text, pchan_error *err)
{
    pchan_channel *channel = g->channel;
    int *lengths = NULL, *places = NULL, size = channel->size, mine = (int)g->faults.used, total = 0;
    int64_t count = 0;
    char head[64];
    pchan_error own = {0};
    pchan_status status = PCH_ALLOC(lengths, (size_t)size, &own);
    if (status == PCHAN_OK) status = PCH_ALLOC(places, (size_t)size, &own);
    if (status == PCHAN_OK) status = PCH_ALLOC(*text, sizeof head + MOST_TEXT, &own);
    PCH_TRY(pch_agree(g->wire, status, &own, err));
    int sum = MPI_Allreduce(&g->faults.count, &count, 1, MPI_INT64_T, MPI_SUM, g->wire);
    int gathered = MPI_Allgather(&mine, 1, MPI_INT, lengths, 1, MPI_INT, g->wire);
    status = PCH_MPI(sum ? sum : gathered, "connect: telling the faults", &own);
    PCH_TRY(pch_agree(g->wire, status, &own, err));
    for (int r = 0; r < size; r++) {
        if (lengths[r] > MOST_TEXT - total) lengths[r] = 0; /* counted all the same */
        places[r] = total;
        total += lengths[r];
    }
    int used = snprintf(head, sizeof head, "connect: %lld %s not fit:\n", (long long)count,
                        count == 1 ? "message does" : "messages do");
    memcpy(*text, head, (size_t)used);
    status = PCH_MPI(MPI_Allgatherv(g->faults.text, lengths[channel->rank], MPI_CHAR, *text + used, lengths,
                                    places, MPI_CHAR, g->wire),
                     "connect: telling the faults", &own);
    PCH_TRY(pch_agree(g->wire, status, &own, err));
    (*text)[used + total - (total > 0)] = '\0'; /* without the last newline */
done:
    pch_free(lengths);
    pch_free(places);
    return status;
}

static pchan_status report_faults(pch_negotiation *g, pchan_error *err)
{
    char *text = NULL;
    pchan_status status = gather_faults(g, &text, err);
    if (status != PCHAN_OK) {
        pch_free(text);
        return status;
    }
    g->channel->mismatch = text;
    status = pch_fail(err, PCHAN_ERR_MATCH, "%.500s", text);
    return status;
}

pchan_status pch_negotiation_agree(pch_negotiation *g, pchan_status status, const pchan_error *own,
                                   pchan_error *err)
{
    int faulty = g->faults.count > 0;
    pchan_error mine = *own;
    pchan_status talk = PCH_MPI(MPI_Allreduce(MPI_IN_PLACE, &faulty, 1, MPI_INT, MPI_MAX, g->wire),
                                "MPI_Allreduce", status == PCHAN_OK ? &mine : NULL);
    status = pch_agree(g->wire, status == PCHAN_OK ? talk : status, &mine, err);
    return status == PCHAN_OK && faulty ? report_faults(g, err) : status;
}

/* ---- replies ---- */

/* The p-th peer's reply and answer on their way; a message that MPI does not take travels empty, because its other
 * end waits for it. */
static int post_reply(pch_negotiation *g, int p)
{
    pch_peer *peer = &g->peers[p];
    MPI_Request *recv = &g->talk[p], *send = &g->talk[g->n_peers + p];
    int bytes = (int)(sizeof(pch_reply) + (size_t)(peer->n_in + peer->n_out));
    memcpy(peer->reply_message, &peer->reply, sizeof peer->reply);
    *recv = *send = MPI_REQUEST_NULL;
    int in = MPI_Irecv(peer->answer_message, bytes, MPI_BYTE, peer->rank, PCH_REPLY_TAG, g->wire, recv);
    if (in) MPI_Irecv(peer->answer_message, 0, MPI_BYTE, peer->rank, PCH_REPLY_TAG, g->wire, recv);
    int out = MPI_Isend(peer->reply_message, bytes, MPI_BYTE, peer->rank, PCH_REPLY_TAG, g->wire, send);
    if (out) MPI_Isend(peer->reply_message, 0, MPI_BYTE, peer->rank, PCH_REPLY_TAG, g->wire, send);
    return in ? in : out;
}

pchan_status pch_negotiation_reply(pch_negotiation *g, pchan_error *err)
{
    pchan_status status = PCHAN_OK;
    int n = g->n_peers;
    for (int p = 0; p < n; p++) {
        int code = post_reply(g, p);
        if (code != MPI_SUCCESS && status == PCHAN_OK) status = pch_fail_mpi(err, code, "connect: replies");
    }
    int code = MPI_Waitall(2 * n, g->talk, MPI_STATUSES_IGNORE);
    if (code != MPI_SUCCESS && status == PCHAN_OK) status = pch_fail_mpi(err, code, "connect: replies");
    for (int k = 0; k < 2 * n && code != MPI_SUCCESS; k++) {
        if (g->talk[k] != MPI_REQUEST_NULL) MPI_Wait(&g->talk[k], MPI_STATUS_IGNORE);
    }
    for (int p = 0; p < n; p++) {
        pch_peer *peer = &g->peers[p];
        memcpy(&peer->answer, peer->answer_message, sizeof peer->answer);
        if (peer->answer.tag < PCH_FIRST_WIRE_TAG || peer->answer.tag > g->channel->tag_ub - peer->n_out)
            if (status == PCHAN_OK)
                status = pch_fail(err, PCHAN_ERR_SYSTEM, "connect: rank %d could not answer", peer->rank);
    }
    return status;
}

void pch_negotiation_end(pch_negotiation *g)
{
    for (int p = 0; p < g->n_peers; p++) {
        pch_peer *peer = &g->peers[p];
        pch_free(peer->received);
        pch_free(peer->in);
        pch_free(peer->out);
        pch_free(peer->reached);
        pch_free(peer->reply_message);
        pch_free(peer->answer_message);
    }
    pch_free(g->peers);
    pch_free(g->messages);
    pch_free(g->node_bytes);
    pch_free(g->talk);
    pch_free(g->requests);
}
