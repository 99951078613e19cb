/* Sums a vector over the ranks of a job, in C. Rank and number of ranks come from the launcher's
 * environment (INA_RANK, INA_WORLD_SIZE, or those of torchrun, mpirun, Slurm), the switch from
 * INA_URL. */
#include <ina/ina.h>
#include <stdio.h>

#define COUNT 100000

static int failed(const char* what, int status, const ina_context* context) {
  fprintf(stderr, "%s: %s: %s\n", what, ina_status_name(status), ina_last_error(context));
  return 1;
}

int main(void) {
  static float data[COUNT];
  ina_context* context = NULL;
  int status = ina_init(NULL, &context);
  if (status != INA_OK) return failed("ina_init", status, NULL);

  const int rank = ina_rank(context), ranks = ina_world_size(context);
  for (int i = 0; i < COUNT; ++i) data[i] = (float)(rank + 1);

  /* In place; 0 is the default time-out. */
  status = ina_allreduce(context, data, data, COUNT, INA_FLOAT32, INA_SUM, 0);
  if (status != INA_OK) {
    failed("ina_allreduce", status, context);
    ina_finalize(context, 0);
    return 1;
  }
  status = ina_finalize(context, 0);
  if (status != INA_OK) return failed("ina_finalize", status, NULL);

  const float expected = (float)(ranks * (ranks + 1) / 2);
  for (int i = 0; i < COUNT; ++i) {
    if (data[i] != expected) {
      fprintf(stderr, "rank %d: element %d is %g, not %g\n", rank, i, data[i], expected);
      return 1;
    }
  }
  printf("rank %d of %d: %d elements, each %g\n", rank, ranks, COUNT, expected);
  return 0;
}
