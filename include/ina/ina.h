/* libina: collectives that the aggregation switch computes. C ABI.
 *
 * Every call that can wait takes a timeout and returns a status: INA_OK (0), INA_IN_PROGRESS (1),
 * or a negative error. The library never aborts, prints, or installs signal handlers.
 *
 * Threads: any thread may use a context; the library serialises calls on one context. All
 * ranks of a job must start their operations in the same order (as in MPI and NCCL), so threads
 * that share a context must agree on an order. Each context owns one background thread. It
 * sleeps unless an asynchronous operation needs progress, and it blocks all signals.
 *
 * Fork: a context belongs to the process that made it. In a forked child every call on it returns
 * INA_ERR_FORKED. The child does not see the shared memory and does not disturb the parent.
 *
 * After an error: INA_ERR_INVALID, INA_ERR_UNSUPPORTED, and INA_ERR_TIMEOUT of ina_wait leave
 * everything as it was. Any other error of an operation ends the job for all its workers. From then
 * on each call on the context returns that same error, and only ina_finalize is left to do.
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
  INA_ERR_INVALID = -1,      /* an argument is wrong; the text names it */
  INA_ERR_TIMEOUT = -2,      /* the timeout has passed; the text says what the call waited for */
  INA_ERR_NO_SWITCH = -3,    /* no switch at this URL; the text names the socket */
  INA_ERR_VERSION = -4,      /* library and switch speak different protocol versions */
  INA_ERR_REFUSED = -5,      /* admission refused; the text gives the reason and the shortfall */
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
 * result. 16-bit floats accumulate in float32 and are rounded once. min and max: a NaN makes the
 * result NaN, and -0 < +0. avg divides before rounding; integers are refused. Float sums are made
 * in arrival order: all ranks get the bitwise same result, and two runs may differ in the last bits
 * (ina_numeric changes that). */
typedef enum ina_op {
  INA_SUM = 1,
  INA_MIN = 2,
  INA_MAX = 3,
  INA_AVG = 4,
  INA_OP_MAX_ENUM = 0x7fffffff
} ina_op;

/* How a waiting call spends its time. AUTO spins briefly, then yields, then sleeps until woken. It
 * is right wherever there may be fewer cores than processes. */
typedef enum ina_idle {
  INA_IDLE_AUTO = 0,
  INA_IDLE_SPIN = 1,      /* lowest latency; needs a core of its own */
  INA_IDLE_YIELD = 2,     /* sched_yield between polls */
  INA_IDLE_BACKOFF = 3,   /* spin, yield, then ever longer sleeps */
  INA_IDLE_INTERRUPT = 4, /* sleep at once; the switch wakes the process */
  INA_IDLE_MAX_ENUM = 0x7fffffff
} ina_idle;

/* How sum and avg of floats are made; all ranks must choose the same. With REPRODUCIBLE the result
 * depends on the values and the number of ranks only, and not on the order of arrival, so two
 * runs give the same bits. float32, bfloat16 and float16 are added in fixed point with one exponent
 * per block of 256 elements (32 bits, log2(ranks) of them headroom). Let M be the largest value of
 * a block: before its rounding, a sum is exact to ranks^2 * 2^-30 * M. NaN and Inf propagate as in
 * IEEE 754. A sum that is zero is +0. float64 is refused with INA_ERR_UNSUPPORTED: its mantissa
 * does not fit. Integers, min and max never depend on the order and take the native way. The mode
 * costs a second round trip, and for 16-bit floats twice the bytes. */
typedef enum ina_numeric {
  INA_NUMERIC_DEFAULT = 0, /* the variable INA_NUMERIC (native, reproducible), or native */
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
  int32_t rank;       /* 0..world_size-1; -1: from INA_RANK, RANK, OMPI_COMM_WORLD_RANK,
                         PMI_RANK, SLURM_PROCID */
  int32_t world_size; /* 1..64; -1: from INA_WORLD_SIZE, WORLD_SIZE, OMPI_COMM_WORLD_SIZE,
                         PMI_SIZE, SLURM_NTASKS */
  int64_t timeout_us; /* for joining, and the default of operations; 0: INA_TIMEOUT_US or 30 s. If
                         neither is set, a switch that is not there is waited for half a second */
  uint64_t window_bytes; /* how far a rank may run ahead; 0: the switch's grant */
  ina_idle idle;
  int32_t
      copy_threads; /* threads for copies of large tensors; 0: as many as cores allow, 1: none */
  int64_t rejoin_timeout_us; /* how long a switch may be gone, e.g. while it restarts; running
                                operations only take longer; 0: INA_REJOIN_TIMEOUT_US or 30 s */
  ina_numeric numeric;
  uint64_t coalesce_bytes; /* small asynchronous all-reduces are fused up to this size (see
                              ina_allreduce_async), at most 64 MiB; 0: INA_COALESCE_BYTES or off */
} ina_config;

