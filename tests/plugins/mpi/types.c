/* Datatypes of every shape: each call's result is that of MPI's own function (PMPI_). The shapes are drawn, alike on all
 * ranks: gaps, negative lower bounds and extents, elements in each other's gaps, no bytes at all, absolute addresses.
 * "types SEED ROUNDS". */
#include "check.inc"

enum { kSpace = 6000, kMiddle = kSpace / 2, kMost = 8, kCalls = 13 };

#ifdef OPEN_MPI
enum { kSign = 1 };
#else
enum { kSign = -1 };
#endif

static unsigned seed;
static int draw(int below) {
  seed = seed * 1103515245u + 12345u;
  return (int)((seed >> 16) % (unsigned)below);
}

/* A type of `ints` integers. `place`: from where to use it. */
static MPI_Datatype drawn_type(int ints, const int* space, const void** place) {
  MPI_Datatype made, inner;
  MPI_Aint at[3];
  int lengths[3], i;
  *place = space + kMiddle;
  switch (draw(7)) {
    case 0:
      MPI_Type_contiguous(ints, MPI_INT, &made);
      break;
    case 1: /* elements in each other's gaps, as columns of a matrix */
      MPI_Type_vector(ints, 1, 31, MPI_INT, &inner);
      MPI_Type_create_resized(inner, 0, sizeof(int), &made);
      MPI_Type_free(&inner);
      break;
    case 2: /* backwards */
      MPI_Type_vector(ints, 1, -2, MPI_INT, &made);
      break;
    case 3: /* a lower bound before the first integer */
      MPI_Type_contiguous(ints, MPI_INT, &inner);
      MPI_Type_create_resized(inner, -8, (MPI_Aint)(ints * sizeof(int)) + 16, &made);
      MPI_Type_free(&inner);
      break;
    case 4: /* a negative extent, which Open MPI's MPI_Gather refuses */
      MPI_Type_contiguous(ints, MPI_INT, &inner);
      MPI_Type_create_resized(inner, 0, (MPI_Aint)(ints * sizeof(int) + 4) * kSign, &made);
      MPI_Type_free(&inner);
      break;
    case 5: /* blocks in another order than memory's */
      for (i = 0; i < 3; ++i) lengths[i] = i < ints ? (ints - i + 2) / 3 : 0, at[i] = (2 - i) * 4 * ints + 4 * i;
      MPI_Type_create_hindexed(3, lengths, at, MPI_INT, &made);
      break;
    default: /* absolute addresses */
      lengths[0] = ints;
      MPI_Get_address(space + kMiddle, &at[0]);
      MPI_Type_create_hindexed(1, lengths, at, MPI_INT, &inner);
      MPI_Type_create_resized(inner, 0, (MPI_Aint)(ints * sizeof(int)), &made);
      MPI_Type_free(&inner);
      *place = MPI_BOTTOM;
  }
  MPI_Type_commit(&made);
  return made;
}

static int in[kSpace], given[kSpace], expected[kSpace];

/* `own`: MPI's own function. Types of absolute addresses are made for one buffer, so each call has its own. */
static void one(int call, int own, unsigned types, int* out) {
  const int ints = (int)(types >> 3) % 5, count = 1 + (int)(types >> 8) % 3, root = (int)(types >> 12) % size;
  const void *from, *recv;
  void* to;
  MPI_Datatype send_type, recv_type;
  MPI_Request request = MPI_REQUEST_NULL;
  int counts[kMost], places[kMost], r;
  for (r = 0; r < kMost; ++r) counts[r] = count, places[r] = (kMost / 2 - r) * count;
  seed = types;
  send_type = drawn_type(ints, in, &from);
  recv_type = drawn_type(ints, out, &recv);
  to = (void*)recv;
#define EITHER(NAME, ...) (own ? PMPI_##NAME(__VA_ARGS__) : MPI_##NAME(__VA_ARGS__))
  switch (call) {
    case 0: EITHER(Bcast, to, count, recv_type, root, MPI_COMM_WORLD); break;
    case 1: EITHER(Allgather, from, count, send_type, to, count, recv_type, MPI_COMM_WORLD); break;
    case 2: EITHER(Allgatherv, from, count, send_type, to, counts, places, recv_type, MPI_COMM_WORLD); break;
    case 3: EITHER(Gather, from, count, send_type, to, count, recv_type, root, MPI_COMM_WORLD); break;
    case 4: EITHER(Gatherv, from, count, send_type, to, counts, places, recv_type, root, MPI_COMM_WORLD); break;
    case 5: EITHER(Scatter, from, count, send_type, to, count, recv_type, root, MPI_COMM_WORLD); break;
    case 6: EITHER(Scatterv, from, counts, places, send_type, to, count, recv_type, root, MPI_COMM_WORLD); break;
    case 7: EITHER(Alltoall, from, count, send_type, to, count, recv_type, MPI_COMM_WORLD); break;
    case 8: EITHER(Alltoallv, from, counts, places, send_type, to, counts, places, recv_type, MPI_COMM_WORLD); break;
    case 9: EITHER(Ibcast, to, count, recv_type, root, MPI_COMM_WORLD, &request); break;
    case 10: EITHER(Iallgatherv, from, count, send_type, to, counts, places, recv_type, MPI_COMM_WORLD, &request); break;
    case 11: EITHER(Iscatterv, from, counts, places, send_type, to, count, recv_type, root, MPI_COMM_WORLD, &request); break;
    default: EITHER(Ialltoall, from, count, send_type, to, count, recv_type, MPI_COMM_WORLD, &request);
  }
  MPI_Type_free(&send_type), MPI_Type_free(&recv_type);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
}

int main(int argc, char** argv) {
  const unsigned first = argc > 1 ? (unsigned)atoi(argv[1]) : 1;
  const int rounds = argc > 2 ? atoi(argv[2]) : 300;
  int round, i;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  for (round = 0; round < rounds; ++round) {
    const unsigned types = (first + (unsigned)round) * 2654435761u;
    for (i = 0; i < kSpace; ++i) in[i] = rank * 100000 + i, given[i] = expected[i] = -rank * 100000 - i - 1;
    one(round % kCalls, 1, types, expected);
    one(round % kCalls, 0, types, given);
    for (i = 0; i < kSpace; ++i)
      if (given[i] != expected[i]) {
        fprintf(stderr, "rank %d, round %d, call %d: [%d] is %d and not %d\n", rank, round, round % kCalls, i - kMiddle,
                given[i], expected[i]);
        MPI_Abort(MPI_COMM_WORLD, 1);
      }
  }
  if (rank == 0) printf("all right\n");
  MPI_Finalize();
  return 0;
}
