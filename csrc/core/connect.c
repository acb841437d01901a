/* SPDX-License-Identifier: MIT
 *
 * connect: the table of contents. Tables go to all peers and come back (negotiate.c), both ends pair them
 * (pairing.c), the node's ranks make memory for their edges, a reply tells each peer where and by which
 * tags, and then every rank lays out its connection. All ranks agree twice: that the tables fit, and that
 * everything could be made. Until the second agreement the channel is as it was.
 */
#include "pch_negotiate.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

static pchan_status check_connectable(const pchan_channel *channel, pchan_error *err)
{
    const char *why = channel->active       ? "is active; wait for it first"
                      : channel->connection ? "is connected already"
                      : channel->broken     ? "is broken by an MPI error"
                                            : NULL;
    return why ? pch_fail(err, PCHAN_ERR_STATE, "connect: the channel %s", why) : PCHAN_OK;
}

/* ---- one direction of a peer ---- */

static const pch_pair *pair_at(const pch_peer *peer, bool incoming, int64_t k)
{
    return incoming ? &peer->in[k] : &peer->out[k];
}

/* The transport of a pair as its sender's settings have it, with the node's memory or without. */
static pchan_transport choose(const pch_peer *peer, bool incoming, int64_t k, bool memory)
{
    return pch_choose(pair_at(peer, incoming, k), incoming ? peer->theirs.head : peer->mine.head, memory);
}

/* ---- the node's memory ---- */

/* Sizes of the regions of all edges to this rank, as planned by both of their ends. */
static void plan_edge(const pch_peer *peer, bool incoming, pch_edge *edge, size_t *bytes)
{
    int64_t n = incoming ? peer->n_in : peer->n_out;
    size_t data = 0;
    *edge = (pch_edge){0};
    *bytes = 0;
    for (int64_t k = 0; k < n && peer->same_node; k++) {
        pchan_transport t = choose(peer, incoming, k, true);
        edge->n_larges += t == PCHAN_BY_CMA;
        edge->n_pieces += t == PCHAN_BY_SHM;
        if (t == PCHAN_BY_SHM) pch_slot_place(&data, (size_t)pair_at(peer, incoming, k)->send->bytes);
    }
    if (edge->n_pieces + edge->n_larges > 0) pch_edge_plan(data, edge->n_larges, edge, bytes);
}

/* Collective over the node. Without memory the messages go by MPI: no error. */
static pchan_status make_memory(pch_negotiation *g, pchan_error *err)
{
    int64_t mine = 0, end = 0, total = 0;
    pch_edge edge;
    size_t bytes;
    for (int p = 0; p < g->n_peers; p++) {
        plan_edge(&g->peers[p], true, &edge, &bytes);
        mine += (int64_t)bytes;
    }
    MPI_Comm node = g->channel->entry->node;
    int node_rank, node_size;
    MPI_Comm_rank(node, &node_rank);
    MPI_Comm_size(node, &node_size);
    pchan_error own = {0};
    int code = MPI_Allgather(&mine, 1, MPI_INT64_T, g->node_bytes, 1, MPI_INT64_T, node);
    pchan_status status = pch_agree(node, PCH_MPI(code, "connect: MPI_Allgather", &own), &own, err);
    if (status != PCHAN_OK) return status;
    for (int r = 0; r < node_size; r++) {
        total += g->node_bytes[r];
        if (r <= node_rank) end = total;
    }
    if (total == 0) return PCHAN_OK;
    total += PCH_LINE; /* the token */
    if (pch_share(node, total, false, &g->connection->mapping, NULL) != PCHAN_OK) return PCHAN_OK;
    g->connection->mapped_bytes = (size_t)total;
    int64_t offset = PCH_LINE + end - mine;
    memset((char *)g->connection->mapping + offset, 0, (size_t)mine); /* its pages near this rank */
    for (int p = 0; p < g->n_peers; p++) {
        plan_edge(&g->peers[p], true, &edge, &bytes);
        g->peers[p].reply.offset = bytes ? offset : -1;
        offset += (int64_t)bytes;
    }
    return PCHAN_OK;
}

/* ---- what this rank tells each peer ---- */

static bool can_attach(const pch_head *theirs)
{
    pid_t pid = (pid_t)theirs->pid;
    uint64_t value = 0;
    if (!theirs->cma || !pch_cma_allowed()) return false;
    if (pch_cma_copy(pid, &value, theirs->probe_address, sizeof value, false) != 0) return false;
    if (value != theirs->probe_value) return false;
    /* the word as it is: a filter of system calls may let reads pass and not writes */
    return pch_cma_copy(pid, &value, theirs->probe_address, sizeof value, true) == 0;
}

