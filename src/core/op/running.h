/*
** running.h -- running products, extremes and sums of exponentials: shared by the kernels of the CPU and of devices.
*/
#ifndef FL_OP_RUNNING_H
#define FL_OP_RUNNING_H

/* op->variant: the function that makes a result of the element and the result before it. */
typedef enum fl_running {
    FL_RUNNING_PRODUCT,
    FL_RUNNING_LARGEST, /* with positions, the last of equal ones; NaN is the largest, and the smallest */
    FL_RUNNING_SMALLEST,
    FL_RUNNING_LOGSUMEXP,
    FL_RUNNING_LINEAR /* of two operands: y[i] = h[i] + x[i] y[i - 1] */
} fl_running;

/* Attributes; backwards: of linear_recurrence, from the last element, where y[i] = h[i] + x[i + 1] y[i + 1]. */
enum { FL_RUNNING_AXIS, FL_RUNNING_BACKWARDS };
enum { FL_LINEAR_ADDED, FL_LINEAR_FACTOR };

#endif
