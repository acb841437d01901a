/* SPDX-License-Identifier: MIT */
#ifndef PCH_MOD_H
#define PCH_MOD_H

/* Adding and subtracting 1.5 * 2^52 rounds to the nearest integer and, unlike rint, needs no
 * instruction of its own. */
#define PCH_MAGIC 6755399441055744.0

/* x mod p for an integer |x| <= 2^53 - p, symmetric: |result| <= p / 2 (+1). */
static inline double pch_reduce(double x, double p, double inverse)
{
    double quotient = (x * inverse + PCH_MAGIC) - PCH_MAGIC;
    return x - p * quotient;
}

#endif
