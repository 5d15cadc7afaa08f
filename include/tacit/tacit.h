/* SPDX-License-Identifier: Apache-2.0
 *
 * tacit: training over links that are slow next to the compute.
 *
 * This header is the C interface of libtacit and a course in it: read it from the top and stop when you have what you
 * need. It is plain C11, also valid C++17, and needs neither MPI nor Python. examples/c/ holds complete programs.
 *
 *   1. statuses and texts       4. a layout of tensors    7. your own optimizer     10. counters
 *   2. settings                 5. a job                  8. the mean of replicas   11. log and failures
 *   3. the ranks: open, close   6. the training loop      9. checkpoints
 *  12. units of shard          13. channels: sums and gathers of your own arrays, without a job
 *
 * The whole of it, for one program that is started on every rank:
 *
 *   tacit_settings_create(&settings);                  2   what to exchange and when, as `section.key=value`
 *   tacit_open(settings, &comm);                       3   the ranks meet
 *   tacit_layout_create(&layout);                      4   names and shapes of the parameters:
 *   tacit_layout_add(layout, "out.weight", 2, shape, TACIT_DECAY);   ... one call per tensor
 *   tacit_job_open(comm, settings, layout, NULL, &job); 5  parameters and gradients, each one flat array
 *   ... initialise tacit_job_parameters(job) ...
 *   tacit_job_start(job);                                  every rank begins with the parameters of rank 0
 *   for (...) {                                        6
 *       ... backward: compute gradients; tacit_job_ready(job, tensor) as soon as each of them is final ...
 *       tacit_job_finish(job, &step);                      exchange and update
 *   }
 *   tacit_job_close(job); tacit_layout_destroy(layout); tacit_close(comm); tacit_settings_destroy(settings);
 *
 * What holds for every function:
 *   - It returns a status where it can fail, and changes its outputs only on success. It never ends the process, never
 *     prints and installs no signal handler.
 *   - *Collective* functions are called by all ranks of the communicator, in the same order. A job or a channel that
 *     one rank refuses to open is refused on all of them with its status, and the text names that rank.
 *   - Calls on a communicator and its jobs have three classes, each of which is one thread's at a time: *ready*, *wait*
 *     (where a function says so), and the rest. *Any thread* marks what is free of that.
 *   - Structs begin with their size, which the caller sets, {.size = sizeof(tacit_counters)}, so that they can grow:
 *     a member that an older program does not know is 0, or is not written. Without a size: TACIT_E_USAGE.
 *   - A NULL where none is allowed, a closed handle, an index out of range: TACIT_E_USAGE, and nothing changes.
 *   - Several communicators may be open at once, with several jobs on each.
 *   - After fork() the child cannot use communicators, jobs and channels of its parent: TACIT_E_USAGE.
 */
#ifndef TACIT_TACIT_H
#define TACIT_TACIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define TACIT_API __attribute__((visibility("default")))
#else
#define TACIT_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define TACIT_VERSION_MAJOR 0
#define TACIT_VERSION_MINOR 2
#define TACIT_VERSION_PATCH 0

/* ---- 1. statuses and texts -------------------------------------------------------------------------------------- */

/* The one list of statuses: value, name, text. 0 is success, negative is an error. Positive is "in progress": what a
 * wait returns that has reached its time limit. */
#define TACIT_STATUS_LIST(X)                                                                                           \
    X(OK, 0, "success")                                                                                                \
    X(PENDING, 1, "still in progress")                                                                                 \
    X(E_USAGE, -1, "wrong use of a command or function")                                                               \
    X(E_CONFIG, -2, "configuration refused")                                                                           \
    X(E_DATA, -3, "input data refused")                                                                                \
    X(E_PEER, -4, "a peer failed or froze")                                                                            \
    X(E_NUMERICS, -5, "a number is not finite or out of range")                                                        \
    X(E_MEMORY, -6, "out of memory")                                                                                   \
    X(E_IO, -7, "input or output failed")                                                                              \
    X(E_UNSUPPORTED, -8, "not supported by this build or machine")                                                     \
    X(E_INTERNAL, -9, "a defect in tacit; please report it")

typedef enum tacit_status {
#define TACIT_STATUS_ENUM(name, value, text) TACIT_##name = (value),
    TACIT_STATUS_LIST(TACIT_STATUS_ENUM)
#undef TACIT_STATUS_ENUM
} tacit_status;

/* Message of the last function of this library that failed in this thread, valid until the next one: one line that
 * names the values and what to do. Empty before the first failure; never NULL. Any thread, not collective. */
TACIT_API const char *tacit_error_text(void);

/* Short name, e.g. "E_CONFIG", and text, e.g. "configuration refused". Never NULL. Any thread, not collective. */
TACIT_API const char *tacit_status_name(tacit_status status);
TACIT_API const char *tacit_status_text(tacit_status status);

