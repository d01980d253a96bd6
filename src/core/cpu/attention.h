/*
** attention.h -- scaled dot-product attention in blocks: scores are never stored whole.
**
** Forward keeps the log-sum-exp of every query's scores, so that backward can recompute the weights
** block by block (FlashAttention-2's scheme).
*/
#ifndef FL_ATTENTION_H
#define FL_ATTENTION_H

#include "stage.h"

typedef enum fl_mask_kind { FL_MASK_NONE, FL_MASK_BOOL, FL_MASK_FLOAT } fl_mask_kind;

/* One head. Rows are contiguous, `*_row` elements apart; the mask has any strides (0 where it broadcasts). */
typedef struct fl_attention_head {
    const void *q, *k, *v, *mask, *g, *out_in, *lse_in, *dlse;
    void *out, *lse, *dq, *dk, *dv;
    /* dlse: gradient of lse, or NULL */
    int64_t index; /* logical position among all heads: places the dropout mask */
} fl_attention_head;

typedef struct fl_attention {
    int64_t queries, keys, width, value_width;
    int64_t q_row, k_row, v_row, g_row, mask_row, mask_col; /* set from the operands */
    fl_mask_kind mask_kind; /* bool: true takes part; float: added to the scores, of the kernel's type */
    bool causal;            /* query i sees keys up to i */
    int64_t first_query;    /* logical position of query 0 of this part */
    int64_t logical_queries;
    double scale, dropout;
    uint64_t seed, counter;
} fl_attention;

enum { FL_ATTENTION_QUERIES = 32, FL_ATTENTION_KEYS = 64 }; /* a block */
enum { FL_ATTENTION_WORK = 2 * FL_ATTENTION_QUERIES * FL_ATTENTION_KEYS };

static inline int64_t fl_attention_query_blocks(const fl_attention *attention)
{
    return (attention->queries + FL_ATTENTION_QUERIES - 1) / FL_ATTENTION_QUERIES;
}

/* Of one level and type; serial. work: scratch memory for FL_ATTENTION_WORK elements; packed: K (and for backward V)
** transposed in blocks of keys. */
typedef struct fl_attention_kernels {
    void (*pack)(void *packed, const void *rows, int64_t count, int64_t width, int64_t row);
    void (*forward)(const fl_attention *attention, const fl_attention_head *head, int64_t query_block,
                    const void *packed_k, void *work);
    void (*backward)(const fl_attention *attention, const fl_attention_head *head, const void *packed_k,
                     const void *packed_v, void *work);
    /* 1 / (1 - dropout) or 0 for keys [first_key, first_key + n) of a logical query */
    void (*dropout_row)(void *factor, const fl_attention *attention, int64_t head, int64_t query, int64_t first_key,
                        int64_t n);
} fl_attention_kernels;

FL_DECLARE_LEVELS(const fl_attention_kernels, fl_attention_kernels_f32);
FL_DECLARE_LEVELS(const fl_attention_kernels, fl_attention_kernels_f64);

/* Elements of `packed` for one of K, V. */
static inline int64_t fl_attention_packed_size(int64_t keys, int64_t width)
{
    return (keys + FL_ATTENTION_KEYS - 1) / FL_ATTENTION_KEYS * FL_ATTENTION_KEYS * width;
}

/* The kernels of attention_rows, attention_backward, attention_dropout and attention_mask on staged operands, which
** op/attention.h names. attention: the common part of all heads. The first two use the team. */
fl_status fl_cpu_attention(const fl_stage *stage, const fl_attention *attention);
fl_status fl_cpu_attention_backward(const fl_stage *stage, const fl_attention *attention);
/* The dropout factors themselves, [..., queries, keys]. */
void fl_cpu_attention_dropout(const fl_stage *stage, const fl_attention *attention);
/* Scores plus the mask, or without what it takes out; causal: also without the keys behind each query. */
void fl_cpu_attention_mask(const fl_stage *stage, bool causal);

#endif
