/*
** fft.h -- attributes and geometry of the Fourier transforms: shared by the kernels of the CPU and of devices.
*/
#ifndef FL_OP_FFT_H
#define FL_OP_FFT_H

#include "base/dtype.h"
#include "view.h"

/* length: of the transform; size: of the result along the axis; inside: factor of what stands for two numbers. */
enum { FL_FFT_AXIS, FL_FFT_LENGTH, FL_FFT_SIZE, FL_FFT_INVERSE, FL_FFT_SCALE, FL_FFT_INSIDE };

/* The variants of the op. */
typedef enum fl_fft_kind { FL_FFT_COMPLEX, FL_FFT_REAL_TO_HALF, FL_FFT_HALF_TO_REAL } fl_fft_kind;

/* Lines along an axis of row-major arrays [outer][size][inner]; sizes count complex numbers, of the real side reals. A
** line is cut or filled with zeros to what the transform of length n takes, and so is its result. */
typedef struct fl_fft {
    const char *name; /* for messages */
    fl_fft_kind kind;
    fl_dtype dtype;
    bool inverse;  /* the sign of the exponent is plus */
    double scale;  /* of all results */
    double inside; /* half spectra: of the numbers that stand for two, beside `scale` */
    int64_t n, outer, inner, in_size, out_size;
    const void *in;
    void *out;
} fl_fft;

/* Numbers of a line that the transform takes and gives. */
static inline int64_t fl_fft_takes(const fl_fft *job)
{
    return job->kind == FL_FFT_HALF_TO_REAL ? job->n / 2 + 1 : job->n;
}
static inline int64_t fl_fft_gives(const fl_fft *job)
{
    return job->kind == FL_FFT_REAL_TO_HALF ? job->n / 2 + 1 : job->n;
}

/* Reals of such a number. */
static inline int64_t fl_fft_width_in(const fl_fft *job) { return job->kind == FL_FFT_REAL_TO_HALF ? 1 : 2; }
static inline int64_t fl_fft_width_out(const fl_fft *job) { return job->kind == FL_FFT_HALF_TO_REAL ? 1 : 2; }

/* Fills the job of a kernel of this kind, but for dtype and arrays, which the kernel sets. */
static inline void fl_fft_fill(fl_fft *job, const char *name, fl_fft_kind kind, const fl_attr *at, const fl_view *x,
                               const fl_view *y)
{
    int axis = (int)at[FL_FFT_AXIS].integer;
    job->name = name;
    job->kind = kind;
    job->n = at[FL_FFT_LENGTH].integer;
    job->inverse = at[FL_FFT_INVERSE].integer != 0;
    job->scale = at[FL_FFT_SCALE].number;
    job->inside = kind == FL_FFT_COMPLEX ? 1 : at[FL_FFT_INSIDE].number;
    job->outer = job->inner = 1;
    for (int i = 0; i < axis; i++) job->outer *= y->size[i];
    for (int i = axis + 1; i < y->ndim - (int)fl_fft_width_out(job) + 1; i++) job->inner *= y->size[i];
    job->in_size = x->size[axis];
    job->out_size = y->size[axis];
}

#endif
