/*
** tally.h -- what a stretch of a planned script costs this rank: the ops, what is moved between ranks, the memory.
**
** Nothing runs (dispatch/planned.h): ops are counted as dispatch reports them, boxing by its plans, memory by the
** storages on FL_META as they are made and freed.
*/
#ifndef FL_TALLY_H
#define FL_TALLY_H

#include "boxing/boxing.h"
#include "dispatch/cost.h"

/* Calls of an op that cost the same. */
typedef struct fl_tally_op {
    const fl_op *op;
    fl_cost each;
    int64_t count;
} fl_tally_op;

/* Steps of boxing plans that are the same, of the same line. */
enum { FL_TALLY_LINE = 64, FL_TALLY_TENSOR = 96 };
typedef struct fl_tally_move {
    fl_box_kind kind;
    int axis;      /* hierarchy axis, -1: the placement as a whole */
    int ranks;     /* that work together */
    bool network;  /* not all of them are on one host */
    bool joined;   /* it travels with the one before */
    int64_t bytes; /* of one: the most any one rank receives and sends */
    int64_t count;
    char line[FL_TALLY_LINE], tensor[FL_TALLY_TENSOR]; /* "a.lua:7"; "float32[8, 6] P -> B" */
} fl_tally_move;

/* The contents of a storage. FL_TALLY_KEPT: it was there at the beginning, and nothing else is known of it. */
typedef enum fl_tally_tag {
    FL_TALLY_TEMPORARY,
    FL_TALLY_BOXED,
    FL_TALLY_KEPT,
    FL_TALLY_PARAMETER,
    FL_TALLY_GRADIENT,
    FL_TALLY_OPTIMIZER,
    FL_TALLY_TAGS
} fl_tally_tag;

typedef struct fl_tally_memory {
    int64_t peak;              /* most bytes live at once */
    int64_t of[FL_TALLY_TAGS]; /* at that moment */
} fl_tally_memory;

/* Ranks whose parts of all tensors have the same sizes. */
typedef struct fl_tally_kind {
    int first, count; /* the lowest of these ranks, and how many there are */
    int64_t elements; /* of its parts, each shape and SBP once */
    int *ranks;       /* owned: all of them, in order */
} fl_tally_kind;

/* Watches from now on, for good: before any tensor is made. ranks_per_host: which groups span hosts. memory: bytes of a
** rank; where more are live, garbage is collected first, as an allocator does. */
fl_status fl_tally_open(int ranks_per_host, int64_t memory);

/* The stretch begins here, anew where it had begun. */
void fl_tally_begin(void);

/* Sets the tag of the storage of a tensor on FL_META, also for the time before. */
void fl_tally_tag_tensor(const fl_tensor *tensor, fl_tally_tag tag);

/* The stretch so far. Arrays belong to the tally until fl_tally_begin. FL_ERR_MEMORY: something was not counted. */
fl_status fl_tally_ops(const fl_tally_op **ops, int64_t *count);
fl_status fl_tally_moves(const fl_tally_move **moves, int64_t *count);
fl_status fl_tally_memory_get(fl_tally_memory *out);

/* The kinds of ranks there are, by the tensors of the stretch. Free with fl_tally_kinds_free. */
fl_status fl_tally_kinds(fl_tally_kind **kinds, int *count);
void fl_tally_kinds_free(fl_tally_kind *kinds, int count);

#endif