/* Process exit code of a status, as the program ends with it: 0 ok, 1 E_INTERNAL, 2 E_USAGE, 3 E_CONFIG and
 * E_UNSUPPORTED, 4 E_DATA, 5 E_PEER, 6 E_NUMERICS, 7 E_MEMORY and E_IO. Any thread, not collective. */
TACIT_API int tacit_status_exit_code(tacit_status status);

/* Library version "MAJOR.MINOR.PATCH". Any thread, not collective. */
TACIT_API const char *tacit_version(void);

/* ---- 2. settings ------------------------------------------------------------------------------------------------- */

/* The same keys as the program `tacit` has. `tacit info options` lists them with type, default and range; later calls
 * win. These say what is exchanged, and how:
 *
 *   strategy      dp, none, shard, gossip or localsgd; the last three have sections of their names: "shard.stage=1"
 *   optim         the optimizer, its learning rate and its schedule
 *   exchange      number format on the wire, size of buckets, overlap
 *   compress      codec and factor, for dp, shard and localsgd: "compress.codec=auto". Every codec with options has a
 *                 section of its name: "topk.values=int4" (`tacit info codecs`)
 *   adapt         the controller that chooses the factor: "adapt.policy=gravac". Every controller with options has a
 *                 section of its name (`tacit info controllers`)
 *   comm          the engine, time limits and the communication thread
 *
 * A combination that makes no sense is refused by tacit_job_open(). */
typedef struct tacit_settings tacit_settings;

/* All defaults. Returns owned. Any thread, not collective. */
TACIT_API tacit_status tacit_settings_create(tacit_settings **out);

/* One setting: "strategy=gossip", "optim.lr=0.01". E_CONFIG names what is wrong and the nearest key. Not collective. */
TACIT_API tacit_status tacit_settings_set(tacit_settings *settings, const char *key_is_value);

/* A YAML file: `strategy: gossip` and sections of `key: value`. E_CONFIG names file, line and column. Settings
 * that stand before the mistake are applied. Not collective. */
TACIT_API tacit_status tacit_settings_file(tacit_settings *settings, const char *path);

/* Writes the value of a key, with a final zero, as tacit_settings_set() takes it: "0.01", "true", "gossip". E_CONFIG
 * for an unknown key; E_USAGE if it needs more than `room` bytes. Not collective. */
enum { TACIT_VALUE_BYTES = 512 }; /* room for every value */
TACIT_API tacit_status tacit_settings_get(const tacit_settings *settings, const char *key, char *text, size_t room);

typedef enum tacit_list_kind {
    TACIT_LIST_OPTIONS, /* the keys: "optim.lr" */
    TACIT_LIST_STRATEGIES,
    TACIT_LIST_CODECS,      /* values of compress.codec, beside none and auto; those for reference, too */
    TACIT_LIST_CONTROLLERS, /* of adapt.policy */
    TACIT_LIST_OPTIMIZERS   /* of optim.name */
} tacit_list_kind;

/* The index-th of what is built in, and what it does in one line; name and help may be NULL. *name is valid until the
 * next call of this thread. False behind the last. Any thread, not collective. */
TACIT_API bool tacit_list(tacit_list_kind kind, size_t index, const char **name, const char **help);

/* Jobs and other objects that were opened with the settings do not need them any more. NULL is fine. */
TACIT_API void tacit_settings_destroy(tacit_settings *settings);

/* ---- 3. the ranks ------------------------------------------------------------------------------------------------ */

/* Ranks that train together. Reads section comm of the settings. E_CONFIG where TACIT_ISA is no set of the CPU. */
typedef struct tacit_comm tacit_comm;

/* All processes that mpirun or srun has started, or this process alone when there is no launcher. MPI is initialised
 * unless the program has done so; then what tacit_mpi.h says about thread levels holds. settings may be NULL: defaults.
 * E_PEER where a rank that has started does not go on; E_UNSUPPORTED for a thread level that is too low, or where
 * libtacit has no plugin for the launcher's MPI; E_USAGE where the ranks do not find each other, where RANK and
 * WORLD_SIZE contradict the launcher, or where MPI was finalized in this process. Returns owned. Collective.
 *
 * MPI itself waits for all processes, however long that takes: an error is logged after comm.start. */
TACIT_API tacit_status tacit_open(const tacit_settings *settings, tacit_comm **out);

/* This process alone, whoever has started it. Not collective. */
TACIT_API tacit_status tacit_open_self(const tacit_settings *settings, tacit_comm **out);

/* The communicator of an MPI program: tacit_open_mpi() in tacit_mpi.h. This is the same function for languages that do
 * not read <mpi.h>: family is "openmpi" or "mpich", communicator points to an MPI_Comm. */
TACIT_API tacit_status tacit_open_family(const char *family, const void *communicator, const tacit_settings *settings,
                                         tacit_comm **out);

