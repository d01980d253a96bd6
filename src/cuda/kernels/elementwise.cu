/*
** elementwise.cu -- every row of elementwise.def on the GPU, from the same row as on the CPU.
**
** Two kernels per row. `grouped` takes operands of one dtype that are contiguous, or one value, along the last axis: a
** thread loads, computes and stores 16 bytes of each at once. `scattered` takes any strides and any mixture of dtypes,
** element by element. It exists once per dtype that is computed in, and finds out the operands' dtypes as it runs.
*/
#include "core/op/elementwise_classes.h"
#include "cuda/parts/convert.h"
#include "elementwise.h"
#include "elementwise_math.h"
#include "index.h"

#include <limits>
#include <stdio.h>
#include <type_traits>

enum { THREADS = 256, GROUPS = 2, ELEMENTS = 4, OPERANDS = FL_EW_MAX_IN + 1 };

/* True if the expression of a row uses `bad`, so that it can fail. */
static constexpr bool says_bad(const char *text)
{
    for (; *text; text++)
        if (text[0] == 'b' && text[1] == 'a' && text[2] == 'd') return true;
    return false;
}

/* ---- rows ---- */

#define CLASS F
#define EXPRESSION(f, i, b) f
#include "elementwise.inc"

#define CLASS I
#define EXPRESSION(f, i, b) i
#include "elementwise.inc"

#define CLASS B
#define EXPRESSION(f, i, b) b
#include "elementwise.inc"

/* ---- arguments of a kernel ---- */

enum source { NUMBER, ONE, GROUP }; /* a Lua number; one element for the whole group; a group of elements */

/* Operand 0 of the walk is the result, operand 1 + i is in[i]. */
struct ew_job {
    char *out;
    const char *in[FL_EW_MAX_IN];
    uint32_t total; /* groups or elements */
    uint32_t rest;  /* single elements after the last group */
    uint8_t out_dtype, in_dtype[FL_EW_MAX_IN], from[FL_EW_MAX_IN];
    int64_t number[FL_EW_MAX_IN], attribute[FL_EW_ATTRS]; /* bytes, in the dtype that is computed in */
    fl_cuda_fault *fault;
    fl_walk<OPERANDS, FL_LAYOUT_AXES> walk;
};

template<typename C>
__device__ static inline C value_of(const int64_t &bytes)
{
    C value;
    memcpy(&value, &bytes, sizeof value);
    return value;
}

template<typename Row, typename C>
__device__ static inline C apply(const ew_job &job, const C (&x)[FL_EW_MAX_IN])
{
    int bad = 0;
    C y = Row::of(x[0], x[1], x[2], value_of<C>(job.attribute[0]), value_of<C>(job.attribute[1]), &bad);
    if (Row::reports && bad) fl_cuda_report(job.fault, bad, 0);
    return y;
}

/* ---- groups ---- */

/* A group of an operand is loaded as words: taking elements out would wait for them, and nothing is computed before all
** groups are under way. */
template<typename S, int G>
using group_words = typename fl_words<(int)sizeof(S) * G>::type;

/* The first element, in whole words as well. */
template<typename W, typename V>
__device__ static inline void set_first(W *words, V one)
{
    if constexpr (std::is_integral<W>::value) *words = one;
    else words->x = (uint32_t)one, words->y = (uint32_t)((uint64_t)one >> 32);
}

template<typename S, int G>
__device__ static inline void load_group(group_words<S, G> *group, const ew_job &job, int i, int64_t offset)
{
    const char *from = job.in[i] + offset;
    if (job.from[i] == GROUP) {
        *group = *(const group_words<S, G> *)from;
        return;
    }
    *group = {};
    if (job.from[i] == ONE) set_first(group, *(const group_words<S, 1> *)from);
}

template<typename S, int G, typename C>
__device__ static inline void elements_of(C (&x)[G], const group_words<S, G> &group, const ew_job &job, int i)
{
    fl_pack<S, G> pack;
    memcpy(&pack, &group, sizeof pack);
    if (job.from[i] == GROUP) {
#pragma unroll
        for (int n = 0; n < G; n++) x[n] = (C)fl_load(pack.at[n]);
        return;
    }
    C one = job.from[i] == ONE ? (C)fl_load(pack.at[0]) : value_of<C>(job.number[i]);
#pragma unroll
    for (int n = 0; n < G; n++) x[n] = one;
}

