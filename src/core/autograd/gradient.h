/*
** gradient.h -- gradients on their way: their sums, the shape and dtype that a tensor's gradient has, hooks.
*/
#ifndef FL_GRADIENT_H
#define FL_GRADIENT_H

#include "tape.h"

/* True if the tensor may be written, because nothing else refers to it or its storage. */
bool fl_gradient_is_own(fl_tensor *tensor);

/* Makes *sum, of a global tensor, one that may be written, also if it waits to be computed: by a copy where something
** else refers to it, which may be so on some ranks only. */
fl_status fl_gradient_make_own(fl_tensor **sum);

/* *sum (NULL: nothing yet) += g, whose reference is taken over. create_graph: the sum is recorded. */
fl_status fl_gradient_add(fl_tensor **sum, fl_tensor *g, bool create_graph);

/* Brings *g to the shape and dtype of the input it is the gradient of. */
fl_status fl_gradient_reshape(fl_tensor **g, const fl_meta *meta);
static inline fl_status fl_gradient_fit(fl_tensor **g, const fl_meta *meta)
{
    return (*g)->meta == meta ? FL_OK : fl_gradient_reshape(g, meta);
}

/* Has the hooks of output `slot` see *g, and replace it. */
fl_status fl_gradient_call(fl_tensor **g, const tape_hook *hook, int slot);
static inline fl_status fl_gradient_hook(fl_tensor **g, const tape_hook *hook, int slot)
{
    return hook ? fl_gradient_call(g, hook, slot) : FL_OK;
}

#endif
