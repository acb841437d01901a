/* SPDX-License-Identifier: MIT
 *
 * The arithmetic that takes the time, for several instruction sets from one body
 * (pch_kernels_body.h), and the choice between them.
 *
 * Widening multiplication is the one thing that has no vector notation in C: pmuludq.
 */
#include "pch_basis.h"
#include "pch_mod.h"

#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__) && defined(__GNUC__)
#define X86 1
#include <immintrin.h>
#else
#define X86 0
#endif

#if defined(__clang__)
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

#define PCH_TWO_52_BITS ((uint64_t)0x433 << 52)
#define PCH_MAGIC_BITS (PCH_TWO_52_BITS | (uint64_t)1 << 51)

#define KERNEL(name) portable_##name
#define TARGET
#define VECTOR_BYTES 16
#define COLUMNS 1
#if X86
#define MULTIPLY_LOW(a, b) ((U64)_mm_mul_epu32((__m128i)(a), (__m128i)(b)))
#define BROADCAST_LOW(x) ((U64)_mm_set1_epi32((int)(x)))
#else
#define MULTIPLY_LOW(a, b) (((a) & 0xffffffffu) * ((b) & 0xffffffffu))
#define BROADCAST_LOW(x) ((U64){(x), (x)})
#endif
#include "pch_kernels_body.h"

#if X86

#define KERNEL(name) avx2_##name
#define TARGET __attribute__((target("avx2,fma")))
#define VECTOR_BYTES 32
#define COLUMNS 3
#define MULTIPLY_LOW(a, b) ((U64)_mm256_mul_epu32((__m256i)(a), (__m256i)(b)))
#define BROADCAST_LOW(x) ((U64)_mm256_set1_epi32((int)(x)))
#include "pch_kernels_body.h"

#define KERNEL(name) avx512_##name
#define TARGET __attribute__((target("avx512f,avx512dq,avx512vl,avx512bw")))
#define VECTOR_BYTES 64
#define COLUMNS 8
#define MULTIPLY_LOW(a, b) ((U64)_mm512_mul_epu32((__m512i)(a), (__m512i)(b)))
#define BROADCAST_LOW(x) ((U64)_mm512_set1_epi32((int)(x)))
#include "pch_kernels_body.h"

#endif

#define ENTRY(isa) {#isa, isa##_dot, isa##_accumulate, isa##_join, isa##_restore, isa##_columns}

static const pch_kernel kernels[] = {
    ENTRY(portable),
#if X86
    ENTRY(avx2),
    ENTRY(avx512),
#endif
};

enum { N_KERNELS = sizeof kernels / sizeof *kernels };

static bool runs_here(const char *name)
{
#if X86
    __builtin_cpu_init();
    if (!strcmp(name, "avx2")) return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    if (!strcmp(name, "avx512")) {
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
               __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw");
    }
#endif
    return !strcmp(name, "portable");
}

const pch_kernel *pch_kernel_by_number(int number)
{
    for (int i = 0; i < N_KERNELS; i++) {
        if (runs_here(kernels[i].name) && number-- == 0) return &kernels[i];
    }
    return NULL;
}

static const pch_kernel *fastest(void)
{
    const pch_kernel *best = kernels, *next;
    for (int i = 1; (next = pch_kernel_by_number(i)); i++) best = next;
    return best;
}

pchan_status pch_kernel_choose(const pch_kernel **kernel, pchan_error *err)
{
    const char *wanted = getenv("PCHAN_KERNEL");
    *kernel = fastest();
    if (!wanted || !*wanted) return PCHAN_OK;
    for (int i = 0; (*kernel = pch_kernel_by_number(i)); i++) {
        if (!strcmp((*kernel)->name, wanted)) return PCHAN_OK;
    }
    return pch_fail(err, PCHAN_ERR_ARG,
                    "basis: PCHAN_KERNEL=%.32s is no kernel of this machine; \"%s\" is the fastest", wanted,
                    fastest()->name);
}

const char *pchan_kernel_name(void)
{
    const pch_kernel *kernel;
    return pch_kernel_choose(&kernel, NULL) == PCHAN_OK ? kernel->name : fastest()->name;
}
