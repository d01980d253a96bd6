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

static void fill_table(fl_resample_table *t, const fl_resample *r, fl_dtype dtype)
{
    for (int64_t o = 0; o < t->size; o++) {
        fl_resample_taps taps = fl_resample_taps_of(r, o);
        ((int32_t *)t->count)[o] = taps.count;
        for (int k = 0; k < t->most; k++) {
            bool used = k < taps.count;
            double weight = used ? fl_resample_weight(r, &taps, k) : 0;
            int64_t at = k * t->size + o;
            ((int32_t *)t->position)[at] = (int32_t)fl_resample_position(r, &taps, used ? k : 0);
            if (dtype == FL_FLOAT64) ((double *)t->weight)[at] = weight;
            else ((float *)t->weight)[at] = (float)weight;
        }
    }
}

static bool is_copy(const fl_resample_table *t, int64_t o, fl_dtype dtype)
{
    return dtype == FL_FLOAT64 ? ((const double *)t->weight)[o] == 1 : ((const float *)t->weight)[o] == 1;
}

/* Paddings copy all but their edges. */
static void find_run(fl_resample_table *t, fl_dtype dtype)
{
    int64_t from = 0;
    for (int64_t o = 0; o < t->size && t->most == 1; o++) {
        bool copy = is_copy(t, o, dtype);
        if (!copy || (o > from && t->position[o] != t->position[o - 1] + 1)) from = copy ? o : o + 1;
        if (o + 1 - from > t->run_to - t->run_from) t->run_from = from, t->run_to = o + 1;
    }
}

static fl_status table_open(fl_resample_table *t, const fl_resample *r, fl_dtype dtype)
{
    *t = (fl_resample_table){.n = r->n, .size = r->size};
    for (int64_t o = 0; o < r->size; o++) {
        int count = fl_resample_taps_of(r, o).count;
        if (count > t->most) t->most = count;
    }
    size_t all = (size_t)(t->most * r->size), weights = (all * fl_dtype_size(dtype) + 63) / 64 * 64;
    char *room = fl_scratch(FL_KERNEL_SCRATCH, weights + (all + (size_t)r->size) * sizeof(int32_t) + 64);
    if (!room)
        return fl_fail(FL_ERR_MEMORY, "resample: out of memory for the taps of %lld elements", (long long)r->size);
    t->weight = room;
    t->position = (int32_t *)(room + weights);
    t->count = t->position + all;
    fill_table(t, r, dtype);
    find_run(t, dtype);
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
