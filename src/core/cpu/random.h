/*
** random.h -- the inner loops of the random ops: one table per CPU level (random.lv.c fills it).
**
** Each writes elements first .. first + n - 1 of the op's logical sequence.
*/
#ifndef FL_CPU_RANDOM_H
#define FL_CPU_RANDOM_H

#include "cpu.h"

typedef struct fl_random_key {
    uint64_t seed, counter;
} fl_random_key;

typedef struct fl_random_kernels {
    /* 32-bit words */
    void (*words)(uint32_t *out, const fl_random_key *key, uint64_t first, int64_t n);
    /* low + range * u, u = the word's highest `bits` bits as a fraction: in [0, 1) */
    void (*uniform)(float *out, const fl_random_key *key, uint64_t first, int64_t n, int bits, float low, float range);
    /* mean + std * z, z normal */
    void (*normal)(float *out, const fl_random_key *key, uint64_t first, int64_t n, float mean, float std);
    /* in * scale where the word >> 8 is at least `threshold`, else 0 */
    void (*dropout)(float *out, const float *in, const fl_random_key *key, uint64_t first, int64_t n,
                    uint32_t threshold, float scale);
} fl_random_kernels;

extern const fl_random_kernels fl_random_kernels_base;
#ifdef __x86_64__
extern const fl_random_kernels fl_random_kernels_avx2, fl_random_kernels_avx512;
#endif

#endif
