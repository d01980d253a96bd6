/*
** scatter.c -- elements written or added at places that an index names along an axis: the other direction of gather.
**
** What is written goes through scatter_write_, line by line in the order of the index, so the last of equal places
** stays. What is added up is the gradient of gather, then added to x.
*/
#include "cpu/indices.h"
#include "base/axes.h"
#include "expr.h"

enum { BESIDE = 64 }; /* lines beside each other that are one unit of work */

/* ---- writing ---- */

static int axis_of(const fl_attrs *attrs, int ndim) { return ndim ? fl_axis_of(&attrs->at[0], ndim) : 0; }

/* Sizes have been checked by who calls it. */
static fl_status infer_write(fl_infer *c)
{
    const fl_shape *x = &c->in[0].shape, *index = &c->in[1].shape;
    int axis;
    c->name = "scatter_";
    FL_TRY(fl_shape_axis(&axis, c->name, c->attrs->at[0].integer, x));
    bool fits = fl_dtype_is_integer(c->in[1].dtype) && index->ndim == x->ndim;
    for (int a = 0; fits && a < x->ndim; a++) fits = a == axis || index->dims[a] <= x->dims[a];
    if (fits && c->nin == 3 && c->in[2].kind == FL_TENSOR)
        fits = c->in[2].dtype == c->in[0].dtype && fl_shape_equal(&c->in[2].shape, index);
    if (!fits) return fl_infer_fail(c, FL_ERR_SHAPE, "operands do not fit");
    return fl_infer_same(c);
}

/* Each part of x takes what belongs to it, from an index that is whole or split alike. */
static void sbp_write(fl_sigs *s)
{
    const fl_shape *x = &s->in_logical[0], *index = &s->in_logical[1];
    int axis = axis_of(s->attrs, x->ndim);
    for (int a = 0; a < x->ndim; a++) {
        bool alike = a != axis && index->dims[a] == x->dims[a];
        fl_sbp part = FL_S(a), src = s->nin == 3 && s->in[2].kind == FL_TENSOR && alike ? part : FL_B;
        if (s->nin == 3) FL_SIG(s, NULL, part, alike ? part : FL_B, src, part);
        else FL_SIG(s, NULL, part, alike ? part : FL_B, part);
    }
    if (s->in[0].dtype == FL_BOOL) return;
    if (s->nin == 2) FL_SIG(s, NULL, FL_PSUM, FL_B, FL_PSUM);
    else if (s->in[2].kind == FL_TENSOR) FL_SIG(s, NULL, FL_PSUM, FL_B, FL_PSUM, FL_PSUM);
}

/* Lines along the axis; strides in bytes: out, src, positions. */
typedef struct write_job {
    char *out;
    const char *src, *positions;
    fl_layout lines;       /* without the axis */
    fl_axis along;         /* the axis of the index; its position says how far out moves */
    int64_t first, held;   /* positions that this part of x holds */
    int64_t place;         /* bytes from one to the next */
    int64_t beside, tiles; /* lines of a unit, units of one row of lines */
    size_t item;
} write_job;

/* Goes through a unit, `inner` for each step of `outer`. `item` is a constant where it is called. */
static inline __attribute__((always_inline)) void write_lines(const write_job *j, const int64_t *offset,
                                                              const fl_axis *outer, const fl_axis *inner, size_t item)
{
    const int64_t first = j->first, held = j->held, place = j->place;
    for (int64_t i = 0; i < outer->size; i++) {
        char *out = j->out + offset[0] + i * outer->stride[0];
        const char *src = j->src + offset[1] + i * outer->stride[1],
                   *positions = j->positions + offset[2] + i * outer->stride[2];
        for (int64_t c = 0; c < inner->size; c++) {
            int64_t at = *(const int64_t *)positions - first;
            if ((uint64_t)at < (uint64_t)held) memcpy(out + at * place, src, item);
            out += inner->stride[0];
            src += inner->stride[1];
            positions += inner->stride[2];
        }
    }
}

