/* SPDX-License-Identifier: Apache-2.0 */
/* mpi_peer.c - the same measurements as p2p.c and allreduce.c, with MPI
 *
 *   mpirun -n 2 bench/mpi_peer p2p
 *   mpirun -n N bench/mpi_peer allreduce
 *
 * Buffers have pages of the size Merak's arena has: small ones, or large ones
 * with BENCH_HUGEPAGES set, where the kernel gives those to shared memory.
 */
#include "bench/bench.h"

#include <mpi.h>
#include <string.h>
#include <sys/mman.h>

static void ping(int me, char *out, char *in, int bytes)
{
    MPI_Request recv;

    MPI_Irecv(in, bytes, MPI_BYTE, 1 - me, 1, MPI_COMM_WORLD, &recv);
    if (me == 1)
        MPI_Wait(&recv, MPI_STATUS_IGNORE);
    bench_touch(out, (size_t)bytes, 1);
    MPI_Send(out, bytes, MPI_BYTE, 1 - me, 1, MPI_COMM_WORLD);
    if (me == 0)
        MPI_Wait(&recv, MPI_STATUS_IGNORE);
}

static void once(int me, int p2p, char *out, char *in, size_t bytes)
{
    if (p2p) {
        ping(me, out, in, (int)bytes);
        return;
    }
    bench_touch(out, bytes, 1);
    MPI_Allreduce(out, in, (int)(bytes / sizeof(float)), MPI_FLOAT, MPI_SUM,
                  MPI_COMM_WORLD);
}

static void measure(int me, int p2p, char *out, char *in, size_t bytes)
{
    double batch[BENCH_BATCHES];
    int n = bench_repeats(bytes);

    once(me, p2p, out, in, bytes);
    for (int i = 0; i < BENCH_BATCHES; i++) {
        double start;

        MPI_Barrier(MPI_COMM_WORLD);
        start = bench_now_us();
        for (int k = 0; k < n; k++)
            once(me, p2p, out, in, bytes);
        batch[i] = (bench_now_us() - start) / (p2p ? 2 * n : n);
    }
    if (me == 0)
        bench_print(p2p ? "p2p" : "allreduce", bytes, batch);
}

int main(int argc, char **argv)
{
    void *out, *in;
    int me, p2p;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    p2p = argc > 1 && strcmp(argv[1], "p2p") == 0;
    if (posix_memalign(&out, 2 << 20, BENCH_MAX) != 0 ||
        posix_memalign(&in, 2 << 20, BENCH_MAX) != 0)
        MPI_Abort(MPI_COMM_WORLD, 1);
    if (getenv("BENCH_HUGEPAGES") != NULL) {
        madvise(out, BENCH_MAX, MADV_HUGEPAGE);
        madvise(in, BENCH_MAX, MADV_HUGEPAGE);
    }
    memset(out, 1, BENCH_MAX);
    memset(in, 1, BENCH_MAX);
    for (size_t bytes = BENCH_MIN; bytes <= BENCH_MAX; bytes *= 2)
        measure(me, p2p, out, in, bytes);
    MPI_Finalize();
    return 0;
}
