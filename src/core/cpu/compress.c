/*
** compress.c -- the kernels of 2-bit compression.
**
** The rows of a tensor (its parts along axis 0) are cut as a split over ranks cuts them, and each part begins with a
** word of its own, so that the codes of a part can be sent alone.
*/
#include "compress.h"
#include "base/shape.h"
#include "op/compress.h"
#include "stage.h"

#include <string.h>

enum { UNIT = 256 }; /* words of one unit of work */

struct compress_job {
    const fl_compress_loops *loops;
    int32_t *codes;
    int64_t row_stride, stride, rows; /* of codes */
    char *out;
    int64_t n, item; /* elements, bytes of one */
    double threshold;
};

/* The elements of units [begin, end). */
static int64_t span(int64_t *at, const struct compress_job *job, int64_t begin, int64_t end)
{
    *at = begin * UNIT * FL_2BIT_ELEMENTS;
    int64_t past = end * UNIT * FL_2BIT_ELEMENTS;
    return (past < job->n ? past : job->n) - *at;
}

static void compress_units(void *context, int64_t begin, int64_t end)
{
    const struct compress_job *j = context;
    int64_t at, n = span(&at, j, begin, end);
    j->loops->compress(j->codes + begin * UNIT * j->stride, j->stride, j->out + at * j->item, n, j->threshold);
}

static void expand_units(void *context, int64_t begin, int64_t end)
{
    const struct compress_job *j = context;
    int64_t at, n = span(&at, j, begin, end);
    j->loops->expand(j->out + at * j->item, j->codes + begin * UNIT * j->stride, j->row_stride, j->stride, j->rows, n,
                     j->threshold);
}

static int64_t units(const struct compress_job *job)
{
    return (job->n + UNIT * FL_2BIT_ELEMENTS - 1) / (UNIT * FL_2BIT_ELEMENTS);
}

static struct compress_job job_of(const fl_stage *stage, const fl_view *codes, double threshold)
{
    bool is_double = stage->dtype == FL_FLOAT64;
    return (struct compress_job){.loops = &FL_BY_LEVEL(fl_compress_table)->at[is_double],
                                 .codes = codes->data,
                                 .row_stride = codes->stride[0],
                                 .stride = codes->stride[1],
                                 .rows = codes->size[0],
                                 .out = stage->out[0],
                                 .item = is_double ? 8 : 4,
                                 .threshold = threshold};
}

/* Words past the codes of a part are 0. */
static void clear(const fl_view *codes)
{
    for (int64_t row = 0; row < codes->size[0]; row++)
        for (int64_t i = 0; i < codes->size[1]; i++)
            ((int32_t *)codes->data)[row * codes->stride[0] + i * codes->stride[1]] = 0;
}

fl_status fl_cpu_compress(fl_kernel *kernel)
{
    const fl_view *x = &kernel->in[FL_COMPRESS_RESIDUAL], *codes = &kernel->in[FL_COMPRESS_CODES];
    int64_t rows = x->ndim ? x->size[0] : 1, each = rows ? x->numel / rows : 0;
    fl_stage s;
    clear(codes);
    if (x->numel == 0) return FL_OK;
    FL_TRY(fl_stage_open(&s, kernel, 1u << FL_COMPRESS_CODES));
    if (s.out[0] != s.in[FL_COMPRESS_RESIDUAL])
        memcpy(s.out[0], s.in[FL_COMPRESS_RESIDUAL], (size_t)x->numel * (s.dtype == FL_FLOAT64 ? 8 : 4));
    for (int part = 0; part < (int)codes->size[0]; part++) {
        struct compress_job j = job_of(&s, codes, kernel->attrs->at[FL_COMPRESS_THRESHOLD].number);
        int64_t start, count;
        fl_split(&start, &count, rows, (int)codes->size[0], part);
        j.codes += part * j.row_stride;
        j.out += start * each * j.item;
        j.n = count * each;
        fl_team_for(units(&j), UNIT * FL_2BIT_ELEMENTS * 0.7, compress_units, &j);
    }
    return fl_stage_close(&s);
}

fl_status fl_cpu_expand(fl_kernel *kernel)
{
    const fl_view *codes = &kernel->in[0];
    fl_stage s;
    if (kernel->out[0].numel == 0) return FL_OK;
    FL_TRY(fl_stage_open(&s, kernel, 1));
    struct compress_job j = job_of(&s, codes, kernel->attrs->at[FL_EXPAND_THRESHOLD].number);
    j.n = kernel->out[0].numel;
    fl_team_for(units(&j), UNIT * FL_2BIT_ELEMENTS * (0.5 + 0.5 * (double)j.rows), expand_units, &j);
    return fl_stage_close(&s);
}
