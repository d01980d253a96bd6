/*
** spine.h -- runs of cheap elementwise steps whose running value stays in registers.
**
** Each step takes the value of the one before and at most two other operands, from memory or a number. A spine is a
** list of codes that a small machine carries out on eight vectors at a time: one load a step, no store between. Spines
** that follow each other are one list, so that the processor works on the cheap steps of one while the divisions and
** square roots of another are under way, and so that one takes what another gave from registers.
*/
#ifndef FL_SPINE_H
#define FL_SPINE_H

#include "cpu.h"

typedef enum fl_spine_code {
    FL_SPINE_END,  /* stores the value */
    FL_SPINE_NEXT, /* stores the value as `operand`, and goes on with that of `next` */
    FL_SPINE_KEEP, /* keeps the value in registers, and goes on; there is room for FL_SPINE_KEPT */
    FL_SPINE_KEEP_2,
    FL_SPINE_ADD, /* value + operand, and so on */
    FL_SPINE_SUB,
    FL_SPINE_SUB_FROM, /* operand - value */
    FL_SPINE_MUL,
    FL_SPINE_DIV,
    FL_SPINE_DIV_OF, /* operand / value */
    FL_SPINE_ADD_N,  /* the same with the first element of operand for all, in this order */
    FL_SPINE_SUB_N,
    FL_SPINE_SUB_FROM_N,
    FL_SPINE_MUL_N,
    FL_SPINE_DIV_N,
    FL_SPINE_DIV_OF_N,
    FL_SPINE_ADD_KEPT, /* the same with what was kept, in this order */
    FL_SPINE_SUB_KEPT,
    FL_SPINE_SUB_FROM_KEPT,
    FL_SPINE_MUL_KEPT,
    FL_SPINE_DIV_KEPT,
    FL_SPINE_DIV_OF_KEPT,
    FL_SPINE_ADD_KEPT_2,
    FL_SPINE_SUB_KEPT_2,
    FL_SPINE_SUB_FROM_KEPT_2,
    FL_SPINE_MUL_KEPT_2,
    FL_SPINE_DIV_KEPT_2,
    FL_SPINE_DIV_OF_KEPT_2,
    FL_SPINE_ADDCMUL,    /* value + low * operand * next */
    FL_SPINE_ADDCDIV,    /* value + low * operand / next */
    FL_SPINE_ADDCDIV_BY, /* operand + low * next / value */
    FL_SPINE_NEG,
    FL_SPINE_ABS,
    FL_SPINE_SQRT,
    FL_SPINE_SQUARE,
    FL_SPINE_RECIPROCAL,
    FL_SPINE_RELU,
    FL_SPINE_CLAMP, /* to [low, high] */
    FL_SPINE_CODES
} fl_spine_code;

enum { FL_SPINE_KEPT = 2 };

typedef struct fl_spine_op {
    uint8_t code, operand, next; /* operand, next: indices into the places */
    double low, high;
} fl_spine_op;

/* Applies the list to elements 0 <= i < n of the operands; results may overwrite operands. ops[0] is
** like FL_SPINE_NEXT, but its operand is what FL_SPINE_END stores. */
typedef void (*fl_spine_loop)(char *const *places, int64_t n, const fl_spine_op *ops);

typedef struct fl_spine_loops {
    fl_spine_loop f32, f64;
} fl_spine_loops;

FL_DECLARE_LEVELS(const fl_spine_loops, fl_spine_loops);

#endif
