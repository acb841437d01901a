/* SPDX-License-Identifier: MIT
 *
 * Waiting. MPICH's MPI_Wait yields after every poll, which costs more than a small message;
 * a bounded spin before the first yield avoids that. Where ranks outnumber processors the
 * spin is 0: there it keeps the peer from running (4 ranks on 2 cores: 30 times slower). A wait that has been
 * in vain for long sleeps between its polls, which costs it a thousandth more and leaves the processor to others.
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

/* The clock costs as much as a poll: it is read at the first of every POLLS_PER_LOOK polls, and of every
 * YIELDS_PER_LOOK when only the time to sleep depends on it. */
enum { POLLS_PER_LOOK = 16, YIELDS_PER_LOOK = 256, SLEEP_AFTER_NS = 50000000, SLEEP_NS = 50000 };

void pch_backoff_init(pch_backoff *backoff, int64_t spin_ns, int64_t timeout_ns)
{
    *backoff = (pch_backoff){.start_ns = -1, .call_ns = -1, .spin_ns = spin_ns, .timeout_ns = timeout_ns};
}

void pch_backoff_resume(pch_backoff *backoff, int64_t timeout_ns)
{
    backoff->call_ns = -1;
    backoff->timeout_ns = timeout_ns;
}

bool pch_backoff_next(pch_backoff *backoff)
{
    bool spinning = backoff->spin_ns > 0;
    backoff->polls++;
    if (spinning && backoff->polls % POLLS_PER_LOOK) return true;
    if (spinning || backoff->timeout_ns >= 0 || backoff->polls % YIELDS_PER_LOOK == 1) {
        int64_t now_ns = pch_now_ns();
        if (backoff->start_ns < 0) backoff->start_ns = now_ns;
        if (backoff->call_ns < 0) backoff->call_ns = now_ns;
        int64_t waited_ns = now_ns - backoff->start_ns;
        if (backoff->timeout_ns >= 0 && now_ns - backoff->call_ns >= backoff->timeout_ns) return false;
        if (waited_ns >= backoff->spin_ns) backoff->spin_ns = 0;
        backoff->sleepy = waited_ns >= SLEEP_AFTER_NS;
    }
    if (backoff->sleepy) {
        nanosleep(&(struct timespec){.tv_nsec = SLEEP_NS}, NULL);
    } else if (!spinning) {
        sched_yield();
    }
    return true;
}
