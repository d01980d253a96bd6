/*
** shuffle.c -- permutations by a Feistel network (Luby and Rackoff 1988).
**
** The network permutes the numbers of an even number of bits, at most 4 * count of them; a result beyond count - 1 is
** put through again until it falls below (cycle walking), which leaves a permutation of 0 .. count - 1.
*/
#include "shuffle.h"

enum { ROUNDS = 6 };

/* The finalizer of splitmix64 (Steele, Lea, Flood 2014). */
static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

void fl_shuffle_init(fl_shuffle *s, int64_t count, uint64_t seed, uint64_t epoch)
{
    s->count = (uint64_t)count;
    s->half_bits = 1;
    while (s->half_bits < 31 && (uint64_t)1 << (2 * s->half_bits) < s->count) s->half_bits++;
    s->mask = ((uint64_t)1 << s->half_bits) - 1;
    uint64_t state = mix(seed + 0x9e3779b97f4a7c15u) ^ mix(epoch * 0xd1342543de82ef95u + 1);
    for (int i = 0; i < ROUNDS; i++) s->keys[i] = mix(state += 0x9e3779b97f4a7c15u);
}

static uint64_t permute(const fl_shuffle *s, uint64_t x)
{
    uint64_t left = x >> s->half_bits, right = x & s->mask;
    for (int i = 0; i < ROUNDS; i++) {
        uint64_t next = left ^ (mix(right ^ s->keys[i]) & s->mask);
        left = right;
        right = next;
    }
    return left << s->half_bits | right;
}

int64_t fl_shuffle_at(const fl_shuffle *s, int64_t position)
{
    uint64_t x = permute(s, (uint64_t)position);
    while (x >= s->count) x = permute(s, x);
    return (int64_t)x;
}
