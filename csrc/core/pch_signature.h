/* SPDX-License-Identifier: MIT */
#ifndef PCH_SIGNATURE_H
#define PCH_SIGNATURE_H

#include "pch_mpi.h"

typedef struct pch_signature {
    uint64_t hash;      /* equal for types that may meet */
    char name[24];      /* "float64", or "a struct" */
    int64_t leaf_bytes; /* size of the element type; 0: a mixture */
    bool dense;         /* contiguous memory in the order of travel */
} pch_signature;

/* Of one repetition of a datatype. Local. NOMEM, MPI. */
pchan_status pch_signature_of(MPI_Datatype type, pch_signature *signature, pchan_error *err);

uint64_t pch_hash_text(const char *text);

#endif
