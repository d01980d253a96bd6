/*
** elementwise.h -- rows of op/elementwise.def on the CPU: one loop per row and compute type.
**
** Loops of float16 and bfloat16 compute in float and round. Above the base level a row has them where it is cheap and
** takes no look at several elements; otherwise the driver converts to float and back, with the same bits.
*/
#ifndef FL_ELEMENTWISE_H
#define FL_ELEMENTWISE_H

#include "cpu.h"

typedef enum fl_ew_id {
    FL_EW_NONE, /* op->row of ops that are no rows */
#define EW(id, ...) FL_EW_##id,
#include "op/elementwise.def"
#undef EW
    FL_EW_COUNT
} fl_ew_id;

/* In which dtype a row computes, and what it gives. `promoted` is that of its operands. */
typedef enum fl_ew_rule {
    FL_EW_SAME,    /* promoted -> promoted */
    FL_EW_FLOAT,   /* promoted, integers as float32 -> the same */
    FL_EW_COMPARE, /* promoted -> bool */
    FL_EW_LOGIC,   /* bool -> bool */
    FL_EW_FILL     /* that of operand 0 -> the same */
} fl_ew_rule;

static inline bool fl_ew_is_predicate(fl_ew_rule rule) { return rule == FL_EW_COMPARE || rule == FL_EW_LOGIC; }

enum { FL_EW_MAX_IN = 3, FL_EW_ATTRS = 2 };

typedef struct fl_ew_row {
    fl_ew_rule rule;
    uint8_t categories; /* bit fl_dtype_categories[d]: it has loops for d */
    int8_t mask;        /* the operand that is bool whatever the others are, or -1 */
    float cost_ns;      /* of one float element */
} fl_ew_row;

FL_EXPORT extern const fl_ew_row fl_ew_rows[FL_EW_COUNT];

/* The dtype a call computes in. */
FL_EXPORT fl_dtype fl_ew_compute_dtype(const fl_kernel *kernel, fl_dtype result);

/* The errors that a loop reports: bits. */
enum { FL_EW_DIVISION_BY_ZERO = 1, FL_EW_NEGATIVE_POWER = 2 };

static inline const char *fl_ew_complaint(int bad)
{
    if (bad & FL_EW_DIVISION_BY_ZERO) return "division by zero";
    return "integers to negative integer powers are not allowed; write x:to(\"float32\") first";
}

/* A scalar attribute as float and as integer rows take it. */
typedef struct fl_ew_attr {
    double number;
    int64_t integer; /* the nearest int64 */
} fl_ew_attr;

/* True if a loop over these elements can report an error. */
FL_EXPORT bool fl_ew_may_fail(int row, fl_dtype compute);

/* The number that scalar attribute i stands for: where it is not given, an infinite bound. */
double fl_ew_number(const fl_attr *attr, int i);

/* The scalar attributes of a call, FL_EW_ATTRS of them; an absent bound is infinite. */
FL_EXPORT void fl_ew_attributes(fl_ew_attr *attr, const fl_kernel *kernel);

/* out[i] = row(in[0][i], ...), 0 <= i < n; out may be one of the inputs. a: FL_EW_ATTRS scalar attributes;
** NULL: the row has none. */
typedef int (*fl_ew_loop)(void *out, const void *const *in, int64_t n, const fl_ew_attr *a);

typedef fl_ew_loop fl_ew_table[FL_EW_COUNT][FL_DTYPE_COUNT];
FL_DECLARE_LEVELS(const fl_ew_table, fl_ew_loops);

/* Kernel of every row. */
fl_status fl_cpu_elementwise(fl_kernel *kernel);

/* The bare loop of a row, where operands and result have one float dtype: float loops report no errors. */
fl_flat_fn fl_cpu_elementwise_flat(int row, fl_dtype dtype);

/* A number as n elements. dtype: float32 or float64. Beside at most FL_EW_REPEATS elements it is repeated for such a
** loop. */
enum { FL_EW_REPEATS = 64 };
void fl_cpu_repeat_number(void *buffer, double number, fl_dtype dtype, int64_t n);

#endif
