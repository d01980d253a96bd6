/*
** pool.h -- what poolings of other axes take from pool.c.
*/
#ifndef FL_OPS_POOL_H
#define FL_OPS_POOL_H

#include "ops.h"

/* The op that pools images x by maxima: with the taps they lie at where these are asked for or a gradient will need
** them, else without. Both take the attributes of max_pool2d. */
const fl_op *fl_max_pool2d_op(const fl_tensor *x, bool taps);

#endif
