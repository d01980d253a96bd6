/*
** resample.h -- which elements of a line a resampled line is made of: shared by inference and the kernels of all
** devices.
**
** Element o of the result is a weighted sum over the taps of o: elements of the line. FL_RESAMPLE_DEVICE says where the
** functions run.
*/
#ifndef FL_RESAMPLE_H
#define FL_RESAMPLE_H

#include <math.h>
#include <stdint.h>

#ifndef FL_RESAMPLE_DEVICE
#define FL_RESAMPLE_DEVICE static inline
#endif

/* Attributes of resample and resample_back; LENGTH of the latter. */
enum {
    FL_RESAMPLE_AXIS,
    FL_RESAMPLE_SIZE,
    FL_RESAMPLE_RULE,
    FL_RESAMPLE_SCALE,
    FL_RESAMPLE_BEFORE,
    FL_RESAMPLE_LENGTH
};

/* Values of the attribute `rule`. */
enum {
    FL_RESAMPLE_REFLECT, /* of positions outside of the line: o - before */
    FL_RESAMPLE_REPLICATE,
    FL_RESAMPLE_NEAREST,
    FL_RESAMPLE_NEAREST_EXACT,
    FL_RESAMPLE_LINEAR,
    FL_RESAMPLE_LINEAR_CORNERS, /* the first and last elements stay where they are */
    FL_RESAMPLE_CUBIC,
    FL_RESAMPLE_CUBIC_CORNERS,
    FL_RESAMPLE_MEAN, /* of n / size elements, as equal as whole numbers allow */
    FL_RESAMPLE_SMOOTH_LINEAR,
    FL_RESAMPLE_SMOOTH_LINEAR_CORNERS, /* over a wider window where the result is smaller */
    FL_RESAMPLE_SMOOTH_CUBIC,
    FL_RESAMPLE_SMOOTH_CUBIC_CORNERS,
    FL_RESAMPLE_RULES
};
/* A line of n elements becomes one of `size`; scale: elements of it per element of the result. */
typedef struct fl_resample {
    int rule;
    int64_t n, size, before;
    double scale;
} fl_resample;

/* The taps of an element: `count` positions from `first` on, which may lie outside (then the nearest inside is meant);
** `centre` and the like give the weights. */
typedef struct fl_resample_taps {
    int64_t first;
    int count;
    double centre, total;
} fl_resample_taps;

FL_RESAMPLE_DEVICE double fl_resample_linear(double x)
{
    x = x < 0 ? -x : x;
    return x < 1 ? 1 - x : 0;
}

/* The cubic convolution with parameter a. */
FL_RESAMPLE_DEVICE double fl_resample_cubic(double x, double a)
{
    x = x < 0 ? -x : x;
    if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
    return x < 2 ? ((x - 5) * x + 8) * x * a - 4 * a : 0;
}

FL_RESAMPLE_DEVICE int64_t fl_resample_inside(int64_t i, int64_t n) { return i < 0 ? 0 : i >= n ? n - 1 : i; }

FL_RESAMPLE_DEVICE double fl_resample_smooth_weight(const fl_resample *resample, double distance)
{
    double x = distance / (resample->scale > 1 ? resample->scale : 1);
    return resample->rule <= FL_RESAMPLE_SMOOTH_LINEAR_CORNERS ? fl_resample_linear(x) : fl_resample_cubic(x, -0.5);
}

FL_RESAMPLE_DEVICE void fl_resample_smooth(fl_resample_taps *taps, const fl_resample *resample, int64_t o)
{
    double wide = resample->scale > 1 ? resample->scale : 1,
           reach = wide * (resample->rule <= FL_RESAMPLE_SMOOTH_LINEAR_CORNERS ? 1 : 2);
    taps->centre = resample->scale * ((double)o + 0.5);
    int64_t first = (int64_t)(taps->centre - reach + 0.5), end = (int64_t)(taps->centre + reach + 0.5);
    if (first < 0) first = 0;
    if (end > resample->n) end = resample->n;
    taps->first = first;
    taps->count = (int)(end - first);
    taps->total = 0;
    for (int64_t i = first; i < end; i++)
        taps->total += fl_resample_smooth_weight(resample, (double)i - taps->centre + 0.5);
}

FL_RESAMPLE_DEVICE fl_resample_taps fl_resample_taps_of(const fl_resample *resample, int64_t o)
{
    fl_resample_taps t = {0, 1, 0, 1};
    double at;
    switch (resample->rule) {
    case FL_RESAMPLE_REFLECT: {
        int64_t i = o - resample->before;
        t.first = i < 0 ? -i : i >= resample->n ? 2 * resample->n - 2 - i : i;
        break;
    }
    case FL_RESAMPLE_REPLICATE: t.first = fl_resample_inside(o - resample->before, resample->n); break;
    case FL_RESAMPLE_NEAREST: t.first = (int64_t)floorf((float)o * (float)resample->scale); break;
    case FL_RESAMPLE_NEAREST_EXACT: t.first = (int64_t)floorf(((float)o + 0.5f) * (float)resample->scale); break;
    case FL_RESAMPLE_LINEAR:
    case FL_RESAMPLE_LINEAR_CORNERS:
        at = resample->rule == FL_RESAMPLE_LINEAR ? resample->scale * ((double)o + 0.5) - 0.5
                                                  : resample->scale * (double)o;
        t.centre = at < 0 ? 0 : at > (double)(resample->n - 1) ? (double)(resample->n - 1) : at;
        t.first = (int64_t)t.centre;
        t.count = t.first + 1 < resample->n ? 2 : 1;
        break;
    case FL_RESAMPLE_CUBIC:
    case FL_RESAMPLE_CUBIC_CORNERS:
        t.centre = resample->rule == FL_RESAMPLE_CUBIC ? resample->scale * ((double)o + 0.5) - 0.5
                                                       : resample->scale * (double)o;
        t.first = (int64_t)floor(t.centre) - 1;
        t.count = 4;
        break;
    case FL_RESAMPLE_MEAN:
        t.first = o * resample->n / resample->size;
        t.count = (int)(((o + 1) * resample->n + resample->size - 1) / resample->size - t.first);
        break;
    default: fl_resample_smooth(&t, resample, o);
    }
    return t;
}

/* The position of tap k on the line. */
FL_RESAMPLE_DEVICE int64_t fl_resample_position(const fl_resample *resample, const fl_resample_taps *taps, int k)
{
    return fl_resample_inside(taps->first + k, resample->n);
}

FL_RESAMPLE_DEVICE double fl_resample_weight(const fl_resample *resample, const fl_resample_taps *taps, int k)
{
    if (resample->rule <= FL_RESAMPLE_NEAREST_EXACT) return 1;
    if (resample->rule <= FL_RESAMPLE_LINEAR_CORNERS) {
        double over = taps->centre - (double)taps->first;
        return taps->count == 1 ? 1 : k ? over : 1 - over;
    }
    if (resample->rule <= FL_RESAMPLE_CUBIC_CORNERS)
        return fl_resample_cubic(taps->centre - (double)(taps->first + k), -0.75);
    if (resample->rule == FL_RESAMPLE_MEAN) return 1.0 / taps->count;
    return fl_resample_smooth_weight(resample, (double)(taps->first + k) - taps->centre + 0.5) / taps->total;
}

#endif
