/*
** random.c -- the generators ops draw from.
*/
#include "random.h"
#include "base/hash.h"

#include <stdlib.h>
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

/* ---- logs ---- */

static fl_draws *log_now; /* NULL: none is on */

void fl_draws_begin(fl_draws *draws, bool replays)
{
    draws->replays = replays;
    draws->next = 0;
    draws->outer = log_now;
    log_now = draws;
}

void fl_draws_end(fl_draws *draws) { log_now = draws->outer; }

static bool replaying(void)
{
    for (const fl_draws *d = log_now; d; d = d->outer)
        if (d->replays) return true;
    return false;
}

static void note_draw(fl_draws *draws, fl_generator g)
{
    if (draws->count == draws->capacity) {
        int64_t more = draws->capacity ? 2 * draws->capacity : 8;
        fl_generator *grown = realloc(draws->list, sizeof *grown * (size_t)more);
        if (!grown) {
            draws->failed = true;
            return;
        }
        draws->list = grown;
        draws->capacity = more;
    }
    draws->list[draws->count++] = g;
}

/* ---- drawing ---- */

static uint64_t drawn;

void fl_generator_set(fl_generator *generator, fl_generator state)
{
    if (!replaying()) *generator = state;
}

void fl_random_agree(fl_generator generator)
{
    if (replaying()) return;
    *fl_generator_current() = generator;
    drawn = 0;
}

void fl_manual_seed(uint64_t seed) { fl_random_agree((fl_generator){seed, 0}); }

static fl_generator draw_from_generator(bool agreed)
{
    fl_generator *g = fl_generator_current(), now = *g;
    g->counter++;
    if (!agreed) return now;
    drawn = fl_hash_mix(fl_hash_mix(drawn, now.seed), now.counter + 1);
    return now;
}

/* The draw of an op while a log is on: taken from the log, or added to it. */
static fl_generator draw_logged(fl_draws *draws, bool agreed)
{
    if (!draws) return draw_from_generator(agreed);
    if (draws->replays && draws->next < draws->count) return draws->list[draws->next++];
    if (draws->replays) {
        draws->failed = true;
        return (fl_generator){0, 0};
    }
    fl_generator g = draw_logged(draws->outer, agreed);
    note_draw(draws, g);
    return g;
}

fl_generator fl_random_draw(bool agreed)
{
    return log_now ? draw_logged(log_now, agreed) : draw_from_generator(agreed);
}

uint64_t fl_random_drawn(void) { return drawn; }
