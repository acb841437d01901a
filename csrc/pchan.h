/* SPDX-License-Identifier: MIT
 *
 * pchan: persistent operations for MPI programs.
 *
 * Two objects, used the same way: set up once, then start and wait in every
 * iteration of the caller's loop.
 *
 *   pchan_channel   moves a registered set of messages;
 *   pchan_qreduce   sums every node's exact contribution to a symmetric matrix Q
 *                   with integer entries of a thousand bits or so, and leaves
 *                   each element with the rank that owns it.
 *
 * Between them stands pchan_basis: integers as residues modulo primes below
 * 2^(62/3), which is the form in which contributions to Q are added.
 *
 * ERRORS.  Every function that can fail returns a pchan_status and takes a last
 * argument `err`, the caller's own struct, which may be NULL and is written only
 * on failure.  On failure out-parameters are NULL or 0 and, unless a function
 * says otherwise, the object is as it was.  Nothing aborts, nothing is printed.
 *
 * COLLECTIVE OR LOCAL.  Each function says which it is.  A collective function
 * fails on all ranks or on none: a rank whose own arguments were good gets the
 * status and the message of the lowest rank whose were not.
 *
 * MPI raises the errors of a set of messages on MPI_COMM_WORLD or MPI_COMM_SELF, not on the
 * communicator they travel on: a program that wants truncation and the like as a status must set
 * MPI_ERRORS_RETURN on both (mpi4py does).
 *
 * OWNERSHIP.  What `create` returns is freed by `destroy`, which takes the
 * address, accepts NULL and a pointer to NULL, and clears the pointer.  Buffers,
 * communicators and datatypes stay the caller's: buffers are borrowed until
 * destroy, communicators and datatypes may be freed as soon as the call that
 * took them has returned.
 *
 * THREADS.  One object, one thread at a time: a second one gets PCHAN_ERR_STATE.
 * Different objects in different threads need MPI_THREAD_MULTIPLE.
 *
 * UNITS.  Sizes are bytes unless the name says otherwise, times nanoseconds.
 *
 * With PCHAN_NO_MPI defined the header declares what needs no MPI and does not
 * include mpi.h.
 */
#ifndef PCHAN_H
#define PCHAN_H

#include <stddef.h>
#include <stdint.h>
#ifndef PCHAN_NO_MPI
#include <mpi.h>
#endif

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define PCHAN_API __attribute__((visibility("default")))
#define PCHAN_NODISCARD __attribute__((warn_unused_result))
#else
#define PCHAN_API
#define PCHAN_NODISCARD
#endif

/* ---------------------------------------------------------------- version */

#define PCHAN_VERSION_MAJOR 0
#define PCHAN_VERSION_MINOR 1
#define PCHAN_VERSION_PATCH 0

/* --------------------------------------------------------------- errors --- */

typedef enum pchan_status {
    PCHAN_OK = 0,
    PCHAN_ERR_ARG = 1,     /* an argument's value is wrong */
    PCHAN_ERR_STATE = 2,   /* right call, wrong moment: active, freed, forked, two threads */
    PCHAN_ERR_NOMEM = 3,   /* memory, shared memory included */
    PCHAN_ERR_RANGE = 4,   /* an integer lies outside the basis: |x| >= 2^bits */
    PCHAN_ERR_MPI = 5,     /* MPI returned an error; err->mpi_code holds it */
    PCHAN_ERR_TIMEOUT = 6, /* the time is over; the object is still active */
    PCHAN_ERR_SYSTEM = 7,  /* the operating system refused something */
    PCHAN_ERR_MATCH = 8    /* the two ends of a message do not fit */
} pchan_status;

typedef struct pchan_error {
    pchan_status status;
    int mpi_code;      /* MPI error code, 0 when MPI was not at fault */
    int rank;          /* rank (in the call's communicator) that failed; -1: this one */
    int64_t index;     /* operation or element concerned; -1: none */
    char message[512]; /* one sentence, NUL-terminated, names the operation */
} pchan_error;

/* Name of a status, such as "PCHAN_ERR_ARG". Local, cannot fail. */
PCHAN_API const char *pchan_status_name(pchan_status status);

/* ------------------------------------------------------ allocation door --- */

/* All heap memory of the library goes through these three. Replace them to count
 * allocations or to make one fail. NULL restores the C library's. Local; not
 * thread safe; call it before anything else or while no object exists. */
typedef struct pchan_allocator {
    void *(*malloc)(size_t bytes);
    void *(*realloc)(void *block, size_t bytes);
    void (*free)(void *block);
} pchan_allocator;

PCHAN_API void pchan_set_allocator(const pchan_allocator *allocator);

