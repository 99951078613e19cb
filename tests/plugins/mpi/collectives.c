/* A program that knows nothing of libina. Checks the results of the collectives that are taken over, and of some that
 * are not, and prints "all right" on rank 0. */
#include <stdbool.h>

#include "check.inc"

/* Reductions of one type: `sum` elements are small enough for all types. */
#define REDUCTIONS(TYPE, MPI_TYPE)                                                         \
  static void reduce_##TYPE(MPI_Comm comm, int count) {                                    \
    int me, ranks, i, root;                                                                \
    TYPE *in, *out, *whole;                                                                \
    MPI_Comm_rank(comm, &me);                                                              \
    MPI_Comm_size(comm, &ranks);                                                           \
    in = calloc(count + 1, sizeof *in), out = calloc(count + 1, sizeof *out);              \
    whole = calloc((size_t)count * ranks + 1, sizeof *whole);                              \
    for (i = 0; i < count; ++i) in[i] = (TYPE)(i % 7 + me);                                \
    MPI_Allreduce(in, out, count, MPI_TYPE, MPI_SUM, comm);                                \
    for (i = 0; i < count; ++i)                                                            \
      CHECK(out[i] == (TYPE)(i % 7 * ranks + ranks * (ranks - 1) / 2));                    \
    MPI_Allreduce(in, out, count, MPI_TYPE, MPI_MAX, comm);                                \
    for (i = 0; i < count; ++i) CHECK(out[i] == (TYPE)(i % 7 + ranks - 1));                \
    memcpy(out, in, count * sizeof *in);                                                   \
    MPI_Allreduce(MPI_IN_PLACE, out, count, MPI_TYPE, MPI_MIN, comm);                      \
    for (i = 0; i < count; ++i) CHECK(out[i] == (TYPE)(i % 7));                            \
    for (root = 0; root < ranks; ++root) {                                                 \
      memset(out, 0, count * sizeof *out);                                                 \
      MPI_Reduce(in, me == root ? out : NULL, count, MPI_TYPE, MPI_SUM, root, comm);       \
      for (i = 0; me == root && i < count; ++i)                                            \
        CHECK(out[i] == (TYPE)(i % 7 * ranks + ranks * (ranks - 1) / 2));                  \
    }                                                                                      \
    for (i = 0; i < count * ranks; ++i) whole[i] = (TYPE)(i % 5 + me);                     \
    MPI_Reduce_scatter_block(whole, out, count, MPI_TYPE, MPI_SUM, comm);                  \
    for (i = 0; i < count; ++i)                                                            \
      CHECK(out[i] == (TYPE)((me * count + i) % 5 * ranks + ranks * (ranks - 1) / 2));     \
    MPI_Reduce_scatter_block(MPI_IN_PLACE, whole, count, MPI_TYPE, MPI_SUM, comm);         \
    CHECK(memcmp(whole, out, count * sizeof *out) == 0);                                   \
    free(in), free(out), free(whole);                                                      \
  }
REDUCTIONS(int, MPI_INT)
REDUCTIONS(long, MPI_LONG)
REDUCTIONS(float, MPI_FLOAT)
REDUCTIONS(double, MPI_DOUBLE)
REDUCTIONS(unsigned, MPI_UNSIGNED)
REDUCTIONS(MPI_Aint, MPI_AINT)
REDUCTIONS(MPI_Offset, MPI_OFFSET)
REDUCTIONS(MPI_Count, MPI_COUNT)

/* Element i is true on rank 0 if i has bit 0, and on all others if it has bit 1. What is true is the type's highest
 * bit, which is none of its lowest byte's, or an odd number. */
#define LOGICALS(NAME, TYPE, MPI_TYPE)                                                        \
  static void logical_##NAME(MPI_Comm comm) {                                                 \
    enum { kCount = 4 * 6 };                                                                  \
    int me, ranks, i, op;                                                                     \
    MPI_Op ops[] = {MPI_LAND, MPI_LOR, MPI_LXOR};                                             \
    TYPE in[kCount * 4], out[kCount], high = (TYPE)((TYPE)1 << (sizeof(TYPE) * 8 - 1));       \
    MPI_Comm_rank(comm, &me);                                                                 \
    MPI_Comm_size(comm, &ranks);                                                              \
    if (ranks == 1) return; /* MPI copies then */                                             \
    for (i = 0; i < kCount * 4; ++i)                                                          \
      in[i] = i >> (me == 0 ? 0 : 1) & 1 ? (i % 3 == me % 3 ? high : (TYPE)(2 * i + 1)) : 0;  \
    for (op = 0; op < 3; ++op) {                                                              \
      int wanted[kCount];                                                                     \
      for (i = 0; i < kCount; ++i) {                                                          \
        int trues = (i & 1) + (i & 2 ? ranks - 1 : 0);                                        \
        wanted[i] = op == 0 ? trues == ranks : op == 1 ? trues > 0 : trues % 2;               \
      }                                                                                       \
      MPI_Allreduce(in, out, kCount, MPI_TYPE, ops[op], comm);                                \
      for (i = 0; i < kCount; ++i) CHECK(out[i] == (TYPE)wanted[i]);                          \
      memcpy(out, in, sizeof out);                                                            \
      MPI_Allreduce(MPI_IN_PLACE, out, kCount, MPI_TYPE, ops[op], comm);                      \
      for (i = 0; i < kCount; ++i) CHECK(out[i] == (TYPE)wanted[i]);                          \
      memset(out, 0, sizeof out);                                                             \
      MPI_Reduce(in, me == 0 ? out : NULL, kCount, MPI_TYPE, ops[op], 0, comm);               \
      for (i = 0; me == 0 && i < kCount; ++i) CHECK(out[i] == (TYPE)wanted[i]);               \
      MPI_Reduce_scatter_block(in, out, kCount, MPI_TYPE, ops[op], comm);                     \
      for (i = 0; i < kCount; ++i) CHECK(out[i] == (TYPE)wanted[i]); /* of period 4 */        \
    }                                                                                         \
  }
