/* SPDX-License-Identifier: MIT
 *
 * The allocation door: every heap block of the library is asked for here, so that
 * one place can count, and a test can make the n-th request fail.
 */
#include "pch_pure.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static pchan_allocator door = {malloc, realloc, free};
static atomic_uint_fast64_t n_requests;

void pchan_set_allocator(const pchan_allocator *allocator)
{
    const pchan_allocator standard = {malloc, realloc, free};
    door = allocator ? *allocator : standard;
}

uint64_t pchan_allocation_count(void)
{
    return atomic_load_explicit(&n_requests, memory_order_relaxed);
}

static bool product_fits(size_t n, size_t bytes_each, size_t *bytes)
{
    if (bytes_each && n > PTRDIFF_MAX / bytes_each) return false;
    *bytes = (n > 0 && bytes_each > 0) ? n * bytes_each : 1;
    return true;
}

void *pch_alloc(size_t n, size_t bytes_each)
{
    size_t bytes;
    if (!product_fits(n, bytes_each, &bytes)) return NULL;
    atomic_fetch_add_explicit(&n_requests, 1, memory_order_relaxed);
    void *block = door.malloc(bytes);
    if (block) memset(block, 0, bytes);
    return block;
}

void *pch_realloc(void *block, size_t n, size_t bytes_each)
{
    size_t bytes;
    if (!product_fits(n, bytes_each, &bytes)) return NULL;
    atomic_fetch_add_explicit(&n_requests, 1, memory_order_relaxed);
    return door.realloc(block, bytes);
}

void pch_free(void *block)
{
    if (block) door.free(block);
}
