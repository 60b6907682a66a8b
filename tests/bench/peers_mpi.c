/* Collectives on OpenMPI for collectives.py, which compiles it with mpicc:
 *
 *     mpirun -n N peers_mpi SOCKET
 *
 * Every rank connects to the unix socket, says its number and reads lines "KIND BYTES REPEATS" (as
 * in collectives.c) from there: a rank that waited for the next in MPI would take a core. Rank 0
 * answers with the seconds. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

static int rank, world;
static float *held, *part;
static size_t elements; /* of held */

static FILE *dial(const char *path) {
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || strlen(path) >= sizeof a.sun_path) {
        return NULL;
    }
    strcpy(a.sun_path, path);
    return connect(fd, (struct sockaddr *)&a, sizeof a) ? NULL : fdopen(fd, "r+");
}

static int call(const char *kind) {
    const int n = (int)elements, each = n / world;
    if (!strcmp(kind, "all-gather")) {
        return MPI_Allgather(part, each, MPI_FLOAT, held, each, MPI_FLOAT, MPI_COMM_WORLD);
    }
    if (!strcmp(kind, "reduce-scatter")) {
        return MPI_Reduce_scatter_block(held, part, each, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    }
    return MPI_Allreduce(MPI_IN_PLACE, held, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static void need(size_t n) {
    if (n != elements) {
        free(held);
        free(part);
        elements = n;
        held = calloc(n, sizeof *held);
        part = calloc(n / (size_t)world + 1, sizeof *part);
        if (!held || !part) {
            fprintf(stderr, "no memory for %zu elements\n", n);
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
        memset(held, 0, n * sizeof *held);
    }
}

static double timed(const char *kind, long repeats) {
    MPI_Barrier(MPI_COMM_WORLD);
    const double start = MPI_Wtime();
    for (long i = 0; i < repeats; i++) {
        call(kind);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    return MPI_Wtime() - start;
}

int main(int argc, char **argv) {
    char line[128], kind[32];
    unsigned long bytes;
    long repeats;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world);
    FILE *f = argc == 2 ? dial(argv[1]) : NULL;
    if (!f) {
        fprintf(stderr, "usage: peers_mpi SOCKET\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    fprintf(f, "%d\n", rank);
    fflush(f);
    while (fgets(line, sizeof line, f) &&
           sscanf(line, "%31s %lu %ld", kind, &bytes, &repeats) == 3) {
        need(bytes / sizeof *held);
        const double seconds = timed(kind, repeats);
        if (!rank) {
            fseek(f, 0, SEEK_CUR); /* from reading to writing */
            fprintf(f, "%.9f\n", seconds);
            fflush(f);
        }
    }
    MPI_Finalize();
    return 0;
}
