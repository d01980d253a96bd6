/*
** shuffle.h -- an order of n things, one position at a time.
**
** A permutation that is computed and not stored: an epoch over 10^9 pieces of text costs no memory and can be taken up
** anywhere. It depends on the seed and the epoch alone.
*/
#ifndef FL_BASE_SHUFFLE_H
#define FL_BASE_SHUFFLE_H

#include <stdint.h>

typedef struct fl_shuffle {
    uint64_t count, mask; /* mask: of one half of a position's bits */
    int half_bits;
    uint64_t keys[6];
} fl_shuffle;

void fl_shuffle_init(fl_shuffle *shuffle, int64_t count, uint64_t seed, uint64_t epoch);

/* The element at `position`, 0 <= position < count. */
int64_t fl_shuffle_at(const fl_shuffle *shuffle, int64_t position);

#endif
