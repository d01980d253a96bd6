/*
** create.h -- attributes of the ops that make or fill tensors out of sizes and numbers: shared by the kernels of the
** CPU and of devices.
*/
#ifndef FL_OP_CREATE_H
#define FL_OP_CREATE_H

enum { FL_SOURCE_SIZE, FL_FULL_VALUE }; /* zeros, ones, empty: a size; full: a size and a number */
enum { FL_FILL_VALUE };                 /* full_like, fill_ */
enum { FL_EYE_ROWS, FL_EYE_COLUMNS };
enum { FL_ARANGE_START, FL_ARANGE_STOP, FL_ARANGE_STEP };
enum { FL_LINSPACE_START, FL_LINSPACE_STOP, FL_LINSPACE_STEPS };
enum { FL_TRIANGLE_DIAGONAL }; /* tril, triu */

#endif
