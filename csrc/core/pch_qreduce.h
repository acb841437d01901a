/* SPDX-License-Identifier: MIT
 *
 * The plan behind a pchan_qreduce, and the table that a strategy fills in. qreduce.c has the cycle,
 * add.c packs tiles, plan.c makes and frees plans, nodes.c deals the work, estimate.c tells sizes, agreement.c
 * ends cycles, result.c answers.
 */
#ifndef PCH_QREDUCE_H
#define PCH_QREDUCE_H

#include "pch_mpi.h" /* first, see there */

#include "pch_basis.h"
#include "pch_channel.h"
#include "pch_layout.h"
#include "pch_window.h"

/* What a cycle waits for, in order. */
typedef enum pch_phase { PCH_ARRIVE, PCH_EXCHANGE, PCH_AGREE, PCH_FINISHED } pch_phase;

enum { PCH_MAX_STEPS = 31, PCH_STRETCH = 64, PCH_BUFFER_BYTES = 64 << 20 };

typedef struct pch_strategy {
    const char *name;
    bool by_index; /* where nodes are equal, ranks with equal index within their node talk */
    /* Sizes of this rank's part, by arithmetic alone, also of plans that exist on paper only: adds to
     * bytes_held what create allocates, to bytes_sent what a cycle sends to other nodes. ARG. */
    pchan_status (*measure)(const pchan_qreduce *q, pchan_qreduce_figures *figures, pchan_error *err);
    /* Collective; may fail on some ranks only (the caller agrees). */
    pchan_status (*create)(pchan_qreduce *q, pchan_error *err);
    /* Called once a cycle, when the node's contribution is complete. */
    pchan_status (*begin)(pchan_qreduce *q, pchan_error *err);
    /* One step without waiting; *done when this rank's limbs are restored, and the parts of the
     * window it used are zero again. Sets q->first_bad. */
    pchan_status (*progress)(pchan_qreduce *q, bool *done, pchan_error *err);
    void (*destroy)(pchan_qreduce *q);
    void (*finalize)(pchan_qreduce *q); /* in MPI_Finalize; NULL where only channels hold MPI objects */
} pch_strategy;

extern const pch_strategy pch_strategy_residues, pch_strategy_restored, pch_strategy_ring, pch_strategy_ring_scan,
    pch_strategy_mpi, pch_strategy_gather;
/* plan.c */
extern const pch_strategy *const pch_strategies[];
int pch_strategy_number(const char *name); /* 0 for NULL, -1: no such */

/* Minimum of a number over all ranks in ceil(log2(size)) steps of one message each (dissemination,
 * Hensgen, Finkel and Manber 1988); also a barrier. */
typedef struct pch_agreement {
    int n_steps, step;
    int64_t sent[PCH_MAX_STEPS], received[PCH_MAX_STEPS], value;
    pchan_channel *channels[PCH_MAX_STEPS];
} pch_agreement;

struct pchan_qreduce {
    pch_live live;
    pch_comm *entry, *node_entry; /* of comm; of the user's node_comm, or NULL */
    MPI_Comm comm, node;
    int rank, size, node_rank, node_size, n_nodes;
    int *node_of;    /* [size] */
    int *members;    /* [size] ranks by node */
    int *node_first; /* [n_nodes + 1] into members */
    int *sender; /* [n_nodes][size of comm] rank of the node that contributes the node's part of an owner's slice;
                    on the owner's own node the owner */
    int tag;     /* and tag + 1, tag + 2 */
    int64_t buffer_bytes;

    const pchan_basis *basis; /* borrowed */
    pch_layout *layout;
    pch_window *window;
    int64_t first, n_local; /* own place and number of elements */
    uint64_t *limbs;        /* borrowed, [n_local][n_limbs] */
    uint64_t *stretch;      /* pack scratch [PCH_STRETCH][n_words] */
    void *restore_scratch;

    const pch_strategy *strategy;
    void *plan; /* the strategy's */
    pch_agreement agreement;

