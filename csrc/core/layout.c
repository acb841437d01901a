/* SPDX-License-Identifier: MIT
 *
 * Layouts of the upper triangle, see pch_layout.h. Usual sizes: n up to 10,000 on up to a few
 * thousand ranks, so the tables take a few megabytes.
 */
#include "pch_layout.h"

/* Elemental's default: the smallest divisor of n_ranks that is >= floor(sqrt(n_ranks)). */
static int default_rows(int n_ranks)
{
    int rows = 1;
    while ((rows + 1) * (rows + 1) <= n_ranks) rows++;
    while (n_ranks % rows) rows++;
    return rows;
}

static pchan_status choose_grid(const pchan_layout *options, pch_layout *layout, pchan_error *err)
{
    int rows = options->grid_rows, cols = options->grid_cols, n_ranks = layout->n_ranks;
    if (options->kind == PCHAN_PACKED_ROWS) {
        rows = n_ranks;
        cols = 1;
    } else if (rows == 0 && cols == 0) {
        rows = default_rows(n_ranks);
        cols = n_ranks / rows;
    }
    if (rows < 1 || cols < 1 || (int64_t)rows * cols != n_ranks) {
        return pch_fail(err, PCHAN_ERR_ARG, "layout: a grid of %d x %d does not fit %d ranks", rows, cols,
                        n_ranks);
    }
    if (options->kind == PCHAN_BLOCK_CYCLIC && options->block < 1) {
        return pch_fail(err, PCHAN_ERR_ARG, "layout: block = %d is not positive", options->block);
    }
    layout->grid_rows = rows;
    layout->grid_cols = cols;
    return PCHAN_OK;
}

/* Row i goes to the rank within whose equal share of the elements its middle lies. */
static void classify_packed(pch_layout *layout)
{
    double total = 0.5 * (double)layout->n * (double)(layout->n + 1), before = 0;
    for (int64_t i = 0; i < layout->n; i++) {
        double length = (double)(layout->n - i);
        int rank = (int)((before + length / 2) / total * layout->n_ranks);
        layout->row_class[i] = rank < layout->n_ranks ? rank : layout->n_ranks - 1;
        layout->col_class[i] = 0;
        before += length;
    }
}

static void classify_cyclic(pch_layout *layout, int64_t block)
{
    for (int64_t i = 0; i < layout->n; i++) {
        layout->row_class[i] = (int)(i / block % layout->grid_rows);
        layout->col_class[i] = (int)(i / block % layout->grid_cols);
    }
}

static int owner_of(const pch_layout *layout, int64_t i, int col_class)
{
    return layout->row_class[i] + col_class * layout->grid_rows;
}

/* base: first without the owners' offsets, then with them. `seen` counts the columns before i. */
static void number_elements(pch_layout *layout, int64_t *in_class, int64_t *seen)
{
    int n_cols = layout->grid_cols;
    for (int64_t j = 0; j < layout->n; j++) layout->col_number[j] = in_class[layout->col_class[j]]++;
    for (int64_t i = 0; i < layout->n; i++) {
        for (int c = 0; c < n_cols; c++) {
            int64_t *owned = &layout->offset[owner_of(layout, i, c) + 1];
            layout->base[i * n_cols + c] = *owned - seen[c];
            *owned += in_class[c] - seen[c];
        }
        seen[layout->col_class[i]]++;
    }
    for (int r = 0; r < layout->n_ranks; r++) layout->offset[r + 1] += layout->offset[r];
    for (int64_t i = 0; i < layout->n; i++) {
        for (int c = 0; c < n_cols; c++) layout->base[i * n_cols + c] += layout->offset[owner_of(layout, i, c)];
    }
}

static pchan_status make_tables(pch_layout *layout, const pchan_layout *options, pchan_error *err)
{
    int64_t *counts = NULL;
    pchan_status status;
    PCH_TRY(choose_grid(options, layout, err));
    size_t rows = (size_t)layout->n, cols = (size_t)layout->grid_cols;
    PCH_TRY(PCH_ALLOC(layout->base, rows * cols, err));
    PCH_TRY(PCH_ALLOC(layout->row_class, rows, err));
    PCH_TRY(PCH_ALLOC(layout->col_class, rows, err));
    PCH_TRY(PCH_ALLOC(layout->col_number, rows, err));
    PCH_TRY(PCH_ALLOC(counts, 2 * cols, err));
    if (options->kind == PCHAN_PACKED_ROWS) {
        classify_packed(layout);
    } else {
        classify_cyclic(layout, options->kind == PCHAN_BLOCK_CYCLIC ? options->block : 1);
    }
    number_elements(layout, counts, counts + cols);
done:
    pch_free(counts);
    return status;
}

static pchan_status count_custom(pch_layout *layout, const int32_t *owners, pchan_error *err)
{
    if (!owners) return pch_fail(err, PCHAN_ERR_ARG, "layout: a custom one needs owners");
    for (int64_t i = 0; i < layout->n; i++) {
        for (int64_t j = i; j < layout->n; j++) {
            int owner = owners[pch_layout_upper(layout->n, i, j)];
            if (owner < 0 || owner >= layout->n_ranks) {
                return pch_fail(err, PCHAN_ERR_ARG,
                                "layout: owner %d of element (%lld, %lld) is not one of %d ranks", owner,
                                (long long)i, (long long)j, layout->n_ranks);
            }
            layout->offset[owner + 1]++;
        }
    }
    for (int r = 0; r < layout->n_ranks; r++) layout->offset[r + 1] += layout->offset[r];
    return PCHAN_OK;
}

