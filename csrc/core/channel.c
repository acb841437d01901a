/* SPDX-License-Identifier: MIT
 *
 * Channel: registration, lifetime, and what can be asked of it. The cycle is in cycle.c.
 */
#include "pch_channel.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

pchan_status pch_channel_enter(pchan_channel *channel, const char *what, pchan_error *err)
{
    if (!channel) return pch_fail(err, PCHAN_ERR_ARG, "%s: the channel is NULL", what);
    pchan_status status = pch_runtime_check(what, err);
    if (status != PCHAN_OK) return status;
    if (!pch_busy_enter(&channel->busy)) {
        return pch_fail(err, PCHAN_ERR_STATE, "%s: another thread is using this channel", what);
    }
    return PCHAN_OK;
}

void pch_channel_leave(pchan_channel *channel)
{
    pch_busy_leave(&channel->busy);
}

static const char *peer_text(int peer, char *text, size_t size)
{
    if (peer == MPI_PROC_NULL) return "PROC_NULL";
    if (peer == MPI_ANY_SOURCE) return "ANY_SOURCE";
    snprintf(text, size, "%d", peer);
    return text;
}

void pch_operation_text(const pchan_channel *channel, int index, char *text, size_t size)
{
    const pch_operation *op = &channel->operations[index];
    char peer[16], tag[16];
    snprintf(tag, sizeof tag, "%d", op->tag);
    snprintf(text, size, "operation %d (%s %s, tag %s, %lld bytes)", index,
             op->kind == PCHAN_SEND ? "send to" : "recv from", peer_text(op->peer, peer, sizeof peer),
             op->tag == MPI_ANY_TAG ? "ANY_TAG" : tag, (long long)op->bytes);
}

void pch_operation_free_request(pchan_channel *channel, int index)
{
    MPI_Request *request = &channel->requests[index];
    if (*request != MPI_REQUEST_NULL) MPI_Request_free(request);
    *request = MPI_REQUEST_NULL;
}

static void free_handles(pchan_channel *channel, int index)
{
    pch_operation_free_request(channel, index);
    MPI_Datatype *type = &channel->operations[index].type_owned;
    if (*type != MPI_DATATYPE_NULL) MPI_Type_free(type);
    *type = MPI_DATATYPE_NULL;
}

static void free_memory(pchan_channel *channel)
{
    for (int i = 0; i < channel->n; i++) pch_free(channel->details[i].dims);
    pch_free(channel->operations);
    pch_free(channel->details);
    pch_free(channel->mismatch);
    pch_free(channel->requests);
    pch_free(channel->statuses);
    pch_free(channel->runs);
    pch_free(channel->ready);
    pch_free(channel);
}

static void finalize_channel(pch_live *live)
{
    pchan_channel *channel = (pchan_channel *)((char *)live - offsetof(pchan_channel, live));
    if (channel->active) pch_channel_finish_at_finalize(channel);
    pch_connection_close(&channel->connection);
    for (int i = 0; i < channel->n; i++) free_handles(channel, i);
    pch_comm_release(&channel->entry);
    channel->finalized = true;
    channel->active = false;
    if (channel->abandoned) free_memory(channel);
}

pchan_status pchan_channel_create(MPI_Comm comm, const pchan_channel_options *options, pchan_channel **out,
                                  pchan_error *err)
{
    bool shared = options && options->shared_comm;
    pchan_channel *channel = NULL;
    pch_comm *entry = NULL, plain;
    *out = NULL;
    pchan_status status;
    if (shared) {
        PCH_TRY(pch_comm_describe(comm, &plain, err));
    } else {
        PCH_TRY(pch_comm_acquire(comm, PCH_CHANNELS, &entry, err));
    }
    const pch_comm *facts = shared ? &plain : entry;
    PCH_TRY(PCH_ALLOC(channel, 1, err));
    channel->entry = entry;
    channel->comm = shared ? comm : entry->dup[PCH_CHANNELS];
    channel->rank = facts->rank;
    channel->size = facts->size;
    channel->tag_ub = facts->tag_ub;
    channel->spin_ns = facts->spin_ns;
    PCH_TRY(pch_conclude("channel", PCHAN_OK, err));
    pch_live_add(&channel->live, finalize_channel);
    *out = channel;
    return PCHAN_OK;
done:
    pch_free(channel);
    pch_comm_release(&entry);
    return pch_conclude("channel", status, err);
}

