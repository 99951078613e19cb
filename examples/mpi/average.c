/* Each rank has a gradient; all get their mean. A program of MPI, which knows nothing of libina:
 *
 *     mpicc average.c -o average
 *     mpirun -n 4 env LD_PRELOAD=libina_mpi_openmpi.so ./average      (MPICH: libina_mpi_mpich.so)
 */
#include <mpi.h>
#include <stdio.h>

enum { kElements = 100000 };

int main(int argc, char** argv) {
  static float gradient[kElements];
  int rank = 0, ranks = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);

  for (int i = 0; i < kElements; ++i) gradient[i] = (float)rank;
  MPI_Allreduce(MPI_IN_PLACE, gradient, kElements, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  for (int i = 0; i < kElements; ++i) gradient[i] /= (float)ranks;

  printf("rank %d of %d: %d elements, each %g\n", rank, ranks, kElements, gradient[0]);
  return MPI_Finalize();
}