/* The operands of a group: those of type S, and the mask of rows that have one. */
template<typename Row, typename S, int G>
struct operands {
    group_words<S, G> value[FL_EW_MAX_IN];
    group_words<fl_flag, G> mask;
};

template<typename Row, typename S, int G>
__device__ static inline void load_operands(operands<Row, S, G> &operands, const ew_job &job,
                                            const int64_t (&offset)[OPERANDS])
{
#pragma unroll
    for (int i = 0; i < Row::nin; i++) {
        if (i == Row::mask) load_group<fl_flag, G>(&operands.mask, job, i, offset[1 + i]);
        else load_group<S, G>(&operands.value[i], job, i, offset[1 + i]);
    }
}

template<typename Row, typename S, typename O, int G>
__device__ static inline void compute_group(fl_pack<O, G> &out, const operands<Row, S, G> &operands, const ew_job &job)
{
    typedef typename fl_wide<S>::type C;
    C in[FL_EW_MAX_IN][G] = {};
#pragma unroll
    for (int i = 0; i < Row::nin; i++) {
        if (i == Row::mask) elements_of<fl_flag, G>(in[i], operands.mask, job, i);
        else elements_of<S, G>(in[i], operands.value[i], job, i);
    }
#pragma unroll
    for (int n = 0; n < G; n++) {
        C x[FL_EW_MAX_IN];
#pragma unroll
        for (int i = 0; i < FL_EW_MAX_IN; i++) x[i] = in[i][n];
        if constexpr (Row::predicate) out.at[n] = fl_store<O>((uint8_t)(apply<Row>(job, x) != 0));
        else out.at[n] = fl_store<O>(apply<Row>(job, x));
    }
}

/* One of the elements after the last group: element `at` of the only axis. */
template<typename Row, typename S, typename O>
__device__ static inline void single_element(const ew_job &job, uint32_t at)
{
    operands<Row, S, 1> o = {};
    fl_pack<O, 1> out;
    int64_t offset[OPERANDS] = {};
    for (int i = 0; i < Row::nin; i++)
        if (job.from[i] == GROUP) offset[1 + i] = (int64_t)at * (i == Row::mask ? 1 : (int)sizeof(S));
    load_operands(o, job, offset);
    compute_group(out, o, job);
    ((O *)job.out)[at] = out.at[0];
}

template<typename Row, typename S, typename O, int G>
static __global__ void __launch_bounds__(THREADS) grouped(const __grid_constant__ ew_job j)
{
    uint32_t index[GROUPS], first = blockIdx.x * (THREADS * GROUPS) + threadIdx.x;
    int64_t offset[GROUPS][OPERANDS];
    operands<Row, S, G> o[GROUPS];
    for (int k = 0; k < GROUPS; k++) index[k] = first + k * THREADS;
    fl_walk_locate(offset, j.walk, index);
#pragma unroll
    for (int k = 0; k < GROUPS; k++) {
        if (index[k] < j.total) load_operands(o[k], j, offset[k]);
        else o[k] = {};
    }
#pragma unroll
    for (int k = 0; k < GROUPS; k++) {
        if (index[k] < j.total) {
            fl_pack<O, G> out;
            compute_group(out, o[k], j);
            fl_pack_store(j.out + offset[k][0], out);
        } else if (index[k] - j.total < j.rest) single_element<Row, S, O>(j, j.total * G + (index[k] - j.total));
    }
}

/* ---- elements of any dtype ---- */

template<typename S>
struct dtype_of;
template<>
struct dtype_of<fl_flag> {
    enum { value = FL_BOOL };
};
template<>
struct dtype_of<uint8_t> {
    enum { value = FL_UINT8 };
};
template<>
struct dtype_of<int8_t> {
    enum { value = FL_INT8 };
};
template<>
struct dtype_of<int32_t> {
    enum { value = FL_INT32 };
};
template<>
struct dtype_of<int64_t> {
    enum { value = FL_INT64 };
};
template<>
struct dtype_of<__half> {
    enum { value = FL_FLOAT16 };
};
template<>
struct dtype_of<__nv_bfloat16> {
    enum { value = FL_BFLOAT16 };
};
template<>
struct dtype_of<float> {
    enum { value = FL_FLOAT32 };
};
template<>
struct dtype_of<double> {
    enum { value = FL_FLOAT64 };
};

