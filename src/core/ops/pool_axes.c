/*
** pool_axes.c -- pooling made of max_pool2d and avg_pool2d: of one axis and three, with positions, adaptive, by powers,
** and back (max_unpool).
**
** A window of three axes is one of rows and columns in each depth, then one of depths; what is first of equal maxima
** stays first. Positions count the elements of all pooled axes in row-major order.
*/
#include "op/reduce.h"
#include "op/indexing.h"
#include "op/pool.h"
#include "expr.h"
#include "pool.h"

enum { MOST_AXES = 3, PLANE = 2, LONG_WINDOW = 12 };

/* x [n, channels, size] or [channels, size]; the window of each axis, from the attributes. */
struct window {
    const char *who;
    int axes, first; /* pooled ones: the last `axes` from `first` on */
    int64_t size[MOST_AXES], stride[MOST_AXES], padding[MOST_AXES], dilation[MOST_AXES];
    bool ceil;
};

static fl_status read_sizes(int64_t *sizes, const struct window *window, const fl_attr *attr, const char *name,
                            int64_t least)
{
    if (attr->count != 1 && attr->count != window->axes)
        return fl_fail(FL_ERR_VALUE, "%s: %s must be one number or %d, got %d", window->who, name, window->axes,
                       attr->count);
    fl_window_geometry_read(sizes, attr, window->axes);
    for (int d = 0; d < window->axes; d++)
        if (sizes[d] < least || sizes[d] > INT32_MAX)
            return fl_fail(FL_ERR_VALUE, "%s: %s must be between %lld and %d, got %lld", window->who, name,
                           (long long)least, INT32_MAX, (long long)sizes[d]);
    return FL_OK;
}

static fl_status check_x(struct window *window, const fl_tensor *x)
{
    static const char *const names[] = {"", "length", "height, width", "depth, height, width"};
    char text[FL_META_TEXT];
    int ndim = x->meta->shape.ndim;
    window->first = ndim - window->axes;
    FL_TRY(fl_require_float_tensor(window->who, "x", x));
    if (window->first == 1 || window->first == 2) return FL_OK;
    return fl_fail(FL_ERR_SHAPE, "%s: takes x [n, channels, %s] or [channels, %s], got %s", window->who,
                   names[window->axes], names[window->axes], fl_meta_text(text, x->meta));
}

/* Kernel, stride and padding; the dilation where there is a slot for it. */
static fl_status read_window(struct window *window, const char *who, int axes, const fl_tensor *x,
                             const fl_attrs *attrs, bool dilated, int ceil_slot)
{
    *window = (struct window){.who = who, .axes = axes, .ceil = attrs->at[ceil_slot].integer != 0};
    FL_TRY(check_x(window, x));
    FL_TRY(read_sizes(window->size, window, &attrs->at[FL_POOL_KERNEL], "kernel_size", 1));
    memcpy(window->stride, window->size, sizeof window->stride);
    if (attrs->at[FL_POOL_STRIDE].count > 0)
        FL_TRY(read_sizes(window->stride, window, &attrs->at[FL_POOL_STRIDE], "stride", 1));
    FL_TRY(read_sizes(window->padding, window, &attrs->at[FL_POOL_PADDING], "padding", 0));
    for (int d = 0; d < axes; d++) {
        window->dilation[d] = 1;
        if (2 * window->padding[d] > window->size[d])
            return fl_fail(FL_ERR_VALUE,
                           "%s: padding must be at most half of the kernel size, got padding %lld and "
                           "kernel size %lld",
                           who, (long long)window->padding[d], (long long)window->size[d]);
    }
    return dilated ? read_sizes(window->dilation, window, &attrs->at[FL_POOL_DILATION], "dilation", 1) : FL_OK;
}

/* Attributes of a pooling of planes: of the axes `rows` and `columns` of the window; -1: an axis that stays. */
static void plane_attrs(fl_attrs *attrs, const fl_op *op, const struct window *window, int rows, int columns)
{
    const int at[PLANE] = {rows, columns};
    int64_t size[PLANE], stride[PLANE], padding[PLANE];
    for (int d = 0; d < PLANE; d++) {
        size[d] = at[d] < 0 ? 1 : window->size[at[d]];
        stride[d] = at[d] < 0 ? 1 : window->stride[at[d]];
        padding[d] = at[d] < 0 ? 0 : window->padding[at[d]];
    }
    fl_attrs_init(attrs, op);
    fl_attr_set_list(attrs, FL_POOL_KERNEL, size, PLANE);
    fl_attr_set_list(attrs, FL_POOL_STRIDE, stride, PLANE);
    fl_attr_set_list(attrs, FL_POOL_PADDING, padding, PLANE);
}

