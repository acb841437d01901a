/* SPDX-License-Identifier: MIT
 * Strided arrays into contiguous bytes and back, against a walk over all indices; memory outside the array must
 * stay as it was. Plain copies of every size and alignment that is treated apart. */
#include "../core/pch_edge.h"
#include "testing.h"

#include <string.h>

enum { MOST_DIMS = 5, ARENA = 1 << 16, MOST_BYTES = 1 << 14 };

typedef struct array {
    int n_dims;
    int64_t shape[MOST_DIMS], strides[MOST_DIMS];
    size_t element;
    int64_t first, n; /* place of index 0 in the arena; elements */
    bool overlaps;    /* some stride is 0: only to be read */
} array;

static void random_bytes(unsigned char *to, size_t n, uint64_t *seed)
{
    for (size_t k = 0; k < n; k++) to[k] = (unsigned char)random_u64(seed);
}

/* Axes in any order of memory, with gaps, backwards, or repeated. */
static void random_array(array *a, uint64_t *seed)
{
    static const size_t elements[] = {1, 2, 3, 4, 8, 12, 16, 24};
    int order[MOST_DIMS];
    *a = (array){
        .n_dims = (int)(random_u64(seed) % (MOST_DIMS + 1)), .element = elements[random_u64(seed) % 8], .n = 1};
    for (int d = 0; d < a->n_dims; d++) {
        int other = (int)(random_u64(seed) % (unsigned)(d + 1));
        order[d] = order[other];
        order[other] = d;
    }
    int64_t step = (int64_t)a->element, low = 0;
    for (int k = 0; k < a->n_dims; k++) {
        int d = order[k];
        uint64_t dice = random_u64(seed);
        a->shape[d] = dice % 16 == 0 ? 0 : 1 + (int64_t)(dice / 16 % 5);
        a->n *= a->shape[d];
        if (dice / 128 % 4 == 0) step += (int64_t)(dice / 512 % 3 * (dice & 1 ? 1 : a->element));
        a->strides[d] = step;
        step *= a->shape[d] + !a->shape[d];
        if (dice / 4096 % 4 == 0) a->strides[d] = -a->strides[d];
        if (dice / 16384 % 16 == 0) a->strides[d] = 0;
        a->overlaps |= a->strides[d] == 0 && a->shape[d] > 1;
        if (a->strides[d] < 0 && a->shape[d] > 0) low += a->strides[d] * (a->shape[d] - 1);
    }
    a->first = 64 - low;
}

/* The slow way: byte k of the array in row-major order of the indices. */
static int64_t place_of(const array *a, int64_t k)
{
    int64_t at = a->first + k % (int64_t)a->element, element = k / (int64_t)a->element;
    for (int d = a->n_dims - 1; d >= 0; d--) {
        at += element % a->shape[d] * a->strides[d];
        element /= a->shape[d];
    }
    return at;
}

static void check_array(uint64_t seed)
{
    static unsigned char arena[ARENA], before[ARENA], slot[MOST_BYTES + 2], expected[MOST_BYTES + 2];
    uint64_t start = seed;
    array a;
    pch_strides s;
    do random_array(&a, &seed);
    while ((size_t)a.n * a.element > MOST_BYTES);
    pch_strides_init(&s, a.n_dims, a.shape, a.strides, a.element);
    size_t all = (size_t)a.n * a.element, bytes = random_u64(&seed) % 2 ? all : random_u64(&seed) % (all + 1);

    random_bytes(arena, sizeof arena, &seed);
    random_bytes(slot, sizeof slot, &seed);
    memcpy(before, arena, sizeof arena);
    memcpy(expected, slot, sizeof slot);
    for (size_t k = 0; k < bytes; k++) expected[1 + k] = arena[place_of(&a, (int64_t)k)];
    s.mover.move(&s.mover, arena + a.first, slot + 1, bytes, true);
    CHECK(memcmp(slot, expected, sizeof slot) == 0, "seed %llu: into the slot", (unsigned long long)start);
    CHECK(memcmp(arena, before, sizeof arena) == 0, "seed %llu: it was only to be read",
          (unsigned long long)start);
    if (a.overlaps) return;

    random_bytes(slot, sizeof slot, &seed);
    memcpy(expected, slot, sizeof slot);
    for (size_t k = 0; k < bytes; k++) before[place_of(&a, (int64_t)k)] = slot[1 + k];
    s.mover.move(&s.mover, arena + a.first, slot + 1, bytes, false);
    CHECK(memcmp(arena, before, sizeof arena) == 0, "seed %llu: out of the slot", (unsigned long long)start);
    CHECK(memcmp(slot, expected, sizeof slot) == 0, "seed %llu: the slot was only to be read",
          (unsigned long long)start);
}

static void check_copy(size_t to, size_t from, size_t n)
{
    static unsigned char target[ARENA], expected[ARENA], source[ARENA];
    uint64_t seed = n;
    random_bytes(source, from + n, &seed);
    memset(target, 0xa5, to + n + 1);
    memset(expected, 0xa5, to + n + 1);
    for (size_t k = 0; k < n; k++) expected[to + k] = source[from + k];
    pch_copy(target + to, source + from, n);
    CHECK(memcmp(target, expected, to + n + 1) == 0, "%zu bytes from %zu to %zu", n, from, to);
}

/* A message to oneself within one array: memmove's business. */
static void check_overlap(int64_t shift, size_t n)
{
    static unsigned char is[ARENA], expected[ARENA];
    uint64_t seed = n;
    random_bytes(is, sizeof is, &seed);
    memcpy(expected, is, sizeof is);
    for (size_t k = 0; k < n; k++) expected[8192 + shift + (int64_t)k] = is[8192 + k];
    pch_copy(is + 8192 + shift, is + 8192, n);
    CHECK(memcmp(is, expected, sizeof is) == 0, "%zu bytes by %lld", n, (long long)shift);
}

int main(void)
{
    for (uint64_t seed = 1; seed <= 3000; seed++) check_array(seed);
    const size_t sizes[] = {0, 1, 63, 64, 65, 1023, 1024, 1025, 1087, 1088, 4096, 5000, 20000};
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        for (size_t to = 0; to < 140; to += 1 + to / 8) {
            for (size_t from = 0; from < 140; from += 1 + from / 8) check_copy(to, from, sizes[k]);
        }
        for (int64_t shift = -4100; shift <= 4100; shift += 41) check_overlap(shift, sizes[k]);
        for (int64_t shift = -3; shift <= 3; shift++) check_overlap(shift, sizes[k]);
    }
    pch_copy(NULL, NULL, 0);
    return 0;
}
