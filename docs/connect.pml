/* SPDX-License-Identifier: MIT
 *
 * The protocol of connect.md, for Spin: the processes are the threads of two ranks, the shared words are
 * those of csrc/core/pch_edge.h under the same names, and one statement is one load or store (memory is
 * sequentially consistent here; connect.md tells why acquire and release suffice).
 *
 * Ranks run N cycles, or one of them, `leaver`, goes elsewhere for ever after some start. Then the other one
 * must still finish every cycle that both have started, and may end where it waits for a start that
 * will never come ("orphan").
 *
 * -DSCENARIO=ONE      one channel, messages from rank 0 to rank 1
 *            BOTH     one channel, messages both ways
 *            CROSS    two channels, waited for in opposite order; whoever waits helps the other channel
 *            THREADS  the same, with a thread per channel on rank 0
 *            SELF     one channel of a rank to itself
 * -DN=4 cycles, -DS=2 slots, -DLARGE=0 no large messages (with them, no sender can be a cycle ahead)
 * -DHELPING=0         nobody helps
 * -DPOLLING           wait polls whether or not there is something to do (for liveness); without it, wait
 *                     blocks until a poll would do something, so that a deadlock is an invalid end state
 * -DMUTANT=...        a protocol with a mistake, which must be found; see .ci/model
 */
#define ONE 1
#define BOTH 2
#define CROSS 3
#define THREADS 4
#define SELF 5

#define NONE 0
#define PUBLISH_FIRST 1   /* published before the slot is filled */
#define CONSUME_FIRST 2   /* consumed before the slot is emptied */
#define NO_CLAIM 3        /* claimed by load and store */
#define NO_READY 4        /* sender copies large messages without looking at ready */
#define NO_PUBLISHED 5    /* receiver copies large messages without looking at published */
#define DONE_FIRST 6      /* done before the copy */
#define NO_CONSUMED 7     /* sender's wait does not look at consumed */
#define RECEIVER_COPIES 8 /* sender leaves large messages to the receiver */
#define NO_WORD 9         /* helpers do not look who uses the channel */
#define START_WAITS 10    /* start, not wait, waits for a free slot */

#ifndef SCENARIO
#define SCENARIO BOTH
#endif
#ifndef N
#define N 4
#endif
#ifndef S
#define S 2
#endif
#ifndef LARGE
#define LARGE 1
#endif
#ifndef MUTANT
#define MUTANT NONE
#endif

#define TWO_CHANNELS (SCENARIO == CROSS || SCENARIO == THREADS)
#ifndef HELPING
#define HELPING TWO_CHANNELS
#endif
#define LEAVING (SCENARIO == ONE || SCENARIO == BOTH || SCENARIO == CROSS)

/* edge e: from rank SOURCE(e) to rank DEST(e), of channel CHANNEL(e) */
#if SCENARIO == BOTH || TWO_CHANNELS
#define N_EDGES 2
#else
#define N_EDGES 1
#endif
#define SOURCE(e) (e)
#if SCENARIO == SELF
#define DEST(e) (e)
#else
#define DEST(e) (1 - (e))
#endif
#if TWO_CHANNELS
#define CHANNEL(e) (e)
#define N_CHANNELS 2
#else
#define CHANNEL(e) 0
#define N_CHANNELS 1
#endif
#define OTHER(k) (N_CHANNELS - 1 - (k))
#define W 2 /* words of a message, copied one after the other */

/* shared between the ranks */
byte published[N_EDGES * S], slot[N_EDGES * S * W];
byte consumed[N_EDGES], ready[N_EDGES], claimed[N_EDGES], done[N_EDGES];

/* buffers of the program: a large message holds the number of its cycle while started, else 0 */
byte source[N_EDGES * W], dest[N_EDGES * W];

/* private to an end of an edge: the slot is dealt with; the large message is */
bit out_passed[N_EDGES], out_large[N_EDGES], in_passed[N_EDGES], in_large[N_EDGES];

