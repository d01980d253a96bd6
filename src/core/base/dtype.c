/*
** dtype.c -- tables made from FL_DTYPES, and promotion.
*/
#include "dtype.h"

const uint8_t fl_dtype_sizes[FL_DTYPE_COUNT] = {
#define X(E, T, N, C) sizeof(T),
    FL_DTYPES(X)
#undef X
};

const uint8_t fl_dtype_categories[FL_DTYPE_COUNT] = {
#define X(E, T, N, C) C,
    FL_DTYPES(X)
#undef X
};

const fl_integer_range fl_dtype_ranges[FL_DTYPE_COUNT] = {
    [FL_BOOL] = {0, 1},
    [FL_UINT8] = {0, UINT8_MAX},
    [FL_INT8] = {INT8_MIN, INT8_MAX},
    [FL_INT32] = {INT32_MIN, INT32_MAX},
    [FL_INT64] = {INT64_MIN, INT64_MAX},
    [FL_FLOAT16] = {INT64_MIN, INT64_MAX},
    [FL_BFLOAT16] = {INT64_MIN, INT64_MAX},
    [FL_FLOAT32] = {INT64_MIN, INT64_MAX},
    [FL_FLOAT64] = {INT64_MIN, INT64_MAX},
};

fl_dtype fl_dtype_default = FL_FLOAT32;

static const char *const names[FL_DTYPE_COUNT] = {
#define X(E, T, N, C) N,
    FL_DTYPES(X)
#undef X
};

const char *fl_dtype_name(fl_dtype dtype) { return (unsigned)dtype < FL_DTYPE_COUNT ? names[dtype] : "no dtype"; }

fl_dtype fl_dtype_parse(const char *name)
{
    int d = 0;
    while (d < FL_DTYPE_COUNT && strcmp(names[d], name) != 0) d++;
    return (fl_dtype)d;
}

/* The list is in order of promotion, so the larger wins but for the two pairs of which neither holds the other:
** there is no int16, so uint8 with int8 goes to int32. */
fl_dtype fl_dtype_promote(fl_dtype a, fl_dtype b)
{
    fl_dtype low = a < b ? a : b, high = a < b ? b : a;
    if (low == FL_UINT8 && high == FL_INT8) return FL_INT32;
    if (low == FL_FLOAT16 && high == FL_BFLOAT16) return FL_FLOAT32;
    return high;
}
