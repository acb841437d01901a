/* SPDX-License-Identifier: MIT
 *
 * What a connected channel has instead of requests matched anew in every cycle: edges to the ranks of its
 * node, and bundles to those of others. Made by connect.c, used by cycle.c; one thread at a time.
 */
#ifndef PCH_CONNECTION_H
#define PCH_CONNECTION_H

#include "pch_mpi.h"

#include "pch_edge.h"
#include "pch_segment.h"

/* All small messages to or from a rank of another node: one persistent MPI message. */
typedef struct pch_bundle {
    pchan_kind kind;
    int n_pieces;
    pch_piece *pieces;
    unsigned char *data; /* owned */
    size_t bytes;
    MPI_Request request;
    bool done; /* in this cycle */
    int code;  /* MPI error of this cycle */
} pch_bundle;

/* A derived datatype's way into contiguous bytes: MPI_Pack, where that adds nothing to the data. */
typedef struct pch_packed {
    pch_mover mover; /* first */
    MPI_Datatype type;
    MPI_Comm comm;
} pch_packed;
typedef union pch_any_mover {
    pch_strides strides;
    pch_packed packed;
} pch_any_mover;

/* Where an operation's message goes. */
typedef struct pch_route {
    pchan_transport transport;
    int64_t bytes; /* that travel */
    pch_edge *edge;
    pch_large *large;
    pch_bundle *bundle;
} pch_route;

typedef struct pch_connection {
    struct pch_connection *prev, *next; /* all of this process */
    pchan_channel *channel;
    uint64_t cycle;
    bool running; /* between start and the end of the cycle */
    int n_in, n_out, n_bundles, n_segments;
    pch_edge *in, *out;
    pch_bundle *bundles; /* receives first */
    pch_route *routes;   /* [operations] */

    void *mapping;
    size_t mapped_bytes;
    pch_piece *pieces;
    pch_large *larges;
    pch_any_mover *movers;
    pch_segment **segments;
} pch_connection;

/* Room for a channel of n operations and at most n_peers peers. */
pchan_status pch_connection_create(int n, int n_peers, pch_connection **connection, pchan_error *err);
/* Lists it, so that other channels' waits move it. */
void pch_connection_open(pch_connection *connection, pchan_channel *channel);
/* Frees all, MPI objects included; accepts NULL. */
void pch_connection_close(pch_connection **connection);

/* A cycle. start returns an MPI error code; poll is true when all is done. */
int pch_connection_start(pch_connection *connection);
bool pch_connection_poll(pch_connection *connection);
/* Is operation i, not PCHAN_BY_MPI, done, and with what error? */
bool pch_connection_done(const pch_connection *connection, int i, int *mpi_code, int *system_code);
bool pch_connection_failed(const pch_connection *connection);
/* In MPI_Finalize: gives up the receives that are still active. */
void pch_connection_cancel(pch_connection *connection);

/* Called now and then by whoever waits in vain: moves all running connections but `own` (NULL: none). */
void pch_connections_move(const pch_connection *own);

void pch_packed_init(pch_packed *packed, MPI_Datatype type, MPI_Comm comm);

#endif
