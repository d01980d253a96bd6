/*
** item_random.h -- random numbers of one item of a dataset.
**
** They depend on the seed, the epoch, the item's position and the stream (which of the functions draws), and on
** nothing else: not on workers or ranks, nor on what was drawn for other items. xoshiro256**, filled by splitmix64
** (Blackman and Vigna, https://prng.di.unimi.it).
*/
#ifndef FL_ITEM_RANDOM_H
#define FL_ITEM_RANDOM_H

#include "hash.h"

typedef struct fl_item_random {
    uint64_t state[4];
} fl_item_random;

static inline void fl_item_random_begin(fl_item_random *random, uint64_t seed, uint64_t epoch, uint64_t position,
                                        uint64_t stream)
{
    const uint64_t words[] = {seed, epoch, position, stream};
    uint64_t x = 0;
    for (int i = 0; i < 4; i++) x = fl_hash_finish((x ^ words[i]) + FL_HASH_GOLDEN);
    for (int i = 0; i < 4; i++) random->state[i] = fl_hash_finish(x += FL_HASH_GOLDEN);
}

static inline uint64_t fl_item_random_word(fl_item_random *random)
{
    uint64_t *s = random->state, x = s[1] * 5, result = (x << 7 | x >> 57) * 9, t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = s[3] << 45 | s[3] >> 19;
    return result;
}

/* In [0, 1). */
static inline double fl_item_random_uniform(fl_item_random *random)
{
    return (double)(fl_item_random_word(random) >> 11) * 0x1p-53;
}

/* From 0 to `most`, all equally likely. */
static inline uint64_t fl_item_random_upto(fl_item_random *random, uint64_t most)
{
    uint64_t mask = most ? UINT64_MAX >> __builtin_clzll(most) : 0, word;
    do word = fl_item_random_word(random) & mask;
    while (word > most);
    return word;
}

#endif
