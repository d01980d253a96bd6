/*
** flow.h -- tensors with gradients, on one rank or many, for programs in C and C++.
**
** Results. A function that can fail returns a flow_status; FLOW_OK is 0. flow_error() is the message of this thread's
** last failure. Out-parameters come first and are set on success only.
**
** References. A function that makes a tensor gives the caller one reference, which flow_unref takes back. Arguments are
** borrowed. The functions that take something back accept NULL.
**
** Threads. One thread calls: the one that has called flow_open, or flow_take_over since. A call from another one is an
** error that says so. From any thread: flow_unref, flow_error, flow_version, flow_fail, flow_done.
**
** Time. Calls may return before the values are there. Functions that read values wait for them; an error of an op that
** ran later is reported by what needs its value, and by flow_sync.
**
** The host. libflow does not end the process, handles no signals, sets no locale and writes nothing to standard
** output. Warnings go to the function that flow_config names, else to standard error. Callbacks of the host are called
** without a lock held.
*/
#ifndef FLOW_H
#define FLOW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define FLOW_API __attribute__((visibility("default")))
#else
#define FLOW_API
#endif

typedef enum flow_status {
    FLOW_OK = 0,
    FLOW_ERR_SHAPE,      /* shapes, axes, sizes that do not fit */
    FLOW_ERR_DTYPE,      /* a dtype the op does not take */
    FLOW_ERR_VALUE,      /* a value out of its range, an unknown name */
    FLOW_ERR_SBP,        /* placements or SBPs that do not fit */
    FLOW_ERR_STATE,      /* a call that is not allowed now, or on this thread */
    FLOW_ERR_MEMORY,     /* host or device memory exhausted */
    FLOW_ERR_IO,         /* files */
    FLOW_ERR_COMM,       /* communication, another rank */
    FLOW_ERR_MISSING,    /* a library, device or feature that is not there */
    FLOW_ERR_INTERRUPTED /* Ctrl-C, in flowlua alone */
} flow_status;

typedef struct flow_tensor flow_tensor;

enum { FLOW_MAX_NDIM = 8 };

/* ---- the process ---- */

/* All zeros is the default of everything. */
typedef struct flow_config {
    int threads;         /* of CPU kernels; 0: as many as this rank has cores, or FLOW_THREADS */
    const char *plugins; /* folder of flowlua-mpi.so and flowlua-cuda.so; NULL: FLOW_PLUGINS, or beside the library */
    void *context;       /* of both functions */
    /* Warnings, one line each. NULL: standard error. */
    void (*warn)(void *context, const char *message);
    /* Another rank has failed, or the ranks disagree: true ends the whole job with the message (MPI_Abort), false lets
    ** the call return FLOW_ERR_COMM. NULL: false. */
    bool (*on_failure)(void *context, const char *message);
    void *reserved[8];
} flow_config;

/* Begins; the calling thread is the one that may call. config: NULL for the default; copied. Not called twice without
** flow_close. This process is rank 0 of 1 until flow_join. */
FLOW_API flow_status flow_open(const flow_config *config);

/* Joins other processes, before any tensor exists; all of them call it. After flow_close and flow_open it may join the
** same ones again, and no others. comm: a pointer to the MPI_Comm whose processes are the ranks; the host has called
** MPI_Init, and calls MPI_Finalize after flow_close. libflow works on a duplicate. NULL: all processes that the
** launcher started (mpirun, srun --mpi=pmix): MPI is begun, and ended by flow_close, unless the host has begun it.
** Without a launcher the world stays as it is; a launcher whose processes cannot be joined is an error. If MPI
** allows one thread at a time (less than MPI_THREAD_MULTIPLE), it is called only inside of calls of this interface. */
FLOW_API flow_status flow_join(const void *comm);

/* Waits for all that runs, stops threads, leaves the ranks. Tensors that the host still holds may be given back
** afterwards, and nothing else. Returns an error that was not reported yet. flow_open may follow. */
FLOW_API flow_status flow_close(void);

/* The calling thread, one of the host's, may call from now on. The other one must not be inside a call. */
FLOW_API flow_status flow_take_over(void);

/* Message of this thread's last failure; never NULL. */
FLOW_API const char *flow_error(void);
/* Makes `message` this thread's last failure, with this status, which is returned: for callbacks that fail. */
FLOW_API flow_status flow_fail(flow_status status, const char *message);
FLOW_API const char *flow_version(void);

