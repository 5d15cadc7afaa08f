/* SPDX-License-Identifier: Apache-2.0 */
/* Payload rate of one-way sends from rank 0 to the last rank, in Mbit/s: mpirun -n 2 goodput [BYTES [REPEATS]].
 * Prints the median and every repeat. The receiver confirms each message, so that the clock covers its arrival. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static int compare(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double one_send_mbps(char *buffer, int bytes, int rank, int peer) {
    const double started = MPI_Wtime();
    if (rank == 0) {
        MPI_Send(buffer, bytes, MPI_BYTE, peer, 1, MPI_COMM_WORLD);
        MPI_Recv(NULL, 0, MPI_BYTE, peer, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else if (rank == peer) {
        MPI_Recv(buffer, bytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Send(NULL, 0, MPI_BYTE, 0, 2, MPI_COMM_WORLD);
    }
    return 8e-6 * bytes / (MPI_Wtime() - started);
}

int main(int argc, char **argv) {
    int rank, size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    const int bytes = argc > 1 ? atoi(argv[1]) : 64000000, repeats = argc > 2 ? atoi(argv[2]) : 3;
    char *buffer = bytes > 0 ? calloc(1, (size_t)bytes) : NULL;
    double *mbps = repeats > 0 ? calloc((size_t)repeats, sizeof *mbps) : NULL;
    if (size < 2 || buffer == NULL || mbps == NULL) {
        fprintf(stderr, "usage: mpirun -n 2 goodput [BYTES [REPEATS]], both positive\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
        return 2;
    }
    (void)one_send_mbps(buffer, bytes < 1000000 ? bytes : 1000000, rank, size - 1); /* connects, opens the window */
    for (int i = 0; i < repeats; i++) {
        MPI_Barrier(MPI_COMM_WORLD);
        mbps[i] = one_send_mbps(buffer, bytes, rank, size - 1);
    }
    if (rank == 0) {
        qsort(mbps, (size_t)repeats, sizeof *mbps, compare);
        printf("%.1f Mbit/s of", mbps[repeats / 2]);
        for (int i = 0; i < repeats; i++) printf(" %.1f", mbps[i]);
        printf("\n");
    }
    free(mbps);
    free(buffer);
    MPI_Finalize();
    return 0;
}
