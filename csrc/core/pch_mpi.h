/* SPDX-License-Identifier: MIT
 *
 * What the files that call MPI offer one another, under the name of the file that
 * defines it. Reading this is reading the design.
 */
#ifndef PCH_MPI_H
#define PCH_MPI_H

#ifdef PCHAN_NO_MPI
#error "include pch_mpi.h before the headers of the pure stages"
#endif
#include "../pchan.h"
#include "pch_pure.h"

/* ---- runtime.c: is MPI there, what must be freed when it goes ---- */

/* STATE unless MPI is initialised, not finalised, and this is the process that pchan started
 * in (not a forked child). `what` names the caller's operation. Local. */
pchan_status pch_runtime_check(const char *what, pchan_error *err);

/* True from the finalize callback on: MPI must not be called any more. Local. */
bool pch_runtime_is_over(void);
bool pch_runtime_is_forked(void);

/* In MPI_Finalize: what is left of the moment that all messages still on their way get together. */
int64_t pch_grace_ns(void);

/* Something that holds MPI objects. Embedded in the object; `finalize` is called once, in
 * MPI_Finalize, for those still in the list, newest first; it must free all MPI objects and
 * leave the memory to destroy. Thread-safe. */
typedef struct pch_live {
    struct pch_live *prev, *next;
    void (*finalize)(struct pch_live *live);
} pch_live;
void pch_live_add(pch_live *live, void (*finalize)(pch_live *live));
void pch_live_remove(pch_live *live);

/* Fills err with MPI's text for `code`; `what` names the call. Returns PCHAN_ERR_MPI. */
pchan_status pch_fail_mpi(pchan_error *err, int code, const char *what);
#define PCH_MPI(call, what, err) pch_mpi_status((call), (what), (err))
static inline pchan_status pch_mpi_status(int code, const char *what, pchan_error *err)
{
    return code == MPI_SUCCESS ? PCHAN_OK : pch_fail_mpi(err, code, what);
}

/* Collective over comm. Every rank gives its own status (with *own filled when it is not OK);
 * every rank returns the status of the lowest rank that failed, OK if none did, and *err then
 * holds that rank's message with "rank N: " before it on the other ranks, err->rank = N. */
pchan_status pch_agree_on(MPI_Comm comm, pchan_status status, const pchan_error *own, pchan_error *err);
/* When the agreement itself fails on one rank, the others go on, so this rank does as well: it gets OK, and the
 * next agreement of the same call fails on all ranks. Inline, so that a static analyzer sees that it is never
 * better than this rank's status. */
static inline pchan_status pch_agree(MPI_Comm comm, pchan_status status, const pchan_error *own, pchan_error *err)
{
    pchan_status all = pch_agree_on(comm, status, own, err);
    return all == PCHAN_OK ? status : all;
}

/* The end of every public call that agrees, before it gives out what it has made: its status, or that of a last
 * agreement which failed here, and which nobody can be told of. A message that does not begin with the operation
 * (`what`) gets its name. */
pchan_status pch_conclude(const char *what, pchan_status status, pchan_error *err);

/* ---- comm.c: what pchan keeps per parent communicator ---- */

/* PCH_WIRE carries connect's own talk (tags below PCH_FIRST_WIRE_TAG) and what connected channels send by MPI. */
typedef enum pch_role { PCH_CHANNELS, PCH_QREDUCES, PCH_WIRE, PCH_N_ROLES } pch_role;
enum { PCH_TABLE_TAG, PCH_REPLY_TAG, PCH_NOBODYS_TAG, PCH_FIRST_WIRE_TAG };

enum { PCH_MAX_SPARES = 64 };

typedef struct pch_comm {
    MPI_Comm dup[PCH_N_ROLES];       /* MPI_COMM_NULL until somebody needs it */
    MPI_Comm node;                   /* ranks that share memory; MPI_COMM_NULL until needed */
    MPI_Comm spares[PCH_MAX_SPARES]; /* see pch_comm_take_spare */
    uint64_t spares_taken;           /* a bit each */
    int rank, size, tag_ub;
    int64_t spin_ns;   /* how long to poll before yielding */
    int next_tag;      /* PCH_QREDUCES: equal on all ranks, as creation is collective */
    int next_wire_tag; /* PCH_WIRE: for messages to this rank */
    int references;    /* objects alive, plus 1 while the parent lives */
    struct pch_comm *next_orphan;
    pch_live live;
} pch_comm;

