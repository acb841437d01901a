/* SPDX-License-Identifier: MIT
 * Under testing_mpi.h. Every allocation, MPI call and system call of creating, registering, connecting and
 * pchan_shared_create fails once. */
#include "testing_faults.h"

enum { N_SIZES = 2, MOST = 3000 };
static const int sizes[N_SIZES] = {3, MOST}; /* through a slot; longer than that */

static int left, right;
static MPI_Comm comm = MPI_COMM_NULL;
static MPI_Datatype every_other, pair; /* of doubles; int and double */
static pchan_channel *channel;
static pchan_shared *shared[2];
static double *in, *out; /* [N_SIZES][2 MOST] */
static bool fresh;       /* on a communicator of which pchan keeps nothing yet */
static int kind_of_buffer;
enum { PLAIN, DERIVED, IN_PIECES, STRIDED, STRIDED_IN_PIECES, MIXED, N_BUFFERS };

static void no_more(void)
{
}

static void prepare_comm(void)
{
    comm = MPI_COMM_WORLD;
    if (fresh) MPI_Comm_dup(MPI_COMM_WORLD, &comm);
}

static void clean_comm(void)
{
    if (fresh) MPI_Comm_free(&comm);
}

static void destroy(void)
{
    OK(pchan_channel_destroy(&channel, err));
}

/* ---- creation ---- */

static pchan_status create(pchan_error *err)
{
    return pchan_channel_create(comm, NULL, &channel, err);
}

static void clean_channel(void)
{
    destroy();
    clean_comm();
}

static const subject creation = {.name = "create",
                                 .says = "channel",
                                 .keeps = true,
                                 .prepare = prepare_comm,
                                 .attempt = create,
                                 .undo = destroy,
                                 .prove = no_more,
                                 .clean = clean_channel};

/* ---- registration ---- */

static pchan_status add(pchan_kind kind, int size, double *data, int peer, int tag, pchan_error *err)
{
    int64_t shape[2] = {size, 1}, strides[2] = {16, 8};
    const pchan_strided array = {data, 2, shape, strides, MPI_DOUBLE};
    const MPI_Datatype types[] = {MPI_DOUBLE, every_other, MPI_DOUBLE, 0, 0, pair};
    int longest = pch_longest_count;
    if (kind_of_buffer == IN_PIECES || kind_of_buffer == STRIDED_IN_PIECES) pch_longest_count = 7;
    pchan_status status;
    if (kind_of_buffer == STRIDED || kind_of_buffer == STRIDED_IN_PIECES)
        status = pchan_channel_init_strided(channel, kind, &array, peer, tag, NULL, err);
    else if (kind == PCHAN_SEND)
        status = pchan_channel_send_init(channel, data, size, types[kind_of_buffer], peer, tag, NULL, err);
    else
        status = pchan_channel_recv_init(channel, data, size, types[kind_of_buffer], peer, tag, NULL, err);
    pch_longest_count = longest;
    return status;
}

static void prepare_channel(void)
{
    prepare_comm();
    OK(pchan_channel_create(comm, NULL, &channel, err));
}

static pchan_status register_send(pchan_error *err)
{
    return add(PCHAN_SEND, 50, out, right, 1, err);
}

static pchan_status register_recv(pchan_error *err)
{
    return add(PCHAN_RECV, 50, in, left, 1, err);
}

static void check_one(void)
{
    CHECK(pchan_channel_size(channel) == 1, "%d operations", pchan_channel_size(channel));
}

/* Nothing was registered where it failed, and where it did not, it was. */
static void start_again(void)
{
    check_one();
    destroy();
    OK(pchan_channel_create(comm, NULL, &channel, err));
}

static subject registration(bool send)
{
    return (subject){.name = send ? "send_init" : "recv_init",
                     .says = send ? "send_init" : "recv_init",
                     .prepare = prepare_channel,
                     .attempt = send ? register_send : register_recv,
                     .undo = start_again,
                     .prove = check_one,
                     .clean = clean_channel};
}

/* ---- connect ---- */

