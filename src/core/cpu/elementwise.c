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
struct walker {
    char *data;
    fl_dtype dtype, compute;
    bool linear;   /* element i lies at data + i * size */
    bool constant; /* one element for all */
    int64_t strides[FL_MAX_NDIM];
};

struct walk {
    fl_ew_loop loop;
    const fl_copy_kernels *copy;
    int nin, ndim, bad;
    bool flat;                  /* no operand needs a buffer: ranges of any length at once */
    bool streamed;              /* the result is written past the caches */
    int64_t total, row, pieces; /* elements; length of a row and its chunks, when rows are chunked one by one */
    int64_t sizes[FL_MAX_NDIM];
    fl_ew_attr attributes[FL_EW_ATTRS];
    struct walker in[FL_EW_MAX_IN], out;
};

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
static void walker_init(struct walker *walker, const fl_view *v, fl_dtype compute, const fl_view *out)
{
    *walker = (struct walker){.data = v->data, .dtype = v->dtype, .compute = compute};
    int64_t size = (int64_t)fl_dtype_size(v->dtype);
    for (int i = 0; i < v->ndim; i++)
        walker->strides[out->ndim - v->ndim + i] = v->size[i] == 1 ? 0 : v->stride[i] * size;
}

/* The axes of the walk: in the order of the output's strides, neighbours merged where all operands allow. */
static void set_axes(struct walk *walk, const fl_view *out)
{
    fl_layout l;
    l.count = out->ndim;
    l.operands = 1 + walk->nin;
    for (int i = 0; i < out->ndim; i++) {
        l.axes[i].size = out->size[i];
        l.axes[i].stride[0] = walk->out.strides[i];
        for (int o = 0; o < walk->nin; o++) l.axes[i].stride[1 + o] = walk->in[o].strides[i];
    }
    fl_layout_simplify(&l);
    if (l.count == 0) /* one element: one axis of size 1 */
        l.axes[l.count++] = (fl_axis){.size = 1, .stride = {(int64_t)fl_dtype_size(walk->out.dtype)}};
    walk->ndim = l.count;
    for (int i = 0; i < l.count; i++) {
        walk->sizes[i] = l.axes[i].size;
        walk->out.strides[i] = l.axes[i].stride[0];
        for (int o = 0; o < walk->nin; o++) walk->in[o].strides[i] = l.axes[i].stride[1 + o];
    }
}

static void classify(const struct walk *walk, struct walker *walker)
{
    int64_t expected = (int64_t)fl_dtype_size(walker->dtype);
    walker->linear = walker->constant = true;
    for (int i = walk->ndim - 1; i >= 0; i--) {
        walker->linear &= walker->strides[i] == expected;
        walker->constant &= walker->strides[i] == 0;
        expected *= walk->sizes[i];
    }
}

static bool is_flat(const struct walker *walker) { return walker->linear && walker->dtype == walker->compute; }

/* Results far larger than the caches go past them, so the lines they fill are not read first. Only where memory is what
** takes the time: bursts of such stores hold up longer computations. */
static bool is_streamed(const struct walk *walk, const fl_ew_row *row)
{
    bool stream = walk->flat && row->cost_ns < 0.5f
        && walk->total * (int64_t)fl_dtype_size(walk->out.dtype) >= STREAM_FROM && (uintptr_t)walk->out.data % 64 == 0;
    for (int i = 0; i < walk->nin; i++) stream &= walk->in[i].data != walk->out.data;
    return stream;
}

