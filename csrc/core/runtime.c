/* SPDX-License-Identifier: MIT
 *
 * Is MPI there, and what must be freed when it goes. Programs forget to free, and mpi4py
 * finalises MPI after the interpreter is gone, so the last word belongs to a C delete callback
 * on MPI_COMM_SELF: MPI calls it first thing in MPI_Finalize, when MPI still works.
 */
#include "pch_mpi.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pch_live list = {&list, &list, NULL};
static bool installed, over, forked;

static int64_t finalize_began_ns;

int64_t pch_grace_ns(void)
{
    enum { GRACE_NS = 200000000 };
    int64_t left_ns = finalize_began_ns + GRACE_NS - pch_now_ns();
    return left_ns > 0 ? left_ns : 0;
}

static int finalize_all(MPI_Comm comm, int keyval, void *value, void *extra)
{
    (void)comm, (void)keyval, (void)value, (void)extra;
    finalize_began_ns = pch_now_ns();
    while (list.prev != &list) {
        pch_live *live = list.prev;
        pch_live_remove(live);
        live->finalize(live);
    }
    over = true;
    return MPI_SUCCESS;
}

static void mark_child(void)
{
    forked = true;
}

/* The keyval is marked for freeing at once; it lives on until the callback has run. */
static pchan_status install(pchan_error *err)
{
    pchan_status status = PCHAN_OK;
    pthread_mutex_lock(&lock);
    if (!installed) {
        int keyval, code = MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, finalize_all, &keyval, NULL);
        if (code == MPI_SUCCESS) {
            code = MPI_Comm_set_attr(MPI_COMM_SELF, keyval, &list);
            MPI_Comm_free_keyval(&keyval);
        }
        if (code == MPI_SUCCESS) {
            pthread_atfork(NULL, NULL, mark_child);
            installed = true;
        } else {
            status = pch_fail_mpi(err, code, "installing the callback of MPI_Finalize");
        }
    }
    pthread_mutex_unlock(&lock);
    return status;
}

pchan_status pch_runtime_check(const char *what, pchan_error *err)
{
    if (forked) {
        return pch_fail(err, PCHAN_ERR_STATE, "%s: not in a forked child; only the process that began uses MPI",
                        what);
    }
    if (installed && !over) return PCHAN_OK;
    int initialized = 0, finalized = 0;
    MPI_Initialized(&initialized);
    MPI_Finalized(&finalized);
    if (!initialized) return pch_fail(err, PCHAN_ERR_STATE, "%s: MPI is not initialised", what);
    if (finalized || over) return pch_fail(err, PCHAN_ERR_STATE, "%s: MPI is finalised", what);
    return install(err);
}

bool pch_runtime_is_over(void)
{
    return over;
}

bool pch_runtime_is_forked(void)
{
    return forked;
}

void pch_live_add(pch_live *live, void (*finalize)(pch_live *live))
{
    pthread_mutex_lock(&lock);
    live->finalize = finalize;
    live->prev = list.prev;
    live->next = &list;
    list.prev->next = live;
    list.prev = live;
    pthread_mutex_unlock(&lock);
}

void pch_live_remove(pch_live *live)
{
    if (!live->next) return;
    pthread_mutex_lock(&lock);
    live->prev->next = live->next;
    live->next->prev = live->prev;
    live->prev = live->next = NULL;
    pthread_mutex_unlock(&lock);
}

pchan_status pch_fail_mpi(pchan_error *err, int code, const char *what)
{
    char text[MPI_MAX_ERROR_STRING] = "unknown error";
    int length, class = MPI_SUCCESS;
    MPI_Error_string(code, text, &length);
    MPI_Error_class(code, &class);
    /* the usual one in one wording: with the standard ABI, MPICH 5.0.2 calls it "Other MPI error" */
    if (class == MPI_ERR_TRUNCATE) snprintf(text, sizeof text, "Message truncated");
    char *stack = strstr(text, ", error stack"); /* MPICH appends its calls */
    if (!stack) stack = strchr(text, '\n');
    if (stack) *stack = '\0';
    pch_tell(err, PCHAN_ERR_MPI, "%s: %s", what, text);
    if (err) err->mpi_code = code;
    return PCHAN_ERR_MPI;
}

/* An agreement that failed on this rank alone. The others go on, so this rank goes on too, and tells them in the
 * next one. One collective call a thread. */
static _Thread_local pchan_error untold;

/* What this rank brings: its own failure, or one that it could not tell. */
static pchan_status bring(pchan_status status, const pchan_error *own, pchan_error *theirs)
{
    *theirs = (pchan_error){0};
    if (status == PCHAN_OK && untold.status != PCHAN_OK) {
        *theirs = untold;
        status = untold.status;
    } else if (status != PCHAN_OK && own) {
        *theirs = *own;
    }
    theirs->status = status;
    return status;
}

pchan_status pch_agree_on(MPI_Comm comm, pchan_status status, const pchan_error *own, pchan_error *err)
{
    int rank, size, first;
    pchan_error theirs, lost;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    status = bring(status, own, &theirs);
    first = status == PCHAN_OK ? size : rank;
    pchan_status mpi = PCH_MPI(MPI_Allreduce(MPI_IN_PLACE, &first, 1, MPI_INT, MPI_MIN, comm), "agreeing", &lost);
    if (mpi != PCHAN_OK) {
        first = status == PCHAN_OK ? size : rank;
        if (status == PCHAN_OK) untold = lost;
    }
    if (first == size) return PCHAN_OK;

    untold.status = PCHAN_OK;
    mpi = PCH_MPI(MPI_Bcast(&theirs, (int)sizeof theirs, MPI_BYTE, first, comm), "agreeing", err);
    if (mpi != PCHAN_OK) return mpi;
    theirs.message[sizeof theirs.message - 1] = '\0';
    if (!err) return theirs.status;
    *err = theirs;
    err->rank = first;
    if (first != rank) snprintf(err->message, sizeof err->message, "rank %d: %.480s", first, theirs.message);
    return theirs.status;
}

pchan_status pch_conclude(const char *what, pchan_status status, pchan_error *err)
{
    if (status == PCHAN_OK && untold.status != PCHAN_OK) {
        status = untold.status;
        if (err) *err = untold;
    }
    untold.status = PCHAN_OK;
    if (status != PCHAN_OK && err && !strstr(err->message, what)) {
        char text[sizeof err->message];
        snprintf(text, sizeof text, "%s: %.*s", what, (int)(sizeof text - 3 - strlen(what)), err->message);
        memcpy(err->message, text, sizeof text);
    }
    return status;
}
