/*
** random.h -- random elements: element i depends only on the kernel's seed and counter and on its logical
** index, so ranks that hold parts of a tensor draw what the whole has.
*/
#ifndef FL_CPU_RANDOM_H
#define FL_CPU_RANDOM_H

#include "cpu.h"
#include "op/draw.h"

/* Fills out[0], from in[0] where the draw is dropout. */
fl_status fl_cpu_draw(fl_kernel *kernel, const fl_draw *draw);

/* The dtype in which elements of a result are drawn: float64 for itself, float32 for all others. */
static inline fl_dtype fl_draw_dtype(fl_dtype result) { return result == FL_FLOAT64 ? FL_FLOAT64 : FL_FLOAT32; }

/* Elements first .. first + n - 1 of the op's logical sequence, of a result of this dtype: out and in (of dropout) are
** of fl_draw_dtype and begin with the first of them. */
void fl_cpu_draw_elements(const fl_draw *draw, fl_dtype result, void *out, const void *in, uint64_t first, int64_t n);

/* Fills out[0] with integers from low to high - 1. */
fl_status fl_cpu_fill_random_integers(fl_kernel *kernel, int64_t low, int64_t high);

/* out[0] = a part of the numbers 0 to n - 1 sorted by their random words, equal words by number. */
fl_status fl_cpu_randperm(fl_kernel *kernel);

/* out[0] = 1 with the probability in[0], else 0; with the probability p where that is no NaN. */
fl_status fl_cpu_bernoulli(fl_kernel *kernel, double p);

/* ---- for other elements ---- */

/* Writes elements at .. at + n - 1 of the local part, which are logical ones from `first` on, to out + at. */
typedef void (*fl_random_piece)(void *context, void *out, int64_t at, uint64_t first, int64_t n);
/* Fills out[0] with what `piece` makes in a dtype; cost: nanoseconds of an element. */
fl_status fl_cpu_random_fill(fl_kernel *kernel, fl_dtype dtype, double cost, fl_random_piece piece, void *context);

/* in as contiguous elements of dtype: itself, or a copy that the caller frees (*copy). */
fl_status fl_cpu_random_input(const void **data, void **copy, const fl_view *in, fl_dtype dtype, const char *who);

/* ---- inner loops, one table per CPU level (random.lv.c) ---- */

/* Each writes elements first to first + n - 1 of the op's logical sequence. */

typedef struct fl_random_kernels {
    /* 32-bit words */
    void (*words)(uint32_t *out, const fl_random_key *key, uint64_t first, int64_t n);
    /* rows of n words, which begin `row` words apart, `out_row` apart in out */
    void (*rows)(uint32_t *out, int64_t out_row, const fl_random_key *key, uint64_t first, int64_t row, int64_t rows,
                 int64_t n);
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
