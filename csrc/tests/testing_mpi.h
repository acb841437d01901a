/* SPDX-License-Identifier: MIT
 *
 * For tests that run under mpiexec: failures end the job, and so does a hang.
 */
#ifndef PCHAN_TESTING_MPI_H
#define PCHAN_TESTING_MPI_H

#include "../core/pch_mpi.h"
#include "testing.h"

#include <sys/wait.h>
#include <unistd.h>

static int world_rank, world_size;

static inline void begin_mpi(int *argc, char ***argv)
{
    int level;
    alarm(60);
    MPI_Init_thread(argc, argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world_size);
}

/* What work(object) returns in a forked child; -1 when it hangs there. */
static inline int in_forked_child(int (*work)(void *object), void *object)
{
    int status = 0;
    pid_t pid = fork();
    CHECK(pid >= 0, "fork");
    if (pid == 0) {
        alarm(5);
        _exit(work(object));
    }
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

#define OK(call)                                                                                                 \
    do {                                                                                                         \
        pchan_error ok_error = {0}, *err = &ok_error;                                                            \
        pchan_status ok_status = (call);                                                                         \
        CHECK(ok_status == PCHAN_OK, "rank %d: %s: %s", world_rank, pchan_status_name(ok_status), err->message); \
    } while (0)

/* The call must fail with that status and a message. */
#define FAILS(status, call)                                                                             \
    do {                                                                                                \
        pchan_error fails_error = {0}, *err = &fails_error;                                             \
        pchan_status fails_status = (call);                                                             \
        CHECK(fails_status == (status) && err->message[0], "rank %d: %s instead of %s: %s", world_rank, \
              pchan_status_name(fails_status), pchan_status_name(status), err->message);                \
    } while (0)

#endif
