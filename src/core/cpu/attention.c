/*
** attention.c -- attention with the team.
**
** Forward is cut into blocks of queries of each head, backward into heads; neither the cut nor the team changes the
** order in which a result is summed.
*/
#include "attention.h"
#include "stage.h"
#include "memory/scratch.h"

#include <math.h>

static const double NS_PER_MULTIPLICATION = 0.03, NS_PER_SCORE = 1;

static const fl_attention_kernels *kernels_of(fl_dtype dtype)
{
    return dtype == FL_FLOAT64 ? FL_BY_LEVEL(fl_attention_kernels_f64) : FL_BY_LEVEL(fl_attention_kernels_f32);
}

typedef struct attention_job {
    const fl_attention_kernels *kernels;
    const fl_attention *a;
    const fl_attention_head *heads;
    size_t item;
    int failed;
} attention_job;

/* Scratch of this thread: `packed` elements of packed matrices, then the work space; NULL when out of memory. */
static char *thread_scratch(attention_job *j, int64_t packed)
{
    size_t bytes = (size_t)(packed + FL_ATTENTION_WORK) * j->item + 64;
    char *scratch = fl_scratch(FL_KERNEL_SCRATCH, bytes);
    if (!scratch) __atomic_store_n(&j->failed, 1, __ATOMIC_RELAXED);
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
    attention_job *j = context;
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
    attention_job *j = context;
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

static fl_status finished(const attention_job *j)
{
    return j->failed ? fl_fail(FL_ERR_MEMORY, "scaled_dot_product_attention: out of memory for scratch space") : FL_OK;
}

fl_status fl_cpu_attention(fl_dtype dtype, const fl_attention *attention, const fl_attention_head *heads, int64_t count)
{
    attention_job j = {kernels_of(dtype), attention, heads, fl_dtype_size(dtype), 0};
    int64_t blocks = fl_attention_query_blocks(attention);
    if (blocks) fl_team_for(count * blocks, head_ns(attention) / (double)blocks, forward_blocks, &j);
    return finished(&j);
}

fl_status fl_cpu_attention_backward(fl_dtype dtype, const fl_attention *attention, const fl_attention_head *heads,
                                    int64_t count)
{
    attention_job j = {kernels_of(dtype), attention, heads, fl_dtype_size(dtype), 0};
    fl_team_for(count, 2.5 * head_ns(attention), backward_heads, &j);
    return finished(&j);
}

void fl_cpu_attention_dropout(fl_dtype dtype, const fl_attention *attention, void *factor, const int64_t *head,
                              int64_t count)
{
    char *out = factor;
    for (int64_t i = 0; i < count; i++)
        for (int64_t q = 0; q < attention->queries; q++, out += (size_t)attention->keys * fl_dtype_size(dtype))
            kernels_of(dtype)->dropout_row(out, attention, head[i], attention->first_query + q, 0, attention->keys);
}

void fl_cpu_attention_mask_row(const fl_stage *stage, int64_t row, int64_t mask_at, int64_t mask_col, int64_t seen,
                               int64_t n)
{
    bool wide = stage->dtype == FL_FLOAT64;
    const fl_view *mask = &stage->k->in[1];
    for (int64_t i = 0; i < n; i++) {
        int64_t at = row * n + i, from = mask_at + i * mask_col;
        double x = wide ? ((const double *)stage->in[0])[at] : (double)((const float *)stage->in[0])[at];
        if (mask->data && mask->dtype == FL_BOOL) x = ((const uint8_t *)stage->in[1])[from] ? x : -INFINITY;
        else if (mask->data)
            x += wide ? ((const double *)stage->in[1])[from] : (double)((const float *)stage->in[1])[from];
        if (i >= seen) x = -INFINITY;
        if (wide) ((double *)stage->out[0])[at] = x;
        else ((float *)stage->out[0])[at] = (float)x;
    }
}
