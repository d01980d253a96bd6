/*
** random.h -- random elements: what element i becomes depends only on the kernel's seed and counter and on its logical
** index, so ranks that hold parts of a tensor draw what the whole has.
*/
#ifndef FL_CPU_RANDOM_H
#define FL_CPU_RANDOM_H

#include "cpu.h"

/* Fills out[0]: low + range * u with u uniform in [0, 1), or normal of mean low and deviation range. */
fl_status fl_cpu_fill_random(fl_kernel *kernel, bool normal, double low, double range);

/* Fills out[0] with integers from low to high - 1. */
fl_status fl_cpu_fill_random_integers(fl_kernel *kernel, int64_t low, int64_t high);

/* out[0] = a part of the numbers 0 to n - 1 sorted by their random words, equal words by number. */
fl_status fl_cpu_randperm(fl_kernel *kernel);

/* out[0] = 1 with the probability in[0], else 0. */
fl_status fl_cpu_bernoulli(fl_kernel *kernel);

/* out[0] = in[0] with elements zeroed with probability p and the others scaled by 1 / (1 - p). */
fl_status fl_cpu_dropout(fl_kernel *kernel, double p);

/* ---- inner loops, one table per CPU level (random.lv.c) ---- */

/* Each writes elements first to first + n - 1 of the op's logical sequence. */

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

FL_DECLARE_LEVELS(const fl_random_kernels, fl_random_kernels);

#endif
