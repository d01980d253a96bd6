/*
** tiles_plan.h -- what the two files of tiles share: tiles_plan.c decides where elements lie and in which order steps
** run, tiles.c builds lists and carries them out.
*/
#ifndef FL_TILES_PLAN_H
#define FL_TILES_PLAN_H

#include "tiles.h"

enum {
    FL_TILE = 1024,            /* elements, where the buffers have room for that */
    FL_TILE_MEMORY = 36 << 10, /* bytes of all buffers of a thread */
    FL_TILE_CONSTANT = -2,     /* a pattern: one element for all */
    FL_TILE_LINE = 254,        /* a buffer: that of the sink */
    FL_TILE_DIRECT = 255,      /* a buffer: in memory */
    FL_TILE_LOAD = 128         /* in the order of execution: added to a slot that is gathered */
};

_Static_assert(FL_TILES_STEPS <= 128 && FL_TILES_SLOTS <= 126, "the order has a byte for each");

static inline bool fl_tile_is_constant(const fl_tile_slot *slot)
{
    return !slot->is_result && slot->pattern == FL_TILE_CONSTANT;
}

/* Nanoseconds of an element, from which on a step takes longer than memory. */
#define FL_TILE_LONG 0.5f

/* Fills in what is marked as planned. */
void fl_tiles_plan(fl_tiles *tiles);

/* Nanoseconds of a chunk of a planned list. */
double fl_tiles_chunk_cost(const fl_tiles *tiles);

#endif
