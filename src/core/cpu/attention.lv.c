/*
** attention.lv.c -- attention over one block of queries, or backward over one head, at one CPU level.
**
** A block of scores (queries x keys) lives in L1: the serial product of the level makes it from the packed keys,
** a running maximum and sum turn it into weights, a second product adds weights times values to the result.
*/
#include "attention.h"
#include "gemm.h"
#include "simd.h"

enum { QUERIES = FL_ATTENTION_QUERIES, KEYS = FL_ATTENTION_KEYS };

/* ---- dropout ---- */

/* Words of `count` consecutive Philox4x32-10 blocks (random.h), four per block. */
static void philox_words(uint32_t *words, uint64_t seed, uint64_t counter, uint64_t block, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        uint32_t x0 = (uint32_t)(block + (uint64_t)i), x1 = (uint32_t)((block + (uint64_t)i) >> 32);
        uint32_t x2 = (uint32_t)counter, x3 = (uint32_t)(counter >> 32), k0 = (uint32_t)seed,
                 k1 = (uint32_t)(seed >> 32);
        for (int round = 0; round < 10; round++) {
            uint64_t a = (uint64_t)x0 * 0xD2511F53u, b = (uint64_t)x2 * 0xCD9E8D57u;
            x0 = (uint32_t)(b >> 32) ^ x1 ^ k0;
            x2 = (uint32_t)(a >> 32) ^ x3 ^ k1;
            x1 = (uint32_t)b;
            x3 = (uint32_t)a;
            k0 += 0x9E3779B9u;
            k1 += 0xBB67AE85u;
        }
        words[4 * i] = x0;
        words[4 * i + 1] = x1;
        words[4 * i + 2] = x2;
        words[4 * i + 3] = x3;
    }
}

/* Keys of a query block that any of its rows may see, from the start of the part. */
static int64_t visible_keys(const fl_attention *attention, int64_t first_row, int64_t rows)
{
    int64_t seen = attention->first_query + first_row + rows;
    return attention->causal && seen < attention->keys ? seen : attention->keys;
}

#define T float
#define FL_T(name) name##_f32
#define FL_V(name) vf_##name
#define VEC vf
#define WIDTH VF_W
#define EXP expf
#define LOG logf
#include "attention.inc"

#define T double
#define FL_T(name) name##_f64
#define FL_V(name) vd_##name
#define VEC vd
#define WIDTH VD_W
#define EXP exp
#define LOG log
#include "attention.inc"
