/*
** interpolate.c -- images in another size (interpolate), adaptive averages, sampling at a grid, and channels as pixels.
*/
#include "resample.h"

/* ---- interpolate ---- */

enum { SIZED_SIZE, SIZED_FACTOR, SIZED_MODE, SIZED_CORNERS, SIZED_AGAIN, SIZED_SMOOTH };
enum { NEAREST, LINEAR, BILINEAR, BICUBIC, TRILINEAR, AREA, NEAREST_EXACT };

static const struct {
    const char *name;
    int axes, rule; /* axes 0: any number */
} modes[] = {{"nearest", 0, FL_RESAMPLE_NEAREST},
             {"linear", 1, FL_RESAMPLE_LINEAR},
             {"bilinear", 2, FL_RESAMPLE_LINEAR},
             {"bicubic", 2, FL_RESAMPLE_CUBIC},
             {"trilinear", 3, FL_RESAMPLE_LINEAR},
             {"area", 0, FL_RESAMPLE_MEAN},
             {"nearest-exact", 0, FL_RESAMPLE_NEAREST_EXACT}};

static fl_status check_interpolate(const fl_tensor *x, const fl_attrs *attrs)
{
    char text[FL_META_TEXT];
    int64_t mode = attrs->at[SIZED_MODE].integer;
    int axes = x->meta->shape.ndim - 2, count = attrs->at[SIZED_SIZE].count;
    bool smooth = mode == BILINEAR || mode == BICUBIC, cornered = attrs->at[SIZED_CORNERS].given;
    FL_TRY(fl_require_float_tensor("interpolate", "x", x));
    if (axes < 1 || axes > 3 || (modes[mode].axes && modes[mode].axes != axes))
        return fl_fail(FL_ERR_SHAPE, "interpolate: mode %s takes x [n, channels, size] with %s, got %s",
                       modes[mode].name,
                       modes[mode].axes == 1       ? "one axis of sizes"
                           : modes[mode].axes == 2 ? "two axes of sizes"
                           : modes[mode].axes == 3 ? "three axes of sizes"
                                                   : "one to three axes of sizes",
                       fl_meta_text(text, x->meta));
    if ((attrs->at[SIZED_SIZE].count > 0) == attrs->at[SIZED_FACTOR].given)
        return fl_fail(FL_ERR_VALUE, "interpolate: takes either size or scale_factor");
    if (count > 0 && count != 1 && count != axes)
        return fl_fail(FL_ERR_VALUE, "interpolate: size must be one number or %d for x %s, got %d", axes,
                       fl_meta_text(text, x->meta), count);
    if (cornered && (mode == NEAREST || mode == AREA || mode == NEAREST_EXACT))
        return fl_fail(FL_ERR_VALUE,
                       "interpolate: align_corners is an option of the linear and cubic modes, got mode %s",
                       modes[mode].name);
    if (attrs->at[SIZED_SMOOTH].integer && !smooth)
        return fl_fail(FL_ERR_VALUE, "interpolate: antialias is an option of bilinear and bicubic, got mode %s",
                       modes[mode].name);
    return FL_OK;
}

/* One axis: its size in the result, and elements of x per element of it. */
static fl_status size_of(int64_t *size, double *scale, int64_t n, int axis, const fl_attrs *attrs)
{
    const fl_attr *given = &attrs->at[SIZED_SIZE], *factor = &attrs->at[SIZED_FACTOR];
    double wanted = factor->given ? (double)n * factor->number : 0;
    *size = given->count > 0 ? given->list[given->count > 1 ? axis : 0] : (int64_t)wanted;
    if (n < 1 || *size < 1 || *size > INT32_MAX || wanted > INT32_MAX)
        return fl_fail(FL_ERR_VALUE, "interpolate: sizes must be between 1 and %d, axis %d goes from %lld to %lld",
                       INT32_MAX, axis + 2, (long long)n, (long long)*size);
    *scale = factor->given && !attrs->at[SIZED_AGAIN].integer ? 1 / factor->number : (double)n / (double)*size;
    bool corners = attrs->at[SIZED_CORNERS].given && attrs->at[SIZED_CORNERS].integer;
    if (corners) *scale = *size > 1 ? (double)(n - 1) / (double)(*size - 1) : 0;
    return FL_OK;
}

