/*
** hash.h -- hashes of words and of bytes. They distinguish values and give no protection against attacks.
**
** Equal on all ranks of one build; the hash of bytes (FNV-1a, 64 bits) is also the same in every build.
*/
#ifndef FL_HASH_H
#define FL_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define FL_HASH_GOLDEN UINT64_C(0x9e3779b97f4a7c15) /* 2^64 divided by the golden ratio */
#define FL_HASH_START UINT64_C(0xcbf29ce484222325)  /* of fl_hash_bytes */

/* The hash with one word more. */
static inline uint64_t fl_hash_mix(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * FL_HASH_GOLDEN;
    return hash ^ (hash >> 32);
}

/* The finalizer of splitmix64 (Steele, Lea, Flood 2014), a bijection. */
static inline uint64_t fl_hash_finish(uint64_t x)
{
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

/* The hash with these bytes more, eight at a time. */
static inline uint64_t fl_hash_words(uint64_t hash, const void *data, size_t bytes)
{
    const unsigned char *at = (const unsigned char *)data;
    for (uint64_t word; bytes >= sizeof word; bytes -= sizeof word, at += sizeof word) {
        memcpy(&word, at, sizeof word);
        hash = fl_hash_mix(hash, word);
    }
    for (; bytes; bytes--) hash = fl_hash_mix(hash, *at++);
    return hash;
}

/* The hash with these bytes more, one at a time. */
static inline uint64_t fl_hash_bytes(uint64_t hash, const void *data, size_t bytes)
{
    for (const unsigned char *at = (const unsigned char *)data; bytes; bytes--)
        hash = (hash ^ *at++) * UINT64_C(0x100000001b3);
    return hash;
}

/* The first slot of a key in a table of 2^bits slots. */
static inline size_t fl_hash_slot(uint64_t key, int bits) { return (size_t)(key * FL_HASH_GOLDEN >> (64 - bits)); }

#endif
