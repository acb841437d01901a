/* SPDX-License-Identifier: MIT
 *
 * Node-shared memory. The node's first rank makes an anonymous file (memfd_create) and the others
 * open it through /proc/PID/fd, so there is never a name that a crash could leave behind, and the
 * size of /dev/shm does not matter. Where that fails (other pid namespace, no memfd) a file in
 * /dev/shm serves, which has its name only until all have opened it. Every rank checks that it got
 * the right file by its size and a random token.
 */
#include "pch_window.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TOKEN_WORDS = 2, NAME_BYTES = 64 };

typedef struct offer { /* from the first rank to the others */
    int64_t pid, bytes;
    uint64_t inode;
    int fd; /* -1: a named file */
    char name[NAME_BYTES];
    uint64_t token[TOKEN_WORDS];
    bool made; /* false: there is nothing to offer */
} offer;

typedef struct header { /* start of the mapping */
    uint64_t token[TOKEN_WORDS];
} header;

static pchan_status make_file(bool named, offer *o, int *fd, pchan_error *err)
{
    int64_t available = pch_available_bytes();
    if (o->bytes > available) {
        return pch_fail(err, PCHAN_ERR_NOMEM,
                        "window: %lld bytes of node-shared memory, but only %lld are available",
                        (long long)o->bytes, (long long)available);
    }
    if (getrandom(o->token, sizeof o->token, 0) != (ssize_t)sizeof o->token) {
        return pch_fail(err, PCHAN_ERR_SYSTEM, "window: getrandom: %s", strerror(errno));
    }
    o->pid = getpid();
    if (named) {
        snprintf(o->name, sizeof o->name, "/pchan-%016llx%016llx", (unsigned long long)o->token[0],
                 (unsigned long long)o->token[1]);
        *fd = shm_open(o->name, O_RDWR | O_CREAT | O_EXCL, 0600);
        o->fd = -1;
    } else {
        *fd = memfd_create("pchan-window", MFD_CLOEXEC);
        o->fd = *fd;
        if (*fd >= 0) fchmod(*fd, 0600); /* 0777 at first */
    }
    if (*fd < 0) return pch_fail(err, PCHAN_ERR_SYSTEM, "window: shared memory: %s", strerror(errno));
    int code = ftruncate(*fd, (off_t)o->bytes) == 0 ? 0 : errno;
    /* a full /dev/shm would otherwise be told by SIGBUS, at first touch */
    if (named && code == 0) code = posix_fallocate(*fd, 0, (off_t)o->bytes);
    struct stat s;
    if (code == 0 && fstat(*fd, &s) != 0) code = errno;
    if (code != 0) {
        return pch_fail(err, PCHAN_ERR_NOMEM, "window: %lld bytes of shared memory: %s", (long long)o->bytes,
                        strerror(code));
    }
    o->inode = s.st_ino;
    return PCHAN_OK;
}

/* The same number may be another file's where pids or files are others: looked at before it is opened. */
static bool is_offered(const offer *o, int code, const struct stat *s)
{
    return code == 0 && S_ISREG(s->st_mode) && s->st_ino == o->inode && s->st_size == (off_t)o->bytes;
}

static pchan_status open_file(const offer *o, int *fd, pchan_error *err)
{
    char path[64];
    struct stat s;
    if (o->fd < 0) {
        *fd = shm_open(o->name, O_RDWR, 0);
    } else {
        snprintf(path, sizeof path, "/proc/%lld/fd/%d", (long long)o->pid, o->fd);
        *fd = is_offered(o, stat(path, &s), &s) ? open(path, O_RDWR | O_CLOEXEC) : -1;
    }
    if (*fd >= 0 && is_offered(o, fstat(*fd, &s), &s)) return PCHAN_OK;
    return pch_fail(
        err, PCHAN_ERR_SYSTEM,
        "window: cannot open the shared memory of the node's first rank; do all ranks of node_comm run on "
        "one machine?");
}