/* who uses a channel of a rank */
mtype = {free, owner, helper};
#define C(rank, channel) ((rank) * N_CHANNELS + (channel))
mtype word[2 * N_CHANNELS] = free;

/* what is going on, for assertions; only started, finished and gone decide what the program does */
byte started[2 * N_CHANNELS], finished[2 * N_CHANNELS];
bit gone[2];
byte leaver = 2;
byte emptied[N_EDGES], copied[N_EDGES];
bit copying[N_EDGES];
byte inside[2 * N_CHANNELS], n_ended;

#define SLOT(e, c) ((e) * S + (c) % S)

/* ---- start ---- */

inline fill_slot(e, c)
{
    assert(c <= S || emptied[e] >= c - S); /* what was in the slot has been read */
    slot[SLOT(e, c) * W] = c;
    slot[SLOT(e, c) * W + 1] = c
}

inline start_out(e, c)
{
    d_step { source[e * W] = c; source[e * W + 1] = c; out_passed[e] = 0; out_large[e] = 1 - LARGE }
    if
    :: MUTANT == START_WAITS -> (c <= S || consumed[e] >= c - S)
    :: else
    fi;
    if
    :: MUTANT == PUBLISH_FIRST -> published[SLOT(e, c)] = c; fill_slot(e, c)
    :: else -> fill_slot(e, c); published[SLOT(e, c)] = c
    fi
}

inline start_in(e, c)
{
    d_step { dest[e * W] = 0; dest[e * W + 1] = 0; in_passed[e] = 0; in_large[e] = 1 - LARGE }
    ready[e] = c
}

/* ---- poll ---- */

inline copy_large(e, c)
{
    d_step {
        assert(started[C(SOURCE(e), CHANNEL(e))] == c && finished[C(SOURCE(e), CHANNEL(e))] == c - 1);
        assert(started[C(DEST(e), CHANNEL(e))] == c && finished[C(DEST(e), CHANNEL(e))] == c - 1);
        assert(!copying[e] && copied[e] == c - 1); /* once a cycle */
        copying[e] = 1
    }
    dest[e * W] = source[e * W];
    dest[e * W + 1] = source[e * W + 1];
    d_step { copied[e] = c; copying[e] = 0 }
}

inline try_large(e, c, flag)
{
    if
    :: both && claimed[e] == c - 1 ->
        if
        :: MUTANT == NO_CLAIM -> claimed[e] = c; won = 1
        :: else -> atomic { won = (claimed[e] == c - 1); if :: won -> claimed[e] = c :: else fi }
        fi;
        if
        :: won && MUTANT == DONE_FIRST -> done[e] = c; copy_large(e, c)
        :: won && MUTANT != DONE_FIRST -> copy_large(e, c); done[e] = c
        :: else
        fi;
        won = 0
    :: else
    fi;
    if
    :: atomic { done[e] == c -> flag = 1 }
    :: else
    fi;
    both = 0
}

#define SLOT_FREE(e, c) (MUTANT == NO_CONSUMED || MUTANT == START_WAITS || consumed[e] + S >= c + 1)

inline poll_out(e, c)
{
    if
    :: atomic { !out_passed[e] && SLOT_FREE(e, c) -> out_passed[e] = 1 }
    :: else
    fi;
    if
    :: !out_large[e] ->
        both = (MUTANT == NO_READY || ready[e] >= c) && MUTANT != RECEIVER_COPIES;
        try_large(e, c, out_large[e])
    :: else
    fi
}

inline empty_slot(e, c)
{
    assert(slot[SLOT(e, c) * W] == c); /* whole, and of this cycle */
    assert(slot[SLOT(e, c) * W + 1] == c);
    emptied[e] = c
}