/* Number of malloc and realloc calls made so far by this process' pchan. Local. */
PCHAN_API uint64_t pchan_allocation_count(void);

/* The instruction set that the arithmetic kernels use: "portable", "avx2" or "avx512", the fastest
 * that this machine runs, or the one that PCHAN_KERNEL in the environment names. A basis keeps the
 * kernel it was made with; the results are the same bits with each. Local. */
PCHAN_API const char *pchan_kernel_name(void);

/* --------------------------------------------------------- array views --- */

typedef enum pchan_dtype { PCHAN_FLOAT64 = 0, PCHAN_INT64 = 1, PCHAN_UINT32 = 2 } pchan_dtype;

/* A borrowed, read-only, strided array of residues. Strides are in bytes and may
 * be zero or negative; `data` is the address of element (0, 0, 0). */
typedef struct pchan_array {
    const void *data;
    pchan_dtype dtype;
    size_t shape[3];      /* [n_primes][rows][cols] */
    ptrdiff_t strides[3]; /* bytes */
} pchan_array;

/* ---------------------------------------------------------------- basis --- */

/* A residue number system: the largest primes below 2^(62/3), as few as give a product
 * M >= 2^(bits + 1 + check_bits). It represents every integer x with |x| < 2^bits.
 *
 * Three primes at a time share one 64-bit word: word w of x is
 * x mod (p[3w] * p[3w+1] * p[3w+2]), below 2^62, so that four canonical words can be added
 * without overflow. The last word may hold one prime or two.
 *
 * Corruption. M has h = log2(M) - bits - 1 spare bits, check_bits or up to 20 more. A flipped bit in
 * a word of x, in memory or in a message, always changes x modulo M, and
 *   - makes the word as large as its modulus or larger (always so for bits 62 and 63): such a word
 *     is refused by restore, always, and stays one when accumulated; or
 *   - adds a multiple of M / modulus to x. The sum, taken modulo M, is as good as uniform, and lies
 *     within |x| < 2^bits with a probability of 2^(bits + 1) / M = 2^-h: this many are missed.
 * The same holds for more than one wrong residue or word of an integer, but not for words that
 * are those of another integer. At 2,049 bits check_bits up to 16 take 100 primes, h = 16.6: one
 * in 99,000 is missed; 17 to 37 take 101, and one in 1.6 * 10^11 is.
 *
 * Integers leave and enter as two's complement limbs, uint64, least significant
 * first, n_limbs = ceil((bits + 1) / 64) of them. Immutable once made, so any
 * number of threads may use one basis. */
typedef struct pchan_basis pchan_basis;

/* Local. bits in 1..PCHAN_MAX_BITS, check_bits in 0..64.
 * ARG, also when PCHAN_KERNEL names no kernel of this machine; NOMEM. */
#define PCHAN_MAX_BITS 65536
PCHAN_API PCHAN_NODISCARD pchan_status pchan_basis_create(int bits, int check_bits, pchan_basis **basis,
                                                          pchan_error *err);
PCHAN_API void pchan_basis_destroy(pchan_basis **basis);

PCHAN_API int pchan_basis_bits(const pchan_basis *basis);
PCHAN_API int pchan_basis_check_bits(const pchan_basis *basis);
PCHAN_API int pchan_basis_n_primes(const pchan_basis *basis);
PCHAN_API int pchan_basis_n_words(const pchan_basis *basis);
PCHAN_API int pchan_basis_n_limbs(const pchan_basis *basis);
/* uint32[n_primes], decreasing; lives as long as the basis. */
PCHAN_API const uint32_t *pchan_basis_primes(const pchan_basis *basis);

/* residues: x mod p for n integers, symmetric: -(p-1)/2 .. (p-1)/2, as float64.
 *   limbs     [in]  uint64[n][n_limbs]
 *   residues  [out] float64[n_primes][n]
 * Local, pure. RANGE with err->index = first integer with |x| >= 2^bits; residues
 * are then undefined. NOMEM. */
PCHAN_API PCHAN_NODISCARD pchan_status pchan_residues(const pchan_basis *basis, const uint64_t *limbs, size_t n,
                                                      double *residues, pchan_error *err);

/* The same for shorter integers, limbs uint64[n][n_limbs] with n_limbs in 1..the basis', into part of a
 * table, residues float64[n_primes][stride]: the first n of each row. Local, pure. Also ARG. */
PCHAN_API PCHAN_NODISCARD pchan_status pchan_residues_strided(const pchan_basis *basis, const uint64_t *limbs,
                                                              int n_limbs, size_t n, double *residues,
                                                              size_t stride, pchan_error *err);

