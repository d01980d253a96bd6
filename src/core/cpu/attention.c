/*
** attention.c -- attention with the team.
**
** Operands have any strides along the batch axes, so each head is located on its own, in the order of the batch axes.
** Forward is cut into blocks of queries of each head, backward into heads; neither the cut nor the team changes the
** order in which a result is summed.
*/
#include "attention.h"
#include "stage.h"
#include "memory/scratch.h"
#include "op/attention.h"

#include <math.h>

enum { HEAD_SCRATCH = 2 }; /* slot of fl_scratch, behind those of stage.h */
static const double NS_PER_MULTIPLICATION = 0.03, NS_PER_SCORE = 1;

static const fl_attention_kernels *kernels_of(fl_dtype dtype)
{
    return dtype == FL_FLOAT64 ? FL_BY_LEVEL(fl_attention_kernels_f64) : FL_BY_LEVEL(fl_attention_kernels_f32);
}

struct attention_job {
    const fl_attention_kernels *kernels;
    const fl_attention *a;
    const fl_attention_head *heads;
    size_t item;
    int failed;
};

/* Scratch of this thread: `packed` elements of packed matrices, then the work space; NULL when out of memory. */
static char *thread_scratch(struct attention_job *job, int64_t packed)
{
    size_t bytes = (size_t)(packed + FL_ATTENTION_WORK) * job->item + 64;
    char *scratch = fl_scratch(FL_KERNEL_SCRATCH, bytes);
    if (!scratch) __atomic_store_n(&job->failed, 1, __ATOMIC_RELAXED);
    return scratch;
}

/* Cheap and dear blocks of a causal head alternate, so that contiguous ranges cost the same. */
static int64_t balanced_block(const fl_attention *attention, int64_t unit, int64_t blocks)
{
    if (!attention->causal) return unit;
    return unit % 2 ? blocks - 1 - unit / 2 : unit / 2;
}

static void forward_blocks(void *context, int64_t begin, int64_t end)
{
    struct attention_job *j = context;
    const fl_attention *a = j->a;
    int64_t blocks = fl_attention_query_blocks(a), packed_size = fl_attention_packed_size(a->keys, a->width),
            packed_head = -1;
    char *packed = thread_scratch(j, packed_size);
    if (!packed) return;
    for (int64_t u = begin; u < end; u++) {
        const fl_attention_head *h = &j->heads[u / blocks];
        if (u / blocks != packed_head) j->kernels->pack(packed, h->k, a->keys, a->width, a->k_row);
        packed_head = u / blocks;
        j->kernels->forward(a, h, balanced_block(a, u % blocks, blocks), packed,
                            packed + (size_t)packed_size * j->item);
    }
}

static void backward_heads(void *context, int64_t begin, int64_t end)
{
    struct attention_job *j = context;
    const fl_attention *a = j->a;
    int64_t size_k = fl_attention_packed_size(a->keys, a->width),
            size_v = fl_attention_packed_size(a->keys, a->value_width);
    char *packed_k = thread_scratch(j, size_k + size_v);
    if (!packed_k) return;
    char *packed_v = packed_k + (size_t)size_k * j->item, *work = packed_v + (size_t)size_v * j->item;
    for (int64_t i = begin; i < end; i++) {
        const fl_attention_head *h = &j->heads[i];
        j->kernels->pack(packed_k, h->k, a->keys, a->width, a->k_row);
        j->kernels->pack(packed_v, h->v, a->keys, a->value_width, a->v_row);
        j->kernels->backward(a, h, packed_k, packed_v, work);
    }
}

static double head_ns(const fl_attention *attention)
{
    double scores = (double)attention->queries * (double)attention->keys * (attention->causal ? 0.5 : 1);
    return scores * ((double)(attention->width + attention->value_width) * NS_PER_MULTIPLICATION + NS_PER_SCORE);
}

static fl_status finished(const struct attention_job *job)
{
    return job->failed ? fl_fail(FL_ERR_MEMORY, "scaled_dot_product_attention: out of memory for scratch space")
                       : FL_OK;
}

/* ---- heads ---- */

/* One operand's way through the heads. */
struct head_walk {
    char *data;
    size_t item;
    int64_t stride[FL_MAX_NDIM]; /* of the batch axes */
    int64_t row;                 /* of axis t or s */
};

static struct head_walk walk_in(const fl_stage *stage, int i, int batch)
{
    const fl_view *v = &stage->k->in[i];
    struct head_walk w = {.data = stage->in[i], .item = fl_dtype_size(stage->dtype)};
    int64_t strides[FL_MAX_NDIM];
    fl_stage_strides(strides, stage, i);
    memcpy(w.stride, strides, sizeof(int64_t) * (size_t)batch);
    if (v->ndim > batch) w.row = strides[batch];
    return w;
}

/* A result, or an operand that staging made contiguous; `inner` elements per head. */
static struct head_walk walk_contiguous(void *data, size_t item, const int64_t *size, int batch, int64_t inner)
{
    struct head_walk w = {.data = data, .item = item};
    for (int i = batch - 1; i >= 0; i--) {
        w.stride[i] = inner;
        inner *= size[i];
    }
    return w;
}

