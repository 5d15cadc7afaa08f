/* SPDX-License-Identifier: Apache-2.0 */
/* The link between the first and the last rank, seen with as little between as MPI allows: mpirun -n 2 link [BYTES
 * [REPEATS]].
 *
 *   share 1 of 2 ranks on the host of rank 0
 *   rtt 91.2 us                                 median of 21 ping-pongs of one byte
 *   send 992.8 Mbit/s of 987.8 992.8 992.8      payload of one-way sends: median, and every one in order of size
 *
 * The receiver confirms each send with an empty message, so that the clock covers the arrival of the last byte. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { PINGS = 21, WARM_UP_BYTES = 1000000 };

static int rank, last;

static int compare(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double exchange_s(char *buffer, int bytes_there, int bytes_back) {
    const double started = MPI_Wtime();
    if (rank == 0) {
        MPI_Send(buffer, bytes_there, MPI_BYTE, last, 1, MPI_COMM_WORLD);
        MPI_Recv(buffer, bytes_back, MPI_BYTE, last, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else if (rank == last) {
        MPI_Recv(buffer, bytes_there, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Send(buffer, bytes_back, MPI_BYTE, 0, 2, MPI_COMM_WORLD);
    }
    return MPI_Wtime() - started;
}

static void report_share(void) {
    MPI_Comm host;
    int on_host;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
    MPI_Comm_size(host, &on_host);
    MPI_Comm_free(&host);
    if (rank == 0) printf("share %d of %d ranks on the host of rank 0\n", on_host, last + 1);
}

static void report_rtt(char *buffer) {
    double us[PINGS];
    for (int i = 0; i < PINGS; i++) us[i] = 1e6 * exchange_s(buffer, 1, 1);
    qsort(us, PINGS, sizeof *us, compare);
    if (rank == 0) printf("rtt %.1f us\n", us[PINGS / 2]);
}

static void report_send(char *buffer, int bytes, double *mbps, int repeats) {
    (void)exchange_s(buffer, bytes < WARM_UP_BYTES ? bytes : WARM_UP_BYTES, 0); /* opens the window */
    for (int i = 0; i < repeats; i++) {
        MPI_Barrier(MPI_COMM_WORLD);
        mbps[i] = 8e-6 * bytes / exchange_s(buffer, bytes, 0);
    }
    if (rank != 0) return;
    qsort(mbps, (size_t)repeats, sizeof *mbps, compare);
    printf("send %.1f Mbit/s of", mbps[repeats / 2]);
    for (int i = 0; i < repeats; i++) printf(" %.1f", mbps[i]);
    printf("\n");
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &last);
    last--;
    const int bytes = argc > 1 ? atoi(argv[1]) : 64000000, repeats = argc > 2 ? atoi(argv[2]) : 3;
    char *buffer = bytes > 0 ? calloc(1, (size_t)bytes) : NULL;
    double *mbps = repeats > 0 ? calloc((size_t)repeats, sizeof *mbps) : NULL;
    if (last < 1 || buffer == NULL || mbps == NULL) {
        fprintf(stderr, "usage: mpirun -n RANKS link [BYTES [REPEATS]]: at least two ranks, the others positive\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
        return 2;
    }
    report_share();
    report_rtt(buffer);
    report_send(buffer, bytes, mbps, repeats);
    free(mbps);
    free(buffer);
    MPI_Finalize();
    return 0;
}
