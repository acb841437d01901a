/* SPDX-License-Identifier: MIT
 *
 * What pchan keeps per parent communicator, cached as an attribute of it: duplicates on which
 * its messages cannot meet the program's, made once (MPICH has 2,046 communicators in all).
 *
 * MPI_Comm_free is collective, so the duplicates are freed where the program makes a collective
 * call: in the free of the parent, which calls our delete callback; MPI_Finalize takes the rest. An entry
 * whose parent is gone while objects still use it becomes an orphan, and is freed at the next of
 * these moments after its last object.
 */
#include "pch_mpi.h"

#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { DEFAULT_SPIN_NS = 50000, MAX_CPUS = 1024 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int entry_keyval = MPI_KEYVAL_INVALID;
static pch_comm *orphans; /* no parent and no object left */

static void free_comm(MPI_Comm *comm)
{
    if (*comm != MPI_COMM_NULL) MPI_Comm_free(comm);
}

static void free_entry(pch_comm *entry)
{
    pch_live_remove(&entry->live);
    for (int role = 0; role < PCH_N_ROLES; role++) free_comm(&entry->dup[role]);
    free_comm(&entry->node);
    for (int k = 0; k < PCH_MAX_SPARES; k++) free_comm(&entry->spares[k]);
    pch_free(entry);
}

/* Part of a collective call of the program, see above. */
static void free_orphans(void)
{
    pthread_mutex_lock(&lock);
    pch_comm *list = orphans;
    orphans = NULL;
    pthread_mutex_unlock(&lock);
    while (list) {
        pch_comm *next = list->next_orphan;
        free_entry(list);
        list = next;
    }
}

static int count_down(pch_comm *entry)
{
    pthread_mutex_lock(&lock);
    int left = --entry->references;
    pthread_mutex_unlock(&lock);
    return left;
}

static int parent_is_freed(MPI_Comm parent, int keyval, void *value, void *extra)
{
    (void)parent, (void)keyval, (void)extra;
    if (count_down(value) == 0) free_entry(value);
    free_orphans();
    return MPI_SUCCESS;
}

/* In MPI_Finalize, which takes the communicators along silently. Freeing them here would make MPICH
 * abort when a message on them was never received, as after a rank that failed between two starts. */
static void finalize_entry(pch_live *live)
{
    pch_comm *entry = (pch_comm *)((char *)live - offsetof(pch_comm, live));
    for (int role = 0; role < PCH_N_ROLES; role++) entry->dup[role] = MPI_COMM_NULL;
    entry->node = MPI_COMM_NULL;
    for (int k = 0; k < PCH_MAX_SPARES; k++) entry->spares[k] = MPI_COMM_NULL;
}

/* A number that ranks on one machine share: containers and network namespaces have one kernel. */
static int machine_color(void)
{
    char id[64] = "";
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "r");
    if (!file || !fgets(id, sizeof id, file)) gethostname(id, sizeof id - 1);
    if (file) fclose(file);
    uint32_t hash = 2166136261u; /* FNV-1a */
    for (const char *c = id; *c && *c != '\n'; c++) hash = (hash ^ (unsigned char)*c) * 16777619u;
    return (int)(hash & 0x7fffffff);
}

static int n_ranks_started_here(void)
{
    static const char *const names[] = {"MPI_LOCALNRANKS", "OMPI_COMM_WORLD_LOCAL_SIZE",
                                        "MV2_COMM_WORLD_LOCAL_SIZE"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *value = getenv(names[i]);
        long n = value ? strtol(value, NULL, 10) : 0;
        if (n > 0 && n <= INT_MAX) return (int)n;
    }
    return 1;
}

