/* SPDX-License-Identifier: MIT
 *
 * The talk of one connect, by the rank's own peers. Steps that are collective go on after a local
 * failure, which the next agreement brings to all.
 */
#ifndef PCH_NEGOTIATE_H
#define PCH_NEGOTIATE_H

#include "pch_channel.h"

/* What a rank tells each peer once the pairs are known; followed by a byte per pair, first those that
 * come to the teller, then those that go: can it reach the other's buffer? */
typedef struct pch_reply {
    int64_t offset; /* in the node's memory: region of the edge to the teller; -1: none */
    int64_t tag;    /* first of those for MPI messages to the teller */
    int64_t memory; /* the node's memory is mapped */
    int64_t cma;    /* the teller can read and write the other's memory */
} pch_reply;

typedef struct pch_peer {
    int rank;
    bool same_node;
    const void *message; /* head and rows for the peer */
    size_t message_bytes;
    void *received;
    size_t received_bytes;
    pch_table mine, theirs;
    pch_pair *in, *out; /* messages to this rank, to the peer */
    int64_t n_in, n_out;
    pch_reply reply, answer; /* to the peer, from it */
    unsigned char *reply_message, *answer_message, *reply_bits, *answer_bits;
    void **reached; /* [n_in + n_out] */
} pch_peer;

typedef struct pch_negotiation {
    pchan_channel *channel;
    MPI_Comm wire;
    int n_peers;
    pch_peer *peers; /* by rank */
    unsigned char *messages;
    int64_t *node_bytes; /* [ranks of the node] */
    MPI_Request *talk;   /* [2 n_peers] */
    pch_faults faults;
    pch_connection *connection; /* in the making */
    MPI_Request *requests;      /* [operations] in the making */
    bool laid;                  /* `requests` is filled */
    int n_laid;                 /* pieces and larges used */
} pch_negotiation;

/* Makes the tables. Local. */
pchan_status pch_negotiation_begin(pch_negotiation *g, pchan_error *err);
/* Tables to all peers and from all that name this rank. Collective. */
pchan_status pch_negotiation_exchange(pch_negotiation *g, pchan_error *err);
/* Pairs them, and makes room for all that follows. Local. */
pchan_status pch_negotiation_pair(pch_negotiation *g, pchan_error *err);
/* As pch_agree; MATCH when some rank has found a fault, and channel->mismatch then lists all. Collective. */
pchan_status pch_negotiation_agree(pch_negotiation *g, pchan_status status, const pchan_error *own,
                                   pchan_error *err);
/* Replies to all peers and answers from them. */
pchan_status pch_negotiation_reply(pch_negotiation *g, pchan_error *err);
void pch_negotiation_end(pch_negotiation *g);

#endif
