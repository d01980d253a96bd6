/*
** stage.c -- operands of a kernel as plain row-major arrays: see stage.h.
*/
#include "stage.h"
#include "memory/scratch.h"

#include <assert.h>

static fl_dtype staged_dtype(fl_dtype own, fl_dtype compute)
{
    if (fl_dtype_is_float(own)) return compute;
    return own == FL_BOOL ? FL_BOOL : FL_INT64;
}

static bool fits(const fl_view *view, fl_dtype dtype)
{
    return !view->data || (view->contiguous && view->dtype == dtype);
}

static size_t staged_bytes(const fl_view *view, fl_dtype dtype)
{
    return fits(view, dtype) ? 0 : ((size_t)view->numel * fl_dtype_size(dtype) + 63) & ~(size_t)63;
}

/* Room for the operands that do not fit, and what is read of them. */
static fl_status stage_others(fl_stage *stage, uint32_t as_is, size_t bytes)
{
    const fl_kernel *kernel = stage->k;
    char *scratch = fl_scratch(FL_STAGE_SCRATCH, bytes);
    if (!scratch) return fl_fail(FL_ERR_MEMORY, "%s: out of memory: %zu bytes of scratch space", kernel->name, bytes);
    for (int i = 0; i < kernel->nin; i++) {
        const fl_view *v = &kernel->in[i];
        fl_dtype dtype = staged_dtype(v->dtype, stage->dtype);
        if (as_is >> i & 1u || fits(v, dtype)) continue;
        int64_t strides[FL_MAX_NDIM];
        fl_view array = fl_view_array(v, scratch, dtype, strides);
        FL_TRY(fl_cpu_copy(&array, v));
        stage->in[i] = scratch;
        scratch += staged_bytes(v, dtype);
    }
    for (int i = 0; i < kernel->nout; i++) {
        fl_dtype dtype = staged_dtype(kernel->out[i].dtype, stage->dtype);
        if (as_is & FL_STAGE_RESULT(i) || fits(&kernel->out[i], dtype)) continue;
        stage->out[i] = scratch;
        scratch += staged_bytes(&kernel->out[i], dtype);
    }
    return FL_OK;
}

fl_status fl_stage_open(fl_stage *stage, fl_kernel *kernel, uint32_t as_is)
{
    size_t bytes = 0;
    assert(kernel->nin <= FL_STAGE_OPERANDS);
    stage->k = kernel;
    stage->dtype = fl_dtype_compute(kernel->out[0].dtype);
    for (int i = 0; i < kernel->nin; i++) {
        const fl_view *v = &kernel->in[i];
        stage->in[i] = v->data;
        if (!(as_is >> i & 1u)) bytes += staged_bytes(v, staged_dtype(v->dtype, stage->dtype));
    }
    for (int i = 0; i < kernel->nout; i++) {
        const fl_view *v = &kernel->out[i];
        stage->out[i] = v->data;
        if (!(as_is & FL_STAGE_RESULT(i))) bytes += staged_bytes(v, staged_dtype(v->dtype, stage->dtype));
    }
    return FL_LIKELY(!bytes) ? FL_OK : stage_others(stage, as_is, bytes);
}

uint32_t fl_stage_narrow(const fl_kernel *kernel, uint32_t mask)
{
    fl_dtype dtype = kernel->out[0].dtype;
    bool all = dtype == FL_FLOAT16 || dtype == FL_BFLOAT16;
    for (int i = 0; i < kernel->nin + kernel->nout && all; i++) {
        int result = i - kernel->nin;
        const fl_view *v = result < 0 ? &kernel->in[i] : &kernel->out[result];
        if (mask & (result < 0 ? 1u << i : FL_STAGE_RESULT(result))) all = v->contiguous && v->dtype == dtype;
    }
    return all ? mask : 0;
}

void fl_stage_strides(int64_t *strides, const fl_stage *stage, int i)
{
    const fl_view *v = &stage->k->in[i];
    if (stage->in[i] == v->data) memcpy(strides, v->stride, sizeof(int64_t) * (size_t)v->ndim);
    else fl_shape_strides(strides, v->size, v->ndim);
}

fl_status fl_stage_load_result(fl_stage *stage, int i)
{
    const fl_view *v = &stage->k->out[i];
    int64_t strides[FL_MAX_NDIM];
    if (stage->out[i] == v->data) return FL_OK;
    fl_view array = fl_view_array(v, stage->out[i], staged_dtype(v->dtype, stage->dtype), strides);
    return fl_cpu_copy(&array, v);
}

fl_status fl_stage_close(fl_stage *stage)
{
    for (int i = 0; i < stage->k->nout; i++) {
        const fl_view *v = &stage->k->out[i];
        if (stage->out[i] == v->data) continue;
        int64_t strides[FL_MAX_NDIM];
        fl_view array = fl_view_array(v, stage->out[i], staged_dtype(v->dtype, stage->dtype), strides);
        FL_TRY(fl_cpu_copy(v, &array));
    }
    return FL_OK;
}
