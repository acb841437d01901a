/* SPDX-License-Identifier: MIT
 * Under testing_mpi.h. Windows: zero at first, shared by the whole node, locks that exclude, no names, refusal on
 * all ranks. */
#include "testing_qreduce.h"

#include "../core/pch_window.h"

#include <dirent.h>
#include <sched.h>
#include <string.h>
#include <sys/resource.h>

static int count_names(const char *folder, const char *prefix)
{
    int n = 0;
    DIR *dir = opendir(folder);
    for (struct dirent *e = dir ? readdir(dir) : NULL; e; e = readdir(dir))
        n += !strncmp(e->d_name, prefix, strlen(prefix));
    if (dir) closedir(dir);
    return n;
}

/* No name stays in /dev/shm. Other jobs' names come and go there, and the first rank's last step may be due. */
static bool names_vanish(void)
{
    for (int k = 0; k < 2000; k++) {
        if (count_names("/dev/shm", "pchan") == 0) return true;
        usleep(1000);
    }
    return false;
}

/* Every rank writes its own words; then all are seen by all. */
static void check_words(MPI_Comm node, pch_window *w, int64_t n_words)
{
    int rank, size;
    MPI_Comm_rank(node, &rank);
    MPI_Comm_size(node, &size);
    CHECK((uintptr_t)w->words % PCH_CACHE_LINE == 0, "words at %p", (void *)w->words);
    for (int64_t k = 0; k < n_words; k++) CHECK(w->words[k] == 0, "word %lld is not zero", (long long)k);
    MPI_Barrier(node);
    for (int64_t k = rank; k < n_words; k += size) w->words[k] = (uint64_t)k * 1000 + (uint64_t)rank;
    MPI_Barrier(node);
    for (int64_t k = 0; k < n_words; k++) {
        CHECK(w->words[k] == (uint64_t)k * 1000 + (uint64_t)(k % size), "word %lld: another memory", (long long)k);
    }
    MPI_Barrier(node);
}

static void check_counters(MPI_Comm node, pch_window *w)
{
    int rank, size;
    MPI_Comm_rank(node, &rank);
    MPI_Comm_size(node, &size);
    for (int r = 0; r < size; r++) CHECK(atomic_load(&w->counters[r].value) == 0, "counter %d", r);
    MPI_Barrier(node);
    atomic_store_explicit(&w->counters[rank].value, 100 + (uint64_t)rank, memory_order_release);
    for (int r = 0; r < size; r++) {
        while (atomic_load_explicit(&w->counters[r].value, memory_order_acquire) != 100 + (uint64_t)r)
            sched_yield();
    }
    MPI_Barrier(node);
}

/* Additions that are not atomic, by all ranks at once, to words under different locks. */
static void check_locks(MPI_Comm node, pch_window *w)
{
    enum { N_TIMES = 20000, N_PLACES = 3 };
    int size;
    MPI_Comm_size(node, &size);
    for (int k = 0; k < N_PLACES; k++) w->words[k] = 0;
    MPI_Barrier(node);
    for (int t = 0; t < N_TIMES; t++) {
        size_t k = (size_t)t % N_PLACES;
        volatile uint64_t *word = &w->words[k];
        pch_window_lock(w, k + PCH_N_LOCKS);
        *word = *word + 1;
        pch_window_unlock(w, k);
    }
    MPI_Barrier(node);
    uint64_t sum = w->words[0] + w->words[1] + w->words[2];
    CHECK(sum == (uint64_t)size * N_TIMES, "%llu of %d", (unsigned long long)sum, size * N_TIMES);
    MPI_Barrier(node);
}

static void check_window(int division, int64_t n_words, bool named)
{
    pch_window *w = NULL;
    int rank, size, n_files = count_names("/proc/self/fd", "");
    MPI_Comm node = divide(division);
    MPI_Comm_rank(node, &rank);
    MPI_Comm_size(node, &size);
    OK(pch_window_create(node, n_words * 8, named, &w, err));
    MPI_Barrier(MPI_COMM_WORLD);
    CHECK(names_vanish(), "a name in /dev/shm");
    CHECK(count_names("/proc/self/fd", "") == n_files, "a file left open");
    check_words(node, w, n_words);
    check_counters(node, w);
    if (n_words >= 3) check_locks(node, w);
    if (rank == 0) pch_window_destroy(&w); /* the others still have it */
    MPI_Barrier(node);
    if (rank != 0 && n_words > 3)
        CHECK(w->words[3] == 3000 + 3 % (uint64_t)size, "memory gone with the first rank");
    pch_window_destroy(&w);
    pch_window_destroy(&w);
    CHECK(!w, "destroy leaves the pointer");
    MPI_Comm_free(&node);
}

/* One rank that cannot map it: an error on all. */
static void check_refusals(bool named)
{
    pch_window *w = NULL;
    struct rlimit limit, old;
    FAILS(PCHAN_ERR_NOMEM, pch_window_create(MPI_COMM_WORLD, (int64_t)1 << 50, named, &w, err));
    CHECK(!w, "a window in spite of the error");
    getrlimit(RLIMIT_AS, &old);
    limit = old;
    limit.rlim_cur = 1 << 20;
    if (world_rank == world_size - 1) setrlimit(RLIMIT_AS, &limit);
    pchan_status status = pch_window_create(MPI_COMM_WORLD, (int64_t)1 << 24, named, &w, NULL);
    if (world_rank == world_size - 1) setrlimit(RLIMIT_AS, &old);
    CHECK(status == PCHAN_ERR_NOMEM && !w, "%s", pchan_status_name(status));
    CHECK(names_vanish(), "a name in /dev/shm");
}

int main(int argc, char **argv)
{
    begin_mpi(&argc, &argv);
    for (int division = 0; division < N_DIVISIONS; division++) {
        for (int named = 0; named < 2; named++) {
            check_window(division, 0, named);
            check_window(division, 1, named);
            check_window(division, 5000, named);
        }
    }
    check_refusals(false);
    check_refusals(true);
    MPI_Finalize();
    return 0;
}