FLOW_API int flow_rank(void);
FLOW_API int flow_world_size(void);
/* Random numbers begin anew from this seed, equal on all ranks. */
FLOW_API flow_status flow_seed(uint64_t seed);

/* ---- making tensors ---- */

/* The description of a tensor. dtype: "bool" "uint8" "int8" "int32" "int64" "float16" "bfloat16" "float32" "float64";
** NULL: float32. A local tensor: device "cpu" "cuda" "cuda:1" "meta"; NULL: cpu. A global one: placement "cpu" (all
** ranks), "cuda {0, 1}", "cpu {{0, 1}, {2, 3}}", and sbp, one for each axis of the placement: "B", "S(0)", "P",
** "S(0), B". */
typedef struct flow_spec {
    const char *dtype;
    int ndim;
    const int64_t *shape; /* logical */
    const char *device, *placement, *sbp;
} flow_spec;

/* Without values yet. */
FLOW_API flow_status flow_empty(flow_tensor **out, const flow_spec *spec);
/* A copy of data in host memory, row-major; of a global tensor this rank's part (flow_local_shape). On "meta" nothing
** is kept of it. */
FLOW_API flow_status flow_copy_in(flow_tensor **out, const flow_spec *spec, const void *data);
/* The host's memory itself, of a tensor on the CPU; of a global one this rank's part. strides: in elements, not
** negative, NULL: row-major; where positions share elements, no op writes in place. It must stay until release(context)
** is called, once, when nothing uses it any more, by the thread that calls; NULL: nothing is called. On an error
** nothing is released. Values that ops write are there after flow_wait. */
FLOW_API flow_status flow_borrow(flow_tensor **out, const flow_spec *spec, void *data, const int64_t *strides,
                                 void (*release)(void *context), void *context);

FLOW_API flow_tensor *flow_ref(flow_tensor *tensor);
FLOW_API void flow_unref(flow_tensor *tensor);
/* Tensors that exist: 0 when nothing leaks. */
FLOW_API int64_t flow_tensor_count(void);

/* ---- properties of a tensor; of NULL: NULL, 0, false ---- */

FLOW_API const char *flow_dtype(const flow_tensor *tensor);
FLOW_API int flow_ndim(const flow_tensor *tensor);
FLOW_API const int64_t *flow_shape(const flow_tensor *tensor); /* logical, [ndim] */
FLOW_API int64_t flow_numel(const flow_tensor *tensor);
FLOW_API bool flow_is_global(const flow_tensor *tensor);
/* This rank's part: its shape, where it begins in the whole, and its strides in elements, [ndim] each. */
FLOW_API const int64_t *flow_local_shape(const flow_tensor *tensor);
FLOW_API const int64_t *flow_local_start(const flow_tensor *tensor);
FLOW_API const int64_t *flow_strides(const flow_tensor *tensor);
/* "float32[8, 6] on placement("cpu", {0, 1}) as S(0)"; returns buffer. */
FLOW_API const char *flow_describe(char *buffer, size_t size, const flow_tensor *tensor);

/* ---- values ---- */

/* The whole value, row-major, `bytes` of it exactly. Of a global tensor every rank gets the whole, and calls this. */
FLOW_API flow_status flow_read(const flow_tensor *tensor, void *buffer, size_t bytes);
/* The value of a tensor of one element, an integer beyond 2^53 rounded; of a global one every rank calls this. */
FLOW_API flow_status flow_item(double *value, const flow_tensor *tensor);

/* This rank's part in place, on the CPU (strides: flow_strides). FLOW_WRITE waits for all that still uses it, and until
** flow_unmap an op that uses it is an error, as is one that writes what is mapped with FLOW_READ; reading waits for its
** value. Each flow_map has its flow_unmap of the same access; in between it holds a reference. */
enum { FLOW_READ = 1, FLOW_WRITE = 2 };
FLOW_API flow_status flow_map(void **data, flow_tensor *tensor, int access);
FLOW_API flow_status flow_unmap(flow_tensor *tensor, int access);

/* Wait for a tensor's value; for everything. */
FLOW_API flow_status flow_wait(const flow_tensor *tensor);
FLOW_API flow_status flow_sync(void);

/* ---- any op ---- */