inline poll_in(e, c)
{
    if
    :: !in_passed[e] ->
        if
        :: published[SLOT(e, c)] == c ->
            if
            :: MUTANT == CONSUME_FIRST -> in_passed[e] = 1; consumed[e] = c; empty_slot(e, c)
            :: else -> empty_slot(e, c); in_passed[e] = 1; consumed[e] = c
            fi
        :: else
        fi
    :: else
    fi;
    if
    :: !in_large[e] -> both = (in_passed[e] || MUTANT == NO_PUBLISHED); try_large(e, c, in_large[e])
    :: else
    fi
}

/* Would a poll change anything? */
#define LARGE_CAN(e, c, both) (done[e] == c || ((both) && claimed[e] == c - 1))
#define OUT_CAN(e, c)                         \
    ((!out_passed[e] && SLOT_FREE(e, c)) ||   \
     (!out_large[e] && LARGE_CAN(e, c, (MUTANT == NO_READY || ready[e] >= c) && MUTANT != RECEIVER_COPIES)))
#define IN_CAN(e, c)                                           \
    ((!in_passed[e] && published[SLOT(e, c)] == c) ||          \
     (!in_large[e] && LARGE_CAN(e, c, in_passed[e] || MUTANT == NO_PUBLISHED)))

/* an end of rank's channel k */
#define OUT(e, rank, k) (SOURCE(e) == rank && CHANNEL(e) == k)
#define IN(e, rank, k) (DEST(e) == rank && CHANNEL(e) == k)
#if N_EDGES == 2
#else
#endif

inline poll_end(e, rank, k)
{
    if
    :: OUT(e, rank, k) -> poll_out(e, started[C(rank, k)])
    :: else
    fi;
    if
    :: IN(e, rank, k) -> poll_in(e, started[C(rank, k)])
    :: else
    fi
}

inline poll(rank, k)
{
    d_step { assert(inside[C(rank, k)] == 0); inside[C(rank, k)] = 1 }
    poll_end(0, rank, k);
#if N_EDGES == 2
    poll_end(1, rank, k);
#endif
    inside[C(rank, k)] = 0
}

#define LEFT(e, rank, k)                                       \
    ((OUT(e, rank, k) && (!out_passed[e] || !out_large[e])) || \
     (IN(e, rank, k) && (!in_passed[e] || !in_large[e])))
#define CAN(e, rank, k)                                     \
    ((OUT(e, rank, k) && OUT_CAN(e, started[C(rank, k)])) || \
     (IN(e, rank, k) && IN_CAN(e, started[C(rank, k)])))
#if N_EDGES == 2
#define UNFINISHED(rank, k) (LEFT(0, rank, k) || LEFT(1, rank, k))
#define CAN_MOVE(rank, k) (CAN(0, rank, k) || CAN(1, rank, k))
#else
#define UNFINISHED(rank, k) LEFT(0, rank, k)
#define CAN_MOVE(rank, k) CAN(0, rank, k)
#endif
/* ---- the channel ---- */

inline start(rank, k)
{
    atomic { word[C(rank, k)] == free -> word[C(rank, k)] = owner } /* a helper leaves soon */
    started[C(rank, k)]++;
    start_end(0, rank, k);
#if N_EDGES == 2
    start_end(1, rank, k);
#endif
    word[C(rank, k)] = free
}

inline start_end(e, rank, k)
{
    if
    :: IN(e, rank, k) -> start_in(e, started[C(rank, k)])
    :: else
    fi;
    if
    :: OUT(e, rank, k) -> start_out(e, started[C(rank, k)])
    :: else
    fi
}

inline check_end(e, rank, k)
{
    if
    :: IN(e, rank, k) ->
        assert(!LARGE || (dest[e * W] == started[C(rank, k)] && dest[e * W + 1] == started[C(rank, k)]));
        assert(emptied[e] == started[C(rank, k)])
    :: else
    fi;
    if
    :: OUT(e, rank, k) -> source[e * W] = 0; source[e * W + 1] = 0
    :: else
    fi
}

