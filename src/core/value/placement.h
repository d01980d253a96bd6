/*
** placement.h -- the world, and placements: which ranks hold a tensor.
**
** Placements are interned: equal ones are one pointer, made once and kept for the life of the
** process (their number is bounded by what a script can name). Ranks keep the user's order.
*/
#ifndef FL_PLACEMENT_H
#define FL_PLACEMENT_H

#include "sbp.h"
#include "base/shape.h"
#include "base/status.h"

/* FL_META: tensors there have a meta but no bytes, and ops on them only infer. */
typedef enum fl_device_type { FL_CPU, FL_CUDA, FL_META, FL_DEVICE_TYPES } fl_device_type;

/* "cpu", "cuda", "meta" */
const char *fl_device_type_name(fl_device_type type);

typedef struct fl_placement {
    fl_device_type type;
    int device_index; /* of a local tensor's device ("cuda:1"); -1: each rank's own */
    int count;        /* number of ranks */
    int ndim;         /* of the hierarchy */
    int hierarchy[FL_MAX_HIERARCHY];
    int my_index; /* position of this rank in `ranks`, -1 outside */
    uint64_t hash;
    struct fl_placement *next; /* of its intern bucket */
    int ranks[];               /* in the user's order */
} fl_placement;

/* One process's place in the world. Set once at start (transport or FLOW_WORLD/FLOW_RANK). */
typedef struct fl_world {
    int size, rank;
    bool dry;     /* pretended: communication is an error */
    int started;  /* ranks of the job: those set aside too, which come last */
    bool planned; /* pretended, and nothing is computed on ranks or devices: their tensors are on FL_META */
} fl_world;

const fl_world *fl_world_get(void);

/* The real world, as the transport found it: before any placement or tensor exists. */
fl_status fl_world_set(int size, int rank);

/* Pretends to be rank `rank` of `size`: recomputes what placements say about this rank. Metas and plans made before are
** wrong afterwards: see fl_world_set_dry (dispatch/dry_world.h). */
fl_status fl_world_pretend(int size, int rank);

/* Pretends the same of a world in which scripts are planned: tensors placed on ranks or on a device are on FL_META. */
fl_status fl_world_plan(int size, int rank);

/* From now on the last `count` ranks take part in no collective, and the others are the world. Every rank of the world
** calls it. On the ranks set aside `rank` is then beyond the world. */
fl_status fl_world_set_aside(int count);

/* Reads FLOW_WORLD and FLOW_RANK; called once by the host program before any tensor exists. */
fl_status fl_world_init(void);

/* Interned placement; errors: duplicate ranks, rank out of range, hierarchy that does not hold
** `count` ranks. On FL_META nothing is communicated, so ranks that the world does not have may be named. In a planned
** world every type is FL_META, on ranks of that world. */
fl_status fl_placement_get(const fl_placement **out, fl_device_type type, const int *ranks, int count,
                           const int *hierarchy, int ndim);

/* This rank alone: where local tensors live. index: device number, -1 for cpu. Never fails for cpu. */
const fl_placement *fl_placement_local(fl_device_type type, int index);

/* The same ranks with their CPUs; of a local placement, this rank's CPU. */
fl_status fl_placement_on_cpu(const fl_placement **out, const fl_placement *placement);

/* All ranks of the world, 1-D. */
const fl_placement *fl_placement_all(fl_device_type type);

/* A placement of all ranks: `own` if it is one, so that collectives along its axes do, else a line. NULL: out of
** memory. */
const fl_placement *fl_placement_everywhere(const fl_placement *own);

/* Position of a rank in placement->ranks, -1 outside. */
int fl_placement_index(const fl_placement *placement, int rank);

/* Coordinates in the hierarchy of position `index`. */
void fl_placement_coords(int *coords, const fl_placement *placement, int index);

/* The name in scripts of the device of local tensors placed so: "cpu", "cuda", "cuda:1". */
enum { FL_DEVICE_TEXT = 24 };
const char *fl_placement_device_text(char *buffer, const fl_placement *placement);

/* `placement("cpu", {{0, 1}, {2, 3}})` */
enum { FL_PLACEMENT_TEXT = 256 };
const char *fl_placement_text(char *buffer, const fl_placement *placement);

/* FL_OK, or the error of an s that has not one entry for each hierarchy axis of p. */
fl_status fl_nd_sbp_check(fl_nd_sbp nd_sbp, const fl_placement *placement);

#endif
