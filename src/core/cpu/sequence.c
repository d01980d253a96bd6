/*
** sequence.c -- equally spaced numbers: see sequence.h. Elements are computed by their logical positions.
*/
#include "sequence.h"

/* Writes values computed in pieces as int64 or double, converted to the result's dtype. */
enum { PIECE = 512 };

static fl_status write_piece(const fl_view *out, int64_t at, int64_t n, const void *values, fl_dtype dtype)
{
    static const int64_t one = 1;
    fl_view from = {
        .data = (void *)values, .dtype = dtype, .ndim = 1, .contiguous = true, .size = &n, .stride = &one, .numel = n};
    fl_view to = from;
    to.dtype = out->dtype;
    to.data = (char *)out->data + at * (int64_t)fl_dtype_size(out->dtype);
    return fl_cpu_copy(&to, &from);
}

union piece {
    int64_t integers[PIECE];
    double floats[PIECE];
};

/* n elements, the first of them at logical position `first`. */
typedef void fill(union piece *values, int64_t first, int64_t n, const void *context);

static fl_status fill_pieces(const fl_view *out, fl_dtype dtype, fill *compute, const void *context)
{
    union piece values;
    for (int64_t at = 0; at < out->numel; at += PIECE) {
        int64_t n = out->numel - at < PIECE ? out->numel - at : PIECE;
        compute(&values, out->start[0] + at, n, context);
        FL_TRY(write_piece(out, at, n, &values, dtype));
    }
    return FL_OK;
}

static void fill_integers(union piece *values, int64_t first, int64_t n, const void *context)
{
    const int64_t *from = context; /* start, step */
    for (int64_t i = 0; i < n; i++)
        values->integers[i] = (int64_t)((uint64_t)from[0] + (uint64_t)(first + i) * (uint64_t)from[1]);
}

fl_status fl_cpu_count(const fl_view *out, int64_t start, int64_t step)
{
    return fill_pieces(out, FL_INT64, fill_integers, (const int64_t[]){start, step});
}

static void fill_floats(union piece *values, int64_t first, int64_t n, const void *context)
{
    const double *from = context; /* start, step */
    for (int64_t i = 0; i < n; i++) values->floats[i] = from[0] + (double)(first + i) * from[1];
}

fl_status fl_cpu_arange(const fl_view *out, double start, double step)
{
    return fill_pieces(out, FL_FLOAT64, fill_floats, (const double[]){start, step});
}

struct range {
    double start, stop, step;
    int64_t steps;
};

/* From both ends, so that the last element is exactly `stop`. */
static void fill_range(union piece *values, int64_t first, int64_t n, const void *context)
{
    const struct range *r = context;
    for (int64_t i = 0; i < n; i++) {
        int64_t index = first + i;
        values->floats[i] = index < (r->steps + 1) / 2 ? r->start + r->step * (double)index
                                                       : r->stop - r->step * (double)(r->steps - 1 - index);
    }
}

fl_status fl_cpu_linspace(const fl_view *out, double start, double stop)
{
    int64_t steps = out->numel ? out->logical[0] : 0;
    struct range r = {start, stop, steps > 1 ? (stop - start) / (double)(steps - 1) : 0, steps};
    return fill_pieces(out, FL_FLOAT64, fill_range, &r);
}
