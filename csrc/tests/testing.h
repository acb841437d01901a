/* SPDX-License-Identifier: MIT
 *
 * The C tests' few helpers: silent on success, file, line and reason on failure.
 */
#ifndef PCHAN_TESTING_H
#define PCHAN_TESTING_H

#include "../core/pch_pure.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(condition, ...)                                                   \
    do {                                                                        \
        if (!(condition)) {                                                     \
            fprintf(stderr, "%s:%d: %s\n    ", __FILE__, __LINE__, #condition); \
            fprintf(stderr, __VA_ARGS__);                                       \
            fputc('\n', stderr);                                                \
            exit(1);                                                            \
        }                                                                       \
    } while (0)

/* Random 64-bit numbers (splitmix64, Steele, Lea and Flood 2014), reproducible from a seed. */
static inline uint64_t random_u64(uint64_t *seed)
{
    uint64_t z = (*seed += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* An allocation door whose n-th request fails, and that counts the blocks in use. */
static long allocations_left = -1, blocks_in_use, allocations_refused;

static inline void *refuse(void)
{
    allocations_refused++;
    return NULL;
}

static inline void *door_malloc(size_t bytes)
{
    if (allocations_left == 0) return refuse();
    allocations_left--;
    blocks_in_use++;
    return malloc(bytes);
}

static inline void *door_realloc(void *block, size_t bytes)
{
    if (allocations_left == 0) return refuse();
    allocations_left--;
    if (!block) blocks_in_use++;
    return realloc(block, bytes);
}

static inline void door_free(void *block)
{
    blocks_in_use--;
    free(block);
}

static const pchan_allocator counting_door = {door_malloc, door_realloc, door_free};

#endif
