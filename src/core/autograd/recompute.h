/*
** recompute.h -- functions whose ops keep no values for their gradients, and run again when backward needs these.
**
** The graph is the one that there is without this: the same nodes, with the same edges. Only the values that a node
** would save, and that the function itself made, are left out. The first node of backward that misses one has the
** function run again, with the random numbers of the first time. Its n-th node then gives what it saved to the n-th
** node of the first run, after a comparison of the two. So gradients have the bits that they have without this.
**
** Inside a function that is run for the first time another one is part of it; while the outer one runs again, the inner
** one leaves its values out once more, and runs again when they are needed.
*/
#ifndef FL_RECOMPUTE_H
#define FL_RECOMPUTE_H

#include "memory/tensor.h"

typedef struct fl_recompute fl_recompute;

/* A function that can run again, as the host language gives it. */
typedef struct fl_recompute_calls {
    fl_status (*run)(void *context); /* calls it again, with the same arguments */
    void (*release)(void *context);  /* it will not be called again */
} fl_recompute_calls;

/* True if a function that is called now has to be watched: ops are recorded, and no first run around this one does. */
bool fl_recompute_wanted(void);

/* From here to fl_recompute_end the function runs for the first time. The caller gets one reference. `context` is
** released with the last one, also where this fails. */
fl_status fl_recompute_begin(fl_recompute **out, fl_recompute_calls calls, void *context);

/* A tensor that the function gets, called `name` in messages (copied): writing to it in place is an error, in the
** function and before it has run again. */
fl_status fl_recompute_input(fl_recompute *recompute, fl_tensor *tensor, const char *name);

/* The first run is over; done: without an error. */
fl_status fl_recompute_end(fl_recompute *recompute, bool done);

void fl_recompute_unref(fl_recompute *recompute);

/* True while a function runs, for the first time or again. */
bool fl_recompute_is_running(void);

/* True while a function runs again and all that is needed is there: it can be stopped. */
bool fl_recompute_complete(void);

#endif
