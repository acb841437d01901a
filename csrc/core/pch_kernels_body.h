/* SPDX-License-Identifier: MIT
 *
 * The bodies of the kernels, included by kernels.c once for each instruction set, because GCC splits
 * vectors into what a function's own target offers before it inlines: a common inline function
 * would be compiled for the oldest target. No include guard: it is included several times, with
 *
 *   KERNEL(name)        the name for this instruction set
 *   TARGET              the function attribute that selects it
 *   VECTOR_BYTES        size of its vectors
 *   COLUMNS             table columns that restore takes at once, and in the order of which they lie
 *   MULTIPLY_LOW(a, b)  products of the low 32 bits of each uint64
 *   BROADCAST_LOW(x)    a vector with the uint32 x in the low 32 bits of each uint64
 */
#define INLINE TARGET static inline __attribute__((always_inline))
#define F64 KERNEL(f64)
#define U64 KERNEL(u64)
#define I64 KERNEL(i64)

typedef double F64 __attribute__((vector_size(VECTOR_BYTES)));
typedef uint64_t U64 __attribute__((vector_size(VECTOR_BYTES)));
typedef int64_t I64 __attribute__((vector_size(VECTOR_BYTES)));

enum {
    KERNEL(columns) = COLUMNS,
    KERNEL(width) = VECTOR_BYTES / 8,
    KERNEL(per_batch) = PCH_BATCH * 8 / VECTOR_BYTES,
    KERNEL(per_panel) = PCH_PANEL * 8 / VECTOR_BYTES
};

/* One vector from, or to, any address. An array at a time would be copied in the oldest target's steps. */
INLINE U64 KERNEL(get)(const void *place)
{
    U64 x;
    memcpy(&x, place, sizeof x);
    return x;
}

INLINE void KERNEL(put)(void *place, U64 x)
{
    memcpy(place, &x, sizeof x);
}

/* ---- the small dense product of residues ---- */

TARGET static void KERNEL(dot)(const double *a, const double *b, size_t n, double *out)
{
    F64 sums[PCH_LANES][KERNEL(per_panel)] = {{{0}}};
    for (size_t k = 0; k < n; k++, a += PCH_LANES, b += PCH_PANEL) {
        UNROLL for (int v = 0; v < KERNEL(per_panel); v++)
        {
            F64 row = (F64)KERNEL(get)(b + v * KERNEL(width));
            UNROLL for (int e = 0; e < PCH_LANES; e++) sums[e][v] += a[e] * row;
        }
    }
    UNROLL for (int e = 0; e < PCH_LANES; e++)
    {
        UNROLL for (int v = 0; v < KERNEL(per_panel); v++)
        {
            KERNEL(put)(out + e * PCH_PANEL + v * KERNEL(width), (U64)sums[e][v]);
        }
    }
}

/* ---- accumulate ---- */

/* The sum of canonical words is canonical; anything else becomes all ones and stays so. For a
 * canonical w, w has its top bit clear and w - m has it set, and then neither sum overflows. */
TARGET static void KERNEL(accumulate)(const uint64_t *moduli, uint64_t *sum, const uint64_t *words, size_t n)
{
    size_t i = 0;
    for (; i + KERNEL(width) <= n; i += KERNEL(width)) {
        U64 a = KERNEL(get)(sum + i), b = KERNEL(get)(words + i), m = KERNEL(get)(moduli + i);
        U64 excess = a + b - m, canonical = (a - m) & (b - m) & ~(a | b);
        a = excess + (m & (U64)((I64)excess >> 63));
        a |= ~(U64)((I64)canonical >> 63);
        KERNEL(put)(sum + i, a);
    }
    for (; i < n; i++) {
        uint64_t m = moduli[i], s = sum[i] + words[i];
        bool canonical = sum[i] < m && words[i] < m;
        sum[i] = !canonical ? UINT64_MAX : s >= m ? s - m : s;
    }
}

