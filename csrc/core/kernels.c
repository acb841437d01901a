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

/* A panel as one vector; the compiler splits it where registers are narrower. */
typedef double panel __attribute__((vector_size(PCH_PANEL * sizeof(double)), aligned(8)));

static inline __attribute__((always_inline)) void dot_body(const double *a, const double *b, size_t n, double *out)
{
    panel s0 = {0}, s1 = {0}, s2 = {0}, s3 = {0};
    for (size_t k = 0; k < n; k++) {
        panel row;
        memcpy(&row, b + k * PCH_PANEL, sizeof row);
        s0 += a[k * PCH_LANES] * row;
        s1 += a[k * PCH_LANES + 1] * row;
        s2 += a[k * PCH_LANES + 2] * row;
        s3 += a[k * PCH_LANES + 3] * row;
    }
    memcpy(out, &s0, sizeof s0);
    memcpy(out + PCH_PANEL, &s1, sizeof s1);
    memcpy(out + 2 * PCH_PANEL, &s2, sizeof s2);
    memcpy(out + 3 * PCH_PANEL, &s3, sizeof s3);
}

static void dot_portable(const double *a, const double *b, size_t n, double *out)
{
    dot_body(a, b, n, out);
}

#if X86
FOR("avx2,fma") static void dot_avx2(const double *a, const double *b, size_t n, double *out)
{
    dot_body(a, b, n, out);
}

FOR("avx512f") static void dot_avx512(const double *a, const double *b, size_t n, double *out)
{
    dot_body(a, b, n, out);
}
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
