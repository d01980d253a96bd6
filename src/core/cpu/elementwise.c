/*
** elementwise.c -- the driver of all elementwise rows.
**
** Small operands that all lie contiguous in the compute type go straight to the row's loop. Everything else is
** walked in chunks of CHUNK elements in the output's order: what is broadcast, strided or of another dtype is gathered
** into a buffer of the L1 cache, and a result that needs it is scattered from one. Chunks are cut by size, and the
** loops give an element the same bits wherever it falls, so results depend neither on layout nor on threads.
*/
#include "elementwise.h"
#include "base/axes.h"
#include "copy.h"

#include "op/promote.h"

#include <math.h>

enum {
    CHUNK = 1024,
    STREAM_FROM = 16 << 20, /* bytes of a result that are written past the caches */
    SMALL = 8192,           /* elements that one thread does at once */
    NUMBERS = 64,           /* elements to which a number is repeated without a walk */
    LONG_ROW = 256          /* rows from here on are chunked one by one, so that their operands need no buffer */
};

/* ---- rows ---- */

enum { TYPES_B = 1, TYPES_I = 2, TYPES_F = 4, TYPES_IB = 3, TYPES_FI = 6, TYPES_FIB = 7 };
enum {
    MASK_MAP1 = -1,
    MASK_MAP2 = -1,
    MASK_MAP3 = -1,
    MASK_TEST1 = -1,
    MASK_TEST2 = -1,
    MASK_TRIG = -1,
    MASK_SWITCH = -1,
    MASK_POW2 = -1,
    MASK_POW3 = -1,
    MASK_WHERE = 0,
    MASK_FILL = 1
};

const fl_ew_row fl_ew_rows[FL_EW_COUNT] = {
#define EW(id, sig, shape, types, rule, cost, ...) [FL_EW_##id] = {FL_EW_##rule, TYPES_##types, MASK_##shape, cost},
#include "op/elementwise.def"
#undef EW
};

/* ---- loops ---- */

static fl_status loop_failed(const fl_kernel *kernel, int bad)
{
    return fl_fail(FL_ERR_VALUE, "%s: %s", kernel->name, fl_ew_complaint(bad));
}

static int64_t nearest_integer(double v)
{
    if (!(v > -0x1p63)) return INT64_MIN;
    return v < 0x1p63 ? (int64_t)v : INT64_MAX;
}

void fl_ew_attributes(fl_ew_attr *a, const fl_kernel *kernel)
{
    memset(a, 0, FL_EW_ATTRS * sizeof *a);
    for (int i = 0; i < kernel->attrs->count && i < FL_EW_ATTRS; i++) {
        const fl_attr *attr = &kernel->attrs->at[i];
        a[i].number = attr->given ? fl_attr_number(attr) : i == 0 ? -INFINITY : INFINITY;
        a[i].integer = attr->given && attr->kind != FL_NUM_FLOAT ? attr->integer : nearest_integer(a[i].number);
    }
}

/* ---- the walk ---- */

/* An operand in the walk's axes; strides in bytes, 0 where it is broadcast. */
typedef struct walker {
    char *data;
    fl_dtype dtype, compute;
    bool linear;   /* element i lies at data + i * size */
    bool constant; /* one element for all */
    int64_t strides[FL_MAX_NDIM];
} walker;

typedef struct walk {
    fl_ew_loop loop;
    const fl_copy_kernels *copy;
    int nin, ndim, bad;
    bool flat;                  /* no operand needs a buffer: ranges of any length at once */
    bool streamed;              /* the result is written past the caches */
    int64_t total, row, pieces; /* elements; length of a row and its chunks, when rows are chunked one by one */
    int64_t sizes[FL_MAX_NDIM];
    fl_ew_attr attributes[FL_EW_ATTRS];
    walker in[FL_EW_MAX_IN], out;
} walk;

/* The dtype operands are promoted to: numbers only raise the category. */
static fl_dtype promoted(const fl_kernel *kernel, uint32_t operands)
{
    fl_promotion p = fl_promotion_begin();
    for (int i = 0; i < kernel->nin; i++) {
        const fl_view *v = &kernel->in[i];
        if (operands >> i & 1u)
            fl_promotion_add(&p, v->dtype, v->data == v->scalar ? FL_TIER_NUMBER : fl_tier_of(v->ndim));
    }
    return fl_promotion_end(&p);
}

