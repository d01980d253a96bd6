/*
** attention.cu -- the ops of scaled dot-product attention on the device: attention_rows, attention_backward, and the
** mask and the dropout as ops of their own.
**
** Operands are read where they lie if their rows are contiguous. A GPU without mma.m16n8k16 (before compute 8.0)
** computes float16 and bfloat16 in float32.
*/
#include "core/op/attention.h"
#include "attention.cuh"
#include "cuda/parts/fresh.h"
#include "operand.h"

#include <math.h>

/* ---- operands ---- */

/* Operands and results while an op is issued; at[i] belongs to k->in[i]. */
struct operands {
    const fl_kernel *k;
    fl_dtype dtype; /* of q, k, v, dy and the results */
    fl_cuda_operand at[FL_ATTENTION_BACK_OPERANDS], out[FL_MAX_OUT];
    void *delta;
};

static fl_dtype dtype_of(const fl_kernel *kernel)
{
    fl_dtype dtype = kernel->out[0].dtype;
    bool half = dtype == FL_FLOAT16 || dtype == FL_BFLOAT16;
    return half && fl_cuda_current()->capability < 80 ? FL_FLOAT32 : dtype;
}

static fl_status open_rows(rows *r, operands *o, int i)
{
    const fl_view *v = &o->k->in[i];
    fl_cuda_operand *at = &o->at[i];
    int batch = v->ndim - 2;
    int64_t item = (int64_t)fl_dtype_size(o->dtype), bits;
    bool contiguous = v->size[batch + 1] <= 1 || v->stride[batch + 1] == 1;
    FL_TRY(fl_cuda_operand_in(at, v, o->dtype, contiguous));
    r->data = at->data;
    r->row = at->stride[batch];
    bits = (int64_t)(uintptr_t)at->data | r->row * item | v->size[batch + 1] * item;
    for (int d = 0; d < batch; d++) {
        r->stride[d] = at->stride[d];
        bits |= at->stride[d] * item;
    }
    r->vectors = bits % 16 == 0;
    return FL_OK;
}

/* Strides of the mask aligned with the scores: 0 where it broadcasts. */
static fl_status open_mask(attention *a, operands *o, int i)
{
    const fl_view *v = &o->k->in[i];
    fl_dtype wide = attention_wide(o->dtype);
    if (!v->data) return FL_OK;
    bool as_is = v->dtype == FL_BOOL || v->dtype == o->dtype || v->dtype == wide;
    FL_TRY(fl_cuda_operand_in(&o->at[i], v, as_is ? v->dtype : wide, true));
    a->masked = v->dtype == FL_BOOL ? MASK_BOOL : v->dtype == o->dtype ? MASK_OWN : MASK_WIDE;
    a->mask.data = o->at[i].data;
    for (int d = 0; d < v->ndim; d++) {
        int axis = a->batch + 2 - v->ndim + d;
        int64_t stride = v->size[d] == 1 ? 0 : o->at[i].stride[d];
        if (axis < a->batch) a->mask.stride[axis] = stride;
        else if (axis == a->batch) a->mask.row = stride;
        else a->mask_col = stride;
    }
    return FL_OK;
}

static void close_operands(operands *o)
{
    if (o->delta) fl_cuda_free(o->delta);
    for (int i = 0; i < o->k->nout; i++) fl_cuda_operand_close(&o->out[i]);
    for (int i = 0; i < o->k->nin; i++) fl_cuda_operand_close(&o->at[i]);
}

static fl_status open_results(operands *o, int count)
{
    for (int i = 0; i < count; i++) FL_TRY(fl_cuda_operand_out(&o->out[i], &o->k->out[i], o->dtype));
    return FL_OK;
}

static fl_status store_results(const operands *o, int count)
{
    for (int i = 0; i < count; i++) FL_TRY(fl_cuda_operand_store(&o->out[i], &o->k->out[i], o->dtype));
    return FL_OK;
}

/* ---- the problem ---- */

/* Batch axes, and the positions that dropout depends on; scores: a view of [..., t, any]. */
static void place(attention *a, const fl_view *scores, const fl_attrs *attrs)
{
    double dropout = attrs->at[FL_ATTENTION_DROPOUT].number;
    a->batch = scores->ndim - 2;
    for (int d = 0; d < a->batch; d++) {
        a->size[d] = scores->size[d];
        a->start[d] = scores->start[d];
        a->logical[d] = scores->logical[d];
    }
    a->queries = scores->size[a->batch];
    a->first_query = scores->start[a->batch];
    a->logical_queries = scores->logical[a->batch];
    a->causal = attrs->at[FL_ATTENTION_CAUSAL].integer != 0;
    a->keep = dropout < 1 ? 1 / (1 - dropout) : 0;
    a->threshold = (uint32_t)ceil(dropout * 16777216.0);
}

