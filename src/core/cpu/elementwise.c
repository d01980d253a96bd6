/*
** elementwise.c -- the driver of all elementwise rows.
**
** Small operands that lie contiguous in the compute type, or are repeated along the first axes, go straight to the
** row's loop. Everything else is one step of tiles (tiles.h).
*/
#include "elementwise.h"
#include "convert.h"
#include "copy.h"
#include "tiles.h"

#include "op/promote.h"

#include <math.h>

enum {
    SMALL = 8192,   /* elements that one thread does at once */
    REPEATED = 512, /* and a block; or converted at a time */
    SHORT_BLOCK = 4
};

/* ---- rows ---- */

enum { TYPES_B = 1, TYPES_I = 2, TYPES_F = 4, TYPES_IB = 3, TYPES_FI = 6, TYPES_FIB = 7 };
enum {
    MASK_MAP1 = -1,
    MASK_VECTORS = -1,
    MASK_MAP2 = -1,
    MASK_MAP3 = -1,
    MASK_TEST1 = -1,
    MASK_TEST2 = -1,
    MASK_TRIG = -1,
    MASK_SWITCH = -1,
    MASK_FIRST = -1,
    MASK_POW2 = -1,
    MASK_RATIO = -1,
    MASK_POW3 = -1,
    MASK_WHERE = 0,
    MASK_FILL = 1
};

const fl_ew_row fl_ew_rows[FL_EW_COUNT] = {
#define EW(id, sig, shape, types, rule, cost, ...) [FL_EW_##id] = {FL_EW_##rule, TYPES_##types, MASK_##shape, cost},
#include "op/elementwise.def"
#undef EW
};

bool fl_ew_may_fail(int row, fl_dtype compute)
{
    static const char *const integers[] = {
#define EW(id, sig, shape, types, rule, cost, flags, sbp, f, i, ...) [FL_EW_##id] = #i,
#include "op/elementwise.def"
#undef EW
    };
    return fl_dtype_is_integer(compute) && strstr(integers[row], "bad") != NULL;
}

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

double fl_ew_number(const fl_attr *attr, int i)
{
    return attr->given ? fl_attr_number(attr) : i == 0 ? -INFINITY : INFINITY;
}

void fl_ew_attributes(fl_ew_attr *a, const fl_kernel *kernel)
{
    memset(a, 0, FL_EW_ATTRS * sizeof *a);
    for (int i = 0; i < kernel->attrs->count && i < FL_EW_ATTRS; i++) {
        const fl_attr *attr = &kernel->attrs->at[i];
        a[i].number = fl_ew_number(attr, i);
        a[i].integer = attr->given && attr->kind != FL_NUM_FLOAT ? attr->integer : nearest_integer(a[i].number);
    }
}

/* ---- the dtype of a computation ---- */

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

fl_dtype fl_ew_compute_dtype(const fl_kernel *kernel, fl_dtype result)
{
    const fl_ew_row *row = &fl_ew_rows[kernel->row];
    if (row->rule == FL_EW_LOGIC) return FL_BOOL;
    if (row->rule == FL_EW_FILL) return fl_dtype_compute(kernel->in[0].dtype);
    fl_dtype d = promoted(kernel, row->mask < 0 ? UINT32_MAX : ~(1u << row->mask));
    if (row->rule == FL_EW_FLOAT && !fl_dtype_is_float(d)) d = result;
    if (row->rule == FL_EW_COMPARE && fl_dtype_is_integer(d)) d = holding_all(kernel, d);
    return fl_dtype_compute(d);
}

/* ---- the kernel ---- */