/* Where ranks that nobody has started together find each other: values under keys, which all of them set and get. */
typedef struct tacit_store {
    size_t size; /* sizeof(tacit_store) */
    void *context;
    /* Stores a copy of `count` bytes, up to 4096, in place of an older value. */
    tacit_status (*set)(void *context, const char *key, const void *bytes, size_t count);
    /* Waits for up to `seconds` until the key has a value - 0: looks once - and writes it and its size. It must come
     * back then: with E_PEER where there is none. A value of more than `room` bytes is E_DATA. */
    tacit_status (*get)(void *context, const char *key, void *bytes, size_t room, size_t *count, double seconds);
} tacit_store;

/* `ranks` processes of which this one is `rank`, connected by TCP, and by Unix-domain sockets on a host. They meet in
 * the store: every rank sets one value, under the key "tacit-0-RANK", and reads those of lower ranks and that of a rank
 * that does not come, in the calling thread and before this returns. Values of an earlier use do no harm, but
 * communicators that are opened at the same time need keys, or stores, of their own. Any other status of the store ends
 * the call with that status. E_PEER names a rank that has not come after comm.start; E_USAGE a rank that cannot be;
 * E_CONFIG a comm.engine other than auto and tcp, and comm.meet. Returns owned. Collective. */
TACIT_API tacit_status tacit_open_store(const tacit_settings *settings, int rank, int ranks, const tacit_store *store,
                                        tacit_comm **out);

TACIT_API int tacit_rank(const tacit_comm *comm); /* 0 .. tacit_size() - 1; -1 for a handle that is none */
TACIT_API int tacit_size(const tacit_comm *comm); /* number of ranks; -1 for a handle that is none */

/* Close its jobs and channels first: E_USAGE otherwise. Finalizes MPI if this library has initialised it and no other
 * communicator of this library is open; after a failure of a peer it does not, for that could not return. The handle is
 * closed whatever the status is, but for E_USAGE. E_PEER where a peer fails while all say goodbye, or has made other
 * steps than this rank. NULL is fine. Collective; after a failure not. */
TACIT_API tacit_status tacit_close(tacit_comm *comm);

/* ---- 4. a layout of tensors -------------------------------------------------------------------------------------- */

/* All parameters live in one flat array of f32, all gradients in another one of the same layout. A tensor is a range
 * of it; it begins at a multiple of 16 floats. The floats between tensors are padding, which is 0. */
typedef struct tacit_layout tacit_layout;

/* No tensors yet. Returns owned. Any thread, not collective. */
TACIT_API tacit_status tacit_layout_create(tacit_layout **out);

enum { TACIT_DECAY = 1 }; /* weight decay applies: usually to matrices, not to biases and norms */

/* Adds a tensor of shape[dims], any number of dimensions; 0, and shape NULL: a scalar, of one element. Its index is the
 * number of tensors before it. name: unique in the layout, 1 to 1023 bytes of UTF-8 without control characters. flags:
 * TACIT_DECAY or 0. Name and shape are copied.
 *
 * Add tensors in the order in which the backward pass completes their gradients, the last layer first: then messages
 * leave earliest. Any other order gives the same result later. Leave out tensors that are not trained. E_CONFIG for a
 * name or a shape that cannot be. One thread at a time, not collective. */
TACIT_API tacit_status tacit_layout_add(tacit_layout *layout, const char *name, int dims, const size_t *shape,
                                        unsigned int flags);

/* Tensors that are added from here on belong to the next unit: of tensors that a pass uses together, such as a layer.
 * Strategy shard moves units; one without tensors does not count. One thread at a time, not collective. */
TACIT_API tacit_status tacit_layout_next_unit(tacit_layout *layout);

TACIT_API size_t tacit_layout_floats(const tacit_layout *layout); /* of the flat array, with padding; 0: no handle */

/* Floats before tensor `tensor`, an index. Any thread, not collective. */
TACIT_API tacit_status tacit_layout_offset(const tacit_layout *layout, size_t tensor, size_t *out);

/* Jobs that were opened with it have a copy. NULL is fine. */
TACIT_API void tacit_layout_destroy(tacit_layout *layout);

/* ---- 5. a job ---------------------------------------------------------------------------------------------------- */

/* A network that is trained: parameters, gradients, an optimizer and a strategy. */
typedef struct tacit_job tacit_job;

/* Begin with {.size = sizeof options}; members that are left out are 0. No struct at all is fine, too. */
typedef struct tacit_job_options {
    size_t size; /* sizeof(tacit_job_options) */
    /* Flat arrays of tacit_layout_floats() floats, 64-byte aligned, that stay the caller's and live as long as the job;
     * NULL: the library allocates them, filled with 0. Padding in them is set to 0. */
    float *parameters, *gradients;
    int64_t steps;       /* of the run: where optim.lr's schedule ends (0: nowhere); gossip.start of them are dp's */
    int threads;         /* for updates, this one included; 0: cores of the host / ranks on it */
    bool own_optimizer;  /* the caller updates parameters: section 7. Section optim is ignored but for lr, its schedule
                          * and clip, and for compress.momentum the momentum */
    bool gradients_only; /* as own_optimizer, and the library knows no parameters: it sums gradients, under dp alone,
                          * and clips them: optim.clip=0 for sums as they are */
    bool by_units;       /* shard alone: parameters and gradients are in memory when they are needed, section 12 */
} tacit_job_options;

