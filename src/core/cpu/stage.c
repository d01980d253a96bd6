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

static bool fits(const fl_view *v, fl_dtype dtype) { return !v->data || (v->contiguous && v->dtype == dtype); }

static size_t staged_bytes(const fl_view *v, fl_dtype dtype)
{
    return fits(v, dtype) ? 0 : ((size_t)v->numel * fl_dtype_size(dtype) + 63) & ~(size_t)63;
}

/* v's elements as a row-major array of `dtype` at data. */
static fl_view array_like(const fl_view *v, void *data, fl_dtype dtype, int64_t *strides)
{
    fl_view array = *v;
    fl_shape_strides(strides, v->size, v->ndim);
    array.data = data;
    array.dtype = dtype;
    array.contiguous = true;
    array.stride = strides;
    return array;
}

fl_status fl_stage_open(fl_stage *s, fl_kernel *k, uint32_t as_is)
{
    size_t bytes = 0;
    assert(k->nin <= FL_STAGE_OPERANDS);
    s->k = k;
    s->dtype = fl_dtype_compute(k->out[0].dtype);
    for (int i = 0; i < k->nin; i++)
        if (!(as_is >> i & 1u)) bytes += staged_bytes(&k->in[i], staged_dtype(k->in[i].dtype, s->dtype));
    for (int i = 0; i < k->nout; i++) bytes += staged_bytes(&k->out[i], staged_dtype(k->out[i].dtype, s->dtype));
    char *scratch = bytes ? fl_scratch(FL_STAGE_SCRATCH, bytes) : NULL;
    if (bytes && !scratch)
        return fl_fail(FL_ERR_MEMORY, "%s: out of memory: %zu bytes of scratch space", k->name, bytes);
    for (int i = 0; i < k->nin; i++) {
        const fl_view *v = &k->in[i];
        fl_dtype dtype = staged_dtype(v->dtype, s->dtype);
        s->in[i] = v->data;
        if (as_is >> i & 1u || fits(v, dtype)) continue;
        int64_t strides[FL_MAX_NDIM];
        fl_view array = array_like(v, scratch, dtype, strides);
        FL_TRY(fl_cpu_copy(&array, v));
        s->in[i] = scratch;
        scratch += staged_bytes(v, dtype);
    }
    for (int i = 0; i < k->nout; i++) {
        fl_dtype dtype = staged_dtype(k->out[i].dtype, s->dtype);
        s->out[i] = fits(&k->out[i], dtype) ? k->out[i].data : scratch;
        scratch += staged_bytes(&k->out[i], dtype);
    }
    return FL_OK;
}

void fl_stage_strides(int64_t *strides, const fl_stage *s, int i)
{
    const fl_view *v = &s->k->in[i];
    if (s->in[i] == v->data) memcpy(strides, v->stride, sizeof(int64_t) * (size_t)v->ndim);
    else fl_shape_strides(strides, v->size, v->ndim);
}

fl_status fl_stage_close(fl_stage *s)
{
    for (int i = 0; i < s->k->nout; i++) {
        const fl_view *v = &s->k->out[i];
        if (s->out[i] == v->data) continue;
        int64_t strides[FL_MAX_NDIM];
        fl_view array = array_like(v, s->out[i], staged_dtype(v->dtype, s->dtype), strides);
        FL_TRY(fl_cpu_copy(v, &array));
    }
    return FL_OK;
}
