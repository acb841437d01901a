/* SPDX-License-Identifier: MIT
 * See faults.h. With FAULTS_PRELOAD it is a library for LD_PRELOAD; without, the linker wraps the system calls
 * (LINK_faults in csrc/Makefile). */
#include "faults.h"

#include <mpi.h>

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define CALLER ((uintptr_t)__builtin_return_address(0))

long faults_books[N_BOOKS];
const char *const faults_book_names[N_BOOKS] = {"requests", "datatypes", "communicators", "groups",
                                                "messages", "mappings",  "files",         "blocks"};

static struct {
    int kinds, mode, error;
    long skip;
    const char *only, *failed;
} plan;

#ifdef FAULTS_PRELOAD
static uintptr_t watched_first, watched_end;
#else
static uintptr_t watched_end = UINTPTR_MAX, watched_first;
#endif

void faults_arm(int kinds, long skip, int mode, int error, const char *only)
{
    plan.mode = mode;
    plan.error = error;
    plan.skip = skip;
    plan.only = only;
    plan.failed = NULL;
    plan.kinds = kinds;
}

const char *faults_disarm(void)
{
    plan.kinds = 0;
    return plan.failed;
}

void faults_watch(uintptr_t first, uintptr_t end)
{
    watched_first = first;
    watched_end = end;
}

static bool watched(uintptr_t caller)
{
    return caller >= watched_first && caller < watched_end;
}

const char *faults_seen[MOST_NAMES + 1];

static void see(const char *name)
{
    int k = 0;
    while (faults_seen[k] && strcmp(faults_seen[k], name) != 0) k++;
    if (!faults_seen[k] && k < MOST_NAMES) faults_seen[k] = name;
}

/* Is it this call's turn to fail? */
static bool strikes(int kind, const char *name, uintptr_t caller)
{
    if (!(plan.kinds & kind) || !watched(caller)) return false;
    see(name);
    if (plan.only && strcmp(plan.only, name) != 0) return false;
    if (plan.skip-- > 0) return false;
    plan.kinds = 0;
    plan.failed = name;
    return true;
}

static void book(int what, long change, uintptr_t caller)
{
    if (watched(caller)) __atomic_fetch_add(&faults_books[what], change, __ATOMIC_RELAXED);
}

/* ---- MPI: local calls, left undone ---- */