typedef enum flow_kind {
    FLOW_NONE,
    FLOW_TENSOR,
    FLOW_TENSORS,
    FLOW_INT,
    FLOW_INTS,
    FLOW_FLOAT,
    FLOW_BOOL,
    FLOW_TEXT
} flow_kind;

/* An argument, made by the functions below; all it points to is borrowed for the call. */
typedef struct flow_arg {
    const char *name; /* NULL: by its position */
    flow_kind kind;
    int count; /* of tensors, ints */
    union {
        flow_tensor *tensor;
        flow_tensor *const *tensors;
        int64_t integer;
        const int64_t *ints;
        double number;
        const char *text;
    } value;
} flow_arg;

/* Calls an op by the name it has in scripts: "add", "sum", "max", "matmul"; "add_" writes into its first operand.
** So are "to" (a dtype, or the device of a local tensor), "detach", "split" and "chunk", whose first `count` pieces are
** given. Other functions of scripts that are no ops ("to_global", "save") are errors that name what to call. Arguments
** in the order of the op's signature (flow_signature), then those with names. A tensor may be a number if scripts may
** pass one. Ops that make tensors take dtype, device, placement, sbp (texts, as in flow_spec) and
** requires_grad by name.
** "out" names a tensor of the result's shape, dtype and SBP that it is written into; nothing is recorded for gradients.
** count: number of results that are wanted, at most as many as the op has with these arguments: "unique" has counts
** only where return_counts is true, and they come right after the values where return_inverse is not.
**
**     flow_call(&y, 1, "sum", FLOW_ARGS(flow_of(x), flow_named("axis", flow_int(0)))) */
FLOW_API flow_status flow_call(flow_tensor **out, int count, const char *op, const flow_arg *args, int nargs);

/* "sum(x, axis: axes = nil, keepdim: bool = false)"; NULL: there is no such op. */
FLOW_API const char *flow_signature(const char *op);

/* Ops of a shared object (docs/own_ops.md) are called by their names from now on, until the process ends. All of them
** are taken, or none. Loading the same object again is fine. A path without a slash is one of the current folder. */
FLOW_API flow_status flow_load_ops(const char *path);

static inline flow_arg flow_arg_make(flow_kind kind, int count)
{
    flow_arg arg;
    arg.name = NULL;
    arg.kind = kind;
    arg.count = count;
    arg.value.integer = 0;
    return arg;
}
static inline flow_arg flow_nothing(void) { return flow_arg_make(FLOW_NONE, 0); }
/* NULL is an absent operand. */
static inline flow_arg flow_of(flow_tensor *tensor)
{
    flow_arg arg = flow_arg_make(tensor ? FLOW_TENSOR : FLOW_NONE, 1);
    arg.value.tensor = tensor;
    return arg;
}
static inline flow_arg flow_list(flow_tensor *const *tensors, int count)
{
    flow_arg arg = flow_arg_make(FLOW_TENSORS, count);
    arg.value.tensors = tensors;
    return arg;
}
static inline flow_arg flow_int(int64_t value)
{
    flow_arg arg = flow_arg_make(FLOW_INT, 1);
    arg.value.integer = value;
    return arg;
}
static inline flow_arg flow_ints(const int64_t *values, int count)
{
    flow_arg arg = flow_arg_make(FLOW_INTS, count);
    arg.value.ints = values;
    return arg;
}
static inline flow_arg flow_float(double value)
{
    flow_arg arg = flow_arg_make(FLOW_FLOAT, 1);
    arg.value.number = value;
    return arg;
}
static inline flow_arg flow_bool(bool value)
{
    flow_arg arg = flow_arg_make(FLOW_BOOL, 1);
    arg.value.integer = value;
    return arg;
}
static inline flow_arg flow_text(const char *value)
{
    flow_arg arg = flow_arg_make(FLOW_TEXT, 1);
    arg.value.text = value;
    return arg;
}
static inline flow_arg flow_named(const char *name, flow_arg arg)
{
    arg.name = name ? name : "";
    return arg;
}

/* The last two arguments of flow_call; in C++11 one, of the template at the end. */
#ifdef __cplusplus
#define FLOW_ARGS(...) \
    {                  \
        __VA_ARGS__    \
    }
#else
#define FLOW_ARGS(...) \
    (const flow_arg[]){__VA_ARGS__}, (int)(sizeof((const flow_arg[]){__VA_ARGS__}) / sizeof(flow_arg))
#endif

/* ---- global tensors ---- */

