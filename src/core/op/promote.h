/*
** promote.h -- the dtype that operands of several dtypes compute in.
**
** Three tiers, as in PyTorch: tensors with dimensions decide; 0-d tensors, then Lua numbers, only raise the category
** (bool, integer, float).
*/
#ifndef FL_PROMOTE_H
#define FL_PROMOTE_H

#include "base/dtype.h"

typedef enum fl_tier { FL_TIER_TENSOR, FL_TIER_SCALAR, FL_TIER_NUMBER, FL_TIER_COUNT } fl_tier;

/* Of a tensor with so many axes. */
static inline fl_tier fl_tier_of(int ndim) { return ndim ? FL_TIER_TENSOR : FL_TIER_SCALAR; }

typedef struct fl_promotion {
    fl_dtype tiers[FL_TIER_COUNT];
} fl_promotion;

/* Begin, add every operand, end: the promoted dtype, FL_DTYPE_COUNT of none. */
fl_promotion fl_promotion_begin(void);
void fl_promotion_add(fl_promotion *promotion, fl_dtype dtype, fl_tier tier);
fl_dtype fl_promotion_end(const fl_promotion *promotion);

#endif
