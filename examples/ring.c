/* SPDX-License-Identifier: MIT
 *
 * pchan from C: each rank passes a column of its array to the next one, round after round, until it is home again.
 *
 *   make -C csrc
 *   mpicc -std=c11 -Icsrc examples/ring.c csrc/build/libpchan.a -lm -o ring && mpiexec -n 3 ./ring
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "pchan.h"

enum { ROWS = 6, COLS = 5 };

static void check(pchan_status status, const pchan_error *err)
{
    if (status != PCHAN_OK) {
        fprintf(stderr, "%s: %s\n", pchan_status_name(status), err->message);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

/* Column `col` of the array: ROWS elements, one every COLS doubles. */
static int column(pchan_channel *ch, pchan_kind kind, double *array, int col, int peer)
{
    const int64_t shape[] = {ROWS}, strides[] = {COLS * (int64_t)sizeof(double)};
    const pchan_strided view = {
        .buf = array + col, .n_dims = 1, .shape = shape, .strides = strides, .element = MPI_DOUBLE};
    pchan_error err;
    int index;
    check(pchan_channel_init_strided(ch, kind, &view, peer, 0, &index, &err), &err);
    return index;
}

int main(int argc, char **argv)
{
    int rank, size, wrong = 0;
    double array[ROWS * COLS] = {0};
    pchan_channel *ch;
    pchan_operation operation;
    pchan_error err;

    MPI_Init(&argc, &argv);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN); /* errors of messages as a status */
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);

    check(pchan_channel_create(MPI_COMM_WORLD, NULL, &ch, &err), &err);
    const int in = column(ch, PCHAN_RECV, array, 0, (rank + size - 1) % size);
    column(ch, PCHAN_SEND, array, COLS - 1, (rank + 1) % size);
    check(pchan_channel_connect(ch, &err), &err);

    for (int row = 0; row < ROWS; row++) array[row * COLS + COLS - 1] = 100.0 * rank + row;
    for (int round = 0; round < size; round++) {
        check(pchan_channel_start(ch, &err), &err);
        check(pchan_channel_wait(ch, -1, &err), &err);
        for (int row = 0; row < ROWS; row++) array[row * COLS + COLS - 1] = array[row * COLS];
    }
    for (int row = 0; row < ROWS; row++) wrong += array[row * COLS] != 100.0 * rank + row;

    check(pchan_channel_operation(ch, in, &operation, &err), &err);
    if (rank == 0)
        printf("%d ranks, %d bytes by %s: %s\n", size, (int)operation.bytes,
               pchan_transport_name(operation.transport), wrong ? "WRONG" : "home again");
    check(pchan_channel_destroy(&ch, &err), &err);
    MPI_Finalize();
    return wrong ? EXIT_FAILURE : EXIT_SUCCESS;
}