static pchan_status map_file(const offer *o, int fd, bool first, void **mapping, pchan_error *err)
{
    *mapping = mmap(NULL, (size_t)o->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (*mapping == MAP_FAILED) {
        *mapping = NULL;
        return pch_fail(err, PCHAN_ERR_NOMEM, "window: mapping %lld bytes: %s", (long long)o->bytes,
                        strerror(errno));
    }
    header *h = *mapping;
    if (first) memcpy(h->token, o->token, sizeof h->token);
    return PCHAN_OK;
}

/* One attempt, agreed: a mapping on all ranks or on none. */
static pchan_status share(MPI_Comm node, int64_t bytes, bool named, void **mapping, pchan_error *err)
{
    int rank, fd = -1;
    pchan_error own = {0};
    offer o = {.bytes = bytes};
    MPI_Comm_rank(node, &rank);
    pchan_status status = PCHAN_OK;
    if (rank == 0) {
        status = make_file(named, &o, &fd, &own);
        if (status == PCHAN_OK) status = map_file(&o, fd, true, mapping, &own);
        o.made = status == PCHAN_OK;
    }
    pchan_error lost;
    pchan_status talk =
        PCH_MPI(MPI_Bcast(&o, (int)sizeof o, MPI_BYTE, 0, node), "MPI_Bcast", status == PCHAN_OK ? &own : &lost);
    if (status == PCHAN_OK) status = talk;
    if (rank != 0 && status == PCHAN_OK && !o.made) {
        status = pch_fail(&own, PCHAN_ERR_SYSTEM, "window: the node's first rank has none");
    } else if (rank != 0 && status == PCHAN_OK) {
        status = open_file(&o, &fd, &own);
        if (status == PCHAN_OK) status = map_file(&o, fd, false, mapping, &own);
        if (status == PCHAN_OK && memcmp(*mapping, o.token, sizeof o.token) != 0) {
            status =
                pch_fail(&own, PCHAN_ERR_SYSTEM, "window: opened another file than the node's first rank made");
        }
    }
    status = pch_agree(node, status, &own, err);
    if (named && rank == 0 && o.name[0]) shm_unlink(o.name);
    if (fd >= 0) close(fd);
    if (status != PCHAN_OK && *mapping) {
        munmap(*mapping, (size_t)bytes);
        *mapping = NULL;
    }
    return status;
}

pchan_status pch_share(MPI_Comm node, int64_t bytes, bool named, void **mapping, pchan_error *err)
{
    *mapping = NULL;
    pchan_status status = share(node, bytes, named, mapping, err);
    if (status == PCHAN_ERR_SYSTEM && !named) status = share(node, bytes, true, mapping, err);
    return status;
}

pchan_status pch_window_create(MPI_Comm node, int64_t words_bytes, bool named, pch_window **out, pchan_error *err)
{
    int size;
    pch_window *window = NULL;
    pchan_error own = {0};
    *out = NULL;
    MPI_Comm_size(node, &size);
    size_t page = 4096, control = page + ((size_t)size + PCH_N_LOCKS) * sizeof(pch_padded);
    control = (control + page - 1) / page * page;
    int64_t bytes = (int64_t)control + words_bytes;
    pchan_status status = pch_agree(node, PCH_ALLOC(window, 1, &own), &own, err);
    if (status != PCHAN_OK) goto done;
    window->mapped_bytes = (size_t)bytes;
    status = pch_share(node, bytes, named, &window->mapping, err);
    if (status != PCHAN_OK) goto done;
    char *start = window->mapping;
    // NOLINTNEXTLINE(clang-analyzer-core.NullPointerArithm): pch_share succeeded
    window->counters = (pch_padded *)(start + page);
    window->locks = window->counters + size;
    window->words = (uint64_t *)(start + control);
    *out = window;
    return PCHAN_OK;
done:
    pch_free(window);
    return status;
}

void pch_window_destroy(pch_window **place)
{
    pch_window *window = *place;
    if (!window) return;
    munmap(window->mapping, window->mapped_bytes);
    pch_free(window);
    *place = NULL;
}

void pch_window_lock(pch_window *window, size_t number)
{
    _Atomic uint64_t *lock = &window->locks[number % PCH_N_LOCKS].value;
    for (unsigned polls = 1; atomic_exchange_explicit(lock, 1, memory_order_acquire); polls++) {
        if (polls % 64 == 0) sched_yield();
    }
}

void pch_window_unlock(pch_window *window, size_t number)
{
    atomic_store_explicit(&window->locks[number % PCH_N_LOCKS].value, 0, memory_order_release);
}
