/* SPDX-License-Identifier: MIT
 *
 * Pairs sends with receives and says in words what does not fit. Both ends run this on the same two
 * tables, so they come to the same pairs and transports without another word.
 */
#include "pch_connect.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const uint64_t MAGIC = 0x706368616e303031; /* "pchan001" */

/* The longest messages that go through a slot or in a bundle unless the environment says otherwise;
 * docs/connect.md has the measurements. */
enum { DEFAULT_SHM_BYTES = 16384, DEFAULT_BUNDLE_BYTES = 8192, LONGEST_STRIDED_SLOT = 1 << 20 };

static int64_t setting(const char *name, int64_t standard)
{
    const char *text = getenv(name);
    if (!text || !*text) return standard;
    char *end;
    long long value = strtoll(text, &end, 10);
    return *end == '\0' && value >= 0 && value <= 1 << 30 ? value : standard;
}

static pch_mode forced_mode(void)
{
    static const char *const names[] = {"", "mpi", "shm", "cma", "bundle"};
    const char *text = getenv("PCHAN_TRANSPORT");
    for (int mode = PCH_ALL_MPI; text && mode <= PCH_ALL_BUNDLE; mode++) {
        if (strcmp(text, names[mode]) == 0) return (pch_mode)mode;
    }
    return PCH_AUTO;
}

void pch_connect_settings(pch_head *head)
{
    head->magic = MAGIC;
    head->mode = forced_mode();
    head->shm_bytes = setting("PCHAN_SHM_BYTES", DEFAULT_SHM_BYTES);
    head->bundle_bytes = setting("PCHAN_BUNDLE_BYTES", DEFAULT_BUNDLE_BYTES);
}

/* ---- tables ---- */

