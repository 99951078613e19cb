/* Wrong arguments of all functions that are taken over: "arguments FILE [unnoticed|fatal|disagree]" writes to FILE.RANK, for each
 * function and fault, the class of the error that it returns, the handlers that were called and with which class, and that
 * the next collective call is right. A plain run and an interposed one write the same. "unnoticed": the faults that MPI
 * does not look for, which may crash it. "fatal": one, under the handler that ends the program. "disagree": messages that differ between ranks. */
#include "check.inc"

#ifdef OPEN_MPI
#define IS_OPEN_MPI 1
#else
#define IS_OPEN_MPI 0
#endif

enum { kMost = 8, kRoot = 0 };

struct arguments {
  void *send, *recv;
  int send_count, recv_count, *send_counts, *recv_counts, *send_places, *recv_places, root;
  MPI_Datatype send_type, recv_type;
  MPI_Op op;
  MPI_Comm comm;
  MPI_Request* request;
};

enum function {
  kBarrier, kAllreduce, kReduce, kReduceScatterBlock, kReduceScatter, kBcast, kAllgather, kAllgatherv, kGather, kGatherv,
  kScatter, kScatterv, kAlltoall, kAlltoallv, kFunctions
};
static const char* const names[] = {
    "Barrier", "Allreduce", "Reduce", "Reduce_scatter_block", "Reduce_scatter", "Bcast", "Allgather", "Allgatherv",
    "Gather", "Gatherv", "Scatter", "Scatterv", "Alltoall", "Alltoallv"};