static void write_unit(const write_job *j, int64_t unit)
{
    const fl_axis *last = &j->lines.axes[j->lines.count - 1];
    int64_t from = unit % j->tiles * j->beside, lines = last->size - from < j->beside ? last->size - from : j->beside,
            row = unit / j->tiles;
    int64_t offset[3];
    for (int o = 0; o < 3; o++) offset[o] = from * last->stride[o];
    for (int a = j->lines.count - 2; a >= 0; a--) {
        const fl_axis *axis = &j->lines.axes[a];
        for (int o = 0; o < 3; o++) offset[o] += row % axis->size * axis->stride[o];
        row /= axis->size;
    }
    fl_axis beside = *last;
    beside.size = lines;
    const fl_axis *outer = lines > 1 ? &j->along : &beside, *inner = lines > 1 ? &beside : &j->along;
    switch (j->item) {
    case 1: write_lines(j, offset, outer, inner, 1); break;
    case 2: write_lines(j, offset, outer, inner, 2); break;
    case 4: write_lines(j, offset, outer, inner, 4); break;
    default: write_lines(j, offset, outer, inner, 8);
    }
}

static void write_units(void *context, int64_t begin, int64_t end)
{
    for (int64_t unit = begin; unit < end; unit++) write_unit(context, unit);
}

/* The part of the index that falls into this part of out: where it begins in both, and its size. */
static int64_t overlap(int64_t *in_index, int64_t *in_out, const fl_view *index, const fl_view *out, int a)
{
    int64_t from = index->start[a] > out->start[a] ? index->start[a] : out->start[a];
    int64_t index_end = index->start[a] + index->size[a], out_end = out->start[a] + out->size[a],
            end = index_end < out_end ? index_end : out_end;
    *in_index = from - index->start[a];
    *in_out = from - out->start[a];
    return end > from ? end - from : 0;
}

/* src_strides in elements. false: nothing is written here. */
static bool arrange(write_job *j, const fl_view *out, const fl_view *index, const int64_t *src_strides, int axis)
{
    int64_t item = (int64_t)j->item, word = (int64_t)sizeof(int64_t), strides[FL_MAX_NDIM], in_index, in_out;
    fl_shape_strides(strides, index->size, index->ndim);
    j->lines.operands = 3;
    j->along = (fl_axis){1, {0}};
    j->held = 1;
    for (int a = 0; a < out->ndim; a++) {
        fl_axis own = {index->size[a], {out->stride[a] * item, src_strides[a] * item, strides[a] * word}};
        if (a == axis) {
            j->place = own.stride[0];
            own.stride[0] = 0;
            j->along = own;
            j->first = out->start[a];
            j->held = out->size[a];
            continue;
        }
        own.size = overlap(&in_index, &in_out, index, out, a);
        if (own.size == 0) return false;
        j->out += in_out * own.stride[0];
        j->src += in_index * own.stride[1];
        j->positions += in_index * own.stride[2];
        j->lines.axes[j->lines.count++] = own;
    }
    fl_layout_simplify(&j->lines);
    if (j->lines.count == 0) j->lines.axes[j->lines.count++] = (fl_axis){1, {0}};
    return out->numel > 0 && index->numel > 0;
}

static fl_status write_values(fl_kernel *k, const char *src, const int64_t *src_strides, const char *who)
{
    const fl_view *out = &k->out[0], *index = &k->in[1];
    int axis = axis_of(k->attrs, out->ndim);
    const int64_t *positions;
    FL_TRY(fl_indices_open(&positions, k, 1));
    fl_index_rule rule = {.who = who,
                          .param = "index",
                          .owner = "this axis of x",
                          .noun = "positions",
                          .limit = out->ndim ? out->logical[axis] : 1};
    FL_TRY(fl_indices_check(positions, index, &rule));
    write_job j = {
        .out = out->data, .src = src, .positions = (const char *)positions, .item = fl_dtype_size(out->dtype)};
    if (!arrange(&j, out, index, src_strides, axis)) return FL_OK;
    int64_t row = j.lines.axes[j.lines.count - 1].size;
    bool dense = fl_layout_magnitude(j.along.stride[2]) < j.lines.axes[j.lines.count - 1].stride[2];
    j.beside = row < BESIDE ? row : BESIDE;
    if (dense && j.along.size >= BESIDE) j.beside = 1; /* a line's positions lie together */
    j.tiles = (row + j.beside - 1) / j.beside;
    fl_team_for(fl_layout_numel(&j.lines) / row * j.tiles, 10 + 2.0 * (double)(j.along.size * j.beside), write_units,
                &j);
    return FL_OK;
}

