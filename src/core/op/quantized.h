/*
** quantized.h -- operands and the attribute of products by weights of 8 or 4 bits: shared by the kernels of the CPU and
** of devices.
*/
#ifndef FL_OP_QUANTIZED_H
#define FL_OP_QUANTIZED_H

enum { FL_QUANTIZED_X, FL_QUANTIZED_WEIGHT, FL_QUANTIZED_SCALES, FL_QUANTIZED_BIAS };
enum { FL_QUANTIZED_BITS };

#endif
