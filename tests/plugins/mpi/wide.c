/* Collectives of more ranks than a switch has bits. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static int rank, size, wrong;

static void expect(int holds) { wrong += !holds; }

static void sums(void) {
  int data[1000];
  for (int i = 0; i < 1000; ++i) data[i] = rank + i;
  MPI_Allreduce(MPI_IN_PLACE, data, 1000, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  for (int i = 0; i < 1000; ++i) expect(data[i] == size * (size - 1) / 2 + size * i);
}

static void moves(void) {
  int data[10];
  for (int i = 0; i < 10; ++i) data[i] = rank == size - 1 ? i : -1;
  MPI_Bcast(data, 10, MPI_INT, size - 1, MPI_COMM_WORLD);
  for (int i = 0; i < 10; ++i) expect(data[i] == i);
  int* const send = malloc(sizeof(int) * size);
  int* const received = malloc(sizeof(int) * size);
  MPI_Allgather(&rank, 1, MPI_INT, received, 1, MPI_INT, MPI_COMM_WORLD);
  for (int i = 0; i < size; ++i) expect(received[i] == i);
  for (int i = 0; i < size; ++i) send[i] = 1000 * rank + i;
  MPI_Alltoall(send, 1, MPI_INT, received, 1, MPI_INT, MPI_COMM_WORLD);
  for (int i = 0; i < size; ++i) expect(received[i] == 1000 * i + rank);
  free(send);
  free(received);
}

static void halves(void) {
  MPI_Comm half;
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &half);
  int count = 1;
  MPI_Allreduce(MPI_IN_PLACE, &count, 1, MPI_INT, MPI_SUM, half);
  expect(count == (size + 1 - rank % 2) / 2);
  MPI_Comm_free(&half);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  sums();
  moves();
  halves();
  MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (rank == 0) puts(wrong == 0 ? "all right" : "wrong");
  MPI_Finalize();
  return wrong != 0;
}
