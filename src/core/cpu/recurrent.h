/*
** recurrent.h -- whole sequences of LSTM, GRU and RNN layers: the products with the state and the cells' arithmetic.
*/
#ifndef FL_RECURRENT_H
#define FL_RECURRENT_H

#include "cpu.h"
#include "op/recurrent.h"

/* All arrays are contiguous and of the kernels' type; op/recurrent.h describes their contents, NULL: absent. */
typedef struct fl_recurrent {
    fl_recurrent_kind kind;
    bool reverse; /* steps are taken from the last one on */
    int64_t steps, batch, width;
    const int64_t *lengths;
    const void *weight, *packed; /* packed: the weight in panels, set by recurrent.c */
    const void *x, *bias, *h0, *c0;
    void *y, *cells, *gates; /* gates: NULL if they are not needed */
    /* backward; y_in, cells_in and gates_in are forward's results, first is c0 or h0 */
    const void *dy, *dcells, *dgates, *y_in, *cells_in, *gates_in, *first;
    void *dx, *dh0, *more;
} fl_recurrent;

/* Rows of the batch, and panels of hidden units. */
typedef struct fl_recurrent_part {
    int64_t row, row_to, panel, panel_to;
} fl_recurrent_part;

/* Of one level and type; serial. All but `pack` take the step that is `count` steps from the first one; a step needs
** all panels of its rows from the step before. Backward begins with the last step, and with zeros in dh0 and dc0: a
** step is `slopes`, dx from them, then `through_weight`, from dx what they become. */
typedef struct fl_recurrent_kernels {
    void (*pack)(void *packed, const fl_recurrent *r, bool backward);
    void (*forward)(const fl_recurrent *r, int64_t count, fl_recurrent_part part);
    void (*slopes)(const fl_recurrent *r, int64_t count, int64_t row, int64_t row_to);
    void (*through_weight)(const fl_recurrent *r, int64_t count, fl_recurrent_part part);
} fl_recurrent_kernels;

FL_DECLARE_LEVELS(const fl_recurrent_kernels, fl_recurrent_kernels_f32);
FL_DECLARE_LEVELS(const fl_recurrent_kernels, fl_recurrent_kernels_f64);

enum { FL_RECURRENT_UNITS = 32 }; /* hidden units of a panel */

static inline int64_t fl_recurrent_panels(const fl_recurrent *recurrent)
{
    return (recurrent->width + FL_RECURRENT_UNITS - 1) / FL_RECURRENT_UNITS;
}

/* Elements of the packed weight. */
static inline int64_t fl_recurrent_packed_size(const fl_recurrent *recurrent)
{
    return fl_recurrent_panels(recurrent) * FL_RECURRENT_UNITS * fl_recurrent_gates(recurrent->kind) * recurrent->width;
}

/* With the team; sets r->packed. dtype float32 or float64. name: for messages.
** FL_ERR_MEMORY. */
fl_status fl_cpu_recurrent(fl_dtype dtype, fl_recurrent *recurrent, bool backward, const char *name);

#endif