/* x as [leading, count, rows, columns]: the axes before `axis` but the first one together, those from `from` to the end
** together. */
static fl_tensor *expr_planes(fl_expr *expr, fl_tensor *x, int64_t rows, int64_t columns)
{
    if (expr->status != FL_OK) return NULL;
    const fl_shape *shape = &x->meta->shape;
    fl_shape planes = {4, {shape->dims[0], 1, rows, columns}};
    int64_t rest = shape->dims[0] * rows * columns;
    planes.dims[1] = rest ? x->meta->numel / rest : 1;
    if (!rest) {
        int64_t plane = 1;
        for (int i = 1; i < shape->ndim; i++) plane *= shape->dims[i];
        planes.dims[1] = rows > 0 && columns > 0 ? plane / (rows * columns) : 1;
    }
    return expr_reshape(expr, x, &planes);
}

static fl_tensor *expr_sized(fl_expr *expr, fl_tensor *x, const fl_shape *like, int axis, const int64_t *sizes,
                             int count)
{
    if (expr->status != FL_OK) return NULL;
    fl_shape shape = *like;
    memcpy(shape.dims + axis, sizes, sizeof *sizes * (size_t)count);
    return expr_reshape(expr, x, &shape);
}

/* ---- positions ---- */

/* start + step * i along axis `axis` of `ndim`. */
static fl_tensor *expr_line(fl_expr *expr, fl_tensor *like, int64_t start, int64_t count, int64_t step, int axis,
                            int ndim)
{
    fl_shape shape = {ndim, {0}};
    for (int i = 0; i < ndim; i++) shape.dims[i] = i == axis ? count : 1;
    return expr_reshape(expr, expr_range(expr, like, start, count, step), &shape);
}

static fl_tensor *expr_times(fl_expr *expr, fl_tensor *x, int64_t factor)
{
    return factor == 1 ? x : EXPR_CALL(expr, NULL, mul, fl_of(x), fl_of_integer(factor));
}

/* The position on an axis of the tap that each window has chosen. along: the window's axis; axis: that of `tap`. */
static fl_tensor *expr_position(fl_expr *expr, fl_tensor *tap, const struct window *window, int along, int axis)
{
    if (expr->status != FL_OK) return NULL;
    const fl_shape *shape = &tap->meta->shape;
    fl_tensor *begin = expr_line(expr, tap, -window->padding[along], shape->dims[axis], window->stride[along], axis,
                                 shape->ndim);
    return expr_add(expr, begin, expr_times(expr, tap, window->dilation[along]));
}

/* Taps of planes [.., rows, columns] as positions in a plane `wide` elements wide; rows or columns -1: an axis that
** stays. */
static fl_tensor *expr_plane_positions(fl_expr *expr, fl_tensor *taps, const struct window *window, int rows,
                                       int columns, int64_t wide)
{
    fl_tensor *tap = expr_cast(expr, taps, FL_INT64);
    if (expr->status != FL_OK) return NULL;
    if (columns < 0) return expr_position(expr, tap, window, rows, PLANE);
    if (rows < 0) return expr_position(expr, tap, window, columns, PLANE + 1);
    int64_t width = window->size[columns];
    fl_tensor *row = EXPR_CALL(expr, NULL, floor_divide, fl_of(tap), fl_of_integer(width));
    fl_tensor *column = expr_sub(expr, tap, expr_times(expr, row, width));
    fl_tensor *down = expr_times(expr, expr_position(expr, row, window, rows, PLANE), wide);
    return expr_add(expr, down, expr_position(expr, column, window, columns, PLANE + 1));
}

/* index along axis 2 of x [a, b, n, m] */
static fl_tensor *expr_gathered(fl_expr *expr, fl_tensor *x, fl_tensor *index, int axis)
{
    fl_attrs a;
    fl_attrs_init(&a, FL_OP_REF(gather));
    fl_attr_set(&a, FL_INDEXED_AXIS, axis);
    return EXPR_CALL(expr, &a, gather, fl_of(x), fl_of(index));
}

/* ---- maxima ---- */

/* True if windows as wide as this lie side by side, and fill the axis. -1: an axis that stays. */
static bool fills(const struct window *window, int along, int64_t size)
{
    return along < 0
        || (window->padding[along] == 0 && window->dilation[along] == 1 && window->stride[along] == window->size[along]
            && size % window->size[along] == 0);
}