static void *walk_to(const struct head_walk *walk, const int64_t *index, int batch)
{
    int64_t at = 0;
    if (!walk->data) return NULL;
    for (int i = 0; i < batch; i++) at += index[i] * walk->stride[i];
    return walk->data + at * (int64_t)walk->item;
}

/* The mask's strides aligned with the scores: 0 where it broadcasts. */
static struct head_walk walk_mask(fl_attention *attention, const fl_stage *stage, int i, int batch)
{
    const fl_view *v = &stage->k->in[i];
    struct head_walk w = {.data = stage->in[i], .item = v->dtype == FL_BOOL ? 1 : fl_dtype_size(stage->dtype)};
    int64_t strides[FL_MAX_NDIM], aligned[FL_MAX_NDIM] = {0};
    if (!w.data) return w;
    attention->mask_kind = v->dtype == FL_BOOL ? FL_MASK_BOOL : FL_MASK_FLOAT;
    fl_stage_strides(strides, stage, i);
    for (int d = 0; d < v->ndim; d++)
        if (v->size[d] != 1) aligned[batch + 2 - v->ndim + d] = strides[d];
    memcpy(w.stride, aligned, sizeof(int64_t) * (size_t)batch);
    attention->mask_row = aligned[batch];
    attention->mask_col = aligned[batch + 1];
    return w;
}

/* Moves index to the next head of this part. */
static void next_head(int64_t *index, const fl_view *view, int batch)
{
    for (int i = batch - 1; i >= 0 && ++index[i] == view->size[i]; i--) index[i] = 0;
}

/* Position of the head among all heads of the logical tensor. */
static int64_t logical_head(const int64_t *index, const fl_view *view, int batch)
{
    int64_t at = 0;
    for (int i = 0; i < batch; i++) at = at * view->logical[i] + view->start[i] + index[i];
    return at;
}

static int64_t head_count(const fl_view *view)
{
    int64_t count = 1;
    for (int i = 0; i < view->ndim - 2; i++) count *= view->size[i];
    return count;
}

static fl_status heads_new(fl_attention_head **out, int64_t count)
{
    *out = fl_scratch(HEAD_SCRATCH, sizeof **out * (size_t)(count + 1));
    if (*out) return FL_OK;
    return fl_fail(FL_ERR_MEMORY, "scaled_dot_product_attention: out of memory for %lld heads", (long long)count);
}

/* ---- kernels ---- */

fl_status fl_cpu_attention(const fl_stage *stage, const fl_attention *attention)
{
    const fl_view *q = &stage->k->in[FL_ATTENTION_Q];
    int batch = q->ndim - 2;
    int64_t count = head_count(q), index[FL_MAX_NDIM] = {0};
    fl_attention a = *attention;
    fl_attention_head *heads;
    FL_TRY(heads_new(&heads, count));
    size_t item = fl_dtype_size(stage->dtype);
    struct head_walk wq = walk_in(stage, FL_ATTENTION_Q, batch), wk = walk_in(stage, FL_ATTENTION_K, batch),
                     wv = walk_in(stage, FL_ATTENTION_V, batch), wm = walk_mask(&a, stage, FL_ATTENTION_MASK, batch);
    struct head_walk wo = walk_contiguous(stage->out[FL_ATTENTION_OUT], item, q->size, batch,
                                          a.queries * a.value_width),
                     wl = walk_contiguous(stage->out[FL_ATTENTION_LSE], item, q->size, batch, a.queries);
    a.q_row = wq.row;
    a.k_row = wk.row;
    a.v_row = wv.row;
    for (int64_t i = 0; i < count; i++, next_head(index, q, batch))
        heads[i] = (fl_attention_head){.q = walk_to(&wq, index, batch),
                                       .k = walk_to(&wk, index, batch),
                                       .v = walk_to(&wv, index, batch),
                                       .mask = walk_to(&wm, index, batch),
                                       .out = walk_to(&wo, index, batch),
                                       .lse = walk_to(&wl, index, batch),
                                       .index = logical_head(index, q, batch)};
    struct attention_job j = {kernels_of(stage->dtype), &a, heads, item, 0};
    int64_t blocks = fl_attention_query_blocks(&a);
    if (blocks) fl_team_for(count * blocks, head_ns(&a) / (double)blocks, forward_blocks, &j);
    return finished(&j);
}

