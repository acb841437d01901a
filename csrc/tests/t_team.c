/* SPDX-License-Identifier: MIT
 * team: one memory for the node, each ticket once, agreement, errors on all ranks. */
#include "testing_mpi.h"

#include "testing.h"

int main(int argc, char **argv)
{
    int rank, size, all;
    pchan_error err = {0};
    pchan_team *team = NULL;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);

    CHECK(pchan_team_create(MPI_COMM_WORLD, NULL, 8 * size, &team, &err) == PCHAN_OK, "%s", err.message);
    int64_t *data = pchan_team_data(team);
    CHECK(pchan_team_node_size(team) == size && pchan_team_node_rank(team) == rank, "one node");
    CHECK(data[rank] == 0, "not zero at first");
    data[rank] = rank + 1;
    CHECK(pchan_team_all(team, 1, &all, &err) == PCHAN_OK && all == 1, "%s", err.message);
    for (int r = 0; r < size; r++) CHECK(data[r] == r + 1, "rank %d does not see what rank %d wrote", rank, r);

    enum { N_TICKETS = 1000 };
    int mine[N_TICKETS + 8] = {0}, everyone[N_TICKETS + 8];
    for (int64_t t = pchan_team_next(team); t < N_TICKETS; t = pchan_team_next(team)) mine[t]++;
    MPI_Allreduce(mine, everyone, N_TICKETS, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    for (int t = 0; t < N_TICKETS; t++) CHECK(everyone[t] == 1, "ticket %d went to %d ranks", t, everyone[t]);

    CHECK(pchan_team_all(team, rank != size - 1, &all, &err) == PCHAN_OK && all == 0, "one rank is against it");
    pchan_team_destroy(&team);
    CHECK(team == NULL, "the pointer is not cleared");
    pchan_team_destroy(&team);

    MPI_Comm self = MPI_COMM_SELF;
    CHECK(pchan_team_create(MPI_COMM_WORLD, &self, 8, &team, &err) == PCHAN_OK, "%s", err.message);
    CHECK(pchan_team_node_size(team) == 1, "a node of one");
    CHECK(pchan_team_all(team, rank == 0, &all, &err) == PCHAN_OK && all == (rank == 0),
          "only this node is asked");
    pchan_team_destroy(&team);

    int64_t bytes = rank == size - 1 ? -1 : 8;
    CHECK(pchan_team_create(MPI_COMM_WORLD, NULL, bytes, &team, &err) == PCHAN_ERR_ARG && !team, "negative size");
    CHECK(pchan_team_create(MPI_COMM_WORLD, NULL, 8, &team, &err) == PCHAN_OK, "%s", err.message);
    MPI_Finalize();
    pchan_team_destroy(&team); /* after MPI is gone */
    return 0;
}
