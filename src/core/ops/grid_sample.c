/*
** grid_sample.c -- images read at the points of a grid, and the grids of affine maps.
**
** Points lie between -1 and 1 on each axis, from edge to edge. Reading is a sum over the elements around a point, each
** gathered from the image as a line; gradients are those of gathering and of the weights.
*/
#include "op/indexing.h"
#include "expr.h"

enum { GRID_X, GRID_POINTS };
enum { GRID_MODE, GRID_PADDING, GRID_CORNERS };
enum { MODE_BILINEAR, MODE_NEAREST, MODE_BICUBIC };
enum { PADDING_ZEROS, PADDING_BORDER, PADDING_REFLECTION };
enum { MOST_AXES = 3 };

static fl_tensor *expr_op(fl_expr *expr, const fl_op *op, fl_tensor *x)
{
    return fl_expr_call(expr, op, (const fl_operand[]){fl_of(x)}, 1, NULL);
}

static fl_tensor *expr_clamped(fl_expr *expr, fl_tensor *x, double low, double high)
{
    x = EXPR_CALL(expr, NULL, maximum, fl_of(x), fl_of_number(low));
    return EXPR_CALL(expr, NULL, minimum, fl_of(x), fl_of_number(high));
}

/* ---- points ---- */

/* Points of an axis of n elements as positions on it. */
static fl_tensor *expr_positions(fl_expr *expr, fl_tensor *points, int64_t n, bool corners)
{
    double size = (double)n;
    if (corners) return expr_mul_number(expr, expr_add_number(expr, points, 1), (size - 1) / 2);
    fl_tensor *scaled = expr_mul_number(expr, expr_add_number(expr, points, 1), size);
    return expr_mul_number(expr, expr_add_number(expr, scaled, -1), 0.5);
}

/* Positions mirrored between the edges as often as needed. */
static fl_tensor *expr_reflected(fl_expr *expr, fl_tensor *at, int64_t n, bool corners)
{
    double low = corners ? 0 : -0.5, span = corners ? (double)(n - 1) : (double)n;
    if (span <= 0) return expr_mul_number(expr, at, 0);
    fl_tensor *from = expr_op(expr, FL_OP_REF(abs), expr_add_number(expr, at, -low));
    fl_tensor *turn = EXPR_CALL(expr, NULL, remainder, fl_of(from), fl_of_number(2 * span));
    fl_tensor *back = EXPR_CALL(expr, NULL, add, fl_of(expr_neg(expr, turn)), fl_of_number(2 * span));
    return expr_add_number(expr, EXPR_CALL(expr, NULL, minimum, fl_of(turn), fl_of(back)), low);
}

static fl_tensor *expr_padded(fl_expr *expr, fl_tensor *at, int64_t n, int64_t padding, bool corners)
{
    if (padding == PADDING_ZEROS) return at;
    if (padding == PADDING_REFLECTION) at = expr_reflected(expr, at, n, corners);
    return expr_clamped(expr, at, 0, (double)(n - 1));
}

/* ---- elements around a point ---- */

/* One axis: where the elements around each point lie, and their weights. */
struct around {
    int count;
    fl_tensor *place[4], *weight[4]; /* floats that are whole numbers; weight NULL: 1 */
};

static void around_linear(struct around *around, fl_expr *expr, fl_tensor *at)
{
    fl_tensor *first = expr_op(expr, FL_OP_REF(floor), at), *over = expr_sub(expr, at, first);
    around->count = 2;
    around->place[0] = first;
    around->place[1] = expr_add_number(expr, first, 1);
    around->weight[0] = expr_add_number(expr, expr_neg(expr, over), 1);
    around->weight[1] = over;
}

/* The cubic convolution with a = -0.75 at distance x: below 1, and between 1 and 2. */
static fl_tensor *expr_near(fl_expr *expr, fl_tensor *x)
{
    fl_tensor *slope = expr_add_number(expr, expr_mul_number(expr, x, 1.25), -2.25);
    return expr_add_number(expr, expr_mul(expr, slope, expr_mul(expr, x, x)), 1);
}

static fl_tensor *expr_far(fl_expr *expr, fl_tensor *x)
{
    fl_tensor *y = expr_add_number(expr, expr_mul_number(expr, x, -0.75), 3.75);
    y = expr_add_number(expr, expr_mul(expr, y, x), -6);
    return expr_add_number(expr, expr_mul(expr, y, x), 3);
}

