/*
** resample.c -- two passes: a row of the result is a weighted sum of rows of the image, kept as floats, and its pixels
** are weighted sums of pixels of that. No image lies between the passes, so that all stays in the nearest cache.
*/
#include "resample.h"
#include "cpu/pixels.h"

#include <stdlib.h>
#include <string.h>

/* ---- planes ---- */

fl_status fl_planes_room(fl_planes *planes, int width, int height, int channels)
{
    size_t bytes = (size_t)width * (size_t)height * (size_t)channels + 64;
    planes->width = width;
    planes->height = height;
    planes->channels = channels;
    if (bytes <= planes->capacity) return FL_OK;
    free(planes->data);
    planes->data = malloc(bytes);
    planes->capacity = planes->data ? bytes : 0;
    return planes->data ? FL_OK : fl_fail(FL_ERR_MEMORY, "out of memory for %d x %d pixels", width, height);
}

void fl_planes_free(fl_planes *planes)
{
    free(planes->data);
    *planes = (fl_planes){0};
}

/* ---- filters ---- */

/* One axis: `size` results of an interval of pixels; the filter sees those from `low` to `high` - 1. */
struct axis {
    double begin, length;
    int size, low, high;
    int first, count; /* of the results that are wanted */
};

static struct axis axis_x(const fl_scaling *scaling)
{
    return (struct axis){scaling->area.x,
                         scaling->area.width,
                         scaling->width,
                         scaling->edges.x,
                         scaling->edges.x + scaling->edges.width,
                         scaling->window.x,
                         scaling->window.width};
}

static struct axis axis_y(const fl_scaling *scaling)
{
    return (struct axis){scaling->area.y,
                         scaling->area.height,
                         scaling->height,
                         scaling->edges.y,
                         scaling->edges.y + scaling->edges.height,
                         scaling->window.y,
                         scaling->window.height};
}

static double center_of(const struct axis *axis, int i) { return axis->begin + (i + 0.5) * axis->length / axis->size; }

static double support_of(const struct axis *axis) { return axis->length > axis->size ? axis->length / axis->size : 1; }

/* The pixels that result i is made of begin with *first; returns how many they are, 1 or more. */
static int reach(int *first, const struct axis *axis, int i)
{
    double center = center_of(axis, i), support = support_of(axis);
    int from = (int)(center - support + 0.5), to = (int)(center + support + 0.5);
    if (from < axis->low) from = axis->low;
    if (from >= axis->high) from = axis->high - 1;
    if (to > axis->high) to = axis->high;
    *first = from;
    return to > from ? to - from : 1;
}

static int most_taps(const struct axis *axis)
{
    int most = 1, first;
    for (int i = 0; i < axis->count; i++) {
        int taps = reach(&first, axis, axis->first + i);
        if (taps > most) most = taps;
    }
    return most;
}

static double triangle(double x)
{
    x = x < 0 ? 1 + x : 1 - x;
    return x > 0 ? x : 0;
}

/* The weights of the results add up to 1 each. */
static void fill_taps(int32_t *firsts, float *weights, const struct axis *axis, int most)
{
    double support = support_of(axis);
    memset(weights, 0, sizeof *weights * (size_t)axis->count * (size_t)most);
    for (int i = 0; i < axis->count; i++, weights += most) {
        int first, taps = reach(&first, axis, axis->first + i);
        double start = first + 0.5 - center_of(axis, axis->first + i), sum = 0;
        for (int k = 0; k < taps; k++) sum += triangle((start + k) / support);
        for (int k = 0; k < taps; k++)
            weights[k] = (float)(sum > 0 ? triangle((start + k) / support) / sum : 1.0 / taps);
        firsts[i] = first;
    }
}

static void axis_needs(int *first, int *count, const struct axis *axis, int size)
{
    int last, taps;
    reach(first, axis, axis->first);
    taps = reach(&last, axis, axis->first + axis->count - 1);
    *count = (last + taps < size ? last + taps : size) - *first;
}

