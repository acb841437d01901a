/* SPDX-License-Identifier: MIT
 * Copies between this process and a child, several megabytes each way; what the kernel does not do in one call
 * is done in several; errors come back as errno. The linker gives this test the system calls (csrc/Makefile). */
#include "../core/pch_edge.h"
#include "testing.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BYTES = (5 << 20) + 123 };

/* ---- system calls that do less than they are asked ---- */

static size_t longest;      /* bytes a call; 0: no limit */
static int n_interruptions; /* calls that fail with EINTR first */
static long n_calls;

ssize_t __real_process_vm_readv(pid_t, const struct iovec *, unsigned long, const struct iovec *, unsigned long,
                                unsigned long);
ssize_t __real_process_vm_writev(pid_t, const struct iovec *, unsigned long, const struct iovec *, unsigned long,
                                 unsigned long);
ssize_t __wrap_process_vm_readv(pid_t, const struct iovec *, unsigned long, const struct iovec *, unsigned long,
                                unsigned long);
ssize_t __wrap_process_vm_writev(pid_t, const struct iovec *, unsigned long, const struct iovec *, unsigned long,
                                 unsigned long);

static bool interrupted(struct iovec *here, struct iovec *there)
{
    n_calls++;
    if (longest && here->iov_len > longest) here->iov_len = there->iov_len = longest;
    if (n_interruptions == 0) return false;
    n_interruptions--;
    errno = EINTR;
    return true;
}

ssize_t __wrap_process_vm_readv(pid_t pid, const struct iovec *here, unsigned long n_here,
                                const struct iovec *there, unsigned long n_there, unsigned long flags)
{
    struct iovec h = *here, t = *there;
    CHECK(n_here == 1 && n_there == 1 && flags == 0, "unexpected arguments");
    return interrupted(&h, &t) ? -1 : __real_process_vm_readv(pid, &h, 1, &t, 1, flags);
}

ssize_t __wrap_process_vm_writev(pid_t pid, const struct iovec *here, unsigned long n_here,
                                 const struct iovec *there, unsigned long n_there, unsigned long flags)
{
    struct iovec h = *here, t = *there;
    CHECK(n_here == 1 && n_there == 1 && flags == 0, "unexpected arguments");
    return interrupted(&h, &t) ? -1 : __real_process_vm_writev(pid, &h, 1, &t, 1, flags);
}

/* ---- the child: a copy of this process that waits ---- */

static unsigned char *own, *expected; /* the child has its own version of the first */

static pid_t spawn(void)
{
    int there[2];
    char byte;
    CHECK(pipe(there) == 0, "pipe: %s", strerror(errno));
    pid_t pid = fork();
    CHECK(pid >= 0, "fork: %s", strerror(errno));
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* also when a check fails */
        for (size_t k = 0; k < BYTES; k++) own[k] = (unsigned char)(k * 31 + k / 256);
        if (write(there[1], "", 1) != 1) _exit(1);
        for (;;) pause();
    }
    CHECK(read(there[0], &byte, 1) == 1, "the child is not there");
    close(there[0]);
    close(there[1]);
    return pid;
}

static void end(pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

/* ---- tests ---- */

static void both_ways(pid_t pid, size_t skip, size_t bytes)
{
    uint64_t there = (uint64_t)(uintptr_t)own + skip;
    memset(own, 0xa5, BYTES);
    int code = pch_cma_copy(pid, own + 1, there, bytes, false);
    CHECK(code == 0, "read: %s", strerror(code));
    CHECK(own[0] == 0xa5 && own[1 + bytes] == 0xa5, "%zu bytes: read too many", bytes);
    CHECK(memcmp(own + 1, expected + skip, bytes) == 0, "%zu bytes: read wrongly", bytes);

    for (size_t k = 0; k < bytes; k++) own[k] = expected[skip + k] = (unsigned char)~expected[skip + k];
    code = pch_cma_copy(pid, own, there, bytes, true);
    CHECK(code == 0, "write: %s", strerror(code));
    memset(own, 0xa5, BYTES);
    code = pch_cma_copy(pid, own, (uint64_t)(uintptr_t)own, BYTES, false);
    CHECK(code == 0 && memcmp(own, expected, BYTES) == 0, "%zu bytes: written wrongly, or too many", bytes);
}

static void short_counts(pid_t pid)
{
    longest = 4096;
    n_calls = 0;
    both_ways(pid, 77, 100000);
    CHECK(n_calls > 2 * 24, "%ld calls: the limit was not met", n_calls);
    n_interruptions = 3;
    both_ways(pid, 0, 10);
    CHECK(n_interruptions == 0, "not called again");
    longest = 0;
}

/* The part of a copy that is there is copied; then the page that is not makes it fail. */
static void bad_addresses(pid_t pid)
{
    for (int write = 0; write < 2; write++) {
        CHECK(pch_cma_copy(pid, own, 8, 100, write) == EFAULT, "an address in the first page");
        CHECK(pch_cma_copy(pid, NULL, (uint64_t)(uintptr_t)own, 100, write) == EFAULT, "NULL here");
        CHECK(pch_cma_copy(pid, NULL, 8, 0, write) == 0, "nothing to copy");
        size_t page = (size_t)sysconf(_SC_PAGESIZE);
        uint64_t gap = (uint64_t)(uintptr_t)own + (BYTES / page + 1) * page; /* after the mapping */
        CHECK(pch_cma_copy(pid, own, gap - 2 * page, 3 * page, write) == EFAULT, "beyond a mapping");
    }
}

int main(void)
{
    /* a page of its own at the end that nobody may touch */
    size_t page = (size_t)sysconf(_SC_PAGESIZE), room = (BYTES / page + 2) * page;
    own = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(own != MAP_FAILED && mprotect(own + room - page, page, PROT_NONE) == 0, "mmap: %s", strerror(errno));
    expected = malloc(BYTES);
    for (size_t k = 0; k < BYTES; k++) expected[k] = (unsigned char)(k * 31 + k / 256);

    pid_t pid = spawn();
    int code = pch_cma_copy(pid, own, (uint64_t)(uintptr_t)own, 1, false);
    if (code == EPERM || code == ENOSYS) {
        printf("skipped: this system forbids process_vm_readv (%s)\n", strerror(code));
    } else {
        both_ways(pid, 0, BYTES - 2);
        both_ways(pid, 4097, BYTES - 5000);
        both_ways(pid, 3, 1);
        short_counts(pid);
        bad_addresses(pid);
    }
    end(pid);
    code = pch_cma_copy(pid, own, (uint64_t)(uintptr_t)own, 1, false);
    CHECK(code == ESRCH || code == ENOSYS || code == EPERM, "a process that is gone: %s", strerror(code));

    setenv("PCHAN_CMA", "0", 1);
    CHECK(!pch_cma_allowed(), "PCHAN_CMA=0");
    setenv("PCHAN_CMA", "1", 1);
    CHECK(pch_cma_allowed(), "PCHAN_CMA=1");
    unsetenv("PCHAN_CMA");
    CHECK(pch_cma_allowed(), "PCHAN_CMA unset");
    free(expected);
    munmap(own, room);
    return 0;
}
