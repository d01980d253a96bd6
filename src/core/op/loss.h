/*
** loss.h -- the words of `reduction`; variants, operands and attributes of the losses of rows with class labels.
** Kernels of the CPU and of devices share them.
*/
#ifndef FL_LOSS_H
#define FL_LOSS_H

#include <stdbool.h>

/* Words of the attribute `reduction`. */
enum { FL_LOSS_MEAN, FL_LOSS_SUM, FL_LOSS_NONE };

/* op->variant: of scores (cross_entropy_rows and its gradient), of log-probabilities (nll_rows and its gradient) */
enum { FL_LOSS_OF_SCORES, FL_LOSS_OF_LOGS };

/* Operands of cross_entropy_rows and nll_rows, and of the gradient of each. */
enum { FL_LOSS_INPUT, FL_LOSS_TARGET, FL_LOSS_WEIGHT };
enum { FL_SCORES_DY, FL_SCORES_INPUT, FL_SCORES_TARGET, FL_SCORES_LSE, FL_SCORES_WEIGHT };
enum { FL_LOGS_DY, FL_LOGS_TARGET, FL_LOGS_WEIGHT };

/* Results: the first of both, then those of one. */
enum { FL_LOSS_ROWS, FL_SCORES_ROWS_LSE, FL_SCORES_ROWS_COUNT, FL_LOGS_ROWS_COUNT = 1 };

/* Attributes: the first two of all four, then those of one. */
enum {
    FL_LOSS_IGNORE,
    FL_LOSS_SMOOTHING,
    FL_NLL_NAMED_CROSS_ENTROPY = 2, /* of nll_rows: it works for cross_entropy, which messages name */
    FL_SCORES_TARGETS = 2,          /* of cross_entropy_backward: false: of the log-sum-exp alone */
    FL_LOGS_SIZES = 2,              /* of nll_backward */
    FL_LOGS_LIKE
};

/* The axis of classes of an input with `ndim` axes: [n, classes, ...] or [classes]. */
static inline int fl_loss_class_axis(int ndim) { return ndim > 1; }

/* The loss that a script called. */
static inline const char *fl_loss_name(int variant, bool named_cross_entropy)
{
    return variant == FL_LOSS_OF_LOGS && !named_cross_entropy ? "nll_loss" : "cross_entropy";
}

#endif
