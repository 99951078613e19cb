/* Blocks that overlap, which both MPIs take: received ones have one of the values that they are given, sent ones are read
 * as often as they are named. And memory that is sent from and received into. */
#include "check.inc"

enum { kElements = 300, kMost = 8 };

static int value(int from, int to, int at) { return from * 1000003 + to * 1009 + at; }

static int sent[kMost * kElements], received[2 * kMost * kElements], counts[kMost], places[kMost], zeros[kMost];

/* Each block begins in the middle of the one before. */
static void fill(void) {
  int r, i;
  for (r = 0; r < kMost; ++r) counts[r] = kElements, places[r] = r * kElements / 2, zeros[r] = 0;
  for (r = 0; r < kMost; ++r)
    for (i = 0; i < kElements; ++i) sent[r * kElements + i] = value(rank, r, i);
  for (i = 0; i < 2 * kMost * kElements; ++i) received[i] = -1;
}

static void check_received(int to) {
  int r, i;
  for (i = 0; i < (size + 1) * kElements / 2; ++i) {
    int found = 0;
    for (r = 0; r < size; ++r)
      found |= i >= places[r] && i < places[r] + kElements && received[i] == value(r, to, i - places[r]);
    CHECK(found);
  }
  CHECK(received[(size + 1) * kElements / 2] == -1);
}

static void receive(int blocking) {
  MPI_Request request = MPI_REQUEST_NULL;
  int r, apart[kMost];
  for (r = 0; r < kMost; ++r) apart[r] = r * kElements;
#define WAITED(NAME, INAME, ...)                                                                 \
  do {                                                                                           \
    fill();                                                                                      \
    if (blocking)                                                                                \
      NAME(__VA_ARGS__);                                                                         \
    else                                                                                         \
      INAME(__VA_ARGS__, &request), MPI_Wait(&request, MPI_STATUS_IGNORE);                       \
  } while (0)
  WAITED(MPI_Allgatherv, MPI_Iallgatherv, sent, kElements, MPI_INT, received, counts, places, MPI_INT, MPI_COMM_WORLD);
  check_received(0);
  WAITED(MPI_Allgatherv, MPI_Iallgatherv, MPI_IN_PLACE, 0, MPI_INT, received, counts, places, MPI_INT, MPI_COMM_WORLD);
  WAITED(MPI_Gatherv, MPI_Igatherv, sent, kElements, MPI_INT, received, counts, places, MPI_INT, size - 1, MPI_COMM_WORLD);
  if (rank == size - 1) check_received(0);
  WAITED(MPI_Alltoallv, MPI_Ialltoallv, sent, counts, apart, MPI_INT, received, counts, places, MPI_INT, MPI_COMM_WORLD);
  check_received(rank);
}

static void send(void) {
  int r, i, apart[kMost];
  for (r = 0; r < kMost; ++r) apart[r] = r * kElements;
  fill();
  MPI_Scatterv(sent, counts, places, MPI_INT, received, kElements, MPI_INT, 0, MPI_COMM_WORLD);
  for (i = 0; i < kElements; ++i) {
    const int at = places[rank] + i;
    CHECK(received[i] == value(0, at / kElements, at % kElements));
  }
  fill();
  MPI_Alltoallv(sent, counts, zeros, MPI_INT, received, counts, apart, MPI_INT, MPI_COMM_WORLD);
  for (r = 0; r < size; ++r)
    for (i = 0; i < kElements; ++i) CHECK(received[r * kElements + i] == value(r, 0, i));
}

/* MPI forbids this. The MPIs do not notice, and most of their algorithms take it. */
static void send_from_where_it_is_received(void) {
  int r, i;
  double sums[kElements + 1];
  if (!getenv("TAKEN_OVER")) return;
  fill();
  for (i = 0; i < kElements; ++i) received[i + 5] = value(rank, 0, i);
  MPI_Allgather(received + 5, kElements, MPI_INT, received, kElements, MPI_INT, MPI_COMM_WORLD);
  for (r = 0; r < size; ++r)
    for (i = 0; i < kElements; ++i) CHECK(received[r * kElements + i] == value(r, 0, i));
  fill();
  for (i = 0; i < kElements * size; ++i) received[i + 5] = sent[i];
  MPI_Alltoall(received + 5, kElements, MPI_INT, received, kElements, MPI_INT, MPI_COMM_WORLD);
  for (r = 0; r < size; ++r)
    for (i = 0; i < kElements; ++i) CHECK(received[r * kElements + i] == value(r, rank, i));
  for (i = 0; i <= kElements; ++i) sums[i] = i;
  MPI_Allreduce(sums + 1, sums, kElements, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  for (i = 0; i < kElements; ++i) CHECK(sums[i] == (i + 1) * size);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  receive(1);
  receive(0);
  send();
  send_from_where_it_is_received();
  if (rank == 0) printf("all right\n");
  MPI_Finalize();
  return 0;
}