/* ---- registration ---- */

static pchan_status grow_array(void *array, size_t n, size_t bytes_each, pchan_error *err)
{
    void **place = array;
    void *bigger = pch_realloc(*place, n, bytes_each);
    if (!bigger) return pch_fail_nomem(err, "a channel's operations", n * bytes_each);
    *place = bigger;
    return PCHAN_OK;
}

/* Room for one more operation in every array, so that a cycle needs no memory. */
static pchan_status reserve(pchan_channel *channel, pchan_error *err)
{
    if (channel->n < channel->capacity) return PCHAN_OK;
    if (channel->n > INT_MAX / 2) return pch_fail(err, PCHAN_ERR_ARG, "a channel holds at most 2^30 operations");
    int capacity = channel->capacity ? 2 * channel->capacity : 8;
    size_t n = (size_t)capacity;
    pchan_status status;
    PCH_TRY(grow_array(&channel->operations, n, sizeof *channel->operations, err));
    PCH_TRY(grow_array(&channel->details, n, sizeof *channel->details, err));
    PCH_TRY(grow_array(&channel->requests, n, sizeof *channel->requests, err));
    PCH_TRY(grow_array(&channel->statuses, n, sizeof *channel->statuses, err));
    PCH_TRY(grow_array(&channel->runs, n, sizeof *channel->runs, err));
    PCH_TRY(grow_array(&channel->ready, n, sizeof *channel->ready, err));
    channel->capacity = capacity;
done:
    return status;
}

static const char *kind_name(pchan_kind kind)
{
    return kind == PCHAN_SEND ? "send_init" : "recv_init";
}

static pchan_status check_envelope(const pchan_channel *channel, pchan_kind kind, int peer, int tag,
                                   pchan_error *err)
{
    const char *name = kind_name(kind);
    if (channel->active)
        return pch_fail(err, PCHAN_ERR_STATE, "%s: the channel is active; wait for it first", name);
    if (channel->broken) return pch_fail(err, PCHAN_ERR_STATE, "%s: the channel is broken by an MPI error", name);
    if (channel->connection)
        return pch_fail(err, PCHAN_ERR_STATE, "%s: the channel is connected; what it moves is settled", name);
    bool any_peer = kind == PCHAN_RECV && peer == MPI_ANY_SOURCE;
    bool any_tag = kind == PCHAN_RECV && tag == MPI_ANY_TAG;
    if (peer != MPI_PROC_NULL && !any_peer && (peer < 0 || peer >= channel->size)) {
        return pch_fail(err, PCHAN_ERR_ARG, "%s (operation %d): %s %d is not a rank of a communicator of %d", name,
                        channel->n, kind == PCHAN_SEND ? "dest" : "source", peer, channel->size);
    }
    if (!any_tag && (tag < 0 || tag > channel->tag_ub)) {
        return pch_fail(err, PCHAN_ERR_ARG, "%s (operation %d): tag %d is not in 0..%d (MPI_TAG_UB)", name,
                        channel->n, tag, channel->tag_ub);
    }
    return PCHAN_OK;
}

/* What MPI refuses at registration is a fault in the arguments, such as an uncommitted datatype. */
static pchan_status name_fault(const pchan_channel *channel, pchan_kind kind, pchan_status status,
                               pchan_error *err)
{
    if (status != PCHAN_ERR_MPI) return pch_conclude(kind_name(kind), status, err);
    char why[400];
    snprintf(why, sizeof why, "%.399s", err ? err->message : "");
    return pch_fail(err, PCHAN_ERR_ARG, "%s (operation %d): %s", kind_name(kind), channel->n, why);
}

