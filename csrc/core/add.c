/* SPDX-License-Identifier: MIT
 *
 * add: a tile of residues is packed, 64 columns at a time, and the words are added to the node's
 * window at the places of their elements. All ranks of the node may do so at once: a lock per
 * matrix row (of 256) keeps their additions apart.
 *
 *   tile residues [n_primes][rows][cols], any strides  -->  window uint64[place][n_words]
 *
 * A tile with a value that is no residue is not added at all.
 */
#include "pch_qreduce.h"

static pchan_status check_tile(const pchan_qreduce *q, int64_t i0, int64_t j0, const pchan_array *tile,
                               pchan_error *err)
{
    int64_t rows = (int64_t)tile->shape[1], cols = (int64_t)tile->shape[2], n = q->layout->n;
    if (tile->shape[0] != (size_t)q->basis->n_primes) {
        return pch_fail(err, PCHAN_ERR_ARG, "add: the tile has %zu residues per element, but the basis %d primes",
                        tile->shape[0], q->basis->n_primes);
    }
    if (i0 < 0 || j0 < 0 || rows > n || cols > n || i0 > n - rows || j0 > n - cols) {
        return pch_fail(err, PCHAN_ERR_ARG, "add: a tile of %lld x %lld at (%lld, %lld) does not fit n = %lld",
                        (long long)rows, (long long)cols, (long long)i0, (long long)j0, (long long)n);
    }
    return PCHAN_OK;
}

/* First column of the tile's row r that lies in the upper triangle. */
static int64_t first_upper(int64_t i0, int64_t j0, int64_t r, int64_t cols)
{
    int64_t c = i0 + r - j0;
    return c < 0 ? 0 : c < cols ? c : cols;
}

static void add_stretch(pchan_qreduce *q, int64_t i, int64_t j, int64_t n)
{
    int n_words = q->basis->n_words;
    pch_window_lock(q->window, (size_t)i);
    for (int64_t k = 0; k < n; k++) {
        uint64_t *sum = pch_words_at(q, pch_layout_position(q->layout, i, j + k));
        pchan_accumulate(q->basis, sum, q->stretch + k * n_words, 1);
    }
    pch_window_unlock(q->window, (size_t)i);
}

/* Adds row r of the tile, or takes it back, up to column `end`; false, with *bad, at a value that
 * is no residue. */
static bool add_row(pchan_qreduce *q, int64_t i0, int64_t j0, const pchan_array *tile, int64_t r, int64_t end,
                    bool take_back, size_t *bad)
{
    for (int64_t c = first_upper(i0, j0, r, end); c < end; c += PCH_STRETCH) {
        int64_t n = end - c < PCH_STRETCH ? end - c : PCH_STRETCH;
        int64_t begin_ns = pch_now_ns();
        pchan_status status = pch_pack_row(q->basis, tile, (size_t)r, (size_t)c, (size_t)n, q->stretch, bad);
        q->stats.pack_ns += pch_now_ns() - begin_ns;
        if (status != PCHAN_OK) return false;
        if (take_back) pch_negate_words(q->basis, q->stretch, (size_t)n);
        add_stretch(q, i0 + r, j0 + c, n);
    }
    return true;
}

/* Looking at all values first would read the tile twice; so a tile with a wrong one is taken back. */
static pchan_status add_tile(pchan_qreduce *q, int64_t i0, int64_t j0, const pchan_array *tile, pchan_error *err)
{
    int64_t rows = (int64_t)tile->shape[1], cols = (int64_t)tile->shape[2], r = 0;
    size_t bad = 0;
    while (r < rows && add_row(q, i0, j0, tile, r, cols, false, &bad)) r++;
    if (r == rows) return PCHAN_OK;
    int64_t first = first_upper(i0, j0, r, cols);
    add_row(q, i0, j0, tile, r, (int64_t)bad - ((int64_t)bad - first) % PCH_STRETCH, true, &(size_t){0});
    for (int64_t k = 0; k < r; k++) add_row(q, i0, j0, tile, k, cols, true, &(size_t){0});
    return pch_fail(err, PCHAN_ERR_ARG,
                    "add: a residue of element (%lld, %lld) is not an integer of at most 2^53 in size",
                    (long long)(i0 + r), (long long)(j0 + (int64_t)bad));
}

pchan_status pchan_qreduce_add(pchan_qreduce *q, int64_t i0, int64_t j0, const pchan_array *tile, pchan_error *err)
{
    pchan_status status = pch_qreduce_enter(q, "add", err);
    if (status != PCHAN_OK) return status;
    int64_t begin_ns = pch_now_ns(), packed_ns = q->stats.pack_ns;
    if (q->active) {
        status = pch_fail(err, PCHAN_ERR_STATE, "add: the reduce-scatter is active; wait for it first");
        goto done;
    }
    PCH_TRY(check_tile(q, i0, j0, tile, err));
    status = add_tile(q, i0, j0, tile, err);
    q->stats.add_ns += pch_now_ns() - begin_ns - (q->stats.pack_ns - packed_ns);
done:
    pch_qreduce_leave(q);
    return status;
}
