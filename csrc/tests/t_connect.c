/* SPDX-License-Identifier: MIT
 * connect from C: all transports, no memory per cycle, every allocation failing once on every rank, MATCH on
 * all ranks, shared memory. */
#include "testing_mpi.h"

#include <stdlib.h>
#include <string.h>

enum { N_SIZES = 4 };
static const int sizes[N_SIZES] = {1, 100, 20000, 300000}; /* doubles */

typedef struct ring {
    pchan_channel *channel;
    double *out[N_SIZES], *in[N_SIZES];
    pchan_shared *shared[2];
} ring;

static int left, right;

static void make_ring(ring *r)
{
    OK(pchan_channel_create(MPI_COMM_WORLD, NULL, &r->channel, err));
    for (int k = 0; k < N_SIZES; k++) {
        r->out[k] = malloc((size_t)sizes[k] * sizeof(double));
        r->in[k] = malloc((size_t)sizes[k] * sizeof(double));
        OK(pchan_channel_send_init(r->channel, r->out[k], sizes[k], MPI_DOUBLE, right, 0, NULL, err));
        OK(pchan_channel_recv_init(r->channel, r->in[k], sizes[k], MPI_DOUBLE, left, 0, NULL, err));
    }
}

static void free_ring(ring *r)
{
    OK(pchan_channel_destroy(&r->channel, err));
    for (int k = 0; k < N_SIZES; k++) {
        free(r->out[k]);
        free(r->in[k]);
    }
}

static void turn(ring *r, int cycle)
{
    for (int k = 0; k < N_SIZES; k++) {
        for (int i = 0; i < sizes[k]; i++) r->out[k][i] = cycle + 100 * world_rank + i % 7, r->in[k][i] = -1;
    }
    OK(pchan_channel_start(r->channel, err));
    OK(pchan_channel_wait(r->channel, 20000000000, err));
    for (int k = 0; k < N_SIZES; k++) {
        for (int i = 0; i < sizes[k]; i++) {
            CHECK(r->in[k][i] == cycle + 100 * left + i % 7, "cycle %d, message %d, element %d: %g", cycle, k, i,
                  r->in[k][i]);
        }
    }
}

static void test_transport(const char *name)
{
    ring r;
    setenv("PCHAN_TRANSPORT", name, 1);
    pchan_set_allocator(&counting_door);
    long in_use = blocks_in_use;
    make_ring(&r);
    OK(pchan_channel_connect(r.channel, err));
    CHECK(pchan_channel_connected(r.channel), "not connected");
    pchan_operation op;
    OK(pchan_channel_operation(r.channel, N_SIZES, &op, err));
    if (strcmp(name, "mpi") == 0) CHECK(op.transport == PCHAN_BY_MPI, "%s", pchan_transport_name(op.transport));
    if (strcmp(name, "bundle") == 0)
        CHECK(op.transport == PCHAN_BY_BUNDLE, "%s", pchan_transport_name(op.transport));
    turn(&r, 0);
    uint64_t before = pchan_allocation_count();
    for (int cycle = 1; cycle < 10; cycle++) turn(&r, cycle);
    CHECK(pchan_allocation_count() == before, "a connected cycle allocates");
    free_ring(&r);
    CHECK(blocks_in_use == in_use, "%s: %ld blocks left", name, blocks_in_use - in_use);
    pchan_set_allocator(NULL);
    unsetenv("PCHAN_TRANSPORT");
}

