/* SPDX-License-Identifier: MIT */
#ifndef PCH_SEGMENT_H
#define PCH_SEGMENT_H

#include "pch_window.h"

/* A mapping of node-shared memory, known in this process by the token that all ranks of the node see. */
typedef struct pch_segment pch_segment;

/* Does a buffer lie in one? Then which, and where in it. Local. */
bool pch_segment_find(const void *address, size_t bytes, uint64_t *token, uint64_t *offset);

/* The segment with that token, and the address here of `bytes` at `offset`; NULL when it is not mapped or
 * too short. The caller puts it back. Local. */
pch_segment *pch_segment_get(uint64_t token, uint64_t offset, size_t bytes, void **address);
void pch_segment_put(pch_segment *segment);

#endif
