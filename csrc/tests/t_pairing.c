/* SPDX-License-Identifier: MIT
 * Pairing: equal on both ends, every misfit named, transports, and tables from untrusted bytes. */
#include "../core/pch_connect.h"
#include "testing.h"

#include <string.h>

static pch_row row(pchan_kind kind, int peer, int tag, int index, int64_t bytes)
{
    pch_row r = {.kind = kind, .peer = peer, .tag = tag, .index = index, .bytes = bytes, .unit = 8};
    r.flags = PCH_DENSE | PCH_MOVABLE;
    r.signature = 7;
    strcpy(r.element, "float64");
    return r;
}

static int64_t pair(pch_row *s, int64_t ns, pch_row *r, int64_t nr, pch_pair *pairs, pch_faults *faults)
{
    pch_rows_sort(s, (size_t)ns);
    pch_rows_sort(r, (size_t)nr);
    *faults = (pch_faults){0};
    return pch_pair_up(s, ns, r, nr, 0, 1, true, true, pairs, faults);
}

/* Against the plain rule: the k-th send under a tag meets the k-th receive under it. */
static void test_random(void)
{
    uint64_t seed = 1;
    enum { MOST = 12 };
    for (int trial = 0; trial < 20000; trial++) {
        pch_row s[MOST], r[MOST];
        pch_pair pairs[MOST];
        pch_faults faults;
        int ns = (int)(random_u64(&seed) % (MOST + 1)), nr = (int)(random_u64(&seed) % (MOST + 1)), expected = 0;
        for (int k = 0; k < ns; k++) s[k] = row(PCHAN_SEND, 1, (int)(random_u64(&seed) % 4), k, 8);
        for (int k = 0; k < nr; k++) r[k] = row(PCHAN_RECV, 0, (int)(random_u64(&seed) % 4), k, 8);
        for (int tag = 0; tag < 4; tag++) {
            int a = 0, b = 0;
            for (int k = 0; k < ns; k++) a += s[k].tag == tag;
            for (int k = 0; k < nr; k++) b += r[k].tag == tag;
            expected += a < b ? a : b;
        }
        int64_t n = pair(s, ns, r, nr, pairs, &faults);
        CHECK(n == expected && faults.count == ns + nr - 2 * n, "%d pairs, %d faults", (int)n, (int)faults.count);
        for (int64_t k = 0; k < n; k++) {
            CHECK(pairs[k].send->tag == pairs[k].recv->tag, "tags differ");
            bool later = k > 0 && pairs[k].send->tag == pairs[k - 1].send->tag;
            CHECK(!later || (pairs[k].send->index > pairs[k - 1].send->index &&
                             pairs[k].recv->index > pairs[k - 1].recv->index),
                  "out of order");
        }
    }
}

static const char *fault_of(pch_row s, pch_row r)
{
    static pch_faults faults;
    pch_pair pairs[1];
    pair(&s, 1, &r, 1, pairs, &faults);
    return faults.count ? faults.text : "";
}

static void test_faults(void)
{
    pch_row s = row(PCHAN_SEND, 1, 3, 5, 80), r = row(PCHAN_RECV, 0, 3, 6, 80), x;
    CHECK(fault_of(s, r)[0] == '\0', "%s", fault_of(s, r));
    x = r, x.bytes = 79;
    CHECK(strstr(fault_of(s, x),
                 "rank 0 operation 5 (send to 1, tag 3, 80 bytes of float64) and "
                 "rank 1 operation 6 (recv from 0, tag 3, 79 bytes of float64): the message is longer"),
          "%s", fault_of(s, x));
    x = r, x.signature = 8;
    CHECK(strstr(fault_of(s, x), "types differ"), "%s", fault_of(s, x));
    x = s, x.signature = 0, x.bytes = 0; /* an empty derived datatype */
    CHECK(fault_of(x, r)[0] == '\0', "%s", fault_of(x, r));
    x = r, x.signature = 0, x.bytes = 0;
    CHECK(strstr(fault_of(s, x), "longer than its receive"), "%s", fault_of(s, x));
    s.n_dims = r.n_dims = 2;
    s.shape[0] = 2, s.shape[1] = 5, r.shape[0] = 5, r.shape[1] = 2;
    CHECK(strstr(fault_of(s, r), "shapes differ") && strstr(fault_of(s, r), "shape 2 x 5"), "%s", fault_of(s, r));
    r.column_major = 1, r.shape[0] = 2, r.shape[1] = 5;
    CHECK(strstr(fault_of(s, r), "transpose"), "%s", fault_of(s, r));
}