/* More ranks than usable processors on this machine? Collective over comm. */
static pchan_status find_crowded(MPI_Comm comm, bool *crowded, pchan_error *err)
{
    unsigned char mask[MAX_CPUS / 8] = {0};
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) {
        for (int i = 0; i < MAX_CPUS && i < CPU_SETSIZE; i++) {
            if (CPU_ISSET((size_t)i, &set)) mask[i / 8] |= (unsigned char)(1u << (i % 8));
        }
    }
    MPI_Comm machine = MPI_COMM_NULL;
    int n_ranks = 0, n_cpus = 0;
    pchan_status status;
    pchan_error own = {0};
    status = PCH_MPI(MPI_Comm_split(comm, machine_color(), 0, &machine), "MPI_Comm_split", &own);
    PCH_TRY(pch_agree(comm, status, &own, err));
    MPI_Comm_size(machine, &n_ranks);
    PCH_TRY(
        PCH_MPI(MPI_Allreduce(MPI_IN_PLACE, mask, sizeof mask, MPI_BYTE, MPI_BOR, machine), "MPI_Allreduce", err));
    for (int i = 0; i < MAX_CPUS; i++) n_cpus += mask[i / 8] >> (i % 8) & 1;
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    *crowded = (n_cpus > 0 && n_ranks > n_cpus) || n_ranks_started_here() > online;
done:
    free_comm(&machine);
    return status;
}

static int64_t choose_spin_ns(bool crowded)
{
    int64_t spin_ns = crowded ? 0 : DEFAULT_SPIN_NS;
    const char *text = getenv("PCHAN_SPIN_US");
    if (text) {
        char *end;
        double us = strtod(text, &end);
        if (end != text && us >= 0 && us < 1e12) spin_ns = (int64_t)(us * 1000);
    }
    return spin_ns;
}

static int tag_upper_bound(void)
{
    int flag = 0;
    void *tag_ub = NULL;
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, (void *)&tag_ub, &flag);
    return flag ? *(int *)tag_ub : 32767;
}

/* Room for a new entry, filled with what is known locally. */
static pchan_status make_entry(MPI_Comm parent, pch_comm **entry, pchan_error *err)
{
    pchan_status status = PCH_ALLOC(*entry, 1, err);
    if (status != PCHAN_OK) return status;
    pch_comm *new = *entry;
    for (int role = 0; role < PCH_N_ROLES; role++) new->dup[role] = MPI_COMM_NULL;
    new->node = MPI_COMM_NULL;
    for (int k = 0; k < PCH_MAX_SPARES; k++) new->spares[k] = MPI_COMM_NULL;
    new->references = 1;
    MPI_Comm_rank(parent, &new->rank);
    MPI_Comm_size(parent, &new->size);
    new->tag_ub = tag_upper_bound();
    return PCHAN_OK;
}

static pchan_status attach_entry(MPI_Comm parent, pch_comm *entry, pchan_error *err)
{
    pchan_status status = PCHAN_OK;
    pthread_mutex_lock(&lock);
    if (entry_keyval == MPI_KEYVAL_INVALID) {
        status = PCH_MPI(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, parent_is_freed, &entry_keyval, NULL),
                         "MPI_Comm_create_keyval", err);
    }
    pthread_mutex_unlock(&lock);
    if (status != PCHAN_OK) return status;
    status = PCH_MPI(MPI_Comm_set_attr(parent, entry_keyval, entry), "MPI_Comm_set_attr", err);
    if (status == PCHAN_OK) pch_live_add(&entry->live, finalize_entry);
    return status;
}

static pch_comm *cached_entry(MPI_Comm parent)
{
    void *value = NULL;
    int flag = 0;
    if (entry_keyval != MPI_KEYVAL_INVALID) MPI_Comm_get_attr(parent, entry_keyval, (void *)&value, &flag);
    return flag ? value : NULL;
}

static pchan_status check_parent(MPI_Comm parent, pchan_error *err)
{
    if (parent == MPI_COMM_NULL)
        return pch_fail(err, PCHAN_ERR_ARG, "communicator: is MPI_COMM_NULL (or was freed)");
    int inter = 0;
    if (MPI_Comm_test_inter(parent, &inter) != MPI_SUCCESS) {
        return pch_fail(err, PCHAN_ERR_ARG, "communicator: not a valid one");
    }
    if (inter) return pch_fail(err, PCHAN_ERR_ARG, "communicator: is an intercommunicator; merge it first");
    return PCHAN_OK;
}