fl_image_box fl_scaling_needs(const fl_scaling *scaling, int width, int height)
{
    fl_image_box box;
    struct axis x = axis_x(scaling), y = axis_y(scaling);
    axis_needs(&box.x, &box.width, &x, width);
    axis_needs(&box.y, &box.height, &y, height);
    return box;
}

/* ---- scaling ---- */

enum { VECTOR = 16 }; /* floats that may be read behind a line */

/* The layout of the buffer. */
struct plan {
    struct axis x, y;
    int taps_x, taps_y;
    int32_t *first_x, *first_y;
    float *weights_x, *weights_y, *line;
    const unsigned char **rows;
};

void fl_resampler_free(fl_resampler *resampler)
{
    free(resampler->buffer);
    *resampler = (fl_resampler){0};
}

static fl_status plan_make(struct plan *plan, fl_resampler *resampler, const fl_pixels *pixels,
                           const fl_scaling *scaling)
{
    plan->x = axis_x(scaling);
    plan->y = axis_y(scaling);
    plan->taps_x = most_taps(&plan->x);
    plan->taps_y = most_taps(&plan->y);
    size_t x = (size_t)plan->x.count, y = (size_t)plan->y.count, tx = (size_t)plan->taps_x, ty = (size_t)plan->taps_y;
    size_t line = ((size_t)pixels->width + tx) * (size_t)pixels->channels + VECTOR;
    size_t bytes = sizeof *plan->rows * ty + sizeof(float) * (x * tx + y * ty + line + x + y);
    if (bytes > resampler->capacity) {
        free(resampler->buffer);
        resampler->buffer = malloc(bytes);
        resampler->capacity = resampler->buffer ? bytes : 0;
    }
    if (!resampler->buffer) return fl_fail(FL_ERR_MEMORY, "out of memory for the weights of a resize");
    plan->rows = resampler->buffer;
    plan->weights_x = (float *)(plan->rows + ty);
    plan->weights_y = plan->weights_x + x * tx;
    plan->line = plan->weights_y + y * ty;
    plan->first_x = (int32_t *)(plan->line + line);
    plan->first_y = plan->first_x + x;
    memset(plan->line, 0, sizeof *plan->line * line);
    fill_taps(plan->first_x, plan->weights_x, &plan->x, plan->taps_x);
    fill_taps(plan->first_y, plan->weights_y, &plan->y, plan->taps_y);
    return FL_OK;
}

fl_status fl_resample(fl_resampler *resampler, fl_planes *out, const fl_pixels *pixels, const fl_scaling *scaling)
{
    struct plan p;
    const fl_pixel_loops *loops = FL_BY_LEVEL(fl_pixel_loops);
    FL_TRY(plan_make(&p, resampler, pixels, scaling));
    FL_TRY(fl_planes_room(out, p.x.count, p.y.count, pixels->channels));
    /* Only the columns that the window needs are summed. */
    int left, columns;
    axis_needs(&left, &columns, &p.x, pixels->width);
    size_t pitch = (size_t)pixels->width * (size_t)pixels->channels, begin = (size_t)left * (size_t)pixels->channels;
    fl_pixel_taps taps = {p.first_x, p.weights_x, p.taps_x, p.x.count};
    for (int y = 0; y < p.y.count; y++) {
        for (int k = 0; k < p.taps_y; k++) {
            int row = p.first_y[y] + k < pixels->height ? p.first_y[y] + k : pixels->height - 1; /* weight 0 */
            p.rows[k] = pixels->data + pitch * (size_t)row + begin;
        }
        loops->rows(p.line + begin, p.rows, p.weights_y + (size_t)y * (size_t)p.taps_y, p.taps_y,
                    (int64_t)columns * pixels->channels);
        loops->line(out->data + (size_t)y * (size_t)out->width, fl_planes_pixels(out), p.line, &taps, pixels->channels);
    }
    return FL_OK;
}
