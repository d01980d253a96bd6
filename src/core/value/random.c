/*
** random.c -- the generators ops draw from.
*/
#include "random.h"
#include "base/hash.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/random.h>
#include <time.h>

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

fl_generator *fl_generator_use(fl_generator *generator)
{
    fl_generator *old = fl_generator_current();
    current = generator ? generator : default_one();
    return old;
}

static uint64_t drawn;

void fl_random_agree(fl_generator generator)
{
    *fl_generator_current() = generator;
    drawn = 0;
}

void fl_manual_seed(uint64_t seed) { fl_random_agree((fl_generator){seed, 0}); }

fl_generator fl_random_draw(bool agreed)
{
    fl_generator *g = fl_generator_current(), now = *g;
    g->counter++;
    if (!agreed) return now;
    drawn = fl_hash_mix(fl_hash_mix(drawn, now.seed), now.counter + 1);
    return now;
}

uint64_t fl_random_drawn(void) { return drawn; }
