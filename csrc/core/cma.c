/* SPDX-License-Identifier: MIT
 *
 * Cross memory attach: copies between this process' memory and another's, by system call.
 */
#include "pch_edge.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

int pch_cma_copy(pid_t pid, void *local, uint64_t remote, size_t bytes, bool to_remote)
{
    char *at = local;
    while (bytes > 0) {
        const struct iovec here = {at, bytes}, there = {(void *)(uintptr_t)remote, bytes};
        ssize_t n = to_remote ? process_vm_writev(pid, &here, 1, &there, 1, 0)
                              : process_vm_readv(pid, &here, 1, &there, 1, 0);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return errno;
        if (n == 0) return EFAULT;
        at += n;
        remote += (uint64_t)n;
        bytes -= (size_t)n;
    }
    return 0;
}

bool pch_cma_allowed(void)
{
    const char *text = getenv("PCHAN_CMA");
    return !text || strcmp(text, "0") != 0;
}
