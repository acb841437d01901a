/* SPDX-License-Identifier: MIT
 *
 * Waiting. MPICH's MPI_Wait yields after every poll, which costs more than a small message;
 * a bounded spin before the first yield avoids that. Where ranks outnumber processors the
 * spin is 0: there it keeps the peer from running (4 ranks on 2 cores: 30 times slower).
 */
#include "pch_mpi.h"

#include <sched.h>
#include <time.h>

int64_t pch_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* The clock costs as much as a poll: it is read at the first of every POLLS_PER_LOOK polls. */
enum { POLLS_PER_LOOK = 16 };

void pch_backoff_init(pch_backoff *backoff, int64_t spin_ns, int64_t timeout_ns)
{
    *backoff = (pch_backoff){.start_ns = -1, .spin_ns = spin_ns, .timeout_ns = timeout_ns};
}

bool pch_backoff_next(pch_backoff *backoff)
{
    bool spinning = backoff->spin_ns > 0;
    if (spinning && ++backoff->polls % POLLS_PER_LOOK) return true;
    if (spinning || backoff->timeout_ns >= 0) {
        int64_t now_ns = pch_now_ns();
        if (backoff->start_ns < 0) backoff->start_ns = now_ns;
        int64_t waited_ns = now_ns - backoff->start_ns;
        if (backoff->timeout_ns >= 0 && waited_ns >= backoff->timeout_ns) return false;
        if (waited_ns >= backoff->spin_ns) backoff->spin_ns = 0;
    }
    if (!spinning) sched_yield();
    return true;
}
