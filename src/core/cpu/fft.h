/*
** fft.h -- discrete Fourier transforms of lines, of any length, in float32 and float64.
**
** Complex numbers are pairs of reals that are neighbours in memory. A plan holds the factors of a length and its roots
** of unity; plans of recent lengths are kept. The algorithm for a line depends on its length (fl_fft_way):
**
**   lanes      a vector's lanes hold as many lines, which pass through the radices together
**   line       the residues of the positions modulo the lanes are the lanes; a last step joins them
**   square     n = n1 n2: columns as lanes, twiddled, then rows as lanes; long lines and those no lanes divide
**   chirp      Bluestein: a convolution of a convenient length; lengths with large prime factors
*/
#ifndef FL_FFT_H
#define FL_FFT_H

#include "cpu.h"
#include "op/fft.h"

fl_status fl_cpu_fft(const fl_fft *job);

/* ---- plans (fft_plan.c) ---- */

enum { FL_FFT_PASSES = 40, FL_FFT_LARGEST_RADIX = 13 };

/* Transforms of length m of all lanes together: decimation in frequency, in order (Stockham). */
typedef struct fl_fft_columns {
    int64_t m;
    int passes, radix[FL_FFT_PASSES];
    void *roots[FL_FFT_PASSES];  /* owned; of a pass [p][1 .. radix - 1], pairs */
    void *circle[FL_FFT_PASSES]; /* owned; the radix's roots [radix], pairs; NULL: the loop has its own */
} fl_fft_columns;

typedef enum fl_fft_way { FL_FFT_ONE, FL_FFT_LANES, FL_FFT_LINE, FL_FFT_SQUARE, FL_FFT_CHIRP } fl_fft_way;

typedef struct fl_fft_plan fl_fft_plan;
struct fl_fft_plan {
    int64_t n;
    fl_dtype dtype;
    fl_fft_way way;
    int lanes;
    fl_fft_columns whole;         /* of n; passes 0: n has large prime factors */
    fl_fft_columns part;          /* line: of n / lanes */
    void *joins;                  /* line: roots of the last step [block][1 .. lanes - 1][2][lanes] */
    fl_fft_columns first, second; /* square: of n1, of n2 */
    void *slant;                  /* square: n-th roots to the power lane * k1, [k1][2][lanes] */
    double *coarse, *fine;        /* square: n-th roots to the power i << shift, and i; pairs */
    int shift;
    fl_fft_plan *inner; /* chirp: of the convolution. Owned, as all that follows. */
    void *chirp;        /* n pairs */
    void *spectrum;     /* of the chirp: pairs of the inner length */
    void *mirror;       /* -i times the 2n-th roots up to n / 2: for real lines of twice the length */
    int users;          /* of the cache */
    uint64_t used;
};

/* The plan of a length, until it is given back. */
fl_status fl_fft_plan_take(fl_fft_plan **out, const char *who, int64_t n, fl_dtype dtype);
void fl_fft_plan_give(fl_fft_plan *plan);

/* Bytes of scratch memory that lines of the plan need in buffer 1; of one step of a square or of lanes. */
size_t fl_fft_scratch(const fl_fft_plan *plan);

/* ---- loops, one table per type and CPU level (fft.lv.c) ---- */

typedef struct fl_fft_kernels {
    int lanes;
    /* `count` lines, at most the lanes, of the plan's length, `distance` numbers apart: plan->whole */
    void (*lanes_of)(const fl_fft_plan *plan, void *out, int64_t out_distance, const void *in, int64_t in_distance,
                     int count, bool inverse, double scale, void *scratch);
    /* `count` lines side by side: element j at in + j * step */
    void (*beside)(const fl_fft_plan *plan, void *out, int64_t out_step, const void *in, int64_t in_step, int count,
                   bool inverse, double scale, void *scratch);
    void (*line)(const fl_fft_plan *plan, void *out, const void *in, bool inverse, double scale, void *scratch);
    /* the blocks of columns, then those of rows, of a square; between: [n1][blocks of columns][2][lanes] */
    void (*columns)(const fl_fft_plan *plan, void *between, const void *in, int64_t block, bool inverse, void *scratch);
    void (*rows)(const fl_fft_plan *plan, void *out, const void *between, int64_t block, bool inverse, double scale,
                 void *scratch);
    /* out[k] = x[k] y[k] times scale; `turn`: x and out have their parts exchanged */
    void (*product)(void *out, const void *x, const void *y, int64_t n, bool turn_in, bool turn_out, double scale);
    /* the half spectrum of a real line of 2n from the spectrum of its pairs, or back with `back` */
    void (*mirror)(const fl_fft_plan *plan, void *out, const void *in, bool back, bool inverse, double scale,
                   double inside);
} fl_fft_kernels;

typedef struct fl_fft_table {
    fl_fft_kernels f32, f64;
} fl_fft_table;
FL_DECLARE_LEVELS(const fl_fft_table, fl_fft_table);

static inline const fl_fft_kernels *fl_fft_loops(fl_dtype dtype)
{
    const fl_fft_table *table = FL_BY_LEVEL(fl_fft_table);
    return dtype == FL_FLOAT64 ? &table->f64 : &table->f32;
}

#endif