/* pack: residues to words.
 *   residues  [in]  shape [n_primes][rows][cols]; any representative of its class:
 *                   float64 integers up to 2^53 in size, int64, uint32
 *   words     [out] uint64[rows * cols][n_words], row-major, canonical
 * Local, pure. ARG with err->index = the first row-major position where a float64 is not an
 * integer or too large; words are then undefined. */
PCHAN_API PCHAN_NODISCARD pchan_status pchan_pack(const pchan_basis *basis, const pchan_array *residues,
                                                  uint64_t *words, pchan_error *err);

/* accumulate: sum[i] = (sum[i] + words[i]) modulo the word's modulus, for n integers.
 *   sum, words  uint64[n][n_words], canonical; must not overlap. Where either word is not
 *               canonical the sum becomes 2^64 - 1, which restore refuses.
 * Local, pure, cannot fail. */
PCHAN_API void pchan_accumulate(const pchan_basis *basis, uint64_t *sum, const uint64_t *words, size_t n);

/* restore: words to integers by the Chinese remainder theorem.
 *   words  [in]  uint64[n][n_words], canonical
 *   limbs  [out] uint64[n][n_limbs]
 * Local, pure. RANGE with err->index = first integer with |x| >= 2^bits or a word that is not
 * canonical; the limbs of those are undefined, all others are right. NOMEM. */
PCHAN_API PCHAN_NODISCARD pchan_status pchan_restore(const pchan_basis *basis, const uint64_t *words, size_t n,
                                                     uint64_t *limbs, pchan_error *err);

/* The same by mixed radix digits (Garner), one integer at a time: slow, short, and
 * independent of pchan_restore. The reference for tests and for the strategy "gather". */
PCHAN_API PCHAN_NODISCARD pchan_status pchan_restore_reference(const pchan_basis *basis, const uint64_t *words,
                                                               size_t n, uint64_t *limbs, pchan_error *err);

/* ---------------------------------------------------------- fixed point --- */

/* Numbers with a binary exponent each, row by row: entry (r, c) = x * 2^exponents[r][c], with
 * x two's complement limbs. Borrowed, read-only. Exponents lie within +-2^60. */
typedef struct pchan_fixed {
    const uint64_t *limbs;    /* [n_rows][n_cols][n_limbs] */
    const int64_t *exponents; /* [n_rows][n_cols] */
    size_t n_rows, n_cols;
    int n_limbs; /* >= 1 */
} pchan_fixed;

/* Raises tops[n_cols] to the least t with |entry| < 2^t for all entries of the column, and lowers
 * *bottom to the exponent of the lowest bit set in any entry; zeros change nothing. Local, pure, cannot fail. */
PCHAN_API void pchan_fixed_tops(const pchan_fixed *fixed, int64_t *tops, int64_t *bottom);

/* Adds ceil(entry^2 * 2^shifts[column]) of every entry to the column's sum.
 *   sums  [in, out]  uint64[n_cols][n_sum_limbs], non-negative; must be wide enough for the result
 * Local, pure. NOMEM: nothing has been added. */
PCHAN_API PCHAN_NODISCARD pchan_status pchan_fixed_squares(const pchan_fixed *fixed, const int64_t *shifts,
                                                           uint64_t *sums, int n_sum_limbs, pchan_error *err);

/* What a column is divided by, with b = bits of the divisor and t = n_out + 2 limbs of the quantize that
 * uses it: reciprocal = floor((2^(b - 1 + 64 t) - 1) / divisor). A column with divisor 0 becomes 0. */
typedef struct pchan_divisors {
    const uint64_t *limbs;       /* [n_cols][n_limbs], non-negative, all 64 bits count */
    const uint64_t *reciprocals; /* [n_cols][n_out + 2] */
    const int64_t *shifts;       /* [n_cols] */
    int n_limbs;
} pchan_divisors;

/* quantize: |entry| * 2^shift / divisor cut to an integer (nearest = 0) or rounded, ties away from zero, with
 * the entry's sign. The quotient is exact before it is rounded.
 *   out  [out]  uint64[n_rows][n_cols][n_out], two's complement
 * Local, pure. RANGE with err->index when |quotient| may not fit: it must be below 2^(64 n_out - 3). NOMEM. */
PCHAN_API PCHAN_NODISCARD pchan_status pchan_fixed_quantize(const pchan_fixed *fixed, const pchan_divisors *by,
                                                            int nearest, uint64_t *out, int n_out,
                                                            pchan_error *err);

/* align: entry / 2^exponent, exact, two's complement uint64[n_rows][n_cols][n_out]. Local, pure. RANGE with
 * err->index for an entry that is no integer then, or does not fit. NOMEM. */
PCHAN_API PCHAN_NODISCARD pchan_status pchan_fixed_align(const pchan_fixed *fixed, int64_t exponent, uint64_t *out,
                                                         int n_out, pchan_error *err);

