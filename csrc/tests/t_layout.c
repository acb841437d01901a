/* SPDX-License-Identifier: MIT
 * Layouts: every upper element has one owner and one place; owners as defined; packed rows balanced. */
#include "../core/pch_layout.h"
#include "testing.h"

#include <string.h>

static void check_layout(const pchan_layout *options, int64_t n, int n_ranks)
{
    pch_layout *layout = NULL;
    pchan_error err;
    CHECK(pch_layout_create(options, n, n_ranks, &layout, &err) == PCHAN_OK, "%s", err.message);
    int64_t total = n * (n + 1) / 2;
    CHECK(pch_layout_offset(layout, n_ranks) == total, "total of n = %lld", (long long)n);
    char *seen = calloc((size_t)total + 1, 1);
    int64_t *rows = calloc((size_t)total + 1, sizeof *rows), *cols = calloc((size_t)total + 1, sizeof *cols);
    for (int r = 0; r < n_ranks; r++) {
        pch_layout_owned(layout, r, rows, cols);
        int64_t first = pch_layout_offset(layout, r), count = pch_layout_offset(layout, r + 1) - first;
        for (int64_t k = 0; k < count; k++) {
            int64_t i = rows[k], j = cols[k];
            CHECK(0 <= i && i <= j && j < n, "(%lld, %lld)", (long long)i, (long long)j);
            CHECK(k == 0 || rows[k - 1] < i || (rows[k - 1] == i && cols[k - 1] < j), "row-major order");
            int64_t place = pch_layout_position(layout, i, j);
            CHECK(place == first + k, "kind %d, n %lld, %d ranks: (%lld, %lld) is at %lld, not %lld",
                  options->kind, (long long)n, n_ranks, (long long)i, (long long)j, (long long)place,
                  (long long)(first + k));
            CHECK(!seen[place], "place %lld twice", (long long)place);
            seen[place] = 1;
            CHECK(pch_layout_owner(layout, i, j) == r && pch_layout_owner_of_place(layout, place) == r, "owner");
            int64_t row = -1, col = -1;
            pch_layout_find(layout, place, &row, &col);
            CHECK(row == i && col == j, "(%lld, %lld) is found", (long long)row, (long long)col);
            if (options->kind != PCHAN_PACKED_ROWS) {
                int block = options->kind == PCHAN_BLOCK_CYCLIC ? options->block : 1, g = layout->grid_rows;
                int owner = (int)(i / block % g) + (int)(j / block % layout->grid_cols) * g;
                CHECK(owner == r, "(%lld, %lld): owner %d, not %d", (long long)i, (long long)j, r, owner);
            }
        }
        if (options->kind == PCHAN_PACKED_ROWS) {
            CHECK(count <= total / n_ranks + n, "rank %d owns %lld of %lld", r, (long long)count,
                  (long long)total);
        }
    }
    CHECK(!memchr(seen, 0, (size_t)total), "an element without owner");
    free(seen);
    free(rows);
    free(cols);
    pch_layout_destroy(&layout);
}

/* Random owners: places by owner, then by rows. */
static void check_custom(int64_t n, int n_ranks)
{
    int64_t total = n * (n + 1) / 2, *places = calloc((size_t)total, sizeof *places), *next;
    int32_t *owners = calloc((size_t)total, sizeof *owners);
    uint64_t seed = (uint64_t)(100 * n + n_ranks);
    for (int64_t k = 0; k < total; k++)
        owners[k] = (int32_t)(random_u64(&seed) % (uint64_t)(n_ranks + 1) % (uint64_t)n_ranks);
    const pchan_layout options = {PCHAN_CUSTOM, 0, 0, 0, owners};
    pch_layout *layout = NULL;
    pchan_error err;
    CHECK(pch_layout_create(&options, n, n_ranks, &layout, &err) == PCHAN_OK, "%s", err.message);
    CHECK(pch_layout_places_bytes(layout) == 8 * total && pch_layout_bytes(layout) == 0, "bytes of the tables");
    CHECK(pch_layout_set_places(layout, places, owners, &err) == PCHAN_OK, "%s", err.message);
    next = calloc((size_t)n_ranks, sizeof *next);
    for (int64_t i = 0; i < n; i++) {
        for (int64_t j = i; j < n; j++) {
            int owner = owners[pch_layout_upper(n, i, j)];
            int64_t place = pch_layout_offset(layout, owner) + next[owner]++;
            CHECK(pch_layout_position(layout, i, j) == place, "(%lld, %lld)", (long long)i, (long long)j);
            CHECK(pch_layout_owner(layout, i, j) == owner, "owner of (%lld, %lld)", (long long)i, (long long)j);
        }
    }
    int64_t *rows = calloc((size_t)total, sizeof *rows), *cols = calloc((size_t)total, sizeof *cols);
    for (int r = 0; r < n_ranks; r++) {
        CHECK(pch_layout_n_owned(layout, r) == next[r], "rank %d", r);
        pch_layout_owned(layout, r, rows, cols);
        for (int64_t k = 0; k < next[r]; k++) {
            CHECK(pch_layout_position(layout, rows[k], cols[k]) == pch_layout_offset(layout, r) + k, "rank %d", r);
        }
    }
    int64_t checksum = pch_layout_checksum(&options, n);
    owners[total - 1] = (owners[total - 1] + 1) % (n_ranks + 1);
    CHECK(checksum >= 0 && checksum != pch_layout_checksum(&options, n), "the checksum does not tell");
    owners[0] = n_ranks;
    pch_layout_destroy(&layout);
    CHECK(pch_layout_create(&options, n, n_ranks, &layout, &err) == PCHAN_ERR_ARG, "owner %d is accepted",
          n_ranks);
    free(places), free(next), free(owners), free(rows), free(cols);
}

