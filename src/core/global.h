/*
** global.h -- global tensors: boxing as an op, local parts, local tensors put together.
*/
#ifndef FL_GLOBAL_H
#define FL_GLOBAL_H

#include "tensor.h"

/* x (global) on `placement` as `nd_sbp`; recorded: its gradient is boxed back to x's SBP, or to *grad_sbp. */
fl_status fl_to_global(fl_tensor **out, fl_tensor *x, const fl_placement *placement, fl_nd_sbp nd_sbp, const fl_nd_sbp *grad_sbp);

/* The ranks' local parts put together (every rank of the world calls this). At world size 1 the local tensor is
** the whole part; in the dry world the shapes of the other ranks are unknown, so a split is an error. */
fl_status fl_local_to_global(fl_tensor **out, fl_tensor *local, const fl_placement *placement, fl_nd_sbp nd_sbp, bool check);

/* This rank's part as a local tensor: a view; recorded. */
fl_status fl_to_local(fl_tensor **out, fl_tensor *x, const fl_nd_sbp *grad_sbp);

/* Tests: `local` is this rank's part of a tensor of this logical shape (checked against the window). */
fl_status fl_global_from_part(fl_tensor **out, fl_tensor *local, const fl_shape *logical, const fl_placement *placement, fl_nd_sbp nd_sbp);

#endif
