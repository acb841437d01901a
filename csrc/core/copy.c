/* SPDX-License-Identifier: MIT
 *
 * Copies: plain ones, and strided arrays into contiguous bytes and back in row-major order of their indices.
 */
#include "pch_edge.h"

#include <string.h>

enum { MAX_DIMS = 64 };

/* For these sizes the C library copies by `rep movsb`, which takes 15 to 20 times as long on AMD's processors
 * when the target lies a few bytes after the source modulo 4096. */
enum { REP_MOVSB_FROM = 1024, REP_MOVSB_TO = 8 << 20, PAGE = 4096 };

static bool movsb_is_slow(const void *to, const void *from, size_t n)
{
    uintptr_t ahead = ((uintptr_t)to - (uintptr_t)from) % PAGE;
    return n >= REP_MOVSB_FROM && n <= REP_MOVSB_TO && ahead > 0 && ahead < PCH_LINE;
}

void pch_copy(void *to, const void *from, size_t n)
{
    char *target = to;
    const char *source = from;
    uintptr_t t = (uintptr_t)to, s = (uintptr_t)from;
    if (n == 0) return;           /* the addresses may be NULL */
    if (t - s < n || s - t < n) { /* a message to oneself, within one array */
        memmove(to, from, n);
        return;
    }
    if (movsb_is_slow(to, from, n)) {
        for (; n >= PCH_LINE; n -= PCH_LINE, target += PCH_LINE, source += PCH_LINE) {
            memcpy(target, source, PCH_LINE);
            __asm__ volatile("" ::: "memory"); /* or the compiler makes it one memcpy again */
        }
    }
    memcpy(target, source, n);
}

/* n elements of `size` bytes that lie `stride` bytes apart. */
#define COPY_LINE(size)                                             \
    for (int64_t k = 0; k < n; k++, at += stride, slot += (size)) { \
        if (into_slot)                                              \
            memcpy(slot, at, size);                                 \
        else                                                        \
            memcpy(at, slot, size);                                 \
    }

static void copy_line(char *at, int64_t stride, unsigned char *slot, int64_t n, size_t size, bool into_slot)
{
    if (stride == (int64_t)size) {
        if (into_slot)
            pch_copy(slot, at, (size_t)n * size);
        else
            pch_copy(at, slot, (size_t)n * size);
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

static int move_strided(const pch_mover *mover, void *memory, unsigned char *slot, size_t bytes, bool into_slot)
{
    const pch_strides *s = (const pch_strides *)mover;
    int64_t index[MAX_DIMS] = {0};
    int inner = s->n_dims - 1;
    char *at = memory;
    for (size_t left = bytes; left > 0;) {
        int64_t n = inner < 0 ? 1 : s->shape[inner], rest = (int64_t)(left / s->element);
        int64_t stride = inner < 0 ? 0 : s->strides[inner];
        bool ends_here = n > rest;
        if (ends_here) n = rest;
        copy_line(at, stride, slot, n, s->element, into_slot);
        slot += (size_t)n * s->element;
        left -= (size_t)n * s->element;
        if (ends_here) { /* in the midst of an element */
            copy_line(at + n * stride, 0, slot, 1, left, into_slot);
            return 0;
        }
        int d = inner - 1;
        for (; d >= 0; d--) { /* the next line */
            at += s->strides[d];
            // NOLINTNEXTLINE(clang-analyzer-security.ArrayBound): n_dims is at most MAX_DIMS
            if (++index[d] < s->shape[d]) break;
            at -= s->shape[d] * s->strides[d];
            index[d] = 0;
        }
        if (d < 0) return 0;
    }
    return 0;
}

void pch_strides_init(pch_strides *strides, int n_dims, const int64_t *shape, const int64_t *stride_bytes,
                      size_t element_bytes)
{
    *strides = (pch_strides){{move_strided}, n_dims, element_bytes, shape, stride_bytes};
}