LOGICALS(bool, bool, MPI_C_BOOL)
LOGICALS(signed_char, signed char, MPI_SIGNED_CHAR)
LOGICALS(unsigned_char, unsigned char, MPI_UNSIGNED_CHAR)
LOGICALS(short, short, MPI_SHORT)
LOGICALS(int, int, MPI_INT)
LOGICALS(unsigned, unsigned, MPI_UINT32_T)
LOGICALS(long_long, long long, MPI_LONG_LONG)

static void logical(MPI_Comm comm) {
  logical_bool(comm);
  logical_signed_char(comm);
  logical_unsigned_char(comm);
  logical_short(comm);
  logical_int(comm);
  logical_unsigned(comm);
  logical_long_long(comm);
}

static void moves(MPI_Comm comm, int count) {
  int me, ranks, i, r, root;
  int* own = calloc(count + 1, sizeof *own);
  int *all, *back;
  MPI_Comm_rank(comm, &me);
  MPI_Comm_size(comm, &ranks);
  all = calloc((size_t)count * ranks + 1, sizeof *all);
  back = calloc((size_t)count * ranks + 1, sizeof *back);
  for (root = 0; root < ranks; ++root) {
    for (i = 0; i < count; ++i) own[i] = me * 1000 + i;
    MPI_Bcast(own, count, MPI_INT, root, comm);
    for (i = 0; i < count; ++i) CHECK(own[i] == root * 1000 + i);
  }
  for (i = 0; i < count; ++i) own[i] = me * 1000 + i;
  MPI_Allgather(own, count, MPI_INT, all, count, MPI_INT, comm);
  for (r = 0; r < ranks; ++r)
    for (i = 0; i < count; ++i) CHECK(all[r * count + i] == r * 1000 + i);
  memset(all, 0, sizeof *all * count * ranks);
  memcpy(all + me * count, own, sizeof *own * count);
  MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, all, count, MPI_INT, comm);
  for (r = 0; r < ranks; ++r)
    for (i = 0; i < count; ++i) CHECK(all[r * count + i] == r * 1000 + i);
  for (r = 0; r < ranks; ++r)
    for (i = 0; i < count; ++i) all[r * count + i] = me * 10000 + r * 100 + i % 100;
  MPI_Alltoall(all, count, MPI_INT, back, count, MPI_INT, comm);
  for (r = 0; r < ranks; ++r)
    for (i = 0; i < count; ++i) CHECK(back[r * count + i] == r * 10000 + me * 100 + i % 100);
  MPI_Alltoall(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, all, count, MPI_INT, comm);
  CHECK(memcmp(all, back, sizeof *all * count * ranks) == 0);
  MPI_Barrier(comm);
  free(own), free(all), free(back);
}