/* --------------------------------------------------------------- layout --- */

/* Which rank owns element (i, j), i <= j, of a symmetric n x n matrix.
 *   ELEMENT_CYCLIC  owner = i mod r + (j mod c) * r on an r x c grid, ranks
 *                   column-major (Elemental's [MC,MR])
 *   BLOCK_CYCLIC    the same with i / block and j / block (ScaLAPACK)
 *   PACKED_ROWS     whole rows of the upper triangle in rank order, so that the
 *                   number of elements is balanced
 *   CUSTOM          as `owners` says; the same on every rank
 * A rank's elements are numbered in row-major order. */
typedef enum pchan_layout_kind {
    PCHAN_ELEMENT_CYCLIC = 0,
    PCHAN_BLOCK_CYCLIC = 1,
    PCHAN_PACKED_ROWS = 2,
    PCHAN_CUSTOM = 3
} pchan_layout_kind;

typedef struct pchan_layout {
    pchan_layout_kind kind;
    int grid_rows;         /* 0, with grid_cols 0: r is the smallest divisor of the number of */
    int grid_cols;         /* ranks that is >= floor(sqrt(ranks)), c = ranks / r (Elemental)   */
    int block;             /* BLOCK_CYCLIC: rows and columns of a block; otherwise ignored     */
    const int32_t *owners; /* CUSTOM: [n (n + 1) / 2] rank of each element, upper triangle by rows; read
                              at creation only; otherwise ignored */
} pchan_layout;

/* ------------------------------------------------------------- messages --- */

typedef enum pchan_kind { PCHAN_SEND = 0, PCHAN_RECV = 1 } pchan_kind;

/* How a message travels. */
typedef enum pchan_transport {
    PCHAN_BY_MPI = 0,    /* a persistent request of its own */
    PCHAN_BY_SHM = 1,    /* same node: copied through a slot in shared memory */
    PCHAN_BY_SHARED = 2, /* same node: one memcpy, both buffers lie in memory from pchan_shared_create */
    PCHAN_BY_CMA = 3,    /* same node: one copy by process_vm_readv or process_vm_writev */
    PCHAN_BY_BUNDLE = 4, /* other node: in one MPI message with all other small ones to that rank */
    PCHAN_BY_NULL = 5    /* MPI_PROC_NULL: not at all */
} pchan_transport;

/* "mpi", "shm", "shared", "cma", "bundle", "null". Local, cannot fail. */
PCHAN_API const char *pchan_transport_name(pchan_transport transport);

#ifndef PCHAN_NO_MPI

/* -------------------------------------------------------------- runtime --- */

/* pchan keeps duplicates of the communicators it is given: made once per parent
 * communicator (a collective step of the first call that needs one), with
 * MPI_ERRORS_RETURN, kept as an attribute of the parent and freed with it; MPI_Finalize takes
 * the rest along. A C delete callback on MPI_COMM_SELF frees at MPI_Finalize what else the program
 * forgot: requests and datatypes. */

/* A wait polls for a while before it yields the processor between polls: 50 us, or 0 where the
 * node runs more ranks than it has usable processors; PCHAN_SPIN_US in the environment overrides. After 50 ms it
 * sleeps for 50 us between polls. Meanwhile it moves the messages of all other connected channels of the process,
 * and whatever MPI has to move. */

/* -------------------------------------------------------------- channel --- */

/* A set of messages. Operations are numbered from 0 in the order of registration. In every cycle
 * the receives are started before the sends, each kind in that order, so that operations with
 * equal (peer, tag) meet in the order in which both sides registered them.
 *
 *     idle --start--> active --wait/test--> idle
 *
 * Messages travel as persistent MPI requests; after pchan_channel_connect by the fastest way.
 * Registration, connect and destroy need an idle channel. Start, wait and test allocate nothing. */
typedef struct pchan_channel pchan_channel;

typedef struct pchan_operation {
    pchan_kind kind;
    int peer;      /* destination or source; may be MPI_PROC_NULL, MPI_ANY_SOURCE */
    int tag;       /* may be MPI_ANY_TAG for a receive */
    int64_t bytes; /* size of the message (send) or of the room for it (receive) */
    int done;      /* 1: finished in the current or last cycle */
    pchan_transport transport;
} pchan_operation;

typedef struct pchan_channel_options {
    int shared_comm; /* 0: messages travel on pchan's duplicate of comm. 1: on comm itself,
                        so that the other end may use plain MPI calls; comm must then
                        outlive the channel, and wildcards are allowed */
} pchan_channel_options;

/* Collective over comm when it is the first channel on comm without shared_comm (it makes the
 * duplicate), local otherwise. options may be NULL.
 * ARG (MPI_COMM_NULL, intercommunicator), STATE (MPI not running), NOMEM, MPI. */
