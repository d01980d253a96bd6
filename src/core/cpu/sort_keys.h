/*
** sort_keys.h -- elements of a row as keys (sort_key.h), for any dtype.
**
** Included by .lv.c files only. With a constant dtype, loops over elements have no branch.
*/
#ifndef FL_SORT_KEYS_H
#define FL_SORT_KEYS_H

#include "base/dtype.h"
#include "base/sort_key.h"

static inline __attribute__((always_inline)) uint64_t fl_key_of(const char *row, int64_t i, fl_dtype dtype)
{
    switch (dtype) {
    case FL_BOOL:
    case FL_UINT8: return ((const uint8_t *)row)[i];
    case FL_INT8: return fl_sort_key_signed(((const int8_t *)row)[i], 8);
    case FL_INT32: return fl_sort_key_signed(((const int32_t *)row)[i], 32);
    case FL_INT64: return fl_sort_key_signed(((const int64_t *)row)[i], 64);
    case FL_FLOAT16: return fl_sort_key_float(((const uint16_t *)row)[i], 16, FL_SORT_INFINITY_FLOAT16);
    case FL_BFLOAT16: return fl_sort_key_float(((const uint16_t *)row)[i], 16, FL_SORT_INFINITY_BFLOAT16);
    case FL_FLOAT32: return fl_sort_key_float(((const uint32_t *)row)[i], 32, FL_SORT_INFINITY_FLOAT32);
    default: return fl_sort_key_float(((const uint64_t *)row)[i], 64, FL_SORT_INFINITY_FLOAT64);
    }
}

#endif
