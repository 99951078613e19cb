/* One thread frees a communicator. Before its call has returned another thread makes one, which gets the handle that has
 * come free, and uses it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>

#include "check.inc"

enum { kRounds = 20 };

static int holds; /* the next free is to return late */
static sem_t released, used;

/* Lets the other thread have its turn. */
static void hold(void) {
  if (!holds) return;
  holds = 0;
  sem_post(&released);
  sem_wait(&used);
}

/* Comes before MPI's function where that is called by its name, as the library does. */
__attribute__((visibility("default"))) int PMPI_Comm_free(MPI_Comm* comm) {
  int (*mpis)(MPI_Comm*);
  int status;
  *(void**)&mpis = dlsym(RTLD_NEXT, "PMPI_Comm_free");
  status = mpis(comm);
  hold();
  return status;
}

static void* free_it(void* comm) {
  MPI_Comm_free(comm);
  hold();
  return NULL;
}

static void sum(MPI_Comm comm) {
  const int own = rank + 1;
  int all = 0;
  MPI_Allreduce(&own, &all, 1, MPI_INT, MPI_SUM, comm);
  CHECK(all == size * (size + 1) / 2);
}

int main(int argc, char** argv) {
  int provided, round, reused = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank), MPI_Comm_size(MPI_COMM_WORLD, &size);
  CHECK(provided == MPI_THREAD_MULTIPLE);
  sem_init(&released, 0, 0), sem_init(&used, 0, 0);
  for (round = 0; round < kRounds; ++round) {
    MPI_Comm freed, next;
    pthread_t thread;
    MPI_Comm_dup(MPI_COMM_WORLD, &freed);
    sum(freed);
    if (rank == 0) {
      const MPI_Comm was = freed;
      holds = 1;
      pthread_create(&thread, NULL, free_it, &freed);
      sem_wait(&released);
      MPI_Comm_dup(MPI_COMM_WORLD, &next);
      reused += next == was;
      sum(next);
      sem_post(&used);
      pthread_join(thread, NULL);
    } else {
      MPI_Comm_free(&freed);
      MPI_Comm_dup(MPI_COMM_WORLD, &next);
      sum(next);
    }
    MPI_Comm_free(&next);
  }
  if (rank == 0) {
    fprintf(stderr, "reused: %d\n", reused);
    printf("all right\n");
  }
  MPI_Finalize();
  return 0;
}
