/* Nonblocking collectives: their results, and that they neither wait for other ranks nor for this one's attention.
 * "nonblocking THREADS": so many threads, each with a communicator of its own, at MPI_THREAD_MULTIPLE. */
#include <pthread.h>
#include <sched.h>
#include <time.h>

#include "check.inc"

enum { kCount = 3000 };

/* All at once, on one communicator, and then again with what has been left of the buffers. */
static void all_kinds(MPI_Comm comm) {
  int me, ranks, i, r, flag = 0, done, index;
  double *in, *out, *most, *part, *parts;
  int *own, *all, *back, *alls, *gathered, *scattered, *counts, *places, *news, *exchanged;
  MPI_Request requests[13];
  MPI_Status statuses[13];
  MPI_Comm_rank(comm, &me);
  MPI_Comm_size(comm, &ranks);
  in = calloc((size_t)kCount * ranks, sizeof *in), out = calloc(kCount, sizeof *out);
  most = calloc(kCount, sizeof *most), part = calloc(kCount, sizeof *part), parts = calloc(kCount, sizeof *parts);
  own = calloc(kCount, sizeof *own), news = calloc(kCount, sizeof *news), scattered = calloc(kCount, sizeof *scattered);
  all = calloc((size_t)kCount * ranks, sizeof *all), back = calloc((size_t)kCount * ranks, sizeof *back);
  alls = calloc((size_t)kCount * ranks, sizeof *alls), gathered = calloc((size_t)kCount * ranks, sizeof *gathered);
  exchanged = calloc((size_t)kCount * ranks, sizeof *exchanged);
  counts = calloc(ranks, sizeof *counts), places = calloc(ranks, sizeof *places);
  for (r = 0; r < ranks; ++r) counts[r] = kCount, places[r] = (ranks - 1 - r) * kCount;
  for (i = 0; i < kCount * ranks; ++i) in[i] = i % 13 + me, all[i] = me * 100000 + i;
  for (i = 0; i < kCount; ++i) own[i] = me * 1000 + i, news[i] = me == 0 ? i : -1;
  MPI_Iallreduce(in, out, kCount, MPI_DOUBLE, MPI_SUM, comm, &requests[0]);
  MPI_Ireduce(in, most, kCount, MPI_DOUBLE, MPI_MAX, ranks - 1, comm, &requests[1]);
  MPI_Ireduce_scatter_block(in, part, kCount, MPI_DOUBLE, MPI_SUM, comm, &requests[2]);
  MPI_Ireduce_scatter(in, parts, counts, MPI_DOUBLE, MPI_SUM, comm, &requests[3]);
  MPI_Ibcast(news, kCount, MPI_INT, 0, comm, &requests[4]);
  MPI_Iallgather(own, kCount, MPI_INT, back, kCount, MPI_INT, comm, &requests[5]);
  MPI_Iallgatherv(own, kCount, MPI_INT, alls, counts, places, MPI_INT, comm, &requests[6]);
  MPI_Igather(own, kCount, MPI_INT, gathered, kCount, MPI_INT, 0, comm, &requests[7]);
  MPI_Iscatter(all, kCount, MPI_INT, scattered, kCount, MPI_INT, 0, comm, &requests[8]);
  MPI_Ibarrier(comm, &requests[9]);
  MPI_Ialltoall(all, kCount, MPI_INT, exchanged, kCount, MPI_INT, comm, &requests[10]);
  MPI_Waitany(11, requests, &index, &statuses[0]);
  CHECK(index >= 0 && index < 11 && requests[index] == MPI_REQUEST_NULL);
  while (!flag) MPI_Testall(11, requests, &flag, MPI_STATUSES_IGNORE);
  for (i = 0; i < kCount; ++i) {
    CHECK(out[i] == i % 13 * ranks + ranks * (ranks - 1) / 2);
    if (me == ranks - 1) CHECK(most[i] == i % 13 + ranks - 1);
    CHECK(part[i] == (me * kCount + i) % 13 * ranks + ranks * (ranks - 1) / 2);
    CHECK(parts[i] == part[i] && news[i] == i && scattered[i] == me * kCount + i);
    for (r = 0; r < ranks; ++r) {
      CHECK(back[r * kCount + i] == r * 1000 + i && alls[places[r] + i] == r * 1000 + i);
      if (me == 0) CHECK(gathered[r * kCount + i] == r * 1000 + i);
      CHECK(exchanged[r * kCount + i] == r * 100000 + me * kCount + i);
    }
  }
  /* In place, and with counts that each rank knows for itself. */
  MPI_Iallreduce(MPI_IN_PLACE, out, kCount, MPI_DOUBLE, MPI_MIN, comm, &requests[0]);
  MPI_Ireduce_scatter_block(MPI_IN_PLACE, in, kCount, MPI_DOUBLE, MPI_SUM, comm, &requests[1]);
  MPI_Ialltoallv(MPI_IN_PLACE, NULL, NULL, MPI_DATATYPE_NULL, all, counts, places, MPI_INT, comm, &requests[2]);
  MPI_Igatherv(own, kCount, MPI_INT, gathered, counts, places, MPI_INT, 0, comm, &requests[3]);
  MPI_Iscatterv(back, counts, places, MPI_INT, scattered, kCount, MPI_INT, 0, comm, &requests[4]);
  for (done = 0; done < 5;) {
    int indices[5];
    MPI_Waitsome(5, requests, &index, indices, statuses);
    CHECK(index != MPI_UNDEFINED && index > 0);
    done += index;
  }
  for (i = 0; i < kCount; ++i) {
    CHECK(in[i] == part[i]);
    CHECK(scattered[i] == (ranks - 1 - me) * 1000 + i);
    for (r = 0; r < ranks; ++r) {
      CHECK(all[places[r] + i] == r * 100000 + (ranks - 1 - me) * kCount + i);
      if (me == 0) CHECK(gathered[places[r] + i] == r * 1000 + i);
    }
  }
  free(in), free(out), free(most), free(part), free(parts), free(own), free(news), free(scattered);
  free(all), free(back), free(alls), free(gathered), free(exchanged), free(counts), free(places);
}

