/* Loaded into ina-switchd before it starts: as many mappings as INA_SIEGE_MAPPED says, so that few
 * are left of vm.max_map_count. For ./dev bench siege. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static char* memory;
static size_t bytes;

/* Where a switch gets there by serving jobs, its doorman was forked long before and has none. */
static void drop_mappings(void) {
  munmap(memory, bytes);
}

__attribute__((constructor)) static void make_mappings(void) {
  const char* text = getenv("INA_SIEGE_MAPPED");
  unsetenv("INA_SIEGE_MAPPED");
  unsetenv("LD_PRELOAD");
  if (!text) return;
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  const size_t pages = strtoul(text, NULL, 10);
  bytes = pages * page;
  memory = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED || pthread_atfork(NULL, NULL, drop_mappings) != 0) abort();
  /* Neighbours with other rights are mappings of their own. */
  for (size_t i = 1; i < pages; i += 2)
    if (mprotect(memory + i * page, page, PROT_READ) != 0) abort();
}
