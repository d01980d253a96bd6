/*
** augment.h -- steps that change images: scaled, cut, mirrored, turned, in other colours.
**
** A list of steps, made once. The random numbers of a step come from the words of random.h for (seed, epoch), the
** position of the image and the place of the step in the list: so it depends on neither threads, batches nor ranks, and
** a step that is added at the end changes none before it.
*/
#ifndef FL_AUGMENT_H
#define FL_AUGMENT_H

#include "file/image.h"
#include "resample.h"

typedef enum fl_augment_kind {
    FL_STEP_RESIZE,              /* height, width; width 0: the shorter side becomes height */
    FL_STEP_CROP,                /* top, left, height, width */
    FL_STEP_CENTER_CROP,         /* height, width */
    FL_STEP_PAD,                 /* left, top, right, bottom, fill of 4 channels */
    FL_STEP_RANDOM_CROP,         /* height, width, left, top, right, bottom (padding), fill of 4 channels */
    FL_STEP_RANDOM_RESIZED_CROP, /* height, width, least and most of the area, least and most width : height */
    FL_STEP_HORIZONTAL_FLIP,     /* probability */
    FL_STEP_VERTICAL_FLIP,       /* probability */
    FL_STEP_ROTATE,              /* least and most degrees, against the clock; 1: nearest pixel; fill of 4 channels */
    FL_STEP_COLOR_JITTER,        /* least and most of brightness, contrast, saturation, hue (1, 1, 1, 0: none) */
    FL_STEP_GRAYSCALE,           /* probability */
    FL_STEP_ERASE,               /* probability, least and most of the area, least and most ratio, fill of 4 channels */
    FL_STEP_COUNT
} fl_augment_kind;

enum { FL_STEP_VALUES = 12, FL_STEPS_MOST = 16 };

typedef struct fl_augment_step {
    fl_augment_kind kind;
    double values[FL_STEP_VALUES]; /* as above */
} fl_augment_step;

typedef struct fl_augment {
    int count;
    fl_augment_step steps[FL_STEPS_MOST];
    bool exact; /* JPEG files are decoded at their full size, also where they become much smaller */
} fl_augment;

/* "resize" and so on: the kind; -1: there is none. count: number of its values. */
int fl_augment_kind_of(const char *name, int *count);

/* Sizes of the result for an image of any size; false: they depend on it. */
bool fl_augment_size(const fl_augment *augment, int *height, int *width);

/* The seed, epoch and position that an image's random numbers depend on. */
typedef struct fl_augment_draw {
    uint64_t seed, epoch;
    int64_t position;
} fl_augment_draw;

/* Buffers of a thread, kept from image to image. Begins as {0}. `now` is the image. */
typedef struct fl_augmenter {
    fl_pixels pixels;
    fl_planes now, spare;
    fl_resampler resampler;
} fl_augmenter;
void fl_augmenter_free(fl_augmenter *augmenter);

/* Decodes the file, as far as the steps need it, and runs them. Errors name the file. */
fl_status fl_augment_file(fl_augmenter *augmenter, const fl_augment *augment, fl_image_file *file,
                          const fl_augment_draw *draw);

/* Runs the steps on augmenter->now. Errors name no file. */
fl_status fl_augment_planes(fl_augmenter *augmenter, const fl_augment *augment, const fl_augment_draw *draw);

#endif
