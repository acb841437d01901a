/* SPDX-License-Identifier: MIT
 *
 * For t_faults_*.c: an operation is tried again and again, and each time one more of its calls has succeeded
 * before one fails: on each rank in turn, then on all at once. After each failure it must work.
 */
#ifndef PCHAN_TESTING_FAULTS_H
#define PCHAN_TESTING_FAULTS_H

#include "testing_mpi.h" /* first, see there */

#include "faults.h"

#include <errno.h>
#include <signal.h>
#include <string.h>

typedef struct fault {
    const char *name;
    int kind, mode, error;
} fault;

static const fault fault_memory = {"an allocation", FAULT_MEMORY, 0, 0};
static const fault fault_mpi = {"an MPI call", FAULT_MPI, FAULT_CALL, 0};
static const fault fault_message = {"an MPI operation", FAULT_MPI, FAULT_OPERATION, 0};
static const fault fault_system = {"a system call", FAULT_SYSTEM, 0, ENOMEM};

typedef struct subject {
    const char *name, *says; /* every message has `says` in it */
    bool collective;         /* an error on all ranks or on none */
    bool keeps;              /* what stays with a communicator may stay after a failure */
    void (*prepare)(void);
    pchan_status (*attempt)(pchan_error *err);
    void (*undo)(void); /* an attempt that succeeded here and failed elsewhere */
    void (*prove)(void);
    void (*clean)(void);
} subject;

/* How many calls failed; how many of these made the operation fail, and on one rank alone. */
static struct {
    long failed, errors, alone;
} fault_counts;

static char fault_place[200];

static inline void on_alarm(int number)
{
    (void)number;
    char line[300];
    const char *call = faults_disarm();
    int length = snprintf(line, sizeof line, "rank %d hangs: %s, failed: %s\n", world_rank, fault_place,
                          call ? call : "nothing");
    _exit(write(2, line, (size_t)length) > 0 ? 3 : 4);
}

/* What is running, should it hang. */
static inline void watch(const char *name, const fault *f, long n, int culprit, const char *only)
{
    snprintf(fault_place, sizeof fault_place, "%s, %s %ld (%s) of rank %d fails", name, f->name, n,
             only ? only : "any", culprit);
    signal(SIGALRM, on_alarm);
    alarm(40);
}

/* Of three ranks on two processors each attempt takes long: only every n-th call fails then. PCHAN_SOAK=1: all. */
static inline bool soaking(void)
{
    const char *text = getenv("PCHAN_SOAK");
    return text && strcmp(text, "0") != 0;
}

static inline long every(long nth)
{
    return world_size < 3 || soaking() ? 1 : nth;
}

static inline bool is_culprit(int culprit)
{
    return culprit == world_rank || culprit == world_size;
}

static inline void arm(const fault *f, long n, int culprit, const char *only)
{
    if (!is_culprit(culprit)) return;
    if (f->kind == FAULT_MEMORY)
        allocations_left = n;
    else
        faults_arm(f->kind, n, f->mode, f->error, only);
}

/* The call that failed here; NULL: none. */
static inline const char *disarm(const fault *f)
{
    bool refused = allocations_refused > 0;
    allocations_left = -1;
    allocations_refused = 0;
    const char *name = faults_disarm();
    return f->kind == FAULT_MEMORY ? (refused ? "malloc" : NULL) : name;
}

