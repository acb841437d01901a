/* SPDX-License-Identifier: MIT
 *
 * The cycle of a connected channel, apart from the messages that have MPI requests of their own, and
 * the list of all connections of the process: MPI moves all messages in every call, so a wait on one
 * channel must move the others as well.
 */
#include "pch_channel.h"

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pch_connection list = {.prev = &list, .next = &list};

pchan_status pch_connection_create(int n, int n_peers, pch_connection **out, pchan_error *err)
{
    pch_connection *c = NULL;
    size_t n_ops = (size_t)n, n_ends = (size_t)n_peers;
    pchan_status status;
    PCH_TRY(PCH_ALLOC(c, 1, err));
    PCH_TRY(PCH_ALLOC(c->in, n_ends, err));
    PCH_TRY(PCH_ALLOC(c->out, n_ends, err));
    PCH_TRY(PCH_ALLOC(c->bundles, 2 * n_ends, err));
    PCH_TRY(PCH_ALLOC(c->routes, n_ops, err));
    PCH_TRY(PCH_ALLOC(c->pieces, n_ops, err));
    PCH_TRY(PCH_ALLOC(c->larges, n_ops, err));
    PCH_TRY(PCH_ALLOC(c->movers, n_ops, err));
    PCH_TRY(PCH_ALLOC(c->segments, n_ops, err));
done:
    *out = c;
    if (status != PCHAN_OK) pch_connection_close(out);
    return status;
}

void pch_connection_open(pch_connection *c, pchan_channel *channel)
{
    pthread_mutex_lock(&lock);
    c->channel = channel;
    c->prev = list.prev;
    c->next = &list;
    list.prev->next = c;
    list.prev = c;
    pthread_mutex_unlock(&lock);
}

void pch_connection_close(pch_connection **place)
{
    pch_connection *c = *place;
    *place = NULL;
    if (!c) return;
    if (c->next) {
        pthread_mutex_lock(&lock);
        c->prev->next = c->next;
        c->next->prev = c->prev;
        pthread_mutex_unlock(&lock);
    }
    for (int k = 0; k < c->n_bundles; k++) {
        if (c->bundles[k].request != MPI_REQUEST_NULL) MPI_Request_free(&c->bundles[k].request);
        pch_free(c->bundles[k].data);
    }
    for (int k = 0; k < c->n_segments; k++) pch_segment_put(c->segments[k]);
    if (c->mapping) munmap(c->mapping, c->mapped_bytes);
    pch_free(c->in);
    pch_free(c->out);
    pch_free(c->bundles);
    pch_free(c->routes);
    pch_free(c->pieces);
    pch_free(c->larges);
    pch_free(c->movers);
    pch_free(c->segments);
    pch_free(c);
}

/* ---- the cycle ---- */

/* What cannot be started counts as failed; the rest goes on. */
static int start_bundles(pch_connection *c)
{
    int first_code = MPI_SUCCESS;
    for (int k = 0; k < c->n_bundles; k++) {
        pch_bundle *b = &c->bundles[k];
        b->code = b->kind == PCHAN_SEND ? pch_pieces_move(b->pieces, b->n_pieces, b->data, true) : 0;
        if (b->code == MPI_SUCCESS) b->code = MPI_Start(&b->request);
        b->done = b->code != MPI_SUCCESS;
        if (b->done && first_code == MPI_SUCCESS) first_code = b->code;
    }
    return first_code;
}

int pch_connection_start(pch_connection *c)
{
    c->cycle++;
    for (int k = 0; k < c->n_in; k++) pch_edge_start_in(&c->in[k], c->cycle);
    for (int k = 0; k < c->n_out; k++) pch_edge_start_out(&c->out[k], c->cycle);
    c->running = true;
    return c->n_bundles ? start_bundles(c) : MPI_SUCCESS;
}

