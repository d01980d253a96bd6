/*
** pinv.h -- the attributes of pseudoinverses: which singular values count as 0.
*/
#ifndef FL_PINV_H
#define FL_PINV_H

#include "view.h"

enum { FL_PINV_ATOL, FL_PINV_RTOL };

/* Those up to max(atol, rtol * the largest), as PyTorch fills them in: rtol is max(m, n) times the dtype's epsilon,
** or 0 beside an atol. */
static inline void fl_pinv_tolerances(double *atol, double *rtol, const fl_attrs *attrs, fl_dtype dtype, int64_t m,
                                      int64_t n)
{
    double epsilon = dtype == FL_FLOAT64 ? 0x1p-52 : 0x1p-23;
    *atol = attrs->at[FL_PINV_ATOL].given ? attrs->at[FL_PINV_ATOL].number : 0;
    *rtol = *atol > 0 ? 0 : epsilon * (double)(m > n ? m : n);
    if (attrs->at[FL_PINV_RTOL].given) *rtol = attrs->at[FL_PINV_RTOL].number;
}

#endif
