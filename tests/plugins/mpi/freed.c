/* Handles that are freed while a nonblocking call still needs them: the datatypes of both sides. "freed comm": the
 * communicator, too. */
#include "check.inc"

enum { kElements = 500, kSendStride = 2, kRecvStride = 3, kMostRanks = 8 };

static int ranks, free_comm;

static int value(int from, int to, int at) { return from * 1000003 + to * 1009 + at; }

/* Every stride-th integer; the next element begins where this one's last gap ends. */
static MPI_Datatype strided(int stride) {
  MPI_Datatype vector, type;
  MPI_Type_vector(kElements, 1, stride, MPI_INT, &vector);
  MPI_Type_create_resized(vector, 0, (MPI_Aint)(kElements * stride * sizeof(int)), &type);
  MPI_Type_free(&vector);
  MPI_Type_commit(&type);
  return type;
}

static int in[kMostRanks * kElements * kSendStride], out[kMostRanks * kElements * kRecvStride];
static const int one_each[] = {1, 1, 1, 1, 1, 1, 1, 1}, in_order[] = {0, 1, 2, 3, 4, 5, 6, 7};

static void fill(int blocks) {
  int block, i;
  for (i = 0; i < kMostRanks * kElements * kSendStride; ++i) in[i] = -2;
  for (i = 0; i < kMostRanks * kElements * kRecvStride; ++i) out[i] = -1;
  for (block = 0; block < blocks; ++block)
    for (i = 0; i < kElements; ++i) in[(block * kElements + i) * kSendStride] = value(rank, block, i);
}

/* `block` is what `from` had for `to`, and its gaps are as they were. */
static void check_block(const int* buffer, int stride, int gap, int block, int from, int to) {
  int i, j;
  for (i = 0; i < kElements; ++i) {
    const int* element = buffer + (block * kElements + i) * stride;
    CHECK(element[0] == value(from, to, i));
    for (j = 1; j < stride; ++j) CHECK(element[j] == gap);
  }
}

/* Frees what the call was given, makes others of the same kind, and waits. */
static void wait_without(MPI_Datatype* send, MPI_Datatype* recv, MPI_Comm* comm, MPI_Request* request) {
  MPI_Datatype others[20];
  MPI_Comm other = MPI_COMM_NULL;
  int i;
  MPI_Type_free(send), MPI_Type_free(recv);
  if (free_comm) MPI_Comm_free(comm), MPI_Comm_dup(MPI_COMM_WORLD, &other);
  for (i = 0; i < 20; ++i) MPI_Type_vector(kElements / 2, 1, 5 + i, MPI_CHAR, &others[i]), MPI_Type_commit(&others[i]);
  MPI_Wait(request, MPI_STATUS_IGNORE);
  for (i = 0; i < 20; ++i) MPI_Type_free(&others[i]);
  MPI_Comm_free(free_comm ? &other : comm);
}

enum call { kBcast, kAllgather, kAllgatherv, kGather, kGatherv, kScatter, kScatterv, kAlltoall, kAlltoallv, kCalls };

static void start(enum call call, MPI_Datatype send, MPI_Datatype recv, int root, MPI_Comm comm, MPI_Request* request) {
  switch (call) {
    case kBcast:
      MPI_Ibcast(rank == root ? in : out, 1, rank == root ? send : recv, root, comm, request);
      return;
    case kAllgather:
      MPI_Iallgather(in, 1, send, out, 1, recv, comm, request);
      return;
    case kAllgatherv:
      MPI_Iallgatherv(in, 1, send, out, one_each, in_order, recv, comm, request);
      return;
    case kGather:
      MPI_Igather(in, 1, send, out, 1, recv, root, comm, request);
      return;
    case kGatherv:
      MPI_Igatherv(in, 1, send, out, one_each, in_order, recv, root, comm, request);
      return;
    case kScatter:
      MPI_Iscatter(in, 1, send, out, 1, recv, root, comm, request);
      return;
    case kScatterv:
      MPI_Iscatterv(in, one_each, in_order, send, out, 1, recv, root, comm, request);
      return;
    case kAlltoall:
      MPI_Ialltoall(in, 1, send, out, 1, recv, comm, request);
      return;
    default:
      MPI_Ialltoallv(in, one_each, in_order, send, out, one_each, in_order, recv, comm, request);
  }
}

static void check(enum call call, int root) {
  int r;
  switch (call) {
    case kBcast:
      if (rank != root) check_block(out, kRecvStride, -1, 0, root, 0);
      return;
    case kGather:
    case kGatherv:
      if (rank != root) return; /* fall through */
    case kAllgather:
    case kAllgatherv:
      for (r = 0; r < ranks; ++r) check_block(out, kRecvStride, -1, r, r, 0);
      return;
    case kScatter:
    case kScatterv:
      check_block(out, kRecvStride, -1, 0, root, rank);
      return;
    default:
      for (r = 0; r < ranks; ++r) check_block(out, kRecvStride, -1, r, r, rank);
  }
}

static void moved(enum call call) {
  const int root = ranks - 1;
  MPI_Datatype send = strided(kSendStride), recv = strided(kRecvStride);
  MPI_Comm comm;
  MPI_Request request;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  MPI_Barrier(comm);
  fill(ranks);
  if (rank == 0) MPI_Barrier(MPI_COMM_WORLD); /* the others do not come before it has started */
  start(call, send, recv, root, comm, &request);
  if (rank != 0) MPI_Barrier(MPI_COMM_WORLD);
  wait_without(&send, &recv, &comm, &request);
  check(call, root);
}

/* Reductions and barriers have only the communicator. */
static void reduced(void) {
  MPI_Datatype send = strided(kSendStride), recv = strided(kRecvStride);
  int counts[kMostRanks], i, sums[4], ones[kMostRanks];
  MPI_Request requests[5];
  MPI_Comm comm;
  for (i = 0; i < kMostRanks; ++i) counts[i] = 1, ones[i] = 1;
  for (i = 0; i < 4; ++i) sums[i] = 0;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  MPI_Barrier(comm);
  MPI_Iallreduce(ones, &sums[0], 1, MPI_INT, MPI_SUM, comm, &requests[0]);
  MPI_Ireduce(ones, &sums[1], 1, MPI_INT, MPI_SUM, 0, comm, &requests[1]);
  MPI_Ireduce_scatter_block(ones, &sums[2], 1, MPI_INT, MPI_SUM, comm, &requests[2]);
  MPI_Ireduce_scatter(ones, &sums[3], counts, MPI_INT, MPI_SUM, comm, &requests[3]);
  MPI_Ibarrier(comm, &requests[4]);
  wait_without(&send, &recv, &comm, &requests[4]);
  MPI_Waitall(4, requests, MPI_STATUSES_IGNORE);
  for (i = 0; i < 4; ++i) CHECK(sums[i] == ranks || (i == 1 && rank != 0));
}

int main(int argc, char** argv) {
  int call;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  ranks = size;
  free_comm = argc > 1 && !strcmp(argv[1], "comm");
  for (call = 0; call < kCalls; ++call) moved((enum call)call);
  reduced();
  if (rank == 0) printf("all right\n");
  MPI_Finalize();
  return 0;
}