/* Of such windows each is brought together: lines are searched faster than windows of which few lie in a row. */
static fl_tensor *expr_max_lines(fl_expr *expr, fl_tensor **taps, fl_tensor *x, const struct window *window, int rows,
                                 int columns)
{
    static const int64_t order[] = {0, 1, 2, 4, 3, 5};
    const int64_t *dims = x->meta->shape.dims;
    int64_t high = rows < 0 ? 1 : window->size[rows], wide = window->size[columns];
    fl_shape cut = {6, {dims[0], dims[1], dims[2] / high, high, dims[3] / wide, wide}};
    fl_shape lines = {5, {dims[0], dims[1], dims[2] / high, dims[3] / wide, high * wide}};
    fl_attrs a;
    fl_attrs_init(&a, FL_OP_REF(max_axis));
    fl_attr_set(&a, FL_REDUCE_AXIS, PLANE + 2);
    fl_tensor *windows = expr_reshape(expr, expr_permuted(expr, expr_reshape(expr, x, &cut), order), &lines);
    fl_tensor *y = EXPR_CALL(expr, &a, max_axis, fl_of(windows));
    if (taps) *taps = expr->status == FL_OK ? expr->owned[expr->count - 1] : NULL;
    return y;
}

/* The maximum of planes and, where `taps` is not NULL, the tap of each window that it lies at. */
static fl_tensor *expr_max_planes(fl_expr *expr, fl_tensor **taps, fl_tensor *x, const struct window *window, int rows,
                                  int columns)
{
    fl_attrs a;
    const int at[PLANE] = {rows, columns};
    int64_t dilation[PLANE];
    if (expr->status != FL_OK) return NULL;
    const int64_t *dims = x->meta->shape.dims;
    if (columns >= 0 && window->size[columns] >= LONG_WINDOW && fills(window, rows, dims[PLANE])
        && fills(window, columns, dims[PLANE + 1]))
        return expr_max_lines(expr, taps, x, window, rows, columns);
    for (int d = 0; d < PLANE; d++) dilation[d] = at[d] < 0 ? 1 : window->dilation[at[d]];
    const fl_op *op = fl_max_pool2d_op(x, taps != NULL);
    plane_attrs(&a, op, window, rows, columns);
    fl_attr_set_list(&a, FL_POOL_DILATION, dilation, PLANE);
    fl_attr_set(&a, FL_POOL_MAX_CEIL, window->ceil);
    fl_tensor *y = fl_expr_call(expr, op, (const fl_operand[]){fl_of(x)}, 1, &a);
    if (taps) *taps = expr->status == FL_OK ? expr->owned[expr->count - 1] : NULL;
    return y;
}

static fl_tensor *expr_max(fl_expr *expr, fl_tensor **positions, fl_tensor *x, const struct window *window)
{
    const fl_shape *shape = &x->meta->shape;
    const int64_t *size = shape->dims + window->first;
    int rows = window->axes == 1 ? -1 : window->axes - 2, columns = window->axes - 1;
    int64_t high = window->axes == 1 ? 1 : size[rows], wide = size[columns], sizes[MOST_AXES];
    fl_tensor *taps = NULL, **found = positions ? &taps : NULL, *places = NULL;
    fl_tensor *y = expr_max_planes(expr, found, expr_planes(expr, x, high, wide), window, rows, columns);
    if (positions) places = expr_plane_positions(expr, taps, window, rows, columns, wide);
    if (expr->status != FL_OK) return NULL;
    sizes[0] = size[0];
    for (int d = 0; d < PLANE; d++)
        sizes[window->axes - PLANE + d + (window->axes == 1)] = y->meta->shape.dims[PLANE + d];
    if (window->axes == 1) sizes[0] = y->meta->shape.dims[PLANE + 1];
    if (window->axes == 3) {
        int64_t plane = sizes[1] * sizes[2];
        fl_shape lines = {4, {shape->dims[0], window->first == 2 ? shape->dims[1] : 1, size[0], plane}};
        y = expr_max_planes(expr, found, expr_reshape(expr, y, &lines), window, 0, -1);
        if (positions) {
            fl_tensor *depth = expr_plane_positions(expr, taps, window, 0, -1, 1);
            places = expr_gathered(expr, expr_reshape(expr, places, &lines), depth, PLANE);
            places = expr_add(expr, places, expr_times(expr, depth, high * wide));
        }
        if (expr->status == FL_OK) sizes[0] = y->meta->shape.dims[PLANE];
    }
    if (positions) *positions = expr_sized(expr, places, shape, window->first, sizes, window->axes);
    return expr_sized(expr, y, shape, window->first, sizes, window->axes);
}

static fl_status max_pool(fl_tensor **out, const fl_op *op, int axes, const fl_operand *in, const fl_attrs *attrs)
{
    fl_expr c = {0};
    struct window w;
    FL_TRY(read_window(&w, op->name, axes, in[0].tensor, attrs, true, FL_POOL_MAX_CEIL));
    fl_tensor *positions = NULL, *y = expr_max(&c, op->nout == 2 ? &positions : NULL, in[0].tensor, &w);
    out[0] = fl_expr_take(&c, y);
    if (op->nout == 2) out[1] = fl_expr_take(&c, positions);
    return fl_expr_end(&c);
}