static pchan_status duplicate(MPI_Comm parent, MPI_Comm *dup, pchan_error *err)
{
    pchan_status status = PCH_MPI(MPI_Comm_dup(parent, dup), "MPI_Comm_dup", err);
    if (status != PCHAN_OK) *dup = MPI_COMM_NULL;
    if (status == PCHAN_OK)
        status = PCH_MPI(MPI_Comm_set_errhandler(*dup, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler", err);
    return status;
}

/* Gives entry its duplicate for a role, on all ranks or on none. `local` is the caller's status so
 * far, own its error: a rank that has failed takes part in the duplication all the same, so that nobody hangs. */
static pchan_status make_dup(MPI_Comm parent, MPI_Comm *dup, pchan_status local, pchan_error *own,
                             pchan_error *err)
{
    pchan_error lost;
    pchan_status status = duplicate(parent, dup, local == PCHAN_OK ? own : &lost);
    if (local != PCHAN_OK) status = local;
    status = pch_agree(parent, status, own, err); /* *dup may not be there on all ranks */
    if (status != PCHAN_OK) free_comm(dup);
    return status;
}

static pchan_status first_entry(MPI_Comm parent, pch_role role, pchan_status local, pchan_error *failure,
                                pch_comm **entry, pchan_error *err)
{
    pch_comm *new = NULL;
    MPI_Comm dup = MPI_COMM_NULL;
    pchan_status status = local == PCHAN_OK ? make_entry(parent, &new, failure) : local;
    PCH_TRY(make_dup(parent, &dup, status, failure, err));
    new->dup[role] = dup;
    pchan_error own = {0};
    bool crowded = false;
    status = find_crowded(dup, &crowded, &own);
    new->spin_ns = choose_spin_ns(crowded);
    if (status == PCHAN_OK) status = attach_entry(parent, new, &own);
    status = pch_agree(dup, status, &own, err);
    if (status != PCHAN_OK) {
        if (cached_entry(parent) == new)
            MPI_Comm_delete_attr(parent, entry_keyval); /* frees it */
        else
            free_entry(new);
        return status;
    }
    *entry = new;
    return PCHAN_OK;
done:
    pch_free(new);
    return status;
}

pchan_status pch_comm_acquire(MPI_Comm parent, pch_role role, pch_comm **comm, pchan_error *err)
{
    *comm = NULL;
    pchan_error own = {0};
    pchan_status local = pch_runtime_check("communicator", &own), status = local;
    /* an MPI that failed here only: the others go on to a collective call */
    if (status == PCHAN_OK || status == PCHAN_ERR_MPI) status = check_parent(parent, &own);
    if (status != PCHAN_OK) {
        if (err) *err = own;
        return status;
    }
    free_orphans();
    pch_comm *entry = cached_entry(parent);
    if (!entry) {
        status = first_entry(parent, role, local, &own, &entry, err);
    } else if (entry->dup[role] == MPI_COMM_NULL) {
        status = make_dup(parent, &entry->dup[role], local, &own, err);
    }
    if (status != PCHAN_OK) return status;
    pthread_mutex_lock(&lock);
    entry->references++;
    pthread_mutex_unlock(&lock);
    *comm = entry;
    return PCHAN_OK;
}

pchan_status pch_comm_describe(MPI_Comm comm, pch_comm *facts, pchan_error *err)
{
    pchan_status status = pch_runtime_check("communicator", err);
    if (status == PCHAN_OK) status = check_parent(comm, err);
    if (status != PCHAN_OK) return status;
    const pch_comm *entry = cached_entry(comm);
    MPI_Comm_rank(comm, &facts->rank);
    MPI_Comm_size(comm, &facts->size);
    facts->tag_ub = tag_upper_bound();
    facts->spin_ns =
        entry ? entry->spin_ns : choose_spin_ns(n_ranks_started_here() > sysconf(_SC_NPROCESSORS_ONLN));
    return PCHAN_OK;
}

void pch_comm_release(pch_comm **comm)
{
    pch_comm *entry = *comm;
    *comm = NULL;
    if (!entry || count_down(entry) > 0) return;
    if (pch_runtime_is_over()) {
        pch_free(entry);
        return;
    }
    pthread_mutex_lock(&lock);
    entry->next_orphan = orphans;
    orphans = entry;
    pthread_mutex_unlock(&lock);
}

/* One of the duplicates that there are. */
static MPI_Comm any_dup(const pch_comm *comm)
{
    int role = 0;
    while (role < PCH_N_ROLES - 1 && comm->dup[role] == MPI_COMM_NULL) role++;
    PCH_ASSERT(comm->dup[role] != MPI_COMM_NULL);
    return comm->dup[role];
}

pchan_status pch_comm_node(pch_comm *comm, pchan_error *err)
{
    if (comm->node != MPI_COMM_NULL) return PCHAN_OK;
    pchan_error own = {0};
    MPI_Comm node = MPI_COMM_NULL;
    pchan_status status =
        PCH_MPI(MPI_Comm_split_type(any_dup(comm), MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node),
                "MPI_Comm_split_type", &own);
    if (status != PCHAN_OK) node = MPI_COMM_NULL;
    if (status == PCHAN_OK)
        status = PCH_MPI(MPI_Comm_set_errhandler(node, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler", &own);
    status = pch_agree(any_dup(comm), status, &own, err);
    if (status == PCHAN_OK)
        comm->node = node;
    else
        free_comm(&node);
    return status;
}

pchan_status pch_comm_choose_node(pch_comm *comm, const MPI_Comm *node_comm, pch_comm **node_entry, MPI_Comm *node,
                                  pchan_error *err)
{
    pchan_error own = {0};
    pchan_status status =
        node_comm ? pch_comm_acquire(*node_comm, PCH_QREDUCES, node_entry, &own) : pch_comm_node(comm, &own);
    status = pch_agree(comm->dup[PCH_QREDUCES], status, &own, err);
    if (status == PCHAN_OK) *node = node_comm ? (*node_entry)->dup[PCH_QREDUCES] : comm->node;
    return status;
}

pchan_status pch_comm_wire(pch_comm *comm, pchan_error *err)
{
    pchan_status status = pch_comm_node(comm, err);
    if (status != PCHAN_OK || comm->dup[PCH_WIRE] != MPI_COMM_NULL) return status;
    pchan_error own = {0};
    comm->next_wire_tag = PCH_FIRST_WIRE_TAG;
    return make_dup(any_dup(comm), &comm->dup[PCH_WIRE], PCHAN_OK, &own, err);
}

/* n tags from *next on, or from the lowest one again; -1 where there are not so many. */
static int take_tags(int *next, int lowest, int tag_ub, int64_t n)
{
    if (n > tag_ub - lowest) return -1;
    if (*next > tag_ub - n) *next = lowest;
    int first = *next;
    *next += (int)n;
    return first;
}

int pch_comm_take_wire_tags(pch_comm *comm, int64_t n)
{
    return take_tags(&comm->next_wire_tag, PCH_FIRST_WIRE_TAG, comm->tag_ub, n);
}

pchan_status pch_comm_take_spare(pch_comm *comm, int *number, MPI_Comm *spare, pchan_error *err)
{
    MPI_Comm parent = comm->dup[PCH_QREDUCES];
    uint64_t taken = comm->spares_taken;
    pchan_error own = {0};
    pchan_status status =
        PCH_MPI(MPI_Allreduce(MPI_IN_PLACE, &taken, 1, MPI_UINT64_T, MPI_BOR, parent), "MPI_Allreduce", &own);
    status = pch_agree(parent, status, &own, err);
    if (status != PCHAN_OK) return status;
    if (!~taken) {
        return pch_fail(err, PCHAN_ERR_STATE, "qreduce: more than %d of this strategy at a time; free some",
                        PCH_MAX_SPARES);
    }
    int k = __builtin_ctzll(~taken);
    if (comm->spares[k] == MPI_COMM_NULL) {
        status = make_dup(parent, &comm->spares[k], PCHAN_OK, &own, err);
        if (status != PCHAN_OK) return status;
    }
    comm->spares_taken |= (uint64_t)1 << k;
    *number = k;
    *spare = comm->spares[k];
    return PCHAN_OK;
}

void pch_comm_return_spare(pch_comm *comm, int number)
{
    comm->spares_taken &= ~((uint64_t)1 << number);
}

int pch_comm_take_tags(pch_comm *comm, int n)
{
    return take_tags(&comm->next_tag, 0, comm->tag_ub, n);
}
