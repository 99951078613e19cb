/* A rank of bench mpi, which knows nothing of libina.
 *
 *     mpi_bench REPETITIONS BYTES...
 *
 * BYTES: of the larger buffer of a rank, in float32. Rank 0 prints {"version": text, "us": {"OP BYTES": [time, ...]}}: the
 * time of each call on its slowest rank, after a start line. Calls outside the measurement (start line, times) are MPI's own
 * (PMPI_), whether its functions are taken over or not. A wrong result ends the job. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kWarmUps = 3 };

struct run {
  int rank, ranks, count, share; /* elements of the larger buffer, and of a rank's part of it */
  float *large, *other, *part;
};

static void fail(const struct run* r, const char* op) {
  fprintf(stderr, "mpi_bench: rank %d: wrong result of %s with %d elements\n", r->rank, op, r->count);
  MPI_Abort(MPI_COMM_WORLD, 1);
}

static void allreduce(struct run* r) {
  MPI_Allreduce(r->large, r->other, r->count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}
static void iallreduce(struct run* r) {
  MPI_Request request;
  MPI_Iallreduce(r->large, r->other, r->count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD, &request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
}
static void reduce(struct run* r) {
  MPI_Reduce(r->large, r->other, r->count, MPI_FLOAT, MPI_SUM, 0, MPI_COMM_WORLD);
}
static void reduce_scatter(struct run* r) {
  MPI_Reduce_scatter_block(r->large, r->part, r->share, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}
static void bcast(struct run* r) {
  MPI_Bcast(r->rank == 0 ? r->large : r->other, r->count, MPI_FLOAT, 0, MPI_COMM_WORLD);
}
static void allgather(struct run* r) {
  MPI_Allgather(r->large, r->share, MPI_FLOAT, r->other, r->share, MPI_FLOAT, MPI_COMM_WORLD);
}
static void gather(struct run* r) {
  MPI_Gather(r->large, r->share, MPI_FLOAT, r->other, r->share, MPI_FLOAT, 0, MPI_COMM_WORLD);
}
static void scatter(struct run* r) {
  MPI_Scatter(r->large, r->share, MPI_FLOAT, r->part, r->share, MPI_FLOAT, 0, MPI_COMM_WORLD);
}
static void alltoall(struct run* r) {
  MPI_Alltoall(r->large, r->share, MPI_FLOAT, r->other, r->share, MPI_FLOAT, MPI_COMM_WORLD);
}
static void barrier(struct run* r) {
  (void)r;
  MPI_Barrier(MPI_COMM_WORLD);
}

/* Rank i's elements are i + 1. The right last element of a result, 0: nothing arrives on this rank. */
static float sum_of(const struct run* r) { return r->ranks * (r->ranks + 1) / 2.0f; }
static float at_root(const struct run* r, float value) { return r->rank == 0 ? value : 0; }
static float expect_sum(const struct run* r) { return sum_of(r); }
static float expect_sum_at_root(const struct run* r) { return at_root(r, sum_of(r)); }
static float expect_first(const struct run* r) { return r->rank == 0 ? 0 : 1; }
static float expect_last(const struct run* r) { return (float)r->ranks; }
static float expect_last_at_root(const struct run* r) { return at_root(r, (float)r->ranks); }
static float expect_from_root(const struct run* r) { return (void)r, 1; }
static float expect_nothing(const struct run* r) { return (void)r, 0; }

static const struct operation {
  const char* name;
  void (*call)(struct run*);
  float (*expected)(const struct run*);
  int in_part; /* the result is a rank's part */
} operations[] = {
    {"allreduce", allreduce, expect_sum, 0},
    {"iallreduce", iallreduce, expect_sum, 0},
    {"reduce", reduce, expect_sum_at_root, 0},
    {"reduce_scatter", reduce_scatter, expect_sum, 1},
    {"bcast", bcast, expect_first, 0},
    {"allgather", allgather, expect_last, 0},
    {"gather", gather, expect_last_at_root, 0},
    {"scatter", scatter, expect_from_root, 1},
    {"alltoall", alltoall, expect_last, 0},
    {"barrier", barrier, expect_nothing, 0},
};

static void measure(struct run* r, const struct operation* op, int repetitions, int first) {
  const float* result = op->in_part ? r->part + r->share - 1 : r->other + r->count - 1;
  int i;
  for (i = -kWarmUps; i < repetitions; ++i) {
    double begin, taken, slowest = 0;
    memset(r->other, 0, sizeof(float) * r->count);
    memset(r->part, 0, sizeof(float) * r->share);
    PMPI_Barrier(MPI_COMM_WORLD);
    begin = MPI_Wtime();
    op->call(r);
    taken = 1e6 * (MPI_Wtime() - begin);
    if (*result != op->expected(r)) fail(r, op->name);
    PMPI_Reduce(&taken, &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (r->rank != 0 || i < 0) continue;
    if (i == 0) printf("%s\"%s %zu\": [", first ? "" : ", ", op->name, op->call == barrier ? 0 : sizeof(float) * r->count);
    printf("%s%.3f", i == 0 ? "" : ", ", slowest);
  }
  if (r->rank == 0) printf("]");
}

int main(int argc, char** argv) {
  struct run r;
  const int repetitions = argc > 2 ? atoi(argv[1]) : 0;
  char version[MPI_MAX_LIBRARY_VERSION_STRING];
  int size, i, length, first = 1;
  size_t at;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &r.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &r.ranks);
  if (repetitions < 1) {
    if (r.rank == 0) fprintf(stderr, "mpi_bench REPETITIONS BYTES...\n");
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  MPI_Get_library_version(version, &length);
  for (i = 0; version[i] != '\0' && strchr("\n,\"\\", version[i]) == NULL; ++i)
    if (version[i] < ' ') version[i] = ' ';
  version[i] = '\0';
  if (r.rank == 0) printf("{\"version\": \"%s\", \"us\": {", version);
  for (size = 2; size < argc; ++size) {
    r.share = atoi(argv[size]) / (int)sizeof(float) / r.ranks;
    if (r.share < 1) r.share = 1;
    r.count = r.share * r.ranks;
    r.large = malloc(sizeof(float) * r.count);
    r.other = malloc(sizeof(float) * r.count);
    r.part = malloc(sizeof(float) * r.share);
    for (i = 0; i < r.count; ++i) r.large[i] = (float)(r.rank + 1);
    for (at = 0; at < sizeof operations / sizeof *operations; ++at) {
      if (operations[at].call == barrier && size > 2) continue;
      measure(&r, &operations[at], repetitions, first);
      first = 0;
    }
    free(r.large), free(r.other), free(r.part);
  }
  if (r.rank == 0) printf("}}\n");
  MPI_Finalize();
  return 0;
}
