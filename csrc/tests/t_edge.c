/* SPDX-License-Identifier: MIT
 * The protocol of an edge with threads as ranks: every value changes every cycle, receive buffers hold what is
 * surely wrong until it is overwritten once, ends are slow or elsewhere. Then, step by step in one thread,
 * what either end must be able to do alone. Run under ThreadSanitizer by make tsan. */
#include "../core/pch_edge.h"
#include "testing.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

/* ---- messages ---- */

enum { MOST_MESSAGES = 16, N_COLS = 3, STRIDED = 8 * 2 * N_COLS };

/* A negative size stands for a strided array of STRIDED bytes; large ones follow the small ones. */
typedef struct messages {
    int n_small, n_large;
    int bytes[MOST_MESSAGES];
} messages;

typedef struct end {
    pch_edge edge;
    pch_piece pieces[MOST_MESSAGES];
    pch_large larges[MOST_MESSAGES];
    pch_strides movers[MOST_MESSAGES];
    int64_t strides[2];
    unsigned char *memory[MOST_MESSAGES];
    const messages *all;
    bool outgoing;
} end;

typedef struct line { /* an edge with both of its ends */
    end out, in;
    void *region;
} line;

static const int64_t strided_shape[2] = {2, N_COLS};

static size_t size_of(const messages *all, int m)
{
    return all->bytes[m] < 0 ? STRIDED : (size_t)all->bytes[m];
}

static unsigned char *byte_at(const end *e, int m, size_t k)
{
    if (e->all->bytes[m] >= 0) return e->memory[m] + k;
    int64_t element = (int64_t)k / 8;
    return e->memory[m] + element / N_COLS * e->strides[0] + element % N_COLS * e->strides[1] + k % 8;
}

static unsigned char value(uint64_t cycle, int m, size_t k)
{
    return (unsigned char)(cycle * 101 + (unsigned)m * 17 + k * 7 + k / 256);
}

/* What the program writes: the cycle's values, or (flip) what differs from them everywhere. */
static void write_all(const end *e, uint64_t cycle, unsigned char flip)
{
    for (int m = 0; m < e->all->n_small + e->all->n_large; m++) {
        for (size_t k = 0; k < size_of(e->all, m); k++) *byte_at(e, m, k) = value(cycle, m, k) ^ flip;
    }
}

static void check_all(const end *e, uint64_t cycle, unsigned char flip, const char *when)
{
    for (int m = 0; m < e->all->n_small + e->all->n_large; m++) {
        for (size_t k = 0; k < size_of(e->all, m); k++) {
            unsigned char is = *byte_at(e, m, k), expected = value(cycle, m, k) ^ flip;
            CHECK(is == expected, "%s, cycle %llu, message %d, byte %zu: %d, not %d", when,
                  (unsigned long long)cycle, m, k, is, expected);
        }
    }
}

/* ---- edges ---- */

static void make_end(end *e, const messages *all, int n_slots, void *region, bool outgoing)
{
    size_t used = 0, bytes;
    *e = (end){.all = all, .outgoing = outgoing, .strides = {outgoing ? 64 : -8, outgoing ? 16 : 24}};
    for (int m = 0; m < all->n_small + all->n_large; m++) {
        size_t n = size_of(all, m);
        unsigned char *block = n ? malloc(n + 256) : NULL; /* nothing may come from nowhere */
        e->memory[m] = all->bytes[m] < 0 ? block + 64 : block;
        if (m >= all->n_small) {
            e->larges[m - all->n_small] = (pch_large){.local = e->memory[m], .bytes = n};
            continue;
        }
        pch_strides_init(&e->movers[m], 2, strided_shape, e->strides, 8);
        e->pieces[m] =
            (pch_piece){e->memory[m], all->bytes[m] < 0 ? &e->movers[m].mover : NULL, pch_slot_place(&used, n), n};
    }
    pch_edge_plan(used, all->n_large, &e->edge, &bytes);
    e->edge.n_pieces = all->n_small;
    e->edge.n_larges = all->n_large;
    e->edge.n_slots = n_slots;
    e->edge.pieces = e->pieces;
    e->edge.larges = e->larges;
    pch_edge_place(&e->edge, region);
}

static void make_line(line *l, const messages *all, int n_slots)
{
    enum { ROOM = 1 << 20 };
    l->region = aligned_alloc(PCH_LINE, ROOM);
    memset(l->region, 0, ROOM);
    make_end(&l->out, all, n_slots, l->region, true);
    make_end(&l->in, all, n_slots, l->region, false);
    for (int k = 0; k < all->n_large; k++) {
        l->out.larges[k].reach = l->in.larges[k].local;
        l->in.larges[k].reach = l->out.larges[k].local;
    }
}

