/*
** conv.h -- the sizes of a convolution: shared by the kernels of the CPU and of devices.
*/
#ifndef FL_CONV_H
#define FL_CONV_H

#include "window_geometry.h"

/* Operands of conv2d; its gradients have g, then what is not asked for. */
enum { FL_CONV_X, FL_CONV_WEIGHT, FL_CONV_BIAS };
enum { FL_CONV_GRAD_G, FL_CONV_GRAD_OTHER };

/* The attributes of conv2d and of its gradients; SIZE of the gradients only. */
enum { FL_CONV_STRIDE, FL_CONV_PADDING, FL_CONV_DILATION, FL_CONV_GROUPS, FL_CONV_SIZE };

/* Words that the padding may be. */
enum { FL_CONV_SAME, FL_CONV_VALID };

/* x [images, groups * in, depth, rows, columns], y [images, groups * out, ...], weight [groups * out, in, window].
** Fewer axes are the last ones, and those before them have size 1. One image may come without the first axis. */
typedef struct fl_conv {
    fl_window_geometry window;
    int64_t images, groups, in, out; /* channels of one group */
    int64_t x_size[FL_WINDOW_AXES], y_size[FL_WINDOW_AXES];
} fl_conv;

static inline int64_t fl_conv_volume(const int64_t size[FL_WINDOW_AXES]) { return size[0] * size[1] * size[2]; }
static inline int64_t fl_conv_taps(const fl_conv *conv) { return fl_conv_volume(conv->window.size); }
static inline int64_t fl_conv_depth(const fl_conv *conv) { return conv->in * fl_conv_taps(conv); }
static inline int64_t fl_conv_x_plane(const fl_conv *conv) { return fl_conv_volume(conv->x_size); }
static inline int64_t fl_conv_y_plane(const fl_conv *conv) { return fl_conv_volume(conv->y_size); }
/* Rows of y: of all depths. */
static inline int64_t fl_conv_rows(const fl_conv *conv) { return conv->y_size[0] * conv->y_size[1]; }

/* True if y is a product of x itself: a window of one element, without stride and padding. */
static inline bool fl_conv_is_pointwise(const fl_conv *conv)
{
    const fl_window_geometry *w = &conv->window;
    for (int d = 0; d < FL_WINDOW_AXES; d++)
        if (w->stride[d] != 1 || w->padding[d] != 0) return false;
    return fl_conv_taps(conv) == 1;
}

/* Every channel by itself: a window of one channel each. */
static inline bool fl_conv_is_depthwise(const fl_conv *conv) { return conv->in == 1 && conv->out == 1; }

/* The axis of x and y that holds the channels, before `axes` axes of the window. */
static inline int fl_conv_channels(int ndim, int axes) { return ndim - axes - 1; }

/* True if the padding gives the result the size of x. */
static inline bool fl_conv_keeps_size(const fl_attrs *attrs)
{
    const fl_attr *a = &attrs->at[FL_CONV_PADDING];
    return a->kind == FL_WORD && a->integer == FL_CONV_SAME;
}

/* Sets the padding before the image; the rest of the geometry is already set. If "same" needs an odd total, the extra
** row or column goes after the image. */
static inline void fl_conv_pad(fl_window_geometry *geometry, const fl_attrs *attrs, int axes)
{
    bool keeps_size = fl_conv_keeps_size(attrs);
    for (int d = 0; d < FL_WINDOW_AXES; d++)
        geometry->padding[d] = keeps_size ? (fl_window_geometry_span(geometry, d) - 1) / 2 : 0;
    if (attrs->at[FL_CONV_PADDING].kind != FL_WORD)
        fl_window_geometry_read(geometry->padding + FL_WINDOW_AXES - axes, &attrs->at[FL_CONV_PADDING], axes);
}

/* A window of size 1 that covers every element once. */
static inline fl_window_geometry fl_conv_no_window(void)
{
    fl_window_geometry w;
    for (int d = 0; d < FL_WINDOW_AXES; d++) {
        w.size[d] = w.stride[d] = w.dilation[d] = 1;
        w.padding[d] = 0;
    }
    return w;
}

/* The convolution of these parts. Groups are counted from the channels, because ranks may share groups. */
static inline fl_conv fl_conv_of(const fl_attrs *attrs, const fl_view *x, const fl_view *weight, const fl_view *y)
{
    fl_conv c;
    int axes = weight->ndim - 2, channels = fl_conv_channels(x->ndim, axes), before = FL_WINDOW_AXES - axes;
    c.window = fl_conv_no_window();
    c.in = weight->size[1];
    c.images = channels ? x->size[0] : 1;
    c.groups = c.in ? x->size[channels] / c.in : 1;
    c.out = c.groups ? y->size[channels] / c.groups : 0;
    for (int d = 0; d < FL_WINDOW_AXES; d++) {
        c.x_size[d] = d < before ? 1 : x->size[channels + 1 + d - before];
        c.y_size[d] = d < before ? 1 : y->size[channels + 1 + d - before];
        if (d >= before) c.window.size[d] = weight->size[2 + d - before];
    }
    fl_window_geometry_read(c.window.stride + before, &attrs->at[FL_CONV_STRIDE], axes);
    fl_window_geometry_read(c.window.dilation + before, &attrs->at[FL_CONV_DILATION], axes);
    fl_conv_pad(&c.window, attrs, axes);
    return c;
}

#endif