#define LOCAL(name, parameters, arguments)                           \
    int name parameters                                              \
    {                                                                \
        if (strikes(FAULT_MPI, #name, CALLER)) return MPI_ERR_OTHER; \
        return P##name arguments;                                    \
    }
/* The same; what is made at `place` goes into the books. */
#define MAKES(what, name, parameters, arguments)                     \
    int name parameters                                              \
    {                                                                \
        if (strikes(FAULT_MPI, #name, CALLER)) return MPI_ERR_OTHER; \
        int code = P##name arguments;                                \
        if (code == MPI_SUCCESS) book(what, 1, CALLER);              \
        return code;                                                 \
    }
/* Done, and an error. */
#define DONE(name, parameters, arguments)             \
    int name parameters                               \
    {                                                 \
        bool bad = strikes(FAULT_MPI, #name, CALLER); \
        int code = P##name arguments;                 \
        return bad ? MPI_ERR_OTHER : code;            \
    }
#define FREES(what, name, parameters, arguments)         \
    int name parameters                                  \
    {                                                    \
        bool bad = strikes(FAULT_MPI, #name, CALLER);    \
        int code = P##name arguments;                    \
        if (code == MPI_SUCCESS) book(what, -1, CALLER); \
        return bad ? MPI_ERR_OTHER : code;               \
    }
/* A collective call that makes something: what it made on this rank is lost to the caller. */
#define MAKES_TOGETHER(what, name, parameters, arguments, place, free) \
    int name parameters                                                \
    {                                                                  \
        bool bad = strikes(FAULT_MPI, #name, CALLER);                  \
        int code = P##name arguments;                                  \
        if (bad && code == MPI_SUCCESS) free(place);                   \
        if (bad) return MPI_ERR_OTHER;                                 \
        if (code == MPI_SUCCESS) book(what, 1, CALLER);                \
        return code;                                                   \
    }

LOCAL(MPI_Comm_create_keyval,
      (MPI_Comm_copy_attr_function * copy, MPI_Comm_delete_attr_function *delete, int *keyval, void *extra),
      (copy, delete, keyval, extra))
LOCAL(MPI_Comm_set_attr, (MPI_Comm comm, int keyval, void *value), (comm, keyval, value))
DONE(MPI_Comm_delete_attr, (MPI_Comm comm, int keyval), (comm, keyval))
DONE(MPI_Comm_free_keyval, (int *keyval), (keyval))
LOCAL(MPI_Comm_set_errhandler, (MPI_Comm comm, MPI_Errhandler handler), (comm, handler))
MAKES(BOOK_GROUPS, MPI_Comm_group, (MPI_Comm comm, MPI_Group *group), (comm, group))
LOCAL(MPI_Group_size, (MPI_Group group, int *size), (group, size))
LOCAL(MPI_Group_translate_ranks, (MPI_Group a, int n, const int from[], MPI_Group b, int to[]),
      (a, n, from, b, to))
FREES(BOOK_GROUPS, MPI_Group_free, (MPI_Group * group), (group))

MAKES(BOOK_TYPES, MPI_Type_create_hvector,
      (int n, int length, MPI_Aint stride, MPI_Datatype old, MPI_Datatype *type), (n, length, stride, old, type))
MAKES(BOOK_TYPES, MPI_Type_create_struct,
      (int n, const int lengths[], const MPI_Aint places[], const MPI_Datatype types[], MPI_Datatype *type),
      (n, lengths, places, types, type))
MAKES(BOOK_TYPES, MPI_Type_create_resized, (MPI_Datatype old, MPI_Aint lower, MPI_Aint extent, MPI_Datatype *type),
      (old, lower, extent, type))
MAKES(BOOK_TYPES, MPI_Type_dup, (MPI_Datatype old, MPI_Datatype *type), (old, type))
FREES(BOOK_TYPES, MPI_Type_free, (MPI_Datatype * type), (type))
LOCAL(MPI_Type_commit, (MPI_Datatype * type), (type))
LOCAL(MPI_Type_size, (MPI_Datatype type, int *size), (type, size))
LOCAL(MPI_Type_size_x, (MPI_Datatype type, MPI_Count *size), (type, size))
LOCAL(MPI_Type_get_extent, (MPI_Datatype type, MPI_Aint *lower, MPI_Aint *extent), (type, lower, extent))
LOCAL(MPI_Type_get_extent_x, (MPI_Datatype type, MPI_Count *lower, MPI_Count *extent), (type, lower, extent))
LOCAL(MPI_Type_get_name, (MPI_Datatype type, char *name, int *length), (type, name, length))
LOCAL(MPI_Get_count, (const MPI_Status *status, MPI_Datatype type, int *count), (status, type, count))
LOCAL(MPI_Get_elements_x, (const MPI_Status *status, MPI_Datatype type, MPI_Count *count), (status, type, count))
LOCAL(MPI_Pack_size, (int n, MPI_Datatype type, MPI_Comm comm, int *size), (n, type, comm, size))
LOCAL(MPI_Pack, (const void *in, int n, MPI_Datatype type, void *out, int size, int *position, MPI_Comm comm),
      (in, n, type, out, size, position, comm))
LOCAL(MPI_Unpack, (const void *in, int size, int *position, void *out, int n, MPI_Datatype type, MPI_Comm comm),
      (in, size, position, out, n, type, comm))

/* The derived types that come out of another are the caller's to free. */
static long count_derived(const MPI_Datatype types[], long n)
{
    long n_derived = 0;
    for (long k = 0; k < n; k++) {
        int ints, addresses, inner, combiner = MPI_COMBINER_NAMED;
        PMPI_Type_get_envelope(types[k], &ints, &addresses, &inner, &combiner);
        n_derived += combiner != MPI_COMBINER_NAMED;
    }
    return n_derived;
}

#if MPI_VERSION >= 4
LOCAL(MPI_Type_get_envelope_c,
      (MPI_Datatype type, MPI_Count *ints, MPI_Count *addresses, MPI_Count *counts, MPI_Count *types,
       int *combiner),
      (type, ints, addresses, counts, types, combiner))

int MPI_Type_get_contents_c(MPI_Datatype type, MPI_Count n_ints, MPI_Count n_addresses, MPI_Count n_counts,
                            MPI_Count n_types, int ints[], MPI_Aint addresses[], MPI_Count counts[],
                            MPI_Datatype types[])
{
    if (strikes(FAULT_MPI, "MPI_Type_get_contents_c", CALLER)) return MPI_ERR_OTHER;
    int code =
        PMPI_Type_get_contents_c(type, n_ints, n_addresses, n_counts, n_types, ints, addresses, counts, types);
    if (code == MPI_SUCCESS) book(BOOK_TYPES, count_derived(types, (long)n_types), CALLER);
    return code;
}

static void lose_request(MPI_Request *request)
{
    PMPI_Request_free(request);
}

MAKES_TOGETHER(BOOK_REQUESTS, MPI_Reduce_scatter_init,
               (const void *in, void *out, const int counts[], MPI_Datatype type, MPI_Op op, MPI_Comm comm,
                MPI_Info info, MPI_Request *request),
               (in, out, counts, type, op, comm, info, request), request, lose_request)
#else
LOCAL(MPI_Type_get_envelope, (MPI_Datatype type, int *ints, int *addresses, int *types, int *combiner),
      (type, ints, addresses, types, combiner))

int MPI_Type_get_contents(MPI_Datatype type, int n_ints, int n_addresses, int n_types, int ints[],
                          MPI_Aint addresses[], MPI_Datatype types[])
{
    if (strikes(FAULT_MPI, "MPI_Type_get_contents", CALLER)) return MPI_ERR_OTHER;
    int code = PMPI_Type_get_contents(type, n_ints, n_addresses, n_types, ints, addresses, types);
    if (code == MPI_SUCCESS) book(BOOK_TYPES, count_derived(types, n_types), CALLER);
    return code;
}

MAKES(BOOK_REQUESTS, MPI_Ireduce_scatter,
      (const void *in, void *out, const int counts[], MPI_Datatype type, MPI_Op op, MPI_Comm comm,
       MPI_Request *request),
      (in, out, counts, type, op, comm, request))
#endif

/* ---- MPI: collective calls ---- */

/* In truth collective; in MPICH and Open MPI it does not wait for the others. */
static void lose_comm(MPI_Comm *comm)
{
    if (*comm != MPI_COMM_NULL) PMPI_Comm_free(comm);
}

MAKES_TOGETHER(BOOK_COMMS, MPI_Comm_dup, (MPI_Comm comm, MPI_Comm *made), (comm, made), made, lose_comm)
MAKES_TOGETHER(BOOK_COMMS, MPI_Comm_split, (MPI_Comm comm, int color, int key, MPI_Comm *made),
               (comm, color, key, made), made, lose_comm)
MAKES_TOGETHER(BOOK_COMMS, MPI_Comm_split_type, (MPI_Comm comm, int type, int key, MPI_Info info, MPI_Comm *made),
               (comm, type, key, info, made), made, lose_comm)
FREES(BOOK_COMMS, MPI_Comm_free, (MPI_Comm * comm), (comm))
DONE(MPI_Allreduce, (const void *in, void *out, int n, MPI_Datatype type, MPI_Op op, MPI_Comm comm),
     (in, out, n, type, op, comm))
DONE(MPI_Scan, (const void *in, void *out, int n, MPI_Datatype type, MPI_Op op, MPI_Comm comm),
     (in, out, n, type, op, comm))
DONE(MPI_Bcast, (void *data, int n, MPI_Datatype type, int root, MPI_Comm comm), (data, n, type, root, comm))
DONE(MPI_Allgather,
     (const void *in, int n_in, MPI_Datatype type_in, void *out, int n_out, MPI_Datatype type_out, MPI_Comm comm),
     (in, n_in, type_in, out, n_out, type_out, comm))
DONE(MPI_Allgatherv,
     (const void *in, int n_in, MPI_Datatype type_in, void *out, const int n_out[], const int places[],
      MPI_Datatype type_out, MPI_Comm comm),
     (in, n_in, type_in, out, n_out, places, type_out, comm))
DONE(MPI_Gather,
     (const void *in, int n_in, MPI_Datatype type_in, void *out, int n_out, MPI_Datatype type_out, int root,
      MPI_Comm comm),
     (in, n_in, type_in, out, n_out, type_out, root, comm))

/* ---- MPI: messages ---- */

MAKES(BOOK_REQUESTS, MPI_Send_init,
      (const void *data, int n, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request *request),
      (data, n, type, to, tag, comm, request))
MAKES(BOOK_REQUESTS, MPI_Recv_init,
      (void *data, int n, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Request *request),
      (data, n, type, from, tag, comm, request))
MAKES(BOOK_REQUESTS, MPI_Isend,
      (const void *data, int n, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request *request),
      (data, n, type, to, tag, comm, request))
MAKES(BOOK_REQUESTS, MPI_Issend,
      (const void *data, int n, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request *request),
      (data, n, type, to, tag, comm, request))
MAKES(BOOK_REQUESTS, MPI_Irecv,
      (void *data, int n, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Request *request),
      (data, n, type, from, tag, comm, request))
MAKES(BOOK_REQUESTS, MPI_Ibarrier, (MPI_Comm comm, MPI_Request *request), (comm, request))
LOCAL(MPI_Start, (MPI_Request * request), (request))
LOCAL(MPI_Startall, (int n, MPI_Request requests[]), (n, requests))
LOCAL(MPI_Send, (const void *data, int n, MPI_Datatype type, int to, int tag, MPI_Comm comm),
      (data, n, type, to, tag, comm))
LOCAL(MPI_Recv, (void *data, int n, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Status *status),
      (data, n, type, from, tag, comm, status))
LOCAL(MPI_Cancel, (MPI_Request * request), (request))
FREES(BOOK_REQUESTS, MPI_Request_free, (MPI_Request * request), (request))

int MPI_Improbe(int from, int tag, MPI_Comm comm, int *flag, MPI_Message *message, MPI_Status *status)
{
    int there = 0;
    PMPI_Iprobe(from, tag, comm, &there, MPI_STATUS_IGNORE);
    if (there && strikes(FAULT_MPI, "MPI_Improbe", CALLER)) return MPI_ERR_OTHER;
    int code = PMPI_Improbe(from, tag, comm, flag, message, status);
    if (code == MPI_SUCCESS && *flag) book(BOOK_MESSAGES, 1, CALLER);
    return code;
}

int MPI_Mrecv(void *data, int n, MPI_Datatype type, MPI_Message *message, MPI_Status *status)
{
    if (strikes(FAULT_MPI, "MPI_Mrecv", CALLER)) return MPI_ERR_OTHER;
    int code = PMPI_Mrecv(data, n, type, message, status);
    book(BOOK_MESSAGES, -1, CALLER); /* also when it is truncated */
    return code;
}

/* ---- MPI: the end of requests ---- */

static bool is_done(MPI_Request request)
{
    int done = 1;
    PMPI_Request_get_status(request, &done, MPI_STATUS_IGNORE);
    return done;
}

int MPI_Test(MPI_Request *request, int *flag, MPI_Status *status)
{
    bool there = *request != MPI_REQUEST_NULL;
    int code = PMPI_Test(request, flag, status);
    if (there && *request == MPI_REQUEST_NULL) book(BOOK_REQUESTS, -1, CALLER);
    return *flag && strikes(FAULT_MPI, "MPI_Test", CALLER) ? MPI_ERR_OTHER : code;
}

int MPI_Wait(MPI_Request *request, MPI_Status *status)
{
    bool there = *request != MPI_REQUEST_NULL;
    int code = PMPI_Wait(request, status);
    if (there && *request == MPI_REQUEST_NULL) book(BOOK_REQUESTS, -1, CALLER);
    return strikes(FAULT_MPI, "MPI_Wait", CALLER) ? MPI_ERR_OTHER : code;
}

/* PMPI_Testall or PMPI_Waitall, and the first request's message counts as failed when `bad`. */
static int finish_all(int n, MPI_Request requests[], int *flag, MPI_Status statuses[], bool bad, uintptr_t caller)
{
    int left = 0, first = -1;
    for (int k = 0; k < n; k++) {
        left += requests[k] != MPI_REQUEST_NULL;
        if (first < 0 && requests[k] != MPI_REQUEST_NULL) first = k;
    }
    int code = flag ? PMPI_Testall(n, requests, flag, statuses) : PMPI_Waitall(n, requests, statuses);
    for (int k = 0; k < n; k++) left -= requests[k] != MPI_REQUEST_NULL;
    book(BOOK_REQUESTS, -left, caller);
    if (!bad) return code;
    for (int k = 0; k < n && statuses != MPI_STATUSES_IGNORE; k++)
        statuses[k].MPI_ERROR = k == first ? MPI_ERR_OTHER : MPI_SUCCESS;
    return MPI_ERR_IN_STATUS;
}

int MPI_Testall(int n, MPI_Request requests[], int *flag, MPI_Status statuses[])
{
    bool all = n > 0;
    for (int k = 0; k < n && all; k++) all = is_done(requests[k]);
    bool bad = all && strikes(FAULT_MPI, "MPI_Testall", CALLER);
    if (bad && plan.mode == FAULT_CALL) return MPI_ERR_OTHER;
    return finish_all(n, requests, flag, statuses, bad, CALLER);
}

int MPI_Waitall(int n, MPI_Request requests[], MPI_Status statuses[])
{
    bool bad = n > 0 && strikes(FAULT_MPI, "MPI_Waitall", CALLER);
    if (bad && plan.mode == FAULT_CALL) return MPI_ERR_OTHER;
    return finish_all(n, requests, NULL, statuses, bad, CALLER);
}

/* ---- the system ---- */

#ifdef FAULTS_PRELOAD
#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define SYSTEM(type, name, parameters) type name parameters
#else
#define REAL(name) __real_##name
#define SYSTEM(type, name, parameters) \
    type __real_##name parameters;     \
    type __wrap_##name parameters;     \
    type __wrap_##name parameters
#endif

static bool refuses(const char *name, uintptr_t caller)
{
    if (plan.error < 0 || !strikes(FAULT_SYSTEM, name, caller)) return false;
    errno = plan.error;
    return true;
}

SYSTEM(void *, mmap, (void *at, size_t bytes, int access, int flags, int fd, off_t offset))
{
    if (refuses("mmap", CALLER)) return MAP_FAILED;
    void *map = REAL(mmap)(at, bytes, access, flags, fd, offset);
    if (map != MAP_FAILED) book(BOOK_MAPS, 1, CALLER);
    return map;
}

SYSTEM(int, munmap, (void *at, size_t bytes))
{
    int code = REAL(munmap)(at, bytes);
    if (code == 0) book(BOOK_MAPS, -1, CALLER);
    return refuses("munmap", CALLER) ? -1 : code;
}

SYSTEM(int, memfd_create, (const char *name, unsigned flags))
{
    if (refuses("memfd_create", CALLER)) return -1;
    int fd = REAL(memfd_create)(name, flags);
    if (fd >= 0) book(BOOK_FILES, 1, CALLER);
    return fd;
}

SYSTEM(int, shm_open, (const char *name, int flags, mode_t mode))
{
    if (refuses("shm_open", CALLER)) return -1;
    int fd = REAL(shm_open)(name, flags, mode);
    if (fd >= 0) book(BOOK_FILES, 1, CALLER);
    return fd;
}

SYSTEM(int, shm_unlink, (const char *name))
{
    int code = REAL(shm_unlink)(name);
    return refuses("shm_unlink", CALLER) ? -1 : code;
}

SYSTEM(int, open, (const char *path, int flags, ...))
{
    va_list rest;
    va_start(rest, flags);
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    if (refuses("open", CALLER)) return -1;
    int fd = REAL(open)(path, flags, mode);
    if (fd >= 0) book(BOOK_FILES, 1, CALLER);
    return fd;
}

SYSTEM(int, close, (int fd))
{
    int code = REAL(close)(fd);
    if (code == 0) book(BOOK_FILES, -1, CALLER);
    return refuses("close", CALLER) ? -1 : code;
}

SYSTEM(FILE *, fopen, (const char *path, const char *mode))
{
    if (refuses("fopen", CALLER)) return NULL;
    FILE *file = REAL(fopen)(path, mode);
    if (file) book(BOOK_FILES, 1, CALLER);
    return file;
}

SYSTEM(int, fclose, (FILE * file))
{
    int code = REAL(fclose)(file);
    book(BOOK_FILES, -1, CALLER);
    return refuses("fclose", CALLER) ? EOF : code;
}

SYSTEM(int, ftruncate, (int fd, off_t bytes))
{
    return refuses("ftruncate", CALLER) ? -1 : REAL(ftruncate)(fd, bytes);
}

SYSTEM(int, posix_fallocate, (int fd, off_t first, off_t bytes))
{
    return refuses("posix_fallocate", CALLER) ? plan.error : REAL(posix_fallocate)(fd, first, bytes);
}

SYSTEM(int, fstat, (int fd, struct stat *facts))
{
    return refuses("fstat", CALLER) ? -1 : REAL(fstat)(fd, facts);
}

SYSTEM(int, stat, (const char *path, struct stat *facts))
{
    return refuses("stat", CALLER) ? -1 : REAL(stat)(path, facts);
}

SYSTEM(ssize_t, getrandom, (void *data, size_t bytes, unsigned flags))
{
    return refuses("getrandom", CALLER) ? -1 : REAL(getrandom)(data, bytes, flags);
}

SYSTEM(int, sched_getaffinity, (pid_t pid, size_t bytes, cpu_set_t *set))
{
    return refuses("sched_getaffinity", CALLER) ? -1 : REAL(sched_getaffinity)(pid, bytes, set);
}

/* How much of `bytes` this call may move. */
static size_t shortened(const char *name, size_t bytes, uintptr_t caller)
{
    if (plan.error >= 0 || !strikes(FAULT_SYSTEM, name, caller)) return bytes;
    return plan.error == SHORT_BY_ONE ? bytes - 1 : plan.error == SHORT_BY_HALF ? bytes / 2 : 0;
}

#define COPIES(name)                                                                              \
    SYSTEM(ssize_t, name,                                                                         \
           (pid_t pid, const struct iovec *here, unsigned long n_here, const struct iovec *there, \
            unsigned long n_there, unsigned long flags))                                          \
    {                                                                                             \
        if (refuses(#name, CALLER)) return -1;                                                    \
        struct iovec h = *here, t = *there;                                                       \
        h.iov_len = t.iov_len = shortened(#name, here->iov_len, CALLER);                          \
        return n_here == 1 && n_there == 1 && h.iov_len < here->iov_len                           \
                   ? REAL(name)(pid, &h, 1, &t, 1, flags)                                         \
                   : REAL(name)(pid, here, n_here, there, n_there, flags);                        \
    }
COPIES(process_vm_readv)
COPIES(process_vm_writev)

/* ---- malloc: C tests have the allocation door instead (testing.h) ---- */

#ifdef FAULTS_PRELOAD
void *__libc_malloc(size_t bytes);
void *__libc_realloc(void *block, size_t bytes);
void __libc_free(void *block);

void *malloc(size_t bytes)
{
    if (strikes(FAULT_MEMORY, "malloc", CALLER)) return NULL;
    void *block = __libc_malloc(bytes);
    if (block) book(BOOK_BLOCKS, 1, CALLER);
    return block;
}

void *realloc(void *block, size_t bytes)
{
    if (strikes(FAULT_MEMORY, "realloc", CALLER)) return NULL;
    void *bigger = __libc_realloc(block, bytes);
    if (bigger && !block) book(BOOK_BLOCKS, 1, CALLER);
    return bigger;
}

void free(void *block)
{
    if (block) book(BOOK_BLOCKS, -1, CALLER);
    __libc_free(block);
}
#endif