static pchan_status type_bytes(MPI_Datatype type, int64_t count, int64_t *bytes, pchan_error *err)
{
    MPI_Count size;
    pchan_status status = PCH_MPI(MPI_Type_size_x(type, &size), "MPI_Type_size_x", err);
    if (status != PCHAN_OK) return status;
    if (size > 0 && count > INT64_MAX / (int64_t)size) {
        return pch_fail(err, PCHAN_ERR_ARG, "count %lld is too large for elements of %lld bytes", (long long)count,
                        (long long)size);
    }
    *bytes = (int64_t)size * count;
    return PCHAN_OK;
}

pchan_status pch_operation_make_request(const pch_operation *op, const pch_detail *d, int tag, MPI_Comm comm,
                                        MPI_Request *request, pchan_error *err)
{
    *request = MPI_REQUEST_NULL;
    if (op->peer == MPI_PROC_NULL) return PCHAN_OK;
    int code = op->kind == PCHAN_SEND ? MPI_Send_init(d->buf, d->count, d->type, op->peer, tag, comm, request)
                                      : MPI_Recv_init(d->buf, d->count, d->type, op->peer, tag, comm, request);
    return PCH_MPI(code, op->kind == PCHAN_SEND ? "MPI_Send_init" : "MPI_Recv_init", err);
}

/* Appends the operation; takes over op->type_owned and detail->dims on success only. */
static pchan_status append(pchan_channel *channel, const pch_operation *op, const pch_detail *detail, int *index,
                           pchan_error *err)
{
    pchan_status status = reserve(channel, err);
    if (status != PCHAN_OK) return status;
    int i = channel->n;
    status = pch_operation_make_request(op, detail, op->tag, channel->comm, &channel->requests[i], err);
    if (status != PCHAN_OK) return status;
    channel->operations[i] = *op;
    channel->details[i] = *detail;
    channel->n++;
    channel->n_real += op->peer != MPI_PROC_NULL;
    channel->runs_current = false;
    channel->n_cycles = 0; /* the statuses no longer tell about all operations */
    if (index) *index = i;
    return PCHAN_OK;
}

static pchan_status register_plain(pchan_channel *channel, pchan_kind kind, void *buf, int64_t count,
                                   MPI_Datatype datatype, int peer, int tag, int *index, pchan_error *err)
{
    const char *name = kind_name(kind);
    if (index) *index = 0;
    pchan_status status = pch_channel_enter(channel, name, err);
    if (status != PCHAN_OK) return status;
    pch_operation op = {.kind = kind, .peer = peer, .tag = tag, .type_owned = MPI_DATATYPE_NULL};
    MPI_Datatype type = datatype;
    PCH_TRY(check_envelope(channel, kind, peer, tag, err));
    if (count < 0) status = pch_fail(err, PCHAN_ERR_ARG, "%s: count %lld is negative", name, (long long)count);
    if (datatype == MPI_DATATYPE_NULL)
        status = pch_fail(err, PCHAN_ERR_ARG, "%s: datatype is MPI_DATATYPE_NULL", name);
    if (status != PCHAN_OK) goto done;
    PCH_TRY(type_bytes(datatype, count, &op.bytes, err));
    bool owned = true;
    if (count > pch_longest_count) {
        PCH_TRY(pch_type_large(count, datatype, &type, err));
        count = 1;
    } else {
        PCH_TRY(pch_type_keep(datatype, &type, &owned, err));
    }
    if (owned) op.type_owned = type;
    const pch_detail detail = {.buf = buf, .count = (int)count, .type = type, .n_dims = -1};
    status = append(channel, &op, &detail, index, err);
    if (status != PCHAN_OK && owned) MPI_Type_free(&type);
done:
    status = name_fault(channel, kind, status, err);
    pch_channel_leave(channel);
    return status;
}

pchan_status pchan_channel_send_init(pchan_channel *channel, const void *buf, int64_t count, MPI_Datatype datatype,
                                     int peer, int tag, int *index, pchan_error *err)
{
    union { /* MPI_Send_init takes a const pointer, but shares our path with MPI_Recv_init */
        const void *in;
        void *out;
    } address = {.in = buf};
    return register_plain(channel, PCHAN_SEND, address.out, count, datatype, peer, tag, index, err);
}