    atomic_int busy; /* pch_busy.h */
    bool active, broken, finalized, abandoned;
    pch_phase phase;
    uint64_t n_cycles;   /* started */
    uint64_t n_finished; /* also with RANGE */
    int64_t n_restored;  /* own elements that have left the window in this cycle */
    int64_t first_bad;   /* row * n + column of the first element found out of range here, or INT64_MAX */
    int64_t bad_place;   /* that was marked last, or -1 */
    pchan_error failure; /* of progress made by another object's wait */
    pchan_qreduce *next_active;
    pchan_qreduce_stats stats, last; /* being measured; of the last cycle */
};

static inline uint64_t *pch_words_at(const pchan_qreduce *q, int64_t place)
{
    return q->window->words + place * q->basis->n_words;
}

static inline int64_t pch_words_bytes(const pchan_qreduce *q, int64_t n_elements)
{
    return n_elements * q->basis->n_words * (int64_t)sizeof(uint64_t);
}

static inline int pch_sender(const pchan_qreduce *q, int node, int owner)
{
    return q->sender[(size_t)node * (size_t)q->size + (size_t)owner];
}

/* Does this rank contribute its node's part of that owner's slice? */
static inline bool pch_contributes(const pchan_qreduce *q, int owner)
{
    return pch_sender(q, q->node_of[q->rank], owner) == q->rank && pch_layout_n_owned(q->layout, owner) > 0;
}

/* plan.c */
pchan_status pch_check_options(int64_t n, const pchan_basis *basis, const pchan_qreduce_options *options,
                               pchan_error *err);
void pch_qreduce_dispose(pchan_qreduce *q);

/* nodes.c */
/* Fills node, node_of, members and what belongs to them. Collective over q->comm. */
pchan_status pch_find_nodes(pchan_qreduce *q, const MPI_Comm *node_comm, pchan_error *err);
/* The same from leaders [size]: each rank's node by its lowest rank. Local. */
pchan_status pch_number_nodes(pchan_qreduce *q, const int *leaders, pchan_error *err);
/* Fills sender; needs the nodes, the layout and the strategy. Local. */
pchan_status pch_deal_senders(pchan_qreduce *q, pchan_error *err);

/* estimate.c */
/* What a plan holds and sends on rank q->rank. Local, by arithmetic. */
pchan_status pch_measure(const pchan_qreduce *q, pchan_qreduce_figures *figures, pchan_error *err);
int64_t
pch_window_bytes(const pchan_qreduce *q); /* of this rank's node: the words, and a custom layout's places */

/* chunks.c */
int64_t pch_longest_part(const pchan_qreduce *q);  /* elements of the owner that has most */
int64_t pch_elements_sent(const pchan_qreduce *q); /* to owners on other nodes by this rank */
/* As many elements as fit, at least one, at most the longest part. */
int64_t pch_chunk_elements(int64_t fit, int64_t longest);
/* Of chunk `number` of a part of n elements. */
int64_t pch_chunk_length(int64_t n, int64_t chunk, int64_t number);
/* ARG where buffer_bytes makes too many of them. */
pchan_status pch_check_rounds(const pchan_qreduce *q, int64_t n_rounds, pchan_error *err);

/* agreement.c */
pchan_status pch_agreement_create(pchan_qreduce *q, pchan_error *err);
pchan_status pch_agreement_begin(pch_agreement *a, int64_t value, pchan_error *err);
pchan_status pch_agreement_progress(pch_agreement *a, bool *done, pchan_error *err);
void pch_agreement_destroy(pch_agreement *a);

/* qreduce.c */
/* One caller at a time: ARG for NULL, STATE for a second thread, a broken object, no MPI. */
pchan_status pch_qreduce_enter(pchan_qreduce *q, const char *what, pchan_error *err);
void pch_qreduce_leave(pchan_qreduce *q);
/* Adds what the channel sends to other nodes to the cycle's bytes_sent. */
void pch_count_sent(pchan_qreduce *q, const pchan_channel *channel);
/* The element at a place is out of range or was damaged on the way. */
void pch_mark_bad(pchan_qreduce *q, int64_t place);
/* Restores the next block of this rank's elements, of which n_summed have their final sums, into its
 * limbs, and zeroes them in the window. True when all n_local are restored. */
bool pch_qreduce_restore_own(pchan_qreduce *q, int64_t n_summed);

#endif
