/* SPDX-License-Identifier: MIT
 *
 * The C systems of bench_channel.py: a ring over n_pairs messages each way, as a loop of start and
 * wait. Built by _native.py into a shared library together with csrc/core, called by ctypes with
 * buffers and a communicator that the other systems use as well.
 *
 * Receives come before sends, as PETSc and hypre have them; an error ends the job.
 */
#include "../../csrc/pchan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct bench_ring {
    char *out, *in;       /* n_pairs messages each */
    int64_t stride_bytes; /* from one message to the next */
    int64_t bytes;        /* of a message */
    int n_pairs;
    int one_tag; /* all pairs have tag 42, as in KokkosComm's benchmark; else each its own */
} bench_ring;

typedef struct bench_loop {
    void (*cycle)(struct bench_loop *loop);
    int n; /* requests */
    MPI_Request *requests;
    MPI_Status *statuses;
    pchan_channel *channel;
} bench_loop;

static void check(int good, const char *what)
{
    if (good) return;
    fprintf(stderr, "benchmark: %s failed\n", what);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

/* ---- raw MPI ---- */

static void cycle_waitall(bench_loop *loop)
{
    check(!MPI_Startall(loop->n, loop->requests), "MPI_Startall");
    check(!MPI_Waitall(loop->n, loop->requests, loop->statuses), "MPI_Waitall");
}

static void cycle_testall(bench_loop *loop)
{
    int done = 0;
    check(!MPI_Startall(loop->n, loop->requests), "MPI_Startall");
    while (!done) check(!MPI_Testall(loop->n, loop->requests, &done, loop->statuses), "MPI_Testall");
}

/* KokkosComm before its requests became one array: start appends every handle to a fresh array that
 * grows by doubling, sends first; wait moves its request objects (a handle and an empty list of
 * callbacks, four words) to a second array and the handles to a third, with statuses beside them. */
typedef struct request_object {
    MPI_Request request;
    void *callbacks[3];
} request_object;

static MPI_Request *append_all(const MPI_Request *requests, int n)
{
    int room = 0;
    MPI_Request *grown = NULL;
    for (int i = 0; i < n; i++) {
        if (i == room) {
            room = room ? 2 * room : 1;
            MPI_Request *bigger = malloc((size_t)room * sizeof *bigger);
            check(bigger != NULL, "malloc");
            if (grown) memcpy(bigger, grown, (size_t)i * sizeof *bigger);
            free(grown);
            grown = bigger;
        }
        grown[i] = requests[i];
    }
    return grown;
}

static void cycle_temporaries(bench_loop *loop)
{
    size_t n = (size_t)loop->n;
    MPI_Request *started = append_all(loop->requests, loop->n);
    check(!MPI_Startall(loop->n, started), "MPI_Startall");
    free(started);

    request_object *objects = malloc(n * sizeof *objects);
    MPI_Request *waited = malloc(n * sizeof *waited);
    MPI_Status *statuses = malloc(n * sizeof *statuses);
    check(objects && waited && statuses, "malloc");
    for (size_t i = 0; i < n; i++) objects[i] = (request_object){loop->requests[i], {NULL}};
    for (size_t i = 0; i < n; i++) waited[i] = objects[i].request;
    check(!MPI_Waitall(loop->n, waited, statuses), "MPI_Waitall");
    free(statuses);
    free(waited);
    free(objects);
}

static void make_requests(bench_loop *loop, const bench_ring *ring, MPI_Comm comm, int sends_first)
{
    int rank, size;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    loop->n = 2 * ring->n_pairs;
    loop->requests = malloc((size_t)loop->n * sizeof *loop->requests);
    loop->statuses = malloc((size_t)loop->n * sizeof *loop->statuses);
    check(loop->requests && loop->statuses, "malloc");
    MPI_Request *recvs = loop->requests + (sends_first ? ring->n_pairs : 0);
    MPI_Request *sends = loop->requests + (sends_first ? 0 : ring->n_pairs);
    for (int k = 0; k < ring->n_pairs; k++) {
        int tag = ring->one_tag ? 42 : k;
        check(!MPI_Recv_init(ring->in + k * ring->stride_bytes, (int)ring->bytes, MPI_BYTE,
                             (rank + size - 1) % size, tag, comm, &recvs[k]),
              "MPI_Recv_init");
        check(!MPI_Send_init(ring->out + k * ring->stride_bytes, (int)ring->bytes, MPI_BYTE, (rank + 1) % size,
                             tag, comm, &sends[k]),
              "MPI_Send_init");
    }
}

/* ---- pchan ---- */

static void cycle_pchan(bench_loop *loop)
{
    check(pchan_channel_start(loop->channel, NULL) == PCHAN_OK, "pchan_channel_start");
    check(pchan_channel_wait(loop->channel, -1, NULL) == PCHAN_OK, "pchan_channel_wait");
}

static void make_channel(bench_loop *loop, const bench_ring *ring, MPI_Comm comm)
{
    int rank, size;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    check(pchan_channel_create(comm, NULL, &loop->channel, NULL) == PCHAN_OK, "pchan_channel_create");
    for (int k = 0; k < ring->n_pairs; k++) {
        int tag = ring->one_tag ? 42 : k;
        check(pchan_channel_recv_init(loop->channel, ring->in + k * ring->stride_bytes, ring->bytes, MPI_BYTE,
                                      (rank + size - 1) % size, tag, NULL, NULL) == PCHAN_OK,
              "pchan_channel_recv_init");
        check(pchan_channel_send_init(loop->channel, ring->out + k * ring->stride_bytes, ring->bytes, MPI_BYTE,
                                      (rank + 1) % size, tag, NULL, NULL) == PCHAN_OK,
              "pchan_channel_send_init");
    }
}

/* ---- what Python calls ---- */

/* system: "waitall", "testall", "temporaries" or "pchan". comm: mpi4py's handle. Collective. */
PCHAN_API bench_loop *bench_create(const char *system, uint64_t comm, const bench_ring *ring);
PCHAN_API int64_t bench_run(bench_loop *loop, int64_t n_cycles); /* nanoseconds */
PCHAN_API void bench_destroy(bench_loop *loop);

bench_loop *bench_create(const char *system, uint64_t handle, const bench_ring *ring)
{
    MPI_Comm comm = (MPI_Comm)(uintptr_t)handle;
    bench_loop *loop = calloc(1, sizeof *loop);
    check(loop != NULL, "calloc");
    if (!strcmp(system, "pchan")) {
        loop->cycle = cycle_pchan;
        make_channel(loop, ring, comm);
    } else {
        int temporaries = !strcmp(system, "temporaries");
        loop->cycle = temporaries ? cycle_temporaries : !strcmp(system, "waitall") ? cycle_waitall : cycle_testall;
        make_requests(loop, ring, comm, temporaries);
    }
    return loop;
}

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int64_t bench_run(bench_loop *loop, int64_t n_cycles)
{
    int64_t begin_ns = now_ns();
    for (int64_t i = 0; i < n_cycles; i++) loop->cycle(loop);
    return now_ns() - begin_ns;
}

void bench_destroy(bench_loop *loop)
{
    for (int i = 0; i < loop->n; i++) MPI_Request_free(&loop->requests[i]);
    check(pchan_channel_destroy(&loop->channel, NULL) == PCHAN_OK, "pchan_channel_destroy");
    free(loop->requests);
    free(loop->statuses);
    free(loop);
}
