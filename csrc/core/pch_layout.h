/* SPDX-License-Identifier: MIT
 *
 * Who owns element (i, j), i <= j, and where it lies in the window: owners in rank order, and each
 * owner's elements in row-major order.
 *
 * All named layouts are separable: rows and columns fall into classes, and a pair of classes has one
 * owner. So a place is base[i][class of j] + (j's number within its class), and the table holds
 * n * grid_cols numbers instead of one per element. A custom layout has one place per element; the table lies
 * behind the window, once per node.
 */
#ifndef PCH_LAYOUT_H
#define PCH_LAYOUT_H

#include "pch_pure.h"

typedef struct pch_layout {
    int64_t n;
    int n_ranks, grid_rows, grid_cols;
    int64_t *base;       /* [n][grid_cols] */
    int *row_class;      /* [n]; owner = row_class + col_class * grid_rows */
    int *col_class;      /* [n] */
    int64_t *col_number; /* [n], within its class */
    int64_t *offset;     /* [n_ranks + 1], first place of each owner */
    int64_t *places;     /* CUSTOM: [n (n + 1) / 2], upper triangle by rows, borrowed; else NULL, as are
                            base, row_class, col_class and col_number there */
} pch_layout;

/* ARG (n < 1, a grid that does not fit n_ranks, block < 1, an owner that is no rank), NOMEM. A custom layout can
 * tell offsets at once, and places after pch_layout_set_places. */
pchan_status pch_layout_create(const pchan_layout *options, int64_t n, int n_ranks, pch_layout **layout,
                               pchan_error *err);
void pch_layout_destroy(pch_layout **layout);

/* Bytes of a custom layout's table of places; 0 for the named ones. */
int64_t pch_layout_places_bytes(const pch_layout *layout);
/* The table's memory, borrowed; with owners (as in the options) it is filled. */
pchan_status pch_layout_set_places(pch_layout *layout, int64_t *places, const int32_t *owners, pchan_error *err);

/* A number that tells two custom layouts apart, at least 0: FNV-1a of the owners. 0 for the named ones. */
int64_t pch_layout_checksum(const pchan_layout *options, int64_t n);

/* First place of a rank's elements; for rank n_ranks the number of all elements. */
int64_t pch_layout_offset(const pch_layout *layout, int rank);

static inline int64_t pch_layout_upper(int64_t n, int64_t i, int64_t j) /* number of (i, j) by rows */
{
    return i * n - i * (i - 1) / 2 + j - i;
}

static inline int64_t pch_layout_position(const pch_layout *layout, int64_t i, int64_t j)
{
    if (layout->places) return layout->places[pch_layout_upper(layout->n, i, j)];
    return layout->base[i * layout->grid_cols + layout->col_class[j]] + layout->col_number[j];
}

static inline int64_t pch_layout_n_owned(const pch_layout *layout, int rank)
{
    return layout->offset[rank + 1] - layout->offset[rank];
}

int pch_layout_owner_of_place(const pch_layout *layout, int64_t place);
/* Indices of the element at a place, by looking at all places: for errors. */
void pch_layout_find(const pch_layout *layout, int64_t place, int64_t *row, int64_t *col);

static inline int pch_layout_owner(const pch_layout *layout, int64_t i, int64_t j)
{
    if (layout->places) return pch_layout_owner_of_place(layout, pch_layout_position(layout, i, j));
    return layout->row_class[i] + layout->col_class[j] * layout->grid_rows;
}

/* Indices of a rank's elements in order. */
void pch_layout_owned(const pch_layout *layout, int rank, int64_t *rows, int64_t *cols);

int64_t pch_layout_bytes(const pch_layout *layout);

#endif
