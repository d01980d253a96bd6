/*
** layer_norm.h -- operands, results and attributes of layer_norm_rows and layer_norm_backward: shared by the kernels of
** the CPU and of devices.
*/
#ifndef FL_OP_LAYER_NORM_H
#define FL_OP_LAYER_NORM_H

/* layer_norm_rows */
enum { FL_LAYER_NORM_X, FL_LAYER_NORM_WEIGHT, FL_LAYER_NORM_BIAS };
enum { FL_LAYER_NORM_Y, FL_LAYER_NORM_MEAN, FL_LAYER_NORM_RSTD };

/* layer_norm_backward */
enum {
    FL_LAYER_NORM_BACK_DY,
    FL_LAYER_NORM_BACK_X,
    FL_LAYER_NORM_BACK_MEAN,
    FL_LAYER_NORM_BACK_RSTD,
    FL_LAYER_NORM_BACK_WEIGHT,
    FL_LAYER_NORM_BACK_OPERANDS
};
enum { FL_LAYER_NORM_BACK_DX, FL_LAYER_NORM_BACK_DWEIGHT, FL_LAYER_NORM_BACK_DBIAS };

enum { FL_LAYER_NORM_AXES, FL_LAYER_NORM_EPS }; /* of both; eps: layer_norm_rows alone */

#endif