/* ELEMENTS values of one operand; the dtype is the same for all threads. */
template<typename S, typename C>
__device__ static inline void load_elements(C (&x)[ELEMENTS][FL_EW_MAX_IN], const ew_job &job, int i,
                                            const int64_t (&offset)[ELEMENTS][OPERANDS])
{
    constexpr int OWN = dtype_of<S>::value;
    const char *from = job.in[i];
    int dtype = job.in_dtype[i];
    if (job.from[i] == NUMBER) {
        for (int k = 0; k < ELEMENTS; k++) x[k][i] = value_of<C>(job.number[i]);
    } else if (dtype == OWN) {
#pragma unroll
        for (int k = 0; k < ELEMENTS; k++) x[k][i] = fl_load(*(const S *)(from + offset[k][1 + i]));
    } else if (OWN == FL_FLOAT32 && dtype == FL_FLOAT16) {
#pragma unroll
        for (int k = 0; k < ELEMENTS; k++) x[k][i] = (C)fl_load(*(const __half *)(from + offset[k][1 + i]));
    } else if (OWN == FL_FLOAT32 && dtype == FL_BFLOAT16) {
#pragma unroll
        for (int k = 0; k < ELEMENTS; k++) x[k][i] = (C)fl_load(*(const __nv_bfloat16 *)(from + offset[k][1 + i]));
    } else {
#pragma unroll
        for (int k = 0; k < ELEMENTS; k++) x[k][i] = fl_load(fl_load_any<S>(from + offset[k][1 + i], dtype));
    }
}

template<typename O, typename C>
__device__ static inline void store_element(char *to, int dtype, C value)
{
    constexpr int OWN = dtype_of<O>::value;
    if (dtype == OWN) *(O *)to = fl_store<O>(value);
    else if (OWN == FL_FLOAT32 && dtype == FL_FLOAT16) *(__half *)to = fl_store<__half>((float)value);
    else if (OWN == FL_FLOAT32 && dtype == FL_BFLOAT16) *(__nv_bfloat16 *)to = fl_store<__nv_bfloat16>((float)value);
    else fl_store_any<O>(to, dtype, fl_store<O>(value));
}

/* Threads beyond the last element compute it once more, so that loads need no branch. */
template<typename Row, typename S>
static __global__ void __launch_bounds__(THREADS) scattered(const __grid_constant__ ew_job j)
{
    typedef typename fl_wide<S>::type C;
    uint32_t index[ELEMENTS], first = blockIdx.x * (THREADS * ELEMENTS) + threadIdx.x;
    int64_t offset[ELEMENTS][OPERANDS];
    C x[ELEMENTS][FL_EW_MAX_IN] = {};
    for (int k = 0; k < ELEMENTS; k++) {
        index[k] = first + k * THREADS;
        if (index[k] >= j.total) index[k] = j.total - 1;
    }
    fl_walk_locate(offset, j.walk, index);
#pragma unroll
    for (int i = 0; i < Row::nin; i++) load_elements<S>(x, j, i, offset);
#pragma unroll
    for (int k = 0; k < ELEMENTS; k++) {
        C y = apply<Row>(j, x[k]);
        if (first + k * THREADS >= j.total) continue;
        if constexpr (Row::predicate) store_element<fl_flag>(j.out + offset[k][0], j.out_dtype, (uint8_t)(y != 0));
        else store_element<S>(j.out + offset[k][0], j.out_dtype, y);
    }
}

/* ---- launching ---- */

/* One call, before its kernel is chosen. */
struct ew_call {
    const fl_kernel *k;
    const fl_ew_attr *attributes;
    fl_layout layout; /* operand 0: out; strides of numbers are 0 */
    fl_dtype compute;
    int mask; /* the operand that is bool, or -1 */
    ew_job job;
};

