/*
** cudnn.h -- convolutions by cuDNN (cudnn.cu).
*/
#ifndef FL_CUDA_CUDNN_H
#define FL_CUDA_CUDNN_H

#include "cuda/parts/cuda.h"

extern "C" {
#include "core/op/conv.h"
}

typedef enum fl_cudnn_pass { FL_CUDNN_FORWARD, FL_CUDNN_INPUT_GRAD, FL_CUDNN_WEIGHT_GRAD } fl_cudnn_pass;

enum { FL_CUDNN_ALIGNMENT = 16 };

/* y, or the gradient of x or of the weight, out of the other two. All are contiguous floats of one dtype and begin at
** multiples of FL_CUDNN_ALIGNMENT bytes. *done = false: there is no cuDNN, or it has no kernel for this. */
fl_status fl_cudnn_conv(bool *done, fl_cudnn_pass pass, const fl_conv *conv, fl_dtype dtype, void *x, void *weight,
                        void *y);

#endif