/* Reads `strategy` and all sections but comm. options may be NULL. E_CONFIG names a setting that the strategy refuses,
 * or the first rank whose settings or tensors differ from those of rank 0, with both values; E_MEMORY arrays that a
 * host has no memory for. Returns owned. Collective.
 *
 * shard keeps parts of the optimizer's state on every rank, but, unless by_units, parameters and gradients whole, and
 * gathers the parameters before tacit_job_finish() returns.
 *
 * Other tensors to train, as where layers are frozen from now on, are another layout and another job: open it, copy the
 * parameters over, and close the old one. The state of its optimizer and compression ends with it. */
TACIT_API tacit_status tacit_job_open(tacit_comm *comm, const tacit_settings *settings, const tacit_layout *layout,
                                      const tacit_job_options *options, tacit_job **out);

/* The flat arrays; NULL for a handle that is none, and the parameters of a job with gradients_only. Any thread. */
TACIT_API float *tacit_job_parameters(tacit_job *job);
TACIT_API float *tacit_job_gradients(tacit_job *job);

/* The parameters are initialised: every rank gets those of rank 0, unless the job has gradients_only, and steps may
 * begin. Either this or a tacit_job_load() that finds a checkpoint comes before the first step. Collective. */
TACIT_API tacit_status tacit_job_start(tacit_job *job);

/* Waits for messages that are under way, and ends tacit_job_wait() of another thread. E_PEER after a failure: then late
 * messages may still write to the arrays of the job, which is why the library keeps its own, and those of the caller
 * must stay as long as the process. The handle is closed in any case. NULL is fine. Collective; after a failure not. */
TACIT_API tacit_status tacit_job_close(tacit_job *job);

/* ---- 6. the training loop ---------------------------------------------------------------------------------------- */

/* Result of a step on this rank. Begin with {.size = sizeof step}. */
typedef struct tacit_step {
    size_t size;    /* sizeof(tacit_step); stays as it is */
    int64_t number; /* steps so far, this one included */
    bool skipped; /* no update. dp, shard: no rank updates, as the gradient of one is not finite; gossip, localsgd: this
                   * rank does not, as its own is not, but still mixes */
    double norm;  /* of the gradient before optim.clip. dp, shard: of the whole batch, the same on all ranks; gossip,
                   * localsgd: of this rank's own, or of its estimate of the mean */
    double lr;    /* learning rate of this step: by the schedule of optim.lr, or of tacit_job_set_lr() */
    double wait_s;             /* seconds in which this thread waited for messages */
    double factor, gain, kept; /* of the step's compressed sum, 0 without one: as in docs/metrics.md */
} tacit_step;

/* The gradient of this tensor is final; call it from inside the backward pass, so that the exchange runs beside the
 * rest of it. Tensors may come in any order, which may differ between ranks and steps. The gradient belongs to the
 * library from here to the end of tacit_job_finish(). With comm.thread (the default), does not block.
 *
 * Scale: the *sum over all ranks* of the gradients must be the gradient. With the usual mean over the samples of a
 * step, divide by the number of samples of all ranks together. This holds for every strategy.
 *
 * Micro-batches: add the gradients of all of them up, and call it in the last one alone. A tensor that this step has
 * not used: its gradient is 0 on this rank; set it to 0, or say so with tacit_job_ready_from(). Every rank makes every
 * tensor ready in every step.
 *
 * TACIT_ALL_TENSORS: all that are not ready yet; for a network without hooks in its backward pass.
 * E_USAGE: no such tensor, ready before in this step, the job was not started, or another thread is in one of its
 * functions between or at the end of steps. Class ready, not collective; but steps of several jobs on a communicator
 * begin and end in the same order on all ranks. */
#define TACIT_ALL_TENSORS SIZE_MAX
TACIT_API tacit_status tacit_job_ready(tacit_job *job, size_t tensor);

typedef enum tacit_type { TACIT_F32, TACIT_BF16, TACIT_F16 } tacit_type; /* of an element */

/* As tacit_job_ready(), for a gradient that lies in your own memory: `source` holds the elements of the tensor one
 * after the other, at any multiple of the size of an element, and may be elsewhere in every step. The gradient is
 * source * scale, in f32; with micro-batches, scale is the place for 1 / samples. NULL: the gradient is 0.
 *
 * The source overlaps no other and is the library's until tacit_job_finish() or tacit_job_settle() has returned, or,
 * with optim.clip=0, tacit_job_wait() for the tensor; after E_PEER until tacit_job_close(). With own_optimizer it then
 * holds `gradients`, in its type: under dp the sum; of shard use tacit_job_part(). tacit_job_finish() writes nothing
 * back. E_USAGE also for an infinite scale. */
