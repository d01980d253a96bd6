/*
** pool.h -- the sizes of pooling: shared by the kernels of the CPU and of devices.
*/
#ifndef FL_POOL_H
#define FL_POOL_H

#include "window_geometry.h"

/* Results of max_pool2d_taps, and operands of the ops that gather and scatter at its taps: an image, then the taps. */
enum { FL_POOL_IMAGE, FL_POOL_TAPS };

/* Attributes: all begin with the same three; then those of a maximum, or those of an average. The last one, a size,
** only ops have that make images of pooled ones. */
enum { FL_POOL_KERNEL, FL_POOL_STRIDE, FL_POOL_PADDING };
enum { FL_POOL_DILATION = FL_POOL_PADDING + 1, FL_POOL_MAX_CEIL, FL_POOL_MAX_SIZE = FL_POOL_MAX_CEIL };
enum { FL_POOL_AVERAGE_CEIL = FL_POOL_PADDING + 1, FL_POOL_COUNT_PADDING, FL_POOL_DIVISOR, FL_POOL_AVERAGE_SIZE };

/* x [planes, rows, columns], y [planes, ...]: the planes of the channels of one image or of many. */
typedef struct fl_pool {
    fl_window_geometry window;
    int64_t planes;
    int64_t x_size[2], y_size[2]; /* rows, columns */
} fl_pool;

static inline int64_t fl_pool_x_plane(const fl_pool *pool) { return pool->x_size[0] * pool->x_size[1]; }
static inline int64_t fl_pool_y_plane(const fl_pool *pool) { return pool->y_size[0] * pool->y_size[1]; }

/* The divisor of a sum over a window: `divisor`, or when that is 0 the number of elements, with padding or without. */
typedef struct fl_pool_mean {
    int64_t divisor;
    bool padding;
} fl_pool_mean;

static inline fl_pool_mean fl_pool_mean_of(const fl_attrs *attrs)
{
    const fl_attr *divisor = &attrs->at[FL_POOL_DIVISOR];
    fl_pool_mean mean = {divisor->given ? divisor->integer : 0, attrs->at[FL_POOL_COUNT_PADDING].integer != 0};
    return mean;
}

/* Elements along axis d of the window at `position`, with padding or without. */
static inline int64_t fl_pool_reach(const fl_pool *pool, int d, int64_t position, bool padding)
{
    int64_t begin = position * pool->window.stride[d] - pool->window.padding[d], end = begin + pool->window.size[d];
    int64_t last = pool->x_size[d] + (padding ? pool->window.padding[d] : 0);
    if (end > last) end = last;
    if (!padding && begin < 0) begin = 0;
    return end - begin;
}

/* The window that checked attributes describe; without a stride it moves by its own size. */
static inline void fl_pool_window(fl_window_geometry *geometry, const fl_attrs *attrs, bool dilated)
{
    fl_window_geometry_read(geometry->size, &attrs->at[FL_POOL_KERNEL], 2);
    fl_window_geometry_read(geometry->stride,
                            &attrs->at[attrs->at[FL_POOL_STRIDE].given ? FL_POOL_STRIDE : FL_POOL_KERNEL], 2);
    fl_window_geometry_read(geometry->padding, &attrs->at[FL_POOL_PADDING], 2);
    geometry->dilation[0] = geometry->dilation[1] = 1;
    if (dilated) fl_window_geometry_read(geometry->dilation, &attrs->at[FL_POOL_DILATION], 2);
}

/* The pooling of these parts, [n, channels, rows, columns] or [channels, rows, columns] both. */
static inline fl_pool fl_pool_of(const fl_attrs *attrs, const fl_view *x, const fl_view *y, bool dilated)
{
    fl_pool p;
    fl_pool_window(&p.window, attrs, dilated);
    p.planes = x->size[0] * (x->ndim == 4 ? x->size[1] : 1);
    for (int d = 0; d < 2; d++) {
        p.x_size[d] = x->size[x->ndim - 2 + d];
        p.y_size[d] = y->size[y->ndim - 2 + d];
    }
    return p;
}

#endif