static bool poll_edges(pch_connection *c)
{
    bool finished = true;
    for (int k = 0; k < c->n_in; k++) finished &= pch_edge_poll_in(&c->in[k], c->cycle);
    for (int k = 0; k < c->n_out; k++) finished &= pch_edge_poll_out(&c->out[k], c->cycle);
    return finished;
}

static bool poll_bundles(pch_connection *c)
{
    bool finished = true;
    for (int k = 0; k < c->n_bundles; k++) {
        pch_bundle *b = &c->bundles[k];
        if (b->done) continue;
        int flag = 0;
        b->code = MPI_Test(&b->request, &flag, MPI_STATUS_IGNORE);
        b->done = flag || b->code != MPI_SUCCESS;
        if (b->done && b->code == MPI_SUCCESS && b->kind == PCHAN_RECV) {
            b->code = pch_pieces_move(b->pieces, b->n_pieces, b->data, false);
        }
        finished &= b->done;
    }
    return finished;
}

bool pch_connection_poll(pch_connection *c)
{
    bool finished = poll_edges(c);
    if (c->n_bundles) finished &= poll_bundles(c);
    return finished;
}

bool pch_connection_done(const pch_connection *c, int i, int *mpi_code, int *system_code)
{
    const pch_route *route = &c->routes[i];
    *mpi_code = MPI_SUCCESS;
    *system_code = 0;
    if (route->bundle) {
        *mpi_code = route->bundle->code;
        return route->bundle->done;
    }
    if (route->large) {
        *system_code = route->large->error;
        return route->large->done && route->edge->passed;
    }
    if (!route->edge) return true;
    if (route->edge->passed && route->edge->failed == c->cycle) *mpi_code = route->edge->code;
    return route->edge->passed;
}

void pch_connection_cancel(pch_connection *c)
{
    for (int k = 0; k < c->n_bundles; k++) {
        pch_bundle *b = &c->bundles[k];
        if (b->done || b->kind != PCHAN_RECV) continue;
        if (MPI_Cancel(&b->request) == MPI_SUCCESS) MPI_Wait(&b->request, MPI_STATUS_IGNORE);
    }
    c->running = false;
}

bool pch_connection_failed(const pch_connection *c)
{
    for (int k = 0; k < c->n_bundles; k++) {
        if (c->bundles[k].code != MPI_SUCCESS) return true;
    }
    for (int e = 0; e < c->n_in + c->n_out; e++) {
        const pch_edge *edge = e < c->n_in ? &c->in[e] : &c->out[e - c->n_in];
        if (edge->failed == c->cycle) return true;
    }
    return false;
}

/* ---- helping ---- */

/* Takes a channel that nobody is in; its owner waits for us, but only for one look at its edges. */
static void help(pch_connection *c)
{
    if (!pch_busy_help(&c->channel->busy)) return;
    if (c->running) poll_edges(c);
    pch_busy_leave(&c->channel->busy);
}

void pch_connections_move(const pch_connection *own)
{
    if (pthread_mutex_trylock(&lock) != 0) return; /* another thread is at it */
    for (pch_connection *c = list.next; c != &list; c = c->next) {
        if (c != own) help(c);
    }
    pthread_mutex_unlock(&lock);
}

/* ---- derived datatypes ---- */

static int move_packed(const pch_mover *mover, void *memory, unsigned char *slot, size_t bytes, bool into_slot)
{
    const pch_packed *p = (const pch_packed *)mover;
    int position = 0, size = 1;
    int code = MPI_Type_size(p->type, &size);
    if (code != MPI_SUCCESS) return code;
    int count = size > 0 ? (int)(bytes / (size_t)size) : 0;
    return into_slot ? MPI_Pack(memory, count, p->type, slot, (int)bytes, &position, p->comm)
                     : MPI_Unpack(slot, (int)bytes, &position, memory, count, p->type, p->comm);
}

void pch_packed_init(pch_packed *packed, MPI_Datatype type, MPI_Comm comm)
{
    *packed = (pch_packed){{move_packed}, type, comm};
}