/* The peer's buffer as mapped here, with a reference kept in the connection. */
static void *reach(pch_negotiation *g, const pch_peer *peer, const pch_row *theirs, int64_t bytes)
{
    void *address = NULL;
    if (peer->rank == g->channel->rank) return (void *)(uintptr_t)theirs->address;
    if (peer->mine.head->mode == PCH_ALL_CMA || !theirs->segment) return NULL;
    pch_segment *segment = pch_segment_get(theirs->segment, theirs->offset, (size_t)bytes, &address);
    if (segment) g->connection->segments[g->connection->n_segments++] = segment;
    return address;
}

static void find_reach(pch_negotiation *g, pch_peer *peer)
{
    for (int64_t k = 0; k < peer->n_in + peer->n_out; k++) {
        bool in = k < peer->n_in;
        int64_t place = in ? k : k - peer->n_in;
        if (choose(peer, in, place, true) != PCHAN_BY_CMA) continue;
        const pch_pair *pair = pair_at(peer, in, place);
        peer->reached[k] = reach(g, peer, in ? pair->send : pair->recv, pair->send->bytes);
        peer->reply_bits[k] = peer->reached[k] != NULL;
    }
}

static pchan_status prepare_replies(pch_negotiation *g, pchan_error *err)
{
    for (int p = 0; p < g->n_peers; p++) {
        pch_peer *peer = &g->peers[p];
        int tag = pch_comm_take_wire_tags(g->channel->entry, peer->n_in + 1);
        if (tag < 0) return pch_fail(err, PCHAN_ERR_ARG, "connect: more messages than MPI has tags");
        peer->reply.tag = tag;
        peer->reply.memory = g->connection->mapping != NULL;
        if (!peer->same_node) continue;
        peer->reply.cma = can_attach(peer->theirs.head);
        find_reach(g, peer);
    }
    return PCHAN_OK;
}

/* ---- laying out the connection ---- */

static const pch_mover *mover_for(pch_negotiation *g, int index, const pch_row *row)
{
    if (row->flags & PCH_DENSE) return NULL;
    const pch_detail *d = &g->channel->details[index];
    pch_any_mover *m = &g->connection->movers[index];
    if (d->n_dims >= 0) {
        pch_strides_init(&m->strides, d->n_dims, d->dims, d->dims + d->n_dims, (size_t)d->element_bytes);
    } else {
        pch_packed_init(&m->packed, d->type, g->wire);
    }
    return &m->strides.mover;
}

/* The transport of a pair, with all that both ends know by now. */
static pchan_transport settle(const pch_peer *peer, bool incoming, int64_t k)
{
    bool memory = peer->same_node && peer->reply.memory && peer->answer.memory;
    pchan_transport t = choose(peer, incoming, k, memory);
    if (t != PCHAN_BY_CMA) return t;
    /* the peer's bits are in its order: what comes to it first */
    bool i_reach = peer->reply_bits[incoming ? k : peer->n_in + k];
    bool it_reaches = peer->answer_bits[incoming ? peer->n_out + k : k];
    if (i_reach && it_reaches) return PCHAN_BY_SHARED;
    return peer->reply.cma && peer->answer.cma ? PCHAN_BY_CMA : PCHAN_BY_MPI;
}

/* One direction of one peer. */
typedef struct layout_state {
    pch_negotiation *g;
    const pch_peer *peer;
    bool incoming;
    pch_edge *edge;     /* NULL: none */
    pch_bundle *bundle; /* NULL: none */
    size_t slot_used, bundle_used;
} layout_state;

static pch_piece piece_for(layout_state *s, const pch_row *row, int64_t bytes, size_t *used)
{
    size_t offset = pch_slot_place(used, (size_t)bytes);
    const pch_mover *mover = mover_for(s->g, (int)row->index, row);
    return (pch_piece){s->g->channel->details[row->index].buf, mover, offset, (size_t)bytes};
}

