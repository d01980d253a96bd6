/*
** fused.h -- elementwise steps as one kernel: its description, its source, its arguments.
**
** A shape of steps (fl_fused_shape) is all that the text of a kernel depends on: rows, dtypes, layouts of operands.
** Numbers, addresses, sizes and strides are arguments, so one kernel serves all computations of a shape.
*/
#ifndef FL_CUDA_FUSED_H
#define FL_CUDA_FUSED_H

#include "index.h"

extern "C" {
#include "core/cpu/tiles.h"
}

enum {
    FL_FUSED_SLOTS = FL_TILES_SLOTS,
    FL_FUSED_STEPS = FL_TILES_STEPS,
    FL_FUSED_VALUES = 320 /* of 8 bytes: with the axes, less than the 4 KiB that arguments may have */
};

typedef enum fl_fused_kind {
    FL_FUSED_UNUSED,
    FL_FUSED_NUMBER,
    FL_FUSED_ONE,    /* one element for all */
    FL_FUSED_LINEAR, /* element i lies at i */
    FL_FUSED_WALKED, /* a group of neighbours, found by strides */
    FL_FUSED_SPREAD, /* found by strides, the same for a whole group */
    FL_FUSED_RESULT
} fl_fused_kind;

/* Compared byte by byte: no padding, what is not used is 0. */
typedef struct fl_fused_slot {
    uint8_t kind, dtype, stored; /* fl_fused_kind; fl_dtype that steps see, and that lies in memory */
    uint8_t pattern;             /* walked, spread */
    uint8_t is_stored;           /* a result */
} fl_fused_slot;

typedef struct fl_fused_step {
    uint8_t row; /* FL_EW_NONE: converts operand 0 */
    uint8_t nin, in[FL_EW_MAX_IN], out;
} fl_fused_step;

typedef struct fl_fused_shape {
    uint8_t slot_count, step_count;
    uint8_t group; /* elements that a thread takes at once */
    uint8_t axes;  /* that are walked; 0: nothing is walked or spread */
    uint8_t patterns;
    fl_fused_step steps[FL_FUSED_STEPS];
    fl_fused_slot slots[FL_FUSED_SLOTS];
} fl_fused_shape;

/* Arguments of a kernel, as fl_fused_job<V, A> of fused.cuh lays them out. */
typedef struct fl_fused_arguments {
    int values;
    int64_t bytes[FL_FUSED_VALUES + 1 + (12 * FL_LAYOUT_AXES + 7) / 8];
} fl_fused_arguments;

/* The shape of steps over `layout`, whose operands are the patterns of `tiles` with strides in elements; offset:
** elements from the first one, by pattern. false: they are not for a kernel. */
bool fl_fused_shape_of(fl_fused_shape *shape, const fl_tiles *tiles, const fl_layout *layout, const int64_t *offset);

/* The arguments, in the order in which the text takes them; false: there are too many. */
bool fl_fused_arguments_of(fl_fused_arguments *arguments, const fl_fused_shape *shape, const fl_tiles *tiles,
                           const fl_layout *layout, const int64_t *offset);

/* The source of the shape's kernel, `fl_fused`, in malloc'd memory; NULL: there is none. */
char *fl_fused_source(const fl_fused_shape *shape);

/* fl_device.tiles */
fl_status fl_cuda_tiles(const fl_tiles *tiles, const char *name);

/* The operand of a row that is computed as it is: the dtype of a step is that operand's. */
static inline fl_dtype fl_fused_compute(const fl_fused_shape *shape, const fl_fused_step *step)
{
    return (fl_dtype)shape->slots[step->in[fl_ew_rows[step->row].mask == 0]].dtype;
}

#endif