/* Integers are compared as what they are, though a number or a 0-d tensor may not fit the dtype of the others. */
static fl_dtype holding_all(const fl_kernel *kernel, fl_dtype dtype)
{
    for (int i = 0; i < kernel->nin; i++) {
        const fl_view *v = &kernel->in[i];
        if (v->data != v->scalar) dtype = fl_dtype_promote(dtype, v->dtype);
        else if (v->scalar[0] < fl_dtype_ranges[dtype].lowest || v->scalar[0] > fl_dtype_ranges[dtype].highest)
            dtype = FL_INT64;
    }
    return dtype;
}

fl_dtype fl_ew_compute_dtype(const fl_kernel *kernel)
{
    const fl_ew_row *row = &fl_ew_rows[kernel->row];
    if (row->rule == FL_EW_LOGIC) return FL_BOOL;
    if (row->rule == FL_EW_FILL) return fl_dtype_compute(kernel->in[0].dtype);
    fl_dtype d = promoted(kernel, row->mask < 0 ? UINT32_MAX : ~(1u << row->mask));
    if (row->rule == FL_EW_FLOAT || row->rule == FL_EW_TEST) d = fl_dtype_to_float(d);
    if (row->rule == FL_EW_COMPARE && fl_dtype_is_integer(d)) d = holding_all(kernel, d);
    return fl_dtype_compute(d);
}

/* Byte strides of v along the axes of an output with `ndim` axes: aligned at the end. */
static void walker_init(walker *w, const fl_view *v, fl_dtype compute, const fl_view *out)
{
    *w = (walker){.data = v->data, .dtype = v->dtype, .compute = compute};
    int64_t size = (int64_t)fl_dtype_size(v->dtype);
    for (int i = 0; i < v->ndim; i++) w->strides[out->ndim - v->ndim + i] = v->size[i] == 1 ? 0 : v->stride[i] * size;
}

/* The axes of the walk: in the order of the output's strides, neighbours merged where all operands allow. */
static void set_axes(walk *w, const fl_view *out)
{
    fl_layout l;
    l.count = out->ndim;
    l.operands = 1 + w->nin;
    for (int i = 0; i < out->ndim; i++) {
        l.axes[i].size = out->size[i];
        l.axes[i].stride[0] = w->out.strides[i];
        for (int o = 0; o < w->nin; o++) l.axes[i].stride[1 + o] = w->in[o].strides[i];
    }
    fl_layout_simplify(&l);
    if (l.count == 0) /* one element: one axis of size 1 */
        l.axes[l.count++] = (fl_axis){.size = 1, .stride = {(int64_t)fl_dtype_size(w->out.dtype)}};
    w->ndim = l.count;
    for (int i = 0; i < l.count; i++) {
        w->sizes[i] = l.axes[i].size;
        w->out.strides[i] = l.axes[i].stride[0];
        for (int o = 0; o < w->nin; o++) w->in[o].strides[i] = l.axes[i].stride[1 + o];
    }
}

static void classify(const walk *w, walker *o)
{
    int64_t expected = (int64_t)fl_dtype_size(o->dtype);
    o->linear = o->constant = true;
    for (int i = w->ndim - 1; i >= 0; i--) {
        o->linear &= o->strides[i] == expected;
        o->constant &= o->strides[i] == 0;
        expected *= w->sizes[i];
    }
}

static bool is_flat(const walker *o) { return o->linear && o->dtype == o->compute; }

/* Results far larger than the caches go past them, so the lines they fill are not read first. Only where memory is what
** takes the time: bursts of such stores hold up longer computations. */
static bool is_streamed(const walk *w, const fl_ew_row *row)
{
    bool stream = w->flat && row->cost_ns < 0.5f && w->total * (int64_t)fl_dtype_size(w->out.dtype) >= STREAM_FROM
        && (uintptr_t)w->out.data % 64 == 0;
    for (int i = 0; i < w->nin; i++) stream &= w->in[i].data != w->out.data;
    return stream;
}

