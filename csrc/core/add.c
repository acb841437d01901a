/* SPDX-License-Identifier: MIT
 *
 * add: a tile of residues is packed, 64 columns at a time, and the words are added to the node's
 * window at the places of their elements. All ranks of the node may do so at once: a lock per
 * matrix row (of 256) keeps their additions apart.
 *
 *   tile residues [n_primes][rows][cols], any strides  -->  window uint64[place][n_words]
 *
 * Every value is checked before the first is added.
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

static pchan_status check_values(int64_t i0, int64_t j0, const pchan_array *tile, pchan_error *err)
{
    int64_t rows = (int64_t)tile->shape[1], cols = (int64_t)tile->shape[2];
    for (int64_t r = 0; r < rows; r++) {
        int64_t c = first_upper(i0, j0, r, cols);
        size_t bad;
        if (pch_pack_check(tile, (size_t)r, (size_t)c, (size_t)(cols - c), &bad) == PCHAN_OK) continue;
        return pch_fail(err, PCHAN_ERR_ARG,
                        "add: a residue of element (%lld, %lld) is not an integer of at most 2^53 in size",
                        (long long)(i0 + r), (long long)(j0 + (int64_t)bad));
    }
    return PCHAN_OK;
}

static void add_stretch(pchan_qreduce *q, int64_t i, int64_t j, int64_t n)
{
    int n_words = q->basis->n_words;
    pch_window_lock(q->window, (size_t)i);
    for (int64_t k = 0; k < n; k++) {
        uint64_t *sum = pch_words_at(q, pch_layout_position(q->layout, i, j + k));
        pch_add_words(q->basis, sum, q->stretch + k * n_words);
    }
    pch_window_unlock(q->window, (size_t)i);
}

static void add_row(pchan_qreduce *q, int64_t i0, int64_t j0, const pchan_array *tile, int64_t r)
{
    int64_t cols = (int64_t)tile->shape[2];
    for (int64_t c = first_upper(i0, j0, r, cols); c < cols; c += PCH_STRETCH) {
        int64_t n = cols - c < PCH_STRETCH ? cols - c : PCH_STRETCH;
        int64_t begin_ns = pch_now_ns();
        pch_pack_row_unchecked(q->basis, tile, (size_t)r, (size_t)c, (size_t)n, q->stretch);
        q->stats.pack_ns += pch_now_ns() - begin_ns;
        add_stretch(q, i0 + r, j0 + c, n);
    }
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
    PCH_TRY(check_values(i0, j0, tile, err));
    for (int64_t r = 0; r < (int64_t)tile->shape[1]; r++) add_row(q, i0, j0, tile, r);
    q->stats.add_ns += pch_now_ns() - begin_ns - (q->stats.pack_ns - packed_ns);
done:
    pch_qreduce_leave(q);
    return status;
}