/* A message of each size to the right. Doubles lie in memory as `kind_of_buffer` has them. */
static void fill_ring(void)
{
    for (int k = 0; k < N_SIZES; k++) {
        OK(add(PCHAN_RECV, sizes[k], in + 2 * MOST * k, left, k, err));
        OK(add(PCHAN_SEND, sizes[k], out + 2 * MOST * k, right, k, err));
    }
}

static void prepare_ring(void)
{
    prepare_channel();
    fill_ring();
}

static pchan_status connect(pchan_error *err)
{
    return pchan_channel_connect(channel, err);
}

static void make_ring_again(void)
{
    destroy();
    OK(pchan_channel_create(comm, NULL, &channel, err));
    fill_ring();
}

static void turn(int cycle)
{
    int step = kind_of_buffer == PLAIN || kind_of_buffer == IN_PIECES ? 1 : 2;
    for (int k = 0; k < N_SIZES * 2 * MOST; k++) out[k] = cycle + 10 * world_rank + k % 7, in[k] = -1;
    OK(pchan_channel_start(channel, err));
    OK(pchan_channel_wait(channel, 20000000000, err));
    for (int k = 0; k < N_SIZES; k++) {
        for (int i = 0; i < sizes[k]; i++) {
            int at = 2 * MOST * k + step * i;
            CHECK(in[at] == cycle + 10 * left + at % 7, "%s: cycle %d, message %d, element %d: %g", fault_place,
                  cycle, k, i, in[at]);
        }
    }
}

static void cycles(void)
{
    CHECK(pchan_channel_connected(channel), "%s: not connected", fault_place);
    for (int cycle = 1; cycle <= 2; cycle++) turn(cycle);
}

static const subject connection = {.name = "connect",
                                   .says = "connect",
                                   .collective = true,
                                   .keeps = true,
                                   .prepare = prepare_ring,
                                   .attempt = connect,
                                   .undo = make_ring_again,
                                   .prove = cycles,
                                   .clean = clean_channel};

static void fail_connections(const char *transport, int buffer, bool on_fresh)
{
    static char name[60];
    subject s = connection;
    snprintf(name, sizeof name, "connect, %s, buffers %d%s", transport, buffer, on_fresh ? ", fresh" : "");
    s.name = name;
    s.keeps = on_fresh;
    setenv("PCHAN_TRANSPORT", transport, 1);
    kind_of_buffer = buffer;
    fresh = on_fresh;
    fail_each(&s, &fault_memory, 10);
    fail_each(&s, &fault_mpi, 8);
    fail_each(&s, &fault_message, 8);
    fail_each(&s, &fault_system, strcmp(transport, "shm") ? 0 : 4);
    fresh = false;
    kind_of_buffer = PLAIN;
    unsetenv("PCHAN_TRANSPORT");
}

/* ---- connect between arrays in shared memory ---- */

static double *own_in, *own_out;

static void free_shared(void)
{
    for (int k = 0; k < 2; k++) pchan_shared_destroy(&shared[k]);
}

static pchan_status share(pchan_error *err)
{
    void *memory;
    pchan_status status = pchan_shared_create(comm, N_SIZES * 2 * MOST * sizeof(double), &shared[0], &memory, err);
    if (status == PCHAN_OK) out = memory;
    return status;
}

/* Works: a channel from it to an ordinary array. */
static void use_shared(void)
{
    prepare_ring();
    OK(pchan_channel_connect(channel, err));
    cycles();
    destroy();
    out = own_out;
}

static void clean_shared(void)
{
    free_shared();
    out = own_out;
    clean_comm();
}

static const subject sharing = {.name = "shared",
                                .says = "empty",
                                .collective = true,
                                .prepare = prepare_comm,
                                .attempt = share,
                                .undo = free_shared,
                                .prove = use_shared,
                                .clean = clean_shared};

static void prepare_shared_ring(void)
{
    void *memory[2];
    prepare_comm();
    for (int k = 0; k < 2; k++)
        OK(pchan_shared_create(comm, N_SIZES * 2 * MOST * sizeof(double), &shared[k], &memory[k], err));
    out = memory[0], in = memory[1];
    prepare_ring();
}

