/*
** record_batch.c -- rows of tensors from records (see record_batch.h).
**
** The job lies in a storage of its own among those that the task writes, so it is freed when the task is over or was
** cancelled, and the records stay open until then.
*/
#include "record_batch.h"
#include "pool.h"

#include <stdlib.h>
#include <string.h>

/* ---- outputs ---- */

static fl_dtype dtype_of(const fl_record_column *column)
{
    switch (column->kind) {
    case FL_RECORD_TENSOR: return column->dtype;
    case FL_RECORD_INTEGER: return FL_INT64;
    case FL_RECORD_NUMBER: return FL_FLOAT32;
    default: return FL_BOOL;
    }
}

fl_status fl_record_output_new(fl_tensor **out, fl_record_output *output, const char *who, const fl_record_set *set,
                               int column, int64_t rows)
{
    char shown[FL_RECORD_SHOWN];
    const fl_record_column *c = &set->schema.columns[column];
    int64_t sizes[FL_MAX_NDIM] = {rows};
    int ndim = c->kind == FL_RECORD_TENSOR ? c->shape.ndim : 0;
    fl_shape shape;
    fl_record_column_text(shown, &set->schema, column);
    if (c->kind == FL_RECORD_STRING) return fl_fail(FL_ERR_VALUE, "%s: %s is a string", who, shown);
    if (!c->fixed)
        return fl_fail(FL_ERR_VALUE, "%s: the tensors of %s have different shapes; read them with get, one at a time",
                       who, shown);
    if (ndim == FL_MAX_NDIM)
        return fl_fail(FL_ERR_VALUE, "%s: the tensors of %s have %d axes, and a batch of them one too many", who, shown,
                       ndim);
    memcpy(sizes + 1, c->shape.dims, sizeof *sizes * (size_t)ndim);
    FL_TRY(fl_shape_make(&shape, who, sizes, ndim + 1));
    fl_tensor *t;
    FL_TRY(fl_tensor_empty_local(&t, dtype_of(c), &shape));
    int64_t bytes = t->meta->numel * (int64_t)fl_dtype_size(t->meta->dtype);
    *output = (fl_record_output){column, c->kind == FL_RECORD_NUMBER, rows ? bytes / rows : 0,
                                 bytes ? fl_tensor_data(t) : NULL};
    *out = t;
    return FL_OK;
}

static float number_of(const fl_record_field *field)
{
    int64_t integer;
    double number;
    memcpy(&integer, field->value, sizeof integer);
    memcpy(&number, field->value, sizeof number);
    return field->kind == FL_RECORD_INTEGER ? (float)integer : (float)number;
}

enum { AHEAD = 2 /* rows whose memory is asked for before they come */ };

/* The record of this row does not lie behind that of the row before it: the CPU does not see it coming. */
static bool is_elsewhere(const int64_t *positions, int64_t rows, int64_t row)
{
    return row < rows && positions[row] != positions[row - 1] + 1;
}

fl_status fl_record_output_row(const fl_record_output *outputs, int count, int64_t row, fl_record_field *fields,
                               const fl_record_set *set, const int64_t *positions, int64_t rows)
{
    int64_t soon = row + AHEAD, later = row + 2 * AHEAD;
    void *to[FL_RECORD_FIELDS];
    memset(to, 0, sizeof *to * (size_t)set->schema.count);
    for (int i = 0; i < count; i++)
        if (!outputs[i].numbers && outputs[i].row_bytes)
            to[outputs[i].column] = outputs[i].data + row * outputs[i].row_bytes;
    if (is_elsewhere(positions, rows, later)) fl_record_set_prefetch(set, positions[later]);
    FL_TRY(fl_record_set_copy(fields, to, set, positions[row],
                              is_elsewhere(positions, rows, soon) ? positions[soon] : -1));
    for (int i = 0; i < count; i++)
        if (outputs[i].numbers) ((float *)outputs[i].data)[row] = number_of(&fields[outputs[i].column]);
    return fl_record_set_check(set, positions[row]);
}

/* ---- the task ---- */

enum {
    ROWS_TOGETHER = 16, /* that a thread takes at a time */
    BYTES_OF_THREAD = 128 * 1024,
};

struct job {
    fl_record_set *set; /* owned: one reference */
    int64_t rows, *positions;
    int count;
    fl_record_output outputs[FL_RECORD_FIELDS];
};

static void job_free(void *context)
{
    struct job *job = context;
    fl_record_set_unref(job->set);
    free(job->positions);
    free(job);
}

static fl_status fill_rows(void *context, int64_t item, int seat)
{
    struct job *job = context;
    fl_record_field fields[FL_RECORD_FIELDS];
    int64_t end = (item + 1) * ROWS_TOGETHER < job->rows ? (item + 1) * ROWS_TOGETHER : job->rows;
    (void)seat;
    for (int64_t row = item * ROWS_TOGETHER; row < end; row++)
        FL_TRY(fl_record_output_row(job->outputs, job->count, row, fields, job->set, job->positions, job->rows));
    return FL_OK;
}

/* Threads that a batch is worth: to wake one takes as long as to copy what it gets at the least. */
static int workers_of(const struct job *job)
{
    int64_t bytes = 0;
    for (int i = 0; i < job->count; i++) bytes += job->rows * job->outputs[i].row_bytes;
    int64_t worth = 1 + bytes / BYTES_OF_THREAD;
    return worth < job->set->options.workers ? (int)worth : job->set->options.workers;
}

static fl_status run_job(void *payload)
{
    struct job *job = *(struct job **)payload;
    int64_t items = (job->rows + ROWS_TOGETHER - 1) / ROWS_TOGETHER;
    return fl_pool_run(items, workers_of(job), fill_rows, job);
}

static fl_status job_new(struct job **out, const fl_record_output *outputs, int count, fl_record_set *set,
                         const int64_t *positions, int64_t rows)
{
    struct job *job = calloc(1, sizeof *job);
    if (job) job->positions = malloc(sizeof *positions * ((size_t)rows + 1));
    if (!job || !job->positions) {
        free(job);
        return fl_fail(FL_ERR_MEMORY, "records: out of memory");
    }
    job->set = fl_record_set_ref(set);
    job->rows = rows;
    job->count = count;
    if (rows) memcpy(job->positions, positions, sizeof *positions * (size_t)rows);
    memcpy(job->outputs, outputs, sizeof *outputs * (size_t)count);
    *out = job;
    return FL_OK;
}

static fl_status push_job(struct job *job, fl_storage *holder, fl_tensor *const *tensors, int count)
{
    fl_var *writes[FL_RECORD_FIELDS + 1] = {&holder->var};
    for (int i = 0; i < count; i++) writes[i + 1] = &tensors[i]->storage->var;
    return fl_pool_push(&(fl_pool_task){.name = "records",
                                        .run = run_job,
                                        .payload = &job,
                                        .payload_size = sizeof job,
                                        .writes = writes,
                                        .write_count = count + 1});
}

fl_status fl_record_batch_fill(fl_tensor *const *tensors, const fl_record_output *outputs, int count,
                               fl_record_set *set, const int64_t *positions, int64_t rows)
{
    struct job *job = NULL;
    fl_storage *holder;
    FL_TRY(job_new(&job, outputs, count, set, positions, rows));
    fl_status status = fl_storage_new_foreign(&holder, job, sizeof *job, FL_CPU, -1, job_free, job);
    if (status != FL_OK) {
        job_free(job);
        return status;
    }
    status = push_job(job, holder, tensors, count);
    fl_storage_unref(holder);
    return status;
}
