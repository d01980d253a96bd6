/*
** indices.h -- integer operands that name positions: labels, rows, elements.
*/
#ifndef FL_INDICES_H
#define FL_INDICES_H

#include "cpu.h"

/* The values as a row-major int64 array: the operand itself, or a copy in fl_scratch(FL_STAGE_SCRATCH). */
fl_status fl_indices_open(const int64_t **out, const fl_kernel *kernel, int operand);

/* The same of any view, where a copy is needed in that slot of fl_scratch; who: for the message. */
fl_status fl_indices_array(const int64_t **out, const fl_view *view, const char *who, int slot);

/* The range of a value: 0 to limit - 1, or `skip` when has_skip. The words are for the message:
** "cross_entropy: target[17] is 65, but input has 65 classes (0 to 64)". */
typedef struct fl_index_rule {
    const char *who, *param, *owner, *noun;
    int64_t limit, skip;
    bool has_skip;
} fl_index_rule;
fl_status fl_indices_check(const int64_t *values, const fl_view *view, const fl_index_rule *rule);

/* Negative positions of an axis of that size count from its end; others out of range are errors. In place. */
fl_status fl_indices_wrap(int64_t *values, int64_t n, int64_t size);

/* The number of true elements among n. */
int64_t fl_mask_count(const uint8_t *mask, int64_t n);

/* The positions of the `count` true elements, in memory order: numbers, or (columns) rows of one number per axis. */
void fl_mask_positions(int64_t *to, const uint8_t *mask, const fl_shape *shape, int64_t count, bool columns);

#endif