/* Sets every field to its default. The caller's header gives the length of the struct. A newer
 * library knows more fields and writes none of them. */
INA_API void ina_config_init_sized(ina_config* config, size_t struct_size);
static inline void ina_config_init(ina_config* config) {
  ina_config_init_sized(config, sizeof(ina_config));
}

/* Joins the job and waits until all its ranks have joined. `config` NULL: all settings come from
 * the environment. On failure *context is NULL and ina_last_error(NULL) has the text. */
INA_API int ina_init(const ina_config* config, ina_context** context);

/* Leaves the job and frees the context, whatever happens. Before that it waits until all ranks have
 * called it, at most timeout_us (0: the default), because a worker that is ahead must still be able
 * to serve the others. Operations that still run are given up, and their requests are freed. */
INA_API int ina_finalize(ina_context* context, int64_t timeout_us);

INA_API int ina_rank(const ina_context* context);
INA_API int ina_world_size(const ina_context* context);

/* recv[i] = op over ranks of send[i], for i in 0..count-1. send == recv (in place) is allowed,
 * partial overlap is not. count, dtype and op must be the same on all ranks. count 0 is allowed and
 * still synchronises. timeout_us 0: the context's default. When the timeout passes, the job ends
 * for all ranks, because a result that only some ranks received would break the job silently. */
INA_API int ina_allreduce(ina_context* context, const void* send, void* recv, size_t count,
                          ina_dtype dtype, ina_op op, int64_t timeout_us);

/* Starts the same operation. Give *request to ina_wait or ina_test until one of them returns
 * another status than INA_IN_PROGRESS or INA_ERR_TIMEOUT, which frees the request, or to
 * ina_request_free. Until then both buffers belong to the library. Any number of operations may be
 * in flight; they complete in any order. */
INA_API int ina_allreduce_async(ina_context* context, const void* send, void* recv, size_t count,
                                ina_dtype dtype, ina_op op, ina_request** request);

/* With ina_config.coalesce_bytes the library collects all-reduces that are started in this way and
 * makes them one operation. They must have the same data type and op, be smaller than 64 KiB, and
 * fit together in coalesce_bytes. The collected all-reduces start
 *   when they fill coalesce_bytes, or the next one does not fit any more;
 *   when an operation starts that cannot join them: another data type or op, a larger one, a
 *   blocking one, a barrier, a group;
 *   when ina_wait, ina_test or ina_request_free is called for one of their requests, or
 *   ina_finalize.
 * The order of calls alone decides this, never time. All ranks must therefore make the same
 * calls in the same order, these calls included (repeating one changes nothing), and have the same
 * coalesce_bytes. Otherwise the job ends with INA_ERR_MISMATCH, and the text names both sides. */

/* Waits for one operation. INA_ERR_TIMEOUT: it still runs, call again. */
INA_API int ina_wait(ina_request* request, int64_t timeout_us);

/* Makes progress without waiting: INA_OK (complete, freed), INA_IN_PROGRESS, or an error (freed).
 */
INA_API int ina_test(ina_request* request);

/* Waits for the operation as a blocking call does: when the context's default timeout passes, the
 * job ends for all ranks. Frees the request in any case; the buffers are the caller's again. */
INA_API int ina_request_free(ina_request* request);

/* The library fuses all-reduces that ina_allreduce_async starts between the two calls. It gathers
 * those with the same data type and op that are smaller than 64 KiB, sums them in one operation and
 * scatters the result. That saves the cost of an operation for each. They start when enough of them
 * have come together, at ina_group_end at the latest. Larger ones start at once by themselves. Each
 * has its request as always. The results are those of unfused operations. With
 * INA_NUMERIC_REPRODUCIBLE, sums and averages of floats are not fused, because a block of elements
 * shares an exponent. All ranks must start the same operations between the same two calls.
 * While a group is open, these calls return INA_ERR_INVALID: ina_allreduce and ina_barrier;
 * ina_wait and ina_test for the group's requests (which stay valid); ina_group_start, because
 * groups do not nest. ina_request_free of one of its requests starts the collected all-reduces,
 * because it must give the buffers back; the group stays open. A group belongs to the context, not
 * to a thread. */
