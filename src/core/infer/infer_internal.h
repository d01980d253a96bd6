/*
** infer_internal.h -- what the three parts of inference share: plan_cache.c (keys, eviction), infer.c
** (building a plan) and sbp_choose.c (the choice among an op's signatures).
*/
#ifndef FL_INFER_INTERNAL_H
#define FL_INFER_INTERNAL_H

#include "infer.h"
#include "op/operand.h"

/* Fills a plan from scratch. On failure nothing is owned by it. */
fl_status fl_plan_build(fl_plan *plan, const fl_op *op, const fl_operand *in, int nin, const fl_attrs *attrs,
                        bool in_place);

/* Sets what a plan that is built says of the op to other ranks; words: the attributes as the key has them. */
fl_status fl_plan_note(fl_plan *plan, const fl_operand *in, const fl_attrs *attrs, const uint64_t *words, int count);

/* Gives back what the plan owns. */
void fl_plan_release(fl_plan *plan);

#endif