/* Operands of any layout and dtype: one step of tiles. */
static fl_status run_step(fl_kernel *kernel)
{
    const fl_view *out = &kernel->out[0];
    fl_ew_attr attributes[FL_EW_ATTRS];
    fl_tiles tiles;
    int in[FL_EW_MAX_IN];
    fl_tiles_begin(&tiles, out->ndim, out->size, out->stride);
    tiles.on_cpu = true;
    for (int i = 0; i < kernel->nin; i++) in[i] = fl_tiles_operand(&tiles, &kernel->in[i]);
    fl_ew_attributes(attributes, kernel);
    int slot = fl_tiles_row(&tiles, kernel->row, fl_ew_compute_dtype(kernel, out->dtype), out->dtype, attributes, in,
                            kernel->nin);
    fl_tiles_store(&tiles, slot, out->data);
    int bad = fl_tiles_run(&tiles);
    return bad ? loop_failed(kernel, bad) : FL_OK;
}

/* A number of the compute type among small contiguous operands: repeated in a buffer, by the vectors in which the row's
** loop then reads it. Of shorter stores the machine would have to wait for the last. */
static void repeat_element(const void *element, fl_dtype dtype, void *buffer, int64_t n)
{
    int64_t size = (int64_t)fl_dtype_size(dtype);
    FL_BY_LEVEL(fl_copy_kernels)->move[__builtin_ctzll((uint64_t)size)](buffer, size, element, 0, n);
}

void fl_cpu_repeat_number(void *buffer, double number, fl_dtype dtype, int64_t n)
{
    float narrow = (float)number;
    repeat_element(dtype == FL_FLOAT32 ? (const void *)&narrow : &number, dtype, buffer, n);
}

/* A block that is broadcast along the first axes alone, as a bias is. */
static bool repeat_block(const fl_view *view, const fl_view *out, char *buffer)
{
    int shift = out->ndim - view->ndim, i = 0;
    while (i < view->ndim && view->size[i] == 1) i++;
    while (i < view->ndim && view->size[i] == out->size[shift + i]) i++;
    if (i < view->ndim || !view->contiguous || view->numel < SHORT_BLOCK) return false;
    size_t bytes = (size_t)view->numel * fl_dtype_size(view->dtype);
    for (int64_t at = 0; at < out->numel; at += view->numel, buffer += bytes) memcpy(buffer, view->data, bytes);
    return true;
}

/* A number that was expanded, as the gradient of a sum is. */
static bool is_one_element(const fl_view *view)
{
    int64_t any = 0;
    for (int i = 0; i < view->ndim; i++) any |= view->size[i] == 1 ? 0 : view->stride[i];
    return any == 0;
}

/* A small operand that is broadcast, in a buffer; false: it is something else. */
static bool repeat(const fl_view *view, const fl_view *out, fl_dtype dtype, void *buffer)
{
    if (view->dtype != dtype) return false;
    if (view->numel != 1 && !is_one_element(view)) return repeat_block(view, out, buffer);
    if (out->numel > FL_EW_REPEATS) return false;
    repeat_element(view->data, view->dtype, buffer, out->numel);
    return true;
}

static fl_status run_loop(const fl_kernel *kernel, fl_ew_loop loop, const void *const *in)
{
    fl_ew_attr attributes[FL_EW_ATTRS];
    fl_ew_attributes(attributes, kernel);
    int bad = loop(kernel->out[0].data, in, kernel->out[0].numel, attributes);
    return FL_UNLIKELY(bad) ? loop_failed(kernel, bad) : FL_OK;
}

/* Small operands of which some are broadcast; a function of its own for the sake of its stack. */
static __attribute__((noinline)) fl_status run_repeated(fl_kernel *kernel, fl_ew_loop loop, fl_dtype dtype)
{
    const fl_view *out = &kernel->out[0];
    const void *in[FL_EW_MAX_IN];
    _Alignas(64) int64_t repeated[FL_EW_MAX_IN][REPEATED];
    for (int i = 0; i < kernel->nin; i++) {
        const fl_view *v = &kernel->in[i];
        fl_dtype wanted = i == fl_ew_rows[kernel->row].mask ? FL_BOOL : dtype;
        in[i] = v->data;
        if (v->contiguous & (v->numel == out->numel) & (v->dtype == wanted)) continue;
        if (!repeat(v, out, wanted, repeated[i])) return run_step(kernel);
        in[i] = repeated[i];
    }
    return run_loop(kernel, loop, in);
}

