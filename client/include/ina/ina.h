/* libina: collectives whose sum is made by the aggregation switch. C ABI.
 *
 * Every call that can wait takes a timeout and returns a status: INA_OK (0), INA_IN_PROGRESS (1),
 * or a negative error. Nothing here aborts, prints, or installs signal handlers.
 *
 * Threads: a context may be used from any thread; calls on one context are serialised inside. All
 * ranks of a job must start their operations in the same order (as in MPI and NCCL), so threads
 * that share a context must agree on an order themselves. Each context owns one background thread,
 * asleep unless an asynchronous operation needs progress; it blocks all signals.
 *
 * Fork: a context belongs to the process that made it. In a forked child every call on it returns
 * INA_ERR_FORKED, and the child neither sees the shared memory nor disturbs the parent.
 *
 * After an error: INA_ERR_INVALID, INA_ERR_UNSUPPORTED and INA_ERR_TIMEOUT of ina_wait leave
 * everything as it was. Any other error of an operation ends the job for all its workers: from then
 * on each call on the context returns that same error, and the only thing left is ina_finalize.
 * The same process may then join again, under the same name or another.
 */
#ifndef INA_INA_H_
#define INA_INA_H_

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define INA_API __attribute__((visibility("default")))
#else
#define INA_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define INA_VERSION_MAJOR 0
#define INA_VERSION_MINOR 1
#define INA_VERSION_PATCH 0

typedef enum ina_status {
  INA_OK = 0,
  INA_IN_PROGRESS = 1,       /* ina_test: not complete yet */
  INA_ERR_INVALID = -1,      /* an argument is wrong; the text says which */
  INA_ERR_TIMEOUT = -2,      /* the time given has passed; the text says for what it waited */
  INA_ERR_NO_SWITCH = -3,    /* no switch at this URL; the text says which socket was tried */
  INA_ERR_VERSION = -4,      /* library and switch speak different protocol versions */
  INA_ERR_REFUSED = -5,      /* admission refused; the text says why and by how much */
  INA_ERR_RANK_TAKEN = -6,   /* this rank of the job has already joined */
  INA_ERR_MISMATCH = -7,     /* workers disagree about an operation; the text names both sides */
  INA_ERR_PEER_LOST = -8,    /* a worker of the job died or left early; the text names its rank */
  INA_ERR_SWITCH_LOST = -9,  /* the switch is gone and did not come back in time, or came back
                                without knowing the job */
  INA_ERR_ABORTED = -10,     /* another worker gave up, or an operator ended the job */
  INA_ERR_NO_MEMORY = -11,   /* memory, descriptors or another system resource is exhausted */
  INA_ERR_UNSUPPORTED = -12, /* not offered by this build, transport or switch */
  INA_ERR_FORKED = -13,      /* the context was made by the parent process */
  INA_ERR_INTERNAL = -14     /* a defect in the library or the switch; please report the text */
} ina_status;

typedef enum ina_dtype {
  INA_INT8 = 1,
  INA_INT32 = 2,
  INA_INT64 = 3,
  INA_FLOAT32 = 4,
  INA_FLOAT64 = 5,
  INA_BFLOAT16 = 6,
  INA_FLOAT16 = 7,
  INA_DTYPE_MAX_ENUM =
      0x7fffffff /* no value: gives the type the range of int, as in the two below */
} ina_dtype;

/* Integers wrap modulo 2^n, except int8, which accumulates in 32 bits and saturates once, in the
 * result. 16-bit floats accumulate in float32 and are rounded once. min and max: NaN wins,
 * -0 < +0. avg divides before rounding and is refused for integers. Float sums are made in arrival
 * order: all ranks get the bitwise same result, two runs may differ in the last bits, unless
 * ina_numeric says otherwise. */
typedef enum ina_op {
  INA_SUM = 1,
  INA_MIN = 2,
  INA_MAX = 3,
  INA_AVG = 4,
  INA_OP_MAX_ENUM = 0x7fffffff
} ina_op;

/* How a waiting call spends its time. AUTO: spin briefly, then yield, then sleep until woken;
 * right whenever cores may be fewer than processes. */