/* ---- pack ---- */

INLINE F64 KERNEL(reduce)(F64 x, double p, double inverse)
{
    F64 quotient = (x * inverse + PCH_MAGIC) - PCH_MAGIC;
    return x - p * quotient;
}

/* Integers below 2^32 as float64: the mantissa of 2^52. */
INLINE F64 KERNEL(from_32_bits)(U64 x)
{
    const double two_52 = 4503599627370496.0;
    return (F64)(x | PCH_TWO_52_BITS) - two_52;
}

/* One vector of representatives, below 2^51 in size and congruent to the input; any other float64
 * leaves a bit set in *odd or among the top 12 of *large. */
INLINE F64 KERNEL(load)(const char *place, pchan_dtype dtype, double two_32, U64 *odd, U64 *large)
{
    if (dtype == PCHAN_FLOAT64) {
        F64 x = (F64)KERNEL(get)(place);
        F64 shifted = x + PCH_MAGIC; /* has the exponent of 2^52, and x in its mantissa */
        *large |= (U64)shifted ^ PCH_MAGIC_BITS;
        *odd |= (U64)((shifted - PCH_MAGIC) - x);
        return x;
    }
    U64 x;
    if (dtype == PCHAN_INT64) {
        const double two_31 = 2147483648.0;
        x = KERNEL(get)(place);
        F64 high = KERNEL(from_32_bits)((x >> 32) ^ 0x80000000u) - two_31;
        return high * two_32 + KERNEL(from_32_bits)(x & 0xffffffffu);
    }
    uint32_t narrow[KERNEL(width)];
    memcpy(narrow, place, sizeof narrow);
    UNROLL for (int v = 0; v < KERNEL(width); v++) x[v] = narrow[v];
    return KERNEL(from_32_bits)(x);
}

INLINE bool KERNEL(join_any)(const pch_word *word, const void *const r[3], pchan_dtype dtype, size_t n,
                             uint64_t *out)
{
    const size_t bytes = dtype == PCHAN_UINT32 ? 4 : 8;
    const uint64_t offset = (PCH_MAGIC_BITS << PCH_SPLIT_BITS) + PCH_MAGIC_BITS;
    const char *place[3] = {r[0], r[1], r[2]};
    U64 odd = {0}, large = {0};
    for (size_t i = 0; i < n; i += KERNEL(width)) {
        F64 d[3];
        UNROLL for (int k = 0; k < 3; k++)
        {
            F64 x = KERNEL(load)(place[k] + i * bytes, dtype, word->two_32[k], &odd, &large);
            d[k] = KERNEL(reduce)(x, word->p[k], word->inverse[k]);
        }
        F64 v1 = KERNEL(reduce)((d[1] - d[0]) * word->inv_01, word->p[1], word->inverse[1]);
        F64 x2 = (d[2] - d[0]) * word->inv_012 + v1 * word->v1_weight;
        F64 v2 = KERNEL(reduce)(x2, word->p[2], word->inverse[2]);
        F64 low = d[0] + word->p[0] * v1 + v2 * word->p01_low, high = v2 * word->p01_high;
        U64 w = ((U64)(high + PCH_MAGIC) << PCH_SPLIT_BITS) + (U64)(low + PCH_MAGIC) - offset;
        w += word->modulus & (U64)((I64)w >> 63);
        KERNEL(put)(out + i, w);
    }
    large = large >> 52 | odd;
    uint64_t any = 0;
    for (int v = 0; v < KERNEL(width); v++) any |= large[v];
    return !any;
}

TARGET static bool KERNEL(join)(const pch_word *word, const void *const r[3], pchan_dtype dtype, size_t n,
                                uint64_t *out)
{
    switch (dtype) {
        case PCHAN_FLOAT64: return KERNEL(join_any)(word, r, PCHAN_FLOAT64, n, out);
        case PCHAN_INT64: return KERNEL(join_any)(word, r, PCHAN_INT64, n, out);
        case PCHAN_UINT32: return KERNEL(join_any)(word, r, PCHAN_UINT32, n, out);
    }
    return false;
}

