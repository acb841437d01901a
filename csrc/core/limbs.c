/* SPDX-License-Identifier: MIT */
#include "pch_basis.h"

int64_t pch_bit_length(const uint64_t *x, int n)
{
    while (n > 0 && !x[n - 1]) n--;
    return n ? 64 * (int64_t)n - __builtin_clzll(x[n - 1]) : 0;
}

/* From bit `bits` on all must equal the sign, and -2^bits itself is outside. */
bool pch_limbs_in_range(const uint64_t *wide, int n_wide, int bits)
{
    uint64_t sign = wide[n_wide - 1] >> 63 ? ~(uint64_t)0 : 0;
    int whole = bits / 64, rest = bits % 64;
    if (whole >= n_wide) return true;
    for (int i = whole + 1; i < n_wide; i++) {
        if (wide[i] != sign) return false;
    }
    uint64_t low_mask = ((uint64_t)1 << rest) - 1;
    if ((wide[whole] | low_mask) != (sign | low_mask)) return false;
    if (!sign) return true;
    uint64_t low = wide[whole] & low_mask;
    for (int i = 0; i < whole; i++) low |= wide[i];
    return low != 0;
}
