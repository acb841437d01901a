/* SPDX-License-Identifier: MIT */
#ifndef PCH_MOD_H
#define PCH_MOD_H

/* x mod p for an integer |x| <= 2^53 - p, symmetric: |result| <= p / 2 (+1). Adding and subtracting
 * 1.5 * 2^52 rounds to the nearest integer and, unlike rint, needs no instruction of its own. */
static inline double pch_reduce(double x, double p, double inverse)
{
    const double magic = 6755399441055744.0;
    double quotient = (x * inverse + magic) - magic;
    return x - p * quotient;
}

/* From (-p, p) to [0, p). */
static inline double pch_canonical(double r, double p)
{
    return r < 0 ? r + p : r;
}

#endif
