/*
** stage.h -- operands of a kernel as plain row-major arrays of the dtype it computes in.
**
** Kernels over rows and blocks are written for contiguous float32 and float64. An operand that is not that
** (strided, float16, bfloat16) is copied to scratch memory first, a result of another dtype is computed
** there and converted at the end. Operands that fit are used in place.
*/
#ifndef FL_STAGE_H
#define FL_STAGE_H

#include "cpu.h"

enum { FL_STAGE_OPERANDS = 9 };
enum { FL_STAGE_SCRATCH = 0, FL_KERNEL_SCRATCH = 1 }; /* slots of fl_scratch: staging, the kernel's own */

typedef struct fl_stage {
    fl_kernel *k;
    fl_dtype dtype;              /* float32 or float64 */
    void *in[FL_STAGE_OPERANDS]; /* NULL: absent operand */
    void *out[FL_MAX_OUT];
} fl_stage;

/* Result i in a mask of operands. */
#define FL_STAGE_RESULT(i) (1u << (FL_STAGE_OPERANDS + (i)))

/* Floats become the compute dtype of out[0]'s dtype, integers int64, bools stay. Operands and results of the mask as_is
** are not touched: their views tell where they are. */
FL_EXPORT fl_status fl_stage_open(fl_stage *stage, fl_kernel *kernel, uint32_t as_is);

/* `mask` if all that it names is contiguous and of out[0]'s dtype, a float of 16 bits: what a kernel can convert row
** by row. Else 0. */
uint32_t fl_stage_narrow(const fl_kernel *kernel, uint32_t mask);

/* Strides of operand i after staging, in elements. */
FL_EXPORT void fl_stage_strides(int64_t *strides, const fl_stage *stage, int i);

/* Result i is added to: where it is staged, the array begins with the values it has. */
FL_EXPORT fl_status fl_stage_load_result(fl_stage *stage, int i);

/* Converts the results that were computed in scratch memory. */
FL_EXPORT fl_status fl_stage_close(fl_stage *stage);

#endif
