/*
** resample.h -- images scaled: bilinear, with the filter as wide as the image shrinks (antialiased), as Pillow and
** torchvision scale them; sums are rounded once, so that single values may differ by 1 from theirs.
*/
#ifndef FL_RESAMPLE_H
#define FL_RESAMPLE_H

#include "base/status.h"
#include "file/image.h"

/* One channel after the other, each row by row. Begins as {0}; fl_planes_free frees it. */
typedef struct fl_planes {
    unsigned char *data; /* owned */
    size_t capacity;
    int width, height, channels;
} fl_planes;

/* Room for so many pixels, whose values are undefined. */
fl_status fl_planes_room(fl_planes *planes, int width, int height, int channels);
void fl_planes_free(fl_planes *planes);
static inline int64_t fl_planes_pixels(const fl_planes *planes) { return (int64_t)planes->width * planes->height; }

/* Buffers that are kept from image to image. Begins as {0}. */
typedef struct fl_resampler {
    void *buffer; /* owned */
    size_t capacity;
} fl_resampler;
void fl_resampler_free(fl_resampler *resampler);

/* The result: an area of the pixels, scaled to width x height, and of that the window. The filter sees no pixel
** outside of `edges`, in pixels; it may see those around the area. */
typedef struct fl_scaling {
    fl_image_area area;
    fl_image_box edges;
    int width, height;
    fl_image_box window;
} fl_scaling;

/* The smallest box of pixels, of an image of this size, that the window of the scaling depends on. */
fl_image_box fl_scaling_needs(const fl_scaling *scaling, int width, int height);

/* The window of the scaled area of `pixels` (8 bits), as planes. */
fl_status fl_resample(fl_resampler *resampler, fl_planes *out, const fl_pixels *pixels, const fl_scaling *scaling);

#endif
