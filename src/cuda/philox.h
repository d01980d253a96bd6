/*
** philox.h -- Philox4x32-10 on the device: the words of core/random.h.
*/
#ifndef FL_CUDA_PHILOX_H
#define FL_CUDA_PHILOX_H

#include "cuda.h"

/* Words 4 * block .. 4 * block + 3 of the op with this seed and counter. */
__device__ static inline void fl_philox_block(uint32_t (&out)[4], uint64_t seed, uint64_t counter, uint64_t block)
{
    uint32_t x0 = (uint32_t)block, x1 = (uint32_t)(block >> 32), x2 = (uint32_t)counter, x3 = (uint32_t)(counter >> 32);
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
#pragma unroll
    for (int round = 0; round < 10; round++) {
        uint32_t high0 = __umulhi(x0, 0xD2511F53u), low0 = x0 * 0xD2511F53u, high2 = __umulhi(x2, 0xCD9E8D57u), low2 = x2 * 0xCD9E8D57u;
        x0 = high2 ^ x1 ^ k0;
        x2 = high0 ^ x3 ^ k1;
        x1 = low2;
        x3 = low0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = x0;
    out[1] = x1;
    out[2] = x2;
    out[3] = x3;
}

#endif
