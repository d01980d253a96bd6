/*
** augment_color.c -- steps that change colours, as torchvision's functions of uint8 tensors do.
*/
#include "augment_internal.h"
#include "cpu/pixels.h"

#include <string.h>

struct colors {
    unsigned char *red, *green, *blue;
    int64_t n;
};

static struct colors colors_of(const fl_planes *planes)
{
    int64_t n = fl_planes_pixels(planes);
    bool rgb = planes->channels >= 3;
    return (struct colors){planes->data, planes->data + (rgb ? n : 0), planes->data + (rgb ? 2 * n : 0), n};
}

static fl_status check_channels(const fl_planes *planes, const char *step)
{
    if (planes->channels == 1 || planes->channels == 3) return FL_OK;
    return fl_fail(FL_ERR_SHAPE, "%s: takes images of 1 or 3 channels, got %d", step, planes->channels);
}

/* The gray of an image of one channel is that channel. */
static double mean_gray(const fl_pixel_loops *loops, const fl_planes *planes)
{
    struct colors c = colors_of(planes);
    int64_t sum = 0;
    if (planes->channels == 3) sum = loops->gray_sum(c.red, c.green, c.blue, c.n);
    else
        for (int64_t i = 0; i < c.n; i++) sum += c.red[i];
    return c.n ? (double)sum / (double)c.n : 0;
}

enum { BRIGHTNESS, CONTRAST, SATURATION, HUE, CHANGES };

static void change(fl_planes *planes, int what, float by)
{
    const fl_pixel_loops *loops = FL_BY_LEVEL(fl_pixel_loops);
    struct colors c = colors_of(planes);
    int64_t all = c.n * planes->channels;
    bool rgb = planes->channels == 3;
    if (what == BRIGHTNESS && by != 1) loops->blend(planes->data, all, by, 0);
    if (what == CONTRAST && by != 1) loops->blend(planes->data, all, by, (float)mean_gray(loops, planes) * (1 - by));
    if (what == SATURATION && by != 1 && rgb) loops->blend_gray(c.red, c.green, c.blue, c.n, by);
    if (what == HUE && by != 0 && rgb) loops->hue(c.red, c.green, c.blue, c.n, by);
}

/* The changes come in random order. */
fl_status fl_step_jitter(fl_planes *planes, fl_step_words *words, const double *values)
{
    int order[CHANGES] = {BRIGHTNESS, CONTRAST, SATURATION, HUE};
    float by[CHANGES];
    FL_TRY(check_channels(planes, "color_jitter"));
    for (int i = 0; i < CHANGES; i++) by[i] = (float)fl_draw_between(words, values[2 * i], values[2 * i + 1]);
    for (int i = CHANGES - 1; i > 0; i--) {
        int other = fl_draw_below(words, i + 1), kept = order[i];
        order[i] = order[other];
        order[other] = kept;
    }
    for (int i = 0; i < CHANGES; i++) change(planes, order[i], by[order[i]]);
    return FL_OK;
}

fl_status fl_step_gray(fl_planes *planes)
{
    FL_TRY(check_channels(planes, "grayscale"));
    struct colors c = colors_of(planes);
    if (planes->channels == 3) FL_BY_LEVEL(fl_pixel_loops)->blend_gray(c.red, c.green, c.blue, c.n, 0);
    return FL_OK;
}
