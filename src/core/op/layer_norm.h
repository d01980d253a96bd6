/*
** layer_norm.h -- operands, results and attributes of layer_norm_rows and layer_norm_backward: shared by the kernels of
** the CPU and of devices.
*/
#ifndef FL_OP_LAYER_NORM_H
#define FL_OP_LAYER_NORM_H

/* layer_norm_rows */
enum { ROWS_X, ROWS_WEIGHT, ROWS_BIAS };
enum { ROWS_Y, ROWS_MEAN, ROWS_RSTD };

/* layer_norm_backward */
enum { BACK_DY, BACK_X, BACK_MEAN, BACK_RSTD, BACK_WEIGHT, BACK_OPERANDS };
enum { BACK_DX, BACK_DWEIGHT, BACK_DBIAS };

enum { ATTR_AXES, ATTR_EPS }; /* of both; eps: layer_norm_rows alone */

#endif