/* Small contiguous operands of a narrow float that has no loop for the row: blocks of floats. false: they are something
** else. A function of its own for the sake of its stack. */
static __attribute__((noinline)) bool run_widened(const fl_kernel *kernel, fl_dtype dtype)
{
    const fl_ew_row *row = &fl_ew_rows[kernel->row];
    const fl_view *out = &kernel->out[0];
    const fl_convert_table *convert = FL_BY_LEVEL(fl_convert_loops);
    fl_ew_loop loop = (*FL_BY_LEVEL(fl_ew_loops))[kernel->row][FL_FLOAT32];
    if (!loop || row->mask >= 0 || out->dtype != dtype) return false;
    for (int i = 0; i < kernel->nin; i++) {
        const fl_view *v = &kernel->in[i];
        if (!v->contiguous | (v->numel != out->numel) | (v->dtype != dtype)) return false;
    }
    fl_ew_attr attributes[FL_EW_ATTRS];
    _Alignas(64) float block[FL_EW_MAX_IN][REPEATED];
    const void *in[FL_EW_MAX_IN] = {block[0], block[1], block[2]};
    fl_ew_attributes(attributes, kernel);
    for (int64_t at = 0; at < out->numel; at += REPEATED) {
        int64_t n = out->numel - at < REPEATED ? out->numel - at : REPEATED;
        for (int i = 0; i < kernel->nin; i++)
            (*convert)[dtype][FL_FLOAT32](block[i], (const uint16_t *)kernel->in[i].data + at, n);
        loop(block[0], in, n, attributes);
        (*convert)[FL_FLOAT32][dtype]((uint16_t *)out->data + at, block[0], n);
    }
    return true;
}

static bool is_narrow(fl_dtype dtype) { return dtype == FL_FLOAT16 || dtype == FL_BFLOAT16; }

fl_status fl_cpu_elementwise(fl_kernel *kernel)
{
    const fl_ew_row *row = &fl_ew_rows[kernel->row];
    const fl_view *out = &kernel->out[0];
    bool is_predicate = fl_ew_is_predicate(row->rule);
    fl_dtype dtype = is_predicate ? kernel->in[0].dtype : out->dtype;
    fl_ew_loop loop = (*FL_BY_LEVEL(fl_ew_loops))[kernel->row][dtype];
    if (out->numel > SMALL || !out->contiguous || (is_predicate && out->dtype != FL_BOOL)) return run_step(kernel);
    if (!loop) return is_narrow(dtype) && run_widened(kernel, dtype) ? FL_OK : run_step(kernel);
    const void *in[FL_EW_MAX_IN];
    _Alignas(64) int64_t numbers[FL_EW_MAX_IN][FL_EW_REPEATS];
    for (int i = 0; i < kernel->nin; i++) {
        const fl_view *v = &kernel->in[i];
        fl_dtype wanted = i == row->mask ? FL_BOOL : dtype;
        in[i] = v->data;
        if (v->contiguous & (v->numel == out->numel) & (v->dtype == wanted)) continue;
        if (v->numel != 1 || v->dtype != wanted || out->numel > FL_EW_REPEATS)
            return out->numel <= REPEATED ? run_repeated(kernel, loop, dtype) : run_step(kernel);
        repeat_element(v->data, v->dtype, numbers[i], out->numel);
        in[i] = numbers[i];
    }
    return run_loop(kernel, loop, in);
}

fl_flat_fn fl_cpu_elementwise_flat(int row_id, fl_dtype dtype)
{
    const fl_ew_row *row = &fl_ew_rows[row_id];
    if (fl_ew_is_predicate(row->rule) || row->mask >= 0 || (dtype != FL_FLOAT32 && dtype != FL_FLOAT64)) return NULL;
    return (*FL_BY_LEVEL(fl_ew_loops))[row_id][dtype];
}
