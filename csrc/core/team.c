/* SPDX-License-Identifier: MIT
 *
 * Working memory of a node: a window's words as plain bytes, a counter to deal out tasks with, and an
 * agreement that is also a barrier.
 */
#include "pch_mpi.h" /* first, see there */

#include "pch_window.h"

struct pchan_team {
    pch_live live;
    pch_comm *entry, *node_entry; /* of comm; of the caller's node_comm, or NULL */
    MPI_Comm node;
    int node_rank, node_size;
    pch_window *window;
};

static void finalize_team(pch_live *live)
{
    pchan_team *team = (pchan_team *)((char *)live - offsetof(pchan_team, live));
    pch_comm_release(&team->node_entry);
    pch_comm_release(&team->entry);
}

static pchan_status fill(pchan_team *team, const MPI_Comm *node_comm, int64_t bytes, pchan_error *err)
{
    MPI_Comm comm = team->entry->dup[PCH_QREDUCES];
    pchan_error own = {0};
    pchan_status status = PCHAN_OK;
    if (bytes < 0) status = pch_fail(&own, PCHAN_ERR_ARG, "team: %lld bytes", (long long)bytes);
    if (node_comm && *node_comm == MPI_COMM_NULL) {
        status = pch_fail(&own, PCHAN_ERR_ARG, "team: node_comm is MPI_COMM_NULL");
    }
    PCH_TRY(pch_agree(comm, status, &own, err));
    PCH_TRY(pch_comm_choose_node(team->entry, node_comm, &team->node_entry, &team->node, err));
    MPI_Comm_rank(team->node, &team->node_rank);
    MPI_Comm_size(team->node, &team->node_size);
    status = pch_agree(comm, pch_window_create(team->node, bytes, false, &team->window, &own), &own, err);
done:
    return status;
}

pchan_status pchan_team_create(MPI_Comm comm, const MPI_Comm *node_comm, int64_t bytes, pchan_team **out,
                               pchan_error *err)
{
    pchan_team *team = NULL;
    pch_comm *entry = NULL;
    pchan_error own = {0};
    *out = NULL;
    pchan_status status;
    PCH_TRY(pch_comm_acquire(comm, PCH_QREDUCES, &entry, err));
    PCH_TRY(pch_agree(entry->dup[PCH_QREDUCES], PCH_ALLOC(team, 1, &own), &own, err));
    team->entry = entry;
    entry = NULL;
    pch_live_add(&team->live, finalize_team);
    PCH_TRY(fill(team, node_comm, bytes, err));
    PCH_TRY(pch_conclude("team", PCHAN_OK, err));
    *out = team;
    return PCHAN_OK;
done:
    pch_comm_release(&entry);
    if (team && team->entry) {
        pchan_team_destroy(&team);
    } else {
        pch_free(team);
    }
    return pch_conclude("team", status, err);
}

void *pchan_team_data(const pchan_team *team)
{
    return team->window->words;
}

int pchan_team_node_rank(const pchan_team *team)
{
    return team->node_rank;
}

int pchan_team_node_size(const pchan_team *team)
{
    return team->node_size;
}

int64_t pchan_team_next(pchan_team *team)
{
    return (int64_t)atomic_fetch_add_explicit(&team->window->counters[0].value, 1, memory_order_relaxed);
}

pchan_status pchan_team_all(pchan_team *team, int mine, int *all, pchan_error *err)
{
    int value = mine != 0;
    *all = 0;
    pchan_status status = pch_runtime_check("team", err);
    if (status != PCHAN_OK) return status;
    atomic_thread_fence(memory_order_seq_cst);
    PCH_TRY(PCH_MPI(MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_INT, MPI_LAND, team->node), "MPI_Allreduce", err));
    atomic_thread_fence(memory_order_seq_cst);
    *all = value;
done:
    return status;
}

void pchan_team_destroy(pchan_team **place)
{
    if (!place || !*place) return;
    pchan_team *team = *place;
    pch_live_remove(&team->live);
    pch_window_destroy(&team->window);
    if (!pch_runtime_is_forked()) {
        pch_comm_release(&team->node_entry);
        pch_comm_release(&team->entry);
    }
    pch_free(team);
    *place = NULL;
}