TACIT_API tacit_status tacit_job_ready_from(tacit_job *job, size_t tensor, void *source, tacit_type type, double scale);

/* As a tacit_job_ready_from() for each of `count` tensors in turn, in a single call: tensor tensors[i] lies at
 * sources[i], and all have one type and one scale. For many small tensors, for which calls take longer than what they
 * do. The first that is refused ends it; those before it are ready. */
TACIT_API tacit_status tacit_job_ready_list(tacit_job *job, size_t count, const size_t *tensors, void *const *sources,
                                            tacit_type type, double scale);

/* Ends a step: exchanges, clips and updates the parameters with the optimizer of section optim. All tensors must be
 * ready: E_USAGE names one that is not; the step can still be finished. E_PEER: a rank failed, and this job and its
 * communicator are of no use but to be closed. step may be NULL. Collective. */
TACIT_API tacit_status tacit_job_finish(tacit_job *job, tacit_step *step);

/* ---- 7. your own optimizer --------------------------------------------------------------------------------------- */

/* With own_optimizer a step ends in two halves instead of tacit_job_finish():
 *
 *   tacit_job_settle(job, &step);
 *   if (!step.skipped) for (i = 0; i < floats; i++) parameters[i] -= step.lr * gradients[i];      your update
 *   tacit_job_stepped(job);
 *
 * After settle both arrays are the caller's. `gradients` is what the update shall follow, summed over ranks (dp) or
 * this rank's own (others), scaled to the mean of the samples it stands for, and clipped by optim.clip. `parameters`
 * are those to update: with gossip.order awc they have been mixed with the neighbours' already. stepped hands the
 * result on: nothing in dp, a mix in gossip, an average every localsgd.every steps in localsgd, a gather in shard,
 * whose ranks update their parts alone: tacit_job_part().
 *
 * With the same update, settle and stepped leave the same bits as tacit_job_finish(). tacit_job_open() refuses what
 * cannot have an optimizer of the caller's, with E_CONFIG: graphs of gossip that scale updates (push-sum).
 *
 * With gradients_only as well the library sums gradients and knows nothing else: no array of parameters, in memory, in
 * messages or in checkpoints. examples/c/gradients.c is such a program, with gradients in memory of its own. */

/* As tacit_job_finish() up to the update. E_USAGE without own_optimizer. Collective. */
TACIT_API tacit_status tacit_job_settle(tacit_job *job, tacit_step *step);

/* The update is made; also to be called after a step that was skipped. Collective. */
TACIT_API tacit_status tacit_job_stepped(tacit_job *job);

/* A range of the flat arrays that this rank updates. Begin with {.size = sizeof part}. */
typedef struct tacit_part {
    size_t size;                   /* sizeof(tacit_part); stays as it is */
    size_t offset, floats;         /* in the flat arrays; floats may be 0 */
    float *parameters, *gradients; /* of its first float. Parameters lie elsewhere than in the flat array where shard
                                    * sends them compressed */
} tacit_part;

/* The index-th part: with shard the ranges that this rank owns, which no other updates; else the whole arrays, the only
 * one. Parts stay the same as long as the job, and with shard only their gradients are sums. False behind the last, and
 * for wrong use. Any thread, not collective. */
TACIT_API bool tacit_job_part(const tacit_job *job, size_t index, tacit_part *part);

/* OK: the sum over ranks of this tensor has arrived and stands in its source, or in `gradients`, before clipping, while
 * others are still under way. TACIT_PENDING: not yet when `seconds` have passed; 0 asks without waiting. It is about
 * the step that is under way, or the last one. tacit_job_settle() is needed in any case: where optim.clip takes effect
 * it writes the gradients again, so with updates per tensor set optim.clip=0.
 *
 * Under dp with own_optimizer or gradients_only; E_CONFIG otherwise. INFINITY is fine, for a wait ends: with E_PEER
 * when a peer fails; with E_USAGE where the tensor is not ready, or its message has waited for comm.stall for another
 * tensor to be ready, which is named, or when the job is closed. Class wait, not collective. */
TACIT_API tacit_status tacit_job_wait(tacit_job *job, size_t tensor, double seconds);

/* The learning rate of this and all following steps, in place of the schedule of optim.lr; NaN: the schedule again. The
 * same on all ranks. No checkpoint holds it. E_USAGE for a number that is negative or infinite. Not collective. */
TACIT_API tacit_status tacit_job_set_lr(tacit_job *job, double lr);

/* ---- 8. the mean of replicas ------------------------------------------------------------------------------------- */