/* The ranks' local parts put together; every rank calls it. placement, sbp: as in flow_spec. */
FLOW_API flow_status flow_from_local(flow_tensor **out, flow_tensor *local, const char *placement, const char *sbp);
/* A global tensor on another placement or in another SBP; NULL: as it is. */
FLOW_API flow_status flow_to_global(flow_tensor **out, flow_tensor *tensor, const char *placement, const char *sbp);
/* This rank's part, a view. */
FLOW_API flow_status flow_to_local(flow_tensor **out, flow_tensor *tensor);

/* ---- gradients ---- */

FLOW_API flow_status flow_require_grad(flow_tensor *leaf, bool value);
/* Options of a backward pass, added together; 0: none, and the graph is freed. The graph stays for another pass; so it
** does, and the gradients have gradients, too; of flow_gradients: an x that was not used gets NULL, and is no error. */
enum { FLOW_RETAIN_GRAPH = 1, FLOW_CREATE_GRAPH = 2, FLOW_ALLOW_UNUSED = 4 };
/* Adds the gradients of all leaves below. `loss` has one element; the graph is freed. */
FLOW_API flow_status flow_backward(flow_tensor *loss);
/* The same of any tensor, whose gradient is `grad`, NULL where it has one element. */
FLOW_API flow_status flow_backward_with(flow_tensor *tensor, flow_tensor *grad, int options);
/* The gradients of `tensor` with respect to xs, out[i] of xs[i], which are returned and added to none. */
FLOW_API flow_status flow_gradients(flow_tensor **out, flow_tensor *tensor, flow_tensor *grad, flow_tensor *const *xs,
                                    int count, int options);
/* *out NULL: there is none. */
FLOW_API flow_status flow_grad(flow_tensor **out, flow_tensor *leaf);
/* NULL drops it. */
FLOW_API flow_status flow_set_grad(flow_tensor *leaf, flow_tensor *grad);
/* Between both nothing is recorded for gradients; pairs may be nested. */
FLOW_API flow_status flow_no_grad_begin(void);
FLOW_API flow_status flow_no_grad_end(void);

/* ---- optimizers ---- */

typedef struct flow_optimizer flow_optimizer;

/* kind: "SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "Adadelta", "Adamax", "NAdam", "RAdam", "Rprop", "ASGD", "Lion",
** "LAMB", "LARS". params: leaves, also frozen ones; it holds references. options: "lr=1e-3, weight_decay=0.1" of those
** that scripts have (docs/optim.md), where betas are beta1, beta2, etas eta_minus, eta_plus, and step_sizes
** step_size_min, step_size_max; NULL: the defaults of scripts. */
FLOW_API flow_status flow_optimizer_new(flow_optimizer **out, const char *kind, flow_tensor *const *params, int count,
                                        const char *options);
/* One step with the gradients that are there; an error if there are none. */
FLOW_API flow_status flow_step(flow_optimizer *optimizer);
/* Drops them. */
FLOW_API flow_status flow_zero_grad(flow_optimizer *optimizer);
FLOW_API flow_status flow_set_lr(flow_optimizer *optimizer, double lr);
FLOW_API void flow_optimizer_free(flow_optimizer *optimizer);

/* ---- files ---- */

typedef struct flow_file flow_file;

/* Tensors by name in one safetensors file, which replaces an old one when all is on the disk. Every rank calls it;
** local tensors are those of rank 0. */
FLOW_API flow_status flow_save(const char *path, const char *const *names, flow_tensor *const *tensors, int count);
/* Ranks that read parts of one tensor need the same file. */
FLOW_API flow_status flow_file_open(flow_file **out, const char *path);
FLOW_API const char *flow_file_name(const flow_file *file, int index); /* NULL past the last */
/* where: device, or placement and sbp; the rest is the file's. NULL: a local tensor on the CPU. */
FLOW_API flow_status flow_file_read(flow_tensor **out, flow_file *file, const char *name, const flow_spec *where);
FLOW_API void flow_file_close(flow_file *file);

/* ---- programs ---- */

typedef struct flow_program flow_program;
typedef enum flow_part { FLOW_INPUTS, FLOW_WEIGHTS, FLOW_OUTPUTS } flow_part;

