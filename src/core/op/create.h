/*
** create.h -- attributes of the ops that make or fill tensors out of sizes and numbers: shared by the kernels of the
** CPU and of devices.
*/
#ifndef FL_OP_CREATE_H
#define FL_OP_CREATE_H

enum { SOURCE_SIZE, FULL_VALUE }; /* zeros, ones, empty: a size; full: a size and a number */
enum { FILL_VALUE };              /* full_like, fill_ */
enum { EYE_ROWS, EYE_COLUMNS };
enum { ARANGE_START, ARANGE_STOP, ARANGE_STEP };
enum { LINSPACE_START, LINSPACE_STOP, LINSPACE_STEPS };
enum { TRIANGLE_DIAGONAL }; /* tril, triu */

#endif
