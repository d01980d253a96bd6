/*
** quantized.h -- products with a matrix of 8 or 4 bits per number, whose rows have a scale for every group of columns.
**
** 8 bits: int8 [rows, columns]. 4 bits: [rows, columns / 2] bytes; of the byte i of a group the low half is column i
** and the high half column i + group / 2, both less 8.
*/
#ifndef FL_CPU_QUANTIZED_H
#define FL_CPU_QUANTIZED_H

#include "cpu.h"

/* The loops of one CPU level over a row of `columns` numbers, float32. */
typedef struct fl_quantized_table {
    float (*dot)(const float *x, const float *y, int64_t n);
    float (*dot_int8)(const float *x, const int8_t *row, const float *scales, int64_t columns, int64_t group);
    /* of 8 bits, of 4 */
    void (*unpack[2])(float *out, const void *row, const float *scales, int64_t columns, int64_t group);
} fl_quantized_table;

FL_DECLARE_LEVELS(const fl_quantized_table, fl_quantized_table);

typedef struct fl_quantized {
    int64_t rows, columns, group; /* of the matrix */
    bool is_int4;
    const void *matrix;
    const float *scales; /* [rows, columns / group] */
} fl_quantized;

/* y [count, rows] = x [count, columns] times the transposed matrix, plus bias [rows] or NULL. */
fl_status fl_cpu_quantized(float *y, const float *x, const float *bias, int64_t count, const fl_quantized *matrix);

#endif
