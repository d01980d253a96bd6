/*
** test_random.c -- Philox against Random123's published answers; every CPU level against the plain form, bit for bit.
*/
#include "check.h"
#include "core/cpu/random.h"
#include "core/value/random.h"

#include <math.h>
#include <stdlib.h>

enum { MANY = 40000 };

static const fl_random_kernels *tables[FL_LEVEL_COUNT];
static int levels;

/* One block of Philox4x32-10 as the paper has it (Salmon, Moraes, Dror, Shaw, SC11). */
static void philox(uint32_t out[4], uint64_t seed, uint64_t counter, uint64_t block)
{
    uint32_t c0 = (uint32_t)block, c1 = (uint32_t)(block >> 32), c2 = (uint32_t)counter, c3 = (uint32_t)(counter >> 32);
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)c0 * 0xD2511F53u, p1 = (uint64_t)c2 * 0xCD9E8D57u;
        uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        c0 = n0;
        c2 = n2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

static void known_answers(void)
{
    static const uint32_t zeros[4] = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
    static const uint32_t ones[4] = {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd};
    static const uint32_t pi[4] = {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1};
    uint32_t out[4];
    philox(out, 0, 0, 0);
    CHECK(memcmp(out, zeros, sizeof out) == 0);
    philox(out, UINT64_MAX, UINT64_MAX, UINT64_MAX);
    CHECK(memcmp(out, ones, sizeof out) == 0);
    philox(out, 0x299f31d0a4093822u, 0x0370734413198a2eu, 0x85a308d3243f6a88u);
    CHECK(memcmp(out, pi, sizeof out) == 0);
}

/* Any start, any length, also where the block number carries into its upper half. */
static void words_of_all_levels(void)
{
    static const uint64_t starts[] = {0, 1, 2, 3, 64, 1001, ((uint64_t)4 << 32) - 130, ((uint64_t)1 << 40) + 7};
    static uint32_t got[301];
    fl_random_key key = {0x0123456789abcdefu, 0xfedcba9876543210u};
    for (int level = 0; level < levels; level++)
        for (size_t s = 0; s < sizeof starts / sizeof *starts; s++)
            for (int n = 0; n < 300; n += 7) {
                int wrong = 0;
                got[n] = 77;
                tables[level]->words(got, &key, starts[s], n);
                for (int i = 0; i < n; i++) {
                    uint32_t block[4];
                    philox(block, key.seed, key.counter, (starts[s] + (uint64_t)i) / 4);
                    wrong += block[(starts[s] + (uint64_t)i) % 4] != got[i];
                }
                CHECK(wrong == 0 && got[n] == 77);
            }
}

static void floats_are_equal_on_all_levels(void)
{
    static float in[MANY], first[MANY], other[MANY];
    fl_random_key key = {42, 7};
    for (int i = 0; i < MANY; i++) in[i] = (float)(i % 100 - 50);
    for (int kind = 0; kind < 4; kind++)
        for (int level = 0; level < levels; level++) {
            float *to = level ? other : first;
            if (kind == 0) tables[level]->normal(to, &key, 3, MANY, 0, 1);
            if (kind == 1) tables[level]->normal(to, &key, 0, MANY, 2.5f, 0.3f);
            if (kind == 2) tables[level]->uniform(to, &key, 1, MANY, 24, -2, 5);
            if (kind == 3) tables[level]->dropout(to, in, &key, 2, MANY, 1 << 22, 1.25f);
            if (level) CHECK(memcmp(first, other, sizeof first) == 0);
        }
}

static void normals_are_box_and_mullers(void)
{
    static float got[MANY];
    fl_random_key key = {9, 1};
    double worst = 0;
    tables[levels - 1]->normal(got, &key, 0, MANY, 0, 1);
    for (int i = 0; i < MANY; i += 2) {
        uint32_t w[4];
        philox(w, 9, 1, (uint64_t)i / 4);
        double u = ((w[i % 4] >> 8) + 1) * 0x1p-24, turn = 2 * 3.14159265358979323846 * (w[i % 4 + 1] >> 8) * 0x1p-24;
        double radius = sqrt(-2 * log(u));
        worst = fmax(worst, fmax(fabs(got[i] - radius * cos(turn)), fabs(got[i + 1] - radius * sin(turn))));
    }
    CHECK(worst < 1e-6);
}

static void generators_replace_each_other(void)
{
    fl_generator own = {5, 3}, *old = fl_generator_use(&own);
    CHECK(fl_generator_current() == &own);
    fl_manual_seed(8);
    CHECK(own.seed == 8 && own.counter == 0);
    CHECK(fl_generator_use(old) == &own);
    CHECK(fl_generator_current() == old);
    CHECK(fl_generator_use(NULL) == old);
}

int main(void)
{
    tables[levels++] = &fl_random_kernels_base;
#ifdef __x86_64__
    if (fl_cpu_level() >= FL_LEVEL_AVX2) tables[levels++] = &fl_random_kernels_avx2;
    if (fl_cpu_level() >= FL_LEVEL_AVX512) tables[levels++] = &fl_random_kernels_avx512;
#endif
    RUN(known_answers);
    RUN(words_of_all_levels);
    RUN(floats_are_equal_on_all_levels);
    RUN(normals_are_box_and_mullers);
    RUN(generators_replace_each_other);
    return finish();
}