static fl_status body_interpolate(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    fl_expr c = {0};
    int64_t sizes[3];
    double scales[3];
    const fl_shape *shape = &in[0].tensor->meta->shape;
    FL_TRY(check_interpolate(in[0].tensor, attrs));
    int axes = shape->ndim - 2, mode = (int)attrs->at[SIZED_MODE].integer, rule = modes[mode].rule;
    bool corners = attrs->at[SIZED_CORNERS].given && attrs->at[SIZED_CORNERS].integer;
    for (int d = 0; d < axes; d++) FL_TRY(size_of(&sizes[d], &scales[d], shape->dims[2 + d], d, attrs));
    if (attrs->at[SIZED_SMOOTH].integer) rule = mode == BICUBIC ? FL_RESAMPLE_SMOOTH_CUBIC : FL_RESAMPLE_SMOOTH_LINEAR;
    fl_tensor *x = expr_widen(&c, in[0].tensor);
    for (int d = 0; d < axes; d++)
        if (sizes[d] != shape->dims[2 + d] || scales[d] != 1)
            x = expr_resample(&c, x, 2 + d, sizes[d], rule + (corners ? 1 : 0), scales[d], 0);
    if (x == in[0].tensor) x = EXPR_CALL(&c, NULL, clone, fl_of(x));
    *out = fl_expr_take(&c, expr_cast(&c, x, in[0].tensor->meta->dtype));
    return fl_expr_end(&c);
}

FL_OP(interpolate) = {
    .name = "interpolate",
    .sig = "interpolate(x, size: ints = nil, scale_factor: float = nil, "
           "mode: nearest|linear|bilinear|bicubic|trilinear|area|nearest-exact = nearest, align_corners: bool = nil, "
           "recompute_scale_factor: bool = false, antialias: bool = false)",
    .nout = 1,
    .flags = FL_OP_FUNCTION_ONLY,
    .doc = "x [n, channels, size of one to three axes] in another size, or scaled by a factor.",
    .body = body_interpolate,
    FL_SAMPLES("flow.randn(2, 3, 4), 7", "flow.randn(2, 3, 4, 5), {3, 8}, {mode = 'bilinear'}",
               "flow.randn(2, 2, 3, 4), {scale_factor = 1.7, mode = 'bicubic', align_corners = true}",
               "flow.randn(2, 2, 3, 2, 3), {scale_factor = 2, mode = 'trilinear'}",
               "flow.randn(2, 3, 5, 4), {3, 2}, {mode = 'area'}",
               "flow.randn(2, 3, 6, 7), {4, 3}, {mode = 'bilinear', antialias = true}",
               "flow.randn(2, 3, 6), {4}, {mode = 'nearest-exact'}"),
};

/* ---- adaptive averages ---- */

static fl_status adaptive(fl_tensor **out, const fl_op *op, int axes, const fl_operand *in, const fl_attr *size)
{
    fl_expr c = {0};
    char text[FL_META_TEXT];
    const fl_meta *m = in[0].tensor->meta;
    int first = m->shape.ndim - axes;
    if (!fl_dtype_is_float(m->dtype) || first < 1 || first > 2)
        return fl_fail(FL_ERR_SHAPE, "%s: takes a float tensor of %d or %d axes, got %s", op->name, axes + 1, axes + 2,
                       fl_meta_text(text, m));
    if (size->count != 1 && size->count != axes)
        return fl_fail(FL_ERR_VALUE, "%s: output_size must be one number or %d, got %d", op->name, axes, size->count);
    fl_tensor *x = expr_widen(&c, in[0].tensor);
    uint32_t whole = 0; /* axes of which a mean is left, all of them at once */
    for (int d = 0; d < axes && c.status == FL_OK; d++) {
        int64_t n = m->shape.dims[first + d], to = size->list[size->count > 1 ? d : 0];
        if (to == -1) to = n;
        if (n < 1 || to < 1 || to > INT32_MAX)
            c.status = fl_fail(FL_ERR_VALUE, "%s: sizes must be between 1 and %d, axis %d goes from %lld to %lld",
                               op->name, INT32_MAX, first + d, (long long)n, (long long)to);
        else if (to == 1) whole |= 1u << (first + d);
        else if (to != n) x = expr_resample(&c, x, first + d, to, FL_RESAMPLE_MEAN, 1, 0);
    }
    if (whole) x = expr_mean(&c, x, whole, true);
    if (x == in[0].tensor) x = EXPR_CALL(&c, NULL, clone, fl_of(x));
    *out = fl_expr_take(&c, expr_cast(&c, x, m->dtype));
    return fl_expr_end(&c);
}

