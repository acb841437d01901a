/* SPDX-License-Identifier: MIT
 *
 * The channel's struct, shared by channel.c (registration, lifetime) and cycle.c (start to end).
 *
 * Everything is indexed by operation. `requests` is passed to MPI in place, never copied, because
 * an MPI may replace a handle when it starts it (mpi-forum #270). Operations with MPI_PROC_NULL
 * have MPI_REQUEST_NULL and never reach MPI (MPICH #5053, #5117 hung on them).
 */
#ifndef PCH_CHANNEL_H
#define PCH_CHANNEL_H

#include "pch_mpi.h"

#include "pch_busy.h"
#include "pch_connect.h"
#include "pch_connection.h"

typedef struct pch_operation {
    pchan_kind kind;
    int peer, tag;
    int64_t bytes;
    MPI_Datatype type_owned; /* MPI_DATATYPE_NULL: nothing to free */
    bool done;               /* kept only while the channel is in one-by-one mode */
    int mpi_code;            /* error of this cycle */
    int system_code;         /* errno of this cycle, when a copy between processes failed */
} pch_operation;

/* What connect needs to know of an operation beyond that; apart, because no cycle looks at it. */
typedef struct pch_detail {
    void *buf;
    int count;
    MPI_Datatype type;
    int n_dims; /* of a strided array; -1: count elements of type */
    int64_t element_bytes;
    int64_t *dims;                /* shape, then strides in bytes; owned */
    char element[PCH_NAME_BYTES]; /* as described by the caller; "" */
    int stated_dims;
    bool column_major;
    int64_t stated_shape[PCH_STATED_DIMS];
} pch_detail;

/* A stretch of `requests` that one MPI_Startall may start: its operations are of one kind and
 * no two of them can match the same message, since MPI_Startall starts in any order. */
typedef struct pch_run {
    int first, count;
} pch_run;

struct pchan_channel {
    pch_live live;
    pch_comm *entry; /* NULL with shared_comm, until connected */
    MPI_Comm comm;
    int rank, size, tag_ub;
    int64_t spin_ns;

    int n, capacity, n_real; /* operations; room; those with an MPI request */
    pch_operation *operations;
    pch_detail *details;
    MPI_Request *requests;
    MPI_Status *statuses;
    pch_run *runs; /* receives first, then sends */
    int n_runs;
    bool runs_current;
    int last_recv;     /* the receive that is started last; -1: none */
    bool last_is_done; /* in this cycle, and last_status is its status */
    MPI_Status last_status;

    pch_connection *connection; /* NULL: every message by MPI */
    char *mismatch;             /* what the last connect found; NULL: nothing */
    unsigned idle_polls;
    pch_backoff backoff; /* of this cycle's waits */

    atomic_int busy; /* pch_busy.h */
    bool active, finalized, abandoned, broken;
    bool requests_done; /* in this cycle */
    int64_t n_cycles;   /* finished ones */

    /* one-by-one mode: after wait_any, a timeout or an error each operation is tested for itself, because
     * MPI_Testall would overwrite the statuses of what is done already */
    bool one_by_one;
    int n_left;                   /* not done */
    int *ready, n_ready, n_taken; /* done, in order of completion; those wait_any has given out */
};

/* channel.c */
pchan_status pch_channel_enter(pchan_channel *channel, const char *what, pchan_error *err);
void pch_channel_leave(pchan_channel *channel);
/* "operation 3 (recv from 1, tag 7, 800 bytes)" into text */
void pch_operation_text(const pchan_channel *channel, int index, char *text, size_t size);
/* A persistent request for the operation, under a tag on a communicator. MPI. */
pchan_status pch_operation_make_request(const pch_operation *op, const pch_detail *detail, int tag, MPI_Comm comm,
                                        MPI_Request *request, pchan_error *err);
void pch_operation_free_request(pchan_channel *channel, int index);

/* connect.c: as a part of another collective call, which agrees afterwards and concludes. */
pchan_status pch_channel_connect(pchan_channel *channel, pchan_error *err);

/* cycle.c */
void pch_channel_finish_at_finalize(pchan_channel *channel);

#endif