PCHAN_API PCHAN_NODISCARD pchan_status pchan_channel_create(MPI_Comm comm, const pchan_channel_options *options,
                                                            pchan_channel **channel, pchan_error *err);

/* Registers a message; *index, which may be NULL, gets its number. Local.
 *   buf       borrowed until destroy; as for MPI_Send: the address of the first element
 *   count     elements of datatype, any 64-bit number >= 0
 *   datatype  committed; derived types are duplicated, so the caller may free his
 *   peer      a rank of comm or MPI_PROC_NULL; MPI_ANY_SOURCE for a receive
 *   tag       0 .. MPI_TAG_UB; MPI_ANY_TAG for a receive
 * ARG, STATE, NOMEM, MPI. */
PCHAN_API PCHAN_NODISCARD pchan_status pchan_channel_send_init(pchan_channel *channel, const void *buf,
                                                               int64_t count, MPI_Datatype datatype, int peer,
                                                               int tag, int *index, pchan_error *err);
PCHAN_API PCHAN_NODISCARD pchan_status pchan_channel_recv_init(pchan_channel *channel, void *buf, int64_t count,
                                                               MPI_Datatype datatype, int peer, int tag,
                                                               int *index, pchan_error *err);

/* The same for a strided n-dimensional array: no copy is made, the elements travel in
 * row-major order of their indices (the last index fastest), whatever their order in memory.
 *   buf      address of element (0, ..., 0)
 *   shape    [n_dims] elements      strides  [n_dims] bytes, may be zero (send) or negative
 *   element  type of one element, predefined or committed */
typedef struct pchan_strided {
    void *buf;
    int n_dims;
    const int64_t *shape;
    const int64_t *strides;
    MPI_Datatype element;
} pchan_strided;
PCHAN_API PCHAN_NODISCARD pchan_status pchan_channel_init_strided(pchan_channel *channel, pchan_kind kind,
                                                                  const pchan_strided *array, int peer, int tag,
                                                                  int *index, pchan_error *err);

/* What the caller knows about an operation beyond its datatype, all of it optional. */
typedef struct pchan_description {
    const char *element;  /* name of the element type where the MPI type says less (MPI_BYTE); or NULL */
    int n_dims;           /* of the array that travels; 0: not stated */
    const int64_t *shape; /* [n_dims] */
    int column_major;     /* 1: the first index travels fastest, 0: the last one */
} pchan_description;

/* For connect to compare: shapes and orders where both ends have described two dimensions or more. Local.
 * ARG, STATE when active or connected. */
PCHAN_API PCHAN_NODISCARD pchan_status pchan_channel_describe(pchan_channel *channel, int index,
                                                              const pchan_description *description,
                                                              pchan_error *err);

/* Settles once what MPI would match anew in every cycle. The k-th send is paired with the k-th
 * receive of equal (source, dest, tag); sizes, element types and, where both ends have described
 * them, shapes and orders are compared; then each pair gets its transport (docs/connect.md).
 * Collective over the channel's communicator; each rank's part of the work is proportional to its own
 * operations and peers. Afterwards nothing more can be registered, and this channel's messages
 * cannot meet those of any other.
 * MATCH, on every rank: partners missing, receives too short, types or shapes that differ, wildcards.
 * err->message begins the list of faults, pchan_channel_mismatch has all of it; nothing was sent and
 * the channel works as before, unconnected. ARG, STATE (active, connected), NOMEM, MPI: likewise.
 *
 * In the environment: PCHAN_SHM_BYTES and PCHAN_BUNDLE_BYTES, the longest message that goes through a
 * slot or in a bundle; PCHAN_CMA=0 forbids process_vm_*; PCHAN_TRANSPORT=mpi, shm, cma or bundle forces
 * one way wherever it can go (for tests). The sender's settings count. */
PCHAN_API PCHAN_NODISCARD pchan_status pchan_channel_connect(pchan_channel *channel, pchan_error *err);
PCHAN_API int pchan_channel_connected(const pchan_channel *channel);

/* The faults of all ranks that the last connect found, one per line; "" when there were none. Lives until
 * the next connect or destroy. Local, cannot fail. */
PCHAN_API const char *pchan_channel_mismatch(const pchan_channel *channel);

/* Starts a cycle. Local; returns at once. STATE when active. MPI: the operations already
 * started stay active and the channel with them: wait finishes them and reports the error. */
PCHAN_API PCHAN_NODISCARD pchan_status pchan_channel_start(pchan_channel *channel, pchan_error *err);