/* gossip and localsgd let the parameters of ranks differ. Their mean is evaluated, saved and delivered. */

/* Between two steps: parameters become the mean over all ranks, and this rank's own are put aside in `gradients`, which
 * must stay as they are until tacit_job_revert(). Where replicas are equal (dp, shard) nothing changes. *distance, if
 * not NULL, receives the consensus distance sqrt(1/N sum_i |x_i - mean|^2), 0 in dp and shard. E_USAGE inside a step,
 * and, where replicas differ, on all ranks, naming one, if they have made different numbers of steps. But where others
 * wait in a step for a rank that has made fewer, communication ends: E_PEER says where two ranks are. Collective. */
TACIT_API tacit_status tacit_job_average(tacit_job *job, double *distance);

/* The rank's own parameters come back, bit for bit; needed before the next step. Not collective. */
TACIT_API tacit_status tacit_job_revert(tacit_job *job);

/* ---- 9. checkpoints ---------------------------------------------------------------------------------------------- */

/* Bytes of the caller that a checkpoint holds: the state of a generator, a position in the data. */
typedef struct tacit_blob {
    size_t size;      /* sizeof(tacit_blob); of a list, the same in all */
    const char *name; /* 1 to 39 letters, digits, '_', '-' or '.' */
    void *bytes;      /* `count` bytes; tacit_job_load() refuses a checkpoint that has another number */
    size_t count;
    bool own;    /* every rank has its own; else it is the same on all ranks */
    bool loaded; /* set by tacit_job_load(): false where the checkpoint has none of that name, or, with `own`, where
                  * another number of ranks or another strategy saved it; then `bytes` stay as they were */
    /* Where `bytes` is NULL, tacit_job_load() asks for room for the `count` bytes that the checkpoint has, and sets
     * `bytes` and `count` if the load succeeds; the room is the caller's in any case. NULL: there is none. */
    void *(*room)(void *context, size_t count);
    void *context;
} tacit_blob;

/* Writes checkpoint folder/step_00000100 of step 100: parameters, state of optimizer and strategy, blobs. Complete or
 * not at all; the newest `keep` checkpoints stay. The format is that of docs/checkpoints.md: any reader of safetensors
 * finds the mean of the parameters as "model.NAME"; the program `tacit` knows networks of its own only. An error (E_IO:
 * disk full, ...) is the same on all ranks and leaves older checkpoints intact, and the job ready to go on. Different
 * numbers of steps: as tacit_job_average(). Up to 32 blobs. Between two steps, or average and revert. Collective. */
TACIT_API tacit_status tacit_job_save(tacit_job *job, const char *folder, int keep, const tacit_blob *blobs,
                                      size_t blob_count);

/* The newest checkpoint in `folder` that is not damaged, in place of tacit_job_start(). Collective. *found false: there
 * is none, and nothing has changed. On as many ranks as have saved it and with the same settings, training goes on bit
 * for bit as if it had never stopped. On another number of ranks, or with another strategy, all begin with the mean of
 * the replicas and of the optimizer's state, and what the strategy had under way is forgotten. Settings that have
 * changed are logged with both values, what is lost as a warning. compress.codec auto and adapt.policy payoff and
 * gravac choose by times, which differ: steps go on from the same state, but what they choose may differ.
 *
 * E_DATA: only damaged ones, or another layout. E_CONFIG: the checkpoint lacks state: of another optimizer (adam and
 * adamw have the same), for another optim.freeze, or for localsgd.outer_momentum that was 0; the text names the keys.
 * E_IO, E_UNSUPPORTED: the newest cannot be read, or a newer tacit has written it. An error is the same on all ranks,
 * and on all of them the job and the blobs are as they were. A damaged checkpoint is logged and stays where it is. */
TACIT_API tacit_status tacit_job_load(tacit_job *job, const char *folder, tacit_blob *blobs, size_t blob_count,
                                      bool *found);

/* The same in memory: the whole state of this rank - parameters, optimizer, residuals, controller, steps - as one
 * string of bytes with a checksum, for a caller that stores it, together with those of the other ranks.
 * `buffer` has `room` bytes and receives *bytes of them; NULL: *bytes alone, which later steps do not exceed. E_USAGE
 * if the room is too small; *bytes says what is needed. Blobs are not part of it. Between two steps, or between average
 * and revert. Not collective: nothing is sent. */
TACIT_API tacit_status tacit_job_state(tacit_job *job, void *buffer, size_t room, size_t *bytes);

/* In place of tacit_job_start(): every rank goes on from the bytes of its own rank, all of the same step, bit for bit
 * as if the job had never stopped (but for auto, payoff, gravac: as tacit_job_load()). E_DATA, on all ranks, and the
 * job is as it was: bytes that are damaged, of another rank, of other tensors or of other settings - comm and what
 * affects no result may differ -, or of another number of ranks, for whom tacit_job_save() writes. Collective. */