/* Fills `from` for groups of g elements of `size` bytes; false: not all operands can be taken so. A single axis may
** have elements left over. */
static bool takes_groups(ew_call *call, fl_dtype dtype, int64_t g)
{
    const fl_layout *l = &call->layout;
    const fl_axis *last = &l->axes[l->count - 1];
    bool predicate = fl_ew_is_predicate(fl_ew_rows[call->k->row].rule);
    bool takes = l->count == 1 || last->size % g == 0;
    for (int o = 0; o <= call->k->nin && takes; o++) {
        const fl_view *v = o == 0 ? &call->k->out[0] : &call->k->in[o - 1];
        fl_dtype wanted = o == 0 ? (predicate ? FL_BOOL : dtype) : o - 1 == call->mask ? FL_BOOL : dtype;
        int64_t size = (int64_t)fl_dtype_size(wanted), unit = size * g;
        uint8_t *from = o ? &call->job.from[o - 1] : NULL;
        if (from && *from == NUMBER) continue;
        takes = v->dtype == wanted && (last->stride[o] == size || (from && last->stride[o] == 0));
        if (from) *from = last->stride[o] == 0 ? ONE : GROUP;
        if (last->stride[o] == 0) continue;
        takes &= (uintptr_t)(o ? call->job.in[o - 1] : call->job.out) % (uintptr_t)unit == 0;
        for (int i = 0; i < l->count - 1; i++) takes &= l->axes[i].stride[o] % unit == 0;
    }
    return takes;
}

/* The kernels of a row for operands of one dtype. Host code takes types at run time: it is compiled once, not for each
** pair of kernels. */
typedef void (*ew_kernel)(ew_job);
struct ew_kernels {
    ew_kernel grouped, scattered;
    bool reports;
};

/* g: elements of a group. */
static void launch_grouped(ew_kernel kernel, const fl_layout *layout, ew_job *job, int64_t g)
{
    fl_layout groups = *layout;
    fl_axis *last = &groups.axes[layout->count - 1];
    job->rest = (uint32_t)(last->size % g);
    last->size /= g;
    for (int o = 0; o < OPERANDS; o++) last->stride[o] *= g;
    if (last->size == 0) groups.count--;
    job->total = last->size ? (uint32_t)fl_layout_numel(&groups) : 0;
    fl_walk_init(&job->walk, &groups);
    FL_LAUNCH(kernel, fl_blocks((int64_t)job->total + job->rest, THREADS, GROUPS), THREADS, 0, *job);
}

static void launch_scattered(ew_kernel kernel, const fl_layout *layout, ew_job *job)
{
    job->total = (uint32_t)fl_layout_numel(layout);
    fl_walk_init(&job->walk, layout);
    FL_LAUNCH(kernel, fl_blocks(job->total, THREADS, ELEMENTS), THREADS, 0, *job);
}

/* The type that stored values are computed in: float for halves. */
template<typename S>
using wide_of = typename std::conditional<sizeof(S) == 2, float, S>::type;

/* A number in the bytes of the type that is computed in. */
template<typename S>
static int64_t number_bytes(const fl_view *view)
{
    int64_t bytes = 0;
    fl_cuda_by_storage(view->dtype, [&](auto like) {
        memcpy(&like, view->scalar, sizeof like);
        auto number = fl_load(fl_convert<S>(like));
        memcpy(&bytes, &number, sizeof number);
        return FL_OK;
    });
    return bytes;
}

/* A scalar attribute as float, integer and bool rows take it. */
template<typename C, bool is_bool>
static int64_t attribute_bytes(const fl_ew_attr *attr)
{
    typedef std::numeric_limits<C> limits;
    C value;
    int64_t bytes = 0;
    if constexpr (is_bool) value = attr->number != 0;
    else if constexpr (!limits::is_integer) value = (C)attr->number;
    else if (attr->integer >= (int64_t)limits::max()) value = limits::max();
    else value = attr->integer > (int64_t)limits::lowest() ? (C)attr->integer : limits::lowest();
    memcpy(&bytes, &value, sizeof value);
    return bytes;
}