static void check_refused(pchan_layout options, const char *what)
{
    pch_layout *layout = NULL;
    pchan_error err;
    CHECK(pch_layout_create(&options, 10, 6, &layout, &err) == PCHAN_ERR_ARG && !layout, "%s is accepted", what);
}

int main(void)
{
    const int64_t sizes[] = {1, 2, 3, 7, 20, 41};
    for (int n_ranks = 1; n_ranks <= 12; n_ranks++) {
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            check_layout(&(pchan_layout){0}, sizes[s], n_ranks);
            check_layout(&(pchan_layout){PCHAN_ELEMENT_CYCLIC, n_ranks, 1, 0, NULL}, sizes[s], n_ranks);
            check_layout(&(pchan_layout){PCHAN_ELEMENT_CYCLIC, 1, n_ranks, 0, NULL}, sizes[s], n_ranks);
            for (int block = 1; block < 6; block += 2) {
                check_layout(&(pchan_layout){PCHAN_BLOCK_CYCLIC, 1, n_ranks, block, NULL}, sizes[s], n_ranks);
            }
            check_layout(&(pchan_layout){PCHAN_PACKED_ROWS, 0, 0, 0, NULL}, sizes[s], n_ranks);
        }
    }
    check_layout(&(pchan_layout){PCHAN_BLOCK_CYCLIC, 2, 3, 4, NULL}, 50, 6);
    pch_layout *layout = NULL; /* the default grid: ranks, rows */
    const int grids[][2] = {{1, 1}, {2, 1}, {3, 1}, {4, 2}, {6, 2}, {7, 7}, {12, 3}, {1536, 48}};
    for (size_t i = 0; i < sizeof grids / sizeof *grids; i++) {
        CHECK(pch_layout_create(&(pchan_layout){0}, 5, grids[i][0], &layout, NULL) == PCHAN_OK, "create");
        CHECK(layout->grid_rows == grids[i][1], "%d ranks: %d rows", grids[i][0], layout->grid_rows);
        pch_layout_destroy(&layout);
    }
    for (int n_ranks = 1; n_ranks < 7; n_ranks++) {
        check_custom(1, n_ranks);
        check_custom(17, n_ranks);
    }
    check_refused((pchan_layout){PCHAN_CUSTOM, 0, 0, 0, NULL}, "no owners");
    check_refused((pchan_layout){PCHAN_ELEMENT_CYCLIC, 2, 2, 0, NULL}, "a grid of 4 for 6 ranks");
    check_refused((pchan_layout){PCHAN_ELEMENT_CYCLIC, 6, 0, 0, NULL}, "half a grid");
    check_refused((pchan_layout){PCHAN_BLOCK_CYCLIC, 2, 3, 0, NULL}, "block 0");
    check_refused((pchan_layout){(pchan_layout_kind)9, 0, 0, 0, NULL}, "kind 9");
    pchan_layout zero = {0};
    CHECK(pch_layout_create(&zero, 0, 1, &layout, NULL) == PCHAN_ERR_ARG, "n = 0 is accepted");
    return 0;
}