fl_status fl_cpu_attention_backward(const fl_stage *stage, const fl_attention *attention)
{
    const fl_view *q = &stage->k->in[FL_ATTENTION_BACK_Q];
    int batch = q->ndim - 2;
    int64_t count = head_count(q), index[FL_MAX_NDIM] = {0};
    fl_attention a = *attention;
    fl_attention_head *heads;
    FL_TRY(heads_new(&heads, count));
    size_t item = fl_dtype_size(stage->dtype);
    struct head_walk wg = walk_in(stage, FL_ATTENTION_BACK_DY, batch), wq = walk_in(stage, FL_ATTENTION_BACK_Q, batch),
                     wk = walk_in(stage, FL_ATTENTION_BACK_K, batch), wv = walk_in(stage, FL_ATTENTION_BACK_V, batch),
                     wm = walk_mask(&a, stage, FL_ATTENTION_BACK_MASK, batch);
    struct head_walk wo = walk_contiguous(stage->in[FL_ATTENTION_BACK_OUT], item, q->size, batch,
                                          a.queries * a.value_width),
                     wl = walk_contiguous(stage->in[FL_ATTENTION_BACK_LSE], item, q->size, batch, a.queries),
                     wd = walk_contiguous(stage->in[FL_ATTENTION_BACK_DLSE], item, q->size, batch, a.queries);
    struct head_walk gq = walk_contiguous(stage->out[FL_ATTENTION_BACK_DQ], item, q->size, batch, a.queries * a.width),
                     gk = walk_contiguous(stage->out[FL_ATTENTION_BACK_DK], item, q->size, batch, a.keys * a.width),
                     gv = walk_contiguous(stage->out[FL_ATTENTION_BACK_DV], item, q->size, batch,
                                          a.keys * a.value_width);
    a.g_row = wg.row;
    a.q_row = wq.row;
    a.k_row = wk.row;
    a.v_row = wv.row;
    for (int64_t i = 0; i < count; i++, next_head(index, q, batch))
        heads[i] = (fl_attention_head){.g = walk_to(&wg, index, batch),
                                       .q = walk_to(&wq, index, batch),
                                       .k = walk_to(&wk, index, batch),
                                       .v = walk_to(&wv, index, batch),
                                       .mask = walk_to(&wm, index, batch),
                                       .out_in = walk_to(&wo, index, batch),
                                       .lse_in = walk_to(&wl, index, batch),
                                       .dlse = walk_to(&wd, index, batch),
                                       .dq = walk_to(&gq, index, batch),
                                       .dk = walk_to(&gk, index, batch),
                                       .dv = walk_to(&gv, index, batch),
                                       .index = logical_head(index, q, batch)};
    struct attention_job j = {kernels_of(stage->dtype), &a, heads, item, 0};
    fl_team_for(count, 2.5 * head_ns(&a), backward_heads, &j);
    return finished(&j);
}

void fl_cpu_attention_dropout(const fl_stage *stage, const fl_attention *attention)
{
    const fl_view *x = &stage->k->out[0];
    const fl_attention_kernels *kernels = kernels_of(stage->dtype);
    int batch = x->ndim - 2;
    int64_t count = head_count(x), index[FL_MAX_NDIM] = {0};
    char *out = stage->out[0];
    for (int64_t i = 0; i < count; i++, next_head(index, x, batch)) {
        int64_t head = logical_head(index, x, batch);
        for (int64_t q = 0; q < attention->queries; q++, out += (size_t)attention->keys * fl_dtype_size(stage->dtype))
            kernels->dropout_row(out, attention, head, attention->first_query + q, 0, attention->keys);
    }
}

/* One row of n scores: adds the mask, which begins at mask_at and moves on by mask_col, or takes out where it is false;
** takes out what lies behind the first `seen`. */
static void mask_row(const fl_stage *stage, int64_t row, int64_t mask_at, int64_t mask_col, int64_t seen, int64_t n)
{
    bool wide = stage->dtype == FL_FLOAT64;
    const fl_view *mask = &stage->k->in[FL_ATTENTION_MASK_MASK];
    for (int64_t i = 0; i < n; i++) {
        int64_t at = row * n + i, from = mask_at + i * mask_col;
        double x = wide ? ((const double *)stage->in[FL_ATTENTION_MASK_SCORES])[at]
                        : (double)((const float *)stage->in[FL_ATTENTION_MASK_SCORES])[at];
        if (mask->data && mask->dtype == FL_BOOL)
            x = ((const uint8_t *)stage->in[FL_ATTENTION_MASK_MASK])[from] ? x : -INFINITY;
        else if (mask->data)
            x += wide ? ((const double *)stage->in[FL_ATTENTION_MASK_MASK])[from]
                      : (double)((const float *)stage->in[FL_ATTENTION_MASK_MASK])[from];
        if (i >= seen) x = -INFINITY;
        if (wide) ((double *)stage->out[0])[at] = x;
        else ((float *)stage->out[0])[at] = (float)x;
    }
}

void fl_cpu_attention_mask(const fl_stage *stage, bool causal)
{
    const fl_view *x = &stage->k->out[0];
    int batch = x->ndim - 2;
    int64_t n = x->size[x->ndim - 1], index[FL_MAX_NDIM] = {0};
    fl_attention a = {0};
    struct head_walk w = walk_mask(&a, stage, FL_ATTENTION_MASK_MASK, batch);
    w.stride[batch] = a.mask_row;
    for (int64_t row = 0; row < x->numel / n; row++, next_head(index, x, batch + 1)) {
        int64_t at = 0, seen = causal ? x->start[batch] + index[batch] + 1 - x->start[batch + 1] : n;
        for (int i = 0; w.data && i <= batch; i++) at += index[i] * w.stride[i];
        mask_row(stage, row, at, a.mask_col, seen, n);
    }
}
