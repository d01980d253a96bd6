/*
** cuda.h -- what the files of the CUDA plug-in share: launching, errors, types, registration.
**
** A kernel of an op is a host function (fl_kernel_fn) that issues launches to the queue it was called for and returns
** at once; it never waits. The same sources are compiled by nvcc for the GPU and, for tests on machines without one, by
** g++ against emulate.h, which runs blocks one after the other and the threads of a block as fibers. So launches go
** through FL_LAUNCH, dynamic shared memory through FL_DYNAMIC_SHARED; warps have 32 threads.
*/
#ifndef FL_CUDA_H
#define FL_CUDA_H

#include "values.h"

extern "C" {
#include "core/base/status.h"
#include "core/op/view.h"
}

/* The queue of the op that is being issued. */
extern "C" cudaStream_t fl_cuda_stream(void);

/* Properties of the device in use. */
typedef struct fl_cuda_device {
    int index, processors; /* multiprocessors */
    int capability;        /* 80, 90 */
    size_t shared_bytes;   /* most dynamic shared memory of a block */
} fl_cuda_device;
extern "C" const fl_cuda_device *fl_cuda_current(void);

/* Lets a kernel have that much dynamic shared memory (48 KiB it has anyway). */
extern "C" void fl_cuda_allow_shared(const void *kernel, size_t bytes);

/* FL_LAUNCH((kernel<float, 4>), grid, block, shared bytes, arguments...): in parentheses where the name has commas; all
** template arguments are written out. */
#ifdef FL_EMULATED
#define FL_LAUNCH(kernel, grid, block, shared, ...)                                              \
    fl_emulate(                                                                                  \
        fl_cuda_stream(), (const void *)(kernel), (grid), (block), (shared), __FILE__, __LINE__, \
        [=](const auto &...arguments_) { (kernel)(arguments_...); }, ##__VA_ARGS__)
#else
#define FL_LAUNCH(kernel, grid, block, shared, ...)                                      \
    do {                                                                                 \
        if ((shared) > 48 << 10) fl_cuda_allow_shared((const void *)(kernel), (shared)); \
        (kernel)<<<(grid), (block), (shared), fl_cuda_stream()>>>(__VA_ARGS__);          \
    } while (0)
#endif

/* T name[]: the block's dynamic shared memory, 16-byte aligned. */
#ifdef FL_EMULATED
#define FL_DYNAMIC_SHARED(T, name) T *name = (T *)fl_emulated_shared()
#else
#define FL_DYNAMIC_SHARED(T, name)                                    \
    extern __shared__ __align__(16) unsigned char fl_shared_bytes_[]; \
    T *name = reinterpret_cast<T *>(fl_shared_bytes_)
#endif

/* The error of the launches since the last check ("what: message"), FL_OK when there is none. */
extern "C" fl_status fl_cuda_check(const char *what);

/* Temporary device memory in the order of the queue: freed with fl_cuda_free by the op that allocated it. */
extern "C" fl_status fl_cuda_malloc(void **data, size_t bytes);
extern "C" void fl_cuda_free(void *data);

/* An error that a kernel found in its data: of all that threads report the one with the lowest `a` (a position, so that
** the message is the one of the CPU, which goes through the data in order). When the op's result is needed, the op
** fails with the text that `word` makes of it. The `bytes` of `context` (at most FL_CUDA_FAULT_CONTEXT) are copied now
** and handed to `word`: data that the text needs and that is gone by then, such as shapes. */
enum { FL_CUDA_FAULT_CONTEXT = 256 };
typedef struct fl_cuda_fault {
    long long a, b; /* a LLONG_MAX: nothing was reported */
    unsigned lock;
    unsigned *seen; /* pinned: something was */
} fl_cuda_fault;
typedef void fl_cuda_word(char *text, size_t size, const void *context, long long a, long long b);
extern "C" fl_status fl_cuda_fault_new(fl_cuda_fault **device, fl_cuda_word *word, const void *context, size_t bytes);
__device__ static inline void fl_cuda_report(fl_cuda_fault *f, long long a, long long b)
{
    volatile fl_cuda_fault *fault = f;
    if (fault->a <= a) return;
    for (bool done = false; !done;) { /* threads of a warp take the lock in turn */
        if (atomicCAS(&f->lock, 0u, 1u) != 0u) continue;
        __threadfence();
        if (a < fault->a) {
            fault->a = a;
            fault->b = b;
        }
        *(volatile unsigned *)f->seen = 1;
        __threadfence();
        atomicExch(&f->lock, 0u);
        done = true;
    }
}

/* ---- types ---- */

/* C++ types of the dtypes: bool is stored as uint8_t, halves as CUDA's types. */
template<typename F>
static inline fl_status fl_cuda_by_dtype(fl_dtype dtype, F &&f)
{
    switch (dtype) {
    case FL_BOOL:
    case FL_UINT8: return f((uint8_t)0);
    case FL_INT8: return f((int8_t)0);
    case FL_INT32: return f((int32_t)0);
    case FL_INT64: return f((int64_t)0);
    case FL_FLOAT16: return f(__half());
    case FL_BFLOAT16: return f(__nv_bfloat16());
    case FL_FLOAT32: return f(0.0f);
    default: return f(0.0);
    }
}

/* The floats only; others are a programmer's mistake (ops refuse them before). */
template<typename F>
static inline fl_status fl_cuda_by_float(fl_dtype dtype, F &&f)
{
    switch (dtype) {
    case FL_FLOAT16: return f(__half());
    case FL_BFLOAT16: return f(__nv_bfloat16());
    case FL_FLOAT64: return f(0.0);
    default: return f(0.0f);
    }
}

/* ---- registration ---- */

typedef struct fl_cuda_entry {
    const char *op;
    fl_kernel_fn kernel;
} fl_cuda_entry;

/* FL_CUDA_OP(softmax, launch_softmax): the kernel of an op. One kernel may serve several ops (kernel->op is the one
** called). */
#define FL_CUDA_OP(name, function) \
    static const fl_cuda_entry fl_cuda_entry_##name __attribute__((section("fl_cuda_ops"), used)) = {#name, function}

#endif