/* A channel that has started, is not finished and that nobody uses */
#define HELPABLE(rank, k) \
    (HELPING && started[C(rank, k)] > finished[C(rank, k)] && (word[C(rank, k)] == free || MUTANT == NO_WORD))

inline help(rank, k)
{
    if
    :: MUTANT == NO_WORD -> won = 1
    :: else -> atomic { won = (word[C(rank, k)] == free); if :: won -> word[C(rank, k)] = helper :: else fi }
    fi;
    if
    :: atomic { won -> won = 0 };
        if
        :: started[C(rank, k)] > finished[C(rank, k)] -> poll(rank, k)
        :: else
        fi;
        if
        :: MUTANT == NO_WORD
        :: else -> word[C(rank, k)] = free
        fi
    :: else
    fi
}

/* What this end waits for will not come: the other one is gone, and had not started this cycle. */
#define ORPHAN(rank, k) \
    (gone[1 - (rank)] && started[C(1 - (rank), k)] < started[C(rank, k)] && !CAN_MOVE(rank, k))

inline wait(rank, k)
{
    atomic { word[C(rank, k)] == free -> word[C(rank, k)] = owner }
    do
    :: atomic { !UNFINISHED(rank, k) -> finished[C(rank, k)] = started[C(rank, k)] } break
#ifdef POLLING
    :: UNFINISHED(rank, k) && !ORPHAN(rank, k) ->
        poll(rank, k);
        if
        :: HELPABLE(rank, OTHER(k)) -> help(rank, OTHER(k))
        :: true
        fi
#else
    :: UNFINISHED(rank, k) && CAN_MOVE(rank, k) -> poll(rank, k)
    :: UNFINISHED(rank, k) && HELPABLE(rank, OTHER(k)) && CAN_MOVE(rank, OTHER(k)) -> help(rank, OTHER(k))
#endif
#if LEAVING
    :: leaver == rank -> goto leave
    :: UNFINISHED(rank, k) && ORPHAN(rank, k) -> goto leave
#endif
    od;
    check_end(0, rank, k);
#if N_EDGES == 2
    check_end(1, rank, k);
#endif
    word[C(rank, k)] = free
}

/* Starts n_channels channels from `first` on, then waits for them in that order, N times. */
proctype program(byte rank; byte first; byte n_channels)
{
    byte cycle;
    bit both, won;
    do
    :: cycle < N ->
        cycle++;
        start(rank, first);
#if LEAVING
        if
        :: leaver == rank -> goto leave
        :: true
        fi;
#endif
        if
        :: n_channels == 2 -> start(rank, OTHER(first))
        :: else
        fi;
        wait(rank, first);
        if
        :: n_channels == 2 -> wait(rank, OTHER(first))
        :: else
        fi;
    :: else -> goto over
    od;
leave: /* for ever, without looking at the channel again; a timeout has given it back */
    atomic { gone[rank] = 1; n_ended++ }
    goto finish;
over:
    atomic { assert(finished[C(rank, first)] == N); n_ended++ }
finish:
    skip
}

#if SCENARIO == THREADS
#define N_THREADS 3
#elif SCENARIO == SELF
#define N_THREADS 1
#else
#define N_THREADS 2
#endif

init {
    atomic {
#if LEAVING
        if
        :: leaver = 0
        :: leaver = 1
        :: skip
        fi;
#endif
#if SCENARIO == THREADS
        run program(0, 0, 1);
        run program(0, 1, 1);
        run program(1, 1, 2);
#elif SCENARIO == CROSS
        run program(0, 0, 2);
        run program(1, 1, 2);
#elif SCENARIO == SELF
        run program(0, 0, 1);
#else
        run program(0, 0, 1);
        run program(1, 0, 1);
#endif
    }
}

#ifdef POLLING
/* Whatever the interleaving, all programs come to their end. */
ltl ends { <> (n_ended == N_THREADS) }
#endif
