/* SPDX-License-Identifier: MIT
 * Under testing_mpi.h. Every MPI call and system call of start, wait, test and wait_any fails once, and copies
 * between processes fall short: an error that names the operation, or none and the right data; the next cycle
 * works. */
#include "testing_faults.h"

enum { MOST_OPERATIONS = 3, MOST = 3000 };
enum { BY_WAIT, BY_TEST, BY_WAIT_ANY };
static const int sizes[MOST_OPERATIONS] = {3, 50, MOST};

static int left, right, n_operations, way; /* way: how the cycle is waited for */
static bool mixed;                         /* doubles 16 bytes apart, as a derived datatype */
static MPI_Datatype spaced;
/* One for each rank's messages to the right, so that one direction alone can be repeated; and this rank's two. */
enum { MOST_RANKS = 16 };
static pchan_channel *all[MOST_RANKS], *channels[2];
static double *data[2]; /* [MOST_OPERATIONS][2 MOST] */
enum { IN, OUT };

static void make_channels(const char *transport)
{
    MPI_Datatype type = mixed ? spaced : MPI_DOUBLE;
    for (int r = 0; r < world_size; r++) OK(pchan_channel_create(MPI_COMM_WORLD, NULL, &all[r], err));
    channels[IN] = all[left];
    channels[OUT] = all[world_rank];
    for (int k = 0; k < n_operations; k++) {
        int size = n_operations == 1 ? sizes[1] : sizes[k];
        double *in = data[IN] + 2 * MOST * k, *out = data[OUT] + 2 * MOST * k;
        OK(pchan_channel_recv_init(channels[IN], in, size, type, left, k, NULL, err));
        OK(pchan_channel_send_init(channels[OUT], out, size, type, right, k, NULL, err));
    }
    if (!transport) return;
    setenv("PCHAN_TRANSPORT", transport, 1);
    for (int r = 0; r < world_size; r++) OK(pchan_channel_connect(all[r], err));
    unsetenv("PCHAN_TRANSPORT");
}

static void destroy_channels(void)
{
    for (int r = 0; r < world_size; r++) OK(pchan_channel_destroy(&all[r], err));
}

static void fill(int cycle)
{
    for (int k = 0; k < MOST_OPERATIONS * 2 * MOST; k++) {
        data[OUT][k] = cycle + 100 * world_rank + k % 7;
        data[IN][k] = -1;
    }
}

static void check(int cycle, const char *call)
{
    for (int k = 0; k < n_operations; k++) {
        int size = n_operations == 1 ? sizes[1] : sizes[k];
        for (int i = 0; i < size; i++) {
            int at = 2 * MOST * k + (mixed ? 2 : 1) * i;
            CHECK(data[IN][at] == cycle + 100 * left + at % 7,
                  "rank %d: %s, %s failed: message %d, element %d: %g", world_rank, fault_place,
                  call ? call : "nothing", k, i, data[IN][at]);
        }
    }
}

static pchan_status finish(pchan_channel *channel, pchan_error *err)
{
    int finished = 0, index = 0;
    pchan_status status = PCHAN_OK;
    if (way == BY_WAIT) return pchan_channel_wait(channel, -1, err);
    while (way == BY_TEST && status == PCHAN_OK && !finished)
        status = pchan_channel_poll(channel, 0, &finished, err);
    while (way == BY_WAIT_ANY && status == PCHAN_OK && pchan_channel_active(channel))
        status = pchan_channel_wait_any(channel, -1, &index, err);
    return status;
}

/* Has the call that failed kept the message here? A slot goes on its way with its failure; a bundle does not. */
static bool was_kept(int c, const char *call, bool bundle)
{
    if (!strncmp(call, "MPI_Start", 9)) return true;
    return c == OUT && bundle && (!strcmp(call, "MPI_Pack") || !strcmp(call, "MPI_Type_size"));
}

/* A channel's part of the cycle to its end, again where nothing has left this rank. What was reported. */
static pchan_error complete(int c, pchan_error first, const char *transport, const fault *f)
{
    pchan_error error = {0};
    bool bundle = transport && !strcmp(transport, "bundle");
    while (pchan_channel_active(channels[c])) {
        pchan_status status = finish(channels[c], &error);
        if (status == PCHAN_OK) continue;
        CHECK(strstr(error.message, "operation ") || strstr(error.message, "wait: "), "rank %d: %s: '%s'",
              world_rank, fault_place, error.message);
        first = error;
        const char *call = faults_disarm();
        bool again =
            call && f->kind == FAULT_MPI && was_kept(c, call, bundle) && !pchan_channel_active(channels[c]);
        if (again) OK(pchan_channel_start(channels[c], err));
    }
    return first;
}

