/*
** compress.h -- attributes and operands of the 2-bit ops: shared by the kernels of the CPU and of devices.
*/
#ifndef FL_OP_COMPRESS_H
#define FL_OP_COMPRESS_H

enum { FL_COMPRESS_RESIDUAL, FL_COMPRESS_CODES }; /* operands of compress_2bit_ */
enum { FL_COMPRESS_THRESHOLD };
enum { FL_EXPAND_COUNT, FL_EXPAND_THRESHOLD, FL_EXPAND_DTYPE };

/* Two bits of an int32 per element, the first in the lowest: the change of it. */
enum { FL_2BIT_NONE, FL_2BIT_PLUS, FL_2BIT_MINUS, FL_2BIT_NAN, FL_2BIT_ELEMENTS = 16 };

#endif
