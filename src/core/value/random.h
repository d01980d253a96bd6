/*
** random.h -- Philox4x32-10, keyed by (seed, op counter, logical element index).
**
** Element i of the op with counter c is word i % 4 of the block with counter words
** (i / 4 low, i / 4 high, c low, c high) and key (seed low, seed high), so values do not depend on placement, SBP,
** rank count, device or threads. Words equal Random123's philox4x32.
** uniform = (word >> 8) * 2^-24, in [0, 1).
*/
#ifndef FL_RANDOM_H
#define FL_RANDOM_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct fl_generator {
    uint64_t seed, counter;
} fl_generator;

/* The generator ops draw from now; never NULL. */
fl_generator *fl_generator_current(void);
/* Replaces the current one (evaluation, samplers); NULL: the default one. Returns the old. */
fl_generator *fl_generator_use(fl_generator *generator);
void fl_manual_seed(uint64_t seed); /* fl_random_agree, counter 0 */

/* The generator of an op: the current one, which counts the op. agreed: every rank of the world draws now, and
** fl_random_drawn covers it. */
fl_generator fl_random_draw(bool agreed);
/* A log of draws: while one is on, the draws of a function are added to it, and when that function runs again it draws
** the same, whatever generators it draws from; these are left unchanged, as by functions that set them. */
typedef struct fl_draws {
    fl_generator *list; /* owned */
    int64_t count, capacity;
    int64_t next;           /* while it is replayed: the next to be drawn */
    bool replays;           /* the function runs again */
    bool failed;            /* out of memory for the list; replayed: more was drawn than it holds */
    struct fl_draws *outer; /* that was on before */
} fl_draws;
void fl_draws_begin(fl_draws *draws, bool replays);
void fl_draws_end(fl_draws *draws);

/* The state of a generator becomes `state`. */
void fl_generator_set(fl_generator *generator, fl_generator state);

/* All draws for global tensors in one number: equal on ranks that drew the same since they agreed. */
uint64_t fl_random_drawn(void);
/* The current generator goes on from g, and nothing has been drawn before. All ranks call it. */
void fl_random_agree(fl_generator generator);

#endif