static const int64_t none[FL_MAX_NDIM];

static fl_status kernel_write(fl_kernel *k)
{
    const fl_view *src = &k->in[2];
    int64_t number[1] = {0};
    if (src->data != src->scalar) return write_values(k, src->data, src->stride, "scatter");
    fl_view value = {.data = number, .dtype = k->out[0].dtype, .contiguous = true, .numel = 1};
    FL_TRY(fl_cpu_copy(&value, src));
    return write_values(k, (const char *)number, none, "scatter");
}

static fl_status kernel_zero(fl_kernel *k)
{
    const int64_t zero = 0;
    FL_TRY(fl_cpu_copy(&k->out[0], &k->in[0]));
    return write_values(k, (const char *)&zero, none, "scatter");
}

static const char *const write_vjp[] = {"scatter_zero(g, axis, index)", NULL, "gather(g, axis, index)"};
static const char *const write_samples[] = {
    "flow.randn(3, 4), 1, flow.tensor{{2, 0}, {1, 3}, {3, 2}}, flow.randn(3, 2)",
    "flow.randn(4, 3), 0, flow.tensor{{1, 3}, {0, 2}}, flow.randn(2, 2)",
    "flow.randn(3, 4), -1, flow.tensor{{2}, {1}, {0}}, 1.5", "flow.randn(5), 0, flow.tensor{4, 1}, flow.randn(2)",
    NULL};
FL_OP(scatter_write_) = {
    .name = "scatter_write_",
    .sig = "scatter_write_(x, axis: axis, index, src|n)",
    .nout = 1,
    .flags = FL_OP_HIDDEN,
    .mutates = 1,
    .doc = "scatter_ with src in the shape of index.",
    .infer = infer_write,
    .sbp = sbp_write,
    .cpu = kernel_write,
    .vjp = write_vjp,
    .samples = write_samples,
};

static const char *const zero_vjp[] = {"scatter_zero(g, axis, index)", NULL};
static const char *const zero_samples[] = {"flow.randn(3, 4), 1, flow.tensor{{2, 0}, {1, 3}, {3, 3}}",
                                           "flow.randn(4, 3), 0, flow.tensor{{1, 3}, {0, 2}}", NULL};
FL_OP(scatter_zero) = {
    .name = "scatter_zero",
    .sig = "scatter_zero(x, axis: axis, index)",
    .nout = 1,
    .flags = FL_OP_HIDDEN,
    .doc = "x with zeros at the places that index names along the axis.",
    .infer = infer_write,
    .sbp = sbp_write,
    .cpu = kernel_zero,
    .vjp = zero_vjp,
    .samples = zero_samples,
};

/* ---- what scripts call ---- */