INA_API int ina_group_start(ina_context* context);
INA_API int ina_group_end(ina_context* context);

/* Returns when all ranks have called it. */
INA_API int ina_barrier(ina_context* context, int64_t timeout_us);

/* Memory that the switch reads without a copy in between, over the shm port. It is zeroed,
 * page-aligned, and readable and writable as any other memory. Over other transports it is ordinary
 * memory. It lives until ina_free or ina_finalize. */
INA_API int ina_alloc(ina_context* context, size_t bytes, void** memory);

/* The same for the caller's own memory: a memfd that is mapped at `memory` as a whole (`bytes` is
 * its size). The memfd must allow sealing. The library makes all its pages and seals it with
 * F_SEAL_SHRINK, F_SEAL_GROW and F_SEAL_FUTURE_WRITE. Existing mappings stay writable. From
 * then on the memfd cannot be mapped for writing, written to or punched. The caller may close it;
 * it stays mapped. Call ina_free, which ends the registration, before unmapping it. */
INA_API int ina_register(ina_context* context, int memfd, void* memory, size_t bytes);

/* A result buffer: memory that the switch writes once for all workers of the job on its host. Where
 * `recv` of an all-reduce lies in such a buffer, nobody copies the result. The call is collective:
 * all ranks make it with the same `bytes`, in the same order. They give `recv` at the same place of
 * the buffer, at a multiple of INA_RESULT_ALIGNMENT. READ-ONLY: a write to it faults. Another
 * operation may use the same place once the first has completed. A job has up to 32 buffers. The
 * buffer is ordinary memory, and results are copied, where a worker is on another host or the
 * switch's slots are no multiple of 1024 bytes. The context's timeout applies as to a blocking
 * operation. */
#define INA_RESULT_ALIGNMENT 256
INA_API int ina_alloc_result(ina_context* context, size_t bytes, void** memory);

/* Gives back memory of ina_alloc, ina_alloc_result or ina_register; `memory` is the address that
 * they gave or took. INA_ERR_INVALID while an operation uses it. The memory of a result buffer is
 * the switch's again once all ranks have freed it. */
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
  uint64_t overflows;        /* results that saturated, or became infinite from finite inputs */
  uint64_t queries;          /* questions for results that were overdue */
  uint64_t bytes_copied;     /* payload that this process copied, either way (shm port) */
} ina_stats;

INA_API int ina_get_stats(const ina_context* context, ina_stats* stats);

/* The caller's knowledge of its job's progress; it sets the priority of the job's operations. */
typedef struct ina_hints {
  size_t struct_size; /* sizeof(ina_hints), set by the caller */
  uint32_t layer;     /* the layer of these gradients: 1..layers, 1 = front; 0: unknown */
  uint32_t layers;    /* of the model; 0: unknown */
  uint64_t remaining_iterations; /* this one included; 0: unknown */
} ina_hints;

/* Applies to the operations that this rank starts afterwards; NULL withdraws all hints.
 * When jobs contend for the switch's slots (policy esa), the more urgent fragment gets the slot and
 * the other one takes the way round. Urgency follows ESA. It grows as the job's end comes nearer: a
 * job that is soon over frees its share for all. It grows with the part of its time that the job
 * spends in communication: such a job gains most. The library measures that part. And it grows
 * towards the front layer: the next iteration needs that layer's sums first. Without hints a job is
 * expected to go on for as long as it has run, and its layers are equal.
 * Call it before each operation, or once an iteration if layers do not matter: from the falling
 * remaining_iterations the library learns how long one iteration takes. Ranks may differ. Hints
 * change no result except by the order in which floats are added. */
INA_API int ina_set_hints(ina_context* context, const ina_hints* hints);

/* Whether a result so far saturated (int8), or became Inf from finite values (float16, bfloat16;
 * with INA_NUMERIC_REPRODUCIBLE also float32). With INA_NUMERIC_NATIVE an Inf in a sum or average
 * of bfloat16 counts even where a rank contributed an Inf. Returns 1 or 0, or a negative status. A
 * non-zero `clear` resets the flag. */
INA_API int ina_overflowed(ina_context* context, int clear);

/* Text of the last error of this context; with NULL, of this thread's last failed call without
 * a context. It is valid until the calling thread asks again, and never NULL. */
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