int64_t fl_cuda_number(const fl_view *view, fl_dtype dtype)
{
    int64_t bytes = 0;
    fl_cuda_by_storage(dtype, [&](auto like) {
        bytes = number_bytes<decltype(like)>(view);
        return FL_OK;
    });
    return bytes;
}

int64_t fl_cuda_attribute(const fl_ew_attr *attribute, fl_dtype dtype)
{
    int64_t bytes = 0;
    fl_cuda_by_storage(dtype, [&](auto like) {
        typedef decltype(like) S;
        bytes = attribute_bytes<typename fl_wide<S>::type, std::is_same<S, fl_flag>::value>(attribute);
        return FL_OK;
    });
    return bytes;
}

static void word_fault(char *text, size_t size, const void *context, long long bad, long long unused)
{
    snprintf(text, size, "%s: %s", *(const char *const *)context, fl_ew_complaint((int)bad));
}

/* Attributes and numbers as the kernels for `dtype` take them. */
static void fill_numbers(ew_call *call, fl_dtype dtype)
{
    const fl_kernel *k = call->k;
    fl_dtype wide = fl_dtype_size(dtype) == 2 ? FL_FLOAT32 : dtype;
    for (int i = 0; i < FL_EW_ATTRS; i++) call->job.attribute[i] = fl_cuda_attribute(&call->attributes[i], wide);
    for (int i = 0; i < k->nin; i++)
        if (call->job.from[i] == NUMBER)
            call->job.number[i] = fl_cuda_number(&k->in[i], i == call->mask ? FL_BOOL : wide);
}

/* dtype: of the operands where they agree. */
static fl_status launch(ew_call *call, const ew_kernels *kernels, fl_dtype dtype)
{
    const fl_kernel *k = call->k;
    int64_t g = 16 / (int64_t)fl_dtype_size(dtype);
    fill_numbers(call, dtype);
    if (kernels->reports) FL_TRY(fl_cuda_fault_new(&call->job.fault, word_fault, &k->name, sizeof k->name));
    bool groups = takes_groups(call, dtype, g);
    const int64_t zero[FL_LAYOUT_OPERANDS] = {0};
    fl_each_piece(&call->layout, zero, [&](const fl_layout *layout, const int64_t *offset) {
        ew_job piece = call->job;
        piece.out += offset[0];
        for (int i = 0; i < k->nin; i++) piece.in[i] += offset[1 + i];
        if (groups) launch_grouped(kernels->grouped, layout, &piece, g);
        else launch_scattered(kernels->scattered, layout, &piece);
    });
    return fl_cuda_check(k->name);
}

template<typename Row, typename S>
static constexpr ew_kernels kernels_for(void)
{
    typedef typename std::conditional<(bool)Row::predicate, fl_flag, S>::type O;
    return {grouped<Row, S, O, 16 / (int)sizeof(S)>, scattered<Row, wide_of<S>>, Row::reports};
}

/* By dtype: bool, uint8, int8, int32, int64, float16, bfloat16, float32, float64. */
#define NONE              \
    {                     \
        NULL, NULL, false \
    }
#define BOOLS(id) kernels_for<B_##id<uint8_t>, fl_flag>()
#define INTEGERS(id)                                                                \
    kernels_for<I_##id<uint8_t>, uint8_t>(), kernels_for<I_##id<int8_t>, int8_t>(), \
        kernels_for<I_##id<int32_t>, int32_t>(), kernels_for<I_##id<int64_t>, int64_t>()
#define FLOATS(id)                                                                     \
    kernels_for<F_##id<float>, __half>(), kernels_for<F_##id<float>, __nv_bfloat16>(), \
        kernels_for<F_##id<float>, float>(), kernels_for<F_##id<double>, double>()
#define KERNELS_F(id)                            \
    {                                            \
        NONE, NONE, NONE, NONE, NONE, FLOATS(id) \
    }
#define KERNELS_FI(id)                 \
    {                                  \
        NONE, INTEGERS(id), FLOATS(id) \
    }
#define KERNELS_FIB(id)                     \
    {                                       \
        BOOLS(id), INTEGERS(id), FLOATS(id) \
    }
