/*
** philox.h -- Philox4x32-10 on the device, as cuRAND has it: the words of core/random.h.
*/
#ifndef FL_CUDA_PHILOX_H
#define FL_CUDA_PHILOX_H

#include "cuda.h"
#include <curand_philox4x32_x.h>

/* Words 4 * block .. 4 * block + 3 of the op with this seed and counter. */
__device__ static inline void fl_philox_block(uint32_t (&out)[4], uint64_t seed, uint64_t counter, uint64_t block)
{
    uint4 words = curand_Philox4x32_10(make_uint4((uint32_t)block, (uint32_t)(block >> 32), (uint32_t)counter,
                                                  (uint32_t)(counter >> 32)),
                                       make_uint2((uint32_t)seed, (uint32_t)(seed >> 32)));
    out[0] = words.x;
    out[1] = words.y;
    out[2] = words.z;
    out[3] = words.w;
}

#endif