/* Finishes the cycle: spins for pchan_channel_spin_ns, then polls and yields.
 * Returns when this rank's messages have been sent and received. timeout_ns < 0: no limit.
 * TIMEOUT: the channel is still active and can be waited on again; the operations with
 * done == 0 are unfinished. MPI: an operation failed (err->index); all others have finished,
 * the channel is idle. But with index -1 MPI could not tell: the channel is still active. STATE when not active.
 */
PCHAN_API PCHAN_NODISCARD pchan_status pchan_channel_wait(pchan_channel *channel, int64_t timeout_ns,
                                                          pchan_error *err);

/* As wait, for at most budget_ns, and running out of time is no error: *finished is 1 when the
 * cycle is over. With budget 0 it looks once and returns at once. */
PCHAN_API PCHAN_NODISCARD pchan_status pchan_channel_poll(pchan_channel *channel, int64_t budget_ns, int *finished,
                                                          pchan_error *err);

/* Waits for any one operation of the cycle and gives its index, each once per cycle; -1 when
 * none is left: the cycle is then over. Also -1 on an idle channel. TIMEOUT, MPI, STATE as wait. */
PCHAN_API PCHAN_NODISCARD pchan_status pchan_channel_wait_any(pchan_channel *channel, int64_t timeout_ns,
                                                              int *index, pchan_error *err);

/* Local, cannot fail. */
PCHAN_API int pchan_channel_size(const pchan_channel *channel);
PCHAN_API int pchan_channel_active(const pchan_channel *channel);
PCHAN_API int64_t pchan_channel_spin_ns(const pchan_channel *channel);

/* Operation `index`, as registered. Local. ARG. */
PCHAN_API PCHAN_NODISCARD pchan_status pchan_channel_operation(const pchan_channel *channel, int index,
                                                               pchan_operation *operation, pchan_error *err);

/* The message that operation `index` moved in the last finished cycle: for a receive the
 * source, the tag and the bytes that came; for a send this rank, its tag and its bytes; with
 * MPI_PROC_NULL (MPI_PROC_NULL, MPI_ANY_TAG, 0). Local. ARG; STATE before the end of the first
 * cycle, while active and after MPI_Finalize. */
typedef struct pchan_message {
    int source;
    int tag;
    int64_t bytes;
} pchan_message;
PCHAN_API PCHAN_NODISCARD pchan_status pchan_channel_message(const pchan_channel *channel, int index,
                                                             pchan_message *message, pchan_error *err);

/* Frees the requests and the datatypes. Local. STATE when active: nothing is freed then.
 * After MPI_Finalize it frees memory only. */
PCHAN_API PCHAN_NODISCARD pchan_status pchan_channel_destroy(pchan_channel **channel, pchan_error *err);

/* Gives up an active channel that nobody can wait on any more: its requests are finished or
 * cancelled at MPI_Finalize; the caller must leave the buffers where they are until then.
 * On an idle channel the same as destroy. Local, cannot fail. */
PCHAN_API void pchan_channel_abandon(pchan_channel **channel);

/* -------------------------------------------------------- shared memory --- */

/* `bytes` of memory for this rank, page-aligned and zero, mapped by all ranks of the node, so that a
 * connected channel moves long messages between two such buffers with one memcpy. The memory has no name
 * and goes when its last user does: the owner (destroy) or a connected channel of any rank.
 * Collective over comm; bytes >= 0 may differ. ARG, NOMEM, SYSTEM, MPI. */
typedef struct pchan_shared pchan_shared;
PCHAN_API PCHAN_NODISCARD pchan_status pchan_shared_create(MPI_Comm comm, int64_t bytes, pchan_shared **shared,
                                                           void **address, pchan_error *err);
/* Local, also after MPI_Finalize. */
PCHAN_API void pchan_shared_destroy(pchan_shared **shared);

/* -------------------------------------------------------------- qreduce --- */

/* The exact sum over all nodes of a symmetric n x n integer matrix: each rank adds tiles of
 * residues to its node's contribution (a window of words in node-shared memory), and after a
 * cycle every rank holds the restored integers that it owns. Only elements (i, j) with i <= j
 * exist. Contributions are summed as residues and restored once, so the result is exact and
 * bit-identical for any number of ranks and nodes.
 *
 *     pack (add) --> window --exchange--> accumulate --> restore --> limbs
 */
typedef struct pchan_qreduce pchan_qreduce;

typedef struct pchan_qreduce_options {
    pchan_layout layout;       /* zero: element-cyclic on the default grid */
    const MPI_Comm *node_comm; /* NULL: ranks that share memory (MPI_COMM_TYPE_SHARED) */
    const char *strategy;      /* NULL: "residues"; see below */
    int64_t buffer_bytes;      /* room for messages on their way, per rank; 0: 64 MiB */
} pchan_qreduce_options;

