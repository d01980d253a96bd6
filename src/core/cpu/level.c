/*
** level.c -- which copy of the level-compiled loops this machine runs.
*/
#include "cpu.h"

#include <stdio.h>
#include <stdlib.h>

static const char *const level_names[FL_LEVEL_COUNT] = {"base", "avx2", "avx512"};

const char *fl_cpu_level_name(fl_level level) { return level_names[level]; }

static fl_level best_level(void)
{
#if defined(__x86_64__) && !defined(FL_ONE_LEVEL)
    __builtin_cpu_init();
    bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
    bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw")
        && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    if (avx2) return avx512 ? FL_LEVEL_AVX512 : FL_LEVEL_AVX2;
#endif
    return FL_LEVEL_BASE;
}

static fl_level choose_level(void)
{
    fl_level best = best_level();
    const char *wanted = getenv("FLOW_CPU");
    if (!wanted || !*wanted) return best;
    for (int i = 0; i < FL_LEVEL_COUNT; i++)
        if (strcmp(wanted, level_names[i]) == 0) return i < (int)best ? (fl_level)i : best;
    fl_warn("FLOW_CPU=%s is none of base, avx2, avx512; using %s", wanted, level_names[best]);
    return best;
}

static int level = -1; /* kernels may ask from several threads: they all find the same */

fl_level fl_cpu_level(void)
{
    int known = __atomic_load_n(&level, __ATOMIC_RELAXED);
    if (FL_UNLIKELY(known < 0)) {
        known = (int)choose_level();
        __atomic_store_n(&level, known, __ATOMIC_RELAXED);
    }
    return (fl_level)known;
}

void fl_cpu_level_limit(fl_level most)
{
    if (fl_cpu_level() > most) __atomic_store_n(&level, (int)most, __ATOMIC_RELAXED);
}