#define PICK(NAME, INAME, ...) return waits ? NAME(__VA_ARGS__) : INAME(__VA_ARGS__, a->request)
#define DEFINE_CALL(DEFINED, SUFFIX, COUNTS, PLACES)                                                                    \
  static int DEFINED(enum function function, int waits, struct arguments* a) {                                          \
    switch (function) {                                                                                                 \
      case kAllreduce:                                                                                                  \
        PICK(MPI_Allreduce##SUFFIX, MPI_Iallreduce##SUFFIX, a->send, a->recv, a->recv_count, a->recv_type, a->op,       \
             a->comm);                                                                                                  \
      case kReduce:                                                                                                     \
        PICK(MPI_Reduce##SUFFIX, MPI_Ireduce##SUFFIX, a->send, a->recv, a->recv_count, a->recv_type, a->op, a->root,    \
             a->comm);                                                                                                  \
      case kReduceScatterBlock:                                                                                         \
        PICK(MPI_Reduce_scatter_block##SUFFIX, MPI_Ireduce_scatter_block##SUFFIX, a->send, a->recv, a->recv_count,      \
             a->recv_type, a->op, a->comm);                                                                             \
      case kReduceScatter:                                                                                              \
        PICK(MPI_Reduce_scatter##SUFFIX, MPI_Ireduce_scatter##SUFFIX, a->send, a->recv, COUNTS(a->recv_counts, 1),      \
             a->recv_type, a->op, a->comm);                                                                             \
      case kBcast:                                                                                                      \
        PICK(MPI_Bcast##SUFFIX, MPI_Ibcast##SUFFIX, a->recv, a->recv_count, a->recv_type, a->root, a->comm);            \
      case kAllgather:                                                                                                  \
        PICK(MPI_Allgather##SUFFIX, MPI_Iallgather##SUFFIX, a->send, a->send_count, a->send_type, a->recv,              \
             a->recv_count, a->recv_type, a->comm);                                                                     \
      case kAllgatherv:                                                                                                 \
        PICK(MPI_Allgatherv##SUFFIX, MPI_Iallgatherv##SUFFIX, a->send, a->send_count, a->send_type, a->recv,            \
             COUNTS(a->recv_counts, 1), PLACES(a->recv_places, 1), a->recv_type, a->comm);                              \
      case kGather:                                                                                                     \
        PICK(MPI_Gather##SUFFIX, MPI_Igather##SUFFIX, a->send, a->send_count, a->send_type, a->recv, a->recv_count,     \
             a->recv_type, a->root, a->comm);                                                                           \
      case kGatherv:                                                                                                    \
        PICK(MPI_Gatherv##SUFFIX, MPI_Igatherv##SUFFIX, a->send, a->send_count, a->send_type, a->recv,                  \
             COUNTS(a->recv_counts, 1), PLACES(a->recv_places, 1), a->recv_type, a->root, a->comm);                     \
      case kScatter:                                                                                                    \
        PICK(MPI_Scatter##SUFFIX, MPI_Iscatter##SUFFIX, a->send, a->send_count, a->send_type, a->recv, a->recv_count,   \
             a->recv_type, a->root, a->comm);                                                                           \
      case kScatterv:                                                                                                   \
        PICK(MPI_Scatterv##SUFFIX, MPI_Iscatterv##SUFFIX, a->send, COUNTS(a->send_counts, 0),                           \
             PLACES(a->send_places, 0), a->send_type, a->recv, a->recv_count, a->recv_type, a->root, a->comm);          \
      case kAlltoall:                                                                                                   \
        PICK(MPI_Alltoall##SUFFIX, MPI_Ialltoall##SUFFIX, a->send, a->send_count, a->send_type, a->recv, a->recv_count, \
             a->recv_type, a->comm);                                                                                    \
      case kAlltoallv:                                                                                                  \
        PICK(MPI_Alltoallv##SUFFIX, MPI_Ialltoallv##SUFFIX, a->send, COUNTS(a->send_counts, 0),                         \
             PLACES(a->send_places, 0), a->send_type, a->recv, COUNTS(a->recv_counts, 1), PLACES(a->recv_places, 1),    \
             a->recv_type, a->comm);                                                                                    \
      default:                                                                                                          \
        return waits ? MPI_Barrier(a->comm) : MPI_Ibarrier(a->comm, a->request);                                        \
    }                                                                                                                   \
  }
#define AS_THEY_ARE(numbers, side) numbers
DEFINE_CALL(call, , AS_THEY_ARE, AS_THEY_ARE)

#if MPI_VERSION >= 4
/* By side, as MPI keeps their addresses. */
static MPI_Count large_counts[2][kMost];
static MPI_Aint large_places[2][kMost];
static MPI_Count* as_counts(const int* numbers, int side) {
  int r;
  for (r = 0; numbers && r < kMost; ++r) large_counts[side][r] = numbers[r];
  return numbers ? large_counts[side] : NULL;
}
static MPI_Aint* as_places(const int* numbers, int side) {
  int r;
  for (r = 0; numbers && r < kMost; ++r) large_places[side][r] = numbers[r];
  return numbers ? large_places[side] : NULL;
}
DEFINE_CALL(call_large, _c, as_counts, as_places)
enum { kForms = 4 };
#else
#define call_large call
enum { kForms = 2 };
#endif

enum fault {
  kRootMinus, kRootSize, kRootHuge, kRootNone, kRootLeast, kSendCount, kRecvCount, kSendFirst, kSendLast, kRecvFirst,
  kRecvLast, kSendNull, kRecvNull, kSendZero, kRecvZero, kSendUncommitted, kRecvUncommitted, kSendNoBuffer, kRecvNoBuffer, kSendInPlace,
  kRecvInPlace, kAlias, kOwnAlias, kNoOp, kFloatBits, kIntLocation, kNoComm, kFreedComm, kNoRequest, kSendNoCounts,
  kRecvNoCounts, kSendNoPlaces, kRecvNoPlaces, kLongerSend, kZeroWithoutType, kFaults
};
static const char* const fault_names[] = {
    "root -1", "root size", "root 100000", "root MPI_PROC_NULL", "root INT_MIN", "send count", "recv count", "send counts[0]",
    "send counts[last]", "recv counts[0]", "recv counts[last]", "send MPI_DATATYPE_NULL", "recv MPI_DATATYPE_NULL",
    "send type 0", "recv type 0", "send uncommitted", "recv uncommitted", "send NULL", "recv NULL", "send MPI_IN_PLACE", "recv MPI_IN_PLACE",
    "send = recv", "send = own block of recv", "MPI_OP_NULL", "bits of double", "MAXLOC of int", "MPI_COMM_NULL", "freed comm", "request NULL",
    "send counts NULL", "recv counts NULL", "send displs NULL", "recv displs NULL", "send longer", "count 0, MPI_DATATYPE_NULL"};

static double send_buffer[8 * kMost], recv_buffer[8 * kMost];
static int send_numbers[kMost], recv_numbers[kMost], send_displs[kMost], recv_displs[kMost];
static MPI_Datatype uncommitted;
static MPI_Comm freed;

static struct arguments right(MPI_Comm comm, MPI_Request* request) {
  struct arguments a;
  int r;
  for (r = 0; r < kMost; ++r) send_numbers[r] = recv_numbers[r] = 2, send_displs[r] = recv_displs[r] = 2 * r;
  a.send = send_buffer, a.recv = recv_buffer, a.send_count = a.recv_count = 2, a.root = kRoot;
  a.send_counts = send_numbers, a.recv_counts = recv_numbers, a.send_places = send_displs, a.recv_places = recv_displs;
  a.send_type = a.recv_type = MPI_DOUBLE, a.op = MPI_SUM, a.comm = comm, a.request = request;
  return a;
}

static void make_wrong(struct arguments* a, enum fault fault) {
  switch (fault) {
    case kRootMinus: a->root = -1; return;
    case kRootSize: a->root = size; return;
    case kRootHuge: a->root = 100000; return;
    case kRootNone: a->root = MPI_PROC_NULL; return;
    case kRootLeast: a->root = -2147483647 - 1; return;
    case kSendCount: a->send_count = -1; return;
    case kRecvCount: a->recv_count = -3; return;
    case kSendFirst: a->send_counts[0] = -1; return;
    case kSendLast: a->send_counts[size - 1] = -1; return;
    case kRecvFirst: a->recv_counts[0] = -1; return;
    case kRecvLast: a->recv_counts[size - 1] = -1; return;
    case kSendNull: a->send_type = MPI_DATATYPE_NULL; return;
    case kRecvNull: a->recv_type = MPI_DATATYPE_NULL; return;
    case kSendZero: a->send_type = (MPI_Datatype)0; return;
    case kRecvZero: a->recv_type = (MPI_Datatype)0; return;
    case kSendUncommitted: a->send_type = uncommitted; return;
    case kRecvUncommitted: a->recv_type = uncommitted; return;
    case kSendNoBuffer: a->send = NULL; return;
    case kRecvNoBuffer: a->recv = NULL; return;
    case kSendInPlace: a->send = MPI_IN_PLACE; return;
    case kRecvInPlace: a->recv = MPI_IN_PLACE; return;
    case kAlias: a->send = a->recv, a->send_counts = a->recv_counts; return;
    case kOwnAlias: a->send = recv_buffer + 2 * rank; return;
    case kNoOp: a->op = MPI_OP_NULL; return;
    case kFloatBits: a->op = MPI_BAND; return;
    case kIntLocation: a->op = MPI_MAXLOC, a->recv_type = MPI_INT; return;
    case kNoComm: a->comm = MPI_COMM_NULL; return;
    case kFreedComm: a->comm = freed; return;
    case kNoRequest: a->request = NULL; return;
    case kSendNoCounts: a->send_counts = NULL; return;
    case kRecvNoCounts: a->recv_counts = NULL; return;
    case kSendNoPlaces: a->send_places = NULL; return;
    case kRecvNoPlaces: a->recv_places = NULL; return;
    case kLongerSend: a->send_count = 3, a->send_counts[rank] = 3; return;
    case kZeroWithoutType:
      memset(a->send_counts, 0, sizeof send_numbers), memset(a->recv_counts, 0, sizeof recv_numbers);
      a->send_count = a->recv_count = 0, a->send_type = a->recv_type = MPI_DATATYPE_NULL; return;
    default: return;
  }
}

/* Handlers write what they are called with. */
static char heard[200];
static void hear(const char* whose, int code) {
  int class;
  MPI_Error_class(code, &class);
  snprintf(heard + strlen(heard), sizeof heard - strlen(heard), " %s handler hears %d", whose, class);
}
static void own_handler(MPI_Comm* comm, int* code, ...) { (void)comm, hear("own", *code); }
static void world_handler(MPI_Comm* comm, int* code, ...) { (void)comm, hear("world's", *code); }

enum { kAllRanks = 1, kRootOnly = 2, kOthersOnly = 3 };

/* The ranks at which MPI looks at what is wrong: those make the call. 0: none. */
static int ranks_of(enum function f, enum fault fault, int unnoticed);

static void one_call(enum function function, int form, enum fault fault, MPI_Comm comm, FILE* to) {
  MPI_Request request = MPI_REQUEST_NULL;
  struct arguments a = right(comm, &request);
  int code, class;
  make_wrong(&a, fault);
  heard[0] = '\0';
  code = form < 2 ? call(function, form == 0, &a) : call_large(function, form == 2, &a);
  if (code == MPI_SUCCESS && form % 2 == 1) code = MPI_Wait(&request, MPI_STATUS_IGNORE);
  MPI_Error_class(code, &class);
  fprintf(to, "MPI_%s form %d, %s: %d%s%s\n", names[function], form, fault_names[fault], class, heard,
          request == MPI_REQUEST_NULL ? "" : ", a request");
  fflush(to);
}

static void all_calls(MPI_Comm comm, int unnoticed, FILE* to) {
  int f, form, fault;
  for (f = 0; f < kFunctions; ++f)
    for (form = 0; form < kForms; ++form)
      for (fault = 0; fault < kFaults; ++fault) {
        const int who = ranks_of((enum function)f, (enum fault)fault, unnoticed);
        int sum = 0;
        if (who == 0 || (fault == kNoRequest && form % 2 == 0)) continue;
        if (fault == kLongerSend && form % 2 == 1 && !IS_OPEN_MPI) continue; /* MPICH's MPI_Wait does not tell */
        if (who == kAllRanks || (who == kRootOnly) == (rank == kRoot)) one_call((enum function)f, form, (enum fault)fault, comm, to);
        MPI_Allreduce(&size, &sum, 1, MPI_INT, MPI_SUM, comm);
        CHECK(sum == size * size);
      }
}

#define IN(...) is_one_of(f, (const enum function[]){__VA_ARGS__, kFunctions})
static int is_one_of(enum function f, const enum function* some) {
  for (; *some != kFunctions; ++some)
    if (*some == f) return 1;
  return 0;
}

/* The ranks whose arguments of one side count: both sides of all ranks, but for those of the root alone. */
static int senders(enum function f) { return IN(kScatter, kScatterv) ? kRootOnly : kAllRanks; }
static int receivers(enum function f) { return IN(kReduce, kGather, kGatherv) ? kRootOnly : kAllRanks; }

static int reduces(enum function f) { return IN(kAllreduce, kReduce, kReduceScatterBlock, kReduceScatter); }
static int has_root(enum function f) { return IN(kReduce, kBcast, kGather, kGatherv, kScatter, kScatterv); }
static int has_send_type(enum function f) {
  return IN(kAllgather, kAllgatherv, kGather, kGatherv, kScatter, kScatterv, kAlltoall, kAlltoallv);
}

static int in_place_ranks(enum function f, enum fault fault, int unnoticed) {
  const int mpich_does_not_look = IS_OPEN_MPI ? unnoticed : !unnoticed;
  if (fault == kSendInPlace) {
    if (IN(kScatter, kScatterv)) return unnoticed ? 0 : kRootOnly;
    return IN(kReduce, kGather, kGatherv) && !mpich_does_not_look ? kOthersOnly : 0;
  }
  if (IN(kBcast)) return mpich_does_not_look ? 0 : kAllRanks;
  if (IN(kScatter, kScatterv)) return mpich_does_not_look ? 0 : kOthersOnly;
  return unnoticed || IN(kBarrier) ? 0 : receivers(f);
}

/* The ranks that give one address at two places. Where MPI takes it, all ranks make the call. */
static int alias_ranks(enum function f, enum fault fault) {
  if (fault == kOwnAlias) {
    if (IS_OPEN_MPI) return IN(kAllgather) ? kAllRanks : 0; /* its MPI_Allgatherv crashes */
    return IN(kAllgather, kAllgatherv) ? kAllRanks : IN(kGather, kGatherv) ? kRootOnly : 0;
  }
  return reduces(f) ? receivers(f) : IN(kAlltoall) ? kAllRanks : 0;
}

static int array_ranks(enum function f, enum fault fault) {
  if (!IS_OPEN_MPI || IN(kAllgatherv)) return IS_OPEN_MPI && fault == kRecvNoPlaces ? kAllRanks : 0;
  if (fault == kSendNoCounts || fault == kSendNoPlaces) return IN(kScatterv, kAlltoallv) ? senders(f) : 0;
  return IN(kGatherv, kAlltoallv) || (fault == kRecvNoCounts && IN(kReduceScatter)) ? receivers(f) : 0;
}

static int count_ranks(enum function f, enum fault fault) {
  switch (fault) {
    case kSendCount:
      return has_send_type(f) && !IN(kScatterv, kAlltoallv) ? senders(f) : 0;
    case kRecvCount: /* MPICH does not look at those of reductions, and MPI has these calls */
      if (reduces(f)) return IS_OPEN_MPI && !IN(kReduceScatter) ? kAllRanks : 0;
      return IN(kBcast, kAllgather, kGather, kScatter, kScatterv, kAlltoall) ? receivers(f) : 0;
    case kSendFirst:
    case kSendLast:
      return IN(kScatterv, kAlltoallv) ? senders(f) : 0;
    default:
      return IN(kReduceScatter, kAllgatherv, kGatherv, kAlltoallv) ? receivers(f) : 0;
  }
}

static int ranks_of(enum function f, enum fault fault, int unnoticed) {
  const int open_mpi_does_not_look =
      (IN(kScatter) && (fault == kSendCount || fault == kSendNull || fault == kSendZero || fault == kSendUncommitted)) ||
      (IN(kAllgatherv) && (fault == kRecvFirst || fault == kRecvLast));
  const int no_buffer = fault == kSendNoBuffer || fault == kRecvNoBuffer;
  if (fault == kSendInPlace || fault == kRecvInPlace) return in_place_ranks(f, fault, unnoticed);
  if (unnoticed != (IS_OPEN_MPI && (open_mpi_does_not_look || no_buffer))) return 0;
  switch (fault) {
    case kRootMinus:
    case kRootSize:
    case kRootHuge:
    case kRootNone:
    case kRootLeast:
      return has_root(f) ? kAllRanks : 0;
    case kSendNull:
    case kSendZero:
    case kSendUncommitted:
      return has_send_type(f) ? senders(f) : 0;
    case kRecvZero: /* reductions, and Open MPI's MPI_Allgatherv, crash */
      if (IN(kBarrier) || reduces(f) || (IS_OPEN_MPI && IN(kAllgatherv))) return 0;
      return receivers(f);
    case kRecvUncommitted: /* Open MPI takes it where it receives */
      if (IS_OPEN_MPI && !reduces(f) && !IN(kBcast, kAlltoall, kAlltoallv)) return 0; /* fall through */
    case kRecvNull:
      return IN(kBarrier) ? 0 : reduces(f) ? kAllRanks : receivers(f);
    case kSendNoBuffer:
      return IN(kBarrier, kBcast) ? 0 : senders(f);
    case kRecvNoBuffer:
      return IN(kBarrier) ? 0 : receivers(f);
    case kAlias:
    case kOwnAlias:
      return alias_ranks(f, fault);
    case kNoOp:
    case kFloatBits:
    case kIntLocation:
      return reduces(f) ? kAllRanks : 0;
    case kNoComm: /* Open MPI 4.1's MPI_Allgather goes on with it */
      return IS_OPEN_MPI && IN(kAllgather) ? 0 : kAllRanks;
    case kFreedComm:
    case kNoRequest: /* Open MPI would follow what it is given */
      return IS_OPEN_MPI ? 0 : kAllRanks;
    case kSendNoCounts:
    case kRecvNoCounts:
    case kSendNoPlaces:
    case kRecvNoPlaces:
      return array_ranks(f, fault);
    case kLongerSend:
      return IN(kAlltoall) || (IS_OPEN_MPI && IN(kAlltoallv)) ? kAllRanks : 0;
    case kZeroWithoutType: /* MPICH 4.0's MPI_Bcast fails an assertion */
      return has_send_type(f) || (IS_OPEN_MPI && IN(kBcast)) ? kAllRanks : 0;
    default:
      return count_ranks(f, fault);
  }
}

static int sum_is_right(MPI_Comm comm, int waits) {
  int one = 1, sum = 0, code;
  MPI_Request request = MPI_REQUEST_NULL;
  code = waits ? MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm)
               : MPI_Iallreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm, &request);
  if (code == MPI_SUCCESS) code = MPI_Wait(&request, MPI_STATUS_IGNORE);
  return code == MPI_SUCCESS && sum == size;
}