/* A call does not wait for the others: rank 1 makes it after it has heard from rank 0, which has. */
static void no_waiting(MPI_Comm comm) {
  int me, told = 0, sum = 0, one = 1;
  MPI_Request request;
  MPI_Comm_rank(comm, &me);
  if (me == 1) MPI_Recv(&told, 1, MPI_INT, 0, 4, comm, MPI_STATUS_IGNORE);
  MPI_Iallreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm, &request);
  if (me == 0) MPI_Send(&one, 1, MPI_INT, 1, 4, comm);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  CHECK(sum == size);
}

/* The sum arrives although this rank does not call MPI. */
static void own_progress(int taken_over) {
  enum { kMany = 100000 };
  double* in = malloc(kMany * sizeof *in);
  volatile double* out = malloc(kMany * sizeof *out);
  const time_t deadline = time(NULL) + 60;
  MPI_Request request;
  int i;
  for (i = 0; i < kMany; ++i) in[i] = 1, out[i] = 0;
  MPI_Iallreduce(in, (void*)out, kMany, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, &request);
  for (i = 0; taken_over && i < kMany;) {
    if (out[i] == size)
      ++i;
    else if (time(NULL) < deadline)
      sched_yield();
    else
      CHECK(!"the sum has arrived");
  }
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  for (i = 0; i < kMany; ++i) CHECK(out[i] == size);
  free(in), free((void*)out);
}

/* A communicator may go while a request of it is there. */
static void freed_before(void) {
  MPI_Comm twin;
  MPI_Request requests[2];
  int one = 1, sum = 0, most = 0, flag = 0;
  MPI_Comm_dup(MPI_COMM_WORLD, &twin);
  MPI_Barrier(twin);
  MPI_Iallreduce(&one, &sum, 1, MPI_INT, MPI_SUM, twin, &requests[0]);
  MPI_Iallreduce(&rank, &most, 1, MPI_INT, MPI_MAX, twin, &requests[1]);
  MPI_Comm_free(&twin);
  MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
  while (!flag) MPI_Request_get_status(requests[1], &flag, MPI_STATUS_IGNORE);
  MPI_Wait(&requests[1], MPI_STATUS_IGNORE);
  CHECK(sum == size && most == size - 1);
}

/* Beside messages, which their receivers ask for last. */
static void beside_messages(void) {
  enum { kLong = 1 << 18 };
  double *out = calloc(kLong, sizeof *out), *in = calloc(kLong, sizeof *in), sum = 0, one = 1;
  MPI_Request requests[3];
  out[kLong - 1] = rank + 1;
  MPI_Isend(out, kLong, MPI_DOUBLE, (rank + 1) % size, 5, MPI_COMM_WORLD, &requests[0]);
  MPI_Iallreduce(&one, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, &requests[1]);
  MPI_Irecv(in, kLong, MPI_DOUBLE, (rank + size - 1) % size, 5, MPI_COMM_WORLD, &requests[2]);
  MPI_Waitall(3, requests, MPI_STATUSES_IGNORE);
  CHECK(sum == size && in[kLong - 1] == (rank + size - 1) % size + 1);
  free(out), free(in);
}

/* Not agreed about: the ranks of a new communicator have not met yet. */
static void first_call(void) {
  MPI_Comm twin;
  MPI_Comm_dup(MPI_COMM_WORLD, &twin);
  no_waiting(twin);
  MPI_Comm_free(&twin);
}

static void* in_thread(void* comm) {
  int round;
  for (round = 0; round < 5; ++round) {
    MPI_Barrier(*(MPI_Comm*)comm);
    all_kinds(*(MPI_Comm*)comm);
  }
  return NULL;
}

static void in_threads(int threads) {
  MPI_Comm comms[8];
  pthread_t running[8];
  int t;
  for (t = 0; t < threads; ++t) MPI_Comm_dup(MPI_COMM_WORLD, &comms[t]);
  for (t = 0; t < threads; ++t) pthread_create(&running[t], NULL, in_thread, &comms[t]);
  for (t = 0; t < threads; ++t) pthread_join(running[t], NULL);
  for (t = 0; t < threads; ++t) MPI_Comm_free(&comms[t]);
}

int main(int argc, char** argv) {
  const int threads = argc > 1 ? atoi(argv[1]) : 0;
  const int wanted = threads ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE;
  int level, now;
  MPI_Init_thread(&argc, &argv, wanted, &level);
  MPI_Query_thread(&now);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  CHECK(level == wanted && now == level);
  if (threads) {
    in_threads(threads);
  } else {
    all_kinds(MPI_COMM_WORLD);
    if (size > 1) {
      no_waiting(MPI_COMM_WORLD);
      first_call();
      beside_messages();
    }
    own_progress(getenv("TAKEN_OVER") != NULL);
    if (getenv("TAKEN_OVER")) freed_before(); /* Debian 12's Open MPI does not survive it itself */
  }
  if (rank == 0) printf("all right\n");
  MPI_Finalize();
  return 0;
}