static attention attention_of(const fl_kernel *kernel, const fl_view *q, const fl_view *key, const fl_view *v)
{
    attention a = {};
    const fl_attr *scale = &kernel->attrs->at[FL_ATTENTION_SCALE];
    place(&a, q, kernel->attrs);
    a.keys = key->size[a.batch];
    a.seen_keys = a.causal && a.first_query + a.queries < a.keys ? a.first_query + a.queries : a.keys;
    a.width = q->size[a.batch + 1];
    a.value_width = v->size[a.batch + 1];
    a.scale = scale->given ? scale->number : 1 / sqrt((double)q->logical[a.batch + 1]);
    return a;
}

static int64_t head_count(const attention *a)
{
    int64_t count = 1;
    for (int i = 0; i < a->batch; i++) count *= a->size[i];
    return count;
}

/* ---- forward ---- */

struct random_key {
    uint64_t seed, counter;
};

static void fill_key(void *out, const fl_kernel *kernel) { *(random_key *)out = {kernel->seed, kernel->counter}; }

__global__ void __launch_bounds__(1) keep_key(int64_t *out, fl_fresh<random_key> fresh)
{
    const random_key key = fresh.get();
    out[0] = (int64_t)key.seed;
    out[1] = (int64_t)key.counter;
}

static fl_status forward_with(operands *o, attention *a)
{
    const fl_kernel *k = o->k;
    FL_TRY(open_rows(&a->q, o, FL_ATTENTION_Q));
    FL_TRY(open_rows(&a->k, o, FL_ATTENTION_K));
    FL_TRY(open_rows(&a->v, o, FL_ATTENTION_V));
    FL_TRY(open_mask(a, o, FL_ATTENTION_MASK));
    FL_TRY(open_results(o, 1));
    FL_TRY(fl_cuda_operand_out(&o->out[FL_ATTENTION_LSE], &k->out[FL_ATTENTION_LSE], attention_wide(o->dtype)));
    a->out = o->out[FL_ATTENTION_OUT].data;
    a->lse = o->out[FL_ATTENTION_LSE].data;
    FL_TRY(fl_cuda_attention_forward(o->dtype, a, head_count(a)));
    FL_TRY(fl_cuda_operand_store(&o->out[FL_ATTENTION_LSE], &k->out[FL_ATTENTION_LSE], attention_wide(o->dtype)));
    return store_results(o, 1);
}

static fl_status launch_rows(fl_kernel *kernel)
{
    operands o = {};
    int64_t *key = (int64_t *)kernel->out[FL_ATTENTION_KEY].data;
    FL_LAUNCH(keep_key, 1, 1, 0, key, fl_cuda_fresh<random_key>(fill_key, kernel));
    if (kernel->out[FL_ATTENTION_OUT].numel == 0 && kernel->out[FL_ATTENTION_LSE].numel == 0)
        return fl_cuda_check(kernel->name);
    o.k = kernel;
    o.dtype = dtype_of(kernel);
    attention a = attention_of(kernel, &kernel->in[FL_ATTENTION_Q], &kernel->in[FL_ATTENTION_K],
                               &kernel->in[FL_ATTENTION_V]);
    a.key = key;
    fl_status status = forward_with(&o, &a);
    close_operands(&o);
    return status;
}

/* ---- backward ---- */

static fl_status backward_with(operands *o, attention *a)
{
    const fl_kernel *k = o->k;
    fl_dtype wide = attention_wide(o->dtype);
    FL_TRY(open_rows(&a->g, o, FL_ATTENTION_BACK_DY));
    FL_TRY(open_rows(&a->q, o, FL_ATTENTION_BACK_Q));
    FL_TRY(open_rows(&a->k, o, FL_ATTENTION_BACK_K));
    FL_TRY(open_rows(&a->v, o, FL_ATTENTION_BACK_V));
    FL_TRY(open_mask(a, o, FL_ATTENTION_BACK_MASK));
    FL_TRY(fl_cuda_operand_in(&o->at[FL_ATTENTION_BACK_OUT], &k->in[FL_ATTENTION_BACK_OUT], o->dtype, false));
    FL_TRY(fl_cuda_operand_in(&o->at[FL_ATTENTION_BACK_LSE], &k->in[FL_ATTENTION_BACK_LSE], wide, false));
    FL_TRY(fl_cuda_operand_in(&o->at[FL_ATTENTION_BACK_KEY], &k->in[FL_ATTENTION_BACK_KEY], FL_INT64, false));
    FL_TRY(fl_cuda_operand_in(&o->at[FL_ATTENTION_BACK_DLSE], &k->in[FL_ATTENTION_BACK_DLSE], wide, false));
    FL_TRY(open_results(o, 3));
    FL_TRY(fl_cuda_malloc(&o->delta, (size_t)(head_count(a) * a->queries) * fl_dtype_size(wide)));
    a->lse = o->at[FL_ATTENTION_BACK_LSE].data;
    a->key = (const int64_t *)o->at[FL_ATTENTION_BACK_KEY].data;
    a->delta = (char *)o->delta;
    a->dq = o->out[FL_ATTENTION_BACK_DQ].data;
    a->dk = o->out[FL_ATTENTION_BACK_DK].data;
    a->dv = o->out[FL_ATTENTION_BACK_DV].data;
    FL_TRY(fl_cuda_attention_backward(o->dtype, a, head_count(a), o->at[FL_ATTENTION_BACK_OUT].data,
                                      o->at[FL_ATTENTION_BACK_DLSE].data));
    return store_results(o, 3);
}

