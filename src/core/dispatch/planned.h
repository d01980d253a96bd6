/*
** planned.h -- ops of a script that is planned (fl_world_plan): some are computed, others only inferred.
**
** Data stay data: tensors that a script reads from files or writes down, and what it makes of these on the CPU, have
** values, so that sizes that depend on them are right. All else is on FL_META: tensors over ranks or on a device,
** floats that a script fills or draws, and whatever is computed with one of those.
*/
#ifndef FL_PLANNED_H
#define FL_PLANNED_H

#include "op/op.h"

/* Turns the inspection of ops on or off. It is on from the start, and off where drawn or filled values must be on the
** CPU. */
void fl_planned_look_on(bool on);

/* The call of an op in a planned world, in place or not. `dispatch` runs it, where it is to run, with these operands
** and attributes or with others that stand in for them. */
fl_status fl_planned_dispatch(fl_tensor **out, const fl_op *op, const fl_operand *in, int nin, const fl_attrs *attrs,
                              bool in_place,
                              fl_status (*dispatch)(fl_tensor **out, const fl_op *op, const fl_operand *in, int nin,
                                                    const fl_attrs *attrs));

/* True of tensors that have no values because the script is planned. */
static inline bool fl_is_planned(const fl_meta *meta)
{
    return meta->placement->type == FL_META && fl_world_get()->planned;
}

#endif