typedef enum ina_idle {
  INA_IDLE_AUTO = 0,
  INA_IDLE_SPIN = 1,      /* lowest latency; needs a core of its own */
  INA_IDLE_YIELD = 2,     /* sched_yield between polls */
  INA_IDLE_BACKOFF = 3,   /* spin, yield, then ever longer sleeps */
  INA_IDLE_INTERRUPT = 4, /* sleep at once; the switch wakes the process */
  INA_IDLE_MAX_ENUM = 0x7fffffff
} ina_idle;

/* How sum and avg of floats are made; all ranks must choose the same. REPRODUCIBLE: the result
 * depends on the values and the number of ranks only, not on the order in which they arrive, so two
 * runs give the same bits. float32, bfloat16 and float16 are added in fixed point with one exponent
 * per block of 256 elements (32 bits, log2(ranks) of them headroom): beside a value M in its block,
 * a sum is exact to ranks^2 * 2^-30 * M and its rounding. NaN and Inf propagate as in IEEE 754. A
 * sum that is zero is +0. float64 is refused with INA_ERR_UNSUPPORTED: it does not fit. Integers,
 * min and max never depend on the order and take the native way. Costs a second round trip, and for
 * 16-bit floats twice the bytes. */
typedef enum ina_numeric {
  INA_NUMERIC_DEFAULT = 0, /* INA_NUMERIC (native, reproducible), or native */
  INA_NUMERIC_NATIVE = 1,  /* in the data type's accumulator, in order of arrival */
  INA_NUMERIC_REPRODUCIBLE = 2,
  INA_NUMERIC_MAX_ENUM = 0x7fffffff
} ina_numeric;

typedef struct ina_context ina_context;
typedef struct ina_request ina_request;

typedef struct ina_config {
  size_t struct_size; /* sizeof(ina_config), set by ina_config_init */
  const char* url;    /* "shm:/run/ina/switch.sock", "dpdk:10.0.0.1?control=..."; NULL: INA_URL */
  const char*
      job; /* name of the job, same on all ranks; NULL: INA_JOB, the launcher's id, "default" */
  int32_t rank;          /* 0..world_size-1; -1: from INA_RANK, RANK, OMPI_COMM_WORLD_RANK,
                            PMI_RANK, SLURM_PROCID */
  int32_t world_size;    /* 1..64; -1: from INA_WORLD_SIZE, WORLD_SIZE, OMPI_COMM_WORLD_SIZE,
                            PMI_SIZE, SLURM_NTASKS */
  int64_t timeout_us;    /* for joining, and the default of operations; 0: INA_TIMEOUT_US or 30 s. A
                            switch that is not there is waited for only if one of them is set */
  uint64_t window_bytes; /* how far a rank may run ahead; 0: what the switch grants */
  ina_idle idle;
  int32_t
      copy_threads; /* threads for copies of large tensors; 0: as many as cores allow, 1: none */
  int64_t rejoin_timeout_us; /* how long a switch may be gone, e.g. while it is restarted; running
                                operations only take longer; 0: INA_REJOIN_TIMEOUT_US or 30 s */
  ina_numeric numeric;
  uint64_t coalesce_bytes; /* small asynchronous all-reduces are fused up to this size (see
                              ina_allreduce_async), at most 64 MiB; 0: INA_COALESCE_BYTES or off */
} ina_config;

/* Sets every field to its default. The caller's header says how long the struct is: a library that
 * is newer knows more fields and writes none of them. */
INA_API void ina_config_init_sized(ina_config* config, size_t struct_size);
static inline void ina_config_init(ina_config* config) {
  ina_config_init_sized(config, sizeof(ina_config));
}

/* Joins the job and waits until all its ranks have. `config` NULL: all from the environment.
 * On failure *context is NULL and ina_last_error(NULL) has the text. */
INA_API int ina_init(const ina_config* config, ina_context** context);

/* Leaves the job: waits until all ranks have called it (a worker that is ahead must still be able
 * to serve the others), at most timeout_us (0: the default), and frees the context whatever
 * happens. Operations still running are given up and
 * their requests freed. */
INA_API int ina_finalize(ina_context* context, int64_t timeout_us);