static void around_cubic(struct around *around, fl_expr *expr, fl_tensor *at)
{
    fl_tensor *first = expr_op(expr, FL_OP_REF(floor), at), *over = expr_sub(expr, at, first);
    fl_tensor *rest = expr_add_number(expr, expr_neg(expr, over), 1);
    around->count = 4;
    for (int i = 0; i < 4; i++) around->place[i] = expr_add_number(expr, first, i - 1);
    around->weight[0] = expr_far(expr, expr_add_number(expr, over, 1));
    around->weight[1] = expr_near(expr, over);
    around->weight[2] = expr_near(expr, rest);
    around->weight[3] = expr_far(expr, expr_add_number(expr, rest, 1));
}

static void around_of(struct around *around, fl_expr *expr, fl_tensor *at, int64_t mode)
{
    *around = (struct around){.count = 1};
    if (mode == MODE_BILINEAR) around_linear(around, expr, at);
    else if (mode == MODE_BICUBIC) around_cubic(around, expr, at);
    else around->place[0] = expr_op(expr, FL_OP_REF(round), at);
}

/* 1 where the place is on the axis, else 0. */
static fl_tensor *expr_inside(fl_expr *expr, fl_tensor *place, int64_t n)
{
    fl_tensor *from = EXPR_CALL(expr, NULL, ge, fl_of(place), fl_of_number(0)),
              *to = EXPR_CALL(expr, NULL, lt, fl_of(place), fl_of_number((double)n));
    fl_tensor *both = EXPR_CALL(expr, NULL, logical_and, fl_of(from), fl_of(to));
    return expr_cast(expr, both, place ? place->meta->dtype : FL_FLOAT32);
}

/* ---- the sum ---- */

/* x [n, channels, elements], points as [n, places]. */
struct reading {
    fl_tensor *lines;
    int axes;
    int64_t size[MOST_AXES];
    int64_t padding, mode;
    bool corners;
    struct around around[MOST_AXES];
};

/* Elements of the lines at an index [n, places], each times its weight. */
static fl_tensor *expr_read(fl_expr *expr, const struct reading *reading, fl_tensor *index, fl_tensor *weight)
{
    fl_attrs a;
    if (expr->status != FL_OK) return NULL;
    const fl_shape *lines = &reading->lines->meta->shape, *places = &index->meta->shape;
    fl_shape shape = {3, {lines->dims[0], lines->dims[1], places->dims[1]}};
    fl_attrs_init(&a, FL_OP_REF(gather));
    fl_attr_set(&a, FL_INDEXED_AXIS, 2);
    fl_tensor *all = expr_expanded(expr, expr_unsqueeze(expr, index, 1), &shape);
    fl_tensor *values = EXPR_CALL(expr, &a, gather, fl_of(reading->lines), fl_of(all));
    return weight ? expr_mul(expr, values, expr_unsqueeze(expr, weight, 1)) : values;
}

/* The element around each point that `which` names on each axis: its line index, and its weight, 0 outside. */
static fl_tensor *expr_index(fl_expr *expr, fl_tensor **weight, const struct reading *reading, const int *which)
{
    fl_tensor *index = NULL;
    *weight = NULL;
    for (int axis = 0; axis < reading->axes; axis++) {
        int64_t n = reading->size[axis];
        fl_tensor *place = reading->around[axis].place[which[axis]], *own = reading->around[axis].weight[which[axis]];
        if (reading->mode == MODE_BICUBIC) place = expr_padded(expr, place, n, reading->padding, reading->corners);
        if (reading->padding == PADDING_ZEROS) {
            fl_tensor *inside = expr_inside(expr, place, n);
            own = own ? expr_mul(expr, own, inside) : inside;
        }
        place = expr_cast(expr, expr_clamped(expr, place, 0, (double)(n - 1)), FL_INT64);
        if (index) index = EXPR_CALL(expr, NULL, mul, fl_of(index), fl_of_integer(n));
        index = index ? expr_add(expr, index, place) : place;
        if (own) *weight = *weight ? expr_mul(expr, *weight, own) : own;
    }
    return index;
}

/* One of the elements around each point, in an expression of its own, added to *sum, which is owned. */
static fl_status add_element(fl_tensor **sum, const struct reading *reading, const int *which)
{
    fl_expr c = {0};
    fl_tensor *weight, *index = expr_index(&c, &weight, reading, which), *y = expr_read(&c, reading, index, weight);
    if (*sum) y = expr_add(&c, *sum, y);
    fl_tensor *next = fl_expr_take(&c, y);
    FL_TRY(fl_expr_end(&c));
    if (*sum) fl_tensor_unref(*sum);
    *sum = next;
    return FL_OK;
}

static fl_status sum_elements(fl_tensor **sum, const struct reading *reading)
{
    int which[MOST_AXES] = {0}, total = 1;
    for (int d = 0; d < reading->axes; d++) total *= reading->around[d].count;
    for (int i = 0; i < total; i++) {
        for (int d = reading->axes - 1, left = i; d >= 0; d--) {
            which[d] = left % reading->around[d].count;
            left /= reading->around[d].count;
        }
        FL_TRY(add_element(sum, reading, which));
    }
    return FL_OK;
}