/* Strategies, all with the same bits as result. "A part" is what one rank owns, N the number of nodes.
 *   residues   each node sends each owner its words; owners add them and restore once
 *   restored   as SDPB: ranks with equal index within their node talk; for offset = 1 .. N - 1 restore and send
 *              the integers owned on (node + offset), receive and add those of (node - offset). Where nodes have
 *              unequal numbers of ranks, the parts are dealt as for "residues"
 *   ring       as SDPB before: size - 1 steps over all ranks of: receive a part's integers from rank - 1, add the
 *              own ones, send to rank + 1; each step finds its part by a list of indices
 *   ring_scan  the same, but each step looks at all (i, j) for those of its part, as SDPB did: a baseline
 *   mpi        MPI_Reduce_scatter of uint32 residues; at most 2,048 nodes
 *   gather     the reference, slow and obvious: rank 0 adds all
 * Messages of residues show flipped bits as the basis does, see pchan_basis; integers ("restored", "ring") carry a
 * sum of their limbs with them, which shows every single flipped bit. Both are reported as RANGE. */

typedef struct pchan_qreduce_figures {
    int64_t n_local;    /* elements owned */
    int64_t node_bytes; /* node-shared memory of the rank's node */
    int64_t bytes_held; /* by the rank: its share of that, buffers and tables; without the caller's limbs */
    int64_t bytes_sent; /* to other nodes, in a cycle; "mpi": as handed to MPI, which may send more */
} pchan_qreduce_figures;

/* What pchan_qreduce_create would take, without doing it: figures [n_ranks] of each rank, for any number of ranks
 * and any n. nodes [n_ranks]: a number in 0 .. n_ranks - 1 for the node of each rank. node_comm is ignored. Local,
 * pure. ARG, NOMEM. */
PCHAN_API PCHAN_NODISCARD pchan_status pchan_qreduce_estimate(int64_t n, const pchan_basis *basis,
                                                              const pchan_qreduce_options *options, int n_ranks,
                                                              const int *nodes, pchan_qreduce_figures *figures,
                                                              pchan_error *err);

typedef struct pchan_qreduce_stats {
    int64_t add_ns, pack_ns; /* since the previous cycle ended: add apart from pack, pack */
    int64_t exchange_ns;     /* waiting for the node and for messages */
    int64_t accumulate_ns, restore_ns;
    int64_t bytes_sent; /* to other nodes, last cycle */
    int64_t bytes_held; /* share of the window, buffers and tables */
    int64_t n_local;    /* elements owned */
} pchan_qreduce_stats;

/* Collective over comm; options may be NULL; the basis is borrowed until destroy.
 * Every rank must pass the same n, basis, layout, strategy and buffer_bytes; ranks of one
 * node_comm must be able to share memory, and node_comm must divide comm. Pages of the window are first touched by
 * the ranks that own or send them. NOMEM when a node cannot hold what pchan_qreduce_estimate tells, and
 * its ranks' limbs, rows and columns.
 * ARG, NOMEM, SYSTEM, MPI, STATE. */
PCHAN_API PCHAN_NODISCARD pchan_status pchan_qreduce_create(MPI_Comm comm, int64_t n, const pchan_basis *basis,
                                                            const pchan_qreduce_options *options,
                                                            pchan_qreduce **qreduce, pchan_error *err);

/* Elements that `rank` owns, and their indices: rows, cols int64[n_owned], row-major order.
 * Local. The rank must be one of comm. */
PCHAN_API int64_t pchan_qreduce_n_owned(const pchan_qreduce *qreduce, int rank);
PCHAN_API void pchan_qreduce_owned(const pchan_qreduce *qreduce, int rank, int64_t *rows, int64_t *cols);

/* Where wait puts this rank's integers: limbs uint64[n_owned][n_limbs], borrowed until
 * destroy. Needed before the first start. Local. STATE when active. */
PCHAN_API PCHAN_NODISCARD pchan_status pchan_qreduce_set_output(pchan_qreduce *qreduce, uint64_t *limbs,
                                                                pchan_error *err);

/* Adds a tile to this node's contribution: element (r, c) of the tile goes to (i0 + r, j0 + c)
 * when i0 + r <= j0 + c, and is ignored otherwise. Residues as for pchan_pack. Any rank of the
 * node may add anywhere, at the same time as others. Local.
 * ARG (nothing is added then), STATE while active. */
PCHAN_API PCHAN_NODISCARD pchan_status pchan_qreduce_add(pchan_qreduce *qreduce, int64_t i0, int64_t j0,
                                                         const pchan_array *tile, pchan_error *err);