static fl_status launch_backward(fl_kernel *kernel)
{
    operands o = {};
    o.k = kernel;
    o.dtype = dtype_of(kernel);
    attention a = attention_of(kernel, &kernel->in[FL_ATTENTION_BACK_Q], &kernel->in[FL_ATTENTION_BACK_K],
                               &kernel->in[FL_ATTENTION_BACK_V]);
    fl_status status = backward_with(&o, &a);
    close_operands(&o);
    return status;
}

/* ---- mask and dropout as ops ---- */

enum { THREADS = 256 };

/* Scores [heads, queries, keys] with the mask. */
template<typename T>
__global__ void __launch_bounds__(THREADS)
    mask_scores(T *out, const T *in, const __grid_constant__ attention a, int64_t count)
{
    typedef plan<T, 32, 1, 32, 1> P;
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < count; i += (int64_t)gridDim.x * THREADS) {
        int64_t key = i % a.keys, row = i / a.keys, query = row % a.queries;
        head<P> h;
        head_at<P>(&h, a, row / a.queries);
        out[i] = fl_store<T>(seen_score<P>(a, h, (typename P::W)fl_load(in[i]), query, key));
    }
}

static unsigned blocks_for(int64_t count)
{
    int64_t blocks = (count + THREADS - 1) / THREADS, most = (int64_t)fl_cuda_current()->processors * 32;
    return (unsigned)(blocks < most ? blocks : most);
}

static fl_status mask_with(operands *o, attention *a)
{
    const fl_view *out = &o->k->out[0];
    FL_TRY(fl_cuda_operand_in(&o->at[FL_ATTENTION_MASK_SCORES], &o->k->in[FL_ATTENTION_MASK_SCORES], o->dtype, false));
    FL_TRY(open_mask(a, o, FL_ATTENTION_MASK_MASK));
    FL_TRY(open_results(o, 1));
    a->threshold = 0;                           /* a mask drops nothing */
    a->first_query -= out->start[a->batch + 1]; /* keys are counted from this part's first */
    FL_TRY(fl_cuda_by_float(o->dtype, [&](auto like) {
        typedef decltype(like) T;
        FL_LAUNCH((mask_scores<T>), blocks_for(out->numel), THREADS, 0, (T *)o->out[0].data,
                  (const T *)o->at[FL_ATTENTION_MASK_SCORES].data, *a, out->numel);
        return fl_cuda_check("attention_mask");
    }));
    return store_results(o, 1);
}

template<typename T>
__global__ void __launch_bounds__(THREADS) dropout_factors(T *out, const __grid_constant__ attention a, int64_t count)
{
    typedef plan<T, 32, 1, 32, 1> P;
    dropout_words d = {~(uint64_t)0, {0, 0, 0, 0}};
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < count; i += (int64_t)gridDim.x * THREADS) {
        int64_t key = i % a.keys, row = i / a.keys;
        head<P> h;
        head_at<P>(&h, a, row / a.queries);
        bool kept = is_kept(&d, a, (uint64_t)a.key[0], (uint64_t)a.key[1], h.logical, row % a.queries, key);
        out[i] = fl_store<T>(kept ? (typename P::W)a.keep : (typename P::W)0);
    }
}

static fl_status dropout_with(operands *o, attention *a)
{
    int64_t count = o->k->out[0].numel;
    FL_TRY(fl_cuda_operand_in(&o->at[FL_ATTENTION_DROPOUT_KEY], &o->k->in[FL_ATTENTION_DROPOUT_KEY], FL_INT64, false));
    FL_TRY(open_results(o, 1));
    a->key = (const int64_t *)o->at[FL_ATTENTION_DROPOUT_KEY].data;
    FL_TRY(fl_cuda_by_float(o->dtype, [&](auto like) {
        typedef decltype(like) T;
        FL_LAUNCH((dropout_factors<T>), blocks_for(count), THREADS, 0, (T *)o->out[0].data, *a, count);
        return fl_cuda_check("attention_dropout");
    }));
    return store_results(o, 1);
}

/* One of the two over scores [heads, queries, keys]. */
static fl_status launch_scores(fl_kernel *kernel, fl_status (*with)(operands *o, attention *a))
{
    operands o = {};
    attention a = {};
    if (kernel->out[0].numel == 0) return FL_OK;
    o.k = kernel;
    o.dtype = kernel->out[0].dtype;
    place(&a, &kernel->out[0], kernel->attrs);
    a.keys = kernel->out[0].size[a.batch + 1];
    fl_status status = with(&o, &a);
    close_operands(&o);
    return status;
}

static fl_status launch_mask(fl_kernel *kernel) { return launch_scores(kernel, mask_with); }
static fl_status launch_dropout(fl_kernel *kernel) { return launch_scores(kernel, dropout_with); }

FL_CUDA_OP(attention_rows, launch_rows);
FL_CUDA_OP(attention_backward, launch_backward);
FL_CUDA_OP(attention_mask, launch_mask);
FL_CUDA_OP(attention_dropout, launch_dropout);
