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

/* Any C, from C90 on, and any C++. */
#if defined(__cplusplus) || (defined(__STDC_VERSION__) && __STDC_VERSION__ >= 199901L)
#define INA_INLINE static inline
#elif defined(__GNUC__)
#define INA_INLINE static __inline__
#else
#define INA_INLINE static
#endif

/* In C++ an enumeration without a type holds its own values alone. Arguments may have any. */
#if defined(__cplusplus) && __cplusplus >= 201103L
#define INA_INT : int
#else
#define INA_INT
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define INA_VERSION_MAJOR 0
#define INA_VERSION_MINOR 1
#define INA_VERSION_PATCH 0

/* The most ranks of a job. A switch may have a lower limit, and refuses larger jobs then. */
#define INA_MAX_WORLD_SIZE 4096

typedef enum ina_status INA_INT {
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

typedef enum ina_dtype INA_INT {
  INA_INT8 = 1,
  INA_INT32 = 2,
  INA_INT64 = 3,
  INA_FLOAT32 = 4,
  INA_FLOAT64 = 5,
  INA_BFLOAT16 = 6,
  INA_FLOAT16 = 7,
  INA_UINT8 = 8,
  INA_BOOL = 9, /* a byte each: 0 is false, all else true; results are 0 or 1 */
  INA_DTYPE_MAX_ENUM =
      0x7fffffff /* no value: gives the type the range of int, as in the two below */
} ina_dtype;

/* Integers wrap modulo 2^n, except int8 and uint8, whose results are the true sum or product,
 * saturated once. 16-bit floats accumulate in float32 and are rounded once. min and max: a NaN
 * makes the result NaN, and -0 < +0. avg divides before rounding; integers and bool are refused.
 * Bitwise operations are for integers and bool only. Of bool, sum and max are or, prod and min are
 * and. Sums and products of floats are made in arrival order: all ranks get the bitwise same
 * result, and two runs may differ in the last bits (ina_numeric changes that). */
typedef enum ina_op INA_INT {
  INA_SUM = 1,
  INA_MIN = 2,
  INA_MAX = 3,
  INA_AVG = 4,
  INA_PROD = 5,
  INA_BAND = 6, /* bitwise and */
  INA_BOR = 7,
  INA_BXOR = 8,
  INA_OP_MAX_ENUM = 0x7fffffff
} ina_op;

/* How a waiting call spends its time. AUTO spins briefly, then yields, then sleeps until woken. It
 * is right wherever there may be fewer cores than processes. */
typedef enum ina_idle INA_INT {
  INA_IDLE_AUTO = 0,
  INA_IDLE_SPIN = 1,      /* lowest latency; needs a core of its own */
  INA_IDLE_YIELD = 2,     /* sched_yield between polls */
  INA_IDLE_BACKOFF = 3,   /* spin, yield, then ever longer sleeps */
  INA_IDLE_INTERRUPT = 4, /* sleep at once; the switch wakes the process */
  INA_IDLE_MAX_ENUM = 0x7fffffff
} ina_idle;

/* How sum, avg and prod of floats are made; all ranks must choose the same. With REPRODUCIBLE the
 * result does not depend on the order of arrival, so two runs give the same bits. Sums and averages
 * of float32, bfloat16 and float16 are made in fixed point with one exponent per block of 256
 * elements (32 bits, log2(ranks) of them headroom). They depend on the values and the number of
 * ranks only. Let M be the largest value of a block: before its rounding, a sum is exact to
 * ranks^2 * 2^-30 * M. NaN and Inf propagate as in IEEE 754. A sum that is zero is +0. It costs a
 * second round trip, and for 16-bit floats twice the bytes. Sums and averages of float64, and
 * products of floats, are made by the ranks, in the order of the ranks: the bits are those of a
 * native operation whose contributions arrive in that order. It costs a second round trip, and a
 * rank receives up to twice the bytes. Integers, bool, min and max never depend on the order and
 * take the native way. */
typedef enum ina_numeric INA_INT {
  INA_NUMERIC_DEFAULT = 0, /* the variable INA_NUMERIC (native, reproducible), or native */
  INA_NUMERIC_NATIVE = 1,  /* in the data type's accumulator, in order of arrival */
  INA_NUMERIC_REPRODUCIBLE = 2,
  INA_NUMERIC_MAX_ENUM = 0x7fffffff
} ina_numeric;

typedef struct ina_context ina_context;
typedef struct ina_request ina_request;

typedef struct ina_config {
  size_t struct_size; /* sizeof(ina_config), set by ina_config_init */
  const char* url;    /* "shm:/run/ina/switch.sock", "dpdk:10.0.0.1?control=..."; NULL: INA_URL. A
                         switch at a unix socket must be a process of root, of this user, of a
                         service in /run/NAME, or of the user that INA_SWITCH_USER names */
  const char*
      job; /* name of the job, same on all ranks; NULL: INA_JOB, the launcher's id, "default" */
  int32_t rank;       /* 0..world_size-1; -1: from INA_RANK, RANK, OMPI_COMM_WORLD_RANK,
                         PMI_RANK, SLURM_PROCID, JOB_COMPLETION_INDEX */
  int32_t world_size; /* 1..INA_MAX_WORLD_SIZE; -1: from INA_WORLD_SIZE, WORLD_SIZE,
                         OMPI_COMM_WORLD_SIZE, PMI_SIZE, SLURM_NTASKS */
  int64_t timeout_us; /* for joining, and the default of operations; 0: INA_TIMEOUT_US or 30 s. If
                         neither is set, a switch that is not there is waited for half a second */
  uint64_t window_bytes; /* how far a rank may run ahead; 0: the switch's grant, by shm 1 MiB */
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
INA_INLINE void ina_config_init(ina_config* config) {
  ina_config_init_sized(config, sizeof(ina_config));
}

/* Joins the job and waits until all its ranks have joined. `config` NULL: all settings come from
 * the environment. On failure *context is NULL and ina_last_error(NULL) has the text. */
INA_API int ina_init(const ina_config* config, ina_context** context);

/* Leaves the job and frees the context, also when it returns an error other than INA_ERR_INVALID.
 * Before that the call waits for the operations that still run, and then until all ranks have made
 * it, because a worker that is ahead must still be able to serve the others; both together at most
 * timeout_us (0: the default). INA_ERR_TIMEOUT: operations that have not ended by then are given
 * up, and the others get INA_ERR_PEER_LOST with a text that names them. All requests are freed. The
 * others' operations that this rank has not called end at once, with INA_ERR_PEER_LOST. */
INA_API int ina_finalize(ina_context* context, int64_t timeout_us);

/* Groups of ranks, as MPI_Comm_split makes them. Collective: all ranks of `context` make the same
 * calls in the same order. Ranks with the same `colour` become a group, ordered by `key`, and by
 * their ranks in `context` where keys are equal. A rank with a negative colour is in no group:
 * *group is NULL, and INA_OK is returned. *group is a context: every call takes it, ina_split too,
 * and its rank, world size, order of operations, statistics and errors are its own. An operation of
 * one group waits for no operation of another. ina_finalize, which all ranks of the group call,
 * leaves the group alone. ina_finalize of the context of ina_init leaves all groups with it: call
 * ina_finalize for them before or afterwards, to free them.
 * A group takes memory of the switch, not slots of its own, and is never refused for want of slots
 * (but under the policy static, which has a pool for each group). Where slots are short the
 * fallback makes its sums; ina_stats says how many. INA_ERR_REFUSED: memory, or the number of
 * groups that the switch allows, does not suffice, and the text says which; no rank gets a group
 * then, and `context` is as before. INA_ERR_TIMEOUT: not all ranks called it within the context's
 * timeout, and the job of `context` has ended. */
INA_API int ina_split(ina_context* context, int32_t colour, int32_t key, ina_context** group);

/* A group of the `count` ranks of `context` in `ranks`, in this order: rank `ranks[i]` is rank i of
 * the group. Its members call it, all with the same ranks and the same `tag`, and no other rank
 * takes part. So calls need no common order between all ranks of `context`, and threads may make
 * several groups at a time, each with a tag of its own. If members give the same tag and different
 * ranks, the job of `context` ends on all ranks with INA_ERR_MISMATCH, and the text names both
 * sides. A tag may be used again once the call has returned. The group is as ina_split makes it,
 * with the same limits and errors. INA_ERR_REFUSED: no member gets a group. INA_ERR_PEER_LOST: a
 * member has called ina_finalize for `context`. INA_ERR_TIMEOUT: not all members called it within
 * the context's timeout, and the job of `context` has ended. */
INA_API int ina_create_group(ina_context* context, const int* ranks, size_t count, uint64_t tag,
                             ina_context** group);

INA_API int ina_rank(const ina_context* context);
INA_API int ina_world_size(const ina_context* context);

/* recv[i] = op over ranks of send[i], for i in 0..count-1. send == recv (in place) is allowed,
 * partial overlap is not. count (at most 2^46 - 1), dtype and op must be the same on all ranks.
 * count 0 is allowed and still synchronises. timeout_us 0: the context's default; a negative one is
 * INA_ERR_INVALID, in every call. Buffers need no alignment. When the timeout passes, the job ends
 * for all ranks, because a result that only some ranks received would break the job silently. */
INA_API int ina_allreduce(ina_context* context, const void* send, void* recv, size_t count,
                          ina_dtype dtype, ina_op op, int64_t timeout_us);

/* Starts the same operation. Give *request to ina_wait or ina_test until one of them returns
 * another status than INA_IN_PROGRESS or INA_ERR_TIMEOUT, which frees the request, or to
 * ina_request_free. Until then both buffers belong to the library. Any number of operations may be
 * in flight; they complete in any order. */
INA_API int ina_allreduce_async(ina_context* context, const void* send, void* recv, size_t count,
                                ina_dtype dtype, ina_op op, ina_request** request);

/* No call writes to `send`, which may be memory that is only read; with send == recv that holds
 * where the result is what was sent, as at the root of a broadcast. Where `recv` cannot be written
 * to, the call is INA_ERR_INVALID, and nothing is sent: the library asks the kernel about the first
 * and the last byte (again a millisecond after it has last asked about the same page).
 *
 * The collectives below have the rules of ina_allreduce: all ranks make the same calls in the same
 * order, with the same dtype, op, root and counts; timeout_us 0 is the context's default; when it
 * passes, the job ends for all ranks; counts of 0 are allowed and still synchronise. If ranks
 * disagree, all ranks get INA_ERR_MISMATCH, and the text names both sides. Each has a function that
 * waits and one that starts it (_async), of which any number may be in flight.
 *
 * Counts and displacements are in elements. `counts` and `displacements` have world_size numbers,
 * by rank, and are read before the call returns. Counts are those of all ranks, the same on all of
 * them. Displacements say where a rank's block lies in this rank's buffer, and may differ between
 * ranks; NULL: one block after the other. All counts together are at most 2^46 - 1.
 *
 * A buffer that a rank has no use for may be NULL. `recv` must not overlap with `send`, except in
 * place as each function allows. At another place a result could overwrite data that must be sent
 * again when a message gets lost. INA_ERR_INVALID says so, and leaves everything as it was. `recv`
 * of a broadcast or an all-gather may lie in a result buffer (ina_alloc_result) as that of an
 * all-reduce does, with each block at a multiple of INA_RESULT_ALIGNMENT; elsewhere that is
 * INA_ERR_UNSUPPORTED. docs/collectives.md has the bytes that each moves. */

/* At `root`: recv[i] = op over ranks of send[i], for i in 0..count-1. Elsewhere `recv` is not used.
 * In place: send == recv at the root. */
INA_API int ina_reduce(ina_context* context, const void* send, void* recv, size_t count,
                       ina_dtype dtype, ina_op op, int root, int64_t timeout_us);
INA_API int ina_reduce_async(ina_context* context, const void* send, void* recv, size_t count,
                             ina_dtype dtype, ina_op op, int root, ina_request** request);

/* recv[i] = send[i] of `root`. Elsewhere `send` is not used. In place: send == recv at the root. */
INA_API int ina_broadcast(ina_context* context, const void* send, void* recv, size_t count,
                          ina_dtype dtype, int root, int64_t timeout_us);
INA_API int ina_broadcast_async(ina_context* context, const void* send, void* recv, size_t count,
                                ina_dtype dtype, int root, ina_request** request);

/* recv[i] = op over ranks of send[rank * count + i], for i in 0..count-1: `send` has world_size
 * blocks of `count`. In place: recv is this rank's own block, send + rank * count. */
INA_API int ina_reduce_scatter_block(ina_context* context, const void* send, void* recv,
                                     size_t count, ina_dtype dtype, ina_op op, int64_t timeout_us);
INA_API int ina_reduce_scatter_block_async(ina_context* context, const void* send, void* recv,
                                           size_t count, ina_dtype dtype, ina_op op,
                                           ina_request** request);

/* The same with blocks of counts[0], counts[1], ... elements, one after the other in `send`; this
 * rank gets the sums of its block, counts[rank] elements. */
INA_API int ina_reduce_scatter(ina_context* context, const void* send, void* recv,
                               const size_t* counts, ina_dtype dtype, ina_op op,
                               int64_t timeout_us);
INA_API int ina_reduce_scatter_async(ina_context* context, const void* send, void* recv,
                                     const size_t* counts, ina_dtype dtype, ina_op op,
                                     ina_request** request);

/* recv[r * count + i] = send[i] of rank r. In place: send is this rank's own block in `recv`. */
INA_API int ina_all_gather(ina_context* context, const void* send, void* recv, size_t count,
                           ina_dtype dtype, int64_t timeout_us);
INA_API int ina_all_gather_async(ina_context* context, const void* send, void* recv, size_t count,
                                 ina_dtype dtype, ina_request** request);

/* recv[displacements[r] + i] = send[i] of rank r, for i in 0..counts[r]-1. In place: likewise. */
INA_API int ina_all_gatherv(ina_context* context, const void* send, void* recv,
                            const size_t* counts, const size_t* displacements, ina_dtype dtype,
                            int64_t timeout_us);
INA_API int ina_all_gatherv_async(ina_context* context, const void* send, void* recv,
                                  const size_t* counts, const size_t* displacements,
                                  ina_dtype dtype, ina_request** request);

/* The same at `root` alone; elsewhere `recv` and the displacements are not used. In place: at the
 * root, send is its own block in `recv`. */
INA_API int ina_gather(ina_context* context, const void* send, void* recv, size_t count,
                       ina_dtype dtype, int root, int64_t timeout_us);
INA_API int ina_gather_async(ina_context* context, const void* send, void* recv, size_t count,
                             ina_dtype dtype, int root, ina_request** request);
INA_API int ina_gatherv(ina_context* context, const void* send, void* recv, const size_t* counts,
                        const size_t* displacements, ina_dtype dtype, int root, int64_t timeout_us);
INA_API int ina_gatherv_async(ina_context* context, const void* send, void* recv,
                              const size_t* counts, const size_t* displacements, ina_dtype dtype,
                              int root, ina_request** request);

/* recv[i] = send[r * count + i], or send[displacements[r] + i], of `root`, where r is this rank.
 * Elsewhere `send` and the displacements are not used. In place: at the root, recv is its own block
 * in `send`. */
INA_API int ina_scatter(ina_context* context, const void* send, void* recv, size_t count,
                        ina_dtype dtype, int root, int64_t timeout_us);
INA_API int ina_scatter_async(ina_context* context, const void* send, void* recv, size_t count,
                              ina_dtype dtype, int root, ina_request** request);
INA_API int ina_scatterv(ina_context* context, const void* send, void* recv, const size_t* counts,
                         const size_t* displacements, ina_dtype dtype, int root,
                         int64_t timeout_us);
INA_API int ina_scatterv_async(ina_context* context, const void* send, void* recv,
                               const size_t* counts, const size_t* displacements, ina_dtype dtype,
                               int root, ina_request** request);

/* recv[s * count + i] = send[r * count + i] of rank s, where r is this rank. Not in place. */
INA_API int ina_all_to_all(ina_context* context, const void* send, void* recv, size_t count,
                           ina_dtype dtype, int64_t timeout_us);
INA_API int ina_all_to_all_async(ina_context* context, const void* send, void* recv, size_t count,
                                 ina_dtype dtype, ina_request** request);

/* The same with counts of any size: this rank sends send_counts[d] elements from
 * send[send_displacements[d]] to rank d, and receives recv_counts[s] elements of rank s at
 * recv[recv_displacements[s]]. Each rank gives its own counts; the ranks tell each other theirs
 * first, which costs a round trip. Counts that do not fit are an INA_ERR_MISMATCH. */
INA_API int ina_all_to_allv(ina_context* context, const void* send, void* recv,
                            const size_t* send_counts, const size_t* send_displacements,
                            const size_t* recv_counts, const size_t* recv_displacements,
                            ina_dtype dtype, int64_t timeout_us);
INA_API int ina_all_to_allv_async(ina_context* context, const void* send, void* recv,
                                  const size_t* send_counts, const size_t* send_displacements,
                                  const size_t* recv_counts, const size_t* recv_displacements,
                                  ina_dtype dtype, ina_request** request);

/* Each rank r sends `count` elements to destinations[r], a rank or INA_NOBODY; no two send to the
 * same. A rank to which nobody sends leaves `recv` as it is. All ranks know all destinations. Not
 * in place. */
#define INA_NOBODY (-1)
INA_API int ina_permute(ina_context* context, const void* send, void* recv, size_t count,
                        ina_dtype dtype, const int* destinations, int64_t timeout_us);
INA_API int ina_permute_async(ina_context* context, const void* send, void* recv, size_t count,
                              ina_dtype dtype, const int* destinations, ina_request** request);

/* The same where each rank knows its own partners alone: it sends send_count elements to
 * `destination`, and receives recv_count from `source`; either may be INA_NOBODY. All ranks of the
 * job call it. Partners or counts that do not fit are an INA_ERR_MISMATCH. */
INA_API int ina_send_receive(ina_context* context, const void* send, void* recv, size_t send_count,
                             int destination, size_t recv_count, int source, ina_dtype dtype,
                             int64_t timeout_us);
INA_API int ina_send_receive_async(ina_context* context, const void* send, void* recv,
                                   size_t send_count, int destination, size_t recv_count,
                                   int source, ina_dtype dtype, ina_request** request);

/* Redistribution of an array that is spread over the ranks: from one layout on a mesh of ranks to
 * another one (docs/redistribution.md). All ranks make the same plan, once; then any number of
 * arrays is redistributed by it. No context is needed to plan. */
typedef struct ina_plan ina_plan;

/* The time of an operation: alpha_us + messages * message_us + bytes / gbps + copied / copy_gbps.
 * Messages and bytes are those of the busiest rank. Copied are the bytes of tiles whose order in
 * memory is changed, so that the elements for one rank, or from one rank, lie together. */
typedef struct ina_costs {
  size_t struct_size; /* sizeof(ina_costs), set by the caller */
  double alpha_us;
  double message_us; /* for each other rank to which a rank sends */
  double gbps;       /* of a rank's link, each direction, in 10^9 bits a second */
  double copy_gbps;  /* of a rank's memory; 0: copies take no time. May be absent: then a caller's
                        struct_size is that of the struct without it */
} ina_costs;

typedef struct ina_redistribution {
  size_t struct_size;  /* sizeof(ina_redistribution), set by the caller */
  const char* mesh;    /* the axes and their sizes: "x=4,y=2". As many ranks as the job has, in
                          row-major order: the last axis fastest */
  const size_t* shape; /* of the whole array */
  size_t dimensions;   /* of the array: 1..8 */
  const char* from;    /* the layout that there is: for each dimension "-" (whole), or the axes that
                          cut it ("x", "x*y"), separated by commas: "y,-,x" */
  const char* to;      /* the layout that is wanted */
  ina_dtype dtype;
  uint64_t limit_bytes; /* most that the buffer may have; 0: no limit */
  const char* method; /* "synthesised", "direct", "xla-order", "gather-slice"; NULL: the one of the
                         first two that is faster by the cost model */
  const ina_costs* costs; /* of the cost model, the same on all ranks; NULL: 20 us, 1 us, 10 Gb/s */
} ina_redistribution;

/* Collective: measures the costs of the operations of redistributions among all ranks of the
 * context: permutes and all-to-alls, of a few bytes, and of 1 MiB, and copies within
 * their memory, all ranks at once. The numbers are those of the slowest rank, the least of a few
 * passes, and the same on all. */
INA_API int ina_measure_costs(ina_context* context, ina_costs* costs);

/* Makes a plan. INA_ERR_INVALID names the fault: an axis used twice or unknown, a dimension that
 * does not divide, or a limit that no plan keeps (with the least limit that a plan keeps). The text
 * is ina_last_error(NULL)'s. On failure *plan is NULL. */
INA_API int ina_plan_create(const ina_redistribution* wanted, ina_plan** plan);
/* The same from ina_plan_json()'s text, or that of `ina-plan redistribute --json`. */
INA_API int ina_plan_parse(const char* json, ina_plan** plan);
/* Operations that were started with it go on. NULL is allowed. */
INA_API void ina_plan_free(ina_plan* plan);

typedef struct ina_plan_facts {
  size_t struct_size;    /* sizeof(ina_plan_facts), set by the caller */
  uint64_t buffer_bytes; /* that ina_redistribute needs: all memory of a rank */
  uint64_t source_bytes; /* of a rank's tile before */
  uint64_t target_bytes; /* and after */
  uint64_t sent_bytes;   /* by the rank that sends most */
  uint64_t hash;         /* the same on ranks with the same plan */
  double predicted_us;   /* by the cost model */
  uint32_t steps;
  uint32_t pieces; /* one after the other, to keep the limit */
} ina_plan_facts;

INA_API int ina_plan_get_facts(const ina_plan* plan, ina_plan_facts* facts);
/* The steps, the effect of each, and the costs of other methods, for a person; and as JSON. Both
 * live as long as the plan. NULL: out of memory. */
INA_API const char* ina_plan_text(ina_plan* plan);
INA_API const char* ina_plan_json(ina_plan* plan);

/* Carries a plan out. `buffer` has ina_plan_facts.buffer_bytes bytes or more. It begins with this
 * rank's tile of the source layout, in row-major order; when the call returns, with that of the
 * target layout. The rest is overwritten: the library needs no other memory for the array. Ranks
 * compare their plans before anything is moved: if they differ, all get INA_ERR_MISMATCH, and the
 * text names ranks and hashes. A mesh of another size than the job's is INA_ERR_INVALID. Otherwise
 * it is a collective like those above. */
INA_API int ina_redistribute(ina_context* context, const ina_plan* plan, void* buffer,
                             size_t buffer_bytes, int64_t timeout_us);
INA_API int ina_redistribute_async(ina_context* context, const ina_plan* plan, void* buffer,
                                   size_t buffer_bytes, ina_request** request);

/* Hierarchical collectives: of all ranks of a job, through the dimensions of a network ("Themis",
 * ISCA 2022; docs/themis.md). A rank is at one coordinate of each dimension; the first dimension's
 * is the fastest digit of its number. In a dimension a rank exchanges data with the ranks that
 * differ in that coordinate alone. The data is cut into chunks, and each chunk takes the dimensions
 * in the order of a plan that evens out their load. */
typedef struct ina_hierarchy ina_hierarchy;

typedef struct ina_hierarchy_config {
  size_t struct_size;   /* sizeof(ina_hierarchy_config), set by the caller */
  const char* topology; /* YAML text with the dimensions (docs/themis.md); their sizes' product is
                           the number of ranks. NULL: topology_file */
  const char* topology_file; /* a file with such a text */
  ina_context* const*
      rails;         /* of each dimension: a context of the same ranks, maybe of another
                        switch, of which its groups are split. NULL: all are split of `context` */
  size_t rail_count; /* the number of dimensions; 0 without rails */
} ina_hierarchy_config;

/* Collective: all ranks of `context` make a hierarchy. The call splits the ranks (ina_split) into
 * groups of the hierarchy: one of all ranks, and one for each dimension. All ranks notice three
 * faults: a wrong topology, dimensions whose product is not the number of ranks, and topologies
 * that differ between ranks. A rank whose own topology is wrong gets INA_ERR_INVALID, the others
 * get INA_ERR_MISMATCH with the ranks' numbers. Other errors are those of ina_split. Reading a
 * topology needs libina-topology.so beside libina.so, or it is INA_ERR_UNSUPPORTED. On failure
 * *hierarchy is NULL, and `context` has the text. */
INA_API int ina_hierarchy_create(ina_context* context, const ina_hierarchy_config* config,
                                 ina_hierarchy** hierarchy);
/* Collective: waits for the hierarchy's operations, leaves its groups, and frees it, also when it
 * returns an error other than INA_ERR_INVALID; ina_last_error(NULL) has the text. Requests of the
 * hierarchy belong to `context`. After ina_finalize of `context` no other call is allowed. NULL is
 * allowed. */
INA_API int ina_hierarchy_free(ina_hierarchy* hierarchy, int64_t timeout_us);

/* Collective: measures each dimension, all its groups at once: an all-reduce of one element, and
 * all-reduces, reduce-scatters and all-gathers of 256 KiB and 1 MiB; medians of the slowest rank.
 * That takes some hundred milliseconds, and longer on slow links. *yaml is the topology with these
 * rates and latencies, the same on all ranks, of which ina_hierarchy_create makes a hierarchy and
 * ina-plan plans. It lives until the next call, or as long as the hierarchy. INA_ERR_INVALID while
 * collectives of the hierarchy are under way. Other errors end the hierarchy, as those of its
 * collectives. */
INA_API int ina_hierarchy_calibrate(ina_hierarchy* hierarchy, const char** yaml);

typedef struct ina_hierarchical_options {
  size_t struct_size;    /* sizeof(ina_hierarchical_options), set by the caller */
  const char* scheduler; /* "baseline": dimensions first to last and back; "themis": by load;
                            "search": the best of both, bettered by trial. NULL: "themis" */
  uint32_t chunks;       /* that the data is cut into, 1..4096; 0: 16 */
} ina_hierarchical_options;

/* As ina_allreduce, ina_reduce_scatter_block, ina_all_gather and ina_all_to_all of the context,
 * with the same buffers, also in place, and the same rules. `options` NULL: the defaults; all ranks
 * must give the same. The plan of a call is made at its first time and kept for the next ones.
 * Ranks compare their plans before anything is moved: if they differ, all get INA_ERR_MISMATCH, and
 * the text names ranks and hashes. An error of one dimension, or a time-out of a call that waits,
 * ends the hierarchy on all ranks: from then on each call returns that error, and
 * ina_hierarchy_free is left to do. `context` and its job go on. Sums are rounded, and int8 and
 * uint8 saturated, once in each dimension. With INA_NUMERIC_REPRODUCIBLE, sums, averages and
 * products of floats are INA_ERR_UNSUPPORTED. */
INA_API int ina_hierarchical_allreduce(ina_hierarchy* hierarchy, const void* send, void* recv,
                                       size_t count, ina_dtype dtype, ina_op op,
                                       const ina_hierarchical_options* options, int64_t timeout_us);
INA_API int ina_hierarchical_allreduce_async(ina_hierarchy* hierarchy, const void* send, void* recv,
                                             size_t count, ina_dtype dtype, ina_op op,
                                             const ina_hierarchical_options* options,
                                             ina_request** request);
INA_API int ina_hierarchical_reduce_scatter(ina_hierarchy* hierarchy, const void* send, void* recv,
                                            size_t count, ina_dtype dtype, ina_op op,
                                            const ina_hierarchical_options* options,
                                            int64_t timeout_us);
INA_API int ina_hierarchical_reduce_scatter_async(ina_hierarchy* hierarchy, const void* send,
                                                  void* recv, size_t count, ina_dtype dtype,
                                                  ina_op op,
                                                  const ina_hierarchical_options* options,
                                                  ina_request** request);
INA_API int ina_hierarchical_all_gather(ina_hierarchy* hierarchy, const void* send, void* recv,
                                        size_t count, ina_dtype dtype,
                                        const ina_hierarchical_options* options,
                                        int64_t timeout_us);
INA_API int ina_hierarchical_all_gather_async(ina_hierarchy* hierarchy, const void* send,
                                              void* recv, size_t count, ina_dtype dtype,
                                              const ina_hierarchical_options* options,
                                              ina_request** request);
INA_API int ina_hierarchical_all_to_all(ina_hierarchy* hierarchy, const void* send, void* recv,
                                        size_t count, ina_dtype dtype,
                                        const ina_hierarchical_options* options,
                                        int64_t timeout_us);
INA_API int ina_hierarchical_all_to_all_async(ina_hierarchy* hierarchy, const void* send,
                                              void* recv, size_t count, ina_dtype dtype,
                                              const ina_hierarchical_options* options,
                                              ina_request** request);

typedef enum ina_hierarchical_collective INA_INT {
  INA_HIERARCHICAL_ALLREDUCE = 0,
  INA_HIERARCHICAL_REDUCE_SCATTER = 1,
  INA_HIERARCHICAL_ALL_GATHER = 2,
  INA_HIERARCHICAL_ALL_TO_ALL = 3,
  INA_HIERARCHICAL_MAX_ENUM = 0x7fffffff
} ina_hierarchical_collective;

/* One collective of a group. The fields are the arguments of the function of that collective. */
typedef struct ina_hierarchical_call {
  ina_hierarchical_collective collective;
  const void* send;
  void* recv;
  size_t count;
  ina_dtype dtype;
  ina_op op; /* of sums */
} ina_hierarchical_call;

/* 1 to 256 collectives that begin together, by one plan: each is planned with the load of those
 * before it, and the group ends with the last of them. So together they take no longer than one
 * after the other by the planner's model. All ranks give the same calls in the same order, with the
 * same types and counts; otherwise their plans differ, which is INA_ERR_MISMATCH on all. A recv
 * must not overlap with a buffer of another call. The texts of errors name the call, as "calls[2]".
 */
INA_API int ina_hierarchical_group(ina_hierarchy* hierarchy, const ina_hierarchical_call* calls,
                                   size_t call_count, const ina_hierarchical_options* options,
                                   int64_t timeout_us);
INA_API int ina_hierarchical_group_async(ina_hierarchy* hierarchy,
                                         const ina_hierarchical_call* calls, size_t call_count,
                                         const ina_hierarchical_options* options,
                                         ina_request** request);

/* With ina_config.coalesce_bytes the library collects all-reduces that are started in this way and
 * makes them one operation. They must have the same data type and op, be smaller than 64 KiB, and
 * fit together in coalesce_bytes. The collected all-reduces start
 *   when they fill coalesce_bytes, or the next one does not fit any more;
 *   when an operation starts that cannot join them: another data type or op, a larger one, a
 *   blocking one, another collective, a group;
 *   when ina_wait, ina_test, ina_request_free or ina_request_set_callback is called for one of
 *   their requests, or ina_finalize.
 * The order of calls alone decides this, never time. All ranks must therefore make the same
 * calls in the same order, these calls included (repeating one changes nothing), and have the same
 * coalesce_bytes. Otherwise the job ends with INA_ERR_MISMATCH, and the text names both sides. */

/* Waits for one operation. INA_ERR_TIMEOUT: it still runs, call again. If a time-out of another
 * call has ended the job, the status is INA_ERR_ABORTED. */
INA_API int ina_wait(ina_request* request, int64_t timeout_us);

/* Makes progress without waiting: INA_OK (complete, freed), INA_IN_PROGRESS, or an error (freed).
 */
INA_API int ina_test(ina_request* request);

/* Waits for the operation as a blocking call does: when the context's default timeout passes, the
 * job ends for all ranks. Frees the request in any case; the buffers are the caller's again. */
INA_API int ina_request_free(ina_request* request);

/* The library calls callback(user, status) when the operation has ended; no wait is needed. status
 * is INA_OK, or the error that ended the job (its text: ina_last_error). The request is the
 * library's from now on, and the buffers are the caller's again in the callback. The callback runs
 * once, on the context's background thread or in ina_finalize: with INA_ERR_ABORTED if the
 * operation has not ended within ina_finalize's time. The callback may start operations; it must
 * not wait for one, nor call ina_finalize. */
typedef void (*ina_callback)(void* user, int status);
INA_API int ina_request_set_callback(ina_request* request, ina_callback callback, void* user);

/* A descriptor for poll, epoll and event loops: it can be read after operations of this context
 * have completed, or when the job has failed. Read 8 bytes from it (it is an eventfd that does not
 * block), then call ina_test for the requests that were started. The descriptor may wake more often
 * than requests complete. It stays the same from the first call until ina_finalize, which closes
 * it. */
INA_API int ina_completion_fd(ina_context* context, int* fd);

/* The library fuses all-reduces that ina_allreduce_async starts between the two calls. It gathers
 * those with the same data type and op that are smaller than 64 KiB, sums them in one operation and
 * scatters the result. That saves the cost of an operation for each. They start when enough of them
 * have come together, at ina_group_end at the latest. Larger ones start at once by themselves. Each
 * has its request as always. The results are those of unfused operations. With
 * INA_NUMERIC_REPRODUCIBLE, sums, averages and products of floats are not fused. All ranks must
 * start the same operations between the same two calls.
 * While a group is open, these calls return INA_ERR_INVALID: ina_allreduce, ina_barrier and all
 * other collectives that wait;
 * ina_wait and ina_test for the group's requests (which stay valid); ina_group_start, because
 * groups do not nest. ina_request_free of one of its requests starts the collected all-reduces,
 * because it must give the buffers back; the group stays open. A group belongs to the context, not
 * to a thread. */
INA_API int ina_group_start(ina_context* context);
INA_API int ina_group_end(ina_context* context);

/* Returns when all ranks have called it. The request of ina_barrier_async completes then. */
INA_API int ina_barrier(ina_context* context, int64_t timeout_us);
INA_API int ina_barrier_async(ina_context* context, ina_request** request);

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

/* A result buffer: memory that the switch writes once for all workers of the job on its host. If
 * `recv` of an all-reduce, broadcast or all-gather lies in such a buffer, the result is not copied.
 * The call is collective: all ranks make it with the same `bytes`, in the same order. The ranks
 * give `recv` at the same place of the buffer, at a multiple of INA_RESULT_ALIGNMENT. The buffer is
 * READ-ONLY: a write to it faults. Another operation may use the same place once the first has
 * completed. A job has up to 32 buffers. The buffer is ordinary memory, and results are copied,
 * where a worker is on another host or the switch's slots are no multiple of 1024 bytes. The
 * context's timeout applies as to a blocking operation. */
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
  /* Of bytes_received: sums that the switch made, and those that left it for want of a slot or
   * because a rank was slow, and were completed by the fallback or a worker. */
  uint64_t bytes_by_switch;
  uint64_t bytes_by_fallback;
  /* Messages of all kinds, and those of them that carry the bytes above. The others are marks,
   * results for other ranks, and what recovers losses. */
  uint64_t packets_sent;
  uint64_t packets_received;
  uint64_t payload_packets_sent;
  uint64_t payload_packets_received;
  uint64_t priority; /* of the operation started last: 1..255 (ina_set_hints); 0: of none */
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
 * the other one takes the way round. No gain by that was measured (docs/evaluation.md). Urgency
 * follows ESA. It grows as the job's end comes nearer, because a job that ends soon frees its share
 * for all. It grows with the part of its time that the job spends in communication, which the
 * library measures, because such a job gains most. It grows towards the front layer, because the
 * next iteration needs its sums first. Without hints a job is expected to go on for as long as it
 * has run, its layers are alike. Call this before each operation, or once an iteration if layers do
 * not matter: from the falling remaining_iterations the library learns how long one iteration
 * takes. Ranks may differ. Hints change no result except by the order in which floats are added. */
INA_API int ina_set_hints(ina_context* context, const ina_hints* hints);

/* Whether any result so far saturated (int8, uint8), or became Inf from finite values (float16,
 * bfloat16; with INA_NUMERIC_REPRODUCIBLE also sums of float32). An Inf in a product of bfloat16 or
 * float16, or with INA_NUMERIC_NATIVE in a sum or average of bfloat16, counts even where a rank
 * contributed an Inf. Returns 1 or 0, or a negative status. A non-zero `clear` resets the flag. */
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