INA_API int ina_rank(const ina_context* context);
INA_API int ina_world_size(const ina_context* context);

/* recv[i] = op over ranks of send[i], for i in 0..count-1. send == recv (in place) is allowed,
 * partial overlap is not. count, dtype and op must be the same on all ranks. count 0 is allowed and
 * still synchronises. timeout_us 0: the context's default. When it passes the job is ended for all
 * ranks, because a result that only some received would break it silently. */
INA_API int ina_allreduce(ina_context* context, const void* send, void* recv, size_t count,
                          ina_dtype dtype, ina_op op, int64_t timeout_us);

/* The same, started; *request must be given to ina_wait or ina_test until one of them returns other
 * than INA_IN_PROGRESS / INA_ERR_TIMEOUT, which frees it, or to ina_request_free. Both buffers
 * belong to the library until then. Any number may be in flight; they complete in any order. */
INA_API int ina_allreduce_async(ina_context* context, const void* send, void* recv, size_t count,
                                ina_dtype dtype, ina_op op, ina_request** request);

/* With ina_config.coalesce_bytes, all-reduces started so are collected and made into one operation,
 * as long as they have the same data type and op, are smaller than 64 KiB, and fit together in
 * coalesce_bytes. What is collected is started
 *   when it fills coalesce_bytes, or what comes next does not fit any more;
 *   when an operation is started that cannot join it: another data type or op, a larger one, a
 *   blocking one, a barrier, a group;
 *   when ina_wait, ina_test or ina_request_free is called for one of its requests, or ina_finalize.
 * This depends on the order of calls only, never on time. All ranks must therefore make the same
 * calls in the same order, these included (repeating one changes nothing), and have the same
 * coalesce_bytes, or the job ends with INA_ERR_MISMATCH, whose text names both sides. */

/* Waits for one operation. INA_ERR_TIMEOUT: still running, call again. */
INA_API int ina_wait(ina_request* request, int64_t timeout_us);

/* Makes progress without waiting: INA_OK (complete, freed), INA_IN_PROGRESS, or an error (freed).
 */
INA_API int ina_test(ina_request* request);

/* Waits for the operation as a blocking call does: when the context's default time passes, the job
 * is ended for all ranks. Frees the request in any case, so the buffers are the caller's again. */
INA_API int ina_request_free(ina_request* request);

/* All-reduces started with ina_allreduce_async between the two calls are fused: those with the same
 * data type and op that are smaller than 64 KiB are gathered, summed by one operation and
 * scattered, which saves the cost of an operation for each. They start when enough of them have
 * come together, at ina_group_end at the latest; larger ones start at once by themselves. Each has
 * its request as always. Results are those of unfused operations; with INA_NUMERIC_REPRODUCIBLE,
 * sums and averages of floats are not fused, because a block of elements shares an exponent.
 * All ranks must start the same operations between the same two calls.
 * While a group is open, INA_ERR_INVALID is returned by ina_allreduce and ina_barrier, by ina_wait
 * and ina_test for its requests (which stay valid), and by ina_group_start: groups do not nest.
 * ina_request_free of one of its requests starts what has been collected, because it must give the
 * buffers back; the group stays open. A group belongs to the context, not to a thread. */
INA_API int ina_group_start(ina_context* context);
INA_API int ina_group_end(ina_context* context);

/* Returns when all ranks have called it. */
INA_API int ina_barrier(ina_context* context, int64_t timeout_us);

/* Memory from which the switch adds without a copy in between, over the shm port: zeroed,
 * page-aligned, readable and writable as any other. Over other transports it is ordinary memory.
 * Lives until ina_free or ina_finalize. */
INA_API int ina_alloc(ina_context* context, size_t bytes, void** memory);

/* The same for the caller's own memory: a memfd that is mapped at `memory` as a whole (`bytes` is
 * its size). It must allow sealing. The library makes all its pages and seals it with
 * F_SEAL_SHRINK, F_SEAL_GROW and F_SEAL_FUTURE_WRITE: mappings that exist stay writable, but from
 * then on it cannot be mapped for writing, written to or punched. It may be closed and stays
 * mapped; ina_free ends the registration, before the caller unmaps it. */
