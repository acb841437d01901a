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

/* The clock costs as much as a poll, and a yield more than that, while a poll handles one message or so: both
 * come once in POLLS_PER_LOOK polls. (4 ranks on 2 cores, 16 messages each way: 0.4 of the time that a yield
 * after every poll takes.) */
enum { POLLS_PER_LOOK = 16, SLEEP_AFTER_NS = 50000000, SLEEP_NS = 50000 };

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
    if (++backoff->polls % POLLS_PER_LOOK) return true;
    int64_t now_ns = pch_now_ns();
    if (backoff->start_ns < 0) backoff->start_ns = now_ns;
    if (backoff->call_ns < 0) backoff->call_ns = now_ns;
    if (backoff->timeout_ns >= 0 && now_ns - backoff->call_ns >= backoff->timeout_ns) return false;
    int64_t waited_ns = now_ns - backoff->start_ns;
    if (waited_ns >= SLEEP_AFTER_NS) {
        nanosleep(&(struct timespec){.tv_nsec = SLEEP_NS}, NULL);
    } else if (waited_ns >= backoff->spin_ns) {
        sched_yield();
    }
    backoff->sleepy = waited_ns >= SLEEP_AFTER_NS;
    return true;
}
