/* Buffered sends fill the attached buffer between two collective calls, and are received. MPI notices in its progress alone
 * that the buffer is free again: after the call it must have. */
#include "check.inc"

enum { kMessages = 8, kElements = 4096, kRounds = 400 };

static int message[kElements];

static void synchronise(int round) {
  int sum = 0;
  if (round % 2)
    MPI_Barrier(MPI_COMM_WORLD);
  else
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
}

int main(int argc, char** argv) {
  int i, round, bytes = kMessages * ((int)sizeof message + MPI_BSEND_OVERHEAD);
  void* buffer = malloc((size_t)bytes);
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Buffer_attach(buffer, bytes);
  for (round = 0; round < kRounds; ++round) {
    synchronise(round);
    for (i = 0; i < kMessages && size > 1; ++i) {
      if (rank == 0) CHECK(MPI_Bsend(message, kElements, MPI_INT, 1, i, MPI_COMM_WORLD) == MPI_SUCCESS);
      if (rank == 1) MPI_Recv(message, kElements, MPI_INT, 0, i, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
  }
  MPI_Buffer_detach(&buffer, &bytes);
  free(buffer);
  if (rank == 0) printf("all right\n");
  MPI_Finalize();
  return 0;
}