static inline int on_some(int mine)
{
    int some = 0;
    PMPI_Allreduce(&mine, &some, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    return some;
}

typedef struct books {
    long in_use[N_BOOKS], blocks;
} books;

static inline books read_books(void)
{
    books b = {.blocks = blocks_in_use};
    memcpy(b.in_use, faults_books, sizeof b.in_use);
    return b;
}

static inline void check_books(const books *before, bool blocks_too, const char *when, const char *call)
{
    for (int k = 0; k < N_BOOKS; k++) {
        CHECK(faults_books[k] == before->in_use[k], "rank %d: %s, %s failed: %ld %s left (%s)", world_rank,
              fault_place, call ? call : "nothing", faults_books[k] - before->in_use[k], faults_book_names[k],
              when);
    }
    CHECK(!blocks_too || blocks_in_use == before->blocks, "rank %d: %s, %s failed: %ld blocks left (%s)",
          world_rank, fault_place, call ? call : "nothing", blocks_in_use - before->blocks, when);
}

/* Of a collective call: all ranks have failed or none. But nobody can tell the others that the very last agreement
 * has failed here. */
static inline void check_together(const subject *s, pchan_status status, const char *call)
{
    int some = on_some(status != PCHAN_OK), all = !on_some(status == PCHAN_OK);
    if (!s->collective || some == all) return;
    bool last = call && (!strcmp(call, "MPI_Allreduce") || !strcmp(call, "MPI_Bcast"));
    CHECK(status == PCHAN_OK || last, "rank %d: %s, %s failed: an error on this rank only", world_rank,
          fault_place, call ? call : "nothing");
    fault_counts.alone += status != PCHAN_OK;
}

/* One attempt with a fault, and one without; true when there was a fault. */
static inline bool fail_once(const subject *s, const fault *f, long n, int culprit, const char *only)
{
    watch(s->name, f, n, culprit, only);
    books at_first = read_books();
    s->prepare();
    books prepared = read_books();
    pchan_error error = {0};
    arm(f, n, culprit, only);
    pchan_status status = s->attempt(&error);
    const char *call = disarm(f);
    bool failed = status != PCHAN_OK;
    fault_counts.failed += call != NULL;
    fault_counts.errors += failed;
    if (failed)
        CHECK(strstr(error.message, s->says), "rank %d: %s, %s failed: the message is '%s'", world_rank,
              fault_place, call ? call : "nothing", error.message);
    if (failed && !s->keeps) check_books(&prepared, false, "after the failure", call);
    check_together(s, status, call);
    if (on_some(failed)) {
        if (!failed) s->undo();
        status = s->attempt(&error);
        CHECK(status == PCHAN_OK, "rank %d: %s, %s failed: the next attempt: %s", world_rank, fault_place,
              call ? call : "nothing", error.message);
    }
    s->prove();
    s->clean();
    PMPI_Barrier(MPI_COMM_WORLD);
    check_books(&at_first, true, "at the end", call);
    return on_some(call != NULL);
}

/* The ranks meet their calls in different orders; all of them together fail at the n-th of one name: two different
 * failures in one agreement are more than it can bear. */
static inline void fail_on_all(const subject *s, const fault *f)
{
    for (int k = 0; k < MOST_NAMES && f->mode == FAULT_CALL; k++) {
        char name[40] = "";
        if (faults_seen[k]) snprintf(name, sizeof name, "%s", faults_seen[k]);
        PMPI_Bcast(name, sizeof name, MPI_CHAR, 0, MPI_COMM_WORLD);
        if (!name[0]) break;
        for (long n = 0; fail_once(s, f, n, world_size, name); n++) continue;
    }
}

/* On each rank in turn, then on all. */
static inline void fail_each(const subject *s, const fault *f, int least)
{
    memset(faults_seen, 0, sizeof faults_seen);
    bool each = world_size < 3 || soaking(); /* or the middle one */
    int first = each ? 0 : 1, last = each ? world_size - 1 : 1;
    for (int culprit = first; culprit <= last; culprit++) {
        long n = 0;
        while (f->mode == FAULT_CALL && fail_once(s, f, n, culprit, NULL)) n += every(12);
        CHECK(f->mode != FAULT_CALL || n >= least, "%s: only %ld times %s", s->name, n, f->name);
    }
    const char *const finishing[] = {"MPI_Test", "MPI_Testall", "MPI_Waitall"}; /* where the mode counts */
    for (int k = 0; k < 3 && f->mode == FAULT_OPERATION; k++) {
        for (int culprit = first; culprit <= last; culprit++) {
            for (long n = 0; fail_once(s, f, n, culprit, finishing[k]);) n += every(4);
        }
    }
    if (world_size == 1 || (world_size > 2 && !soaking())) return;
    if (f->kind != FAULT_MEMORY) fail_on_all(s, f);
    for (long n = 0; f->kind == FAULT_MEMORY && fail_once(s, f, n, world_size, NULL); n++) continue;
}

/* What was given up while active stays, as far as MPI and the other ranks need it. */
static long may_stay[N_BOOKS];

static inline void end_faults(void)
{
    snprintf(fault_place, sizeof fault_place, "the end");
    alarm(40);
    long sums[3], mine[3] = {fault_counts.failed, fault_counts.errors, fault_counts.alone};
    PMPI_Reduce(mine, sums, 3, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
    if (world_rank == 0 && getenv("PCHAN_TEST_COUNTS"))
        printf("%d ranks: %ld calls failed, %ld errors, %ld on one rank alone\n", world_size, sums[0], sums[1],
               sums[2]);
    MPI_Finalize();
    for (int k = 0; k < N_BOOKS; k++) {
        if (k == BOOK_COMMS) continue; /* MPI_Finalize takes the cached ones along */
        CHECK(faults_books[k] >= 0 && faults_books[k] <= may_stay[k], "rank %d: %ld %s left after MPI_Finalize",
              world_rank, faults_books[k], faults_book_names[k]);
    }
}

#endif
