/* Collectives in which ranks have shares, of the same size and of different ones: the results, in place, with gaps, in
 * any order, and with datatypes that differ between ranks. With MPI 4, with large counts, too. */
#include "check.inc"

/* The share of a rank: some have none. */
static int share_of(int of, int count) { return of % 3 == 2 ? 0 : count + of; }

static int value(int from, int to, int at) { return from * 1000003 + to * 1009 + at; }

struct layout {
  int me, ranks, total;
  int *counts, *places; /* from the last rank to the first, with a gap of one element between them */
};

static struct layout layout_of(MPI_Comm comm, int count) {
  struct layout made;
  int r;
  MPI_Comm_rank(comm, &made.me);
  MPI_Comm_size(comm, &made.ranks);
  made.counts = calloc(made.ranks, sizeof(int)), made.places = calloc(made.ranks, sizeof(int));
  made.total = 0;
  for (r = made.ranks - 1; r >= 0; --r) {
    made.counts[r] = share_of(r, count);
    made.places[r] = made.total;
    made.total += made.counts[r] + 1;
  }
  return made;
}

static void release(struct layout l) { free(l.counts), free(l.places); }

static int* filled(int count) {
  int *made = malloc(sizeof(int) * (count + 1)), i;
  for (i = 0; i <= count; ++i) made[i] = -1;
  return made;
}

/* Each rank's block is that of `from` for `to`, and the gaps are as they were. */
static void check_blocks(struct layout l, const int* all, int to) {
  int r, i;
  for (r = 0; r < l.ranks; ++r) {
    for (i = 0; i < l.counts[r]; ++i) CHECK(all[l.places[r] + i] == value(r, to, i));
    CHECK(all[l.places[r] + l.counts[r]] == -1);
  }
}

static void uneven(MPI_Comm comm, int count) {
  struct layout l = layout_of(comm, count);
  const int own = l.counts[l.me];
  int *mine = filled(own), *all = filled(l.total), i, r, root;
  for (i = 0; i < own; ++i) mine[i] = value(l.me, 7, i);
  MPI_Allgatherv(mine, own, MPI_INT, all, l.counts, l.places, MPI_INT, comm);
  check_blocks(l, all, 7);
  for (r = 0; r < l.ranks; ++r)
    for (i = 0; r != l.me && i < l.counts[r]; ++i) all[l.places[r] + i] = 0;
  MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, all, l.counts, l.places, MPI_INT, comm);
  check_blocks(l, all, 7);
  for (root = 0; root < l.ranks; ++root) {
    const int at_root = l.me == root;
    free(all), all = filled(l.total);
    for (i = 0; i < own; ++i) mine[i] = value(l.me, root, i);
    MPI_Gatherv(mine, own, MPI_INT, at_root ? all : NULL, at_root ? l.counts : NULL, at_root ? l.places : NULL, MPI_INT,
                root, comm);
    if (at_root) check_blocks(l, all, root);
    for (r = 0; at_root && r < l.ranks; ++r)
      for (i = 0; r != l.me && i < l.counts[r]; ++i) all[l.places[r] + i] = 0;
    MPI_Gatherv(at_root ? MPI_IN_PLACE : mine, own, MPI_INT, all, l.counts, l.places, MPI_INT, root, comm);
    if (at_root) check_blocks(l, all, root);
    memset(mine, 0, sizeof(int) * own);
    MPI_Scatterv(at_root ? all : NULL, at_root ? l.counts : NULL, at_root ? l.places : NULL, MPI_INT, mine, own, MPI_INT,
                 root, comm);
    for (i = 0; i < own; ++i) CHECK(mine[i] == value(l.me, root, i));
    memset(mine, 0, sizeof(int) * own);
    MPI_Scatterv(all, l.counts, l.places, MPI_INT, at_root ? MPI_IN_PLACE : mine, own, MPI_INT, root, comm);
    for (i = 0; !at_root && i < own; ++i) CHECK(mine[i] == value(l.me, root, i));
  }
  free(mine), free(all), release(l);
}