static int compare_rows(const void *a, const void *b)
{
    const pch_row *x = a, *y = b;
    if (x->peer != y->peer) return x->peer < y->peer ? -1 : 1;
    if (x->kind != y->kind) return x->kind < y->kind ? -1 : 1;
    if (x->tag != y->tag) return x->tag < y->tag ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

void pch_rows_sort(pch_row *rows, size_t n)
{
    qsort(rows, n, sizeof *rows, compare_rows);
}

static bool row_is_sound(const pch_row *row, int64_t rank)
{
    if (row->kind != PCHAN_SEND && row->kind != PCHAN_RECV) return false;
    if (row->peer != rank || row->bytes < 0 || row->unit < 0) return false;
    if (row->n_dims < 0 || row->n_dims > PCH_STATED_DIMS) return false;
    return memchr(row->element, '\0', sizeof row->element) != NULL;
}

bool pch_table_read(const void *data, size_t bytes, int64_t rank, pch_table *table)
{
    const pch_head *head = data;
    if (bytes < sizeof *head || head->magic != MAGIC || head->n_rows < 0) return false;
    if ((bytes - sizeof *head) / sizeof(pch_row) != (size_t)head->n_rows) return false;
    if ((bytes - sizeof *head) % sizeof(pch_row) != 0) return false;
    const pch_row *rows = (const pch_row *)(head + 1);
    *table = (pch_table){.head = head, .sends = rows};
    for (int64_t k = 0; k < head->n_rows; k++) {
        if (!row_is_sound(&rows[k], rank)) return false;
        if (k > 0 && compare_rows(&rows[k - 1], &rows[k]) >= 0) return false;
        table->n_sends += rows[k].kind == PCHAN_SEND;
    }
    table->recvs = rows + table->n_sends;
    table->n_recvs = head->n_rows - table->n_sends;
    return true;
}

/* ---- faults ---- */

static void say(pch_faults *faults, const char *line)
{
    size_t length = strlen(line);
    faults->count++;
    if (faults->used + length + 2 > sizeof faults->text) return; /* counted all the same */
    memcpy(faults->text + faults->used, line, length);
    faults->used += length;
    faults->text[faults->used++] = '\n';
}

static void row_text(const pch_row *row, int rank, char *text, size_t size)
{
    char shape[128] = "", tag[24] = "ANY_TAG", peer[24] = "ANY_SOURCE";
    size_t used = 0;
    for (int64_t d = 0; d < row->n_dims; d++) {
        used += (size_t)snprintf(shape + used, sizeof shape - used, "%s%lld", d ? " x " : ", shape ",
                                 (long long)row->shape[d]);
        if (used >= sizeof shape) break;
    }
    if (row->tag >= 0) snprintf(tag, sizeof tag, "%lld", (long long)row->tag);
    if (row->peer >= 0) snprintf(peer, sizeof peer, "%lld", (long long)row->peer);
    snprintf(text, size, "rank %d operation %lld (%s %s, tag %s, %lld bytes of %s%s%s)", rank,
             (long long)row->index, row->kind == PCHAN_SEND ? "send to" : "recv from", peer, tag,
             (long long)row->bytes, row->element, shape,
             row->n_dims && row->column_major ? " in column-major order" : "");
}

void pch_fault_row(pch_faults *faults, const pch_row *row, int rank, const char *why)
{
    char text[400], line[512];
    row_text(row, rank, text, sizeof text);
    snprintf(line, sizeof line, "%s: %s", text, why);
    say(faults, line);
}

static void fault_pair(pch_faults *faults, const pch_pair *pair, int from, int to, const char *why)
{
    char sender[400], receiver[400], line[1024];
    row_text(pair->send, from, sender, sizeof sender);
    row_text(pair->recv, to, receiver, sizeof receiver);
    snprintf(line, sizeof line, "%s and %s: %s", sender, receiver, why);
    say(faults, line);
}

/* A receive may have room for more along the slowest index. Shapes are given by index; here in the order
 * of travel. */
static bool shapes_fit(const pch_row *s, const pch_row *r)
{
    if (s->n_dims < 2 || r->n_dims < 2) return true;
    if (s->n_dims != r->n_dims) return false;
    int64_t n = s->n_dims;
    for (int64_t d = 0; d < n; d++) {
        int64_t at = s->column_major ? n - 1 - d : d;
        if (d == 0 ? r->shape[at] < s->shape[at] : r->shape[at] != s->shape[at]) return false;
    }
    return true;
}

static const char *misfit(const pch_row *s, const pch_row *r)
{
    bool of_nothing = !s->signature || !r->signature; /* an empty derived datatype goes with any */
    if (s->signature != r->signature && !of_nothing) return "the element types differ";
    if (s->bytes > r->bytes) return "the message is longer than its receive";
    if (s->n_dims >= 2 && r->n_dims >= 2 && s->column_major != r->column_major)
        return "the elements travel in different orders: this would be a silent transpose";
    if (!shapes_fit(s, r)) return "the shapes differ";
    return NULL;
}

int64_t pch_pair_up(const pch_row *sends, int64_t n_sends, const pch_row *recvs, int64_t n_recvs, int from, int to,
                    bool tell_sends, bool tell_recvs, pch_pair *pairs, pch_faults *faults)
{
    int64_t s = 0, r = 0, n = 0;
    char why[96];
    while (s < n_sends || r < n_recvs) {
        bool no_recv = r == n_recvs || (s < n_sends && sends[s].tag < recvs[r].tag);
        bool no_send = s == n_sends || (r < n_recvs && recvs[r].tag < sends[s].tag);
        if (no_recv) {
            snprintf(why, sizeof why, "no receive on rank %d pairs with it", to);
            if (tell_sends) pch_fault_row(faults, &sends[s], from, why);
            s++;
        } else if (no_send) {
            snprintf(why, sizeof why, "no send on rank %d pairs with it", from);
            if (tell_recvs) pch_fault_row(faults, &recvs[r], to, why);
            r++;
        } else {
            pairs[n] = (pch_pair){&sends[s++], &recvs[r++]};
            const char *fault = misfit(pairs[n].send, pairs[n].recv);
            if (fault && tell_sends) fault_pair(faults, &pairs[n], from, to, fault);
            n++;
        }
    }
    return n;
}

/* ---- transports ---- */

/* Both ends can move what is sent through contiguous bytes. A receive of whole repetitions of its
 * datatype can take less than it has room for. */
static bool movable(const pch_row *s, const pch_row *r)
{
    bool whole = (r->flags & PCH_DENSE) || s->bytes == r->bytes || (r->unit > 0 && s->bytes % r->unit == 0);
    return (s->flags & PCH_MOVABLE) && (r->flags & PCH_MOVABLE) && whole;
}

pchan_transport pch_choose(const pch_pair *pair, const pch_head *head, bool same_node)
{
    const pch_row *s = pair->send, *r = pair->recv;
    bool dense = (s->flags & PCH_DENSE) && (r->flags & PCH_DENSE), moves = movable(s, r);
    switch (head->mode) {
        case PCH_ALL_MPI: return PCHAN_BY_MPI;
        case PCH_ALL_BUNDLE: return moves ? PCHAN_BY_BUNDLE : PCHAN_BY_MPI;
        case PCH_ALL_SHM:
            if (same_node && moves) return PCHAN_BY_SHM;
            break;
        case PCH_ALL_CMA:
            if (same_node && dense) return PCHAN_BY_CMA;
            break;
        default: break;
    }
    if (!same_node) return moves && s->bytes <= head->bundle_bytes ? PCHAN_BY_BUNDLE : PCHAN_BY_MPI;
    if (moves && s->bytes <= (dense ? head->shm_bytes : LONGEST_STRIDED_SLOT)) return PCHAN_BY_SHM;
    return dense ? PCHAN_BY_CMA : PCHAN_BY_MPI;
}