/* The parent's entry with dup[role] made. Collective over parent the first time for a role.
 * One reference for the caller. ARG for MPI_COMM_NULL and intercommunicators. */
pchan_status pch_comm_acquire(MPI_Comm parent, pch_role role, pch_comm **comm, pchan_error *err);
void pch_comm_release(pch_comm **comm);

/* For messages on the program's own communicator: fills rank, size, tag_ub and spin_ns. Local. */
pchan_status pch_comm_describe(MPI_Comm comm, pch_comm *facts, pchan_error *err);

/* Makes comm->node (MPI_COMM_TYPE_SHARED). Collective over the parent the first time. */
pchan_status pch_comm_node(pch_comm *comm, pchan_error *err);

/* The caller's node_comm, with an entry of its own, or (NULL) the node's ranks of comm. Collective over comm. */
pchan_status pch_comm_choose_node(pch_comm *comm, const MPI_Comm *node_comm, pch_comm **node_entry, MPI_Comm *node,
                                  pchan_error *err);
/* Makes dup[PCH_WIRE] and comm->node. Collective over the parent the first time; the parent itself may be gone. */
pchan_status pch_comm_wire(pch_comm *comm, pchan_error *err);
/* n consecutive tags for messages to this rank on dup[PCH_WIRE]; -1 when there are not so many. Local. */
int pch_comm_take_wire_tags(pch_comm *comm, int64_t n);

/* A duplicate for one object's collective calls, kept for the next one when returned. Taking is collective over
 * dup[PCH_QREDUCES], returning local: the ranks agree on one that is free on all. STATE when all are taken, MPI.
 */
pchan_status pch_comm_take_spare(pch_comm *comm, int *number, MPI_Comm *spare, pchan_error *err);
void pch_comm_return_spare(pch_comm *comm, int number);

/* n consecutive tags nobody else uses on dup[PCH_QREDUCES]. Call in the same order on all ranks. */
int pch_comm_take_tags(pch_comm *comm, int n);

/* ---- progress.c: waiting ---- */

int64_t pch_now_ns(void); /* monotonic */

/* Spin, then yield, then sleep: `pch_backoff` returns once per poll; after spin_ns it yields the processor, and
 * after 50 ms it sleeps for 50 us at a time. Returns false when timeout_ns (< 0: none) is over. */
typedef struct pch_backoff {
    int64_t start_ns, call_ns; /* first poll; first one since resume; -1: not yet */
    int64_t spin_ns, timeout_ns;
    unsigned polls;
    bool sleepy;
} pch_backoff;
void pch_backoff_init(pch_backoff *backoff, int64_t spin_ns, int64_t timeout_ns);
/* The same wait goes on in another call with its own timeout. */
void pch_backoff_resume(pch_backoff *backoff, int64_t timeout_ns);
bool pch_backoff_next(pch_backoff *backoff);

/* qreduce.c: moves all active reduce-scatters but `own` (NULL: none), for whoever waits in vain for something
 * else. */
void pch_qreduces_move(const pchan_qreduce *own);

/* ---- datatype.c ---- */

/* MPI's counts are int: more elements than this travel as one element of a datatype made of pieces.
 * A variable, so that a test can see to it with short messages. */
extern int pch_longest_count;

/* A committed type for n elements of `element` (n may exceed 2^31 - 1), or for a strided array. */
pchan_status pch_type_large(int64_t n, MPI_Datatype element, MPI_Datatype *type, pchan_error *err);
pchan_status pch_type_strided(const pchan_strided *array, MPI_Datatype *type, pchan_error *err);
/* A duplicate for a derived type, the type itself for a predefined one; *owned tells. */
pchan_status pch_type_keep(MPI_Datatype type, MPI_Datatype *kept, bool *owned, pchan_error *err);

#endif
