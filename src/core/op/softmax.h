/*
** softmax.h -- variants and attributes of the four softmax ops: shared by the kernels of the CPU and of devices.
*/
#ifndef FL_SOFTMAX_H
#define FL_SOFTMAX_H

/* op->variant of softmax, log_softmax and their gradients */
enum { FL_SOFTMAX_PLAIN, FL_SOFTMAX_LOGS };

/* Operands of the two gradients: that of the result, and the result. */
enum { FL_SOFTMAX_DY, FL_SOFTMAX_Y };

/* The attribute of all four. */
enum { FL_SOFTMAX_AXIS };

#endif
