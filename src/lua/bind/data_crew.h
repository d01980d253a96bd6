/*
** data_crew.h -- the Lua functions that make the items of a loader's batches, in the states of its workers.
**
** A crew has up to two functions: one that makes an item of its position (data.generate), one that changes an item
** (transform). Each worker runs them in a lua_State of its own, made when it has its first item; a crew without
** workers runs them in the script's. Their random numbers depend on seed, epoch and position alone. A function that
** allocates memory ends soon after its batch is dropped; one that does not, when it returns.
*/
#ifndef FL_DATA_CREW_H
#define FL_DATA_CREW_H

#include "data_row.h"

enum { FL_CREW_GENERATE, FL_CREW_TRANSFORM, FL_CREW_STAGES };

typedef struct fl_crew fl_crew;

/* A field of all items, each of which has a row of the tensor. */
typedef struct fl_crew_column {
    fl_tensor *tensor; /* owned by the job; local, on the CPU, contiguous */
    const char *data;  /* when its value is there */
    int key;           /* field of the job's row of keys */
} fl_crew_column;

/* One item to be made. */
typedef struct fl_crew_item {
    uint64_t seed, epoch;
    int64_t position, row; /* in the dataset, in the columns */
    const fl_row *keys;    /* of the columns */
    const fl_crew_column *columns;
    int column_count;
    const fl_row *given;            /* fields that are no columns, or NULL */
    bool (*stops)(const void *job); /* true once the job is given up; called by the worker, now and then */
    const void *job;
} fl_crew_item;

/* crew{generate =, generate_args =, transform =, transform_args =, workers =}: the table at index. Pushes the crew. */
void fl_crew_new(lua_State *L, int index);
/* The crew at index, with one more reference; any thread gives it back. */
fl_crew *fl_crew_at(lua_State *L, int index);
void fl_crew_unref(fl_crew *crew);
int fl_crew_workers(const fl_crew *crew);

/* Makes the item: *out is allocated with malloc. The error's text, allocated too (NULL: out of memory), in *error.
** seat: of the worker, no two threads have the same one at once. */
bool fl_crew_make(fl_crew *crew, int seat, const fl_crew_item *item, fl_row **out, char **error);
/* The same in the script's state, by the functions of the crew at `index`. */
bool fl_crew_make_here(lua_State *L, int index, const fl_crew_item *item, fl_row **out, char **error);

/* Makes the class. */
void fl_crew_open(lua_State *L);

#endif