/* Rank r sends rank d share_of(r + d) elements. The buffers are entered from their ends: displacements are negative. */
static void exchange(MPI_Comm comm, int count) {
  int me, ranks, r, i, total = 0;
  int *counts, *places, *out, *in;
  MPI_Comm_rank(comm, &me);
  MPI_Comm_size(comm, &ranks);
  counts = calloc(ranks, sizeof(int)), places = calloc(ranks, sizeof(int));
  for (r = 0; r < ranks; ++r) {
    counts[r] = share_of(me + r, count);
    total += counts[r];
    places[r] = -total;
  }
  out = filled(total), in = filled(total);
  for (r = 0; r < ranks; ++r)
    for (i = 0; i < counts[r]; ++i) out[total + places[r] + i] = value(me, r, i);
  MPI_Alltoallv(out + total, counts, places, MPI_INT, in + total, counts, places, MPI_INT, comm);
  for (r = 0; r < ranks; ++r)
    for (i = 0; i < counts[r]; ++i) CHECK(in[total + places[r] + i] == value(r, me, i));
  MPI_Alltoallv(MPI_IN_PLACE, NULL, NULL, MPI_DATATYPE_NULL, out + total, counts, places, MPI_INT, comm);
  CHECK(memcmp(in, out, sizeof(int) * total) == 0);
  free(counts), free(places), free(out), free(in);
}

static void even(MPI_Comm comm, int count) {
  int me, ranks, r, i, root;
  int *mine, *all;
  MPI_Comm_rank(comm, &me);
  MPI_Comm_size(comm, &ranks);
  mine = filled(count), all = filled(count * ranks);
  for (root = 0; root < ranks; ++root) {
    for (i = 0; i < count; ++i) mine[i] = value(me, root, i);
    MPI_Gather(mine, count, MPI_INT, me == root ? all : NULL, count, MPI_INT, root, comm);
    for (r = 0; me == root && r < ranks; ++r)
      for (i = 0; i < count; ++i) CHECK(all[r * count + i] == value(r, root, i));
    for (i = 0; me == root && i < count * ranks; ++i)
      if (i / (count ? count : 1) != me) all[i] = 0;
    MPI_Gather(me == root ? MPI_IN_PLACE : mine, count, MPI_INT, all, count, MPI_INT, root, comm);
    for (r = 0; me == root && r < ranks; ++r)
      for (i = 0; i < count; ++i) CHECK(all[r * count + i] == value(r, root, i));
    memset(mine, 0, sizeof(int) * count);
    MPI_Scatter(me == root ? all : NULL, count, MPI_INT, mine, count, MPI_INT, root, comm);
    for (i = 0; i < count; ++i) CHECK(mine[i] == value(me, root, i));
    memset(mine, 0, sizeof(int) * count);
    MPI_Scatter(all, count, MPI_INT, me == root ? MPI_IN_PLACE : mine, count, MPI_INT, root, comm);
    for (i = 0; me != root && i < count; ++i) CHECK(mine[i] == value(me, root, i));
  }
  free(mine), free(all);
}

static void sums(MPI_Comm comm, int count) {
  struct layout l = layout_of(comm, count);
  double *all, *mine;
  int i, r, before = 0, total = 0;
  for (r = 0; r < l.ranks; ++r) {
    if (r < l.me) before += l.counts[r];
    total += l.counts[r];
  }
  all = calloc(total + 1, sizeof *all), mine = calloc(l.counts[l.me] + 1, sizeof *mine);
  for (i = 0; i < total; ++i) all[i] = i % 11 + l.me;
  MPI_Reduce_scatter(all, mine, l.counts, MPI_DOUBLE, MPI_SUM, comm);
  for (i = 0; i < l.counts[l.me]; ++i)
    CHECK(mine[i] == (before + i) % 11 * l.ranks + l.ranks * (l.ranks - 1) / 2);
  MPI_Reduce_scatter(MPI_IN_PLACE, all, l.counts, MPI_DOUBLE, MPI_SUM, comm);
  CHECK(memcmp(mine, all, sizeof *mine * l.counts[l.me]) == 0);
  free(all), free(mine), release(l);
}

