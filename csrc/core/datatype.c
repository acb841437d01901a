/* SPDX-License-Identifier: MIT
 *
 * Datatypes: long messages and strided arrays as one committed type each, and duplicates of the
 * caller's derived types, because freeing a type after MPI_Send_init breaks the second start in
 * several MPIs (MPICH #3383, Open MPI #9138).
 */
#include "pch_mpi.h"

int pch_longest_count = 1 << 30;

static void free_type(MPI_Datatype *type, bool owned)
{
    if (owned && *type != MPI_DATATYPE_NULL) MPI_Type_free(type);
    *type = MPI_DATATYPE_NULL;
}

/* The old type is freed when it was ours. */
static void replace(MPI_Datatype *type, bool *owned, MPI_Datatype made)
{
    free_type(type, *owned);
    *type = made;
    *owned = true;
}

/* Replaces *type by n of it. */
static pchan_status wrap(int64_t n, int64_t stride_bytes, MPI_Datatype *type, bool *owned, pchan_error *err)
{
    const int longest = pch_longest_count;
    MPI_Datatype outer = MPI_DATATYPE_NULL;
    pchan_status status;
    if (n <= longest) {
        status = PCH_MPI(MPI_Type_create_hvector((int)n, 1, (MPI_Aint)stride_bytes, *type, &outer),
                         "MPI_Type_create_hvector", err);
    } else {
        /* n = whole * longest + rest, as a struct of two pieces */
        int64_t whole = n / longest, rest = n % longest;
        MPI_Datatype pieces[2] = {MPI_DATATYPE_NULL, MPI_DATATYPE_NULL}, chunk = MPI_DATATYPE_NULL;
        int lengths[2] = {1, 1};
        MPI_Aint places[2] = {0, (MPI_Aint)(whole * longest * stride_bytes)};
        int code = MPI_Type_create_hvector(longest, 1, (MPI_Aint)stride_bytes, *type, &chunk);
        if (!code)
            code = MPI_Type_create_hvector((int)whole, 1, (MPI_Aint)(longest * stride_bytes), chunk, &pieces[0]);
        if (!code) code = MPI_Type_create_hvector((int)rest, 1, (MPI_Aint)stride_bytes, *type, &pieces[1]);
        if (!code) code = MPI_Type_create_struct(2, lengths, places, pieces, &outer);
        status = PCH_MPI(code, "a datatype of a long message", err);
        free_type(&chunk, true);
        free_type(&pieces[0], true);
        free_type(&pieces[1], true);
    }
    if (status == PCHAN_OK) replace(type, owned, outer);
    return status;
}

static pchan_status commit(MPI_Datatype *type, bool owned, pchan_status status, pchan_error *err)
{
    if (status == PCHAN_OK) status = PCH_MPI(MPI_Type_commit(type), "MPI_Type_commit", err);
    if (status != PCHAN_OK) free_type(type, owned);
    return status;
}

pchan_status pch_type_large(int64_t n, MPI_Datatype element, MPI_Datatype *type, pchan_error *err)
{
    MPI_Aint lower, extent;
    bool owned = false;
    *type = element;
    pchan_status status = PCH_MPI(MPI_Type_get_extent(element, &lower, &extent), "MPI_Type_get_extent", err);
    if (status == PCHAN_OK) status = wrap(n, extent, type, &owned, err);
    return commit(type, owned, status, err);
}

/* MPICH 5.0 sends 8 KiB in 64 blocks of 128 bytes six times as fast when its type has been resized, to whatever
 * extent; the extent of a message's single element does not matter. */
static pchan_status resize(MPI_Datatype *type, bool *owned, pchan_error *err)
{
    MPI_Datatype resized = MPI_DATATYPE_NULL;
    pchan_status status =
        PCH_MPI(MPI_Type_create_resized(*type, 0, sizeof(double), &resized), "MPI_Type_create_resized", err);
    if (status == PCHAN_OK) replace(type, owned, resized);
    return status;
}

pchan_status pch_type_strided(const pchan_strided *array, MPI_Datatype *type, pchan_error *err)
{
    bool owned = false;
    pchan_status status = PCHAN_OK;
    *type = array->element;
    /* innermost first; a 0-dimensional array is one element */
    for (int d = array->n_dims - 1; d >= 0 && status == PCHAN_OK; d--) {
        status = wrap(array->shape[d], array->strides[d], type, &owned, err);
    }
    if (status == PCHAN_OK) status = resize(type, &owned, err);
    return commit(type, owned, status, err);
}

pchan_status pch_type_keep(MPI_Datatype type, MPI_Datatype *kept, bool *owned, pchan_error *err)
{
    int combiner;
    *kept = type;
    *owned = false;
#if MPI_VERSION >= 4 /* the first function refuses types that were made by calls with large counts */
    MPI_Count n_ints, n_addresses, n_counts, n_types;
    int code = MPI_Type_get_envelope_c(type, &n_ints, &n_addresses, &n_counts, &n_types, &combiner);
#else
    int n_ints, n_addresses, n_types;
    int code = MPI_Type_get_envelope(type, &n_ints, &n_addresses, &n_types, &combiner);
#endif
    pchan_status status = PCH_MPI(code, "MPI_Type_get_envelope", err);
    if (status != PCHAN_OK || combiner == MPI_COMBINER_NAMED) return status;
    status = PCH_MPI(MPI_Type_dup(type, kept), "MPI_Type_dup", err);
    *owned = status == PCHAN_OK;
    return status;
}
