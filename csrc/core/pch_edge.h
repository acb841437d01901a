/* SPDX-License-Identifier: MIT
 *
 * An edge: all messages of one connected channel from one rank to another of the same node, through
 * shared memory. docs/connect.md has the protocol, with the reasons why nothing is lost, overwritten or
 * waited for in vain; docs/connect.pml is its model.
 *
 * Cycles are numbered from 1. Small messages are copied into a slot by the sender's start and out of it
 * by the receiver. Large ones are copied once, straight from buffer to buffer, by whichever end is first
 * to see that both have started.
 */
#ifndef PCH_EDGE_H
#define PCH_EDGE_H

#include "pch_pure.h"

#include <stdatomic.h>
#include <sys/types.h>

/* ---- in shared memory, zero at first; one region per edge ---- */

enum { PCH_LINE = 64, PCH_FEWEST_SLOTS = 2, PCH_MOST_SLOTS = 4 };

typedef struct pch_control {                      /* written by the receiver only */
    _Alignas(PCH_LINE) _Atomic uint64_t consumed; /* last cycle taken out of its slot */
    _Atomic uint64_t ready;                       /* last cycle whose receives have started */
} pch_control;

typedef struct pch_slot {                          /* written by the sender only; cycle c uses slot c % n_slots */
    _Alignas(PCH_LINE) _Atomic uint64_t published; /* cycle whose messages it holds, or PCH_SLOT_FAILED */
    unsigned char data[];
} pch_slot;

/* With the cycle in `published`: the sender could not pack a message, and the slot holds none. */
#define PCH_SLOT_FAILED ((uint64_t)1 << 63)

typedef struct pch_claim {                       /* of one large message; written by both */
    _Alignas(PCH_LINE) _Atomic uint64_t claimed; /* last cycle that one end has undertaken to copy */
    _Atomic uint64_t done;                       /* last cycle copied */
    _Atomic int error;                           /* errno of that copy */
} pch_claim;

/* ---- in private memory ---- */

/* A receiver that waits copies; only when it has started and not copied for so many polls the sender does. Copies
 * by turns would move the cache lines of both buffers from core to core. */
enum { PCH_POLLS_FOR_RECEIVER = 32 };

enum { PCH_SENDER_FAILED = -1 }; /* a code no MPI has */

/* How a message that is not contiguous in memory gets into a slot and out of it: the first `bytes` of it,
 * in the order in which it travels. 0, or a code of the failure. */
typedef struct pch_mover pch_mover;
struct pch_mover {
    int (*move)(const pch_mover *mover, void *memory, unsigned char *slot, size_t bytes, bool into_slot);
};

typedef struct pch_piece { /* a small message */
    void *memory;
    const pch_mover *mover; /* NULL: contiguous */
    size_t offset, bytes;   /* in the slot's data; what travels */
} pch_piece;

typedef struct pch_large {
    void *local;
    void *reach;     /* the peer's buffer as mapped here; NULL: by system call */
    uint64_t remote; /* its address in the peer */
    pid_t pid;
    size_t bytes;
    bool done; /* in this cycle */
    int error; /* errno of this cycle's copy */
    pch_claim *claim;
} pch_large;

typedef struct pch_edge {
    int n_pieces, n_larges, n_slots;
    size_t slot_bytes; /* of a slot with its header */
    pch_control *control;
    unsigned char *slots;
    pch_piece *pieces;
    pch_large *larges;
    uint64_t consumed_seen; /* outgoing: what `consumed` was when last read */
    uint64_t failed;        /* last cycle in which a message failed */
    int n_larges_left;      /* in this cycle */
    int code;               /* then: why its small messages have, all of them; 0: they have not */
    int polls_left;         /* outgoing: until the sender may copy large messages */
    bool passed;            /* in this cycle. Incoming: slot emptied. Outgoing: the next start has a slot. */
} pch_edge;

/* Where the next message of a slot (or of a bundle) goes: at its natural alignment after what is *used. */
static inline size_t pch_slot_place(size_t *used, size_t bytes)
{
    size_t align = bytes >= 8 ? 8 : bytes >= 4 ? 4 : bytes >= 2 ? 2 : 1;
    size_t offset = (*used + align - 1) / align * align;
    *used = offset + bytes;
    return offset;
}

/* Copies messages into a slot's data, or out of it. 0, or the code of the first that failed; those after it stay.
 */
int pch_pieces_move(const pch_piece *pieces, int n, unsigned char *data, bool into_data);

/* Slots for messages of data_bytes in all, and the size of the region. */
void pch_edge_plan(size_t data_bytes, int n_larges, pch_edge *edge, size_t *region_bytes);
/* Lays the edge, planned as above, over its region, which is aligned to PCH_LINE. */
void pch_edge_place(pch_edge *edge, void *region);

/* The cycle, sender's end: start copies and publishes and never waits. poll returns true when the
 * messages have left this end's buffers and the next start will find a free slot. */
void pch_edge_start_out(pch_edge *edge, uint64_t cycle);
bool pch_edge_poll_out(pch_edge *edge, uint64_t cycle);
/* Receiver's end. poll returns true when all messages have arrived. */
void pch_edge_start_in(pch_edge *edge, uint64_t cycle);
bool pch_edge_poll_in(pch_edge *edge, uint64_t cycle);

/* ---- copy.c ---- */

/* memmove, but fast for every alignment. */
void pch_copy(void *to, const void *from, size_t n);

/* A strided array's way into a slot and out of it. */
typedef struct pch_strides {
    pch_mover mover; /* first */
    int n_dims;
    size_t element; /* bytes */
    const int64_t *shape, *strides;
} pch_strides;
void pch_strides_init(pch_strides *strides, int n_dims, const int64_t *shape, const int64_t *stride_bytes,
                      size_t element_bytes);

/* ---- cma.c: another process' memory (cross memory attach) ---- */

/* Copies between this process and `pid`; 0 or an errno. Local. */
int pch_cma_copy(pid_t pid, void *local, uint64_t remote, size_t bytes, bool to_remote);
/* False where PCHAN_CMA=0 forbids it. */
bool pch_cma_allowed(void);

#endif
