/*
** operand.h -- operands of a call while it is inferred: their names and the dtype they are promoted to.
*/
#ifndef FL_OPERAND_H
#define FL_OPERAND_H

#include "op.h"

/* Name of operand i as the user counts: "x", or "xs[2]" within a list. */
enum { FL_OPERAND_NAME = 48 };
const char *fl_operand_name(char *buffer, const fl_op *op, int i);

/* The op updates operand i of nin. */
static inline bool fl_op_writes(const fl_op *op, int i, int nin, bool in_place)
{
    int bit = op->groups ? i / (nin / op->groups) : i;
    return (in_place && i == 0) || (bit < 32 && (op->mutates >> bit & 1u));
}

/* Promoted dtype of all tensor and number operands (promote.h). */
FL_EXPORT fl_dtype fl_infer_promote(const fl_infer *infer);
/* The same over the operands of a mask (bit i: operand i). */
FL_EXPORT fl_dtype fl_infer_promote_some(const fl_infer *infer, uint32_t operands);

/* A Lua number as a kernel sees it, in the dtype that the plan has for numbers. */
FL_EXPORT void fl_view_of_number(fl_view *view, const fl_operand *operand, fl_dtype dtype);

/* The number that such a view holds; FL_NONE: it has no data. */
fl_operand fl_number_of_view(const fl_view *view);

#endif