#define ADAPTIVE(name_, axes_, doc_, ...)                                                                \
    static fl_status body_##name_(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs) \
    {                                                                                                    \
        return adaptive(out, FL_OP_REF(name_), axes_, in, &attrs->at[0]);                                \
    }                                                                                                    \
    FL_OP(name_) = {                                                                                     \
        .name = #name_,                                                                                  \
        .sig = #name_ "(x, output_size: ints)",                                                          \
        .nout = 1,                                                                                       \
        .flags = FL_OP_FUNCTION_ONLY,                                                                    \
        .doc = doc_,                                                                                     \
        .body = body_##name_,                                                                            \
        FL_SAMPLES(__VA_ARGS__),                                                                         \
    }

ADAPTIVE(adaptive_avg_pool1d, 1,
         "Means of x [n, channels, length] over output_size windows of nearly equal length; -1: as many as x has.",
         "flow.randn(2, 3, 7), 3", "flow.randn(3, 4), 1");
ADAPTIVE(adaptive_avg_pool2d, 2,
         "Means of x [n, channels, height, width] over output_size windows of nearly equal size; of an axis with -1 as "
         "many as x has.",
         "flow.randn(2, 3, 5, 7), {2, 3}", "flow.randn(3, 4, 4), 1");
ADAPTIVE(adaptive_avg_pool3d, 3,
         "Means of x [n, channels, depth, height, width] over output_size windows of nearly equal size; of an axis "
         "with -1 as "
         "many as x has.",
         "flow.randn(2, 2, 3, 4, 5), {2, 3, 1}");

/* ---- channels as pixels ---- */

enum { PIXELS_FACTOR };
enum { SHUFFLE_GROUPS };

static fl_status check_pixels(const char *who, const fl_tensor *x, int64_t factor)
{
    char text[FL_META_TEXT];
    int ndim = x->meta->shape.ndim;
    if (ndim < 3)
        return fl_fail(FL_ERR_SHAPE, "%s: takes x [..., channels, height, width], got %s", who,
                       fl_meta_text(text, x->meta));
    if (factor < 1 || factor > INT16_MAX)
        return fl_fail(FL_ERR_VALUE, "%s: the factor must be between 1 and %d, got %lld", who, INT16_MAX,
                       (long long)factor);
    return FL_OK;
}

/* x as [n, `count` sizes], its axes in another order, as [..., `sizes`]. */
static fl_status rearranged(fl_tensor **out, fl_tensor *x, const int64_t *split, const int64_t *order, int count,
                            const int64_t sizes[3])
{
    fl_expr c = {0};
    fl_shape parts = {count + 1, {1}}, shape = x->meta->shape;
    int64_t axes[FL_MAX_NDIM] = {0};
    for (int i = 0; i < shape.ndim - 3; i++) parts.dims[0] *= shape.dims[i];
    for (int i = 0; i < count; i++) {
        parts.dims[1 + i] = split[i];
        axes[1 + i] = order[i] + 1;
    }
    memcpy(shape.dims + shape.ndim - 3, sizes, 3 * sizeof *sizes);
    fl_tensor *y = expr_permuted(&c, expr_reshape(&c, x, &parts), axes);
    *out = fl_expr_take(&c, expr_reshape(&c, y, &shape));
    return fl_expr_end(&c);
}