static fl_status check_grid(const fl_operand *in, const fl_attrs *attrs)
{
    char tx[FL_META_TEXT], tg[FL_META_TEXT];
    const fl_meta *x = in[GRID_X].tensor->meta, *g = in[GRID_POINTS].tensor->meta;
    int axes = x->shape.ndim - 2;
    bool fits = (axes == 2 || axes == 3) && g->shape.ndim == axes + 2 && g->shape.dims[axes + 1] == axes
        && g->shape.dims[0] == x->shape.dims[0] && x->dtype == g->dtype && fl_dtype_is_float(x->dtype);
    if (!fits)
        return fl_fail(
            FL_ERR_SHAPE,
            "grid_sample: takes x [n, channels, height, width] and grid [n, rows, columns, 2] (with a depth: 3) "
            "of one float dtype, got %s and %s",
            fl_meta_text(tx, x), fl_meta_text(tg, g));
    if (axes == 3 && attrs->at[GRID_MODE].integer == MODE_BICUBIC)
        return fl_fail(FL_ERR_VALUE, "grid_sample: mode bicubic takes images, got x %s", fl_meta_text(tx, x));
    for (int d = 0; d < axes; d++)
        if (x->shape.dims[2 + d] == 0)
            return fl_fail(FL_ERR_SHAPE, "grid_sample: x %s has an image without elements", fl_meta_text(tx, x));
    return FL_OK;
}

static fl_status body_grid_sample(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    fl_expr c = {0};
    FL_TRY(check_grid(in, attrs));
    const fl_shape *shape = &in[GRID_X].tensor->meta->shape, *grid = &in[GRID_POINTS].tensor->meta->shape;
    int axes = shape->ndim - 2;
    struct reading r = {.axes = axes,
                        .mode = attrs->at[GRID_MODE].integer,
                        .padding = attrs->at[GRID_PADDING].integer,
                        .corners = attrs->at[GRID_CORNERS].integer != 0};
    fl_shape lines = {3, {shape->dims[0], shape->dims[1], 1}}, places = {3, {grid->dims[0], 1, axes}};
    fl_shape result = {shape->ndim, {shape->dims[0], shape->dims[1]}};
    for (int d = 0; d < axes; d++) {
        r.size[d] = shape->dims[2 + d];
        lines.dims[2] *= r.size[d];
        places.dims[1] *= grid->dims[1 + d];
        result.dims[2 + d] = grid->dims[1 + d];
    }
    r.lines = expr_reshape(&c, expr_widen(&c, in[GRID_X].tensor), &lines);
    fl_tensor *points = expr_reshape(&c, expr_widen(&c, in[GRID_POINTS].tensor), &places);
    for (int d = 0; d < axes; d++) {
        fl_tensor *at = expr_positions(&c, expr_selected(&c, points, 2, axes - 1 - d), r.size[d], r.corners);
        if (r.mode != MODE_BICUBIC) at = expr_padded(&c, at, r.size[d], r.padding, r.corners);
        around_of(&r.around[d], &c, at, r.mode);
    }
    fl_tensor *sum = NULL;
    if (c.status == FL_OK) c.status = sum_elements(&sum, &r);
    if (c.status == FL_OK)
        *out = fl_expr_take(&c, expr_cast(&c, expr_reshape(&c, sum, &result), in[GRID_X].tensor->meta->dtype));
    if (sum) fl_tensor_unref(sum);
    return fl_expr_end(&c);
}

FL_OP(grid_sample) = {
    .name = "grid_sample",
    .sig = "grid_sample(x, grid, mode: bilinear|nearest|bicubic = bilinear, padding_mode: zeros|border|reflection = "
           "zeros, "
           "align_corners: bool = false)",
    .nout = 1,
    .flags = FL_OP_FUNCTION_ONLY,
    .doc = "Images x [n, channels, height, width] read at points grid [n, rows, columns, 2], (x, y) between -1 and 1.",
    .body = body_grid_sample,
    FL_SAMPLES("flow.randn(2, 3, 4, 5), flow.rand(2, 3, 2, 2) * 1.8 - 0.9",
               "flow.randn(2, 2, 4, 3), flow.rand(2, 2, 2, 2) * 1.8 - 0.9, 'bicubic', 'border'",
               "flow.randn(1, 2, 3, 4), flow.rand(1, 2, 3, 2) * 1.8 - 0.9, {padding_mode = 'reflection', align_corners "
               "= true}",
               "flow.randn(1, 2, 3, 4, 2), flow.rand(1, 2, 3, 2, 3) * 1.8 - 0.9",
               "flow.randn(2, 3, 4, 5), flow.rand(2, 3, 2, 2) * 1.8 - 0.9, 'nearest'"),
};

