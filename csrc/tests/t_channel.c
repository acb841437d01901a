/* SPDX-License-Identifier: MIT
 * Channel from C: cycles, order, PROC_NULL, strided arrays, states, truncation, memory, and what
 * MPI_Finalize finds. */
#include "testing_mpi.h"

#include "../core/pch_channel.h"

#include <string.h>

static int left, right;

static pchan_channel *make(MPI_Comm comm)
{
    pchan_channel *channel = NULL;
    OK(pchan_channel_create(comm, NULL, &channel, err));
    return channel;
}

static void test_ring(void)
{
    double out[20], in[20];
    pchan_channel *ch = make(MPI_COMM_WORLD);
    int index = -1;
    OK(pchan_channel_send_init(ch, out, 20, MPI_DOUBLE, right, 3, &index, err));
    CHECK(index == 0, "index %d", index);
    OK(pchan_channel_recv_init(ch, in, 20, MPI_DOUBLE, left, 3, &index, err));
    CHECK(index == 1 && pchan_channel_size(ch) == 2, "index %d", index);
    for (int cycle = 0; cycle < 100; cycle++) {
        for (int k = 0; k < 20; k++) out[k] = world_rank + 10 * k + 1000 * cycle, in[k] = -1;
        uint64_t before = pchan_allocation_count();
        OK(pchan_channel_start(ch, err));
        OK(pchan_channel_wait(ch, -1, err));
        CHECK(pchan_allocation_count() == before, "a cycle allocates");
        for (int k = 0; k < 20; k++)
            CHECK(in[k] == left + 10 * k + 1000 * cycle, "cycle %d, in[%d] = %g", cycle, k, in[k]);
    }
    pchan_message message;
    OK(pchan_channel_message(ch, 1, &message, err));
    CHECK(message.source == left && message.tag == 3 && message.bytes == 160, "%d %d", message.source,
          message.tag);
    pchan_operation op;
    OK(pchan_channel_operation(ch, 0, &op, err));
    CHECK(op.kind == PCHAN_SEND && op.peer == right && op.tag == 3 && op.bytes == 160 && op.done, "operation");
    OK(pchan_channel_destroy(&ch, err));
    CHECK(!ch, "destroy clears the pointer");
    OK(pchan_channel_destroy(&ch, err));
}

/* Equal (peer, tag): the k-th send meets the k-th receive, also when registered mixed. */
static void test_order(void)
{
    enum { N = 40 };
    int out[N], in[N];
    pchan_channel *ch = make(MPI_COMM_WORLD);
    for (int k = 0; k < N; k++) {
        if (k % 3) OK(pchan_channel_recv_init(ch, &in[k], 1, MPI_INT, left, 0, NULL, err));
        OK(pchan_channel_send_init(ch, &out[k], 1, MPI_INT, right, 0, NULL, err));
        if (k % 3 == 0) OK(pchan_channel_recv_init(ch, &in[k], 1, MPI_INT, left, 0, NULL, err));
    }
    OK(pchan_channel_recv_init(ch, NULL, 0, MPI_INT, MPI_PROC_NULL, 0, NULL, err));
    for (int cycle = 0; cycle < 5; cycle++) {
        for (int k = 0; k < N; k++) out[k] = 100 * cycle + k, in[k] = -1;
        OK(pchan_channel_start(ch, err));
        int seen[2 * N + 1] = {0}, index;
        if (cycle % 2) {
            for (int i = 0; i < 2 * N + 1; i++) {
                OK(pchan_channel_wait_any(ch, -1, &index, err));
                CHECK(index >= 0 && !seen[index], "index %d", index);
                seen[index] = 1;
            }
            CHECK(!pchan_channel_active(ch), "active after the last index");
            OK(pchan_channel_wait_any(ch, -1, &index, err));
            CHECK(index == -1, "index %d of an idle channel", index);
        } else {
            OK(pchan_channel_wait(ch, -1, err));
        }
        for (int k = 0; k < N; k++) CHECK(in[k] == 100 * cycle + k, "cycle %d, in[%d] = %d", cycle, k, in[k]);
    }
    OK(pchan_channel_destroy(&ch, err));
}

