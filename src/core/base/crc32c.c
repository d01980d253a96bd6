/*
** crc32c.c -- CRC-32C by a table, by the instruction for it on three stretches at a time, and by carry-less products.
**
** Polynomials are reflected: bit 31 of a word is x^0. The state is inverted before and after. Moving a state past n
** bytes is a product with x^(8n) modulo the polynomial; the constants below are such powers.
*/
#include "crc32c.h"

#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#define POLYNOMIAL 0x82f63b78u

/* ---- eight tables: a byte with 0 to 7 bytes behind it ---- */

static uint32_t tables[8][256];

static void make_tables(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t state = i;
        for (int bit = 0; bit < 8; bit++) state = state >> 1 ^ (POLYNOMIAL & -(state & 1));
        tables[0][i] = state;
    }
    for (int t = 1; t < 8; t++)
        for (int i = 0; i < 256; i++) tables[t][i] = tables[t - 1][i] >> 8 ^ tables[0][tables[t - 1][i] & 0xff];
}

static uint32_t by_bytes(uint32_t before, const void *data, size_t bytes)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    const unsigned char *at = data;
    uint32_t state = ~before;
    pthread_once(&once, make_tables);
    for (; bytes >= 8; at += 8, bytes -= 8) {
        uint32_t low = state ^ ((uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24);
        state = tables[7][low & 0xff] ^ tables[6][low >> 8 & 0xff] ^ tables[5][low >> 16 & 0xff] ^ tables[4][low >> 24]
            ^ tables[3][at[4]] ^ tables[2][at[5]] ^ tables[1][at[6]] ^ tables[0][at[7]];
    }
    for (; bytes; at++, bytes--) state = state >> 8 ^ tables[0][(state ^ *at) & 0xff];
    return ~state;
}

enum { TOGETHER = 4096 }; /* bytes that are copied while they are in the first cache */

/* The checksum by a function that does not copy. */
static uint32_t sum_and_copy(uint32_t (*sum)(uint32_t, const void *, size_t), uint32_t before, void *to,
                             const void *data, size_t bytes)
{
    for (size_t at = 0, size; to && at < bytes; at += size) {
        size = bytes - at < TOGETHER ? bytes - at : TOGETHER;
        before = sum(before, (const char *)data + at, size);
        memcpy((char *)to + at, (const char *)data + at, size);
    }
    return to ? before : sum(before, data, bytes);
}

static uint32_t crc_portable(uint32_t before, void *to, const void *data, size_t bytes)
{
    return sum_and_copy(by_bytes, before, to, data, bytes);
}

#if defined(__x86_64__)
#include <immintrin.h>

/* ---- the instruction, whose latency is three times its rate: three stretches at a time ---- */

enum { STRETCH = 1024 };                                /* bytes */
static const uint64_t past_one_stretch = 0x170076fa;    /* x^(8 * 1024 - 33) */
static const uint64_t past_two_stretches = 0xa51b6135u; /* x^(8 * 2048 - 33) */

static inline uint64_t word_at(const unsigned char *at)
{
    uint64_t word;
    memcpy(&word, at, sizeof word);
    return word;
}

/* The states of three stretches as that of all: the products are reduced by the instruction itself. */
__attribute__((target("sse4.2,pclmul"))) static inline uint64_t join_stretches(uint64_t a, uint64_t b, uint64_t c)
{
    __m128i x = _mm_clmulepi64_si128(_mm_cvtsi64_si128((long long)a), _mm_cvtsi64_si128((long long)past_two_stretches),
                                     0);
    __m128i y = _mm_clmulepi64_si128(_mm_cvtsi64_si128((long long)b), _mm_cvtsi64_si128((long long)past_one_stretch),
                                     0);
    return c ^ _mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(_mm_xor_si128(x, y)));
}

/* `state` is not inverted. */
__attribute__((target("sse4.2,pclmul"))) static uint32_t by_words(uint32_t state, const unsigned char *at, size_t bytes)
{
    uint64_t a = state;
    for (; bytes >= 3 * STRETCH; at += 3 * STRETCH, bytes -= 3 * STRETCH) {
        uint64_t b = 0, c = 0;
        for (size_t i = 0; i < STRETCH; i += 8) {
            a = _mm_crc32_u64(a, word_at(at + i));
            b = _mm_crc32_u64(b, word_at(at + STRETCH + i));
            c = _mm_crc32_u64(c, word_at(at + 2 * STRETCH + i));
        }
        a = join_stretches(a, b, c);
    }
    for (; bytes >= 8; at += 8, bytes -= 8) a = _mm_crc32_u64(a, word_at(at));
    for (; bytes; at++, bytes--) a = _mm_crc32_u8((uint32_t)a, *at);
    return (uint32_t)a;
}

