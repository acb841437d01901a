/* SPDX-License-Identifier: MIT
 * Messages with more elements than an int counts: pieces of a datatype, here with a limit of a few
 * elements, so that each length below, at and above a multiple of it occurs. */
#include "testing_mpi.h"

#include <string.h>

static int left, right;

static void run_cycle(pchan_channel *ch)
{
    OK(pchan_channel_start(ch, err));
    OK(pchan_channel_wait(ch, -1, err));
}

/* n elements of `datatype`, each of `span` ints in memory, the first `used` of which travel. */
static void check_plain(int n, MPI_Datatype datatype, int span, int used)
{
    size_t n_ints = (size_t)(n * span) + 3;
    int *out = malloc(n_ints * sizeof *out), *in = malloc(n_ints * sizeof *in);
    CHECK(out && in, "no memory");
    for (size_t k = 0; k < n_ints; k++) out[k] = (int)k + 1000 * world_rank, in[k] = -1;
    pchan_channel *ch = NULL;
    OK(pchan_channel_create(MPI_COMM_WORLD, NULL, &ch, err));
    OK(pchan_channel_recv_init(ch, in, n, datatype, left, n, NULL, err));
    OK(pchan_channel_send_init(ch, out, n, datatype, right, n, NULL, err));
    for (int cycle = 0; cycle < 2; cycle++) run_cycle(ch);
    for (int k = 0; k < (int)n_ints; k++) {
        bool travels = k < n * span && k % span < used;
        int want = travels ? k + 1000 * left : -1;
        CHECK(in[k] == want, "limit %d, %d elements: in[%d] = %d, not %d", pch_longest_count, n, k, in[k], want);
    }
    pchan_message message;
    pchan_operation op;
    OK(pchan_channel_message(ch, 0, &message, err));
    OK(pchan_channel_operation(ch, 1, &op, err));
    CHECK(message.bytes == 4 * n * used && op.bytes == message.bytes, "%lld and %lld bytes",
          (long long)message.bytes, (long long)op.bytes);
    OK(pchan_channel_destroy(&ch, err));
    free(out);
    free(in);
}

/* A transposed rows x cols block of ints to a reversed one. */
static void check_strided(int rows, int cols)
{
    size_t n = (size_t)(rows * cols);
    int *out = malloc(n * sizeof *out), *in = malloc(n * sizeof *in);
    CHECK(out && in, "no memory");
    for (size_t k = 0; k < n; k++) out[k] = (int)k + 1000 * world_rank, in[k] = -1;
    int64_t shape[2] = {rows, cols}, from[2] = {4, 4 * rows}, to[2] = {-4 * cols, -4};
    pchan_strided send = {out, 2, shape, from, MPI_INT}, recv = {in + n - 1, 2, shape, to, MPI_INT};
    pchan_channel *ch = NULL;
    OK(pchan_channel_create(MPI_COMM_WORLD, NULL, &ch, err));
    OK(pchan_channel_init_strided(ch, PCHAN_RECV, &recv, left, 1, NULL, err));
    OK(pchan_channel_init_strided(ch, PCHAN_SEND, &send, right, 1, NULL, err));
    run_cycle(ch);
    for (int i = 0; i < rows; i++) {
        for (int j = 0; j < cols; j++) {
            int got = in[n - 1 - (size_t)(i * cols + j)], want = i + j * rows + 1000 * left;
            CHECK(got == want, "limit %d, %d x %d, (%d, %d): %d, not %d", pch_longest_count, rows, cols, i, j, got,
                  want);
        }
    }
    OK(pchan_channel_destroy(&ch, err));
    free(out);
    free(in);
}

int main(int argc, char **argv)
{
    begin_mpi(&argc, &argv);
    left = (world_rank + world_size - 1) % world_size;
    right = (world_rank + 1) % world_size;
    MPI_Datatype gapped; /* two ints of three */
    MPI_Datatype pair;
    MPI_Type_contiguous(2, MPI_INT, &pair);
    MPI_Type_create_resized(pair, 0, 3 * sizeof(int), &gapped);
    MPI_Type_commit(&gapped);
    for (pch_longest_count = 1; pch_longest_count <= 7; pch_longest_count += 3) {
        for (int n = 0; n <= 24; n++) {
            check_plain(n, MPI_INT, 1, 1);
            check_plain(n, gapped, 3, 2);
        }
        for (int rows = 1; rows <= 16; rows += 3) check_strided(rows, 9);
    }
    MPI_Type_free(&gapped);
    MPI_Type_free(&pair);
    MPI_Finalize();
    return 0;
}