static void walk_init(walk *w, const fl_kernel *kernel, const fl_ew_row *row)
{
    const fl_view *out = &kernel->out[0];
    fl_dtype compute = fl_ew_compute_dtype(kernel);
    bool is_predicate = fl_ew_is_predicate(row->rule);
    w->loop = (*FL_BY_LEVEL(fl_ew_loops))[kernel->row][compute];
    w->copy = FL_BY_LEVEL(fl_copy_kernels);
    w->nin = kernel->nin;
    w->bad = 0;
    w->total = out->numel;
    fl_ew_attributes(w->attributes, kernel);
    for (int i = 0; i < kernel->nin; i++)
        walker_init(&w->in[i], &kernel->in[i], i == row->mask ? FL_BOOL : compute, out);
    walker_init(&w->out, out, is_predicate ? FL_BOOL : compute, out);
    set_axes(w, out);
    classify(w, &w->out);
    w->flat = is_flat(&w->out);
    for (int i = 0; i < kernel->nin; i++) {
        classify(w, &w->in[i]);
        w->flat &= is_flat(&w->in[i]);
    }
    w->streamed = is_streamed(w, row);
    bool rows = w->ndim > 1 && w->sizes[w->ndim - 1] >= LONG_ROW;
    w->row = rows ? w->sizes[w->ndim - 1] : w->total;
    w->pieces = (w->row + CHUNK - 1) / CHUNK;
}

/* ---- moving elements between operands and buffers ---- */

/* True if elements are converted through a buffer of d. */
static bool is_through(fl_dtype dtype) { return dtype == FL_INT64 || dtype == FL_FLOAT32 || dtype == FL_FLOAT64; }

/* Converts n <= CHUNK elements; strides in bytes. */
static void convert(const fl_copy_kernels *copy, char *to, fl_dtype to_dtype, int64_t to_stride, const char *from,
                    fl_dtype from_dtype, int64_t from_stride, int64_t n)
{
    int64_t size = (int64_t)fl_dtype_size(to_dtype);
    fl_copy_through middle = fl_copy_through_of(from_dtype);
    if (to_dtype == from_dtype) {
        if (to_stride == size && from_stride == size) memcpy(to, from, (size_t)(n * size));
        else copy->move[__builtin_ctzll((unsigned long long)size)](to, to_stride, from, from_stride, n);
    } else if (is_through(to_dtype) && fl_copy_through_of(to_dtype) == middle && to_stride == size) {
        copy->load[from_dtype](to, from, from_stride, n);
    } else if (is_through(from_dtype) && from_stride == (int64_t)fl_dtype_size(from_dtype)) {
        copy->store[middle][to_dtype](to, to_stride, from, n);
    } else {
        int64_t buffer[CHUNK];
        copy->load[from_dtype](buffer, from, from_stride, n);
        copy->store[middle][to_dtype](to, to_stride, buffer, n);
    }
}

/* Position of element `first` in the walk's axes. */
static void locate(int64_t *at, const walk *w, int64_t first)
{
    for (int i = w->ndim - 1; i >= 0; i--) {
        at[i] = first % w->sizes[i];
        first /= w->sizes[i];
    }
}

static char *address(const walk *w, const walker *o, const int64_t *at)
{
    char *p = o->data;
    for (int i = 0; i < w->ndim; i++) p += at[i] * o->strides[i];
    return p;
}

/* Gathers n elements from position `start` on into the buffer, or scatters them, run by run of the last axis. */
static void move_runs(const walk *w, const walker *o, const int64_t *start, int64_t n, char *buffer, bool scatter)
{
    int64_t at[FL_MAX_NDIM], size = (int64_t)fl_dtype_size(o->compute), last = w->ndim - 1;
    memcpy(at, start, sizeof at);
    char *p = address(w, o, at);
    while (n > 0) {
        int64_t run = w->sizes[last] - at[last], stride = o->strides[last];
        if (run > n) run = n;
        if (scatter) convert(w->copy, p, o->dtype, stride, buffer, o->compute, size, run);
        else convert(w->copy, buffer, o->compute, size, p, o->dtype, stride, run);
        buffer += run * size;
        n -= run;
        at[last] += run;
        p += run * stride;
        for (int64_t i = last; i > 0 && at[i] == w->sizes[i]; i--) {
            at[i] = 0;
            at[i - 1]++;
            p += o->strides[i - 1] - w->sizes[i] * o->strides[i];
        }
    }
}

