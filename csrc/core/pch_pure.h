/* SPDX-License-Identifier: MIT
 *
 * What every core file may use, and what the pure stages offer one another. This
 * header never includes mpi.h: a file that includes it alone cannot call MPI
 * (tests/test_layering.py looks).
 */
#ifndef PCH_PURE_H
#define PCH_PURE_H

#ifndef PCHAN_H
#define PCHAN_NO_MPI
#endif
#include "../pchan.h"

#include <assert.h>
#include <stdbool.h>

#define PCH_ASSERT(condition) assert(condition)

/* Jumps to the function's one cleanup label when a call fails. */
#define PCH_TRY(call)                      \
    do {                                   \
        status = (call);                   \
        if (status != PCHAN_OK) goto done; \
    } while (0)

/* status.c: all fill *err when it is not NULL; the last two return the status. */
#if defined(__GNUC__)
__attribute__((format(printf, 3, 4)))
#endif
void pch_tell(pchan_error *err, pchan_status status, const char *format, ...);
/* A macro, so that a static analyzer sees what it returns. */
#define pch_fail(err, status, ...) (pch_tell((err), (status), __VA_ARGS__), (pchan_status)(status))
/* Inline, so that a static analyzer sees what it returns. */
static inline pchan_status pch_fail_nomem(pchan_error *err, const char *what, size_t bytes)
{
    pch_tell(err, PCHAN_ERR_NOMEM, "no memory for %s (%zu bytes)", what, bytes);
    return PCHAN_ERR_NOMEM;
}

/* alloc.c: the allocation door. Arrays are zeroed; the product is checked for overflow;
 * zero elements give a unique pointer. */
void *pch_alloc(size_t n, size_t bytes_each);
void *pch_realloc(void *block, size_t n, size_t bytes_each);
void pch_free(void *block);

/* *pointer = zeroed array of n elements, or NULL and PCHAN_ERR_NOMEM. */
#define PCH_ALLOC(pointer, n, err)                   \
    (((pointer) = pch_alloc((n), sizeof *(pointer))) \
         ? PCHAN_OK                                  \
         : pch_fail_nomem((err), #pointer, (size_t)(n) * sizeof *(pointer)))

/* limbs.c: of x >= 0, n limbs; 0 for 0. */
int64_t pch_bit_length(const uint64_t *x, int n);

#endif