/* True when a call failed on some rank. */
static bool cycle_once(const fault *f, long n, int culprit, const char *transport, const char *only)
{
    char name[80];
    snprintf(name, sizeof name, "a cycle, %s%s, %d messages, way %d, errno %d",
             transport ? transport : "unconnected", mixed ? ", derived" : "", n_operations, way, f->error);
    watch(name, f, n, culprit, only);
    books before = read_books();
    pchan_error errors[2] = {{0}, {0}};
    fill(1);
    PMPI_Barrier(MPI_COMM_WORLD);
    arm(f, n, culprit, only);
    for (int c = 0; c < 2; c++) {
        pchan_status status = pchan_channel_start(channels[c], &errors[c]);
        CHECK(status == PCHAN_OK || strstr(errors[c].message, "operation ") ||
                  strstr(errors[c].message, "start: "),
              "rank %d: %s: '%s'", world_rank, fault_place, errors[c].message);
    }
    int first = errors[IN].status != PCHAN_OK ? IN : OUT; /* a peer may wait for what did not start */
    errors[first] = complete(first, errors[first], transport, f);
    errors[!first] = complete(!first, errors[!first], transport, f);
    const char *call = disarm(f);
    bool failed = errors[IN].status != PCHAN_OK || errors[OUT].status != PCHAN_OK;
    bool harmless = f->error == EINTR || f->error == SHORT_BY_ONE || f->error == SHORT_BY_HALF;
    fault_counts.failed += call != NULL;
    fault_counts.errors += failed;
    CHECK(!call || failed != harmless, "rank %d: %s, %s failed: %s", world_rank, fault_place, call,
          failed ? errors[IN].message : "no error");
    if (errors[IN].status == PCHAN_OK) check(1, call);
    for (int c = 2; c < 4; c++) {
        fill(c);
        PMPI_Barrier(MPI_COMM_WORLD);
        for (int k = 0; k < 2; k++) OK(pchan_channel_start(channels[k], err));
        for (int k = 0; k < 2; k++) OK(finish(channels[k], err));
        check(c, call);
    }
    check_books(&before, true, "after a cycle", call);
    return on_some(call != NULL);
}

static void fail_cycles(const char *transport, const fault *f, int least)
{
    for (n_operations = 1; n_operations <= MOST_OPERATIONS; n_operations += 2) {
        for (way = BY_WAIT; way <= BY_WAIT_ANY; way++) {
            make_channels(transport);
            int step = world_size < 3 ? 1 : 2; /* of three ranks the middle one; all at once */
            for (int culprit = step - 1; culprit <= world_size; culprit += step) {
                long n = 0;
                while (cycle_once(f, n, culprit, transport, NULL)) n += every(4);
                CHECK(n >= least, "%s: only %ld", fault_place, n);
            }
            destroy_channels();
        }
    }
}

/* MPI refuses to cancel what is active in MPI_Finalize: it may not wait for it then. */
static void leave_active(void)
{
    pchan_channel *channel;
    static double never;
    OK(pchan_channel_create(MPI_COMM_WORLD, NULL, &channel, err));
    OK(pchan_channel_recv_init(channel, &never, 1, MPI_DOUBLE, left, 77, NULL, err));
    OK(pchan_channel_start(channel, err));
    pchan_channel_abandon(&channel);
    faults_arm(FAULT_MPI, 0, FAULT_CALL, 0, "MPI_Cancel");
}

int main(int argc, char **argv)
{
    begin_mpi(&argc, &argv);
    if (world_size == 1 || world_size > MOST_RANKS) { /* a message to oneself that did not start never comes */
        MPI_Finalize();
        return 0;
    }
    pchan_set_allocator(&counting_door);
    left = (world_rank + world_size - 1) % world_size;
    right = (world_rank + 1) % world_size;
    for (int c = 0; c < 2; c++) data[c] = calloc(MOST_OPERATIONS * 2 * MOST, sizeof **data);
    MPI_Type_create_resized(MPI_DOUBLE, 0, 16, &spaced);
    MPI_Type_commit(&spaced);
    n_operations = 1;
    make_channels("auto"); /* what stays with the communicator */
    destroy_channels();

    const char *const by_mpi[] = {NULL, "mpi", "bundle"};
    for (int k = 0; k < 3; k++) {
        fail_cycles(by_mpi[k], &fault_mpi, 1);
        fail_cycles(by_mpi[k], &fault_message, 1);
    }
    mixed = true;
    fail_cycles("shm", &fault_mpi, 1);
    fail_cycles("bundle", &fault_mpi, 1);
    mixed = false;
    const int errors[] = {EPERM, ENOMEM, EINTR, SHORT_BY_ONE, SHORT_BY_HALF, SHORT_TO_NOTHING};
    for (size_t k = 0; k < sizeof errors / sizeof *errors; k++) {
        const fault f = {"a system call", FAULT_SYSTEM, 0, errors[k]};
        fail_cycles("cma", &f, 0);
    }
    MPI_Type_free(&spaced);
    leave_active();
    end_faults();
    for (int c = 0; c < 2; c++) free(data[c]);
    return 0;
}