/* A transposed block to a reversed one, element by element. */
static void test_strided(void)
{
    float a[6][7], b[5][5];
    memset(b, 0, sizeof b);
    for (int i = 0; i < 42; i++) a[i / 7][i % 7] = (float)i;
    int64_t shape[2] = {4, 3}, from[2] = {sizeof(float), 7 * sizeof(float)};
    int64_t to[2] = {-5 * (int64_t)sizeof(float), 2 * sizeof(float)};
    pchan_strided out = {&a[1][2], 2, shape, from, MPI_FLOAT}, in = {&b[4][0], 2, shape, to, MPI_FLOAT};
    pchan_channel *ch = make(MPI_COMM_WORLD);
    OK(pchan_channel_init_strided(ch, PCHAN_RECV, &in, left, 1, NULL, err));
    OK(pchan_channel_init_strided(ch, PCHAN_SEND, &out, right, 1, NULL, err));
    OK(pchan_channel_start(ch, err));
    OK(pchan_channel_wait(ch, -1, err));
    int filled = 0;
    for (int i = 0; i < 4; i++) {
        for (int j = 0; j < 3; j++)
            CHECK(b[4 - i][2 * j] == a[1 + j][2 + i], "(%d, %d): %g", i, j, b[4 - i][2 * j]);
    }
    for (int i = 0; i < 25; i++) filled += b[i / 5][i % 5] != 0;
    CHECK(filled == 12, "%d elements written", filled);
    OK(pchan_channel_destroy(&ch, err));
}

static void test_arguments(void)
{
    double x[4], long_message[5] = {0};
    pchan_channel *ch = NULL;
    FAILS(PCHAN_ERR_ARG, pchan_channel_create(MPI_COMM_NULL, NULL, &ch, err));
    CHECK(!ch, "a channel without a communicator");
    ch = make(MPI_COMM_WORLD);
    FAILS(PCHAN_ERR_ARG, pchan_channel_send_init(ch, x, 1, MPI_DOUBLE, world_size, 0, NULL, err));
    FAILS(PCHAN_ERR_ARG, pchan_channel_send_init(ch, x, 1, MPI_DOUBLE, MPI_ANY_SOURCE, 0, NULL, err));
    FAILS(PCHAN_ERR_ARG, pchan_channel_send_init(ch, x, 1, MPI_DOUBLE, 0, -5, NULL, err));
    FAILS(PCHAN_ERR_ARG, pchan_channel_send_init(ch, x, -1, MPI_DOUBLE, 0, 0, NULL, err));
    FAILS(PCHAN_ERR_ARG, pchan_channel_send_init(ch, x, INT64_MAX, MPI_DOUBLE, 0, 0, NULL, err));
    FAILS(PCHAN_ERR_ARG, pchan_channel_recv_init(ch, x, 1, MPI_DATATYPE_NULL, 0, 0, NULL, err));
    CHECK(pchan_channel_size(ch) == 0, "something was registered");
    FAILS(PCHAN_ERR_STATE, pchan_channel_wait(ch, -1, err));
    OK(pchan_channel_recv_init(ch, x, 4, MPI_DOUBLE, world_rank, 9, NULL, err));
    OK(pchan_channel_start(ch, err));
    FAILS(PCHAN_ERR_STATE, pchan_channel_start(ch, err));
    FAILS(PCHAN_ERR_STATE, pchan_channel_recv_init(ch, x, 1, MPI_DOUBLE, 0, 0, NULL, err));
    FAILS(PCHAN_ERR_STATE, pchan_channel_destroy(&ch, err));
    FAILS(PCHAN_ERR_TIMEOUT, pchan_channel_wait(ch, 1000000, err));
    int finished;
    OK(pchan_channel_poll(ch, 0, &finished, err));
    CHECK(!finished && pchan_channel_active(ch), "finished without a message");
    pchan_channel *other = make(MPI_COMM_WORLD); /* one double too many: an error, and then idle */
    OK(pchan_channel_send_init(other, long_message, 5, MPI_DOUBLE, world_rank, 9, NULL, err));
    OK(pchan_channel_start(other, err));
    FAILS(PCHAN_ERR_MPI, pchan_channel_wait(ch, -1, err));
    OK(pchan_channel_wait(other, -1, err));
    CHECK(!pchan_channel_active(ch), "active after an error");
    OK(pchan_channel_destroy(&other, err));
    OK(pchan_channel_destroy(&ch, err));
}

