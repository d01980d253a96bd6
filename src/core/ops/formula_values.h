/*
** formula_values.h -- what the two ways to carry out a formula share: its nodes while they are computed.
*/
#ifndef FL_FORMULA_VALUES_H
#define FL_FORMULA_VALUES_H

#include "cpu/elementwise.h"
#include "op/formula.h"

typedef struct fl_formula_value {
    int slot; /* of tiles; -1: none yet */
    bool is_number;
    double number;
} fl_formula_value;

/* The attributes of a row, FL_FORMULA_ATTRS of them. */
void fl_formula_attributes(fl_ew_attr *attrs, const fl_formula_node *node, const fl_formula_value *values);

/* The operand whose value the row has, bit by bit: of x * 1 and x / 1 x; -1: there is none. */
int fl_formula_same(const fl_formula_node *node, const fl_formula_value *values);

/* True if all operands of the row are numbers; the row on them, by its own loop. */
bool fl_formula_all_numbers(const fl_formula_node *node, const fl_formula_value *values);
double fl_formula_number(const fl_formula_node *node, const fl_formula_value *values);

/* formula_small.c: computes few elements that lie side by side. False: it did not, they are others. */
bool fl_formula_run_small(fl_kernel *kernel);

#endif
