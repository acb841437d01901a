/* SPDX-License-Identifier: MIT
 *
 * Memory that all ranks of a node map, with what they need to share it: a counter per rank and locks.
 */
#ifndef PCH_WINDOW_H
#define PCH_WINDOW_H

#include "pch_mpi.h"

#include <stdatomic.h>

enum { PCH_N_LOCKS = 256, PCH_CACHE_LINE = 64 };

typedef struct pch_padded {
    _Alignas(PCH_CACHE_LINE) _Atomic uint64_t value;
} pch_padded;

typedef struct pch_window {
    void *mapping;
    size_t mapped_bytes;
    pch_padded *counters; /* [ranks of the node] */
    pch_padded *locks;    /* [PCH_N_LOCKS] */
    uint64_t *words;      /* zero at first */
} pch_window;

/* `bytes` of zeroed memory mapped by all ranks of node, page-aligned; its first PCH_CACHE_LINE bytes hold a
 * random token of 16 bytes. munmap frees it. Collective over node; fails on all of its ranks or on none.
 * `named` takes the file in /dev/shm at once instead of when nothing else works. NOMEM, SYSTEM, MPI. */
pchan_status pch_share(MPI_Comm node, int64_t bytes, bool named, void **mapping, pchan_error *err);

/* The same with counters and locks. */
pchan_status pch_window_create(MPI_Comm node, int64_t words_bytes, bool named, pch_window **window,
                               pchan_error *err);

/* Local: the memory goes when the last rank lets go. */
void pch_window_destroy(pch_window **window);

void pch_window_lock(pch_window *window, size_t number);
void pch_window_unlock(pch_window *window, size_t number);

/* memory.c: bytes that this process can still get, as far as the system tells. */
int64_t pch_available_bytes(void);

#endif
