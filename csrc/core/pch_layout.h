/* SPDX-License-Identifier: MIT
 *
 * Who owns element (i, j), i <= j, and where it lies in the window: owners in rank order, and each
 * owner's elements in row-major order.
 *
 * All layouts are separable: rows and columns fall into classes, and a pair of classes has one
 * owner. So a place is base[i][class of j] + (j's number within its class), and the table holds
 * n * grid_cols numbers instead of one per element.
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
} pch_layout;

/* ARG (n < 1, a grid that does not fit n_ranks, block < 1), NOMEM. */
pchan_status pch_layout_create(const pchan_layout *options, int64_t n, int n_ranks, pch_layout **layout,
                               pchan_error *err);
void pch_layout_destroy(pch_layout **layout);

/* First place of a rank's elements; for rank n_ranks the number of all elements. */
int64_t pch_layout_offset(const pch_layout *layout, int rank);

static inline int64_t pch_layout_position(const pch_layout *layout, int64_t i, int64_t j)
{
    return layout->base[i * layout->grid_cols + layout->col_class[j]] + layout->col_number[j];
}

static inline int64_t pch_layout_n_owned(const pch_layout *layout, int rank)
{
    return layout->offset[rank + 1] - layout->offset[rank];
}

/* Indices of a rank's elements in order. */
void pch_layout_owned(const pch_layout *layout, int rank, int64_t *rows, int64_t *cols);

int64_t pch_layout_bytes(const pch_layout *layout);

#endif