/* More faults than there is room for: counted, not written past the end. */
static void test_many_faults(void)
{
    enum { MANY = 500 };
    static pch_row s[MANY];
    static pch_pair pairs[1];
    static pch_faults faults;
    for (int k = 0; k < MANY; k++) s[k] = row(PCHAN_SEND, 1, k, k, 8);
    CHECK(pair(s, MANY, s, 0, pairs, &faults) == 0 && faults.count == MANY, "%d", (int)faults.count);
    CHECK(faults.used <= sizeof faults.text && faults.text[faults.used - 1] == '\n', "%zu", faults.used);
}

static void test_choice(void)
{
    pch_row s = row(PCHAN_SEND, 1, 0, 0, 1000), r = row(PCHAN_RECV, 0, 0, 0, 2000);
    pch_pair p = {&s, &r};
    pch_head head = {.mode = PCH_AUTO, .shm_bytes = 1000, .bundle_bytes = 999};
    CHECK(pch_choose(&p, &head, true) == PCHAN_BY_SHM, "small, same node");
    CHECK(pch_choose(&p, &head, false) == PCHAN_BY_MPI, "large, other node");
    head.bundle_bytes = 1000, head.shm_bytes = 999;
    CHECK(pch_choose(&p, &head, false) == PCHAN_BY_BUNDLE, "small, other node");
    CHECK(pch_choose(&p, &head, true) == PCHAN_BY_CMA, "large, same node");
    s.flags = PCH_MOVABLE;
    CHECK(pch_choose(&p, &head, true) == PCHAN_BY_SHM, "strided");
    r.flags = PCH_MOVABLE, r.unit = 300;
    CHECK(pch_choose(&p, &head, true) == PCHAN_BY_MPI, "part of a repetition of the receiver's type");
    s.flags = 0;
    CHECK(pch_choose(&p, &head, false) == PCHAN_BY_MPI, "cannot be packed");
    s.flags = r.flags = PCH_DENSE | PCH_MOVABLE;
    head.mode = PCH_ALL_MPI;
    CHECK(pch_choose(&p, &head, true) == PCHAN_BY_MPI, "forced");
    head.mode = PCH_ALL_SHM, s.bytes = 1 << 25;
    CHECK(pch_choose(&p, &head, true) == PCHAN_BY_SHM && pch_choose(&p, &head, false) != PCHAN_BY_SHM, "forced");
}

/* Bytes that another process sent: either refused, or a table that can be paired. */
static void test_garbage(void)
{
    enum { N = 6 };
    struct {
        pch_head head;
        pch_row rows[N];
    } good, bad;
    pch_table table;
    memset(&good, 0, sizeof good);
    pch_connect_settings(&good.head);
    good.head.n_rows = N;
    for (int k = 0; k < N; k++) good.rows[k] = row(k < 2 ? PCHAN_SEND : PCHAN_RECV, 4, k / 2, k, 8 * k);
    CHECK(pch_table_read(&good, sizeof good, 4, &table), "refused");
    CHECK(table.n_sends == 2 && table.n_recvs == 4 && table.recvs == table.sends + 2, "counts");
    CHECK(!pch_table_read(&good, sizeof good, 5, &table), "for another rank");
    for (size_t n = 0; n < sizeof good; n++) CHECK(!pch_table_read(&good, n, 4, &table), "%zu bytes", n);
    uint64_t seed = 3;
    int accepted = 0;
    for (int trial = 0; trial < 200000; trial++) {
        bad = good;
        for (uint64_t flips = 1 + random_u64(&seed) % 3; flips > 0; flips--) {
            uint64_t bit = random_u64(&seed) % (8 * sizeof bad);
            ((unsigned char *)&bad)[bit / 8] ^= (unsigned char)(1u << bit % 8);
        }
        if (!pch_table_read(&bad, sizeof bad, 4, &table)) continue;
        accepted++;
        pch_pair pairs[N];
        static pch_faults faults;
        faults = (pch_faults){0};
        pch_pair_up(table.sends, table.n_sends, good.rows + 2, 4, 0, 4, true, true, pairs, &faults);
        pch_pair_up(good.rows, 2, table.recvs, table.n_recvs, 0, 4, true, true, pairs, &faults);
    }
    CHECK(accepted > 0 && accepted < 200000, "%d accepted", accepted);
}

int main(void)
{
    test_random();
    test_faults();
    test_many_faults();
    test_choice();
    test_garbage();
    return 0;
}
