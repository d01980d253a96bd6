/*
** random.h -- attributes of the random ops, shared by the kernels of the CPU and of devices.
*/
#ifndef FL_OP_RANDOM_H
#define FL_OP_RANDOM_H

#include "view.h"

enum { FL_RAND_SIZE };                                     /* rand, randn */
enum { FL_RANDINT_LOW, FL_RANDINT_HIGH, FL_RANDINT_SIZE }; /* randint_like: without a size */
enum { FL_BERNOULLI_P };
enum { FL_RANDOM_FROM, FL_RANDOM_TO };
/* Up to 2 to this power a dtype has every integer from 0 on, an integer dtype without the last. */
static inline int fl_random_digits(fl_dtype dtype)
{
    switch (dtype) {
    case FL_FLOAT64: return 53;
    case FL_FLOAT32: return 24;
    case FL_FLOAT16: return 11;
    case FL_INT64: return 63;
    case FL_INT32: return 31;
    case FL_INT8: return 7;
    case FL_BOOL: return 1;
    default: return 8; /* bfloat16, uint8 */
    }
}

/* The range of random_: integers from low to high - 1; to 2^63 - 1 if high is -2^63. */
static inline void fl_random_range(int64_t *low, int64_t *high, const fl_attrs *attrs, fl_dtype dtype)
{
    const fl_attr *from = &attrs->at[FL_RANDOM_FROM], *to = &attrs->at[FL_RANDOM_TO];
    *low = to->given && from->given ? from->integer : 0;
    if (to->given || from->given) *high = to->given ? to->integer : from->integer;
    else *high = (int64_t)(((uint64_t)1 << fl_random_digits(dtype)) + (fl_dtype_is_float(dtype) ? 1 : 0));
}

enum { FL_UNIFORM_LOW, FL_UNIFORM_HIGH };
enum { FL_NORMAL_MEAN, FL_NORMAL_STD };

/* dropout_apply; dropout: p and whether x is trained */
enum { FL_DROPOUT_P, FL_DROPOUT_SEED, FL_DROPOUT_COUNTER, FL_DROPOUT_TRAINING = 1 };

#endif
