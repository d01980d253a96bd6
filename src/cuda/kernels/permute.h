/*
** permute.h -- the ways of a copy on the device; copies.cu chooses.
*/
#ifndef FL_CUDA_PERMUTE_H
#define FL_CUDA_PERMUTE_H

#include "index.h"

/* A copy planned: axes by falling output strides, merged; operand 0 is `out`, operand 1 `in`. */
typedef struct fl_cuda_copy_job {
    char *out;
    const char *in;
    int unit;         /* bytes moved at once, 1 to 16; strides, addresses are multiples of it */
    fl_layout layout; /* sizes count units */
} fl_cuda_copy_job;

/* Each launches and returns true, or returns false when the job is not of its kind. */

/* Two axes change places and 4 to 16 bytes can be read and written along both. */
bool fl_cuda_transpose(const fl_cuda_copy_job *job);
/* The fastest axis of the input is another one than that of the output. */
bool fl_cuda_permute_tiles(const fl_cuda_copy_job *job);

/* Converts as well: the layout counts elements, the unit is that of the input. */
bool fl_cuda_cast_tiles(const fl_cuda_copy_job *job, fl_dtype out, fl_dtype in);

/* Copies between different dtypes in the order of the output; the layout counts elements. */
void fl_cuda_cast(const fl_layout *layout, char *out, fl_dtype out_dtype, const char *in, fl_dtype in_dtype);

/* Calls f with a value of the type that has `unit` bytes. */
template<typename F>
static inline void fl_cuda_by_unit(int unit, F &&f)
{
    switch (unit) {
    case 1: return f((uint8_t)0);
    case 2: return f((uint16_t)0);
    case 4: return f((uint32_t)0);
    case 8: return f((uint64_t)0);
    default: return f(uint4());
    }
}

#endif
