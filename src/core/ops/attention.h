/*
** attention.h -- what attention.c and attention_grad.c have of each other.
*/
#ifndef FL_ATTENTION_OPS_H
#define FL_ATTENTION_OPS_H

#include "op/attention.h"
#include "op/op.h"

/* Attributes of all ops of attention, in signatures. */
#define ATTENTION_ATTRS "is_causal: bool = false, ~dropout: float = 0, ~scale: float = nil"

/* These attributes, for another of the ops. */
static inline fl_attrs fl_attention_attrs(const fl_op *op, const fl_attrs *from)
{
    fl_attrs a;
    fl_attrs_init(&a, op);
    for (int i = FL_ATTENTION_CAUSAL; i <= FL_ATTENTION_SCALE; i++) a.at[i] = from->at[i];
    return a;
}

/* Errors: a mask is neither bool nor float, or does not broadcast to the scores; a random key is not int64 [2]. */
fl_status fl_attention_check_mask(const fl_infer *infer, const fl_spec *mask, const fl_shape *scores);
fl_status fl_attention_check_key(const fl_infer *infer, int operand);

/* The split of a mask where axis i of the scores is split; B where the mask broadcasts along it. */
fl_sbp fl_attention_mask_split(const fl_sigs *sigs, int mask, const fl_shape *scores, int i);

/* Gradients of attention_rows and of attention_backward. */
fl_status fl_attention_grad(fl_grad *g);
fl_status fl_attention_backward_grad(fl_grad *g);

#endif
