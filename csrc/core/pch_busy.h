/* SPDX-License-Identifier: MIT
 *
 * The word that says who is inside an object which one thread at a time may use: its caller, or a thread that
 * waits for something else and helps this object along for a moment.
 */
#ifndef PCH_BUSY_H
#define PCH_BUSY_H

#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>

enum { PCH_FREE, PCH_CALLER, PCH_HELPER };

static inline bool pch_busy_take(atomic_int *busy, int who, int *inside)
{
    *inside = PCH_FREE;
    return atomic_compare_exchange_strong_explicit(busy, inside, who, memory_order_acquire, memory_order_relaxed);
}

/* False while another caller is inside; a helper is waited for. */
static inline bool pch_busy_enter(atomic_int *busy)
{
    int inside;
    while (!pch_busy_take(busy, PCH_CALLER, &inside)) {
        if (inside == PCH_CALLER) return false;
        sched_yield();
    }
    return true;
}

/* False while anybody is inside. */
static inline bool pch_busy_help(atomic_int *busy)
{
    int inside = atomic_load_explicit(busy, memory_order_relaxed);
    return inside == PCH_FREE && pch_busy_take(busy, PCH_HELPER, &inside);
}

static inline void pch_busy_leave(atomic_int *busy)
{
    atomic_store_explicit(busy, PCH_FREE, memory_order_release);
}

#endif
