/*
** random.h -- attributes of the random ops: shared by the kernels of the CPU and of devices.
*/
#ifndef FL_OP_RANDOM_H
#define FL_OP_RANDOM_H

enum { RAND_SIZE };                               /* rand, randn */
enum { RANDINT_LOW, RANDINT_HIGH, RANDINT_SIZE }; /* randint_like: without a size */
enum { UNIFORM_LOW, UNIFORM_HIGH };
enum { NORMAL_MEAN, NORMAL_STD };

/* dropout_apply; dropout: p and whether x is trained */
enum { DROPOUT_P, DROPOUT_SEED, DROPOUT_COUNTER, DROPOUT_TRAINING = 1 };

#endif