#define MAX_ATTRS \
    "kernel_size: ints, stride: ints = nil, padding: ints = 0, dilation: ints = 1, ceil_mode: bool = false"

#define MAX_POOL(name_, axes_, nout_, doc_, ...)                                                         \
    static fl_status body_##name_(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs) \
    {                                                                                                    \
        return max_pool(out, FL_OP_REF(name_), axes_, in, attrs);                                        \
    }                                                                                                    \
    FL_OP(name_) = {                                                                                     \
        .name = #name_,                                                                                  \
        .sig = #name_ "(x, " MAX_ATTRS ")",                                                              \
        .nout = nout_,                                                                                   \
        .flags = FL_OP_FUNCTION_ONLY,                                                                    \
        .doc = doc_,                                                                                     \
        .body = body_##name_,                                                                            \
        FL_SAMPLES(__VA_ARGS__),                                                                         \
    }

MAX_POOL(max_pool1d, 1, 1, "The largest element of every window of x [n, channels, length].",
         "flow.randn(2, 3, 7), 3, 2, 1", "flow.randn(3, 8), 2, nil, 0, 2, true");
MAX_POOL(max_pool3d, 3, 1, "The largest element of every window of x [n, channels, depth, height, width].",
         "flow.randn(2, 2, 4, 5, 4), 2", "flow.randn(2, 4, 3, 5), {2, 2, 3}, {1, 2, 1}, {1, 0, 1}, 1, true");
MAX_POOL(max_pool1d_with_indices, 1, 2, "max_pool1d, and the position of each maximum on its line.",
         "flow.randn(2, 3, 7), 3, 2, 1", "flow.randn(3, 8), 2, nil, 0, 2, true");
MAX_POOL(max_pool2d_with_indices, 2, 2, "max_pool2d, and the position of each maximum in its plane.",
         "flow.randn(2, 3, 5, 6), {3, 2}, 2, 1", "flow.randn(3, 5, 8), 2, nil, 0, 2, true");
MAX_POOL(max_pool3d_with_indices, 3, 2, "max_pool3d, and the position of each maximum in its volume.",
         "flow.randn(2, 2, 4, 5, 4), 2", "flow.randn(2, 4, 3, 5), {2, 2, 3}, {1, 2, 1}, {1, 0, 1}, 1, true");

/* ---- averages ---- */

static fl_tensor *expr_average_planes(fl_expr *expr, fl_tensor *x, const struct window *window, int rows, int columns,
                                      bool padding, int64_t divisor)
{
    fl_attrs a;
    plane_attrs(&a, FL_OP_REF(avg_pool2d), window, rows, columns);
    fl_attr_set(&a, FL_POOL_AVERAGE_CEIL, window->ceil);
    fl_attr_set(&a, FL_POOL_COUNT_PADDING, padding);
    if (divisor) fl_attr_set(&a, FL_POOL_DIVISOR, divisor);
    return EXPR_CALL(expr, &a, avg_pool2d, fl_of(x));
}

/* divisor 0: the number of elements */
static fl_tensor *expr_average(fl_expr *expr, fl_tensor *x, const struct window *window, bool padding, int64_t divisor)
{
    if (expr->status != FL_OK) return NULL;
    const fl_shape *shape = &x->meta->shape;
    const int64_t *size = shape->dims + window->first;
    int rows = window->axes == 1 ? -1 : window->axes - 2, columns = window->axes - 1;
    int64_t sizes[MOST_AXES] = {size[0]};
    fl_tensor *planes = expr_planes(expr, x, window->axes == 1 ? 1 : size[rows], size[columns]);
    fl_tensor *y = expr_average_planes(expr, planes, window, rows, columns, padding,
                                       window->axes == 3 && divisor ? 1 : divisor);
    if (expr->status != FL_OK) return NULL;
    if (rows >= 0) sizes[rows] = y->meta->shape.dims[PLANE];
    sizes[columns] = y->meta->shape.dims[PLANE + 1];
    if (window->axes == 3) {
        fl_shape lines = {4, {shape->dims[0], window->first == 2 ? shape->dims[1] : 1, size[0], sizes[1] * sizes[2]}};
        y = expr_average_planes(expr, expr_reshape(expr, y, &lines), window, 0, -1, padding, divisor);
        if (expr->status == FL_OK) sizes[0] = y->meta->shape.dims[PLANE];
    }
    return expr_sized(expr, y, shape, window->first, sizes, window->axes);
}

