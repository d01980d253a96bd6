/*
** ahead.h -- prefetches of memory that will be read. They go to the second-level cache: those to the first take its few
** miss buffers away from the reads that are under way.
*/
#ifndef FL_AHEAD_H
#define FL_AHEAD_H

#include <stddef.h>
#include <stdint.h>

enum {
    FL_CACHE_LINE = 64,
    FL_AHEAD_MOST = 16384, /* bytes of what comes next that are asked for, in place of as many before it */
};

/* Asks for bytes that will be read. They may lie where nothing is mapped. */
static inline void fl_ahead_ask(const void *at, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += FL_CACHE_LINE) __builtin_prefetch((const char *)at + i, 0, 2);
}

/* As many bytes behind `next` as `value` lies behind `start`; of NULL, NULL. */
static inline const void *fl_ahead_same(const void *next, const void *start, const void *value)
{
    return next ? (const void *)((uintptr_t)next + ((uintptr_t)value - (uintptr_t)start)) : NULL;
}

#endif
