/* SPDX-License-Identifier: MIT
 *
 * The C systems of bench_channel.py: persistent messages in one or more phases, as a loop of start and wait
 * of each phase. Built by _native.py into a shared library together with csrc/core, called by ctypes with
 * buffers, datatypes and a communicator that the other systems use as well.
 *
 * Messages are registered in the order given (receives before sends, as PETSc and hypre have them); an error
 * ends the job.
 */
#include "../../csrc/pchan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct bench_message {
    void *buffer;
    int64_t count;     /* of datatype */
    uint64_t datatype; /* mpi4py's handle */
    int peer, tag;
    int is_send;
    int phase; /* ascending */
} bench_message;

typedef struct bench_phase {
    int n; /* requests */
    MPI_Request *requests;
    MPI_Status *statuses;
    pchan_channel *channel;
} bench_phase;

typedef struct bench_loop {
    void (*cycle)(bench_phase *phase);
    int n_phases;
    bench_phase *phases;
} bench_loop;

static void check(int good, const char *what)
{
    if (good) return;
    fprintf(stderr, "benchmark: %s failed\n", what);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static void *room(size_t n, size_t bytes)
{
    void *memory = calloc(n ? n : 1, bytes);
    check(memory != NULL, "calloc");
    return memory;
}

/* ---- raw MPI ---- */

/* Open MPI refuses to start no request at all, which the rank has that a ping-pong leaves out */
static void start_all(int n, MPI_Request *requests)
{
    if (n) check(!MPI_Startall(n, requests), "MPI_Startall");
}

static void cycle_waitall(bench_phase *phase)
{
    start_all(phase->n, phase->requests);
    check(!MPI_Waitall(phase->n, phase->requests, phase->statuses), "MPI_Waitall");
}

static void cycle_testall(bench_phase *phase)
{
    int done = 0;
    start_all(phase->n, phase->requests);
    while (!done) check(!MPI_Testall(phase->n, phase->requests, &done, phase->statuses), "MPI_Testall");
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
    int size = 0;
    MPI_Request *grown = NULL;
    for (int i = 0; i < n; i++) {
        if (i == size) {
            size = size ? 2 * size : 1;
            MPI_Request *bigger = malloc((size_t)size * sizeof *bigger);
            check(bigger != NULL, "malloc");
            if (grown) memcpy(bigger, grown, (size_t)i * sizeof *bigger);
            free(grown);
            grown = bigger;
        }
        grown[i] = requests[i];
    }
    return grown;
}

static void cycle_temporaries(bench_phase *phase)
{
    size_t n = (size_t)phase->n;
    MPI_Request *started = append_all(phase->requests, phase->n);
    start_all(phase->n, started);
    free(started);

    request_object *objects = malloc(n * sizeof *objects);
    MPI_Request *waited = malloc(n * sizeof *waited);
    MPI_Status *statuses = malloc(n * sizeof *statuses);
    check(objects && waited && statuses, "malloc");
    for (size_t i = 0; i < n; i++) objects[i] = (request_object){phase->requests[i], {NULL}};
    for (size_t i = 0; i < n; i++) waited[i] = objects[i].request;
    check(!MPI_Waitall(phase->n, waited, statuses), "MPI_Waitall");
    free(statuses);
    free(waited);
    free(objects);
}

/* One persistent request a message, sends before receives where asked. */
static void make_requests(bench_phase *phase, const bench_message *messages, MPI_Comm comm, int sends_first)
{
    phase->requests = room((size_t)phase->n, sizeof *phase->requests);
    phase->statuses = room((size_t)phase->n, sizeof *phase->statuses);
    int place = 0;
    for (int pass = 0; pass < 2; pass++) {
        for (int k = 0; k < phase->n; k++) {
            const bench_message *m = &messages[k];
            if (m->is_send != (pass ^ sends_first)) continue;
            MPI_Datatype type = (MPI_Datatype)(uintptr_t)m->datatype;
            MPI_Request *request = &phase->requests[place++];
            int count = (int)m->count, failed;
            if (m->is_send) {
                failed = MPI_Send_init(m->buffer, count, type, m->peer, m->tag, comm, request);
            } else {
                failed = MPI_Recv_init(m->buffer, count, type, m->peer, m->tag, comm, request);
            }
            check(!failed, "MPI_Send_init, MPI_Recv_init");
        }
    }
}

/* ---- pchan ---- */

static void cycle_pchan(bench_phase *phase)
{
    check(pchan_channel_start(phase->channel, NULL) == PCHAN_OK, "pchan_channel_start");
    check(pchan_channel_wait(phase->channel, -1, NULL) == PCHAN_OK, "pchan_channel_wait");
}

static void make_channel(bench_phase *phase, const bench_message *messages, MPI_Comm comm)
{
    check(pchan_channel_create(comm, NULL, &phase->channel, NULL) == PCHAN_OK, "pchan_channel_create");
    for (int k = 0; k < phase->n; k++) {
        const bench_message *m = &messages[k];
        MPI_Datatype type = (MPI_Datatype)(uintptr_t)m->datatype;
        pchan_status status =
            m->is_send
                ? pchan_channel_send_init(phase->channel, m->buffer, m->count, type, m->peer, m->tag, NULL, NULL)
                : pchan_channel_recv_init(phase->channel, m->buffer, m->count, type, m->peer, m->tag, NULL, NULL);
        check(status == PCHAN_OK, "pchan_channel_send_init, pchan_channel_recv_init");
    }
}

/* ---- what Python calls ---- */

/* system: "waitall", "testall", "temporaries" or "pchan". comm: mpi4py's handle. Collective. */
PCHAN_API bench_loop *bench_create(const char *system, uint64_t comm, int n_phases, int n,
                                   const bench_message *messages);
PCHAN_API int64_t bench_run(bench_loop *loop, int64_t n_cycles); /* nanoseconds */
PCHAN_API void bench_destroy(bench_loop *loop);

bench_loop *bench_create(const char *system, uint64_t handle, int n_phases, int n, const bench_message *messages)
{
    MPI_Comm comm = (MPI_Comm)(uintptr_t)handle;
    bench_loop *loop = room(1, sizeof *loop);
    int plain = strcmp(system, "pchan") != 0, temporaries = !strcmp(system, "temporaries");
    loop->cycle = !plain                       ? cycle_pchan
                  : temporaries                ? cycle_temporaries
                  : !strcmp(system, "waitall") ? cycle_waitall
                                               : cycle_testall;
    loop->n_phases = n_phases;
    loop->phases = room((size_t)loop->n_phases, sizeof *loop->phases);
    for (int k = 0; k < n; k++) loop->phases[messages[k].phase].n++;
    for (int p = 0; p < loop->n_phases; p++) {
        bench_phase *phase = &loop->phases[p];
        if (plain) {
            make_requests(phase, messages, comm, temporaries);
        } else {
            make_channel(phase, messages, comm);
        }
        messages += phase->n;
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
    for (int64_t i = 0; i < n_cycles; i++) {
        for (int p = 0; p < loop->n_phases; p++) loop->cycle(&loop->phases[p]);
    }
    return now_ns() - begin_ns;
}

void bench_destroy(bench_loop *loop)
{
    for (int p = 0; p < loop->n_phases; p++) {
        bench_phase *phase = &loop->phases[p];
        for (int i = 0; phase->requests && i < phase->n; i++) MPI_Request_free(&phase->requests[i]);
        check(pchan_channel_destroy(&phase->channel, NULL) == PCHAN_OK, "pchan_channel_destroy");
        free(phase->requests);
        free(phase->statuses);
    }
    free(loop->phases);
    free(loop);
}
