/*
** augment_internal.h -- the steps that augment.c calls.
*/
#ifndef FL_AUGMENT_INTERNAL_H
#define FL_AUGMENT_INTERNAL_H

#include "augment.h"

enum { FL_STEP_WORDS = 64 };

/* The random words of one step of one image, used in order. */
typedef struct fl_step_words {
    uint32_t words[FL_STEP_WORDS];
    int used;
} fl_step_words;

static inline double fl_draw_unit(fl_step_words *words)
{
    return (words->words[words->used++ % FL_STEP_WORDS] >> 8) * 0x1p-24;
}
static inline double fl_draw_between(fl_step_words *words, double low, double high)
{
    return low + (high - low) * fl_draw_unit(words);
}
static inline int fl_draw_below(fl_step_words *words, int n) { return (int)(fl_draw_unit(words) * n); }

/* A box of an image of this size, drawn as random_resized_crop draws it. */
fl_image_box fl_draw_box(fl_step_words *words, const double *values, int height, int width);

/* A box drawn for random_erasing; false: none fits. */
bool fl_draw_erased(fl_image_box *box, fl_step_words *words, const double *values, int height, int width);

/* Each changes augmenter->now. */
fl_status fl_step_crop(fl_augmenter *augmenter, fl_image_box box, const double *fill); /* also beyond the edges */
fl_status fl_step_scale(fl_augmenter *augmenter, const fl_scaling *scaling);
fl_status fl_step_rotate(fl_augmenter *augmenter, double degrees, bool nearest, const double *fill);
void fl_step_mirror(fl_planes *planes);
void fl_step_upend(fl_planes *planes);
void fl_step_erase(fl_planes *planes, fl_image_box box, const double *fill);
fl_status fl_step_jitter(fl_planes *planes, fl_step_words *words, const double *values);
fl_status fl_step_gray(fl_planes *planes);

#endif