/* Local failures only: all ranks fail at the same request, so none waits for another. */
static void test_memory(void)
{
    double out[3] = {1, 2, 3}, in[3] = {0};
    int64_t shape[1] = {2}, strides[1] = {16};
    pchan_strided odd = {out, 1, shape, strides, MPI_DOUBLE};
    pchan_set_allocator(&counting_door);
    for (long n = 0;; n++) {
        MPI_Comm comm;
        MPI_Comm_dup(MPI_COMM_WORLD, &comm);
        long before = blocks_in_use;
        allocations_left = n;
        pchan_error failure;
        pchan_channel *ch = NULL;
        pchan_status status = pchan_channel_create(comm, NULL, &ch, &failure);
        for (int k = 0; k < 10 && status == PCHAN_OK; k++) {
            status = pchan_channel_recv_init(ch, in, 3, MPI_DOUBLE, left, k, NULL, &failure);
            if (status == PCHAN_OK)
                status = pchan_channel_init_strided(ch, PCHAN_SEND, &odd, right, k, NULL, &failure);
        }
        allocations_left = -1;
        bool enough = status == PCHAN_OK;
        if (enough) {
            OK(pchan_channel_start(ch, err));
            OK(pchan_channel_wait(ch, -1, err));
        } else {
            CHECK(status == PCHAN_ERR_NOMEM, "request %ld: %s: %s", n, pchan_status_name(status), failure.message);
        }
        OK(pchan_channel_destroy(&ch, err));
        MPI_Comm_free(&comm);
        CHECK(blocks_in_use == before, "request %ld: %ld blocks left", n, blocks_in_use - before);
        if (!enough) continue;
        CHECK(n > 8, "only %ld requests", n);
        break;
    }
    pchan_set_allocator(NULL);
}

static void test_shared_comm(void)
{
    const pchan_channel_options options = {.shared_comm = 1};
    pchan_channel *ch = NULL;
    int out = 7 + world_rank, in = 0, plain = 0;
    OK(pchan_channel_create(MPI_COMM_WORLD, &options, &ch, err));
    OK(pchan_channel_recv_init(ch, &in, 1, MPI_INT, MPI_ANY_SOURCE, 11, NULL, err));
    OK(pchan_channel_start(ch, err));
    MPI_Send(&out, 1, MPI_INT, right, 11, MPI_COMM_WORLD);
    OK(pchan_channel_wait(ch, -1, err));
    CHECK(in == 7 + left, "%d", in);
    OK(pchan_channel_destroy(&ch, err));
    ch = make(MPI_COMM_WORLD);
    OK(pchan_channel_send_init(ch, &out, 1, MPI_INT, right, 12, NULL, err));
    OK(pchan_channel_recv_init(ch, &in, 1, MPI_INT, left, 12, NULL, err));
    MPI_Request request;
    MPI_Irecv(&plain, 1, MPI_INT, left, 12, MPI_COMM_WORLD, &request);
    OK(pchan_channel_start(ch, err));
    OK(pchan_channel_wait(ch, -1, err));
    int got;
    MPI_Test(&request, &got, MPI_STATUS_IGNORE);
    CHECK(!got, "a private message reached a plain receive");
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Send(&out, 1, MPI_INT, right, 12, MPI_COMM_WORLD);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    OK(pchan_channel_destroy(&ch, err));
}

static int destroy(void *channel)
{
    pchan_channel *ch = channel;
    return (int)pchan_channel_destroy(&ch, NULL);
}

/* A helper of before the fork is not there to leave. */
static void test_fork(void)
{
    pchan_channel *ch = make(MPI_COMM_WORLD);
    atomic_store(&ch->busy, PCH_HELPER);
    int status = in_forked_child(destroy, ch);
    CHECK(status == PCHAN_OK, "free in a forked child: %d", status);
    pch_channel_leave(ch);
    OK(pchan_channel_destroy(&ch, err));
}

int main(int argc, char **argv)
{
    pchan_channel *early = NULL;
    pchan_error failure;
    CHECK(pchan_channel_create(MPI_COMM_WORLD, NULL, &early, &failure) == PCHAN_ERR_STATE,
          "a channel before MPI_Init");
    begin_mpi(&argc, &argv);
    left = (world_rank + world_size - 1) % world_size;
    right = (world_rank + 1) % world_size;
    test_ring();
    test_order();
    test_strided();
    test_arguments();
    test_memory();
    test_shared_comm();
    test_fork();
    pchan_channel *forgotten = make(MPI_COMM_WORLD); /* MPICH would print a line about its request */
    int x;
    OK(pchan_channel_recv_init(forgotten, &x, 1, MPI_INT, left, 0, NULL, err));
    pchan_channel *active = make(MPI_COMM_WORLD);
    OK(pchan_channel_recv_init(active, &x, 1, MPI_INT, left, 1, NULL, err));
    OK(pchan_channel_start(active, err));
    pchan_channel_abandon(&active);
    MPI_Finalize();
    CHECK(pchan_channel_start(forgotten, &failure) == PCHAN_ERR_STATE, "start after MPI_Finalize");
    OK(pchan_channel_destroy(&forgotten, err));
    return 0;
}
