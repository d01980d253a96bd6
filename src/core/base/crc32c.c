/*
** crc32c.c -- CRC-32C by a table, by the instruction for it on three stretches at a time, and by carry-less products.
**
** Polynomials are reflected: bit 31 of a word is x^0. The state is inverted before and after. Moving a state past n
** bytes is a product with x^(8n) modulo the polynomial; the constants below are such powers.
*/
#include "crc32c.h"
#include "ahead.h"

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

/* ---- with a copy ---- */

enum {
    TOGETHER = 4096, /* bytes that are copied while they are in the first cache */
    NEAR = 256,      /* distance of the prefetch in bytes: the CPU's own prefetch ends with the page */
};

/* The checksum by a function that does not copy. */
static uint32_t sum_and_copy(uint32_t (*sum)(uint32_t, const void *, size_t), uint32_t before, void *to,
                             const void *data, size_t bytes, const void *next)
{
    for (size_t at = 0, size; at < bytes; at += size) {
        size = bytes - at < TOGETHER ? bytes - at : TOGETHER;
        if (next && at + size == bytes) fl_ahead_ask(next, size);
        before = sum(before, (const char *)data + at, size);
        if (to) memcpy((char *)to + at, (const char *)data + at, size);
    }
    return before;
}

static uint32_t crc_portable(uint32_t before, void *to, const void *data, size_t bytes, const void *next)
{
    return sum_and_copy(by_bytes, before, to, data, bytes, next);
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

static uint32_t crc_by_words(uint32_t before, void *to, const void *data, size_t bytes, const void *next)
{
    return sum_and_copy(sum_by_words, before, to, data, bytes, next);
}

/* ---- carry-less products: four vectors, each moved onto the data as many vectors further on ---- */

#define TARGET __attribute__((target("avx2,sse4.2,pclmul,vpclmulqdq")))
#define WIDTH 32
#define VECTOR __m256i
#define W(name) name##_32
#define LOAD(at) _mm256_loadu_si256((const __m256i *)(at))
#define STORE(at, x) _mm256_storeu_si256((__m256i *)(at), x)
#define XOR(x, y) _mm256_xor_si256(x, y)
#define FIRST(state) _mm256_set_epi64x(0, 0, 0, state)
#define POWERS(far, near) _mm256_set_epi64x(near, far, near, far)
#define MOVED(x, next, powers) \
    XOR(next, XOR(_mm256_clmulepi64_epi128(x, powers, 0x00), _mm256_clmulepi64_epi128(x, powers, 0x11)))
#define FAR_4 0x6992cea2u
#define NEAR_4 0x0d3b6092u
#define FAR_1 0x3da6d0cbu
#define NEAR_1 0xba4fc28eu
#include "crc32c.inc"

#define TARGET __attribute__((target("avx512f,sse4.2,pclmul,vpclmulqdq")))
#define WIDTH 64
#define VECTOR __m512i
#define W(name) name##_64
#define LOAD(at) _mm512_loadu_si512(at)
#define STORE(at, x) _mm512_storeu_si512(at, x)
#define XOR(x, y) _mm512_xor_si512(x, y)
#define FIRST(state) _mm512_set_epi64(0, 0, 0, 0, 0, 0, 0, state)
#define POWERS(far, near) _mm512_set_epi64(near, far, near, far, near, far, near, far)
#define MOVED(x, next, powers)                                                 \
    _mm512_ternarylogic_epi64(next, _mm512_clmulepi64_epi128(x, powers, 0x00), \
                              _mm512_clmulepi64_epi128(x, powers, 0x11), 0x96) /* all three xored */
#define FAR_4 0xdcb17aa4u
#define NEAR_4 0xb9e02b86u
#define FAR_1 0x740eef02u
#define NEAR_1 0x9e4addf8u
#include "crc32c.inc"

fl_crc32c_method *fl_crc32c_methods(int method)
{
    bool words = __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul");
    bool products = words && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("vpclmulqdq");
    bool known[] = {true, words, products, products && __builtin_cpu_supports("avx512f")};
    fl_crc32c_method *const methods[] = {crc_portable, crc_by_words, crc_32, crc_64};
    return method < 4 && known[method] ? methods[method] : NULL;
}
#else
fl_crc32c_method *fl_crc32c_methods(int method) { return method == 0 ? crc_portable : NULL; }
#endif

static fl_crc32c_method *best; /* atomic; threads that ask at the same time find the same */

uint32_t fl_crc32c_copy(uint32_t before, void *to, const void *data, size_t bytes, const void *next)
{
    fl_crc32c_method *method = __atomic_load_n(&best, __ATOMIC_RELAXED);
    if (!method) {
        for (int i = 0; fl_crc32c_methods(i); i++) method = fl_crc32c_methods(i);
        __atomic_store_n(&best, method, __ATOMIC_RELAXED);
    }
    return method(before, to, data, bytes, next);
}

uint32_t fl_crc32c(uint32_t before, const void *data, size_t bytes)
{
    return fl_crc32c_copy(before, NULL, data, bytes, NULL);
}
