/*
** conv_depthwise.c -- convolutions of every channel by itself.
**
** The image of a channel is copied between zeros, so that no tap lies outside of it. The gradient of the input is the
** same sum again: over dy, its elements `stride` apart among zeros, with the taps in reverse order.
*/
#include "conv.h"
#include "memory/scratch.h"
#include "stage.h"

static const double NS_PER_TAP = 0.1;
enum { OVER_THE_END = 4 * 64 }; /* bytes that the loops may read behind an image, per stride */

/* One call. `planes` images of one channel each are read at x, sized x_size, and put `before` elements from the front
** and `step` apart into room of padded_size. */
struct job {
    const fl_conv *c;
    int type; /* of fl_conv_kernels */
    int64_t item, channels;
    const char *x, *dy, *weight, *bias;
    char *out;
    int64_t x_size[FL_WINDOW_AXES], y_size[FL_WINDOW_AXES];
    int64_t before[FL_WINDOW_AXES], step[FL_WINDOW_AXES], padded_size[FL_WINDOW_AXES];
    fl_window_geometry window;
    bool failed; /* a thread had no memory */
};

static struct job job_of(fl_dtype dtype, const fl_conv *conv)
{
    struct job j = {.c = conv,
                    .type = dtype == FL_FLOAT64,
                    .item = (int64_t)fl_dtype_size(dtype),
                    .channels = conv->groups,
                    .window = conv->window};
    memcpy(j.x_size, conv->x_size, sizeof j.x_size);
    memcpy(j.y_size, conv->y_size, sizeof j.y_size);
    for (int d = 0; d < FL_WINDOW_AXES; d++) {
        const fl_window_geometry *w = &conv->window;
        int64_t reach = (conv->y_size[d] - 1) * w->stride[d] + fl_window_geometry_span(w, d),
                least = w->padding[d] + conv->x_size[d];
        j.before[d] = w->padding[d];
        j.step[d] = 1;
        j.padded_size[d] = reach > least ? reach : least;
    }
    return j;
}

/* The room of a thread, filled with zeros: the borders around images stay so. */
static char *room_open(struct job *job)
{
    size_t bytes = (size_t)(fl_conv_volume(job->padded_size) * job->item + OVER_THE_END * job->window.stride[2]);
    char *room = fl_scratch(FL_KERNEL_SCRATCH, bytes);
    if (room) memset(room, 0, bytes);
    else __atomic_store_n(&job->failed, true, __ATOMIC_RELAXED);
    return room;
}

static void spread_row(char *to, const char *from, int64_t n, int64_t step, int64_t item)
{
    if (step == 1) memcpy(to, from, (size_t)(n * item));
    else if (item == 4)
        for (int64_t i = 0; i < n; i++) ((float *)to)[i * step] = ((const float *)from)[i];
    else
        for (int64_t i = 0; i < n; i++) ((double *)to)[i * step] = ((const double *)from)[i];
}

static void put(char *room, const struct job *job, const char *image)
{
    const int64_t *n = job->x_size, *p = job->padded_size, *s = job->step, *b = job->before;
    for (int64_t z = 0; z < n[0]; z++)
        for (int64_t y = 0; y < n[1]; y++, image += n[2] * job->item) {
            int64_t at = ((b[0] + z * s[0]) * p[1] + b[1] + y * s[1]) * p[2] + b[2];
            spread_row(room + at * job->item, image, n[2], s[2], job->item);
        }
}

/* ---- sums ---- */

static void sums_part(void *context, int64_t from, int64_t to)
{
    struct job *j = context;
    int64_t x_plane = fl_conv_volume(j->x_size), y_plane = fl_conv_volume(j->y_size), taps = fl_conv_taps(j->c);
    char *room = room_open(j);
    for (int64_t i = from; i < to && room; i++) {
        int64_t channel = i % j->channels;
        put(room, j, j->x + i * x_plane * j->item);
        FL_BY_LEVEL(fl_conv_kernels)
            ->depthwise[j->type](j->out + i * y_plane * j->item, j->y_size, room, j->padded_size, &j->window,
                                 j->weight + channel * taps * j->item, j->bias ? j->bias + channel * j->item : NULL);
    }
}