/* The ranks' messages differ in length, which the switch notices. A rank that has ended its part may hear of it in the
 * next call. Later ones go on. Errors of requests are for MPI_COMM_WORLD's handler, and MPICH gives them another class. */
static void disagree_about(enum function f, int waits, MPI_Comm comm, FILE* to) {
  MPI_Errhandler own;
  MPI_Request request = MPI_REQUEST_NULL;
  struct arguments a;
  int code, class;
  MPI_Comm_create_errhandler(own_handler, &own);
  MPI_Comm_set_errhandler(comm, own);
  a = right(comm, &request);
  a.send_count = a.recv_count = rank + 1, a.recv_counts[f == kAlltoallv ? 0 : size - 1] += rank;
  if (f == kGatherv || f == kScatterv) a.send_count = a.recv_count = 3;
  heard[0] = '\0';
  code = call(f, waits, &a);
  if (code == MPI_SUCCESS) code = MPI_Wait(&request, MPI_STATUS_IGNORE);
  MPI_Error_class(code, &class);
  CHECK(class == MPI_ERR_TRUNCATE || class == MPI_SUCCESS || (!waits && !IS_OPEN_MPI && class == MPI_ERR_OTHER));
  if (waits) fprintf(to, "MPI_%s: %d%s\n", names[f], class, heard);
  MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  (void)sum_is_right(comm, waits);
  CHECK(sum_is_right(comm, 0) && sum_is_right(comm, 1));
  MPI_Errhandler_free(&own);
}