static void clean_shared_ring(void)
{
    destroy();
    free_shared();
    out = own_out, in = own_in;
}

/* ---- faults of matching: the talk about them fails, too ---- */

static void prepare_mismatch(void)
{
    prepare_channel();
    OK(add(PCHAN_SEND, 3, out, right, world_rank, err));
}

static pchan_status connect_in_vain(pchan_error *err)
{
    pchan_status status = pchan_channel_connect(channel, err);
    if (status == PCHAN_ERR_MATCH) return PCHAN_OK;
    CHECK(status != PCHAN_OK, "%s: what does not fit is connected", fault_place);
    return status;
}

static const subject mismatch = {.name = "connect, mismatch",
                                 .says = "connect",
                                 .collective = true,
                                 .keeps = true,
                                 .prepare = prepare_mismatch,
                                 .attempt = connect_in_vain,
                                 .undo = no_more,
                                 .prove = no_more,
                                 .clean = clean_channel};

int main(int argc, char **argv)
{
    begin_mpi(&argc, &argv);
    pchan_set_allocator(&counting_door);
    left = (world_rank + world_size - 1) % world_size;
    right = (world_rank + 1) % world_size;
    in = own_in = calloc(N_SIZES * 2 * MOST, sizeof *in);
    out = own_out = calloc(N_SIZES * 2 * MOST, sizeof *out);
    MPI_Type_create_hvector(1, 1, 16, MPI_DOUBLE, &every_other);
    MPI_Type_create_resized(every_other, 0, 16, &pair);
    MPI_Type_free(&every_other);
    every_other = pair;
    MPI_Type_commit(&every_other);
    int lengths[2] = {1, 1};
    MPI_Aint places[2] = {0, 16};
    MPI_Datatype types[2] = {MPI_DOUBLE, every_other};
    MPI_Type_create_struct(1, lengths, places, types, &pair);
    MPI_Datatype unsized = pair;
    MPI_Type_create_resized(unsized, 0, 16, &pair);
    MPI_Type_free(&unsized);
    MPI_Type_commit(&pair);

    const fault *const all[] = {&fault_memory, &fault_mpi, &fault_message, &fault_system};
    fresh = true;
    fail_each(&creation, &fault_mpi, 5); /* first: the callback of MPI_Finalize is installed once */
    for (int k = 0; k < 4; k++) fail_each(&creation, all[k], k < 2 ? 1 : 0);
    fresh = false;
    prepare_ring(); /* makes what stays with the communicator */
    OK(pchan_channel_connect(channel, err));
    destroy();
    for (int k = 0; k < 4; k++) fail_each(&creation, all[k], k < 1 ? 1 : 0);
    for (kind_of_buffer = 0; kind_of_buffer < N_BUFFERS; kind_of_buffer++) {
        for (int send = 0; send < 2; send++) {
            subject s = registration(send);
            fail_each(&s, &fault_memory, 1);
            fail_each(&s, &fault_mpi, 1);
        }
    }
    kind_of_buffer = PLAIN;
    fail_connections("auto", PLAIN, false);
    fail_connections("auto", PLAIN, true);
    fail_connections("mpi", PLAIN, false);
    fail_connections("shm", DERIVED, false);
    fail_connections("bundle", MIXED, false);
    for (int k = 0; k < 4; k++) fail_each(&sharing, all[k], 1);
    subject s = connection;
    s.name = "connect, shared arrays";
    s.keeps = false;
    s.prepare = prepare_shared_ring;
    s.clean = clean_shared_ring;
    for (int k = 0; k < 4; k++) fail_each(&s, all[k], 1);
    for (int k = 0; k < 4; k++) fail_each(&mismatch, all[k], k < 2 ? 1 : 0);
    MPI_Type_free(&every_other);
    MPI_Type_free(&pair);
    free(own_in);
    free(own_out);
    end_faults();
    return 0;
}
