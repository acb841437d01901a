/* SPDX-License-Identifier: MIT
 *
 * residues: integers to residues. x is cut into 24-bit pieces, the last of them signed; their product
 * with the table of powers of 2^24 mod p is exact in float64, and one reduction per residue follows.
 *
 *   limbs uint64[n][n_limbs]  -->  residues float64[n_primes][stride], n of each row, |r| <= (p - 1) / 2
 *
 * The kernel takes PCH_LANES primes and PCH_PANEL integers at once, so that what it returns for a
 * prime lies side by side; BLOCK panels of integers stay in the cache while the table streams past.
 */
#include "pch_basis.h"
#include "pch_mod.h"

#include <string.h>

/* Products below 2^(24 + 19.67): 512 of them, and one reduced sum, stay below 2^53. */
enum { PIECE_BITS = 24, PIECES_AT_ONCE = 512, BLOCK = 8 };

/* Pieces [n_pieces][PCH_PANEL] of one integer, its column. */
static void cut(const uint64_t *limbs, int n_limbs, int n_pieces, double *pieces)
{
    for (int k = 0; k < n_pieces - 1; k++) {
        int limb = k * PIECE_BITS / 64, shift = k * PIECE_BITS % 64;
        uint64_t value = limbs[limb] >> shift;
        if (shift > 64 - PIECE_BITS && limb + 1 < n_limbs) value |= limbs[limb + 1] << (64 - shift);
        pieces[k * PCH_PANEL] = (double)(int32_t)(value & ((1 << PIECE_BITS) - 1));
    }
    int left = 64 * n_limbs - (n_pieces - 1) * PIECE_BITS; /* 8, 16 or 24 bits; arithmetic shift */
    pieces[(n_pieces - 1) * PCH_PANEL] = (double)((int64_t)limbs[n_limbs - 1] >> (64 - left));
}

/* out = sums mod p, symmetric. The first quotient may be off by one where x / p is near a half; the second
 * is not, as |x| is then below p. No comparisons, so that compilers vectorise it for any target. */
static void reduce(const double *restrict sums, size_t n, double p, double *restrict out)
{
    const double inverse = 1.0 / p;
    for (size_t i = 0; i < n; i++) out[i] = pch_reduce(pch_reduce(sums[i], p, inverse), p, inverse);
}

/* Residues modulo up to PCH_LANES primes of the integers of a block. */
static void residues_of_block(const pchan_basis *basis, int first_prime, const double *pieces, size_t n_pieces,
                              size_t n, double *residues, size_t stride)
{
    double panel[PCH_LANES][PCH_PANEL], sums[PCH_LANES][BLOCK * PCH_PANEL];
    const double *powers = basis->powers + (size_t)first_prime * (size_t)basis->n_pieces;
    for (size_t k = 0; k < n_pieces; k += PIECES_AT_ONCE) {
        size_t count = n_pieces - k < PIECES_AT_ONCE ? n_pieces - k : PIECES_AT_ONCE;
        for (size_t i = 0; i < n; i += PCH_PANEL) {
            basis->kernel->dot(powers + k * PCH_LANES, pieces + i * n_pieces + k * PCH_PANEL, count, panel[0]);
            for (int c = 0; c < PCH_LANES; c++) memcpy(&sums[c][i], panel[c], sizeof *panel);
        }
        for (int c = 0; c < PCH_LANES && first_prime + c < basis->n_primes; c++) {
            double *row = residues + (size_t)c * stride;
            for (size_t i = 0; i < n && k > 0; i++) sums[c][i] += row[i];
            reduce(sums[c], n, basis->primes[first_prime + c], row);
        }
    }
}

pchan_status pchan_residues_strided(const pchan_basis *basis, const uint64_t *limbs, int n_limbs, size_t n,
                                    double *residues, size_t stride, pchan_error *err)
{
    if (n_limbs < 1 || n_limbs > basis->n_limbs) {
        return pch_fail(err, PCHAN_ERR_ARG, "residues: n_limbs = %d is not in 1..%d", n_limbs, basis->n_limbs);
    }
    int n_pieces = 64 * n_limbs / PIECE_BITS + (64 * n_limbs % PIECE_BITS != 0);
    double *pieces = NULL;
    pchan_status status;
    PCH_TRY(PCH_ALLOC(pieces, (size_t)n_pieces * PCH_PANEL * BLOCK, err));
    for (size_t first = 0; first < n; first += PCH_PANEL * BLOCK) {
        size_t count = n - first < PCH_PANEL * BLOCK ? n - first : PCH_PANEL * BLOCK;
        for (size_t e = 0; e < count; e++) {
            const uint64_t *x = limbs + (first + e) * (size_t)n_limbs;
            if (!pch_limbs_in_range(x, n_limbs, basis->bits)) {
                status = pch_fail(err, PCHAN_ERR_RANGE, "residues: integer %zu does not satisfy |x| < 2^%d",
                                  first + e, basis->bits);
                if (err) err->index = (int64_t)(first + e);
                goto done;
            }
            cut(x, n_limbs, n_pieces, pieces + e / PCH_PANEL * PCH_PANEL * (size_t)n_pieces + e % PCH_PANEL);
        }
        for (int i = 0; i < basis->n_primes; i += PCH_LANES) {
            residues_of_block(basis, i, pieces, (size_t)n_pieces, count, residues + (size_t)i * stride + first,
                              stride);
        }
    }
done:
    pch_free(pieces);
    return status;
}

pchan_status pchan_residues(const pchan_basis *basis, const uint64_t *limbs, size_t n, double *residues,
                            pchan_error *err)
{
    return pchan_residues_strided(basis, limbs, basis->n_limbs, n, residues, n, err);
}