/* The root has columns of a matrix, the others have numbers. */
static void derived_types(void) {
  enum { kRows = 5 };
  double(*matrix)[64] = calloc(kRows, sizeof *matrix);
  double own[kRows];
  int i, r, counts[64], places[64];
  MPI_Datatype column, resized;
  MPI_Type_vector(kRows, 1, 64, MPI_DOUBLE, &column);
  MPI_Type_create_resized(column, 0, sizeof(double), &resized);
  MPI_Type_commit(&resized);
  for (r = 0; r < size; ++r) counts[r] = 1, places[r] = size - 1 - r;
  for (i = 0; i < kRows; ++i) own[i] = rank * 10 + i;
  MPI_Gatherv(own, kRows, MPI_DOUBLE, matrix, counts, places, resized, 0, MPI_COMM_WORLD);
  for (r = 0; rank == 0 && r < size; ++r)
    for (i = 0; i < kRows; ++i) CHECK(matrix[i][size - 1 - r] == r * 10 + i);
  memset(own, 0, sizeof own);
  MPI_Scatterv(matrix, counts, places, resized, own, kRows, MPI_DOUBLE, 0, MPI_COMM_WORLD);
  for (i = 0; i < kRows; ++i) CHECK(own[i] == rank * 10 + i);
  memset(matrix, 0, sizeof *matrix * kRows);
  MPI_Gather(own, kRows, MPI_DOUBLE, matrix, 1, resized, 0, MPI_COMM_WORLD);
  for (r = 0; rank == 0 && r < size; ++r)
    for (i = 0; i < kRows; ++i) CHECK(matrix[i][r] == r * 10 + i);
  memset(own, 0, sizeof own);
  MPI_Scatter(matrix, 1, resized, own, kRows, MPI_DOUBLE, 0, MPI_COMM_WORLD);
  for (i = 0; i < kRows; ++i) CHECK(own[i] == rank * 10 + i);
  MPI_Allgatherv(own, kRows, MPI_DOUBLE, matrix, counts, places, resized, MPI_COMM_WORLD);
  for (r = 0; r < size; ++r)
    for (i = 0; i < kRows; ++i) CHECK(matrix[i][size - 1 - r] == r * 10 + i);
  /* Each to each, in place, by columns. */
  for (r = 0; r < size; ++r)
    for (i = 0; i < kRows; ++i) matrix[i][size - 1 - r] = value(rank, r, i);
  MPI_Alltoallv(MPI_IN_PLACE, NULL, NULL, MPI_DATATYPE_NULL, matrix, counts, places, resized, MPI_COMM_WORLD);
  for (r = 0; r < size; ++r)
    for (i = 0; i < kRows; ++i) CHECK(matrix[i][size - 1 - r] == value(r, rank, i));
  MPI_Type_free(&column), MPI_Type_free(&resized);
  free(matrix);
}

#if MPI_VERSION >= 4
static void large_counts(void) {
  enum { kCount = 1000 };
  double in[kCount], out[kCount], *all = calloc(kCount * size, sizeof *all);
  MPI_Count counts[64];
  MPI_Aint places[64];
  MPI_Request request;
  int i, r;
  for (r = 0; r < size; ++r) counts[r] = kCount, places[r] = (MPI_Aint)(size - 1 - r) * kCount;
  for (i = 0; i < kCount; ++i) in[i] = rank + i;
  MPI_Allreduce_c(in, out, kCount, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  for (i = 0; i < kCount; ++i) CHECK(out[i] == i * size + size * (size - 1) / 2);
  MPI_Reduce_c(in, out, kCount, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
  if (rank == 0) CHECK(out[3] == size + 2);
  MPI_Allgatherv_c(in, kCount, MPI_DOUBLE, all, counts, places, MPI_DOUBLE, MPI_COMM_WORLD);
  for (r = 0; r < size; ++r) CHECK(all[places[r] + 5] == r + 5);
  for (r = 0; r < size; ++r) all[places[r]] = value(rank, r, 0);
  MPI_Ialltoallv_c(MPI_IN_PLACE, NULL, NULL, MPI_DATATYPE_NULL, all, counts, places, MPI_DOUBLE, MPI_COMM_WORLD, &request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  for (r = 0; r < size; ++r) CHECK(all[places[r]] == value(r, rank, 0));
  MPI_Bcast_c(in, kCount, MPI_DOUBLE, size - 1, MPI_COMM_WORLD);
  CHECK(in[9] == size - 1 + 9);
  free(all);
}
#endif

int main(int argc, char** argv) {
  int counts[] = {0, 1, 999, 20000}, i;
  MPI_Comm odd;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &odd);
  for (i = 0; i < 4; ++i) {
    const MPI_Comm comms[] = {MPI_COMM_WORLD, odd};
    int c;
    for (c = 0; c < 2; ++c) {
      uneven(comms[c], counts[i]);
      exchange(comms[c], counts[i]);
      even(comms[c], counts[i]);
      sums(comms[c], counts[i]);
    }
  }
  derived_types();
#if MPI_VERSION >= 4
  large_counts();
#endif
  MPI_Comm_free(&odd);
  if (rank == 0) printf("all right\n");
  MPI_Finalize();
  return 0;
}