#define KERNELS_I(id)                              \
    {                                              \
        NONE, INTEGERS(id), NONE, NONE, NONE, NONE \
    }
#define KERNELS_IB(id)                                  \
    {                                                   \
        BOOLS(id), INTEGERS(id), NONE, NONE, NONE, NONE \
    }
#define KERNELS_B(id)                                             \
    {                                                             \
        BOOLS(id), NONE, NONE, NONE, NONE, NONE, NONE, NONE, NONE \
    }

static const ew_kernels kernels_of[FL_EW_COUNT][FL_DTYPE_COUNT] = {
    {NONE},
#define EW(id, sig, shape, types, ...) KERNELS_##types(id),
#include "core/op/elementwise.def"
#undef EW
};

/* Byte strides along the axes of the result: aligned at the end, 0 where the operand is broadcast. */
static void lay_out(ew_call *call)
{
    const fl_kernel *k = call->k;
    const fl_view *out = &k->out[0];
    fl_layout *l = &call->layout;
    l->operands = OPERANDS;
    l->count = out->ndim;
    for (int a = 0; a < out->ndim; a++) {
        l->axes[a].size = out->size[a];
        l->axes[a].stride[0] = out->stride[a] * (int64_t)fl_dtype_size(out->dtype);
        for (int o = 1; o < OPERANDS; o++) {
            const fl_view *v = o <= k->nin ? &k->in[o - 1] : NULL;
            int own = v ? a - (out->ndim - v->ndim) : -1;
            l->axes[a].stride[o] = own < 0 || v->size[own] == 1 ? 0 : v->stride[own] * (int64_t)fl_dtype_size(v->dtype);
        }
    }
    fl_layout_simplify(l);
    if (l->count == 0) {
        l->count = 1;
        l->axes[0] = {1, {(int64_t)fl_dtype_size(out->dtype), 0, 0, 0}};
    }
}

/* The operands' dtype where all have one and it is computed in `compute`, else `compute`. */
static fl_dtype common_dtype(const ew_call *call, bool predicate)
{
    const fl_kernel *k = call->k;
    fl_dtype common = predicate ? FL_DTYPE_COUNT : k->out[0].dtype;
    for (int i = 0; i < k->nin; i++) {
        if (i == call->mask || call->job.from[i] == NUMBER) continue;
        if (common == FL_DTYPE_COUNT) common = k->in[i].dtype;
        if (k->in[i].dtype != common) return call->compute;
    }
    return common != FL_DTYPE_COUNT && fl_dtype_compute(common) == call->compute ? common : call->compute;
}

fl_status fl_cuda_row(const fl_kernel *kernel, fl_dtype compute, const fl_ew_attr *attributes)
{
    ew_call c;
    const fl_ew_row *row = &fl_ew_rows[kernel->row];
    if (kernel->out[0].numel == 0) return FL_OK;
    c.k = kernel;
    c.attributes = attributes;
    c.mask = row->mask;
    c.compute = compute;
    c.job.out = (char *)kernel->out[0].data;
    c.job.out_dtype = (uint8_t)kernel->out[0].dtype;
    c.job.fault = NULL;
    for (int i = 0; i < FL_EW_MAX_IN; i++) {
        const fl_view *v = i < kernel->nin ? &kernel->in[i] : NULL;
        bool number = !v || v->data == v->scalar;
        c.job.in[i] = number ? NULL : (const char *)v->data;
        c.job.in_dtype[i] = v ? (uint8_t)v->dtype : 0;
        c.job.from[i] = number ? NUMBER : ONE;
    }
    lay_out(&c);
    fl_dtype dtype = common_dtype(&c, fl_ew_is_predicate(row->rule));
    return launch(&c, &kernels_of[kernel->row][dtype], dtype);
}

static fl_status elementwise(fl_kernel *kernel)
{
    fl_ew_attr attributes[FL_EW_ATTRS];
    fl_ew_attributes(attributes, kernel);
    return fl_cuda_row(kernel, fl_ew_compute_dtype(kernel, kernel->out[0].dtype), attributes);
}

#define EW(id, ...) FL_CUDA_OP(id, elementwise);
#include "core/op/elementwise.def"
#undef EW
