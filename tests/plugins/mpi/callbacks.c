/* Calls of MPI from within functions that MPI calls: of attributes that are copied and deleted, of error handlers, of
 * generalised requests, and of MPI_COMM_SELF's attributes in MPI_Finalize. */
#include "check.inc"

static int deleted, copied, ended, heard;

static void check_sum(MPI_Comm comm) {
  int one = 1, sum = 0, ranks;
  MPI_Comm_size(comm, &ranks);
  MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm);
  CHECK(sum == ranks);
}

static void check_twin(MPI_Comm comm) {
  MPI_Comm twin;
  MPI_Comm_dup(comm, &twin);
  MPI_Barrier(twin);
  check_sum(twin);
  MPI_Comm_free(&twin);
}

/* On the communicator that goes. */
static int on_delete(MPI_Comm comm, int keyval, void* value, void* state) {
  MPI_Request request;
  int one = 1, sum = 0;
  (void)keyval, (void)value, (void)state;
  ++deleted;
  check_sum(comm);
  check_twin(comm);
  MPI_Iallreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm, &request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  CHECK(sum == size);
  check_sum(MPI_COMM_WORLD);
  return MPI_SUCCESS;
}

static int on_copy(MPI_Comm comm, int keyval, void* state, void* in, void* out, int* flag) {
  (void)keyval, (void)state, (void)in, (void)out;
  ++copied;
  check_sum(comm);
  check_sum(MPI_COMM_WORLD);
  *flag = 0;
  return MPI_SUCCESS;
}

static int on_end(MPI_Comm comm, int keyval, void* value, void* state) {
  (void)comm, (void)keyval, (void)value, (void)state;
  check_sum(MPI_COMM_WORLD);
  check_twin(MPI_COMM_WORLD);
  if (rank == 0 && ++ended == 1) printf("all right\n"), fflush(stdout);
  return MPI_SUCCESS;
}

static void on_error(MPI_Comm* comm, int* code, ...) {
  int class;
  MPI_Error_class(*code, &class);
  CHECK(class == MPI_ERR_ROOT);
  ++heard;
  check_sum(*comm);
  check_twin(*comm);
}

static int on_query(void* state, MPI_Status* status) {
  MPI_Status_set_elements(status, MPI_INT, 0);
  MPI_Status_set_cancelled(status, 0);
  check_sum(*(MPI_Comm*)state);
  return MPI_SUCCESS;
}

static int on_free(void* state) {
  check_sum(*(MPI_Comm*)state);
  return MPI_SUCCESS;
}

static int on_cancel(void* state, int complete) {
  (void)state, (void)complete;
  return MPI_SUCCESS;
}

/* `before`: whether the program's attribute is set before the first collective call. */
static void attributes(int before, int disconnect) {
  MPI_Comm comm, twin;
  int keyval, value = 0, i;
  MPI_Comm_create_keyval(on_copy, on_delete, &keyval, NULL);
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  if (before) MPI_Comm_set_attr(comm, keyval, &value);
  check_sum(comm);
  if (!before) MPI_Comm_set_attr(comm, keyval, &value);
  copied = deleted = 0;
  for (i = 0; i < 2; ++i) MPI_Comm_dup(comm, &twin), check_sum(twin), MPI_Comm_free(&twin);
  CHECK(copied == 2 && deleted == 0);
  if (disconnect)
    MPI_Comm_disconnect(&comm);
  else
    MPI_Comm_free(&comm);
  CHECK(deleted == 1 && comm == MPI_COMM_NULL);
  MPI_Comm_free_keyval(&keyval);
}

static void handler(void) {
  MPI_Comm comm;
  MPI_Errhandler made;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  check_sum(comm);
  MPI_Comm_create_errhandler(on_error, &made);
  MPI_Comm_set_errhandler(comm, made);
  MPI_Bcast(&size, 1, MPI_INT, 1000, comm);
  CHECK(heard == 1);
  check_sum(comm);
  MPI_Errhandler_free(&made);
  MPI_Comm_free(&comm);
}

static void generalised(void) {
  MPI_Comm comm;
  MPI_Request request;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  check_sum(comm);
  MPI_Grequest_start(on_query, on_free, on_cancel, &comm, &request);
  MPI_Grequest_complete(request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  MPI_Comm_free(&comm);
}

int main(int argc, char** argv) {
  int keyval;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  attributes(0, 0), attributes(1, 0), attributes(0, 1);
  handler();
  generalised();
  MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, on_end, &keyval, NULL);
  MPI_Comm_set_attr(MPI_COMM_SELF, keyval, &size);
  MPI_Finalize();
  return 0;
}