TACIT_API tacit_status tacit_job_restore(tacit_job *job, const void *bytes, size_t count);

/* ---- 10. counters ------------------------------------------------------------------------------------------------ */

typedef struct tacit_counters {
    size_t size;                               /* sizeof(tacit_counters) */
    int64_t steps;                             /* finished, those before a checkpoint included */
    int64_t skipped;                           /* of these: without an update, on this rank */
    double wait_s;                             /* seconds waited for messages since the job was opened */
    uint64_t bytes_sent, bytes_received;       /* payload of all jobs of the communicator since it was opened */
    uint64_t messages_sent, messages_received; /* likewise */
    uint64_t away_sent, away_received;         /* bytes of these to and from other hosts */
    double factor, gain, kept;                 /* as in tacit_step, of the last finished step */
} tacit_counters;

/* Not collective. */
TACIT_API tacit_status tacit_job_counters(const tacit_job *job, tacit_counters *out);

/* ---- 11. log and failures ---------------------------------------------------------------------------------------- */

typedef enum tacit_log_level { TACIT_LOG_DEBUG, TACIT_LOG_INFO, TACIT_LOG_WARN, TACIT_LOG_ERROR } tacit_log_level;

/* Receives one line without its newline, from any thread, but from one at a time. Must not call this library. */
typedef void tacit_log_callback(void *context, tacit_log_level level, const char *line);

/* Lines of all communicators of the process from now on, of this level and above; NULL: none, as at first. An error is
 * logged on the rank that has noticed it; what several ranks refuse in the same words while a job is opened, saved or
 * loaded, on the first of them. tacit_error_text() has it on all. Any thread, not collective. */
TACIT_API tacit_status tacit_log_to(tacit_log_callback *callback, void *context, tacit_log_level lowest);

/* Lines of this communicator and its jobs, those of its threads included, go there from now on and not to the function
 * above; NULL: there again. Lines of a call that opens a communicator are nobody's yet. Not collective. */
TACIT_API tacit_status tacit_comm_log_to(tacit_comm *comm, tacit_log_callback *callback, void *context,
                                         tacit_log_level lowest);

/* Called once, when communication has failed: E_PEER and the line that names the culprit. Called by a thread of the
 * library as soon as the failure is noticed - after comm.timeout for a silent rank -, also while no function runs; or
 * by the thread whose call has failed. Must not call this library, but may end the process. From then on all functions
 * of the communicator return E_PEER at once. */
typedef void tacit_failure_callback(void *context, tacit_status status, const char *text);

/* NULL: none. A failure that is known already is reported before this returns. Not collective. */
TACIT_API tacit_status tacit_on_failure(tacit_comm *comm, tacit_failure_callback *callback, void *context);

/* Asked twice a second, in the thread of the caller, by a function that has waited for other ranks for half a second.
 * Anything but OK, which it shall repeat, ends all communication: E_PEER here, and on the others, which name this rank.
 * For languages that handle signals only when C has returned. Must not call this library. */
typedef tacit_status tacit_wait_callback(void *context);

/* For waits of the calling thread from now on, but not inside MPI or a tacit_store. NULL: none. Not collective. */
TACIT_API tacit_status tacit_on_wait(tacit_wait_callback *callback, void *context);

/* ---- 12. units of shard ------------------------------------------------------------------------------------------ */

/* With strategy shard and by_units a rank holds what shard.stage says, and the rest of a unit - the tensors between two
 * tacit_layout_next_unit(), such as a layer - only while the program needs it. Both arrays have addresses for all
 * tensors, but in stage 3 parameters are in memory between need and release alone, and from stage 2 on gradients
 * between write and ready: any other access is fatal.
 *
 *   for (u = 0; u < units; u++) {              initial values: what rank 0 sets; units that are left out begin with 0
 *       tacit_job_need(job, u); ... rank 0 sets the parameters of unit u ...; tacit_job_release(job, u);
 *   }
 *   tacit_job_start(job);                      or tacit_job_load()
 *   for (...) {
 *       for (u = units; u-- > 0;) { tacit_job_need(job, u); ... forward ...; tacit_job_release(job, u); }
 *       for (u = 0; u < units; u++) {
 *           tacit_job_need(job, u); tacit_job_write(job, u);
 *           ... backward ...; tacit_job_ready(job, tensor) for its tensors; tacit_job_release(job, u);
 *       }
 *       tacit_job_finish(job, &step);
 *   }
 *
 * Steps have the bits of a job without by_units, and of dp where nothing is clipped or compressed. All ranks call need,
 * release and ready in the same order, in evaluations between steps as well; what comes next is gathered ahead, in the
 * order of the first step. These functions are of class ready. Checkpoints do not depend on units. */

/* The parameters of the unit will be read, until as many releases: they are in the array on return. Between two needs
 * nothing writes to them, but see above for those before the job starts, of which each unit has one. May wait for other
 * ranks. E_USAGE: no such unit, a job without by_units, or a unit that was set before. Collective. */
