/*
** block_cache.h -- blocks of host memory, by size class; a freed block serves the next request of its class.
**
** Sizes are rounded up to classes, 8 per doubling, so a loop takes no page faults after its first turn. If other
** ranks share this host, blocks from 4 KiB on come from the arena that they map (arena.h). Otherwise, and when it is
** full, blocks from 1 MiB on come from mmap; from 2 MiB on they are aligned for huge pages. The blocks of the process,
** live and cached, stays below its recent peak of live bytes plus an eighth (or 64 MiB): the cache never makes a
** program much larger than it was anyway. For the script's thread.
*/
#ifndef FL_BLOCK_CACHE_H
#define FL_BLOCK_CACHE_H

#include "blocks.h"
#include "device.h"

/* A block of class c, cached or from the system; NULL when there is no memory. The bytes count for the peak. */
void *fl_cache_take(int c);
/* One from the system, after a block could not be had. */
void *fl_cache_take_fresh(int c);
void fl_cache_give(void *data, int c);

/* Gives all cached blocks back to the system and forgets the peak. */
void fl_cache_trim(void);

/* Fills in cached_bytes and system_allocations. */
void fl_cache_stats(fl_memory_stats *out);

#endif
