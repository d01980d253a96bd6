/*
** bpe_merges.h -- the table of merges, for bpe.c and bpe_encode.c: open addressing by pairs of tokens.
*/
#ifndef FL_BPE_MERGES_H
#define FL_BPE_MERGES_H

#include "base/hash.h"
#include "bpe.h"

#define NO_PAIR UINT64_MAX

static inline uint64_t merge_pair(int32_t left, int32_t right)
{
    return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

/* The slot of a pair, or the free one where it belongs. */
static inline struct fl_merge *merge_slot(const fl_bpe *bpe, uint64_t pair)
{
    size_t mask = ((size_t)1 << bpe->merge_bits) - 1, slot = fl_hash_slot(pair ^ pair >> 32, bpe->merge_bits);
    while (bpe->merges[slot].pair != pair && bpe->merges[slot].pair != NO_PAIR) slot = (slot + 1) & mask;
    return &bpe->merges[slot];
}

#endif