static fl_status body_pixel_shuffle(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    char text[FL_META_TEXT];
    int64_t r = attrs->at[PIXELS_FACTOR].integer;
    fl_tensor *x = in[0].tensor;
    FL_TRY(check_pixels("pixel_shuffle", x, r));
    const int64_t *last = x->meta->shape.dims + x->meta->shape.ndim - 3;
    if (last[0] % (r * r) != 0)
        return fl_fail(FL_ERR_SHAPE, "pixel_shuffle: the channels of x must be a multiple of %lld, got %s",
                       (long long)(r * r), fl_meta_text(text, x->meta));
    return rearranged(out, x, (const int64_t[]){last[0] / (r * r), r, r, last[1], last[2]},
                      (const int64_t[]){0, 3, 1, 4, 2}, 5,
                      (const int64_t[]){last[0] / (r * r), last[1] * r, last[2] * r});
}

static fl_status body_pixel_unshuffle(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    char text[FL_META_TEXT];
    int64_t r = attrs->at[PIXELS_FACTOR].integer;
    fl_tensor *x = in[0].tensor;
    FL_TRY(check_pixels("pixel_unshuffle", x, r));
    const int64_t *last = x->meta->shape.dims + x->meta->shape.ndim - 3;
    if (last[1] % r != 0 || last[2] % r != 0)
        return fl_fail(FL_ERR_SHAPE, "pixel_unshuffle: height and width of x must be multiples of %lld, got %s",
                       (long long)r, fl_meta_text(text, x->meta));
    return rearranged(out, x, (const int64_t[]){last[0], last[1] / r, r, last[2] / r, r},
                      (const int64_t[]){0, 2, 4, 1, 3}, 5,
                      (const int64_t[]){last[0] * r * r, last[1] / r, last[2] / r});
}

static fl_status body_channel_shuffle(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    fl_expr c = {0};
    char text[FL_META_TEXT];
    int64_t groups = attrs->at[SHUFFLE_GROUPS].integer;
    const fl_shape *x = &in[0].tensor->meta->shape;
    if (x->ndim < 3 || groups < 1 || x->dims[1] % groups != 0)
        return fl_fail(FL_ERR_SHAPE,
                       "channel_shuffle: takes x [n, channels, ...] whose channels divide into %lld groups, "
                       "got %s",
                       (long long)groups, fl_meta_text(text, in[0].tensor->meta));
    fl_shape parts = {4, {x->dims[0], groups, x->dims[1] / groups, 1}};
    for (int i = 2; i < x->ndim; i++) parts.dims[3] *= x->dims[i];
    fl_tensor *y = expr_permuted(&c, expr_reshape(&c, in[0].tensor, &parts), (const int64_t[]){0, 2, 1, 3});
    *out = fl_expr_take(&c, expr_reshape(&c, y, x));
    return fl_expr_end(&c);
}

#define PIXELS(name_, attribute_, doc_, ...)      \
    FL_OP(name_) = {                              \
        .name = #name_,                           \
        .sig = #name_ "(x, " attribute_ ": int)", \
        .nout = 1,                                \
        .doc = doc_,                              \
        .body = body_##name_,                     \
        FL_SAMPLES(__VA_ARGS__),                  \
    }

PIXELS(pixel_shuffle, "upscale_factor",
       "x [..., channels * r * r, height, width] as [..., channels, height * r, width * r].",
       "flow.randn(2, 8, 2, 3), 2", "flow.randn(4, 2, 2), 2");
PIXELS(pixel_unshuffle, "downscale_factor",
       "x [..., channels, height * r, width * r] as [..., channels * r * r, height, width].",
       "flow.randn(2, 2, 4, 6), 2", "flow.randn(1, 4, 2), 2");
PIXELS(channel_shuffle, "groups", "The channels of x [n, channels, ...] in turn from each group.",
       "flow.randn(2, 6, 2, 3), 3", "flow.randn(2, 4, 3), 2");