static void walk_init(struct walk *walk, const fl_kernel *kernel, const fl_ew_row *row)
{
    const fl_view *out = &kernel->out[0];
    fl_dtype compute = fl_ew_compute_dtype(kernel);
    bool is_predicate = fl_ew_is_predicate(row->rule);
    walk->loop = (*FL_BY_LEVEL(fl_ew_loops))[kernel->row][compute];
    walk->copy = FL_BY_LEVEL(fl_copy_kernels);
    walk->nin = kernel->nin;
    walk->bad = 0;
    walk->total = out->numel;
    fl_ew_attributes(walk->attributes, kernel);
    for (int i = 0; i < kernel->nin; i++)
        walker_init(&walk->in[i], &kernel->in[i], i == row->mask ? FL_BOOL : compute, out);
    walker_init(&walk->out, out, is_predicate ? FL_BOOL : compute, out);
    set_axes(walk, out);
    classify(walk, &walk->out);
    walk->flat = is_flat(&walk->out);
    for (int i = 0; i < kernel->nin; i++) {
        classify(walk, &walk->in[i]);
        walk->flat &= is_flat(&walk->in[i]);
    }
    walk->streamed = is_streamed(walk, row);
    bool rows = walk->ndim > 1 && walk->sizes[walk->ndim - 1] >= LONG_ROW;
    walk->row = rows ? walk->sizes[walk->ndim - 1] : walk->total;
    walk->pieces = (walk->row + CHUNK - 1) / CHUNK;
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
static void locate(int64_t *at, const struct walk *walk, int64_t first)
{
    for (int i = walk->ndim - 1; i >= 0; i--) {
        at[i] = first % walk->sizes[i];
        first /= walk->sizes[i];
    }
}

static char *address(const struct walk *walk, const struct walker *walker, const int64_t *at)
{
    char *p = walker->data;
    for (int i = 0; i < walk->ndim; i++) p += at[i] * walker->strides[i];
    return p;
}

/* Gathers n elements from position `start` on into the buffer, or scatters them, run by run of the last axis. */
static void move_runs(const struct walk *walk, const struct walker *walker, const int64_t *start, int64_t n,
                      char *buffer, bool scatter)
{
    int64_t at[FL_MAX_NDIM], size = (int64_t)fl_dtype_size(walker->compute), last = walk->ndim - 1;
    memcpy(at, start, sizeof at);
    char *p = address(walk, walker, at);
    while (n > 0) {
        int64_t run = walk->sizes[last] - at[last], stride = walker->strides[last];
        if (run > n) run = n;
        if (scatter) convert(walk->copy, p, walker->dtype, stride, buffer, walker->compute, size, run);
        else convert(walk->copy, buffer, walker->compute, size, p, walker->dtype, stride, run);
        buffer += run * size;
        n -= run;
        at[last] += run;
        p += run * stride;
        for (int64_t i = last; i > 0 && at[i] == walk->sizes[i]; i--) {
            at[i] = 0;
            at[i - 1]++;
            p += walker->strides[i - 1] - walk->sizes[i] * walker->strides[i];
        }
    }
}

/* The operand's elements of this chunk in memory as the loop takes them, or NULL when they need the buffer. */
static char *direct(const struct walk *walk, const struct walker *walker, const int64_t *at, int64_t first)
{
    int64_t size = (int64_t)fl_dtype_size(walker->dtype);
    if (walker->dtype != walker->compute) return NULL;
    if (walker->linear) return walker->data + first * size;
    return walk->row < walk->total && walker->strides[walk->ndim - 1] == size ? address(walk, walker, at) : NULL;
}

/* The one value of a constant operand, n times. */
static void fill(const struct walk *walk, const struct walker *walker, char *buffer, int64_t n)
{
    convert(walk->copy, buffer, walker->compute, (int64_t)fl_dtype_size(walker->compute), walker->data, walker->dtype,
            0, n);
}

static void walk_chunks(struct walk *walk, int64_t begin, int64_t end)
{
    _Alignas(64) char buffers[FL_EW_MAX_IN + 1][CHUNK * sizeof(int64_t)];
    int64_t at[FL_MAX_NDIM] = {0};
    int bad = 0;
    for (int i = 0; i < walk->nin; i++)
        if (walk->in[i].constant) fill(walk, &walk->in[i], buffers[i], walk->row < CHUNK ? walk->row : CHUNK);
    for (int64_t unit = begin; unit < end; unit++) {
        int64_t offset = unit % walk->pieces * CHUNK, first = unit / walk->pieces * walk->row + offset;
        int64_t n = walk->row - offset < CHUNK ? walk->row - offset : CHUNK;
        const void *in[FL_EW_MAX_IN];
        locate(at, walk, first);
        for (int i = 0; i < walk->nin; i++) {
            char *p = walk->in[i].constant ? buffers[i] : direct(walk, &walk->in[i], at, first);
            if (!p) move_runs(walk, &walk->in[i], at, n, p = buffers[i], false);
            in[i] = p;
        }
        char *p = direct(walk, &walk->out, at, first);
        bad |= walk->loop(p ? p : buffers[walk->nin], in, n, walk->attributes);
        if (!p) move_runs(walk, &walk->out, at, n, buffers[walk->nin], true);
    }
    if (bad) __atomic_fetch_or(&walk->bad, bad, __ATOMIC_RELAXED);
}

static void walk_streamed(struct walk *walk, int64_t begin, int64_t end)
{
    _Alignas(64) char buffer[CHUNK * sizeof(int64_t)];
    int64_t size = (int64_t)fl_dtype_size(walk->out.dtype);
    int bad = 0;
    for (int64_t unit = begin; unit < end; unit++) {
        int64_t first = unit * CHUNK, n = walk->total - first < CHUNK ? walk->total - first : CHUNK;
        const void *in[FL_EW_MAX_IN];
        for (int i = 0; i < walk->nin; i++)
            in[i] = walk->in[i].data + first * (int64_t)fl_dtype_size(walk->in[i].dtype);
        bad |= walk->loop(buffer, in, n, walk->attributes);
        if (n == CHUNK) walk->copy->stream(walk->out.data + first * size, buffer, n * size);
        else memcpy(walk->out.data + first * size, buffer, (size_t)(n * size));
    }
    walk->copy->fence();
    if (bad) __atomic_fetch_or(&walk->bad, bad, __ATOMIC_RELAXED);
}

static void walk_flat(struct walk *walk, int64_t begin, int64_t end)
{
    int64_t first = begin * CHUNK, n = (end * CHUNK < walk->total ? end * CHUNK : walk->total) - first;
    const void *in[FL_EW_MAX_IN];
    for (int i = 0; i < walk->nin; i++) in[i] = walk->in[i].data + first * (int64_t)fl_dtype_size(walk->in[i].dtype);
    int bad = walk->loop(walk->out.data + first * (int64_t)fl_dtype_size(walk->out.dtype), in, n, walk->attributes);
    if (bad) __atomic_fetch_or(&walk->bad, bad, __ATOMIC_RELAXED);
}

static void walk_body(void *context, int64_t begin, int64_t end)
{
    struct walk *w = context;
    if (w->streamed) walk_streamed(w, begin, end);
    else if (w->flat) walk_flat(w, begin, end);
    else walk_chunks(w, begin, end);
}

/* Nanoseconds per element: the C library's functions, doubles and conversions cost more. */
static double element_cost(const struct walk *walk, const fl_ew_row *row)
{
    double cost = row->cost_ns;
    if (walk->out.compute == FL_FLOAT64) cost = cost < 0.5 ? cost * 2 : cost * 10;
    return walk->flat ? cost : cost + 0.3;
}

static fl_status run_walk(fl_kernel *kernel, const fl_ew_row *row)
{
    struct walk w;
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
