/*
** reduce.h -- reductions on the CPU: their description, and the loops of one level.
**
** Elements are folded in the type they are converted through (copy.h: int64, float, double). Integers fold into int64
** totals, floats into double totals: float lanes only ever hold one block of FL_REDUCE_BLOCK elements. Lanes, blocks
** and segments are cut by size alone, so a result depends neither on threads nor on the level of the CPU.
*/
#ifndef FL_REDUCE_H
#define FL_REDUCE_H

#include "copy.h"

typedef enum fl_fold {
    FL_FOLD_SUM,
    FL_FOLD_COUNT, /* elements that are not 0 */
    FL_FOLD_PRODUCT,
    FL_FOLD_LARGEST, /* NaN wins */
    FL_FOLD_SMALLEST,
    FL_FOLD_INTEGER_COUNT, /* the folds before are there for integers too */
    FL_FOLD_ABS_SUM = FL_FOLD_INTEGER_COUNT,
    FL_FOLD_SQUARES,
    FL_FOLD_POWERS,     /* sum of |x|^p */
    FL_FOLD_DEVIATIONS, /* sum of (x - center)^2 */
    FL_FOLD_EXPS,       /* sum of e^(x - center) */
    FL_FOLD_LARGEST_ABS,
    FL_FOLD_SMALLEST_ABS,
    FL_FOLD_NUMBERS, /* sum of what is not NaN */
    FL_FOLD_KINDS
} fl_fold;

enum {
    FL_REDUCE_BLOCK = 2048, /* elements folded in lanes before they join the total */
    FL_REDUCE_ROWS = 32,    /* rows of a column reduction folded before they join the totals */
    FL_REDUCE_TILE = 512    /* columns done at once */
};

typedef struct fl_fold_loops {
    /* Folds n contiguous elements into *total. */
    void (*run)(void *total, const void *x, int64_t n, double center, double p);
    /* Folds rows x[r * stride + j] into totals[j], 0 <= j < columns <= FL_REDUCE_TILE. centers: one per column, or
    ** NULL. */
    void (*columns)(void *totals, const void *x, int64_t stride, int64_t rows, int64_t columns, const double *centers,
                    double p);
} fl_fold_loops;

/* Best value so far and where it was; position -1: none yet. Ties keep the lower position, NaN is better than all. */
typedef struct fl_arg_loops {
    /* Looks at n elements that begin at position `at`. */
    void (*run)(void *best, int64_t *position, const void *x, int64_t n, int64_t at);
    /* Looks at one row: element j competes for best[j], position[j]. */
    void (*row)(void *best, int64_t *position, const void *x, int64_t n, int64_t at);
} fl_arg_loops;

typedef struct fl_reduce_loops {
    fl_fold_loops fold[FL_THROUGH_COUNT][FL_FOLD_KINDS], bfloat16[FL_FOLD_KINDS]; /* as it lies in memory; or NULL */
    fl_arg_loops largest[FL_THROUGH_COUNT], smallest[FL_THROUGH_COUNT];
} fl_reduce_loops;

FL_DECLARE_LEVELS(const fl_reduce_loops, fl_reduce_loops);

/* A total: int64 where integers were folded, double else. */
typedef union fl_total {
    double number;
    int64_t integer;
} fl_total;

/* The reduction, and the operations on each total before it is stored. */
typedef struct fl_reduce_job {
    const char *name;    /* of the op, for messages */
    fl_fold first, fold; /* `first` gives the centers of `fold` */
    bool centered;
    double p;              /* of FL_FOLD_POWERS */
    int64_t logical_count; /* elements of the logical tensor per result */
    int64_t local_count;   /* elements of this part per result; set by fl_cpu_reduce */
    bool integer;          /* totals are integers; set by fl_cpu_reduce */
    double correction;     /* variance */
    void (*center)(double *center, const struct fl_reduce_job *job); /* from the total of `first`; NULL: as it is */
    void (*finish)(fl_total *total, double center, const struct fl_reduce_job *job); /* NULL: as it is */
} fl_reduce_job;

/* out[kept axes] = the job over the axes of mask of `in`; out is contiguous. */
fl_status fl_cpu_reduce(const fl_view *out, const fl_view *in, uint32_t mask, const fl_reduce_job *job);

struct fl_tiles;

/* out[r] = the job over the elements r * run, r * run + 1, ... of a slot of tiles, which are then run: the bits of
** fl_cpu_reduce over the same elements, contiguous in memory. Only where fl_cpu_reduce_takes_tiles. */
fl_status fl_cpu_reduce_tiles(const fl_view *out, struct fl_tiles *tiles, int slot, int64_t run,
                              const fl_reduce_job *job);
bool fl_cpu_reduce_takes_tiles(int64_t total, int64_t run, const fl_reduce_job *job);

/* Largest (smallest) elements along the axes of mask and their row-major positions among those axes. values or
** positions may be NULL; both are contiguous. The reduced extent is not empty. */
fl_status fl_cpu_arg_reduce(const fl_view *values, const fl_view *positions, const fl_view *in, uint32_t mask,
                            bool largest);

/* out[0] = the position in the whole tensor of the largest (smallest) element of in[0] along the axes of mask where
** that element equals in[1], the highest integer elsewhere. out[0] is contiguous. */
fl_status fl_cpu_arg_find(fl_kernel *kernel, uint32_t mask, bool largest);

#endif