/* Starts a cycle with what has been added. Collective over comm, returns at once. STATE. */
PCHAN_API PCHAN_NODISCARD pchan_status pchan_qreduce_start(pchan_qreduce *qreduce, pchan_error *err);

/* Finishes the cycle. Collective over comm. Afterwards the contribution is zero again.
 * TIMEOUT: still active. RANGE, on every rank: some integer has |x| >= 2^bits; the message names
 * (i, j) of the first in row-major order, err->rank is its owner; the object serves the next cycle. MPI: the
 * object can only be destroyed. */
PCHAN_API PCHAN_NODISCARD pchan_status pchan_qreduce_wait(pchan_qreduce *qreduce, int64_t timeout_ns,
                                                          pchan_error *err);
/* As pchan_channel_poll. */
PCHAN_API PCHAN_NODISCARD pchan_status pchan_qreduce_poll(pchan_qreduce *qreduce, int64_t budget_ns, int *finished,
                                                          pchan_error *err);

/* The whole result at `root`: limbs uint64[n (n + 1) / 2][n_limbs], rank 0's elements first,
 * then rank 1's and so on; NULL on other ranks. Collective over comm.
 * ARG, STATE before the first cycle and while active, MPI. */
PCHAN_API PCHAN_NODISCARD pchan_status pchan_qreduce_gather(pchan_qreduce *qreduce, int root, uint64_t *limbs,
                                                            pchan_error *err);

/* pchan_qreduce_get_stats of all ranks at `root`: stats [size of comm]; NULL on other ranks. Collective over comm.
 * ARG, STATE before the first cycle and while active, MPI. */
PCHAN_API PCHAN_NODISCARD pchan_status pchan_qreduce_gather_stats(pchan_qreduce *qreduce, int root,
                                                                  pchan_qreduce_stats *stats, pchan_error *err);

/* For tests of the checks: flips bit 0..63 of word 0..n_words - 1 of element (i, j), i <= j, in this node's
 * window. Local. ARG, STATE. */
PCHAN_API PCHAN_NODISCARD pchan_status pchan_qreduce_flip_bit(pchan_qreduce *qreduce, int64_t i, int64_t j,
                                                              int word, int bit, pchan_error *err);

/* Local, cannot fail. */
PCHAN_API int pchan_qreduce_active(const pchan_qreduce *qreduce);
PCHAN_API void pchan_qreduce_get_stats(const pchan_qreduce *qreduce, pchan_qreduce_stats *stats);
PCHAN_API int pchan_qreduce_n_nodes(const pchan_qreduce *qreduce);
PCHAN_API int pchan_qreduce_node(const pchan_qreduce *qreduce, int rank); /* node number of a rank */

/* Frees everything. Local, in any order, without communication. STATE when active. */
PCHAN_API PCHAN_NODISCARD pchan_status pchan_qreduce_destroy(pchan_qreduce **qreduce, pchan_error *err);

/* As pchan_channel_abandon. */
PCHAN_API void pchan_qreduce_abandon(pchan_qreduce **qreduce);

/* ----------------------------------------------------------------- team --- */

/* Working memory that all ranks of a node map, zero at first, and what they need to work on it together:
 * tickets to deal out tasks with, and an agreement that is also a barrier. */
typedef struct pchan_team pchan_team;

/* Collective over comm. node_comm as for pchan_qreduce, NULL: ranks that share memory; the ranks of a
 * node pass the same number of bytes. Memory is taken from the system as it is touched.
 * ARG, NOMEM, SYSTEM, MPI, STATE. */
PCHAN_API PCHAN_NODISCARD pchan_status pchan_team_create(MPI_Comm comm, const MPI_Comm *node_comm, int64_t bytes,
                                                         pchan_team **team, pchan_error *err);

/* Local, cannot fail. Data is the same memory on all ranks of the node, 4096-byte aligned. */
PCHAN_API void *pchan_team_data(const pchan_team *team);
PCHAN_API int pchan_team_node_rank(const pchan_team *team);
PCHAN_API int pchan_team_node_size(const pchan_team *team);

/* 0, 1, 2, ...: each number to one rank of the node. Local, cannot fail. */
PCHAN_API int64_t pchan_team_next(pchan_team *team);

/* *all = 1 when `mine` is not 0 on every rank of the node, else 0; what they wrote before is then seen by all.
 * Collective over the node. STATE, MPI. */
PCHAN_API PCHAN_NODISCARD pchan_status pchan_team_all(pchan_team *team, int mine, int *all, pchan_error *err);

/* Local, without communication; the memory goes when the last rank lets go. */
PCHAN_API void pchan_team_destroy(pchan_team **team);

#endif /* PCHAN_NO_MPI */

#ifdef __cplusplus
}
#endif
#endif /* PCHAN_H */
