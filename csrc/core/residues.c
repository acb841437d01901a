/* SPDX-License-Identifier: MIT
 *
 * residues: integers to residues. x is cut into 24-bit pieces; their product with the table of
 * powers of 2^24 mod p is exact in float64, and one reduction per residue follows.
 *
 *   limbs uint64[n][n_limbs]  -->  residues float64[n_primes][n], |r| <= (p - 1) / 2
 */
#include "pch_basis.h"
#include "pch_mod.h"

/* Products below 2^(24 + 19.67): 512 of them, and one reduced sum, stay below 2^53. */
enum { PIECE_BITS = 24, PIECES_AT_ONCE = 512 };

/* pieces [n_pieces][PCH_LANES] of one integer, the sign last; lane e. */
static void cut(const uint64_t *limbs, int n_limbs, int n_pieces, double *pieces)
{
    for (int k = 0; k < n_pieces - 1; k++) {
        int limb = k * PIECE_BITS / 64, shift = k * PIECE_BITS % 64;
        uint64_t value = limbs[limb] >> shift;
        if (shift > 64 - PIECE_BITS && limb + 1 < n_limbs) value |= limbs[limb + 1] << (64 - shift);
        pieces[(size_t)k * PCH_LANES] = (double)(int32_t)(value & ((1 << PIECE_BITS) - 1));
    }
    pieces[(size_t)(n_pieces - 1) * PCH_LANES] = (double)(limbs[n_limbs - 1] >> 63);
}

static void residues_of_lanes(const pchan_basis *basis, const double *pieces, size_t n, size_t first,
                              size_t n_lanes, double *residues)
{
    double sums[PCH_LANES * PCH_PANEL];
    size_t n_pieces = (size_t)basis->n_pieces;
    for (int panel = 0; panel < basis->n_prime_panels; panel++) {
        const double *powers = basis->powers + (size_t)panel * n_pieces * PCH_PANEL;
        int first_prime = panel * PCH_PANEL;
        int n_columns = basis->n_primes - first_prime < PCH_PANEL ? basis->n_primes - first_prime : PCH_PANEL;
        double totals[PCH_LANES * PCH_PANEL] = {0};
        for (size_t k = 0; k < n_pieces; k += PIECES_AT_ONCE) {
            size_t count = n_pieces - k < PIECES_AT_ONCE ? n_pieces - k : PIECES_AT_ONCE;
            basis->kernel->dot(pieces + k * PCH_LANES, powers + k * PCH_PANEL, count, sums);
            for (int c = 0; c < n_columns; c++) {
                double p = basis->primes[first_prime + c], inverse = 1.0 / p;
                for (size_t e = 0; e < PCH_LANES; e++) {
                    double *total = &totals[e * PCH_PANEL + (size_t)c];
                    *total = pch_reduce(*total + sums[e * PCH_PANEL + (size_t)c], p, inverse);
                }
            }
        }
        for (int c = 0; c < n_columns; c++) {
            double p = basis->primes[first_prime + c], half = (p - 1) / 2;
            double *row = residues + (size_t)(first_prime + c) * n + first;
            for (size_t e = 0; e < n_lanes; e++) {
                double r = totals[e * PCH_PANEL + (size_t)c];
                row[e] = r > half ? r - p : r < -half ? r + p : r;
            }
        }
    }
}

pchan_status pchan_residues(const pchan_basis *basis, const uint64_t *limbs, size_t n, double *residues,
                            pchan_error *err)
{
    size_t n_limbs = (size_t)basis->n_limbs;
    double *pieces = NULL;
    pchan_status status;
    PCH_TRY(PCH_ALLOC(pieces, (size_t)basis->n_pieces * PCH_LANES, err));
    for (size_t first = 0; first < n; first += PCH_LANES) {
        size_t n_lanes = n - first < PCH_LANES ? n - first : PCH_LANES;
        for (size_t e = 0; e < n_lanes; e++) {
            const uint64_t *x = limbs + (first + e) * n_limbs;
            if (!pch_limbs_in_range(x, basis->n_limbs, basis->bits)) {
                status = pch_fail(err, PCHAN_ERR_RANGE, "residues: integer %zu does not satisfy |x| < 2^%d",
                                  first + e, basis->bits);
                if (err) err->index = (int64_t)(first + e);
                goto done;
            }
            cut(x, basis->n_limbs, basis->n_pieces, pieces + e);
        }
        residues_of_lanes(basis, pieces, n, first, n_lanes, residues);
    }
done:
    pch_free(pieces);
    return status;
}
