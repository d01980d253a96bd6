/*
** cost.h -- what one call of an op costs this rank, by its descriptor and the shapes of its parts; nothing is run.
*/
#ifndef FL_COST_H
#define FL_COST_H

#include "call.h"

typedef struct fl_cost {
    fl_dtype dtype; /* that it computes in: of the first operand of floats, else of the result */
    int64_t flops;  /* fl_op.flops */
    int64_t bytes;  /* of operands read and results written, each once */
} fl_cost;

/* Of a call whose outputs are allocated; of a view: nothing. */
fl_status fl_cost_of(fl_cost *out, const fl_call *call);

/* Set while a step is planned: called with every op that is only inferred. */
FL_OWN extern void (*fl_cost_watch)(const fl_call *call);

#endif