int64_t pch_layout_places_bytes(const pch_layout *layout)
{
    return layout->base ? 0 : layout->offset[layout->n_ranks] * (int64_t)sizeof(int64_t);
}

pchan_status pch_layout_set_places(pch_layout *layout, int64_t *places, const int32_t *owners, pchan_error *err)
{
    int64_t *next = NULL;
    pchan_status status = PCHAN_OK;
    layout->places = places;
    if (!owners) return PCHAN_OK;
    PCH_TRY(PCH_ALLOC(next, (size_t)layout->n_ranks, err));
    for (int r = 0; r < layout->n_ranks; r++) next[r] = layout->offset[r];
    for (int64_t k = 0; k < layout->offset[layout->n_ranks]; k++) places[k] = next[owners[k]]++;
done:
    pch_free(next);
    return status;
}

int64_t pch_layout_checksum(const pchan_layout *options, int64_t n)
{
    if (options->kind != PCHAN_CUSTOM) return 0;
    uint64_t hash = 14695981039346656037u; /* FNV-1a */
    for (int64_t k = 0; k < pch_layout_upper(n, n, n); k++) {
        hash = (hash ^ (uint32_t)options->owners[k]) * 1099511628211u;
    }
    return (int64_t)(hash >> 1);
}

pchan_status pch_layout_create(const pchan_layout *options, int64_t n, int n_ranks, pch_layout **out,
                               pchan_error *err)
{
    *out = NULL;
    if (n < 1 || n > 1000000000) {
        return pch_fail(err, PCHAN_ERR_ARG, "qreduce: n = %lld is not in 1..10^9", (long long)n);
    }
    if (options->kind > PCHAN_CUSTOM)
        return pch_fail(err, PCHAN_ERR_ARG, "layout: unknown kind %d", options->kind);
    pch_layout *layout = NULL;
    pchan_status status;
    PCH_TRY(PCH_ALLOC(layout, 1, err));
    layout->n = n;
    layout->n_ranks = n_ranks;
    PCH_TRY(PCH_ALLOC(layout->offset, (size_t)n_ranks + 1, err));
    if (options->kind == PCHAN_CUSTOM) {
        PCH_TRY(count_custom(layout, options->owners, err));
    } else {
        PCH_TRY(make_tables(layout, options, err));
    }
    *out = layout;
    layout = NULL;
done:
    pch_layout_destroy(&layout);
    return status;
}

void pch_layout_destroy(pch_layout **place)
{
    pch_layout *layout = *place;
    if (!layout) return;
    pch_free(layout->base);
    pch_free(layout->row_class);
    pch_free(layout->col_class);
    pch_free(layout->col_number);
    pch_free(layout->offset);
    pch_free(layout);
    *place = NULL;
}

int64_t pch_layout_offset(const pch_layout *layout, int rank)
{
    return layout->offset[rank];
}

int pch_layout_owner_of_place(const pch_layout *layout, int64_t place)
{
    int low = 0, high = layout->n_ranks - 1; /* owners without elements share their offset with the next */
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (layout->offset[middle + 1] > place) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low;
}

void pch_layout_find(const pch_layout *layout, int64_t place, int64_t *row, int64_t *col)
{
    for (int64_t i = 0; i < layout->n; i++) {
        for (int64_t j = i; j < layout->n; j++) {
            if (pch_layout_position(layout, i, j) != place) continue;
            *row = i;
            *col = j;
            return;
        }
    }
}

static void owned_custom(const pch_layout *layout, int rank, int64_t *rows, int64_t *cols)
{
    int64_t first = layout->offset[rank], end = layout->offset[rank + 1], k = 0;
    for (int64_t i = 0; i < layout->n && k < end - first; i++) {
        for (int64_t j = i; j < layout->n; j++) {
            int64_t place = pch_layout_position(layout, i, j);
            if (place < first || place >= end) continue;
            rows[k] = i;
            cols[k++] = j;
        }
    }
}

void pch_layout_owned(const pch_layout *layout, int rank, int64_t *rows, int64_t *cols)
{
    if (layout->places) {
        owned_custom(layout, rank, rows, cols);
        return;
    }
    int row_class = rank % layout->grid_rows, col_class = rank / layout->grid_rows;
    int64_t k = 0;
    for (int64_t i = 0; i < layout->n; i++) {
        if (layout->row_class[i] != row_class) continue;
        for (int64_t j = i; j < layout->n; j++) {
            if (layout->col_class[j] != col_class) continue;
            rows[k] = i;
            cols[k++] = j;
        }
    }
}

int64_t pch_layout_bytes(const pch_layout *layout)
{
    if (!layout->base) return 0;
    return layout->n * (layout->grid_cols + 1) * (int64_t)sizeof(int64_t) + layout->n * 2 * (int64_t)sizeof(int);
}
