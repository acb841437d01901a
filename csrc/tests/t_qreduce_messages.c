/* SPDX-License-Identifier: MIT
 * Under testing_mpi.h. Reduce-scatter: what is seen between the library and MPI, by standing in for some of MPI's
 * functions: damaged messages are noticed, several chunks are in flight, long messages are cut; and the pages of
 * the window are touched by the ranks that use them. */
#include "testing_qreduce.h"

#include "../core/pch_qreduce.h"

/* ---- between the library and MPI ---- */

enum { MAX_RECEIVES = 4096 };
static struct {
    MPI_Request request;
    unsigned char *buffer;
    int64_t bytes;
    bool active;
} receives[MAX_RECEIVES];
static int n_receives, n_active, most_active, n_large, largest_count;
static int64_t flip_at = -1; /* which bit of the next received message of some length, modulo its bits */

static void note_receive(MPI_Request request, void *buffer, MPI_Count bytes)
{
    CHECK(n_receives < MAX_RECEIVES, "too many receives");
    for (int k = 0; k < n_receives; k++) { /* a freed one's number comes again */
        if (receives[k].request == request) receives[k] = receives[--n_receives];
    }
    receives[n_receives].request = request;
    receives[n_receives].buffer = buffer;
    receives[n_receives].bytes = (int64_t)bytes;
    receives[n_receives++].active = false;
}

int MPI_Recv_init(void *buf, int count, MPI_Datatype type, int source, int tag, MPI_Comm comm,
                  MPI_Request *request)
{
    MPI_Count size;
    MPI_Type_size_x(type, &size);
    if (size > 8) n_large++;
    if (count > largest_count) largest_count = count;
    int code = PMPI_Recv_init(buf, count, type, source, tag, comm, request);
    note_receive(*request, buf, size * count);
    return code;
}

#if MPI_VERSION >= 4
int MPI_Reduce_scatter_init(const void *sent, void *sums, const int counts[], MPI_Datatype type, MPI_Op op,
                            MPI_Comm comm, MPI_Info info, MPI_Request *request)
{
    int rank;
    MPI_Comm_rank(comm, &rank);
    for (int r = 0; r < world_size; r++) {
        if (counts[r] > largest_count) largest_count = counts[r];
    }
    int code = PMPI_Reduce_scatter_init(sent, sums, counts, type, op, comm, info, request);
    note_receive(*request, sums, (MPI_Count)counts[rank] * 4);
    return code;
}
#endif

static void note_start(MPI_Request request)
{
    for (int k = 0; k < n_receives; k++) {
        if (receives[k].request != request) continue;
        receives[k].active = true;
        n_active += receives[k].bytes > 8; /* not those of the agreement */
    }
    if (n_active > most_active) most_active = n_active;
}

static void note_end(MPI_Request request)
{
    for (int k = 0; k < n_receives; k++) {
        if (receives[k].request != request || !receives[k].active) continue;
        receives[k].active = false;
        n_active -= receives[k].bytes > 8;
        if (flip_at < 0 || receives[k].bytes <= 8) continue;
        int64_t bit = flip_at % (8 * receives[k].bytes);
        receives[k].buffer[bit / 8] ^= (unsigned char)(1 << bit % 8);
        flip_at = -1;
    }
}

int MPI_Start(MPI_Request *request)
{
    note_start(*request);
    return PMPI_Start(request);
}

int MPI_Startall(int n, MPI_Request requests[])
{
    for (int k = 0; k < n; k++) note_start(requests[k]);
    return PMPI_Startall(n, requests);
}

int MPI_Test(MPI_Request *request, int *flag, MPI_Status *status)
{
    MPI_Request before = *request;
    int code = PMPI_Test(request, flag, status);
    if (*flag) note_end(before);
    return code;
}

int MPI_Testall(int n, MPI_Request requests[], int *flag, MPI_Status statuses[])
{
    int code = PMPI_Testall(n, requests, flag, statuses);
    for (int k = 0; *flag && k < n; k++) note_end(requests[k]);
    return code;
}

static void forget(void)
{
    n_receives = n_active = most_active = n_large = largest_count = 0;
}

/* ---- the tests ---- */

static object make_each(int n, const pchan_basis *basis, const char *strategy, int64_t buffer_bytes)
{
    MPI_Comm self = MPI_COMM_SELF;
    forget();
    return make_object(
        MPI_COMM_WORLD, n, basis,
        &(pchan_qreduce_options){.node_comm = &self, .strategy = strategy, .buffer_bytes = buffer_bytes});
}

/* A bit of a message flips on its way to the last rank: all ranks hear of it, and the next cycle is right. Bit 63
 * of a word may be without effect. 40 spare bits: none of these few passes by chance. */
