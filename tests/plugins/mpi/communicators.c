/* Communicators that come and go, and processes with and without the library. "communicators WHAT": see main(). */
#define _DEFAULT_SOURCE
#include <string.h>
#include <unistd.h>

#include "check.inc"

/* Each gives a number of its own; the sum is that of the ranks of the communicator alone. */
static void sum(MPI_Comm comm) {
  int me, ranks, in, out = 0;
  MPI_Comm_rank(comm, &me);
  MPI_Comm_size(comm, &ranks);
  in = me + 1;
  CHECK(MPI_Allreduce(&in, &out, 1, MPI_INT, MPI_SUM, comm) == MPI_SUCCESS);
  CHECK(out == ranks * (ranks + 1) / 2);
}

static MPI_Comm dup_of(MPI_Comm comm) {
  MPI_Comm made;
  MPI_Comm_dup(comm, &made);
  return made;
}

static MPI_Comm split_of(MPI_Comm comm, int colour, int key) {
  MPI_Comm made;
  MPI_Comm_split(comm, colour, key, &made);
  return made;
}

static void sum_and_free(MPI_Comm comm) {
  if (comm == MPI_COMM_NULL) return;
  sum(comm);
  MPI_Comm_free(&comm);
}

/* Some processes are without the library: RANKS below the argument have it. */
static void part(int with) {
  MPI_Comm apart = split_of(MPI_COMM_WORLD, rank < with, -rank), halves;
  sum(MPI_COMM_WORLD);
  sum(apart);
  sum_and_free(dup_of(apart));
  sum_and_free(dup_of(MPI_COMM_WORLD));
  halves = split_of(MPI_COMM_WORLD, rank % 2, 0);
  sum(halves);
  sum_and_free(dup_of(halves));
  MPI_Comm_free(&halves);
  MPI_Comm_free(&apart);
  sum(MPI_COMM_WORLD);
}

/* Parents and children are in different worlds. */
static void spawn(const char* program, int is_child) {
  MPI_Comm other, merged;
  int in = 1, out = 0, all;
  sum(MPI_COMM_WORLD);
  if (is_child)
    MPI_Comm_get_parent(&other);
  else
    MPI_Comm_spawn(program, (char*[]){"child", NULL}, 2, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &other, MPI_ERRCODES_IGNORE);
  sum(MPI_COMM_WORLD);
  MPI_Intercomm_merge(other, is_child, &merged);
  MPI_Comm_size(merged, &all);
  MPI_Allreduce(&in, &out, 1, MPI_INT, MPI_SUM, merged);
  CHECK(out == all && (is_child || all == size + 2));
  sum_and_free(dup_of(merged));
  sum(MPI_COMM_WORLD);
  sum_and_free(split_of(merged, is_child, 0)); /* of one world */
  sum_and_free(dup_of(MPI_COMM_WORLD));
  MPI_Comm_free(&merged);
  MPI_Comm_disconnect(&other);
}

/* Longer than INA_TIMEOUT_US. */
static void late(void) {
  int turn;
  for (turn = 0; turn < 2; ++turn) {
    MPI_Comm made = dup_of(MPI_COMM_WORLD);
    if (rank == turn) sleep(2);
    sum(made);
    if (rank == turn) sleep(2);
    sum(made);
    MPI_Comm_free(&made);
  }
  if (rank == 1) sleep(2);
}