/* The operand's elements of this chunk in memory as the loop takes them, or NULL when they need the buffer. */
static char *direct(const walk *w, const walker *o, const int64_t *at, int64_t first)
{
    int64_t size = (int64_t)fl_dtype_size(o->dtype);
    if (o->dtype != o->compute) return NULL;
    if (o->linear) return o->data + first * size;
    return w->row < w->total && o->strides[w->ndim - 1] == size ? address(w, o, at) : NULL;
}

/* The one value of a constant operand, n times. */
static void fill(const walk *w, const walker *o, char *buffer, int64_t n)
{
    convert(w->copy, buffer, o->compute, (int64_t)fl_dtype_size(o->compute), o->data, o->dtype, 0, n);
}

static void walk_chunks(walk *w, int64_t begin, int64_t end)
{
    _Alignas(64) char buffers[FL_EW_MAX_IN + 1][CHUNK * sizeof(int64_t)];
    int64_t at[FL_MAX_NDIM] = {0};
    int bad = 0;
    for (int i = 0; i < w->nin; i++)
        if (w->in[i].constant) fill(w, &w->in[i], buffers[i], w->row < CHUNK ? w->row : CHUNK);
    for (int64_t unit = begin; unit < end; unit++) {
        int64_t offset = unit % w->pieces * CHUNK, first = unit / w->pieces * w->row + offset;
        int64_t n = w->row - offset < CHUNK ? w->row - offset : CHUNK;
        const void *in[FL_EW_MAX_IN];
        locate(at, w, first);
        for (int i = 0; i < w->nin; i++) {
            char *p = w->in[i].constant ? buffers[i] : direct(w, &w->in[i], at, first);
            if (!p) move_runs(w, &w->in[i], at, n, p = buffers[i], false);
            in[i] = p;
        }
        char *p = direct(w, &w->out, at, first);
        bad |= w->loop(p ? p : buffers[w->nin], in, n, w->attributes);
        if (!p) move_runs(w, &w->out, at, n, buffers[w->nin], true);
    }
    if (bad) __atomic_fetch_or(&w->bad, bad, __ATOMIC_RELAXED);
}

static void walk_streamed(walk *w, int64_t begin, int64_t end)
{
    _Alignas(64) char buffer[CHUNK * sizeof(int64_t)];
    int64_t size = (int64_t)fl_dtype_size(w->out.dtype);
    int bad = 0;
    for (int64_t unit = begin; unit < end; unit++) {
        int64_t first = unit * CHUNK, n = w->total - first < CHUNK ? w->total - first : CHUNK;
        const void *in[FL_EW_MAX_IN];
        for (int i = 0; i < w->nin; i++) in[i] = w->in[i].data + first * (int64_t)fl_dtype_size(w->in[i].dtype);
        bad |= w->loop(buffer, in, n, w->attributes);
        if (n == CHUNK) w->copy->stream(w->out.data + first * size, buffer, n * size);
        else memcpy(w->out.data + first * size, buffer, (size_t)(n * size));
    }
    w->copy->fence();
    if (bad) __atomic_fetch_or(&w->bad, bad, __ATOMIC_RELAXED);
}

static void walk_flat(walk *w, int64_t begin, int64_t end)
{
    int64_t first = begin * CHUNK, n = (end * CHUNK < w->total ? end * CHUNK : w->total) - first;
    const void *in[FL_EW_MAX_IN];
    for (int i = 0; i < w->nin; i++) in[i] = w->in[i].data + first * (int64_t)fl_dtype_size(w->in[i].dtype);
    int bad = w->loop(w->out.data + first * (int64_t)fl_dtype_size(w->out.dtype), in, n, w->attributes);
    if (bad) __atomic_fetch_or(&w->bad, bad, __ATOMIC_RELAXED);
}

