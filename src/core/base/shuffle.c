/*
** shuffle.c -- permutations by a Feistel network (Luby and Rackoff 1988).
**
** The network permutes the numbers of an even number of bits, at most 4 * count of them; a result beyond count - 1 is
** put through again until it falls below (cycle walking), which leaves a permutation of 0 .. count - 1.
*/
#include "shuffle.h"
#include "hash.h"

enum { ROUNDS = 6 };

void fl_shuffle_init(fl_shuffle *shuffle, int64_t count, uint64_t seed, uint64_t epoch)
{
    shuffle->count = (uint64_t)count;
    shuffle->half_bits = 1;
    while (shuffle->half_bits < 31 && (uint64_t)1 << (2 * shuffle->half_bits) < shuffle->count) shuffle->half_bits++;
    shuffle->mask = ((uint64_t)1 << shuffle->half_bits) - 1;
    uint64_t state = fl_hash_finish(seed + FL_HASH_GOLDEN) ^ fl_hash_finish(epoch * 0xd1342543de82ef95u + 1);
    for (int i = 0; i < ROUNDS; i++) shuffle->keys[i] = fl_hash_finish(state += FL_HASH_GOLDEN);
}

static uint64_t permute(const fl_shuffle *shuffle, uint64_t x)
{
    uint64_t left = x >> shuffle->half_bits, right = x & shuffle->mask;
    for (int i = 0; i < ROUNDS; i++) {
        uint64_t next = left ^ (fl_hash_finish(right ^ shuffle->keys[i]) & shuffle->mask);
        left = right;
        right = next;
    }
    return left << shuffle->half_bits | right;
}

int64_t fl_shuffle_at(const fl_shuffle *shuffle, int64_t position)
{
    uint64_t x = permute(shuffle, (uint64_t)position);
    while (x >= shuffle->count) x = permute(shuffle, x);
    return (int64_t)x;
}