static void free_line(line *l)
{
    for (int m = 0; m < MOST_MESSAGES; m++) {
        bool strided = l->out.all->bytes[m] < 0;
        if (l->out.memory[m]) free(l->out.memory[m] - (strided ? 64 : 0));
        if (l->in.memory[m]) free(l->in.memory[m] - (strided ? 64 : 0));
    }
    free(l->region);
}

static void start(end *e, uint64_t cycle)
{
    write_all(e, cycle, e->outgoing ? 0 : 0xff);
    if (e->outgoing)
        pch_edge_start_out(&e->edge, cycle);
    else
        pch_edge_start_in(&e->edge, cycle);
}

static bool poll(end *e, uint64_t cycle)
{
    return e->outgoing ? pch_edge_poll_out(&e->edge, cycle) : pch_edge_poll_in(&e->edge, cycle);
}

/* After the wait the buffers are the program's: it reads what came, and writes something else. */
static void finish(end *e, uint64_t cycle)
{
    if (!e->outgoing) check_all(e, cycle, 0, "received");
    write_all(e, cycle, 0x55);
}

/* ---- threads as ranks ---- */

enum { MOST_ENDS = 2 };

typedef struct rank {
    int n_channels, n_ends; /* of each channel */
    end *ends[2][MOST_ENDS];
    uint64_t n_cycles, seed;
    unsigned sleep_us; /* at the most; every time when `slow` */
    bool slow;
} rank;

static void be_elsewhere(rank *r)
{
    uint64_t dice = random_u64(&r->seed) % 32;
    if (r->slow || dice == 0)
        usleep((unsigned)(random_u64(&r->seed) % (r->sleep_us + 1)));
    else if (dice < 8)
        sched_yield();
}

static void wait_for(rank *r, int channel, uint64_t cycle)
{
    for (bool finished = false; !finished;) {
        finished = true;
        for (int k = 0; k < r->n_ends; k++) finished &= poll(r->ends[channel][k], cycle);
        if (!finished) be_elsewhere(r);
        if (!finished) sched_yield();
    }
    for (int k = 0; k < r->n_ends; k++) finish(r->ends[channel][k], cycle);
}

static void *run_rank(void *argument)
{
    rank *r = argument;
    for (uint64_t cycle = 1; cycle <= r->n_cycles; cycle++) {
        for (int c = 0; c < r->n_channels; c++) {
            for (int k = 0; k < r->n_ends; k++) {
                if (cycle > 1) check_all(r->ends[c][k], cycle - 1, 0x55, "after the end of it");
                start(r->ends[c][k], cycle);
            }
        }
        be_elsewhere(r);
        for (int c = 0; c < r->n_channels; c++) wait_for(r, c, cycle);
        be_elsewhere(r);
    }
    return NULL;
}

static void run_two(rank *ranks)
{
    pthread_t threads[2];
    for (int k = 0; k < 2; k++) pthread_create(&threads[k], NULL, run_rank, &ranks[k]);
    for (int k = 0; k < 2; k++) pthread_join(threads[k], NULL);
}

static const messages numbers = {8, 0, {0, 1, 2, 4, 8, 16, 17, 100}};
static const messages mixed = {9, 3, {8, -1, 100, 3, -1, 0, 16, 64, 1, 3000, 0, 1}};
static const messages large_only = {0, 2, {5000, 8}};

static void one_way(const messages *all, int n_slots, uint64_t n_cycles, int slow)
{
    line l;
    make_line(&l, all, n_slots);
    rank ranks[2] = {{1, 1, {{&l.out}}, n_cycles, 1, 50, slow == 0},
                     {1, 1, {{&l.in}}, n_cycles, 2, 50, slow == 1}};
    run_two(ranks);
    free_line(&l);
}

static void both_ways(int n_slots, uint64_t n_cycles)
{
    line a, b;
    make_line(&a, &mixed, n_slots);
    make_line(&b, &mixed, n_slots);
    rank ranks[2] = {{1, 2, {{&b.in, &a.out}}, n_cycles, 3, 50, false},
                     {1, 2, {{&a.in, &b.out}}, n_cycles, 4, 50, false}};
    run_two(ranks);
    free_line(&a);
    free_line(&b);
}

/* Rank 0 waits for a, then b; rank 1 for b, then a. */
static void opposite_order(int n_slots, uint64_t n_cycles)
{
    line a, b;
    make_line(&a, &mixed, n_slots);
    make_line(&b, &mixed, n_slots);
    rank ranks[2] = {{2, 1, {{&a.out}, {&b.in}}, n_cycles, 5, 50, false},
                     {2, 1, {{&b.out}, {&a.in}}, n_cycles, 6, 50, false}};
    run_two(ranks);
    free_line(&a);
    free_line(&b);
}

