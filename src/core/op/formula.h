/*
** formula.h -- an elementwise op of a script as a list of rows of elementwise.def, run as one kernel.
*/
#ifndef FL_FORMULA_H
#define FL_FORMULA_H

#include "op.h"

enum { FL_FORMULA_NODES = 64, FL_FORMULA_ROWS = 40, FL_FORMULA_IN = 3, FL_FORMULA_ATTRS = 2, FL_FORMULA_KEPT = 2 };

typedef enum fl_formula_kind {
    FL_FORMULA_OPERAND, /* `index` of the call */
    FL_FORMULA_ATTR,    /* attribute `index` of the call */
    FL_FORMULA_NUMBER,
    FL_FORMULA_ROW /* of nodes before it */
} fl_formula_kind;

typedef struct fl_formula_node {
    fl_formula_kind kind;
    int index;       /* of a row: its fl_ew_id */
    const fl_op *op; /* of a row */
    double number;
    bool is_integer; /* of a number: written as one */
    int nin;
    int in[FL_FORMULA_IN];
    int attrs[FL_FORMULA_ATTRS];     /* of a row: nodes that are numbers, -1: */
    double absent[FL_FORMULA_ATTRS]; /* fl_formula_absent */
    int8_t block;                    /* settled: where the value of few elements lies */
} fl_formula_node;

/* The gradient of an operand: a formula of the gradient of the result, of operands and attributes. */
typedef struct fl_formula_gradient {
    const fl_op *op; /* NULL: it is that of the result, or there is none */
    bool is_given;   /* it is that of the result */
    int nin, nattrs;
    int in[FL_MAX_PARAMS]; /* of op: the operand; -1: the gradient of the result; -2 - i: result i of `saving` */
    int attrs[FL_MAX_ATTRS];
} fl_formula_gradient;

/* The result is the last node. Of floats it computes in the float dtype that they are promoted to; where a row gives
** integers, computes with conditions alone, or the result is a condition, its rows are dispatched, so the dtype is
** theirs. */
typedef struct fl_formula {
    int count;
    fl_formula_gradient *gradients; /* owned; one for each operand; NULL: the host computes them */
    fl_op *saving; /* owned; the same op with the values of `kept` as further results, recorded in its place where all
                   ** operands are alike: gradients need not compute them again; NULL: there is none */
    fl_formula_gradient *from_saved;       /* owned; the gradients of `saving` where they are not recorded */
    int kept_count, kept[FL_FORMULA_KEPT]; /* nodes */
    bool as_ops;             /* its rows may be dispatched as they are: conditions are results of comparisons */
    bool joins_tests;        /* settled: a row computes with results of comparisons alone, as x > 0 + y > 0 */
    bool is_small;           /* settled: few elements are computed row by row */
    bool linear;             /* in operand 0, whose partial sums therefore give partial sums */
    fl_formula_node nodes[]; /* FL_FORMULA_NODES at most */
} fl_formula;

/* Hooks of a descriptor with a formula. */
fl_status fl_formula_infer(fl_infer *infer);
void fl_formula_sbp(fl_sigs *sigs);
fl_status fl_formula_kernel(fl_kernel *kernel);
/* By `gradients`. */
fl_status fl_formula_grad(fl_grad *g);
fl_status fl_formula_on_device(fl_kernel *kernel);
/* op->compute: row by row. */
fl_status fl_formula_compute(const fl_op *op, fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs);

/* Fills in what is settled of a formula whose nodes are there. */
void fl_formula_settle(fl_formula *formula);

/* The row of that name that formulas may use: one with loops for floats or of conditions; NULL: there is none. */
const fl_op *fl_formula_row(const char *name);

/* Nanoseconds of a row per element, roughly. */
double fl_formula_cost(const fl_op *row);

/* The value of attribute i of a row when it is left out. */
double fl_formula_absent(const fl_op *row, int i);

#endif
