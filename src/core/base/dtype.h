/*
** dtype.h -- the nine element types, their names, sizes and promotion.
**
** FL_DTYPES is the one list; enum, names, sizes and typed tables are made from it.
** float16 and bfloat16 are storage types: kernels load them to float and store them back.
*/
#ifndef FL_DTYPE_H
#define FL_DTYPE_H

#include "status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef uint16_t fl_float16;
typedef uint16_t fl_bfloat16;

/* X(ENUM, C type, name, category: 0 bool, 1 integer, 2 float) in order of promotion */
#define FL_DTYPES(X)                        \
    X(BOOL, uint8_t, "bool", 0)             \
    X(UINT8, uint8_t, "uint8", 1)           \
    X(INT8, int8_t, "int8", 1)              \
    X(INT32, int32_t, "int32", 1)           \
    X(INT64, int64_t, "int64", 1)           \
    X(FLOAT16, fl_float16, "float16", 2)    \
    X(BFLOAT16, fl_bfloat16, "bfloat16", 2) \
    X(FLOAT32, float, "float32", 2)         \
    X(FLOAT64, double, "float64", 2)

typedef enum fl_dtype {
#define X(E, T, N, C) FL_##E,
    FL_DTYPES(X)
#undef X
        FL_DTYPE_COUNT
} fl_dtype;

FL_EXPORT extern const uint8_t fl_dtype_sizes[FL_DTYPE_COUNT];
FL_EXPORT extern const uint8_t fl_dtype_categories[FL_DTYPE_COUNT];

/* The integers that a dtype holds; of floats: those of int64, from which they are made. */
typedef struct fl_integer_range {
    int64_t lowest, highest;
} fl_integer_range;
FL_EXPORT extern const fl_integer_range fl_dtype_ranges[FL_DTYPE_COUNT];

static inline size_t fl_dtype_size(fl_dtype dtype) { return fl_dtype_sizes[dtype]; }
static inline bool fl_dtype_is_float(fl_dtype dtype) { return fl_dtype_categories[dtype] == 2; }
static inline bool fl_dtype_is_integer(fl_dtype dtype) { return fl_dtype_categories[dtype] == 1; }

const char *fl_dtype_name(fl_dtype dtype);

/* FL_DTYPE_COUNT when there is no such name. */
fl_dtype fl_dtype_parse(const char *name);

/* The dtype both convert to, as in PyTorch (uint8 with int8 gives int32). */
fl_dtype fl_dtype_promote(fl_dtype a, fl_dtype b);

/* That of floats where nothing says which: float32, or what flow.set_default_dtype says. Plans depend on it
** (fl_infer_set_default_dtype); a kernel, which may run later, reads its views instead. */
FL_EXPORT extern fl_dtype fl_dtype_default;

/* The dtype float functions give: itself if it is a float, else the default. */
static inline fl_dtype fl_dtype_to_float(fl_dtype dtype) { return fl_dtype_is_float(dtype) ? dtype : fl_dtype_default; }

/* The type kernels compute in: float16 and bfloat16 go through float32. */
static inline fl_dtype fl_dtype_compute(fl_dtype dtype)
{
    return dtype == FL_FLOAT16 || dtype == FL_BFLOAT16 ? FL_FLOAT32 : dtype;
}

static inline float fl_bfloat16_to_float(fl_bfloat16 value)
{
    uint32_t bits = (uint32_t)value << 16;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

/* Round to nearest, ties to even; NaN stays NaN. */
static inline fl_bfloat16 fl_bfloat16_from_float(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint32_t nan = value != value ? 0xffffffffu : 0; /* a mask: gcc narrows a choice to 16 bits before it is made */
    uint32_t rounded = bits + 0x7fffu + ((bits >> 16) & 1u), quiet = bits | 0x400000u;
    return (fl_bfloat16)(((quiet & nan) | (rounded & ~nan)) >> 16);
}

static inline float fl_float16_to_float(fl_float16 value)
{
    /* Shift exponent and mantissa into place, then rescale: exact for subnormals too. */
    uint32_t sign = (uint32_t)(value & 0x8000u) << 16, rest = (uint32_t)(value & 0x7fffu) << 13;
    float f, scale;
    uint32_t scale_bits = 0x77800000u; /* 2^112 */
    memcpy(&f, &rest, sizeof f);
    memcpy(&scale, &scale_bits, sizeof scale);
    f *= scale;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    if ((value & 0x7c00u) == 0x7c00u) bits = 0x7f800000u | rest;
    bits |= sign;
    memcpy(&f, &bits, sizeof f);
    return f;
}

/* Round to nearest, ties to even; overflow gives infinity, NaN stays NaN. */
static inline fl_float16 fl_float16_from_float(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint32_t sign = (bits >> 16) & 0x8000u, magnitude = bits & 0x7fffffffu, half;
    if (magnitude > 0x7f800000u) half = 0x7e00u;
    else if (magnitude >= 0x477ff000u) half = 0x7c00u;
    else if (magnitude < 0x38800000u) { /* subnormal: add 0.5 so that the unit in the last place is 2^-24 */ float sum;
        memcpy(&sum, &magnitude, sizeof sum);
        sum += 0.5f;
        uint32_t shifted;
        memcpy(&shifted, &sum, sizeof shifted);
        half = shifted - 0x3f000000u;
    } else half = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
    return (fl_float16)(sign | half);
}

#endif
