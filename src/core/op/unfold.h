/*
** unfold.h -- attributes of the ops that make columns of windows, and of them images: shared by the kernels of the CPU
** and of devices.
*/
#ifndef FL_UNFOLD_H
#define FL_UNFOLD_H

#include "conv.h"

/* Of im2col; col2im has the size of the images before them. */
enum { FL_UNFOLD_KERNEL, FL_UNFOLD_DILATION, FL_UNFOLD_PADDING, FL_UNFOLD_STRIDE, FL_UNFOLD_ATTRS };
enum { FL_FOLD_SIZE, FL_FOLD_WINDOW };

/* The windows of these images, [n, channels, rows, columns] or without n: a convolution without a weight. */
static inline fl_conv fl_unfold_of(const fl_attrs *attrs, const fl_view *image, bool folds)
{
    fl_conv c;
    const fl_attr *window = attrs->at + (folds ? FL_FOLD_WINDOW : 0);
    c.window = fl_conv_no_window();
    fl_window_geometry_read(c.window.size + 1, &window[FL_UNFOLD_KERNEL], 2);
    fl_window_geometry_read(c.window.dilation + 1, &window[FL_UNFOLD_DILATION], 2);
    fl_window_geometry_read(c.window.padding + 1, &window[FL_UNFOLD_PADDING], 2);
    fl_window_geometry_read(c.window.stride + 1, &window[FL_UNFOLD_STRIDE], 2);
    c.images = image->ndim == 4 ? image->size[0] : 1;
    c.groups = 1;
    c.in = image->size[image->ndim - 3];
    c.out = 0;
    c.x_size[0] = c.y_size[0] = 1;
    for (int d = 1; d < FL_WINDOW_AXES; d++) {
        c.x_size[d] = image->size[image->ndim - FL_WINDOW_AXES + d];
        c.y_size[d] = fl_window_geometry_count(&c.window, d, c.x_size[d], false);
    }
    return c;
}

#endif