static fl_status check_index(const char *who, const fl_tensor *x, const fl_tensor *index, const fl_attrs *attrs)
{
    const fl_shape *xs = &x->meta->shape, *is = &index->meta->shape;
    char tx[FL_SHAPE_TEXT], ti[FL_SHAPE_TEXT];
    int axis;
    if (!fl_dtype_is_integer(index->meta->dtype))
        return fl_fail(FL_ERR_DTYPE, "%s: index must be integers, got %s%s", who, fl_dtype_name(index->meta->dtype),
                       fl_shape_text(ti, is));
    FL_TRY(fl_shape_axis(&axis, who, attrs->at[0].integer, xs));
    bool fits = xs->ndim == is->ndim;
    for (int a = 0; fits && a < xs->ndim; a++) fits = a == axis || is->dims[a] <= xs->dims[a];
    if (!fits)
        return fl_fail(FL_ERR_SHAPE,
                       "%s: index %s must have as many axes as x %s and, but for axis %d, sizes up to those of x", who,
                       fl_shape_text(ti, is), fl_shape_text(tx, xs), axis);
    if (xs->ndim && xs->dims[axis] == 0 && fl_shape_numel(is) > 0) /* no kernel runs for an empty x */
        return fl_fail(FL_ERR_SHAPE, "%s: axis %d of x %s has no positions, but index %s names some", who, axis,
                       fl_shape_text(tx, xs), fl_shape_text(ti, is));
    return FL_OK;
}

static fl_status check_src(const char *who, const fl_tensor *x, const fl_tensor *index, const fl_operand *src)
{
    if (src->kind != FL_TENSOR) return fl_require_fits(who, x->meta->dtype, src);
    const fl_meta *meta = src->tensor->meta;
    const fl_shape *is = &index->meta->shape;
    char ts[FL_SHAPE_TEXT], ti[FL_SHAPE_TEXT];
    if (meta->dtype != x->meta->dtype)
        return fl_fail(FL_ERR_DTYPE, "%s: src is %s and x %s: dtypes must be equal", who, fl_dtype_name(meta->dtype),
                       fl_dtype_name(x->meta->dtype));
    bool fits = meta->shape.ndim == is->ndim;
    for (int a = 0; fits && a < is->ndim; a++) fits = is->dims[a] <= meta->shape.dims[a];
    if (fits) return FL_OK;
    return fl_fail(FL_ERR_SHAPE, "%s: src %s must have as many axes as index %s and at least its sizes", who,
                   fl_shape_text(ts, &meta->shape), fl_shape_text(ti, is));
}

/* The corner of src that index covers. */
static fl_status covered(fl_tensor **out, fl_tensor *src, const fl_shape *index)
{
    fl_tensor *part = fl_tensor_ref(src);
    for (int a = 0; a < index->ndim; a++) {
        fl_tensor *next;
        fl_attrs attrs;
        if (part->meta->shape.dims[a] == index->dims[a]) continue;
        fl_attrs_init(&attrs, FL_OP_REF(narrow));
        fl_attr_set(&attrs, 0, a);
        fl_attr_set(&attrs, 1, 0);
        fl_attr_set(&attrs, 2, index->dims[a]);
        fl_status status = FL_CALL_WITH(&next, &attrs, narrow, fl_of(part));
        fl_tensor_unref(part);
        FL_TRY(status);
        part = next;
    }
    *out = part;
    return FL_OK;
}

static fl_status checked(const char *who, const fl_operand *in, const fl_attrs *attrs)
{
    FL_TRY(check_index(who, in[0].tensor, in[1].tensor, attrs));
    return check_src(who, in[0].tensor, in[1].tensor, &in[2]);
}

/* x is written; operands have been checked. */
static fl_status write_into(fl_tensor **out, fl_tensor *x, const fl_operand *in, const fl_attrs *attrs)
{
    fl_operand src = in[2];
    fl_tensor *part = NULL;
    if (src.kind == FL_TENSOR) {
        FL_TRY(covered(&part, src.tensor, &in[1].tensor->meta->shape));
        src = fl_of(part);
    }
    fl_status status = FL_CALL_WITH(out, attrs, scatter_write_, fl_of(x), in[1], src);
    fl_tensor_unref(part);
    return status;
}

static fl_status body_scatter_(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    FL_TRY(checked("scatter_", in, attrs));
    return write_into(out, in[0].tensor, in, attrs);
}