/* ---- restore ---- */

/* sums[j] = sum over the slots s of c[s] * table[s][j] */
INLINE void KERNEL(product)(const uint32_t *table, const uint64_t *c, size_t n_slots,
                            U64 sums[COLUMNS][KERNEL(per_batch)])
{
    U64 acc[COLUMNS][KERNEL(per_batch)] = {{{0}}}, lanes[KERNEL(per_batch)];
    for (size_t s = 0; s < n_slots; s++, c += PCH_BATCH, table += COLUMNS) {
        UNROLL for (int v = 0; v < KERNEL(per_batch); v++) lanes[v] = KERNEL(get)(c + v * KERNEL(width));
        UNROLL for (int j = 0; j < COLUMNS; j++)
        {
            const U64 digit = BROADCAST_LOW(table[j]);
            UNROLL for (int v = 0; v < KERNEL(per_batch); v++) acc[j][v] += MULTIPLY_LOW(lanes[v], digit);
        }
    }
    UNROLL for (int j = 0; j < COLUMNS; j++)
    {
        UNROLL for (int v = 0; v < KERNEL(per_batch); v++) sums[j][v] = acc[j][v];
    }
}

/* Adds sums, the next digits of `bits`, with their carries to the limbs under way; returns where the
 * next full limb goes. */
INLINE uint64_t *KERNEL(carry)(U64 sums[COLUMNS][KERNEL(per_batch)], int bits, U64 rest[KERNEL(per_batch)],
                               U64 limb[KERNEL(per_batch)], int *filled, uint64_t *wide)
{
    const uint64_t mask = ((uint64_t)1 << bits) - 1;
    for (int j = 0; j < COLUMNS; j++) {
        UNROLL for (int v = 0; v < KERNEL(per_batch); v++)
        {
            rest[v] += sums[j][v];
            sums[j][v] = rest[v] & mask;
            rest[v] >>= bits;
            limb[v] |= sums[j][v] << *filled;
        }
        *filled += bits;
        if (*filled < 64) continue;
        *filled -= 64;
        UNROLL for (int v = 0; v < KERNEL(per_batch); v++)
        {
            KERNEL(put)(wide + v * KERNEL(width), limb[v]);
            limb[v] = sums[j][v] >> (bits - *filled);
        }
        wide += PCH_BATCH;
    }
    return wide;
}

TARGET static void KERNEL(restore)(const pchan_basis *basis, const uint64_t *c, uint64_t *wide)
{
    const int bits = basis->digit_bits;
    const size_t n_slots = (size_t)basis->n_slots;
    U64 sums[COLUMNS][KERNEL(per_batch)], rest[KERNEL(per_batch)] = {{0}}, limb[KERNEL(per_batch)] = {{0}};
    const uint32_t *table = basis->cofactors, *table_end = table + (size_t)basis->n_digits * n_slots;
    int filled = 0;
    do {
        KERNEL(product)(table, c, n_slots, sums);
        wide = KERNEL(carry)(sums, bits, rest, limb, &filled, wide);
        table += n_slots * COLUMNS;
    } while (table < table_end);
    if (!filled) return;
    UNROLL for (int v = 0; v < KERNEL(per_batch); v++) /* the last digit's top bit is the sign */
    {
        U64 sign = (U64){0} - (sums[COLUMNS - 1][v] >> (bits - 1));
        KERNEL(put)(wide + v * KERNEL(width), limb[v] | sign << filled);
    }
}

#undef INLINE
#undef F64
#undef U64
#undef I64
#undef KERNEL
#undef TARGET
#undef VECTOR_BYTES
#undef COLUMNS
#undef MULTIPLY_LOW
#undef BROADCAST_LOW
