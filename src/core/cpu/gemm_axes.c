/*
** gemm_axes.c -- products along batch axes: as few and as large ones as there can be.
*/
#include "gemm.h"
#include "memory/scratch.h"
#include "stage.h"

/* Batch axes that only A has, and that continue its rows, become rows. */
static void merge_rows(fl_gemm_axes *axes)
{
    fl_gemm *one = &axes->one;
    while (axes->ndim > 0) {
        int last = axes->ndim - 1;
        int64_t size = axes->size[last];
        bool continues = one->m == 1 || axes->a_step[last] == one->m * one->a_row;
        if (size != 1 && (axes->b_step[last] != 0 || !continues)) return;
        if (size != 1) {
            if (one->m == 1) one->a_row = axes->a_step[last];
            one->m *= size;
        }
        axes->ndim--;
    }
}

static int64_t batch_count(const fl_gemm_axes *axes)
{
    int64_t count = 1;
    for (int i = 0; i < axes->ndim; i++) count *= axes->size[i];
    return count;
}

/* Offsets of every pair of matrices, in elements. */
static void batch_offsets(int64_t *a_offset, int64_t *b_offset, const fl_gemm_axes *axes, int64_t count)
{
    int64_t index[FL_MAX_NDIM] = {0}, a = 0, b = 0;
    for (int64_t i = 0; i < count; i++) {
        a_offset[i] = a;
        b_offset[i] = b;
        for (int axis = axes->ndim - 1; axis >= 0; axis--) {
            a += axes->a_step[axis];
            b += axes->b_step[axis];
            if (++index[axis] < axes->size[axis]) break;
            a -= axes->a_step[axis] * axes->size[axis];
            b -= axes->b_step[axis] * axes->size[axis];
            index[axis] = 0;
        }
    }
}

fl_status fl_gemm_run_axes(fl_gemm_axes *axes, fl_dtype dtype, const char *name)
{
    merge_rows(axes);
    int64_t count = batch_count(axes);
    if (count == 1) fl_gemm_run(dtype, &axes->one);
    if (count <= 1) return FL_OK;
    int64_t *offsets = fl_scratch(FL_KERNEL_SCRATCH, 2 * sizeof(int64_t) * (size_t)count);
    if (!offsets) return fl_fail(FL_ERR_MEMORY, "%s: out of memory for a batch of %lld", name, (long long)count);
    batch_offsets(offsets, offsets + count, axes, count);
    fl_gemm_batch batch = {axes->one, count, offsets, offsets + count, axes->one.m * axes->one.n};
    fl_gemm_run_batch(dtype, &batch);
    return FL_OK;
}

bool fl_gemm_run_bfloat16(fl_gemm_axes *axes)
{
    merge_rows(axes);
    return batch_count(axes) == 1 && fl_gemm_run_bf16(&axes->one);
}
