/* SPDX-License-Identifier: MIT
 *
 * What a datatype consists of: one element type repeated, or a mixture. Two types have equal
 * signatures when MPI would let them meet; a derived type meets a contiguous one of the same elements.
 * Types of equal bytes and kind under different names (MPI_LONG, MPI_INT64_T) are equal here.
 */
#include "pch_signature.h"

#include <stdio.h>
#include <string.h>

uint64_t pch_hash_text(const char *text)
{
    uint64_t hash = 14695981039346656037u; /* FNV-1a */
    for (; *text; text++) hash = (hash ^ (unsigned char)*text) * 1099511628211u;
    return hash;
}

static uint64_t mix(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * 0x9e3779b97f4a7c15u;
    return hash ^ hash >> 29;
}

typedef struct known_type {
    MPI_Datatype type;
    const char *kind;
} known_type;

static const char *kind_of(MPI_Datatype type)
{
    const known_type known[] = {
        {MPI_BYTE, "uint"},         {MPI_CHAR, "uint"},
        {MPI_SIGNED_CHAR, "int"},   {MPI_UNSIGNED_CHAR, "uint"},
        {MPI_SHORT, "int"},         {MPI_UNSIGNED_SHORT, "uint"},
        {MPI_INT, "int"},           {MPI_UNSIGNED, "uint"},
        {MPI_LONG, "int"},          {MPI_UNSIGNED_LONG, "uint"},
        {MPI_LONG_LONG, "int"},     {MPI_UNSIGNED_LONG_LONG, "uint"},
        {MPI_INT8_T, "int"},        {MPI_UINT8_T, "uint"},
        {MPI_INT16_T, "int"},       {MPI_UINT16_T, "uint"},
        {MPI_INT32_T, "int"},       {MPI_UINT32_T, "uint"},
        {MPI_INT64_T, "int"},       {MPI_UINT64_T, "uint"},
        {MPI_AINT, "int"},          {MPI_COUNT, "int"},
        {MPI_FLOAT, "float"},       {MPI_DOUBLE, "float"},
        {MPI_LONG_DOUBLE, "float"}, {MPI_C_FLOAT_COMPLEX, "complex"},
        {MPI_C_BOOL, "bool"},       {MPI_C_DOUBLE_COMPLEX, "complex"},
        {MPI_WCHAR, "wchar"},       {MPI_C_LONG_DOUBLE_COMPLEX, "complex"},
    };
    for (size_t k = 0; k < sizeof known / sizeof *known; k++) {
        if (known[k].type == type) return known[k].kind;
    }
    return NULL;
}

static pchan_status named_signature(MPI_Datatype type, pch_signature *out, pchan_error *err)
{
    MPI_Count size = 0, lower = 0, extent = 0;
    pchan_status status;
    PCH_TRY(PCH_MPI(MPI_Type_size_x(type, &size), "MPI_Type_size_x", err));
    PCH_TRY(PCH_MPI(MPI_Type_get_extent_x(type, &lower, &extent), "MPI_Type_get_extent_x", err));
    const char *kind = kind_of(type);
    if (kind) {
        snprintf(out->name, sizeof out->name, "%s%d", kind, (int)(size * 8));
    } else {
        char name[MPI_MAX_OBJECT_NAME] = "";
        int length;
        PCH_TRY(PCH_MPI(MPI_Type_get_name(type, name, &length), "MPI_Type_get_name", err));
        snprintf(out->name, sizeof out->name, "%.23s", name);
    }
    out->hash = pch_hash_text(out->name);
    out->leaf_bytes = (int64_t)size;
    out->dense = lower == 0 && extent == size;
done:
    return status;
}

typedef struct contents { /* as MPI_Type_get_contents gives them; integers and counts in one array */
    int combiner;
    int64_t n_numbers, n_types;
    int64_t *numbers;
    MPI_Datatype *types;
} contents;

static int get_combiner(MPI_Datatype type, int *combiner)
{
#if MPI_VERSION >= 4
    MPI_Count a, b, c, d;
    return MPI_Type_get_envelope_c(type, &a, &b, &c, &d, combiner);
#else
    int a, b, c;
    return MPI_Type_get_envelope(type, &a, &b, &c, combiner);
#endif
}

static void free_contents(contents *c)
{
    for (int64_t k = 0; k < c->n_types && c->types; k++) {
        int combiner = MPI_COMBINER_NAMED;
        if (get_combiner(c->types[k], &combiner)) get_combiner(c->types[k], &combiner); /* it would be lost */
        if (combiner != MPI_COMBINER_NAMED) MPI_Type_free(&c->types[k]);
    }
    pch_free(c->numbers);
    pch_free(c->types);
}