/* A program that p:save(path) of a script wrote, with its weights on this device (NULL: the CPU). It is checked; what
** p:backward() gave is not read, but results have gradients, as those of ops. Every rank calls it. */
FLOW_API flow_status flow_program_open(flow_program **out, const char *path, const char *device);
/* Inputs in the file's order, of the shapes that it was made for. nout: number of results that are wanted. */
FLOW_API flow_status flow_program_run(flow_tensor **out, int nout, const flow_program *program,
                                      flow_tensor *const *inputs, int count);
FLOW_API const char *flow_program_name(const flow_program *program, flow_part part, int index); /* NULL past the last */
/* Describes input `index`; the texts and the shape belong to the program. */
FLOW_API flow_status flow_program_input(flow_spec *spec, const flow_program *program, int index);
/* The weight itself, to be trained or read; one reference. */
FLOW_API flow_tensor *flow_program_weight(const flow_program *program, int index);
FLOW_API void flow_program_close(flow_program *program);

/* ---- sharing memory with other libraries ---- */

/* DLPack 1: a pointer to a DLManagedTensorVersioned. From: on success it belongs to the tensor, which calls its deleter
** once when nothing uses the memory any more; read-only memory is copied. To: waits for the value; the tensor lives
** until the deleter is called, on any thread. Tensors on the CPU and on GPUs; of a global one this rank's part. Neither
** library orders the other's work: what ops write into shared memory is there after flow_wait of the tensor. */
FLOW_API flow_status flow_from_dlpack(flow_tensor **out, void *managed);
FLOW_API flow_status flow_to_dlpack(void **out, flow_tensor *tensor);

/* The same in the layout before version 1, a DLManagedTensor, which JAX, NumPy before 2.1 and PyTorch before 2.8 speak.
** It cannot say that memory is read-only: memory that is taken may be written. */
FLOW_API flow_status flow_from_dlpack_unversioned(flow_tensor **out, void *managed);
FLOW_API flow_status flow_to_dlpack_unversioned(void **out, flow_tensor *tensor);

/* ---- functions of the host among the ops ---- */

typedef struct flow_handle flow_handle;

/* A function that runs when the tensors it reads have their values and nothing uses those it writes any more; what is
** called later and uses them waits for it. It runs on a thread of libflow's, one task after another, and must not call
** this interface but for flow_fail and flow_done. Tensors on the CPU; `data` holds the addresses of the local parts of
** reads, then writes. A status other than FLOW_OK makes the tensors written an error where they are used, with the
** message of flow_fail or flow_done behind the task's name; a number that is no status, and FLOW_ERR_INTERRUPTED, are
** FLOW_ERR_STATE there. */
typedef struct flow_task {
    const char *name; /* in messages and traces; a constant */
    flow_status (*run)(void *context, void *const *data);
    /* In place of run: begins something and returns; the task is complete when flow_done is called with the handle, by
    ** any thread. Up to 4 such tasks are under way at one time. */
    void (*start)(void *context, void *const *data, flow_handle *handle);
    /* Called once, when the task is complete or was left out because of an error of what it reads; on the same
    ** thread. May be NULL. */
    void (*finished)(void *context, flow_status status);
    void *context;
    flow_tensor *const *reads, *const *writes;
    int read_count, write_count;
    /* 1, 0 or -1. Tasks of equal priority begin in the order of pushes; of the first ones of each, those that could
    ** begin, a thread takes the one of the highest priority. The order of reads and writes is kept. */
    int priority;
} flow_task;

FLOW_API flow_status flow_push(const flow_task *task);
/* message: of a failure; else NULL. Once per handle. */
FLOW_API void flow_done(flow_handle *handle, flow_status status, const char *message);

/* ---- tensors of scripts ---- */

/* These two are in flowlua and in flow.so, for C modules of scripts and for hosts with a Lua of their own. Each library
** has a core of its own, so such code takes all of this interface from there, and not from libflow.so. require "flow"
** opens it: flow_open is not called. */
struct lua_State;
/* The tensor at the index, borrowed; NULL: there is none. */
FLOW_API flow_tensor *flow_lua_tensor(struct lua_State *L, int index);
/* Pushes the tensor with one reference more, nil for NULL; a Lua error where require "flow" was not called. */
FLOW_API void flow_lua_push(struct lua_State *L, flow_tensor *tensor);

#ifdef __cplusplus
}

template<size_t n>
flow_status flow_call(flow_tensor **out, int count, const char *op, const flow_arg (&args)[n])
{
    return flow_call(out, count, op, args, static_cast<int>(n));
}
#endif

#endif
