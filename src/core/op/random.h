/*
** random.h -- attributes of the random ops, shared by the kernels of the CPU and of devices.
*/
#ifndef FL_OP_RANDOM_H
#define FL_OP_RANDOM_H

enum { FL_RAND_SIZE };                                     /* rand, randn */
enum { FL_RANDINT_LOW, FL_RANDINT_HIGH, FL_RANDINT_SIZE }; /* randint_like: without a size */
enum { FL_UNIFORM_LOW, FL_UNIFORM_HIGH };
enum { FL_NORMAL_MEAN, FL_NORMAL_STD };

/* dropout_apply; dropout: p and whether x is trained */
enum { FL_DROPOUT_P, FL_DROPOUT_SEED, FL_DROPOUT_COUNTER, FL_DROPOUT_TRAINING = 1 };

#endif