static void check_damage(const char *strategy)
{
    enum { N = 4 };
    pchan_basis *basis = make_basis(200, 40);
    object o = make_each(N, basis, strategy, 0);
    uint64_t seed = 3;
    for (int cycle = 0; cycle < 12; cycle++) {
        matrix m = make_matrix(basis, N);
        fill_matrix(basis, &m, cycle);
        add_all(o.q, &m);
        int64_t bit = (int64_t)(random_u64(&seed) >> 8);
        if (bit % 64 == 63) bit -= 5;
        if (world_rank == world_size - 1) flip_at = bit;
        OK(pchan_qreduce_start(o.q, err));
        pchan_error error = {0};
        pchan_status status = pchan_qreduce_wait(o.q, -1, &error);
        CHECK(flip_at < 0, "%s: no message was damaged", strategy);
        CHECK(status == PCHAN_ERR_RANGE, "%s: bit %lld passes: %s", strategy, (long long)bit, error.message);
        free_matrix(&m);
    }
    run_cycle(&o, basis, N, 50, strategy);
    free_object(&o);
    pchan_basis_destroy(&basis);
}

/* While a chunk is added, the next one is on its way. */
static void check_flight(const pchan_basis *basis)
{
    enum { N = 30 };
    object o = make_each(N, basis, "residues", 1); /* so many rounds are not connected */
    run_cycle(&o, basis, N, 1, "small buffers");
    int want = 2 * (world_size - 1);
    CHECK(n_receives > 3 * want, "only %d receives in all", n_receives);
    CHECK(most_active == want, "%d receives in flight, not %d", most_active, want);
    free_object(&o);
}

/* With MPI's largest count at 7, every message is cut or gets a type of its own. */
static void check_counts(const pchan_basis *basis, const char *strategy)
{
    enum { N = 12, LIMIT = 7 };
    pch_longest_count = LIMIT;
    object o = make_each(N, basis, strategy, 0);
    run_cycle(&o, basis, N, 2, strategy);
    if (strcmp(strategy, "mpi") != 0) {
        CHECK(largest_count <= LIMIT && n_large > 0, "%s: a count of %d", strategy, largest_count);
    } else { /* one element at a time */
        CHECK(largest_count <= pchan_basis_n_primes(basis), "mpi: a count of %d", largest_count);
    }
    int64_t total = N * (N + 1) / 2;
    uint64_t *all = calloc((size_t)(total * pchan_basis_n_limbs(basis)), 8);
    OK(pchan_qreduce_gather(o.q, 0, world_rank == 0 ? all : NULL, err));
    free(all);
    free_object(&o);
    pch_longest_count = INT32_MAX;
}

/* Of the window's mapping, what this process has touched. */
static int64_t resident_bytes(void)
{
    char line[512];
    long long kib = 0, sum = 0;
    bool inside = false;
    FILE *file = fopen("/proc/self/smaps", "r");
    while (file && fgets(line, sizeof line, file)) {
        if (strchr(line, '-') && strchr(line, '-') < strchr(line, ' '))
            inside = strstr(line, "pchan-window") != NULL;
        if (inside && sscanf(line, "Rss: %lld kB", &kib) == 1) sum += 1024 * kib;
    }
    if (file) fclose(file);
    return sum;
}

static void check_first_touch(int division)
{
    enum { N = 300, SLACK = 16 * 4096 };
    pchan_basis *basis = make_basis(500, 8);
    MPI_Comm node = divide(division);
    object o = make_object(MPI_COMM_WORLD, N, basis,
                           &(pchan_qreduce_options){.node_comm = &node, .layout.kind = PCHAN_PACKED_ROWS});
    int64_t element = 8 * pchan_basis_n_words(basis), used = 0;
    int mine = pchan_qreduce_node(o.q, world_rank), parts = 1;
    for (int r = 0; r < world_size; r++) {
        if (r != world_rank && !pch_contributes(o.q, r)) continue;
        used += pchan_qreduce_n_owned(o.q, r) * element;
        parts++;
        CHECK(r == world_rank || pchan_qreduce_node(o.q, r) != mine, "rank %d sends within its node", world_rank);
    }
    int64_t touched = resident_bytes();
    /* the kernel maps up to 16 pages around a fault where others have touched them */
    CHECK(touched >= used - SLACK && touched <= used + parts * SLACK + used / 4, "touched %lld bytes, uses %lld",
          (long long)touched, (long long)used);
    free_object(&o);
    MPI_Comm_free(&node);
    pchan_basis_destroy(&basis);
}

int main(int argc, char **argv)
{
    setenv("PCHAN_TRANSPORT", "mpi", 1); /* on one machine messages would go another way */
    begin_mpi(&argc, &argv);
    pchan_basis *basis = make_basis(150, 8);
    for (int s = 0; s < N_STRATEGIES && world_size > 1; s++) {
        check_damage(strategy_names[s]);
        check_counts(basis, strategy_names[s]);
    }
    if (world_size > 1) check_flight(basis);
    check_first_touch(ONE_NODE);
    check_first_touch(EACH_RANK);
    pchan_basis_destroy(&basis);
    MPI_Finalize();
    return 0;
}