static int wait_fails(MPI_Request* request) { return MPI_Wait(request, MPI_STATUS_IGNORE) != MPI_SUCCESS; }

/* Rank 0 has started three calls when others disagree about the first, whose part of rank 0 may have ended by then. The
 * other two fail on all ranks. */
static void disagree_ahead(MPI_Comm comm) {
  MPI_Request requests[3];
  int numbers[3][2] = {{0}}, fails[3] = {0}, i, r;
  MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  if (rank) MPI_Recv(NULL, 0, MPI_INT, 0, 0, comm, MPI_STATUS_IGNORE);
  for (i = 0; i < 3; ++i) {
    fails[i] = MPI_Ibcast(numbers[i], rank && i == 0 ? 2 : 1, MPI_INT, 0, comm, &requests[i]) != MPI_SUCCESS;
    if (rank) fails[i] += wait_fails(&requests[i]);
  }
  for (r = 1; rank == 0 && r < size; ++r) MPI_Send(NULL, 0, MPI_INT, r, 0, comm);
  for (i = 0; rank == 0 && i < 3; ++i) fails[i] += wait_fails(&requests[i]);
  CHECK(rank == 0 || fails[0] == 1);
  CHECK(fails[1] == 1 && fails[2] == 1);
  CHECK(sum_is_right(comm, 0) && sum_is_right(comm, 1));
}

