/*
** loss_rows.h -- what bodies that call the hidden ops of losses with class labels share.
*/
#ifndef FL_LOSS_ROWS_H
#define FL_LOSS_ROWS_H

#include "ops.h"

/* Attributes for one of these ops: those that all have (op/loss.h) are another's, the rest are defaults. */
fl_attrs fl_loss_rows_attrs(const fl_op *op, const fl_attrs *from);

#endif