/* One rank has no memory at its n-th request: all ranks get NOMEM, and the channel can be connected later. */
static void test_memory(int failing)
{
    ring r;
    make_ring(&r);
    pchan_set_allocator(&counting_door);
    long n = 0, in_use = blocks_in_use;
    for (int failed = 1; failed; n++) {
        pchan_error error = {0};
        if (world_rank == failing) allocations_left = n;
        pchan_status status = pchan_channel_connect(r.channel, &error);
        bool spent = allocations_left == 0;
        allocations_left = -1;
        failed = status != PCHAN_OK;
        CHECK(!failed || status == PCHAN_ERR_NOMEM, "%s: %s", pchan_status_name(status), error.message);
        int on_all = failed, once = failed;
        MPI_Allreduce(&failed, &on_all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
        MPI_Allreduce(&failed, &once, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
        CHECK(on_all == once, "request %ld: an error on some ranks only", n);
        if (failed) CHECK(blocks_in_use == in_use, "request %ld: %ld blocks left", n, blocks_in_use - in_use);
        if (world_rank == failing && !failed) CHECK(!spent || n > 0, "nothing was asked for");
    }
    CHECK(n > 5, "%ld requests", n);
    turn(&r, 3);
    OK(pchan_channel_destroy(&r.channel, err));
    pchan_set_allocator(NULL);
    OK(pchan_channel_create(MPI_COMM_WORLD, NULL, &r.channel, err));
    free_ring(&r);
}

static void test_mismatch(void)
{
    pchan_channel *channel;
    double a[4], b[4];
    pchan_error error;
    OK(pchan_channel_create(MPI_COMM_WORLD, NULL, &channel, err));
    OK(pchan_channel_send_init(channel, a, 4, MPI_DOUBLE, right, 1, NULL, err));
    OK(pchan_channel_recv_init(channel, b, 4, MPI_DOUBLE, left, 2, NULL, err));
    CHECK(pchan_channel_connect(channel, &error) == PCHAN_ERR_MATCH, "%s", error.message);
    const char *text = pchan_channel_mismatch(channel);
    char line[32];
    int n = 0;
    for (const char *c = text; *c; c++) n += *c == '\n';
    CHECK(n == 2 * world_size, "%s", text);
    snprintf(line, sizeof line, "rank %d operation 1", world_size - 1);
    CHECK(strstr(text, line), "%s", text);
    CHECK(!pchan_channel_connected(channel), "connected");
    OK(pchan_channel_destroy(&channel, err));
}

static void test_shared(void)
{
    pchan_shared *shared[2] = {0};
    void *memory[2];
    pchan_channel *channel;
    enum { N = 100000 };
    for (int k = 0; k < 2; k++)
        OK(pchan_shared_create(MPI_COMM_WORLD, N * sizeof(double), &shared[k], &memory[k], err));
    double *out = memory[0], *in = memory[1];
    OK(pchan_channel_create(MPI_COMM_WORLD, NULL, &channel, err));
    OK(pchan_channel_send_init(channel, out, N, MPI_DOUBLE, right, 1, NULL, err));
    OK(pchan_channel_recv_init(channel, in, N, MPI_DOUBLE, left, 1, NULL, err));
    OK(pchan_channel_connect(channel, err));
    pchan_operation op;
    OK(pchan_channel_operation(channel, 0, &op, err));
    CHECK(op.transport == PCHAN_BY_SHARED, "%s", pchan_transport_name(op.transport));
    for (int cycle = 0; cycle < 5; cycle++) {
        for (int i = 0; i < N; i++) out[i] = i + cycle + world_rank, in[i] = -1;
        OK(pchan_channel_start(channel, err));
        OK(pchan_channel_wait(channel, -1, err));
        for (int i = 0; i < N; i++) CHECK(in[i] == i + cycle + left, "%g", in[i]);
    }
    OK(pchan_channel_destroy(&channel, err));
    for (int k = 0; k < 2; k++) pchan_shared_destroy(&shared[k]);
    FAILS(PCHAN_ERR_ARG, pchan_shared_create(MPI_COMM_WORLD, -1, &shared[0], &memory[0], err));
    FAILS(PCHAN_ERR_NOMEM, pchan_shared_create(MPI_COMM_WORLD, (int64_t)1 << 45, &shared[0], &memory[0], err));
}

int main(int argc, char **argv)
{
    begin_mpi(&argc, &argv);
    left = (world_rank + world_size - 1) % world_size;
    right = (world_rank + 1) % world_size;
    ring first; /* makes what stays with the communicator */
    make_ring(&first);
    free_ring(&first);
    test_transport("auto");
    test_transport("mpi");
    test_transport("shm");
    test_transport("cma");
    test_transport("bundle");
    for (int failing = 0; failing < world_size; failing++) test_memory(failing);
    test_mismatch();
    test_shared();
    ring forgotten; /* MPI_Finalize frees what it holds */
    make_ring(&forgotten);
    OK(pchan_channel_connect(forgotten.channel, err));
    MPI_Finalize();
    free_ring(&forgotten);
    return 0;
}
