/*
** resample.c -- resampling with the team: the taps of a line are computed once, into a table for all lines.
*/
#include "resample.h"
#include "memory/scratch.h"
#include "stage.h"

static const double NS_PER_TAP = 0.4;

struct job {
    fl_resample_table table;
    fl_row_shape lines;
    int type; /* of fl_resample_kernels */
    int64_t item;
    char *x, *y;
};

static void fill_table(fl_resample_table *table, const fl_resample *resample, fl_dtype dtype)
{
    for (int64_t o = 0; o < table->size; o++) {
        fl_resample_taps taps = fl_resample_taps_of(resample, o);
        ((int32_t *)table->count)[o] = taps.count;
        for (int k = 0; k < table->most; k++) {
            bool used = k < taps.count;
            double weight = used ? fl_resample_weight(resample, &taps, k) : 0;
            int64_t at = k * table->size + o;
            ((int32_t *)table->position)[at] = (int32_t)fl_resample_position(resample, &taps, used ? k : 0);
            if (dtype == FL_FLOAT64) ((double *)table->weight)[at] = weight;
            else ((float *)table->weight)[at] = (float)weight;
        }
    }
}

static bool is_copy(const fl_resample_table *table, int64_t o, fl_dtype dtype)
{
    return dtype == FL_FLOAT64 ? ((const double *)table->weight)[o] == 1 : ((const float *)table->weight)[o] == 1;
}

/* Paddings copy all but their edges. */
static void find_run(fl_resample_table *table, fl_dtype dtype)
{
    int64_t from = 0;
    for (int64_t o = 0; o < table->size && table->most == 1; o++) {
        bool copy = is_copy(table, o, dtype);
        if (!copy || (o > from && table->position[o] != table->position[o - 1] + 1)) from = copy ? o : o + 1;
        if (o + 1 - from > table->run_to - table->run_from) table->run_from = from, table->run_to = o + 1;
    }
}

static fl_status table_open(fl_resample_table *table, const fl_resample *resample, fl_dtype dtype)
{
    *table = (fl_resample_table){.n = resample->n, .size = resample->size};
    for (int64_t o = 0; o < resample->size; o++) {
        int count = fl_resample_taps_of(resample, o).count;
        if (count > table->most) table->most = count;
    }
    size_t all = (size_t)(table->most * resample->size), weights = (all * fl_dtype_size(dtype) + 63) / 64 * 64;
    char *room = fl_scratch(FL_KERNEL_SCRATCH, weights + (all + (size_t)resample->size) * sizeof(int32_t) + 64);
    if (!room)
        return fl_fail(FL_ERR_MEMORY, "resample: out of memory for the taps of %lld elements",
                       (long long)resample->size);
    table->weight = room;
    table->position = (int32_t *)(room + weights);
    table->count = table->position + all;
    fill_table(table, resample, dtype);
    find_run(table, dtype);
    return FL_OK;
}

static void forward_part(void *context, int64_t from, int64_t to)
{
    struct job *j = context;
    const fl_row_shape *s = &j->lines;
    FL_BY_LEVEL(fl_resample_kernels)
        ->forward[j->type](j->y + from * j->table.size * s->inner * j->item, j->x + from * s->n * s->inner * j->item,
                           &j->table, to - from, s->inner);
}

static void back_part(void *context, int64_t from, int64_t to)
{
    struct job *j = context;
    const fl_row_shape *s = &j->lines;
    FL_BY_LEVEL(fl_resample_kernels)
        ->back[j->type](j->x + from * s->n * s->inner * j->item, j->y + from * j->table.size * s->inner * j->item,
                        &j->table, to - from, s->inner);
}

static fl_status run(fl_dtype dtype, const fl_resample *resample, fl_row_shape lines, void *x, void *y,
                     fl_team_body body)
{
    struct job j = {.lines = lines, .type = dtype == FL_FLOAT64, .item = (int64_t)fl_dtype_size(dtype), .x = x, .y = y};
    FL_TRY(table_open(&j.table, resample, dtype));
    fl_team_for(lines.outer, NS_PER_TAP * (double)(j.table.most * resample->size * lines.inner), body, &j);
    return FL_OK;
}

fl_status fl_cpu_resample(fl_dtype dtype, const fl_resample *resample, fl_row_shape lines, void *y, const void *x)
{
    return run(dtype, resample, lines, (void *)x, y, forward_part);
}

fl_status fl_cpu_resample_back(fl_dtype dtype, const fl_resample *resample, fl_row_shape lines, void *x, const void *y)
{
    return run(dtype, resample, lines, x, (void *)y, back_part);
}