static fl_status run(struct job *job, int64_t count, double elements, fl_team_body body)
{
    fl_team_for(count, elements * (double)fl_conv_taps(job->c) * NS_PER_TAP, body, job);
    return job->failed ? fl_fail(FL_ERR_MEMORY, "conv: out of memory for an image between zeros") : FL_OK;
}

fl_status fl_cpu_conv_depthwise(fl_dtype dtype, const fl_conv *conv, void *y, const void *x, const void *weight,
                                const void *bias)
{
    struct job j = job_of(dtype, conv);
    j.x = x;
    j.weight = weight;
    j.bias = bias;
    j.out = y;
    return run(&j, conv->images * conv->groups, (double)fl_conv_y_plane(conv), sums_part);
}

/* The taps of all channels in reverse order, in scratch memory. */
static const char *reversed(const fl_conv *conv, const void *weight, int64_t item)
{
    enum { TAPS_SCRATCH = 2 };
    int64_t taps = fl_conv_taps(conv);
    char *out = fl_scratch(TAPS_SCRATCH, (size_t)(conv->groups * taps * item));
    for (int64_t i = 0; i < conv->groups && out; i++)
        for (int64_t k = 0; k < taps; k++)
            memcpy(out + (i * taps + taps - 1 - k) * item, (const char *)weight + (i * taps + k) * item, (size_t)item);
    return out;
}

/* dx[i] is the sum over taps t of weight[t] dy[(i + padding - t dilation) / stride], where that is whole and inside. */
fl_status fl_cpu_conv_depthwise_input_grad(fl_dtype dtype, const fl_conv *conv, void *dx, const void *dy,
                                           const void *weight)
{
    struct job j = job_of(dtype, conv);
    memcpy(j.x_size, conv->y_size, sizeof j.x_size);
    memcpy(j.y_size, conv->x_size, sizeof j.y_size);
    for (int d = 0; d < FL_WINDOW_AXES; d++) {
        int64_t span = fl_window_geometry_span(&conv->window, d);
        j.window.stride[d] = 1;
        j.step[d] = conv->window.stride[d];
        j.before[d] = span - 1 - conv->window.padding[d];
        j.padded_size[d] = conv->x_size[d] + span - 1;
        int64_t end = j.before[d] + (conv->y_size[d] - 1) * j.step[d] + 1;
        if (end > j.padded_size[d]) j.padded_size[d] = end;
    }
    j.x = dy;
    j.out = dx;
    j.weight = reversed(conv, weight, j.item);
    if (!j.weight)
        return fl_fail(FL_ERR_MEMORY, "conv: out of memory for the taps of %lld channels", (long long)conv->groups);
    return run(&j, conv->images * conv->groups, (double)fl_conv_x_plane(conv), sums_part);
}

/* ---- gradient of the weight ---- */

static void weight_part(void *context, int64_t from, int64_t to)
{
    struct job *j = context;
    int64_t x_plane = fl_conv_volume(j->x_size), y_plane = fl_conv_volume(j->y_size), taps = fl_conv_taps(j->c);
    char *room = room_open(j);
    for (int64_t channel = from; channel < to && room; channel++) {
        char *out = j->out + channel * taps * j->item;
        memset(out, 0, (size_t)(taps * j->item));
        for (int64_t image = 0; image < j->c->images; image++) {
            int64_t at = image * j->channels + channel;
            put(room, j, j->x + at * x_plane * j->item);
            FL_BY_LEVEL(fl_conv_kernels)
                ->depthwise_weight[j->type](out, j->dy + at * y_plane * j->item, j->y_size, room, j->padded_size,
                                            &j->window);
        }
    }
}

fl_status fl_cpu_conv_depthwise_weight_grad(fl_dtype dtype, const fl_conv *conv, void *dweight, const void *dy,
                                            const void *x)
{
    struct job j = job_of(dtype, conv);
    j.x = x;
    j.dy = dy;
    j.out = dweight;
    return run(&j, conv->groups, (double)(conv->images * fl_conv_y_plane(conv)), weight_part);
}