/* ---- step by step ---- */

/* Both have started: the first one to look must be done without the other, and at once, but for the large
 * messages of a sender, which leaves them to the receiver at first. */
static void poll_alone(const messages *all, end *e, uint64_t cycle)
{
    int in_vain = e->outgoing && all->n_large ? PCH_POLLS_FOR_RECEIVER : 0;
    for (int k = 0; k < in_vain; k++) {
        CHECK(!poll(e, cycle), "cycle %llu: the sender is done in its poll %d", (unsigned long long)cycle, k);
    }
    CHECK(poll(e, cycle), "cycle %llu: waits for the other end", (unsigned long long)cycle);
}

static void alone(const messages *all, int n_slots)
{
    line l;
    uint64_t seed = (uint64_t)n_slots;
    make_line(&l, all, n_slots);
    for (uint64_t cycle = 1; cycle <= 64; cycle++) {
        uint64_t dice = random_u64(&seed);
        end *first = dice & 1 ? &l.in : &l.out, *second = dice & 1 ? &l.out : &l.in;
        end *looks = dice & 2 ? first : second, *elsewhere = dice & 2 ? second : first;
        start(first, cycle);
        if (all->n_large) CHECK(!poll(first, cycle), "cycle %llu: alone in it", (unsigned long long)cycle);
        if (first == &l.in) check_all(first, cycle, 0xff, "before the send");
        start(second, cycle);
        poll_alone(all, looks, cycle);
        finish(looks, cycle);
        CHECK(poll(elsewhere, cycle), "cycle %llu: left behind", (unsigned long long)cycle);
        finish(elsewhere, cycle);
        if (all->n_large) CHECK(l.in.larges[0].claim->done == cycle, "not done");
    }
    free_line(&l);
}

/* A sender may be as many cycles ahead as there are slots, but not finish the last of them. */
static void ahead(int n_slots)
{
    line l;
    make_line(&l, &numbers, n_slots);
    uint64_t sent = 0, room = (uint64_t)n_slots;
    for (uint64_t cycle = 1; cycle <= 20; cycle++) {
        while (sent < cycle - 1 + room) {
            start(&l.out, ++sent);
            bool more = sent < cycle - 1 + room;
            CHECK(poll(&l.out, sent) == more, "%d slots, %llu sent", n_slots, (unsigned long long)sent);
            if (more) finish(&l.out, sent);
        }
        start(&l.in, cycle);
        CHECK(poll(&l.in, cycle), "published, but not seen");
        finish(&l.in, cycle);
        CHECK(poll(&l.out, sent), "the slot is free, but not seen");
        finish(&l.out, sent);
    }
    free_line(&l);
}

/* A copy that fails is told at both ends, whoever tried; the next cycle is as good as ever. */
static void failing_copy(void)
{
    line l;
    make_line(&l, &large_only, 2);
    for (uint64_t cycle = 1; cycle <= 8; cycle++) {
        bool bad = cycle % 4 < 2;
        end *tries = cycle & 1 ? &l.in : &l.out, *asks = cycle & 1 ? &l.out : &l.in;
        for (int k = 0; k < 2; k++) {
            void *there = tries->outgoing ? l.in.larges[k].local : l.out.larges[k].local;
            tries->larges[k].reach = bad && k == 1 ? NULL : there;
            tries->larges[k].pid = getpid();
            tries->larges[k].remote = 8; /* not mapped */
        }
        start(&l.out, cycle);
        start(&l.in, cycle);
        poll_alone(&large_only, tries, cycle);
        CHECK(poll(asks, cycle), "a failed copy is not the end of it");
        for (int k = 0; k < 2; k++) {
            int is = asks->larges[k].error, expected = tries->larges[k].error;
            CHECK(is == expected && (is != 0) == (bad && k == 1), "cycle %llu, message %d: errno %d and %d",
                  (unsigned long long)cycle, k, expected, is);
        }
        if (!bad) check_all(&l.in, cycle, 0, "after an error");
    }
    free_line(&l);
}

int main(void)
{
    for (int n_slots = PCH_FEWEST_SLOTS; n_slots <= PCH_MOST_SLOTS; n_slots += 2) {
        ahead(n_slots);
        alone(&numbers, n_slots);
        alone(&mixed, n_slots);
        alone(&large_only, n_slots);
        one_way(&numbers, n_slots, 4000, -1);
        one_way(&mixed, n_slots, 4000, -1);
        one_way(&mixed, n_slots, 500, 0);
        one_way(&numbers, n_slots, 500, 1);
        one_way(&mixed, n_slots, 500, 1);
        both_ways(n_slots, 2000);
        opposite_order(n_slots, 2000);
    }
    one_way(&large_only, 2, 2000, -1);
    failing_copy();
    return 0;
}