INA_API int ina_register(ina_context* context, int memfd, void* memory, size_t bytes);

/* A result buffer, which the switch writes once for all workers of the job on its host: where
 * `recv` of an all-reduce lies in one, the result is not copied by anybody. Collective: all ranks
 * call it with the same `bytes`, in the same order, and give `recv` at the same place of it, at a
 * multiple of INA_RESULT_ALIGNMENT. READ-ONLY: writing to it faults. Another operation may use the
 * same place once the first has completed. Up to 32 in a job. Where a worker is on another host, it
 * is ordinary memory and results are copied. The same context's timeout applies as to a blocking
 * operation. */
#define INA_RESULT_ALIGNMENT 256
INA_API int ina_alloc_result(ina_context* context, size_t bytes, void** memory);

/* Gives back what ina_alloc, ina_alloc_result or ina_register gave or took: `memory` as it was
 * there. INA_ERR_INVALID while an operation uses it. The memory of a result buffer is the switch's
 * again once all ranks have freed it. */
INA_API int ina_free(ina_context* context, void* memory);

typedef struct ina_stats {
  size_t struct_size;      /* set by the caller */
  uint64_t operations;     /* completed */
  uint64_t fragments_sent; /* including those sent again */
  uint64_t fragments_resent;
  uint64_t results_received; /* fragments completed */
  uint64_t bytes_sent;       /* payload */
  uint64_t bytes_received;   /* payload */
  uint64_t sleeps;           /* times a wait went to sleep in the kernel */
  uint64_t dropped;          /* packets dropped on receipt */
  uint64_t overflows;        /* results that saturated or became infinite from finite inputs */
  uint64_t queries;          /* results that were overdue and asked for */
  uint64_t bytes_copied;     /* payload that this process copied, either way (shm port) */
} ina_stats;

INA_API int ina_get_stats(const ina_context* context, ina_stats* stats);

/* What the caller knows of its job's progress; sets the priority of its operations. */
typedef struct ina_hints {
  size_t struct_size;            /* sizeof(ina_hints), set by the caller */
  uint32_t layer;                /* whose gradients these are: 1..layers, 1 = front; 0: unknown */
  uint32_t layers;               /* of the model; 0: unknown */
  uint64_t remaining_iterations; /* this one included; 0: unknown */
} ina_hints;

/* Applies to the operations that this rank starts afterwards; NULL: nothing is known any more.
 * When jobs contend for the switch's slots (policy esa), the more urgent fragment gets the slot and
 * the other one takes the way round. Urgency follows ESA: it grows as the job's end comes nearer (a
 * job that is soon over frees its share for all), with the part of its time that the job spends in
 * communication (measured by the library: such a job gains most), and towards the front layer,
 * whose sums the next iteration needs first. Without hints a job is taken to go on for as long as
 * it has run, and its layers are equal.
 * Call it before each operation, or once an iteration if layers are of no interest: the library
 * learns from the falling remaining_iterations how long one takes. Ranks may differ; hints never
 * change a result but by the order in which floats are added. */
INA_API int ina_set_hints(ina_context* context, const ina_hints* hints);

/* Whether a result so far saturated (int8), or became Inf from finite values (float16, bfloat16;
 * with INA_NUMERIC_REPRODUCIBLE float32 too). With INA_NUMERIC_NATIVE an Inf in a sum or average of
 * bfloat16 counts also where a rank contributed an Inf. Returns 1 or 0, or a negative status;
 * `clear` non-zero resets the flag. */
INA_API int ina_overflowed(ina_context* context, int clear);

/* Text of the last error of this context (or, with NULL, of this thread's last failed call without
 * a context). Valid until the calling thread asks again. Never NULL. */
INA_API const char* ina_last_error(const ina_context* context);

/* Name of a status, e.g. "INA_ERR_TIMEOUT". */
INA_API const char* ina_status_name(int status);

/* Bytes of one element, 0 for an unknown dtype. */
INA_API size_t ina_dtype_size(ina_dtype dtype);

/* "0.1.0" of the library in use, which may differ from the header's. */
INA_API const char* ina_version(void);

#ifdef __cplusplus
}
#endif

#endif /* INA_INA_H_ */