/* Ranks agree about the signature of a message, not about its datatype. */
static void derived_types(void) {
  double matrix[6][4], column[6], all[64][6];
  MPI_Datatype strided, swapped;
  int i, r, lengths[2] = {1, 1}, places[2] = {1, 0}, pair[2];
  MPI_Type_vector(6, 1, 4, MPI_DOUBLE, &strided);
  MPI_Type_commit(&strided);
  memset(matrix, 0, sizeof matrix);
  memset(column, 0, sizeof column);
  if (rank == 0) {
    for (i = 0; i < 6; ++i) matrix[i][2] = i + 0.5;
    MPI_Bcast(&matrix[0][2], 1, strided, 0, MPI_COMM_WORLD);
  } else {
    MPI_Bcast(column, 6, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    for (i = 0; i < 6; ++i) CHECK(column[i] == i + 0.5);
  }
  for (i = 0; i < 6; ++i) matrix[i][1] = rank * 10 + i;
  MPI_Allgather(&matrix[0][1], 1, strided, all, 6, MPI_DOUBLE, MPI_COMM_WORLD);
  for (r = 0; r < size; ++r)
    for (i = 0; i < 6; ++i) CHECK(all[r][i] == r * 10 + i);
  MPI_Type_free(&strided);
  /* No gaps, and yet another order than that of memory. */
  MPI_Type_indexed(2, lengths, places, MPI_INT, &swapped);
  MPI_Type_commit(&swapped);
  pair[0] = rank == 0 ? 7 : 0, pair[1] = rank == 0 ? 8 : 0;
  if (rank == 0)
    MPI_Bcast(pair, 1, swapped, 0, MPI_COMM_WORLD);
  else
    MPI_Bcast(pair, 2, MPI_INT, 0, MPI_COMM_WORLD);
  if (rank != 0) CHECK(pair[0] == 8 && pair[1] == 7);
  MPI_Type_free(&swapped);
}

static void add_one(void* in, void* inout, int* count, MPI_Datatype* type) {
  int i;
  (void)type;
  for (i = 0; i < *count; ++i) ((int*)inout)[i] += ((int*)in)[i];
}

/* Calls that fall through to MPI. */
static void others(void) {
  MPI_Op op;
  int one = 1, sum = 0;
  struct { double value; int rank; } best, mine = {1.0 + rank, rank};
  unsigned high = rank, most = 0;
  signed char byte = 100, bytes = 0;
  float complex_like[2] = {1, 2};
  MPI_Op_create(add_one, 1, &op);
  MPI_Allreduce(&one, &sum, 1, MPI_INT, op, MPI_COMM_WORLD);
  CHECK(sum == size);
  MPI_Op_free(&op);
  MPI_Allreduce(&mine, &best, 1, MPI_DOUBLE_INT, MPI_MAXLOC, MPI_COMM_WORLD);
  CHECK(best.rank == size - 1);
  MPI_Allreduce(&high, &most, 1, MPI_UNSIGNED, MPI_MAX, MPI_COMM_WORLD);
  CHECK(most == (unsigned)size - 1);
  MPI_Allreduce(&byte, &bytes, 1, MPI_SIGNED_CHAR, MPI_SUM, MPI_COMM_WORLD);
  CHECK(bytes == (signed char)(100 * size));
  MPI_Bcast(complex_like, 1, MPI_C_FLOAT_COMPLEX, 0, MPI_COMM_WORLD);
  MPI_Bcast(&mine, 1, MPI_DOUBLE_INT, 0, MPI_COMM_WORLD);
  CHECK(mine.rank == 0 && mine.value == 1.0);
  MPI_Barrier(MPI_COMM_SELF);
}

/* A message whose receiver waits for it before it makes the collective call that the sender is in. */
static void pending_message(void) {
  enum { kCount = 1 << 20 };
  double* data = calloc(kCount, sizeof *data);
  MPI_Request request;
  int sum, one = 1;
  if (rank == 0) {
    data[kCount - 1] = 5;
    MPI_Isend(data, kCount, MPI_DOUBLE, 1, 3, MPI_COMM_WORLD, &request);
  } else if (rank == 1) {
    MPI_Recv(data, kCount, MPI_DOUBLE, 0, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    CHECK(data[kCount - 1] == 5);
  }
  MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  CHECK(sum == size);
  if (rank == 0) MPI_Wait(&request, MPI_STATUS_IGNORE);
  free(data);
}

static void all_of(MPI_Comm comm) {
  int counts[] = {0, 1, 1000, 50000}, i;
  for (i = 0; i < 4; ++i) {
    reduce_int(comm, counts[i]);
    reduce_long(comm, counts[i]);
    reduce_float(comm, counts[i]);
    reduce_double(comm, counts[i]);
    reduce_unsigned(comm, counts[i]);
    reduce_MPI_Aint(comm, counts[i]);
    reduce_MPI_Offset(comm, counts[i]);
    reduce_MPI_Count(comm, counts[i]);
    moves(comm, counts[i]);
  }
  logical(comm);
}

int main(int argc, char** argv) {
  MPI_Comm half, twin, between;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  all_of(MPI_COMM_WORLD);
  derived_types();
  others();
  if (size > 1) pending_message();
  MPI_Comm_dup(MPI_COMM_WORLD, &twin);
  MPI_Comm_split(twin, rank % 2, -rank, &half);
  all_of(half);
  all_of(twin);
  if (size > 1) {
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, rank % 2 == 0 ? (size - 1) / 2 * 2 + 1 - (size % 2 ? 2 : 0) : (size - 1) / 2 * 2, 9, &between);
    MPI_Barrier(between);
    MPI_Comm_free(&between);
  }
  MPI_Comm_free(&half);
  MPI_Comm_free(&twin);
  if (rank == 0) printf("all right\n");
  MPI_Finalize();
  return 0;
}