/* A message that needs its sender's progress, while that is in each of our calls. */
static void pending(void) {
  enum { kBytes = 8 << 20, kTurns = 10 };
  char* data = calloc(kBytes, 1);
  int turn, way;
  for (turn = 0; turn < kTurns; ++turn)
    for (way = 0; way < 3; ++way) {
      MPI_Request request;
      MPI_Comm made = dup_of(MPI_COMM_WORLD);
      if (way > 0) sum(made);
      if (rank == 0) {
        if (way == 2) MPI_Comm_free(&made); /* this rank frees and sends, the other receives and frees */
        MPI_Isend(data, kBytes, MPI_CHAR, 1, 0, MPI_COMM_WORLD, &request);
        if (way == 0) sum(made);
        if (way < 2) MPI_Comm_free(&made);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
      } else {
        if (rank == 1) MPI_Recv(data, kBytes, MPI_CHAR, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (way == 0) sum(made);
        MPI_Comm_free(&made);
      }
    }
  free(data);
}

static long resident_pages(void) {
  long all = 0, resident = 0;
  FILE* file = fopen("/proc/self/statm", "r");
  CHECK(file && fscanf(file, "%ld %ld", &all, &resident) == 2);
  fclose(file);
  return resident;
}

/* Made and freed over and over: there is no more of anything at the end. */
static void loop(int times) {
  long before = 0;
  int i;
  for (i = 0; i < times; ++i) {
    sum_and_free(dup_of(MPI_COMM_WORLD));
    sum_and_free(split_of(MPI_COMM_WORLD, i % 3 == 0 ? rank % 2 : 0, i % 2 == 0 ? rank : -rank));
    if (i == times / 4) before = resident_pages();
  }
  CHECK(resident_pages() - before < (4 << 20) / 4096);
}

/* Many at a time, freed in an order of each rank's own, and made again. */
static void many(int count) {
  MPI_Comm* made = calloc(count, sizeof *made);
  int turn, i;
  for (turn = 0; turn < 2; ++turn) {
    for (i = 0; i < count; ++i) made[i] = dup_of(MPI_COMM_WORLD), sum(made[i]);
    for (i = 0; i < count; ++i) sum(made[i]);
    for (i = 0; i < count; ++i) MPI_Comm_free(&made[i]);
  }
  free(made);
}

/* Freed with an operation under way, which ends all the same, and the next one is used meanwhile. */
static void freed(void) {
  int i;
  for (i = 0; i < 20; ++i) {
    MPI_Comm first = dup_of(MPI_COMM_WORLD);
    MPI_Request request;
    double in = rank + 1, out = 0;
    sum(first);
    MPI_Iallreduce(&in, &out, 1, MPI_DOUBLE, MPI_SUM, first, &request);
    MPI_Comm_free(&first);
    sum_and_free(dup_of(MPI_COMM_WORLD));
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    CHECK(out == size * (size + 1) / 2.0);
  }
}

/* All ways to make one, and splits of splits. */
static void trees(MPI_Comm comm, int depth) {
  int me, ranks;
  MPI_Comm made;
  MPI_Group group, even;
  MPI_Request request;
  MPI_Comm_rank(comm, &me);
  MPI_Comm_size(comm, &ranks);
  sum(comm);
  MPI_Comm_idup(comm, &made, &request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  sum_and_free(made);
  MPI_Comm_group(comm, &group);
  MPI_Group_range_incl(group, 1, (int[1][3]){{0, (ranks - 1) / 2 * 2, 2}}, &even);
  if (me % 2 == 0) {
    MPI_Comm_create_group(comm, even, 5, &made);
    sum_and_free(made);
  }
  MPI_Comm_create(comm, even, &made);
  sum_and_free(made);
  MPI_Group_free(&even);
  MPI_Group_free(&group);
  if (depth == 0 || ranks == 1) return;
  made = split_of(comm, me < ranks / 2 ? 0 : me == ranks - 1 ? MPI_UNDEFINED : 1, -me);
  if (made != MPI_COMM_NULL) trees(made, depth - 1), MPI_Comm_free(&made);
  sum(comm);
}

int main(int argc, char** argv) {
  const char* const what = argv[1];
  const int number = argc > 2 ? atoi(argv[2]) : 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (strcmp(what, "part") == 0) part(number);
  if (strcmp(what, "spawn") == 0 || strcmp(what, "child") == 0) spawn(argv[0], what[0] == 'c');
  if (strcmp(what, "late") == 0) late();
  if (strcmp(what, "pending") == 0) pending();
  if (strcmp(what, "loop") == 0) loop(number);
  if (strcmp(what, "many") == 0) many(number);
  if (strcmp(what, "freed") == 0) freed();
  if (strcmp(what, "trees") == 0) trees(MPI_COMM_WORLD, 3);
  MPI_Finalize();
  if (rank == 0 && what[0] != 'c') printf("all right\n");
  return 0;
}