pchan_status pchan_channel_recv_init(pchan_channel *channel, void *buf, int64_t count, MPI_Datatype datatype,
                                     int peer, int tag, int *index, pchan_error *err)
{
    return register_plain(channel, PCHAN_RECV, buf, count, datatype, peer, tag, index, err);
}

static pchan_status count_elements(const pchan_strided *array, int64_t *n, const char *name, pchan_error *err)
{
    *n = 1;
    for (int d = 0; d < array->n_dims; d++) {
        if (array->shape[d] < 0) return pch_fail(err, PCHAN_ERR_ARG, "%s: negative shape", name);
        if (array->shape[d] > 0 && *n > INT64_MAX / array->shape[d]) {
            return pch_fail(err, PCHAN_ERR_ARG, "%s: the array is too large", name);
        }
        *n *= array->shape[d];
    }
    return PCHAN_OK;
}

pchan_status pchan_channel_init_strided(pchan_channel *channel, pchan_kind kind, const pchan_strided *array,
                                        int peer, int tag, int *index, pchan_error *err)
{
    const char *name = kind_name(kind);
    if (index) *index = 0;
    pchan_status status = pch_channel_enter(channel, name, err);
    if (status != PCHAN_OK) return status;
    pch_operation op = {.kind = kind, .peer = peer, .tag = tag, .type_owned = MPI_DATATYPE_NULL};
    pch_detail detail = {.buf = array->buf, .count = 1, .n_dims = array->n_dims};
    int64_t n = 0;
    PCH_TRY(check_envelope(channel, kind, peer, tag, err));
    PCH_TRY(count_elements(array, &n, name, err));
    PCH_TRY(type_bytes(array->element, n, &op.bytes, err));
    PCH_TRY(type_bytes(array->element, 1, &detail.element_bytes, err));
    PCH_TRY(PCH_ALLOC(detail.dims, 2 * (size_t)array->n_dims, err));
    for (int d = 0; d < array->n_dims; d++) {
        detail.dims[d] = array->shape[d];
        detail.dims[array->n_dims + d] = array->strides[d];
    }
    PCH_TRY(pch_type_strided(array, &op.type_owned, err));
    detail.type = op.type_owned;
    status = append(channel, &op, &detail, index, err);
    if (status != PCHAN_OK) MPI_Type_free(&op.type_owned);
done:
    if (status != PCHAN_OK) pch_free(detail.dims);
    status = name_fault(channel, kind, status, err);
    pch_channel_leave(channel);
    return status;
}

static pchan_status check_index(const pchan_channel *channel, int index, pchan_error *err)
{
    if (index >= 0 && index < channel->n) return PCHAN_OK;
    return pch_fail(err, PCHAN_ERR_ARG, "operation %d does not exist; the channel has %d", index, channel->n);
}

pchan_status pchan_channel_describe(pchan_channel *channel, int index, const pchan_description *description,
                                    pchan_error *err)
{
    pchan_status status = pch_channel_enter(channel, "describe", err);
    if (status != PCHAN_OK) return status;
    PCH_TRY(check_index(channel, index, err));
    if (channel->active || channel->connection)
        status = pch_fail(err, PCHAN_ERR_STATE, "describe: the channel is active or connected");
    if (description->n_dims < 0) status = pch_fail(err, PCHAN_ERR_ARG, "describe: n_dims is negative");
    if (status != PCHAN_OK) goto done;
    pch_detail *d = &channel->details[index];
    const char *element = description->element ? description->element : "";
    snprintf(d->element, sizeof d->element, "%s", element);
    d->column_major = description->column_major != 0;
    d->stated_dims = 0;
    if (description->n_dims > PCH_STATED_DIMS) goto done; /* too many to compare */
    d->stated_dims = description->n_dims;
    for (int k = 0; k < d->stated_dims; k++) d->stated_shape[k] = description->shape[k];
done:
    pch_channel_leave(channel);
    return status;
}

/* ---- queries ---- */

int pchan_channel_size(const pchan_channel *channel)
{
    return channel->n;
}

int pchan_channel_active(const pchan_channel *channel)
{
    return channel->active;
}

