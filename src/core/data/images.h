/*
** images.h -- batches of images: read, decoded, augmented and written as numbers by the pool, on the lane of the data.
*/
#ifndef FL_IMAGES_H
#define FL_IMAGES_H

#include "augment.h"
#include "memory/tensor.h"
#include "source.h"

/* The conversion of pixels to numbers: x * scale + shift of each channel; unchanged if the dtype is uint8. */
typedef struct fl_image_output {
    fl_dtype dtype;
    bool channels_last; /* [height, width, channels] instead of [channels, height, width] */
    float scale[4], shift[4];
} fl_image_output;

/* The conversion of each item of a source. */
typedef struct fl_image_set {
    fl_augment augment;
    fl_image_options options;
    fl_image_output output;
    int workers; /* 0: one per core */
} fl_image_set;

/* The image as a new tensor. */
fl_status fl_image_tensor(fl_tensor **out, const fl_planes *planes, const fl_image_output *output);

/* One item, at once: the image in the size that the steps give it, its label. who: first word of messages. */
fl_status fl_image_item(fl_tensor **out, int64_t *label, bool *has_label, const fl_item_source *source,
                        const fl_image_set *set, const fl_augment_draw *draw);

/* The steps on each image of a uint8 tensor on this host, [channels, height, width] or a batch of them; image i draws
** as draw->position + i. */
fl_status fl_image_augment(fl_tensor **out, fl_tensor *in, const fl_image_set *set, const fl_augment_draw *draw);

/* A batch. images: [count, channels, height, width], contiguous, and labels (int64 [count], or NULL) are written by a
** task; errors arrive there. held: a variable that the task reads: while it is pending, `source` must live. position in
** draw is not used: it is that of each item; negative ones count from the end. */
fl_status fl_image_batch(fl_tensor *images, fl_tensor *labels, const fl_item_source *source, fl_var *held,
                         const fl_image_set *set, const fl_augment_draw *draw, const int64_t *positions, int64_t count);

#endif