static void disagree(FILE* to) {
  enum function f;
  int waits;
  MPI_Comm comm;
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  for (f = kAllreduce; f < kFunctions; ++f) {
    for (waits = 1; waits >= 0; --waits) {
      MPI_Comm_dup(MPI_COMM_WORLD, &comm);
      MPI_Barrier(comm);
      disagree_about(f, waits, comm, to);
      MPI_Comm_free(&comm);
    }
  }
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  MPI_Barrier(comm);
  disagree_ahead(comm);
  MPI_Comm_free(&comm);
  disagree_about(kBcast, 1, MPI_COMM_WORLD, to);
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  CHECK(sum_is_right(comm, 1));
  MPI_Comm_free(&comm);
}

int main(int argc, char** argv) {
  const int unnoticed = argc > 2 && !strcmp(argv[2], "unnoticed");
  char path[1000];
  FILE* to;
  MPI_Comm comm, copy;
  MPI_Errhandler own, world;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  CHECK(argc > 1 && size <= kMost);
  snprintf(path, sizeof path, "%s.%d", argv[1], rank);
  to = fopen(path, "w");
  CHECK(to);
  MPI_Type_contiguous(2, MPI_DOUBLE, &uncommitted);
  MPI_Comm_create_errhandler(own_handler, &own), MPI_Comm_create_errhandler(world_handler, &world);
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  MPI_Comm_dup(MPI_COMM_SELF, &copy), freed = copy, MPI_Comm_free(&copy);
  MPI_Barrier(comm);
  if (argc > 2 && !strcmp(argv[2], "fatal")) MPI_Gatherv(send_buffer, 1, MPI_INT, NULL, NULL, NULL, MPI_INT, 100000, comm);
  if (argc > 2 && !strcmp(argv[2], "disagree")) {
    disagree(to);
  } else {
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, world);
    MPI_Comm_set_errhandler(comm, own);
    all_calls(comm, unnoticed, to);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    all_calls(comm, unnoticed, to);
  }
  fclose(to);
  MPI_Comm_free(&comm);
  if (rank == 0) printf("all right\n");
  MPI_Finalize();
  return 0;
}