static fl_status body_scatter(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    fl_expr c = {0};
    FL_TRY(checked("scatter", in, attrs));
    fl_tensor *copy = CHAIN_CALL(&c, NULL, clone, fl_of(expr_whole(&c, in[0].tensor)));
    if (copy) c.status = write_into(out, copy, in, attrs);
    return fl_expr_end(&c);
}

/* What is added to x, in its shape. */
static fl_status additions(fl_tensor **out, const char *who, const fl_operand *in, const fl_attrs *attrs)
{
    const fl_meta *x = in[0].tensor->meta;
    fl_tensor *part;
    fl_attrs a;
    FL_TRY(checked(who, in, attrs));
    if (x->dtype == FL_BOOL) return fl_fail(FL_ERR_DTYPE, "%s: takes numbers, x is bool", who);
    FL_TRY(covered(&part, in[2].tensor, &in[1].tensor->meta->shape));
    fl_attrs_init(&a, FL_OP_REF(gather_backward));
    a.at[0] = attrs->at[0];
    fl_attr_set_list(&a, 1, x->shape.dims, x->shape.ndim);
    fl_attr_set_like(&a, 2, x);
    fl_status status = FL_CALL_WITH(out, &a, gather_backward, fl_of(part), in[1]);
    fl_tensor_unref(part);
    return status;
}

static fl_status body_scatter_add(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    fl_tensor *sum;
    FL_TRY(additions(&sum, "scatter_add", in, attrs));
    fl_status status = FL_CALL(out, add, in[0], fl_of(sum));
    fl_tensor_unref(sum);
    return status;
}

static fl_status body_scatter_add_(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    fl_tensor *sum;
    FL_TRY(additions(&sum, "scatter_add_", in, attrs));
    fl_status status = fl_dispatch_inplace(out, FL_OP_REF(add), (const fl_operand[]){in[0], fl_of(sum)}, 2, NULL);
    fl_tensor_unref(sum);
    return status;
}

static const char *const scatter_samples[] = {
    "flow.randn(3, 4), 1, flow.tensor{{2, 0}, {1, 3}, {3, 2}}, flow.randn(3, 2)",
    "flow.randn(4, 3), 0, flow.tensor{{1, 3}, {0, 2}}, flow.randn(3, 4)",
    "flow.randn(3, 4), -1, flow.tensor{{2}, {1}, {0}}, 1.5", NULL};
FL_OP(scatter) = {
    .name = "scatter",
    .sig = "scatter(x, axis: axis, index, src|n)",
    .nout = 1,
    .doc = "x with every element of src, or a number, at its own position, but along the axis at the place its index "
           "names; of equal places the last stays.",
    .body = body_scatter,
    .samples = scatter_samples,
};
FL_OP(scatter_) = {
    .name = "scatter_",
    .sig = "scatter_(x, axis: axis, index, src|n)",
    .nout = 1,
    .flags = FL_OP_METHOD_ONLY,
    .mutates = 1,
    .doc = "scatter into x itself.",
    .body = body_scatter_,
    .samples = scatter_samples,
};

static const char *const scatter_add_samples[] = {
    "flow.randn(3, 4), 1, flow.tensor{{2, 0, 2}, {1, 1, 1}, {3, 2, 0}}, flow.randn(3, 3)",
    "flow.randn(4, 3), 0, flow.tensor{{1, 3}, {1, 2}}, flow.randn(3, 4)", NULL};
FL_OP(scatter_add) = {
    .name = "scatter_add",
    .sig = "scatter_add(x, axis: axis, index, src)",
    .nout = 1,
    .doc = "x plus every element of src at its own position, but along the axis at the place its index names, added in "
           "the order of the index.",
    .body = body_scatter_add,
    .samples = scatter_add_samples,
};
FL_OP(scatter_add_) = {
    .name = "scatter_add_",
    .sig = "scatter_add_(x, axis: axis, index, src)",
    .nout = 1,
    .flags = FL_OP_METHOD_ONLY,
    .mutates = 1,
    .doc = "scatter_add into x itself.",
    .body = body_scatter_add_,
    .samples = scatter_add_samples,
};
