/*
** random.c -- Philox4x32-10 in its plain form, and the generators ops draw from.
**
** Reference: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC11). The loops
** that fill tensors are in cpu/random.lv.c and give the same words.
*/
#include "random.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/random.h>
#include <time.h>

void fl_philox(uint32_t out[4], uint64_t seed, uint64_t counter, uint64_t block)
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

static fl_generator default_generator;
static fl_generator *current;

static uint64_t drawn_seed(void)
{
    uint64_t seed;
    if (getrandom(&seed, sizeof seed, GRND_NONBLOCK) == (ssize_t)sizeof seed) return seed;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* The default generator, seeded by the system at first use. */
static fl_generator *default_one(void)
{
    static bool seeded;
    if (!seeded) default_generator.seed = drawn_seed();
    seeded = true;
    return &default_generator;
}

fl_generator *fl_generator_current(void)
{
    if (!current) current = default_one();
    return current;
}

fl_generator *fl_generator_use(fl_generator *g)
{
    fl_generator *old = fl_generator_current();
    current = g ? g : default_one();
    return old;
}

static uint64_t drawn;

void fl_random_agree(fl_generator g)
{
    *fl_generator_current() = g;
    drawn = 0;
}

void fl_manual_seed(uint64_t seed) { fl_random_agree((fl_generator){seed, 0}); }

fl_generator fl_random_draw(bool agreed)
{
    fl_generator *g = fl_generator_current(), now = *g;
    g->counter++;
    if (!agreed) return now;
    drawn = (drawn ^ now.seed) * 0x9e3779b97f4a7c15u;
    drawn = ((drawn ^ drawn >> 32) + now.counter + 1) * 0xbf58476d1ce4e5b9u;
    drawn ^= drawn >> 29;
    return now;
}

uint64_t fl_random_drawn(void) { return drawn; }
