/*
** draw.h -- what an elementwise random op draws: said by its hook (op->draw), made by kernels and by steps of chains.
*/
#ifndef FL_DRAW_H
#define FL_DRAW_H

#include <stdint.h>

/* The random words of one op: word i belongs to logical element i. */
typedef struct fl_random_key {
    uint64_t seed, counter;
} fl_random_key;

typedef enum fl_draw_kind { FL_DRAW_UNIFORM, FL_DRAW_NORMAL, FL_DRAW_DROPOUT } fl_draw_kind;

/* The distribution of an op's elements: low + range * u with u uniform in [0, 1), or normal of mean low and deviation
** range; or the operand's element times range, or 0 with the probability low. */
typedef struct fl_draw {
    fl_draw_kind kind;
    double low, range;
    fl_random_key key;
} fl_draw;

#endif
