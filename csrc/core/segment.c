/* SPDX-License-Identifier: MIT
 *
 * Memory for arrays that all ranks of a node map (pchan_shared), and the list of it in this process:
 * connect looks up whether a buffer lies there, and where a peer's buffer is mapped here. A mapping goes
 * with its last user: the owner of this rank's part, or a connected channel.
 */
#include "pch_segment.h"

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

enum { PAGE = 4096 };

struct pch_segment {
    char *base;
    size_t bytes;
    uint64_t token;
    int references;
    pch_segment *next;
};

struct pchan_shared {
    pch_segment *segment;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pch_segment *segments;

static void add_segment(pch_segment *segment)
{
    pthread_mutex_lock(&lock);
    segment->next = segments;
    segments = segment;
    pthread_mutex_unlock(&lock);
}

void pch_segment_put(pch_segment *segment)
{
    pthread_mutex_lock(&lock);
    int left = --segment->references;
    pch_segment **place = &segments;
    while (left == 0 && *place != segment) place = &(*place)->next;
    if (left == 0) *place = segment->next;
    pthread_mutex_unlock(&lock);
    if (left > 0) return;
    munmap(segment->base, segment->bytes);
    pch_free(segment);
}

bool pch_segment_find(const void *address, size_t bytes, uint64_t *token, uint64_t *offset)
{
    bool found = false;
    pthread_mutex_lock(&lock);
    for (const pch_segment *s = segments; s && !found; s = s->next) {
        uintptr_t first = (uintptr_t)address, base = (uintptr_t)s->base;
        found = first >= base && bytes <= s->bytes && first - base <= s->bytes - bytes;
        if (found) *token = s->token;
        if (found) *offset = first - base;
    }
    pthread_mutex_unlock(&lock);
    return found;
}

pch_segment *pch_segment_get(uint64_t token, uint64_t offset, size_t bytes, void **address)
{
    pthread_mutex_lock(&lock);
    pch_segment *s = segments;
    while (s && s->token != token) s = s->next;
    if (s && bytes <= s->bytes && offset <= s->bytes - bytes) {
        s->references++;
        *address = s->base + offset;
    } else {
        s = NULL;
    }
    pthread_mutex_unlock(&lock);
    return s;
}

/* Where this rank's part of `bytes` begins, and the size of all parts. Collective over node. */
static pchan_status place_parts(MPI_Comm node, int64_t bytes, int64_t *offset, int64_t *total, pchan_error *err)
{
    int64_t room = bytes / PAGE * PAGE + PAGE, end = 0;
    int scan = MPI_Scan(&room, &end, 1, MPI_INT64_T, MPI_SUM, node);
    int sum = MPI_Allreduce(&room, total, 1, MPI_INT64_T, MPI_SUM, node); /* also when the other one has failed */
    *offset = PAGE + end - room;
    *total += PAGE;
    return PCH_MPI(scan ? scan : sum, scan ? "MPI_Scan" : "MPI_Allreduce", err);
}

/* A rank that fails locally takes part all the same, so that all fail. */
pchan_status pchan_shared_create(MPI_Comm comm, int64_t bytes, pchan_shared **out, void **address,
                                 pchan_error *err)
{
    pch_comm *entry = NULL;
    pchan_shared *shared = NULL;
    pch_segment *segment = NULL;
    void *mapping = NULL;
    int64_t offset = 0, total = 0;
    pchan_error own = {0};
    *out = NULL;
    *address = NULL;
    pchan_status status;
    PCH_TRY(pch_comm_acquire(comm, PCH_CHANNELS, &entry, err));
    PCH_TRY(pch_comm_wire(entry, err));
    if (bytes < 0 || bytes > (int64_t)1 << 50) {
        status = pch_fail(&own, PCHAN_ERR_ARG, "empty: %lld bytes of shared memory", (long long)bytes);
    } else if ((status = PCH_ALLOC(shared, 1, &own)) == PCHAN_OK) {
        status = PCH_ALLOC(segment, 1, &own);
    }
    PCH_TRY(pch_agree(entry->dup[PCH_WIRE], status, &own, err));
    PCH_TRY(pch_agree(entry->dup[PCH_WIRE], place_parts(entry->node, bytes, &offset, &total, &own), &own, err));
    status = pch_share(entry->node, total, false, &mapping, &own);
    PCH_TRY(pch_conclude("empty", pch_agree(entry->dup[PCH_WIRE], status, &own, err), err));
    *segment = (pch_segment){.base = mapping, .bytes = (size_t)total, .references = 1};
    memcpy(&segment->token, mapping, sizeof segment->token);
    add_segment(segment);
    shared->segment = segment;
    *address = segment->base + offset;
    *out = shared;
done:
    if (status != PCHAN_OK) {
        if (mapping) munmap(mapping, (size_t)total);
        pch_free(segment);
        pch_free(shared);
    }
    pch_comm_release(&entry);
    return pch_conclude("empty", status, err);
}

void pchan_shared_destroy(pchan_shared **shared)
{
    if (!shared || !*shared) return;
    pch_segment_put((*shared)->segment);
    pch_free(*shared);
    *shared = NULL;
}
