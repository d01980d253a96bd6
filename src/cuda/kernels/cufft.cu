/*
** cufft.cu -- Fourier transforms by cuFFT, which is opened when the first one is made.
**
** cuFFT transforms lines that are equally far apart. Those along an axis of [outer][size][inner] are where inner or
** outer is 1; else every part of the outer axes is a call of its own, if it is large, or the lines go through buffers
** that have them one behind the other. Lines which are cut or filled up, and half spectra that have factors, pass
** through a kernel of ours before or after.
**
** A plan takes the library up to a second to make, so those used last are kept. It lends nothing to a graph, which
** could outlive it. Work areas are memory of the queue.
**
** FLOW_CUFFT: the library to open instead of those that are looked for.
*/
#include "arrays.h"
#include "index.h"
#include "cuda/runtime/runtime.h"
#include "cufft_abi.h"

extern "C" {
#include "core/op/fft.h"
}

#include <dlfcn.h>

/* ---- the library ---- */

/* clang-format off */
#define FL_CUFFT_FUNCTIONS(X)                                                                            \
    X(Create) X(Destroy) X(SetAutoAllocation) X(MakePlanMany64) X(SetWorkArea) X(SetStream)              \
    X(ExecC2C) X(ExecR2C) X(ExecC2R) X(ExecZ2Z) X(ExecD2Z) X(ExecZ2D)
/* clang-format on */

static struct {
#define FL_CUFFT_FIELD(name) decltype(&cufft##name) name;
    FL_CUFFT_FUNCTIONS(FL_CUFFT_FIELD)
    bool tried, found;
} cufft;

