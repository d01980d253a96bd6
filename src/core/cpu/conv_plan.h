/*
** conv_plan.h -- convolutions of some float32 images by oneDNN, in the layouts that it is fastest in.
*/
#ifndef FL_CONV_PLAN_H
#define FL_CONV_PLAN_H

#include "conv.h"

/* A part of a convolution: so many of its images, and of its channels where it has one group. */
typedef struct fl_conv_part {
    fl_conv conv; /* the whole; its `images` count does not matter */
    int64_t images, in, out;
    int64_t sum, bias; /* fl_conv_sum; 1: there is a bias */
} fl_conv_part;

/* An operand: its layout in the caller's memory and the library's layout. bytes: of the latter, 0 where they are
** the same and nothing is reordered. */
typedef struct fl_conv_side {
    const void *plain, *own;
    void *reorder;
    int64_t bytes;
} fl_conv_side;

enum { FL_CONV_SIDE_X, FL_CONV_SIDE_WEIGHT, FL_CONV_SIDE_Y, FL_CONV_SIDES };

typedef struct fl_conv_plan fl_conv_plan;
struct fl_conv_plan {
    fl_conv_part part;
    fl_conv_side sides[FL_CONV_SIDES];
    int64_t scratch_bytes;
    bool usable;
    struct fl_conv_plan_own *own;
};

/* The plan of a part, borrowed; it is there until some hundred others have been asked for. NULL: oneDNN is not there,
** or has no code of its own for this convolution. From the thread that runs kernels. */
const fl_conv_plan *fl_conv_plan_of(const fl_conv_part *part);

/* True if a weight in the layout of one plan is one in that of the other. */
bool fl_conv_plans_agree(const fl_conv_plan *a, const fl_conv_plan *b);

/* Memory of one thread for one plan: where the operands lie. Any thread; close what was opened. */
typedef struct fl_conv_run {
    const fl_conv_plan *plan;
    void *stream, *plain[FL_CONV_SIDES], *own[FL_CONV_SIDES], *bias, *scratch;
} fl_conv_run;
/* own: memory of `bytes` for each side that has any. false: out of memory. */
bool fl_conv_run_open(fl_conv_run *run, const fl_conv_plan *plan, void *const own[FL_CONV_SIDES], void *scratch);
void fl_conv_run_close(fl_conv_run *run);
/* Points at a side as the caller has it, or at the bias. */
void fl_conv_run_at(fl_conv_run *run, int side, const void *plain);
void fl_conv_run_bias_at(fl_conv_run *run, const void *bias);
/* Points at the library's layout of a side. */
void fl_conv_run_own_at(fl_conv_run *run, int side, void *own);
/* From the caller's layout into the library's, and back; nothing where they are the same. */
bool fl_conv_run_bring(fl_conv_run *run, int side);
bool fl_conv_run_return(fl_conv_run *run, int side);
/* The sum itself, of what lies in the library's layouts. */
bool fl_conv_run_sum(fl_conv_run *run);

#endif
