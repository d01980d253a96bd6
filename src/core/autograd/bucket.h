/*
** bucket.h -- gradients summed over the same ranks travel in one all-reduce.
*/
#ifndef FL_BUCKET_H
#define FL_BUCKET_H

#include "memory/tensor.h"

/* While a tensor of a joined all-reduce is reported to an observer of boxing: number of those reported before. */
FL_OWN extern int fl_bucket_reported;

/* fl_boxing_apply for each of xs, in order; all-reduces of neighbours among the same ranks travel together. out[i] is
** NULL or set; on an error the caller releases those that are set. */
fl_status fl_bucket_box(fl_tensor **out, fl_tensor *const *xs, const fl_meta *const *to, int count);

#endif
