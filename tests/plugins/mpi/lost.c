/* A switch that is lost while rank 0 waits. "lost FILE": rank 1 makes its call when FILE is there. The program goes on after
 * the error, and says that it has had it. "lost FILE fatal": MPI's own handler ends it. */
#define _DEFAULT_SOURCE
#include <unistd.h>

#include "check.inc"

static int wait_for(int blocking, MPI_Request* request) {
  double in = 1, out = 0;
  int status = blocking ? MPI_Allreduce(&in, &out, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD)
                        : MPI_Iallreduce(&in, &out, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, request);
  if (status == MPI_SUCCESS && !blocking) status = MPI_Wait(request, MPI_STATUS_IGNORE);
  return status;
}

int main(int argc, char** argv) {
  MPI_Request request = MPI_REQUEST_NULL;
  int status, class = MPI_SUCCESS;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (argc < 3) MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  CHECK(wait_for(1, NULL) == MPI_SUCCESS && wait_for(0, &request) == MPI_SUCCESS);
  if (rank == 1) {
    printf("ready\n"), fflush(stdout);
    while (access(argv[1], F_OK) != 0) usleep(10000);
  }
  status = wait_for(0, &request);
  if (status != MPI_SUCCESS) MPI_Error_class(status, &class);
  CHECK(class == MPI_ERR_OTHER);
  CHECK(wait_for(1, NULL) != MPI_SUCCESS);
  printf("rank %d goes on\n", rank);
  fflush(stdout);
  MPI_Finalize();
  return 0;
}
