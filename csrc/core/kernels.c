/* SPDX-License-Identifier: MIT
 *
 * The small dense product behind residues and restore, compiled for several instruction sets from
 * one body; the fastest that the machine can run is chosen at the first call.
 */
#include "pch_basis.h"

#include <string.h>

#if defined(__x86_64__) && defined(__GNUC__)
#define X86 1
#define FOR(isa) __attribute__((target(isa)))
#else
#define X86 0
#endif

/* A macro, because GCC splits vectors into what the function's own target offers before it inlines:
 * a common inline body would be compiled for the oldest target. PER_PANEL vectors make a panel. */
#define DEFINE_DOT(name, target_attribute, PER_PANEL)                                                    \
    typedef double name##_vector __attribute__((vector_size(PCH_PANEL / (PER_PANEL) * sizeof(double)))); \
    target_attribute static void name(const double *a, const double *b, size_t n, double *out)           \
    {                                                                                                    \
        name##_vector sums[PCH_LANES][PER_PANEL] = {{{0}}}, row;                                         \
        for (size_t k = 0; k < n; k++, a += PCH_LANES, b += PCH_PANEL) {                                 \
            for (int v = 0; v < (PER_PANEL); v++) {                                                      \
                memcpy(&row, b + v * (PCH_PANEL / (PER_PANEL)), sizeof row);                             \
                for (int e = 0; e < PCH_LANES; e++) sums[e][v] += a[e] * row;                            \
            }                                                                                            \
        }                                                                                                \
        memcpy(out, sums, sizeof sums);                                                                  \
    }

DEFINE_DOT(dot_portable, , 4)
#if X86
DEFINE_DOT(dot_avx2, FOR("avx2,fma"), 2)
DEFINE_DOT(dot_avx512, FOR("avx512f"), 1)
#endif

typedef struct kernel {
    const char *name;
    pch_dot_kernel *dot;
} kernel;

static const kernel kernels[] = {
    {"portable", dot_portable},
#if X86
    {"avx2", dot_avx2},
    {"avx512", dot_avx512},
#endif
};

static bool runs_here(const char *name)
{
#if X86
    __builtin_cpu_init();
    if (!strcmp(name, "avx2")) return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    if (!strcmp(name, "avx512")) return __builtin_cpu_supports("avx512f");
#endif
    return !strcmp(name, "portable");
}

static const kernel *best(void)
{
    const kernel *fastest = kernels;
    for (size_t i = 1; i < sizeof kernels / sizeof *kernels; i++) {
        if (runs_here(kernels[i].name)) fastest = &kernels[i];
    }
    return fastest;
}

pch_dot_kernel *pch_dot_best(void)
{
    return best()->dot;
}

pch_dot_kernel *pch_dot_by_number(int number, const char **name)
{
    if (number < 0 || (size_t)number >= sizeof kernels / sizeof *kernels) return NULL;
    *name = kernels[number].name;
    return runs_here(kernels[number].name) ? kernels[number].dot : dot_portable;
}

const char *pchan_kernel_name(void)
{
    return best()->name;
}
