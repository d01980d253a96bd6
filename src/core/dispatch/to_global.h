/*
** to_global.h -- a tensor on another placement or in another SBP: boxing, local parts, local tensors put together.
*/
#ifndef FL_TO_GLOBAL_H
#define FL_TO_GLOBAL_H

#include "op/op.h"

/* x (global) on `placement` as `nd_sbp`; recorded: its gradient is boxed back to x's SBP, or to *grad_sbp. */
fl_status fl_to_global(fl_tensor **out, fl_tensor *x, const fl_placement *placement, fl_nd_sbp nd_sbp,
                       const fl_nd_sbp *grad_sbp);

/* The same with a priority (base/priority.h) that the boxing and that of its gradient have in captured steps
** (program/priorities.c). */
fl_status fl_to_global_with(fl_tensor **out, fl_tensor *x, const fl_placement *placement, fl_nd_sbp nd_sbp,
                            const fl_nd_sbp *grad_sbp, int priority);

/* The ranks' local parts put together; every rank of the world calls this, ranks outside of the placement with any
** tensor. dtype and shapes of the parts are exchanged: S parts of any sizes follow one another, and are moved into a
** balanced split where they are none; P parts have equal shapes; B parts equal shapes and, with `check`, equal data.
** Its gradient gives each rank its part back. In the dry world the other ranks' shapes are unknown: splits and checks
** are errors. On FL_META nothing is exchanged: the other ranks' parts are taken to be like this one. */
fl_status fl_local_to_global(fl_tensor **out, fl_tensor *local, const fl_placement *placement, fl_nd_sbp nd_sbp,
                             bool check);

/* This rank's part as a local tensor: a view; recorded. */
fl_status fl_to_local(fl_tensor **out, fl_tensor *x, const fl_nd_sbp *grad_sbp);

/* A local tensor on another device of this rank (a local placement); recorded. */
fl_status fl_to_device(fl_tensor **out, fl_tensor *x, const fl_placement *device);

/* This rank's part as a local CPU tensor with its value (waits), for code that reads it: x's own memory where that is
** on the CPU; not connected to the tape. On FL_META there is none: an error without a name in front. */
fl_status fl_host_part(fl_tensor **out, fl_tensor *x);
/* The same with all elements of a global tensor: every rank calls it. */
fl_status fl_host_whole(fl_tensor **out, fl_tensor *x);

/* All ranks of the placement of `whole` must pass the same data; if they differ, their next collective is an error.
** Waits for `local`. */
fl_status fl_global_note_data(fl_tensor *local, const fl_meta *whole);

/* The global tensor of which `local` is this rank's part; its shape is checked against the window. */
fl_status fl_global_from_part(fl_tensor **out, fl_tensor *local, const fl_shape *logical, const fl_placement *placement,
                              fl_nd_sbp nd_sbp);

/* Attributes of the ops to_global, to_local and to_device; priority: of to_global alone. */
enum { FL_BOX_GRAD_SBP, FL_BOX_PRIORITY };
/* Attributes of from_local. */
enum { FL_FROM_LOCAL_GRAD_SBP = FL_BOX_GRAD_SBP, FL_FROM_LOCAL_SHAPE };

/* Attributes of these ops: where the result is, and optionally the SBP its gradient is boxed to. */
void fl_to_global_attrs(fl_attrs *attrs, const fl_op *op, const fl_placement *placement, fl_nd_sbp nd_sbp,
                        const fl_nd_sbp *grad_sbp);

/* True if the place of the op's result is given by options, though its signature has none. */
bool fl_op_is_placed(const fl_op *op);

/* Checks options that others wrote for such an op: one that is no place, or a whole shape that is none, is an error
** that begins with `who`. A device counts as a place. */
fl_status fl_place_check(fl_attrs *attrs, const fl_op *op, const char *who);

/* The SBP that the gradient of x is boxed to, of a tensor that has as many hierarchy axes; op may be to_local too. */
fl_status fl_place_set_grad_sbp(fl_attrs *attrs, const fl_op *op, const fl_meta *x, fl_nd_sbp grad_sbp,
                                const char *who);

#endif