static pchan_status lay_pair(layout_state *s, int64_t k, int64_t *planned_large, pchan_error *err)
{
    const pch_peer *peer = s->peer;
    const pch_pair *pair = pair_at(peer, s->incoming, k);
    const pch_row *row = s->incoming ? pair->recv : pair->send, *other = s->incoming ? pair->send : pair->recv;
    pch_connection *c = s->g->connection;
    int index = (int)row->index;
    pch_route *route = &c->routes[index];
    bool large = peer->same_node && choose(peer, s->incoming, k, true) == PCHAN_BY_CMA;
    pch_claim *claim = large && s->edge ? s->edge->larges[(*planned_large)++].claim : NULL;
    *route = (pch_route){.transport = settle(peer, s->incoming, k), .bytes = pair->send->bytes};
    switch (route->transport) {
        case PCHAN_BY_SHM:
            PCH_ASSERT(s->edge != NULL);
            route->edge = s->edge;
            s->edge->pieces[s->edge->n_pieces++] = piece_for(s, row, route->bytes, &s->slot_used);
            break;
        case PCHAN_BY_SHARED:
        case PCHAN_BY_CMA:
            PCH_ASSERT(s->edge != NULL);
            route->edge = s->edge;
            route->large = &s->edge->larges[s->edge->n_larges++];
            *route->large = (pch_large){.local = s->g->channel->details[index].buf,
                                        .remote = other->address,
                                        .pid = (pid_t)peer->theirs.head->pid,
                                        .bytes = (size_t)route->bytes,
                                        .claim = claim};
            if (route->transport == PCHAN_BY_SHARED)
                route->large->reach = peer->reached[s->incoming ? k : peer->n_in + k];
            break;
        case PCHAN_BY_BUNDLE:
            route->bundle = s->bundle;
            s->bundle->pieces[s->bundle->n_pieces++] = piece_for(s, row, route->bytes, &s->bundle_used);
            break;
        default:
            return pch_operation_make_request(&s->g->channel->operations[index], &s->g->channel->details[index],
                                              (int)(s->incoming ? peer->reply.tag : peer->answer.tag) + (int)k,
                                              s->g->wire, &s->g->requests[index], err);
    }
    return PCHAN_OK;
}

/* The edge is laid over its region as both ends have planned it, then filled with what goes that way. */
static pchan_status place_edge(layout_state *s, pchan_error *err)
{
    pch_connection *c = s->g->connection;
    const pch_peer *peer = s->peer;
    int64_t offset = s->incoming ? peer->reply.offset : peer->answer.offset;
    pch_edge edge;
    size_t bytes;
    plan_edge(peer, s->incoming, &edge, &bytes);
    if (!bytes || !peer->reply.memory || !peer->answer.memory) return PCHAN_OK;
    if (offset < PCH_LINE || offset % PCH_LINE || bytes > c->mapped_bytes ||
        (size_t)offset > c->mapped_bytes - bytes) {
        return pch_fail(err, PCHAN_ERR_SYSTEM, "connect: rank %d offers memory outside the node's", peer->rank);
    }
    s->edge = s->incoming ? &c->in[c->n_in++] : &c->out[c->n_out++];
    *s->edge = edge;
    s->edge->pieces = c->pieces + s->g->n_laid;
    s->edge->larges = c->larges + s->g->n_laid;
    pch_edge_place(s->edge, (char *)c->mapping + offset);
    s->edge->n_pieces = s->edge->n_larges = 0;
    return PCHAN_OK;
}

static pchan_status init_bundle(layout_state *s, pchan_error *err)
{
    pch_bundle *b = s->bundle;
    const pch_peer *peer = s->peer;
    int64_t tag = s->incoming ? peer->reply.tag + peer->n_in : peer->answer.tag + peer->n_out;
    b->kind = s->incoming ? PCHAN_RECV : PCHAN_SEND;
    b->request = MPI_REQUEST_NULL;
    b->bytes = s->bundle_used;
    if (b->bytes > INT_MAX)
        return pch_fail(err, PCHAN_ERR_ARG, "connect: %zu bytes in one bundle; set PCHAN_BUNDLE_BYTES lower",
                        b->bytes);
    pchan_status status = PCH_ALLOC(b->data, b->bytes + 1, err);
    if (status != PCHAN_OK) return status;
    int n = (int)b->bytes;
    int code = s->incoming ? MPI_Recv_init(b->data, n, MPI_BYTE, peer->rank, (int)tag, s->g->wire, &b->request)
                           : MPI_Send_init(b->data, n, MPI_BYTE, peer->rank, (int)tag, s->g->wire, &b->request);
    return PCH_MPI(code, "connect: a request for small messages", err);
}