static fl_status avg_pool(fl_tensor **out, const char *who, int axes, const fl_operand *in, const fl_attrs *attrs)
{
    fl_expr c = {0};
    struct window w;
    const fl_attr *divisor = axes == 1 ? NULL : &attrs->at[FL_POOL_DIVISOR];
    FL_TRY(read_window(&w, who, axes, in[0].tensor, attrs, false, FL_POOL_AVERAGE_CEIL));
    if (divisor && divisor->given && divisor->integer == 0)
        return fl_fail(FL_ERR_VALUE, "%s: divisor_override must not be 0", who);
    fl_tensor *y = expr_average(&c, expr_widen(&c, in[0].tensor), &w, attrs->at[FL_POOL_COUNT_PADDING].integer != 0,
                                divisor && divisor->given ? divisor->integer : 0);
    *out = fl_expr_take(&c, expr_cast(&c, y, in[0].tensor->meta->dtype));
    return fl_expr_end(&c);
}

#define AVG_POOL(name_, axes_, more_, doc_, ...)                                                                \
    static fl_status body_##name_(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)        \
    {                                                                                                           \
        return avg_pool(out, #name_, axes_, in, attrs);                                                         \
    }                                                                                                           \
    FL_OP(name_) = {                                                                                            \
        .name = #name_,                                                                                         \
        .sig = #name_ "(x, kernel_size: ints, stride: ints = nil, padding: ints = 0, ceil_mode: bool = false, " \
                      "count_include_pad: bool = true" more_ ")",                                               \
        .nout = 1,                                                                                              \
        .flags = FL_OP_FUNCTION_ONLY,                                                                           \
        .doc = doc_,                                                                                            \
        .body = body_##name_,                                                                                   \
        FL_SAMPLES(__VA_ARGS__),                                                                                \
    }

AVG_POOL(avg_pool1d, 1, "", "The mean of every window of x [n, channels, length].", "flow.randn(2, 3, 7), 3, 2, 1",
         "flow.randn(3, 8), 3, 2, 1, true, false");
AVG_POOL(avg_pool3d, 3, ", divisor_override: int = nil",
         "The mean of every window of x [n, channels, depth, height, width].", "flow.randn(2, 2, 4, 5, 4), 2",
         "flow.randn(2, 4, 3, 5), {2, 2, 3}, {1, 2, 1}, {1, 0, 1}, true, false",
         "flow.randn(2, 2, 4, 5, 4), 2, {divisor_override = 5}");

/* ---- powers ---- */

enum { POWER_NORM, POWER_KERNEL, POWER_STRIDE, POWER_CEIL };

/* The sum of x^p over every window, to the power 1 / p; of negative sums the sign stays. */
static fl_status lp_pool(fl_tensor **out, const char *who, int axes, const fl_operand *in, const fl_attrs *attrs)
{
    fl_expr c = {0};
    struct window w = {.who = who, .axes = axes, .ceil = attrs->at[POWER_CEIL].integer != 0};
    double p = fl_attr_number(&attrs->at[POWER_NORM]), count = 1;
    FL_TRY(check_x(&w, in[0].tensor));
    if (p == 0) return fl_fail(FL_ERR_VALUE, "%s: norm_type must not be 0", who);
    FL_TRY(read_sizes(w.size, &w, &attrs->at[POWER_KERNEL], "kernel_size", 1));
    memcpy(w.stride, w.size, sizeof w.stride);
    if (attrs->at[POWER_STRIDE].count > 0) FL_TRY(read_sizes(w.stride, &w, &attrs->at[POWER_STRIDE], "stride", 1));
    for (int d = 0; d < axes; d++) count *= (double)w.size[d];
    fl_tensor *x = expr_widen(&c, in[0].tensor);
    fl_tensor *powers = EXPR_CALL(&c, NULL, pow, fl_of(x), fl_of_number(p));
    fl_tensor *mean = expr_average(&c, powers, &w, true, 0);
    fl_tensor *size = EXPR_CALL(&c, NULL, relu, fl_of(EXPR_CALL(&c, NULL, abs, fl_of(mean))));
    fl_tensor *sum = expr_mul_number(&c, expr_mul(&c, EXPR_CALL(&c, NULL, sign, fl_of(mean)), size), count);
    fl_tensor *y = EXPR_CALL(&c, NULL, pow, fl_of(sum), fl_of_number(1 / p));
    *out = fl_expr_take(&c, expr_cast(&c, y, in[0].tensor->meta->dtype));
    return fl_expr_end(&c);
}

#define LP_POOL(name_, axes_, doc_, ...)                                                                        \
    static fl_status body_##name_(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)        \
    {                                                                                                           \
        return lp_pool(out, #name_, axes_, in, attrs);                                                          \
    }                                                                                                           \
    FL_OP(name_) = {                                                                                            \
        .name = #name_,                                                                                         \
        .sig = #name_ "(x, norm_type: scalar, kernel_size: ints, stride: ints = nil, ceil_mode: bool = false)", \
        .nout = 1,                                                                                              \
        .flags = FL_OP_FUNCTION_ONLY,                                                                           \
        .doc = doc_,                                                                                            \
        .body = body_##name_,                                                                                   \
        FL_SAMPLES(__VA_ARGS__),                                                                                \
    }

LP_POOL(lp_pool1d, 1, "The norm_type-norm of every window of x [n, channels, length].", "flow.randn(2, 3, 7), 2, 3, 2",
        "flow.rand(3, 8) + 0.5, 3, 2");
LP_POOL(lp_pool2d, 2, "The norm_type-norm of every window of x [n, channels, height, width].",
        "flow.randn(2, 3, 5, 6), 2, {3, 2}, 1, true");
LP_POOL(lp_pool3d, 3, "The norm_type-norm of every window of x [n, channels, depth, height, width].",
        "flow.randn(2, 2, 3, 4, 4), 2, 2");

/* ---- adaptive maxima ---- */

/* Windows [i n / size, (i + 1) n / size) of an axis: their positions side by side, the last one again where a window is
** shorter than the longest of `longest`. */
static fl_tensor *expr_windows(fl_expr *expr, fl_tensor *x, int64_t n, int64_t size, int64_t longest)
{
    fl_shape column = {2, {size, 1}}, all = {1, {size * longest}};
    fl_tensor *i = expr_reshape(expr, expr_range(expr, x, 0, size, 1), &column);
    fl_tensor *begin = EXPR_CALL(expr, NULL, floor_divide, fl_of(expr_times(expr, i, n)), fl_of_integer(size));
    fl_tensor *after = EXPR_CALL(expr, NULL, add, fl_of(expr_times(expr, i, n)), fl_of_integer(n + size - 1));
    fl_tensor *last = EXPR_CALL(expr, NULL, floor_divide, fl_of(after), fl_of_integer(size));
    last = EXPR_CALL(expr, NULL, sub, fl_of(last), fl_of_integer(1));
    fl_tensor *at = expr_add(expr, begin, expr_range(expr, x, 0, longest, 1));
    return expr_reshape(expr, EXPR_CALL(expr, NULL, minimum, fl_of(at), fl_of(last)), &all);
}

/* The maxima of the windows of one axis and their positions on it. */
static fl_tensor *expr_max_windows(fl_expr *expr, fl_tensor **positions, fl_tensor *x, int axis, int64_t size)
{
    if (expr->status != FL_OK) return NULL;
    fl_attrs a;
    int64_t n = x->meta->shape.dims[axis], longest = 0;
    for (int64_t i = 0; i < size; i++) {
        int64_t length = ((i + 1) * n + size - 1) / size - i * n / size;
        if (length > longest) longest = length;
    }
    fl_tensor *windows = expr_windows(expr, x, n, size, longest);
    fl_attrs_init(&a, FL_OP_REF(index_select));
    fl_attr_set(&a, FL_INDEXED_AXIS, axis);
    fl_tensor *spread = EXPR_CALL(expr, &a, index_select, fl_of(x), fl_of(windows));
    if (expr->status != FL_OK) return NULL;
    fl_shape shape = spread->meta->shape;
    for (int i = shape.ndim++; i > axis + 1; i--) shape.dims[i] = shape.dims[i - 1];
    shape.dims[axis] = size;
    shape.dims[axis + 1] = longest;
    fl_attrs_init(&a, FL_OP_REF(max_axis));
    fl_attr_set(&a, FL_REDUCE_AXIS, axis + 1);
    fl_tensor *y = EXPR_CALL(expr, &a, max_axis, fl_of(expr_reshape(expr, spread, &shape)));
    if (expr->status != FL_OK) return NULL;
    fl_tensor *which = expr->owned[expr->count - 1];
    int ndim = y->meta->shape.ndim;
    fl_tensor *begin = EXPR_CALL(expr, NULL, floor_divide, fl_of(expr_line(expr, x, 0, size, n, axis, ndim)),
                                 fl_of_integer(size));
    *positions = expr_add(expr, begin, which);
    return y;
}

/* True if the parts are windows of one size, side by side; they are then the window's. */
static bool are_windows(struct window *window, const int64_t *parts, const fl_shape *shape)
{
    int64_t elements = 1;
    for (int d = 0; d < window->axes; d++) {
        int64_t size = shape->dims[window->first + d];
        if (size % parts[d] != 0 || size / parts[d] > INT32_MAX / elements) return false;
        window->size[d] = window->stride[d] = size / parts[d];
        window->dilation[d] = 1;
        elements *= window->size[d];
    }
    return true;
}

/* Numbers of windows, of which -1 leaves an axis as it is. */
static fl_status read_output_sizes(int64_t *sizes, const struct window *window, const fl_attr *attr,
                                   const fl_shape *shape)
{
    FL_TRY(read_sizes(sizes, window, attr, "output_size", -1));
    for (int d = 0; d < window->axes; d++) {
        if (sizes[d] == 0)
            return fl_fail(FL_ERR_VALUE, "%s: output_size must be 1 or more, or -1 for the size of x, got 0",
                           window->who);
        if (sizes[d] < 0) sizes[d] = shape->dims[window->first + d];
    }
    return FL_OK;
}

static fl_status adaptive_max(fl_tensor **out, const fl_op *op, int axes, const fl_operand *in, const fl_attr *sizes)
{
    fl_expr c = {0};
    struct window w = {.who = op->name, .axes = axes};
    int64_t size[MOST_AXES], step = 1;
    fl_tensor *y = in[0].tensor, *places = NULL, *here = NULL;
    FL_TRY(check_x(&w, y));
    const fl_shape *shape = &in[0].tensor->meta->shape;
    FL_TRY(read_output_sizes(size, &w, sizes, shape));
    for (int d = 0; d < axes; d++)
        if (shape->dims[w.first + d] == 0)
            return fl_fail(FL_ERR_SHAPE, "%s: axis %d of x has size 0", op->name, w.first + d);
    bool at_once = are_windows(&w, size, shape);
    if (at_once) y = expr_max(&c, op->nout == 2 ? &places : NULL, y, &w);
    for (int d = axes - 1; d >= 0 && !at_once; d--) {
        y = expr_max_windows(&c, &here, y, w.first + d, size[d]);
        if (op->nout == 2) {
            fl_tensor *before = places ? expr_gathered(&c, places, here, w.first + d) : NULL;
            fl_tensor *steps = expr_times(&c, here, step);
            places = before ? expr_add(&c, before, steps) : steps;
        }
        step *= shape->dims[w.first + d];
    }
    out[0] = fl_expr_take(&c, y);
    if (op->nout == 2) out[1] = fl_expr_take(&c, places);
    return fl_expr_end(&c);
}

#define ADAPTIVE_MAX(name_, axes_, nout_, doc_, ...)                                                     \
    static fl_status body_##name_(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs) \
    {                                                                                                    \
        return adaptive_max(out, FL_OP_REF(name_), axes_, in, &attrs->at[0]);                            \
    }                                                                                                    \
    FL_OP(name_) = {                                                                                     \
        .name = #name_,                                                                                  \
        .sig = #name_ "(x, output_size: ints)",                                                          \
        .nout = nout_,                                                                                   \
        .flags = FL_OP_FUNCTION_ONLY,                                                                    \
        .doc = doc_,                                                                                     \
        .body = body_##name_,                                                                            \
        FL_SAMPLES(__VA_ARGS__),                                                                         \
    }

ADAPTIVE_MAX(adaptive_max_pool1d, 1, 1,
             "Maxima of x [n, channels, length] over output_size windows of nearly equal length; -1: as many as x has.",
             "flow.randn(2, 3, 7), 3");
ADAPTIVE_MAX(adaptive_max_pool2d, 2, 1,
             "Maxima of x [n, channels, height, width] over output_size windows of nearly equal size; of an axis with "
             "-1 as many as x has.",
             "flow.randn(2, 3, 5, 7), {2, 3}");
ADAPTIVE_MAX(
    adaptive_max_pool3d, 3, 1,
    "Maxima of x [n, channels, depth, height, width] over output_size windows of nearly equal size; of an axis with "
    "-1 as many as x has.",
    "flow.randn(2, 2, 3, 4, 5), {2, 3, 2}");
ADAPTIVE_MAX(adaptive_max_pool1d_with_indices, 1, 2,
             "adaptive_max_pool1d, and the position of each maximum on its line.", "flow.randn(2, 3, 7), 3");
ADAPTIVE_MAX(adaptive_max_pool2d_with_indices, 2, 2,
             "adaptive_max_pool2d, and the position of each maximum in its plane.", "flow.randn(2, 3, 5, 7), {2, 3}");
ADAPTIVE_MAX(adaptive_max_pool3d_with_indices, 3, 2,
             "adaptive_max_pool3d, and the position of each maximum in its volume.",
             "flow.randn(2, 2, 3, 4, 5), {2, 3, 2}");

/* ---- back ---- */

enum { UNPOOL_KERNEL, UNPOOL_STRIDE, UNPOOL_PADDING, UNPOOL_SIZE };

static fl_status unpool(fl_tensor **out, const char *who, int axes, const fl_operand *in, const fl_attrs *attrs)
{
    fl_expr c = {0};
    fl_attrs a;
    char tx[FL_META_TEXT], ti[FL_META_TEXT];
    struct window w = {.who = who, .axes = axes};
    const fl_meta *x = in[0].tensor->meta, *index = in[1].tensor->meta;
    int64_t size[MOST_AXES];
    FL_TRY(check_x(&w, in[0].tensor));
    if (index->dtype != FL_INT64 || !fl_shape_equal(&x->shape, &index->shape))
        return fl_fail(FL_ERR_SHAPE, "%s: indices must be int64 of the shape of x, %s, got %s", who,
                       fl_meta_text(tx, x), fl_meta_text(ti, index));
    FL_TRY(read_sizes(w.size, &w, &attrs->at[UNPOOL_KERNEL], "kernel_size", 1));
    memcpy(w.stride, w.size, sizeof w.stride);
    if (attrs->at[UNPOOL_STRIDE].count > 0) FL_TRY(read_sizes(w.stride, &w, &attrs->at[UNPOOL_STRIDE], "stride", 1));
    FL_TRY(read_sizes(w.padding, &w, &attrs->at[UNPOOL_PADDING], "padding", 0));
    for (int d = 0; d < axes; d++)
        size[d] = (x->shape.dims[w.first + d] - 1) * w.stride[d] - 2 * w.padding[d] + w.size[d];
    if (attrs->at[UNPOOL_SIZE].count > 0) FL_TRY(read_sizes(size, &w, &attrs->at[UNPOOL_SIZE], "output_size", 1));
    fl_shape lines = {w.first + 1, {0}}, room;
    memcpy(lines.dims, x->shape.dims, sizeof *lines.dims * (size_t)w.first);
    lines.dims[w.first] = 1;
    for (int d = 0; d < axes; d++) lines.dims[w.first] *= x->shape.dims[w.first + d];
    room = lines;
    room.dims[w.first] = 1;
    for (int d = 0; d < axes; d++) {
        if (size[d] < 1) return fl_fail(FL_ERR_SHAPE, "%s: the result would have size %lld", who, (long long)size[d]);
        room.dims[w.first] *= size[d];
    }
    fl_shape checked;
    FL_TRY(fl_shape_make(&checked, who, room.dims, room.ndim));
    fl_attrs_init(&a, FL_OP_REF(scatter));
    fl_attr_set(&a, FL_INDEXED_AXIS, w.first);
    fl_tensor *y = EXPR_CALL(&c, &a, scatter, fl_of(expr_zeros_of(&c, in[0].tensor, &checked)),
                             fl_of(expr_reshape(&c, in[1].tensor, &lines)),
                             fl_of(expr_reshape(&c, in[0].tensor, &lines)));
    *out = fl_expr_take(&c, expr_sized(&c, y, &x->shape, w.first, size, axes));
    return fl_expr_end(&c);
}

#define UNPOOL(name_, axes_, doc_, ...)                                                                  \
    static fl_status body_##name_(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs) \
    {                                                                                                    \
        return unpool(out, #name_, axes_, in, attrs);                                                    \
    }                                                                                                    \
    FL_OP(name_) = {                                                                                     \
        .name = #name_,                                                                                  \
        .sig = #name_ "(x, indices, kernel_size: ints, stride: ints = nil, padding: ints = 0, "          \
                      "output_size: ints = nil)",                                                        \
        .nout = 1,                                                                                       \
        .flags = FL_OP_FUNCTION_ONLY,                                                                    \
        .doc = doc_,                                                                                     \
        .body = body_##name_,                                                                            \
        FL_SAMPLES(__VA_ARGS__),                                                                         \
    }

UNPOOL(max_unpool1d, 1,
       "Zeros with each element of x at its position on a line, as max_pool1d_with_indices gives them.",
       "flow.randn(2, 3), flow.tensor({{0, 2, 5}, {1, 3, 4}}), 2");
UNPOOL(max_unpool2d, 2,
       "Zeros with each element of x at its position in a plane, as max_pool2d_with_indices gives them.",
       "flow.randn(1, 1, 2), flow.tensor({{{5, 2}}}), 2",
       "flow.randn(1, 1, 2), flow.tensor({{{5, 2}}}), 2, {output_size = {2, 5}}");
UNPOOL(max_unpool3d, 3,
       "Zeros with each element of x at its position in a volume, as max_pool3d_with_indices gives them.",
       "flow.randn(1, 1, 1, 2), flow.tensor({{{{9, 2}}}}), 2");