/* ---- affine_grid ---- */

/* The centres of `count` elements between -1 and 1, or with `corners` the elements from edge to edge. */
static fl_tensor *expr_centres(fl_expr *expr, fl_tensor *theta, int64_t count, bool corners)
{
    double n = (double)count;
    fl_tensor *i = expr_cast(expr, expr_range(expr, theta, 0, count, 1), theta ? theta->meta->dtype : FL_FLOAT32);
    if (corners && count == 1) return expr_mul_number(expr, i, 0);
    if (corners) return expr_add_number(expr, expr_mul_number(expr, i, 2 / (n - 1)), -1);
    return expr_add_number(expr, expr_mul_number(expr, i, 2 / n), 1 / n - 1);
}

enum { AFFINE_SIZE, AFFINE_CORNERS }; /* attributes of affine_grid */

/* The sizes of the grid, [n, rows, columns, 2] or with a depth, that belong to theta and `size`. */
static fl_status affine_shape(fl_shape *out, const fl_meta *theta, const fl_attr *size)
{
    char text[FL_META_TEXT];
    int axes = size->count - 2;
    const fl_shape *shape = &theta->shape;
    bool fits = (axes == 2 || axes == 3) && shape->ndim == 3 && shape->dims[1] == axes && shape->dims[2] == axes + 1
        && shape->dims[0] == size->list[0] && fl_dtype_is_float(theta->dtype);
    if (!fits)
        return fl_fail(FL_ERR_SHAPE,
                       "affine_grid: takes theta [n, 2, 3] and size {n, channels, height, width}, or [n, 3, 4] and a "
                       "depth too, got %s and %d sizes",
                       fl_meta_text(text, theta), size->count);
    *out = (fl_shape){axes + 2, {size->list[0]}};
    for (int i = 0; i < axes; i++) {
        out->dims[1 + i] = size->list[2 + i];
        if (size->list[2 + i] < 1)
            return fl_fail(FL_ERR_VALUE, "affine_grid: sizes must be 1 or more, got %lld",
                           (long long)size->list[2 + i]);
    }
    out->dims[axes + 1] = axes;
    return FL_OK;
}

/* Column `column` of theta times the coordinate that it belongs to: x, of the last axis, comes first, and the last
** column is added as it is. grid: the sizes of the result, along which the term broadcasts. */
static fl_tensor *affine_term(fl_expr *expr, fl_tensor *theta, int column, const fl_shape *grid, bool corners)
{
    int axes = grid->ndim - 2;
    fl_shape of_theta = {grid->ndim, {grid->dims[0], 1, 1, 1, 1}}, line = {grid->ndim, {1, 1, 1, 1, 1}};
    of_theta.dims[axes + 1] = axes;
    fl_tensor *factor = expr_reshape(expr, expr_selected(expr, theta, 2, column), &of_theta);
    if (column == axes) return factor;
    int axis = axes - column;
    line.dims[axis] = grid->dims[axis];
    return expr_mul(expr, factor, expr_reshape(expr, expr_centres(expr, theta, grid->dims[axis], corners), &line));
}

static fl_status body_affine_grid(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    fl_expr c = {0};
    fl_shape grid;
    const fl_meta *meta = in[0].tensor->meta;
    FL_TRY(affine_shape(&grid, meta, &attrs->at[AFFINE_SIZE]));
    fl_tensor *theta = expr_widen(&c, in[0].tensor), *sum = NULL;
    for (int column = 0; column < grid.ndim - 1 && c.status == FL_OK; column++) {
        fl_tensor *term = affine_term(&c, theta, column, &grid, attrs->at[AFFINE_CORNERS].integer != 0);
        sum = sum ? expr_add(&c, sum, term) : term;
    }
    *out = fl_expr_take(&c, expr_cast(&c, expr_expanded(&c, sum, &grid), meta->dtype));
    return fl_expr_end(&c);
}

FL_OP(affine_grid) = {
    .name = "affine_grid",
    .sig = "affine_grid(theta, size: ints, align_corners: bool = false)",
    .nout = 1,
    .flags = FL_OP_FUNCTION_ONLY,
    .doc = "The grid for grid_sample by which images of `size` are mapped by theta [n, 2, 3] (or [n, 3, 4]).",
    .body = body_affine_grid,
    FL_SAMPLES("flow.randn(2, 2, 3), {2, 3, 4, 5}", "flow.randn(1, 3, 4), {1, 2, 3, 2, 2}, true"),
};