static pchan_status lay_direction(pch_negotiation *g, const pch_peer *peer, bool incoming, pchan_error *err)
{
    pch_connection *c = g->connection;
    layout_state s = {.g = g, .peer = peer, .incoming = incoming};
    int64_t n = incoming ? peer->n_in : peer->n_out, planned_large = 0;
    if (n == 0) return PCHAN_OK;
    pch_bundle *bundle = &c->bundles[c->n_bundles];
    *bundle = (pch_bundle){.pieces = c->pieces + g->n_laid, .request = MPI_REQUEST_NULL};
    s.bundle = bundle;
    pchan_status status = place_edge(&s, err);
    for (int64_t k = 0; k < n && status == PCHAN_OK; k++) status = lay_pair(&s, k, &planned_large, err);
    g->n_laid += (int)n;
    if (status != PCHAN_OK) return status;
    if (s.edge && s.edge->n_pieces + s.edge->n_larges == 0) (void)(incoming ? c->n_in-- : c->n_out--);
    if (bundle->n_pieces == 0) return PCHAN_OK;
    c->n_bundles++;
    return init_bundle(&s, err);
}

/* Receives first: their bundles are started first. */
static pchan_status lay_out(pch_negotiation *g, pchan_error *err)
{
    const pchan_channel *channel = g->channel;
    pchan_status status = PCHAN_OK;
    for (int i = 0; i < channel->n; i++) {
        g->connection->routes[i].transport = PCHAN_BY_NULL;
        g->requests[i] = MPI_REQUEST_NULL;
    }
    g->laid = true;
    for (int d = 0; d < 2; d++) {
        for (int p = 0; p < g->n_peers && status == PCHAN_OK; p++) {
            status = lay_direction(g, &g->peers[p], d == 0, err);
        }
    }
    return status;
}

/* ---- the whole ---- */

static void commit(pch_negotiation *g)
{
    pchan_channel *channel = g->channel;
    channel->n_real = 0;
    for (int i = 0; i < channel->n; i++) {
        pch_operation_free_request(channel, i);
        channel->requests[i] = g->requests[i];
        channel->n_real += g->requests[i] != MPI_REQUEST_NULL;
    }
    channel->runs_current = false;
    channel->n_cycles = 0;
    channel->connection = g->connection;
    g->connection = NULL;
    pch_connection_open(channel->connection, channel);
}

static void roll_back(pch_negotiation *g)
{
    for (int i = 0; i < g->channel->n && g->laid; i++) {
        if (g->requests[i] != MPI_REQUEST_NULL) MPI_Request_free(&g->requests[i]);
    }
    pch_connection_close(&g->connection);
}

static pchan_status negotiate(pch_negotiation *g, bool outermost, pchan_status status, pchan_error *own,
                              pchan_error *err)
{
    if (status == PCHAN_OK) status = pch_negotiation_begin(g, own);
    if (status != PCHAN_OK) g->n_peers = 0; /* takes part without a table */
    pchan_error lost;
    pchan_status talk = pch_negotiation_exchange(g, status == PCHAN_OK ? own : &lost);
    if (status == PCHAN_OK) status = talk;
    if (status == PCHAN_OK) status = pch_negotiation_pair(g, own);
    PCH_TRY(pch_negotiation_agree(g, status, own, err));
    /* from here on every rank goes through all steps, so that nobody waits for it */
    status = make_memory(g, own);
    if (status == PCHAN_OK) status = prepare_replies(g, own);
    talk = pch_negotiation_reply(g, status == PCHAN_OK ? own : &lost);
    if (status == PCHAN_OK) status = talk;
    if (status == PCHAN_OK) status = lay_out(g, own);
    PCH_TRY(pch_agree(g->wire, status, own, err));
    if (outermost) PCH_TRY(pch_conclude("connect", status, err));
    commit(g);
done:
    if (status != PCHAN_OK) roll_back(g);
    return status;
}

static pchan_status connect(pchan_channel *channel, bool outermost, pchan_error *err)
{
    pchan_status status = pch_channel_enter(channel, "connect", err);
    if (status != PCHAN_OK) return status;
    pchan_error own = {0};
    pch_free(channel->mismatch);
    channel->mismatch = NULL;
    status = PCHAN_OK;
    if (!channel->entry) status = pch_comm_acquire(channel->comm, PCH_CHANNELS, &channel->entry, err);
    if (status == PCHAN_OK) status = pch_comm_wire(channel->entry, err);
    if (status == PCHAN_OK) {
        pch_negotiation g = {.channel = channel, .wire = channel->entry->dup[PCH_WIRE]};
        status = negotiate(&g, outermost, check_connectable(channel, &own), &own, err);
        pch_negotiation_end(&g);
    }
    pch_channel_leave(channel);
    return status;
}

pchan_status pch_channel_connect(pchan_channel *channel, pchan_error *err)
{
    return connect(channel, false, err);
}

pchan_status pchan_channel_connect(pchan_channel *channel, pchan_error *err)
{
    return pch_conclude("connect", connect(channel, true, err), err);
}