static uint32_t sum_by_words(uint32_t before, const void *data, size_t bytes)
{
    return ~by_words(~before, data, bytes);
}

static uint32_t crc_by_words(uint32_t before, void *to, const void *data, size_t bytes)
{
    return sum_and_copy(sum_by_words, before, to, data, bytes);
}

/* ---- carry-less products: four registers of 32 bytes, each folded onto what lies 128 bytes further on ---- */

enum { FOLD = 128, AHEAD = 1024 };

#define VECTOR __attribute__((target("avx2,sse4.2,pclmul,vpclmulqdq")))

VECTOR static inline __m256i fold(__m256i x, __m256i next, __m256i powers)
{
    return _mm256_xor_si256(
        next, _mm256_xor_si256(_mm256_clmulepi64_epi128(x, powers, 0x00), _mm256_clmulepi64_epi128(x, powers, 0x11)));
}

/* The next 32 bytes, which are stored where `copy` lies behind them unless that is 0. */
VECTOR static inline __m256i load(const unsigned char *at, ptrdiff_t copy)
{
    __m256i x = _mm256_loadu_si256((const __m256i *)at);
    if (copy) _mm256_storeu_si256((__m256i *)(uintptr_t)((uintptr_t)at + (uintptr_t)copy), x);
    return x;
}

/* What is left of all whole blocks are 128 bytes with the same checksum. Compiled with and without the copy. */
VECTOR __attribute__((always_inline)) static inline uint32_t products(uint32_t before, const void *data, size_t bytes,
                                                                      ptrdiff_t copy)
{
    const __m256i powers = _mm256_set_epi64x(0x0d3b6092, 0x6992cea2, 0x0d3b6092, 0x6992cea2); /* x^992, x^1056 */
    const unsigned char *at = data;
    unsigned char rest[FOLD];
    __m256i a = _mm256_xor_si256(load(at, copy), _mm256_set_epi32(0, 0, 0, 0, 0, 0, 0, (int)~before));
    __m256i b = load(at + 32, copy), c = load(at + 64, copy), d = load(at + 96, copy);
    for (at += FOLD, bytes -= FOLD; bytes >= FOLD; at += FOLD, bytes -= FOLD) {
        __builtin_prefetch(at + AHEAD); /* the CPU's own stops at the end of a page */
        __builtin_prefetch(at + AHEAD + 64);
        a = fold(a, load(at, copy), powers);
        b = fold(b, load(at + 32, copy), powers);
        c = fold(c, load(at + 64, copy), powers);
        d = fold(d, load(at + 96, copy), powers);
    }
    _mm256_storeu_si256((__m256i *)rest, a);
    _mm256_storeu_si256((__m256i *)(rest + 32), b);
    _mm256_storeu_si256((__m256i *)(rest + 64), c);
    _mm256_storeu_si256((__m256i *)(rest + 96), d);
    if (copy) memcpy((void *)((uintptr_t)at + (uintptr_t)copy), at, bytes);
    return ~by_words(by_words(0, rest, FOLD), at, bytes);
}

VECTOR static uint32_t crc_by_products(uint32_t before, void *to, const void *data, size_t bytes)
{
    if (bytes < 2 * FOLD) return crc_by_words(before, to, data, bytes);
    if (!to) return products(before, data, bytes, 0);
    return products(before, data, bytes, (ptrdiff_t)((uintptr_t)to - (uintptr_t)data));
}

fl_crc32c_method *fl_crc32c_methods(int method)
{
    bool words = __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul");
    bool products = words && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("vpclmulqdq");
    if (method == 0) return crc_portable;
    if (method == 1 && words) return crc_by_words;
    return method == 2 && products ? crc_by_products : NULL;
}
#else
fl_crc32c_method *fl_crc32c_methods(int method) { return method == 0 ? crc_portable : NULL; }
#endif

static fl_crc32c_method *best; /* atomic; threads that ask at the same time find the same */

uint32_t fl_crc32c_copy(uint32_t before, void *to, const void *data, size_t bytes)
{
    fl_crc32c_method *method = __atomic_load_n(&best, __ATOMIC_RELAXED);
    if (!method) {
        for (int i = 0; fl_crc32c_methods(i); i++) method = fl_crc32c_methods(i);
        __atomic_store_n(&best, method, __ATOMIC_RELAXED);
    }
    return method(before, to, data, bytes);
}

uint32_t fl_crc32c(uint32_t before, const void *data, size_t bytes)
{
    return fl_crc32c_copy(before, NULL, data, bytes);
}
