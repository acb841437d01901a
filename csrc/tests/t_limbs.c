/* SPDX-License-Identifier: MIT
 * The range test, |x| < 2^bits, on numbers of more limbs than that: every bit above, both signs, and the ends. */
#include "testing_basis.h"

enum { N_WIDE = 5 };

static void check(int bits)
{
    uint64_t x[N_WIDE], seed = (uint64_t)bits;
    for (int k = 0; k < 200; k++) {
        random_integer(x, N_WIDE, bits, &seed);
        CHECK(pch_limbs_in_range(x, N_WIDE, bits), "%d bits: number %d is refused", bits, k);
        for (int b = bits; b < 64 * N_WIDE; b++) {
            x[b / 64] ^= (uint64_t)1 << (b % 64);
            /* changing the sign bit alone is also far outside, unless bits reach it */
            CHECK(!pch_limbs_in_range(x, N_WIDE, bits) || bits == 64 * N_WIDE - 1, "%d bits: bit %d is not seen",
                  bits, b);
            x[b / 64] ^= (uint64_t)1 << (b % 64);
        }
    }
    memset(x, 0, sizeof x);
    x[bits / 64] = (uint64_t)1 << (bits % 64);
    negate(x, N_WIDE);
    CHECK(!pch_limbs_in_range(x, N_WIDE, bits), "-2^%d is accepted", bits);
    x[0]++;
    CHECK(pch_limbs_in_range(x, N_WIDE, bits), "-2^%d + 1 is refused", bits);
}

int main(void)
{
    const int bits[] = {1, 2, 63, 64, 65, 100, 127, 128, 129, 192, 255, 256, 300, 318};
    for (size_t i = 0; i < sizeof bits / sizeof *bits; i++) check(bits[i]);
    return 0;
}
