/*
** unfold.c -- windows of images as columns, and columns added back into images: planes over the team.
*/
#include "conv.h"
#include "engine/team.h"

#include <string.h>

struct unfold_job {
    const fl_conv *conv;
    bool is_double, folds;
    int64_t item;
    char *image, *columns; /* [planes, ...] each */
};

static void planes_part(void *context, int64_t from, int64_t to)
{
    const struct unfold_job *j = context;
    const fl_conv_kernels *kernels = FL_BY_LEVEL(fl_conv_kernels);
    int64_t plane = fl_conv_x_plane(j->conv) * j->item, windows = fl_conv_y_plane(j->conv),
            block = fl_conv_taps(j->conv) * windows * j->item, rows = fl_conv_rows(j->conv);
    for (int64_t i = from; i < to; i++) {
        char *image = j->image + i * plane, *columns = j->columns + i * block;
        if (j->folds) {
            memset(image, 0, (size_t)plane);
            kernels->fold[j->is_double](image, columns, windows, j->conv, 1, 0, rows, 1);
        } else kernels->unfold[j->is_double](columns, windows, image, j->conv, 1, 0, rows, 1);
    }
}

static void run(struct unfold_job *job, fl_dtype dtype)
{
    const fl_conv *c = job->conv;
    job->is_double = dtype == FL_FLOAT64;
    job->item = (int64_t)fl_dtype_size(dtype);
    fl_team_for(c->images * c->in, (double)(fl_conv_taps(c) * fl_conv_y_plane(c)), planes_part, job);
}

void fl_cpu_unfold(fl_dtype dtype, const fl_conv *conv, void *columns, const void *image)
{
    run(&(struct unfold_job){.conv = conv, .image = (char *)image, .columns = columns}, dtype);
}

void fl_cpu_fold(fl_dtype dtype, const fl_conv *conv, void *image, const void *columns)
{
    run(&(struct unfold_job){.conv = conv, .folds = true, .image = image, .columns = (char *)columns}, dtype);
}
