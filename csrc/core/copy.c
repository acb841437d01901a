/* SPDX-License-Identifier: MIT
 *
 * A strided array into contiguous bytes and back, in row-major order of its indices.
 */
#include "pch_edge.h"

#include <string.h>

enum { MAX_DIMS = 64 };

/* n elements of `size` bytes that lie `stride` bytes apart. */
#define COPY_LINE(size)                                           \
    for (int64_t k = 0; k < n; k++, at += stride, slot += size) { \
        if (into_slot)                                            \
            memcpy(slot, at, size);                               \
        else                                                      \
            memcpy(at, slot, size);                               \
    }

static void copy_line(char *at, int64_t stride, unsigned char *slot, int64_t n, size_t size, bool into_slot)
{
    if (stride == (int64_t)size) {
        if (into_slot)
            memcpy(slot, at, (size_t)n * size);
        else
            memcpy(at, slot, (size_t)n * size);
        return;
    }
    switch (size) {
        case 1: COPY_LINE(1) break;
        case 2: COPY_LINE(2) break;
        case 4: COPY_LINE(4) break;
        case 8: COPY_LINE(8) break;
        case 16: COPY_LINE(16) break;
        default: COPY_LINE(size)
    }
}

static void move_strided(const pch_mover *mover, void *memory, unsigned char *slot, size_t bytes, bool into_slot)
{
    const pch_strides *s = (const pch_strides *)mover;
    int64_t index[MAX_DIMS] = {0};
    int inner = s->n_dims - 1;
    char *at = memory;
    for (size_t left = bytes; left > 0;) {
        int64_t n = inner < 0 ? 1 : s->shape[inner], rest = (int64_t)(left / s->element);
        if (n > rest) n = rest;
        copy_line(at, inner < 0 ? 0 : s->strides[inner], slot, n, s->element, into_slot);
        slot += (size_t)n * s->element;
        left -= (size_t)n * s->element;
        int d = inner - 1;
        for (; d >= 0; d--) { /* the next line */
            at += s->strides[d];
            if (++index[d] < s->shape[d]) break;
            at -= s->shape[d] * s->strides[d];
            index[d] = 0;
        }
        if (d < 0) return;
    }
}

void pch_strides_init(pch_strides *strides, int n_dims, const int64_t *shape, const int64_t *stride_bytes,
                      size_t element_bytes)
{
    *strides = (pch_strides){{move_strided}, n_dims, element_bytes, shape, stride_bytes};
}
