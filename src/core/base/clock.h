/*
** clock.h -- the clock that only goes forward, and the pause of a thread that spins.
*/
#ifndef FL_CLOCK_H
#define FL_CLOCK_H

#include <stdint.h>
#include <time.h>

/* Nanoseconds since some moment in the past. */
static inline uint64_t fl_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static inline double fl_now_seconds(void) { return 1e-9 * (double)fl_now(); }

/* Between two looks of a loop that waits: some 40 ns in which the core's other thread has it. */
static inline void fl_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield");
#endif
}

#endif
