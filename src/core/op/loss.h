/*
** loss.h -- variants, operands and attributes of the losses of rows with class labels: shared by the kernels of the CPU
** and of devices.
*/
#ifndef FL_LOSS_H
#define FL_LOSS_H

#include <stdbool.h>

/* op->variant: of scores (cross_entropy_rows and its gradient), of log-probabilities (nll_rows and its gradient) */
enum { FL_LOSS_OF_SCORES, FL_LOSS_OF_LOGS };

/* Operands of cross_entropy_rows and nll_rows, and of the gradient of each. */
enum { ROWS_INPUT, ROWS_TARGET, ROWS_WEIGHT };
enum { SCORES_DY, SCORES_INPUT, SCORES_TARGET, SCORES_LSE, SCORES_WEIGHT };
enum { LOGS_DY, LOGS_TARGET, LOGS_WEIGHT };

/* Results: the first of both, then those of one. */
enum { ROWS_LOSS, SCORES_ROWS_LSE, SCORES_ROWS_COUNT, LOGS_ROWS_COUNT = 1 };

/* Attributes: the first two of all four, then those of one. */
enum {
    LOSS_IGNORE,
    LOSS_SMOOTHING,
    NLL_NAMED_CROSS_ENTROPY = 2, /* of nll_rows: it works for cross_entropy, which messages name */
    SCORES_TARGETS = 2,          /* of cross_entropy_backward: false: of the log-sum-exp alone */
    LOGS_SIZES = 2,              /* of nll_backward */
    LOGS_LIKE
};

/* The loss that a script called. */
static inline const char *fl_loss_name(int variant, bool named_cross_entropy)
{
    return variant == FL_LOSS_OF_LOGS && !named_cross_entropy ? "nll_loss" : "cross_entropy";
}

#endif