TACIT_API tacit_status tacit_job_need(tacit_job *job, size_t unit);

/* They will not be read until the next need. Before the job starts: all ranks get the values of rank 0. E_USAGE: the
 * unit is not needed. Collective. */
TACIT_API tacit_status tacit_job_release(tacit_job *job, size_t unit);

/* Comes before the first write to the unit's gradients in a step; micro-batches may repeat it. Their content is not
 * specified then. E_USAGE: a tensor of it is ready in this step. May wait for sums of other units. Not collective. */
TACIT_API tacit_status tacit_job_write(tacit_job *job, size_t unit);

/* ---- 13. channels ------------------------------------------------------------------------------------------------ */

/* A sum or a gather of the caller's own arrays, as often as you like, without a job:
 *
 *   tacit_channel_start(channel, x, x, TACIT_F32, 1);      leaves while you compute
 *   tacit_channel_wait(channel, INFINITY);                 x is the sum over ranks
 *
 * A channel has a compression of its own (compress.codec of its settings), and with it a residual: what one start loses
 * is part of the next, so that what has arrived and the residuals of all ranks together are what was given, to
 * rounding. compress.feedback 0 turns that off. compress.warmup counts starts. An all-reduce has the bits of the sums
 * of a dp job of one tensor with the same settings. */
typedef struct tacit_channel tacit_channel;

typedef enum tacit_collective {
    TACIT_ALL_REDUCE,     /* target[elements] = the sum over ranks of source[elements], the same bits on all ranks */
    TACIT_REDUCE_SCATTER, /* target[elements / ranks] = part `rank` of that sum */
    TACIT_ALL_GATHER      /* part r of target[elements] = source[elements / ranks] of rank r, the same bits on all */
} tacit_collective;

/* elements: of the whole array, the same on all ranks; any number of an all-reduce, else a multiple of the ranks. Reads
 * sections exchange and compress, the codec's, adapt.policy, and optim.warmup for compress.warmup.
 *
 * Needs memory for a copy of the array in f32, and what the codec needs. A residual ends with its channel, unless
 * tacit_channel_state() takes it along. E_CONFIG: a setting that no channel can have (an adapt.policy that follows the
 * steps of a job; compress.codec auto is for sums) or the first rank that has other settings, another collective or
 * another length, with both values; E_MEMORY: an array that a host has no memory for. Returns owned. Collective. */
TACIT_API tacit_status tacit_channel_open(tacit_comm *comm, const tacit_settings *settings, tacit_collective collective,
                                          size_t elements, tacit_channel **out);

/* Starts the transfer of source * scale; sums are made in f32, and rounded to `type` at the end. The arrays begin at a
 * multiple of their element and are the library's until tacit_channel_wait() has returned something else than
 * TACIT_PENDING, after E_PEER until tacit_channel_close(). source may be target (all-reduce), or source be part `rank`
 * of target (all-gather), or target be that of source (reduce-scatter); else they must not overlap. All ranks make
 * their starts of all channels, and steps of jobs, in the same order: another one ends with E_PEER after comm.stall,
 * naming both. type and scale may differ between ranks. Does not block with comm.thread (the default).
 *
 * A number that is not finite arrives as one, at its place or in the codec's block around it; residuals then stay as
 * they were before this start, on all ranks.
 *
 * E_USAGE: the start before was not waited for, or an argument that cannot be. Collective. */
TACIT_API tacit_status tacit_channel_start(tacit_channel *channel, const void *source, void *target, tacit_type type,
                                           double scale);

/* OK: the result of the last start stands in its target. TACIT_PENDING: not yet, after this time; 0 asks without
 * waiting. INFINITY is fine: the wait ends with E_PEER when a peer fails or freezes. E_USAGE: nothing was started since
 * the last result. Class wait; not collective. */
TACIT_API tacit_status tacit_channel_wait(tacit_channel *channel, double seconds);

/* The state of this rank - residuals, what the codec remembers, the number of starts - as bytes, as tacit_job_state()
 * writes those of a job. E_USAGE: also while a start is under way. Not collective. */
TACIT_API tacit_status tacit_channel_state(tacit_channel *channel, void *buffer, size_t room, size_t *bytes);

/* Before the first start: every rank goes on from its own bytes, bit for bit, but for auto. E_DATA: as
 * tacit_job_restore(), also for another collective or length. E_USAGE: the channel has sent already. Collective. */
TACIT_API tacit_status tacit_channel_restore(tacit_channel *channel, const void *bytes, size_t count);

/* Waits for a start that is under way, and closes the handle in any case. NULL is fine. As tacit_job_close(). */
TACIT_API tacit_status tacit_channel_close(tacit_channel *channel);

#ifdef __cplusplus
}
#endif
#endif
