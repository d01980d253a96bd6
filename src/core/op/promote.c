/*
** promote.c -- promotion over tiers of operands: see promote.h.
*/
#include "promote.h"

fl_promotion fl_promotion_begin(void) { return (fl_promotion){{FL_DTYPE_COUNT, FL_DTYPE_COUNT, FL_DTYPE_COUNT}}; }

void fl_promotion_add(fl_promotion *promotion, fl_dtype dtype, fl_tier tier)
{
    fl_dtype *so_far = &promotion->tiers[tier];
    *so_far = *so_far == FL_DTYPE_COUNT ? dtype : fl_dtype_promote(*so_far, dtype);
}

/* The weaker tier counts only where it has the higher category. */
static fl_dtype raise_category(fl_dtype strong, fl_dtype weak)
{
    if (strong == FL_DTYPE_COUNT) return weak;
    if (weak == FL_DTYPE_COUNT || fl_dtype_categories[weak] <= fl_dtype_categories[strong]) return strong;
    return fl_dtype_promote(strong, weak);
}

fl_dtype fl_promotion_end(const fl_promotion *promotion)
{
    return raise_category(promotion->tiers[FL_TIER_TENSOR],
                          raise_category(promotion->tiers[FL_TIER_SCALAR], promotion->tiers[FL_TIER_NUMBER]));
}