static bool load_functions(void *library)
{
#define FL_CUFFT_LOAD(name) \
    if (!(cufft.name = (decltype(cufft.name))dlsym(library, "cufft" #name))) return false;
    FL_CUFFT_FUNCTIONS(FL_CUFFT_LOAD)
    return true;
}

static fl_status require_library(const char *name)
{
    /* its numbers are one behind those of the toolkit */
    static const int toolkits[] = FL_CUDA_MAJORS, majors[] = {toolkits[0] - 1, toolkits[1] - 1};
    if (!cufft.tried) {
        void *library = fl_cuda_library("FLOW_CUFFT", "cufft", majors, 2);
        cufft.tried = true;
        cufft.found = library && load_functions(library);
    }
    if (cufft.found) return FL_OK;
    return fl_fail(FL_ERR_STATE,
                   "%s: cuFFT (libcufft.so.12 or .11) was not found; install it, set LD_LIBRARY_PATH or FLOW_CUFFT, or "
                   "move the operand to the CPU: x:to(\"cpu\")",
                   name);
}

#define CUFFT_TRY(name, function, ...)                                                                                \
    do {                                                                                                              \
        cufftResult code_ = cufft.function(__VA_ARGS__);                                                              \
        if (code_ != 0) return fl_fail(FL_ERR_STATE, "%s: cuFFT's %s failed with status %d", name, #function, code_); \
    } while (0)

/* ---- plans ---- */

/* Lines of n, their numbers `step` apart. Compared as bytes: zeroed before it is filled. */
struct lines {
    int64_t n, step, in_distance, out_distance, count;
    int64_t type;
};

struct plan {
    lines key;
    uint64_t used; /* 0: none */
    cufftHandle handle;
    size_t work_bytes;
};

enum { PLANS = 32 };
static plan plans[FL_CUDA_DEVICES][PLANS]; /* transforms are issued by one thread */
static uint64_t clock_of_plans;

/* A plan's tables come to the device by a stream of the library's choice, which the queue's does not wait for: they are
** there before the plan is used (an H100 met illegal addresses otherwise). */
static fl_status make_plan(plan *plan, const char *name)
{
    long long n = plan->key.n;
    CUFFT_TRY(name, SetStream, plan->handle, fl_cuda_stream());
    CUFFT_TRY(name, SetAutoAllocation, plan->handle, 0);
    CUFFT_TRY(name, MakePlanMany64, plan->handle, 1, &n, &n, plan->key.step, plan->key.in_distance, &n, plan->key.step,
              plan->key.out_distance, (cufftType)plan->key.type, plan->key.count, &plan->work_bytes);
    FL_CUDA_TRY(cudaDeviceSynchronize());
    return FL_OK;
}

static fl_status find_plan(plan **out, const lines *key, const char *name)
{
    plan *list = plans[fl_cuda_current()->index], *oldest = list;
    for (plan *p = list; p < list + PLANS; p++) {
        if (p->used && memcmp(&p->key, key, sizeof *key) == 0) {
            p->used = ++clock_of_plans;
            *out = p;
            return FL_OK;
        }
        if (p->used < oldest->used) oldest = p;
    }
    if (oldest->used) {
        FL_TRY(fl_cuda_drain(fl_cuda_queue_current())); /* its tables may be in use */
        cufft.Destroy(oldest->handle);
    }
    oldest->used = 0;
    oldest->key = *key;
    CUFFT_TRY(name, Create, &oldest->handle);
    fl_status status = make_plan(oldest, name);
    if (status == FL_OK) oldest->used = ++clock_of_plans;
    else cufft.Destroy(oldest->handle);
    *out = oldest;
    return status;
}

static cufftType type_of(const fl_fft *job)
{
    static const cufftType types[][2] = {{CUFFT_C2C, CUFFT_Z2Z}, {CUFFT_R2C, CUFFT_D2Z}, {CUFFT_C2R, CUFFT_Z2D}};
    return types[job->kind][job->dtype == FL_FLOAT64];
}

static fl_status execute(const plan *plan, const fl_fft *job, void *in, void *out)
{
    int direction = job->inverse ? CUFFT_INVERSE : CUFFT_FORWARD;
    switch (plan->key.type) {
    case CUFFT_C2C: CUFFT_TRY(job->name, ExecC2C, plan->handle, (float2 *)in, (float2 *)out, direction); break;
    case CUFFT_R2C: CUFFT_TRY(job->name, ExecR2C, plan->handle, (float *)in, (float2 *)out); break;
    case CUFFT_C2R: CUFFT_TRY(job->name, ExecC2R, plan->handle, (float2 *)in, (float *)out); break;
    case CUFFT_Z2Z: CUFFT_TRY(job->name, ExecZ2Z, plan->handle, (double2 *)in, (double2 *)out, direction); break;
    case CUFFT_D2Z: CUFFT_TRY(job->name, ExecD2Z, plan->handle, (double *)in, (double2 *)out); break;
    default: CUFFT_TRY(job->name, ExecZ2D, plan->handle, (double2 *)in, (double *)out);
    }
    return FL_OK;
}

/* ---- numbers on their way to the transform and from it ---- */

enum { THREADS = 256 };

/* An array of lines: reals of a number, numbers between those of a line, lines side by side, and of the outer axes. */
struct side {
    int64_t width, step, inner_step, outer_step;
};

struct carrying {
    side to, from;
    int64_t outer, inner, size; /* of the target's lines */
    int64_t count;              /* numbers of a line that there are; others are 0 */
    int64_t n;                  /* of half spectra the length of the whole ones; else 0 */
    double scale, inside;
    bool conjugates;
};

/* A number of a half spectrum stands for itself and its mirror image, but for the first, and the last where n is even:
** those are real. */
template<typename T>
__global__ void __launch_bounds__(THREADS) carry(T *to, const T *from, const __grid_constant__ carrying c)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= c.outer * c.size * c.inner) return;
    int64_t inner = i % c.inner, k = i / c.inner % c.size, outer = i / c.inner / c.size;
    bool ends = c.n && (k == 0 || 2 * k == c.n);
    T re = 0, im = 0, factor = (T)(c.n && !ends ? c.scale * c.inside : c.scale);
    if (k < c.count) {
        const T *at = from + (outer * c.from.outer_step + k * c.from.step + inner * c.from.inner_step) * c.from.width;
        re = at[0] * factor;
        if (c.from.width == 2 && !ends) im = at[1] * (c.conjugates ? -factor : factor);
    }
    T *at = to + (outer * c.to.outer_step + k * c.to.step + inner * c.to.inner_step) * c.to.width;
    at[0] = re;
    if (c.to.width == 2) at[1] = im;
}

static fl_status launch_carry(void *to, const void *from, const carrying &carrying, const fl_fft *job)
{
    unsigned blocks = fl_blocks(carrying.outer * carrying.size * carrying.inner, THREADS);
    if (job->dtype == FL_FLOAT64)
        FL_LAUNCH(carry<double>, blocks, THREADS, 0, (double *)to, (const double *)from, carrying);
    else FL_LAUNCH(carry<float>, blocks, THREADS, 0, (float *)to, (const float *)from, carrying);
    return fl_cuda_check(job->name);
}

/* ---- a transform ---- */

enum { FULL_CALL = 1 << 16 }; /* numbers that keep a GPU busy for longer than a launch takes */

/* Lines of an operand's array. */
static side side_of(int64_t width, int64_t size, int64_t inner) { return {width, inner, 1, size * inner}; }

/* Lines of a buffer: beside each other as in the operand, or each for itself. */
static side room_of(int64_t width, int64_t size, int64_t inner, bool beside)
{
    if (beside) return side_of(width, size, inner);
    return {width, 1, size, size * inner};
}

/* True if the lines are transformed where they lie side by side: cuFFT is called for each part of the outer axes, whose
** addresses must be those of complex numbers. */
static bool is_beside(const fl_fft *job)
{
    bool aligned = job->kind == FL_FFT_COMPLEX || job->n % 2 == 0 || job->inner % 2 == 0;
    return job->inner > 1 && (job->outer == 1 || (aligned && job->n * job->inner >= FULL_CALL));
}

static bool is_aligned(const void *address, const fl_fft *job)
{
    return (uintptr_t)address % (2 * fl_dtype_size(job->dtype)) == 0;
}

/* Transforms lines of full length, in the layout of room_of. */
static fl_status transform(const fl_fft *job, void *in, void *out, bool beside)
{
    int64_t takes = fl_fft_takes(job), gives = fl_fft_gives(job), calls = beside ? job->outer : 1;
    int64_t item = (int64_t)fl_dtype_size(job->dtype);
    lines key;
    plan *p = NULL;
    void *work = NULL;
    memset(&key, 0, sizeof key);
    key.n = job->n;
    key.step = beside ? job->inner : 1;
    key.in_distance = beside ? 1 : takes;
    key.out_distance = beside ? 1 : gives;
    key.count = beside ? job->inner : job->outer * job->inner;
    key.type = type_of(job);
    FL_TRY(find_plan(&p, &key, job->name));
    CUFFT_TRY(job->name, SetStream, p->handle, fl_cuda_stream());
    if (p->work_bytes) {
        FL_TRY(fl_cuda_malloc(&work, p->work_bytes));
        cufftResult code = cufft.SetWorkArea(p->handle, work);
        if (code != 0) {
            fl_cuda_free(work);
            return fl_fail(FL_ERR_STATE, "%s: cuFFT's SetWorkArea failed with status %d", job->name, code);
        }
    }
    fl_status status = FL_OK;
    for (int64_t i = 0; i < calls && status == FL_OK; i++)
        status = execute(p, job, (char *)in + i * takes * job->inner * fl_fft_width_in(job) * item,
                         (char *)out + i * gives * job->inner * fl_fft_width_out(job) * item);
    if (work) fl_cuda_free(work);
    return status == FL_OK ? fl_cuda_check(job->name) : status;
}

/* The copy to the transform's input, with the factors that need not wait for the result. */
static carrying before(const fl_fft *job, bool beside)
{
    int64_t takes = fl_fft_takes(job), width = fl_fft_width_in(job);
    carrying c = {};
    c.to = room_of(width, takes, job->inner, beside);
    c.from = side_of(width, job->in_size, job->inner);
    c.outer = job->outer;
    c.inner = job->inner;
    c.size = takes;
    c.count = job->in_size < takes ? job->in_size : takes;
    c.n = job->kind == FL_FFT_HALF_TO_REAL ? job->n : 0;
    c.scale = job->scale;
    c.inside = job->inside;
    c.conjugates = job->kind == FL_FFT_HALF_TO_REAL && !job->inverse; /* cuFFT's way back has the exponent's plus */
    return c;
}

static carrying after(const fl_fft *job, bool beside, double scale)
{
    int64_t gives = fl_fft_gives(job), width = fl_fft_width_out(job);
    carrying c = {};
    c.to = side_of(width, job->out_size, job->inner);
    c.from = room_of(width, gives, job->inner, beside);
    c.outer = job->outer;
    c.inner = job->inner;
    c.size = job->out_size;
    c.count = job->out_size < gives ? job->out_size : gives;
    c.n = job->kind == FL_FFT_REAL_TO_HALF ? job->n : 0;
    c.scale = scale;
    c.inside = job->inside;
    c.conjugates = job->kind == FL_FFT_REAL_TO_HALF && job->inverse;
    return c;
}

/* Lines of length 1: the number itself, which cuFFT need not know. */
static fl_status single(const fl_fft *job)
{
    carrying c = after(job, true, job->scale);
    c.from = side_of(fl_fft_width_in(job), job->in_size, job->inner);
    c.count = job->in_size < c.count ? job->in_size : c.count;
    return launch_carry(job->out, job->in, c, job);
}

static fl_status compute(const fl_fft *job)
{
    int64_t numbers = job->outer * job->inner, item = (int64_t)fl_dtype_size(job->dtype);
    bool beside = is_beside(job), placed = beside || job->inner == 1;
    bool half = job->kind == FL_FFT_REAL_TO_HALF, back = job->kind == FL_FFT_HALF_TO_REAL;
    bool prepares = back || !placed || job->in_size != fl_fft_takes(job) || !is_aligned(job->in, job);
    bool buffers = !placed || job->out_size != fl_fft_gives(job) || !is_aligned(job->out, job);
    double scale = prepares ? 1 : job->scale; /* of what comes from the transform */
    bool finishes = buffers || scale != 1 || (half && (job->inverse || job->inside != 1));
    void *in = NULL, *out = NULL;
    fl_status status = FL_OK;
    if (prepares) {
        FL_TRY(fl_cuda_malloc(&in, (size_t)(numbers * fl_fft_takes(job) * fl_fft_width_in(job) * item)));
        carrying c = before(job, beside);
        status = launch_carry(in, job->in, c, job);
    }
    if (status == FL_OK && buffers)
        status = fl_cuda_malloc(&out, (size_t)(numbers * fl_fft_gives(job) * fl_fft_width_out(job) * item));
    void *result = out ? out : job->out;
    if (status == FL_OK) status = transform(job, in ? in : (void *)job->in, result, beside);
    if (status == FL_OK && finishes) {
        carrying c = after(job, beside, scale);
        status = launch_carry(job->out, result, c, job);
    }
    if (out) fl_cuda_free(out);
    if (in) fl_cuda_free(in);
    return status;
}

static fl_status launch_fft(fl_kernel *kernel)
{
    const fl_view *in = &kernel->in[0], *out = &kernel->out[0];
    fl_cuda_array x, y;
    fl_fft job;
    if (out->numel == 0) return FL_OK;
    FL_TRY(require_library(kernel->name));
    FL_TRY(fl_cuda_graph_refuse("a Fourier transform"));
    job.dtype = fl_dtype_compute(out->dtype);
    fl_fft_fill(&job, kernel->name, (fl_fft_kind)kernel->variant, kernel->attrs->at, in, out);
    FL_TRY(fl_cuda_array_open(&x, in, job.dtype));
    fl_status status = fl_cuda_array_room(&y, out, job.dtype);
    if (status == FL_OK) {
        job.in = x.view.data;
        job.out = y.view.data;
        status = job.n == 1 ? single(&job) : compute(&job);
        if (status == FL_OK) status = fl_cuda_array_store(out, &y);
        fl_cuda_array_close(&y);
    }
    fl_cuda_array_close(&x);
    return status;
}

FL_CUDA_OP(fft_complex, launch_fft);
FL_CUDA_OP(fft_to_half, launch_fft);
FL_CUDA_OP(fft_from_half, launch_fft);
