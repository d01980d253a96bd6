/*
** random.h -- attributes of the random ops, shared by the kernels of the CPU and of devices; what an op draws.
*/
#ifndef FL_OP_RANDOM_H
#define FL_OP_RANDOM_H

#include "base/dtype.h"

#include <stdbool.h>
#include <stdint.h>

enum { FL_RAND_SIZE };                                     /* rand, randn */
enum { FL_RANDINT_LOW, FL_RANDINT_HIGH, FL_RANDINT_SIZE }; /* randint_like: without a size */
enum { FL_UNIFORM_LOW, FL_UNIFORM_HIGH };
enum { FL_NORMAL_MEAN, FL_NORMAL_STD };

/* dropout_apply; dropout: p and whether x is trained */
enum { FL_DROPOUT_P, FL_DROPOUT_SEED, FL_DROPOUT_COUNTER, FL_DROPOUT_TRAINING = 1 };

/* The random words of one op: word i belongs to logical element i. */
typedef struct fl_random_key {
    uint64_t seed, counter;
} fl_random_key;

typedef enum fl_draw_kind { FL_DRAW_UNIFORM, FL_DRAW_NORMAL, FL_DRAW_DROPOUT } fl_draw_kind;

/* What an op draws per element: low + range * u with u uniform in [0, 1), or normal of mean low and deviation range; or
** the operand's element times range, or 0 with the probability low. */
typedef struct fl_draw {
    fl_draw_kind kind;
    double low, range;
    fl_random_key key;
} fl_draw;

#endif