static pchan_status get_contents(MPI_Datatype type, contents *c, pchan_error *err)
{
    int *ints = NULL;
    MPI_Aint *addresses = NULL;
    pchan_status status;
    *c = (contents){0};
#if MPI_VERSION >= 4
    MPI_Count n_ints, n_addresses, n_counts, n_types, *counts = NULL;
    PCH_TRY(PCH_MPI(MPI_Type_get_envelope_c(type, &n_ints, &n_addresses, &n_counts, &n_types, &c->combiner),
                    "MPI_Type_get_envelope_c", err));
#else
    int n_ints, n_addresses, n_types;
    enum { n_counts = 0 };
    PCH_TRY(PCH_MPI(MPI_Type_get_envelope(type, &n_ints, &n_addresses, &n_types, &c->combiner),
                    "MPI_Type_get_envelope", err));
#endif
    if (c->combiner == MPI_COMBINER_NAMED) return PCHAN_OK;
    PCH_TRY(PCH_ALLOC(ints, (size_t)n_ints, err));
    PCH_TRY(PCH_ALLOC(addresses, (size_t)n_addresses, err));
    PCH_TRY(PCH_ALLOC(c->numbers, (size_t)(n_ints + n_counts), err));
    PCH_TRY(PCH_ALLOC(c->types, (size_t)n_types, err));
#if MPI_VERSION >= 4
    PCH_TRY(PCH_ALLOC(counts, (size_t)n_counts, err));
    PCH_TRY(PCH_MPI(
        MPI_Type_get_contents_c(type, n_ints, n_addresses, n_counts, n_types, ints, addresses, counts, c->types),
        "MPI_Type_get_contents_c", err));
    for (MPI_Count k = 0; k < n_counts; k++) c->numbers[n_ints + k] = (int64_t)counts[k];
#else
    PCH_TRY(PCH_MPI(MPI_Type_get_contents(type, n_ints, n_addresses, n_types, ints, addresses, c->types),
                    "MPI_Type_get_contents", err));
#endif
    for (int64_t k = 0; k < (int64_t)n_ints; k++) c->numbers[k] = ints[k];
    c->n_numbers = (int64_t)(n_ints + n_counts);
    c->n_types = (int64_t)n_types;
done:
#if MPI_VERSION >= 4
    pch_free(counts);
#endif
    pch_free(ints);
    pch_free(addresses);
    return status;
}

/* Several types one after the other, as runs of equal elements. */
typedef struct sequence {
    uint64_t hash, run; /* of the finished runs; of the elements of the last one */
    int64_t n_runs, run_length;
} sequence;

static void append(sequence *q, uint64_t element, int64_t n)
{
    if (q->n_runs > 0 && q->run == element) {
        q->run_length += n;
        return;
    }
    if (q->n_runs > 0) q->hash = mix(mix(q->hash, q->run), (uint64_t)q->run_length);
    q->n_runs++;
    q->run = element;
    q->run_length = n;
}

static pchan_status append_part(sequence *q, MPI_Datatype type, int64_t times, pch_signature *last,
                                pchan_error *err)
{
    MPI_Count size = 0;
    pch_signature part;
    pchan_status status = pch_signature_of(type, &part, err);
    if (status == PCHAN_OK) status = PCH_MPI(MPI_Type_size_x(type, &size), "MPI_Type_size_x", err);
    if (status != PCHAN_OK || times == 0 || size == 0) return status;
    append(q, part.hash, part.leaf_bytes ? times * (int64_t)size / part.leaf_bytes : times);
    *last = part;
    return PCHAN_OK;
}

pchan_status pch_signature_of(MPI_Datatype type, pch_signature *out, pchan_error *err)
{
    contents c;
    *out = (pch_signature){0};
    pchan_status status = get_contents(type, &c, err);
    if (status != PCHAN_OK) goto done;
    if (c.combiner == MPI_COMBINER_NAMED) {
        status = named_signature(type, out, err);
        goto done;
    }
    bool keeps_order = c.combiner == MPI_COMBINER_DUP || c.combiner == MPI_COMBINER_CONTIGUOUS;
    bool is_struct = c.combiner == MPI_COMBINER_STRUCT;
    sequence q = {0};
    for (int64_t k = 0; k < c.n_types; k++) {
        int64_t times = is_struct && k + 1 < c.n_numbers ? c.numbers[k + 1] : 1;
        PCH_TRY(append_part(&q, c.types[k], times, out, err));
    }
    out->dense = keeps_order && out->dense;
    if (q.n_runs > 1) {
        append(&q, 0, 0); /* counts the last run in */
        out->hash = q.hash;
        out->leaf_bytes = 0;
        snprintf(out->name, sizeof out->name, "a struct");
    } else if (q.n_runs == 0) {
        snprintf(out->name, sizeof out->name, "nothing");
    }
done:
    free_contents(&c);
    return status;
}