int pchan_channel_connected(const pchan_channel *channel)
{
    return channel->connection != NULL;
}

const char *pchan_transport_name(pchan_transport transport)
{
    static const char *const names[] = {"mpi", "shm", "shared", "cma", "bundle", "null"};
    return transport >= 0 && (size_t)transport < sizeof names / sizeof *names ? names[transport] : "unknown";
}

const char *pchan_channel_mismatch(const pchan_channel *channel)
{
    return channel->mismatch ? channel->mismatch : "";
}

int64_t pchan_channel_spin_ns(const pchan_channel *channel)
{
    return channel->spin_ns;
}

pchan_status pchan_channel_operation(const pchan_channel *channel, int index, pchan_operation *out,
                                     pchan_error *err)
{
    pchan_status status = check_index(channel, index, err);
    if (status != PCHAN_OK) return status;
    const pch_operation *op = &channel->operations[index];
    bool done = channel->active ? channel->one_by_one && op->done : channel->n_cycles > 0;
    pchan_transport transport = op->peer == MPI_PROC_NULL ? PCHAN_BY_NULL : PCHAN_BY_MPI;
    if (channel->connection) transport = channel->connection->routes[index].transport;
    *out = (pchan_operation){op->kind, op->peer, op->tag, op->bytes, done, transport};
    return PCHAN_OK;
}

pchan_status pchan_channel_message(const pchan_channel *channel, int index, pchan_message *message,
                                   pchan_error *err)
{
    pchan_status status = pch_runtime_check("statuses", err);
    if (status == PCHAN_OK) status = check_index(channel, index, err);
    if (status != PCHAN_OK) return status;
    const pch_operation *op = &channel->operations[index];
    if (channel->active ? !(channel->one_by_one && op->done) : channel->n_cycles == 0) {
        return pch_fail(err, PCHAN_ERR_STATE, "statuses: no cycle has been finished");
    }
    if (op->peer == MPI_PROC_NULL) {
        *message = (pchan_message){MPI_PROC_NULL, MPI_ANY_TAG, 0};
    } else if (op->kind == PCHAN_SEND) {
        *message = (pchan_message){channel->rank, op->tag, op->bytes};
    } else if (channel->connection) {
        *message = (pchan_message){op->peer, op->tag, channel->connection->routes[index].bytes};
    } else {
        const MPI_Status *s = &channel->statuses[index];
        MPI_Count bytes = 0;
        status = PCH_MPI(MPI_Get_elements_x(s, MPI_BYTE, &bytes), "MPI_Get_elements_x", err);
        /* no more than there is room for: MPICH over UCX leaves the count of a truncated message unset */
        *message = (pchan_message){s->MPI_SOURCE, s->MPI_TAG, bytes < op->bytes ? (int64_t)bytes : op->bytes};
    }
    return status;
}

/* ---- the end ---- */

static void dispose(pchan_channel *channel)
{
    if (!channel->finalized && !pch_runtime_is_forked()) {
        pch_live_remove(&channel->live);
        pch_connection_close(&channel->connection);
        for (int i = 0; i < channel->n; i++) free_handles(channel, i);
        pch_comm_release(&channel->entry);
    }
    free_memory(channel);
}

pchan_status pchan_channel_destroy(pchan_channel **channel, pchan_error *err)
{
    if (!channel || !*channel) return PCHAN_OK;
    if ((*channel)->active && !pch_runtime_is_forked()) {
        return pch_fail(err, PCHAN_ERR_STATE, "free: the channel is active; wait for it first");
    }
    /* a helper is waited for where the connection is closed; in a forked child it would never leave */
    if (atomic_load(&(*channel)->busy) == PCH_CALLER) {
        return pch_fail(err, PCHAN_ERR_STATE, "free: another thread is using this channel");
    }
    dispose(*channel);
    *channel = NULL;
    return PCHAN_OK;
}

void pchan_channel_abandon(pchan_channel **channel)
{
    if (!channel || !*channel) return;
    if ((*channel)->active && !pch_runtime_is_forked()) {
        (*channel)->abandoned = true;
    } else {
        dispose(*channel);
    }
    *channel = NULL;
}