static void walk_body(void *context, int64_t begin, int64_t end)
{
    walk *w = context;
    if (w->streamed) walk_streamed(w, begin, end);
    else if (w->flat) walk_flat(w, begin, end);
    else walk_chunks(w, begin, end);
}

/* Nanoseconds per element: the C library's functions, doubles and conversions cost more. */
static double element_cost(const walk *w, const fl_ew_row *row)
{
    double cost = row->cost_ns;
    if (w->out.compute == FL_FLOAT64) cost = cost < 0.5 ? cost * 2 : cost * 10;
    return w->flat ? cost : cost + 0.3;
}

static fl_status run_walk(fl_kernel *kernel, const fl_ew_row *row)
{
    walk w;
    if (kernel->out[0].numel == 0) return FL_OK;
    walk_init(&w, kernel, row);
    int64_t units = w.total / w.row * w.pieces;
    int64_t unit_size = w.row < CHUNK ? w.row : CHUNK;
    if (w.total <= CHUNK) walk_body(&w, 0, units);
    else fl_team_for(units, (double)unit_size * element_cost(&w, row), walk_body, &w);
    return w.bad ? loop_failed(kernel, w.bad) : FL_OK;
}

/* A number of the compute type among small contiguous operands: repeated in a buffer. false: it is something else. */
static bool repeat_number(const fl_view *view, fl_dtype dtype, void *buffer, int64_t n)
{
    if (view->numel != 1 || view->dtype != dtype || n > NUMBERS) return false;
    if (fl_dtype_size(dtype) == sizeof(int32_t)) {
        int32_t bits, *to = buffer;
        memcpy(&bits, view->data, sizeof bits);
        for (int64_t i = 0; i < n; i++) to[i] = bits;
    } else if (fl_dtype_size(dtype) == sizeof(int64_t)) {
        int64_t bits, *to = buffer;
        memcpy(&bits, view->data, sizeof bits);
        for (int64_t i = 0; i < n; i++) to[i] = bits;
    } else return false;
    return true;
}

fl_status fl_cpu_elementwise(fl_kernel *kernel)
{
    const fl_ew_row *row = &fl_ew_rows[kernel->row];
    const fl_view *out = &kernel->out[0];
    bool is_predicate = fl_ew_is_predicate(row->rule);
    fl_dtype dtype = is_predicate ? kernel->in[0].dtype : out->dtype;
    fl_ew_loop loop = (*FL_BY_LEVEL(fl_ew_loops))[kernel->row][dtype];
    bool plain = loop && out->numel <= SMALL && out->contiguous && (!is_predicate || out->dtype == FL_BOOL);
    const void *in[FL_EW_MAX_IN];
    _Alignas(64) int64_t numbers[FL_EW_MAX_IN][NUMBERS];
    for (int i = 0; i < kernel->nin && plain; i++) {
        const fl_view *v = &kernel->in[i];
        fl_dtype wanted = i == row->mask ? FL_BOOL : dtype;
        in[i] = v->data;
        if (v->contiguous & (v->numel == out->numel) & (v->dtype == wanted)) continue;
        in[i] = numbers[i];
        plain = repeat_number(v, wanted, numbers[i], out->numel);
    }
    if (!plain) return run_walk(kernel, row);
    fl_ew_attr attributes[FL_EW_ATTRS];
    fl_ew_attributes(attributes, kernel);
    int bad = loop(out->data, in, out->numel, attributes);
    return FL_UNLIKELY(bad) ? loop_failed(kernel, bad) : FL_OK;
}

fl_flat_fn fl_cpu_elementwise_flat(int row_id, fl_dtype dtype)
{
    const fl_ew_row *row = &fl_ew_rows[row_id];
    if (fl_ew_is_predicate(row->rule) || row->mask >= 0 || (dtype != FL_FLOAT32 && dtype != FL_FLOAT64)) return NULL;
    return (*FL_BY_LEVEL(fl_ew_loops))[row_id][dtype];
}
