/* SPDX-License-Identifier: MIT
 *
 * How connect comes to an agreement: the tables that ranks send one another, how they are paired, and
 * which transport a pair gets. Pure: what is read here came from another process, and is checked.
 */
#ifndef PCH_CONNECT_H
#define PCH_CONNECT_H

#include "pch_pure.h"

enum { PCH_NAME_BYTES = 24, PCH_STATED_DIMS = 8 };

typedef enum pch_flag {
    PCH_DENSE = 1,   /* contiguous memory, in the order in which it travels */
    PCH_MOVABLE = 2, /* this end can move it into and out of contiguous bytes */
    PCH_WILDCARD = 4
} pch_flag;

/* One operation, as told to its peer. */
typedef struct pch_row {
    int64_t kind, peer, tag, index;
    int64_t bytes, unit; /* of the message or the room for it; of one repetition of the datatype */
    int64_t flags;
    uint64_t signature; /* equal for equal element types; 0: no elements */
    uint64_t address;
    uint64_t segment, offset; /* in shared memory: its token, 0 for none; place in it */
    int64_t n_dims, column_major;
    int64_t shape[PCH_STATED_DIMS];
    char element[PCH_NAME_BYTES];
} pch_row;

typedef enum pch_mode { PCH_AUTO, PCH_ALL_MPI, PCH_ALL_SHM, PCH_ALL_CMA, PCH_ALL_BUNDLE } pch_mode;

typedef struct pch_head {
    uint64_t magic;
    int64_t n_rows;
    int64_t pid;
    uint64_t probe_address, probe_value; /* to try process_vm_readv on */
    int64_t cma;                         /* may be tried */
    int64_t mode, shm_bytes, bundle_bytes;
} pch_head;

/* Rows for one peer: first the sends, then the receives, each by (tag, index). */
typedef struct pch_table {
    const pch_head *head;
    const pch_row *sends, *recvs;
    int64_t n_sends, n_recvs;
} pch_table;

typedef struct pch_pair {
    const pch_row *send, *recv;
} pch_pair;

/* What connect says when it fails: a growing text. */
typedef struct pch_faults {
    int64_t count;
    size_t used;
    char text[8192];
} pch_faults;

/* This process' mode and thresholds, from the environment. */
void pch_connect_settings(pch_head *head);

void pch_rows_sort(pch_row *rows, size_t n);

/* A table out of `bytes` that came from `peer` for `rank`; false when they are not one. */
bool pch_table_read(const void *data, size_t bytes, int64_t rank, pch_table *table);

/* Pairs the sends of rank `from` with the receives of rank `to`; pairs has room for the smaller number.
 * Faults are appended by the end whose turn it is: unpaired sends and pairs that do not fit where
 * tell_sends, unpaired receives where tell_recvs. Returns the number of pairs. */
int64_t pch_pair_up(const pch_row *sends, int64_t n_sends, const pch_row *recvs, int64_t n_recvs, int from, int to,
                    bool tell_sends, bool tell_recvs, pch_pair *pairs, pch_faults *faults);

/* A fault of this rank's operation alone. */
void pch_fault_row(pch_faults *faults, const pch_row *row, int rank, const char *why);

/* The transport of a pair, before it is known who can reach whose memory (PCHAN_BY_CMA then stands for any
 * single copy). `head` is the sender's. */
pchan_transport pch_choose(const pch_pair *pair, const pch_head *head, bool same_node);

#endif
