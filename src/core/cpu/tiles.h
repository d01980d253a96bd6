/*
** tiles.h -- a list of elementwise steps, carried out tile by tile with what lies between the steps in the L1 cache.
**
** A slot is an operand in memory, a number, or what a step gives; the steps are the loops of rows and conversions, so
** an element has the bits that it has when each op runs alone. Tiles are cut by size, and a loop gives an element the
** same bits wherever it falls, so results depend neither on layout nor on threads.
**
** Devices take such a list, not planned, and carry it out their own way (fl_device.tiles).
**
** Built on the caller's stack: fl_tiles_begin, operands and steps in order, then what is stored, then fl_tiles_run.
*/
#ifndef FL_TILES_H
#define FL_TILES_H

#include "base/axes.h"
#include "elementwise.h"
#include "random.h"
#include "spine.h"

enum {
    FL_TILES_SLOTS = 112,
    FL_TILES_STEPS = 64,
    FL_TILES_PATTERNS = FL_LAYOUT_OPERANDS, /* different layouts of operands; the first is that of the results */
    FL_TILES_FULL = -1                      /* instead of a slot: there is no room for one more */
};

typedef struct fl_tile_slot {
    char *data;       /* in memory, read or stored: the first element; NULL: not in memory */
    int64_t number;   /* the bytes of a number */
    fl_dtype dtype;   /* that steps see */
    fl_dtype stored;  /* in memory */
    int8_t pattern;   /* layout in memory, or that it is one element for all */
    bool is_result;   /* of a step */
    bool loaded;      /* planned: it is there, as an operand in memory or gathered */
    uint8_t buffer;   /* planned: that of its elements of a tile */
    int16_t last_use; /* planned: place in the order of execution */
} fl_tile_slot;

typedef struct fl_tile_step {
    fl_ew_loop loop;     /* of a row */
    const fl_draw *draw; /* random elements; where loop and draw are NULL, operand 0 is converted */
    uint64_t first;      /* of draw: the logical index of element 0 */
    fl_dtype drawn;      /* the dtype of the op's result */
    float cost_ns;
    uint8_t row, nin, in[FL_EW_MAX_IN], out;
    /* planned: spines (spine.h) */
    bool absorbed;       /* the value goes on to the next step in registers */
    int8_t before;       /* the absorbed step that gives the value, -1: none */
    uint8_t value;       /* index of that operand, or of the one that the spine begins with */
    int8_t unread;       /* the operand that the spine has without reading it, -1: none */
    uint8_t spine_count; /* steps of the spine that ends here, with itself; 1: none */
    bool in_spines;      /* it ends a spine of a list that is carried out where its first spine ends */
    int8_t fetch;        /* its index among the steps that prefetch the next tile's operands, -1: none */
    int16_t spine;       /* that list in `spines`, at its first spine; -1: none */
    fl_ew_attr attributes[FL_EW_ATTRS];
} fl_tile_step;

/* Receives elements [first, first + n) of a slot, in order within a block; from several threads at once. */
typedef void (*fl_tiles_sink)(void *context, int64_t first, int64_t n, const void *elements);

typedef struct fl_tiles {
    const struct fl_copy_kernels *copy;
    int slot_count, step_count, pattern_count, ndim;
    bool on_cpu;                                     /* bfloat16 may stay what it is between the steps */
    int64_t total;                                   /* elements of a result */
    int64_t sizes[FL_MAX_NDIM];                      /* of the axes; merged by the plan */
    int64_t strides[FL_TILES_PATTERNS][FL_MAX_NDIM]; /* in elements; 0 where broadcast */
    fl_tile_slot slots[FL_TILES_SLOTS];
    fl_tile_step steps[FL_TILES_STEPS];

    fl_tiles_sink sink; /* NULL: none */
    void *context;
    int sink_slot;
    int64_t sink_row;

    /* planned */
    uint8_t order[FL_TILES_STEPS + FL_TILES_SLOTS]; /* steps, and slots to be gathered */
    fl_spine_op spines[3 * FL_TILES_STEPS];
    int order_count, buffers;
    int fetches;                /* steps that ask for the next tile's operands */
    int64_t row, pieces, chunk; /* elements of a row, its chunks, elements of a chunk */
    int64_t tile, pitch;        /* elements of a tile, bytes of a buffer */
    unsigned linear, in_rows;   /* patterns in which element i lies at i, and neighbours of a row side by side */
    unsigned by_row;            /* patterns of one element for all of a row */
    bool located;               /* something needs its position in the axes */
    bool flat;                  /* one step on memory as it lies */
    bool flat_rows;             /* one step on rows as they lie, beside operands of one element a row */
    bool streamed;              /* stored results are written past the caches */
    int bad;                    /* the errors that the loops reported */
} fl_tiles;

/* The shape of the results, and the layout of those in memory: strides in elements, NULL: row-major. The caller sets
** `on_cpu` afterwards if the list is for the CPU. */
void fl_tiles_begin(fl_tiles *tiles, int ndim, const int64_t *size, const int64_t *stride);

/* An operand in memory that is broadcast to the shape, or a number. */
int fl_tiles_operand(fl_tiles *tiles, const fl_view *view);

/* A row of elementwise.def that computes in `compute`; the slot of its result, which has `result`'s dtype. */
int fl_tiles_row(fl_tiles *tiles, int row, fl_dtype compute, fl_dtype result, const fl_ew_attr *attributes,
                 const int *in, int nin);

/* The slot's elements as another dtype, where a step needs that. */
int fl_tiles_convert(fl_tiles *tiles, int slot, fl_dtype dtype);

/* A step that converts. */
int fl_tiles_cast(fl_tiles *tiles, int slot, fl_dtype dtype);

/* Random elements; element 0 is `first` in the logical order, the others follow it. slot: dropout's operand. */
int fl_tiles_draw(fl_tiles *tiles, const fl_draw *draw, uint64_t first, int slot, fl_dtype result);

/* The slot's elements are stored at `data`, as results lie. */
void fl_tiles_store(fl_tiles *tiles, int slot, void *data);

/* The slot's elements are given to the sink in blocks of FL_REDUCE_BLOCK elements that begin with each row of `row`
** elements; rows that are shorter come several at once. */
void fl_tiles_consume(fl_tiles *tiles, int slot, int64_t row, fl_tiles_sink sink, void *context);

/* Carries all steps out; returns the errors of the loops (fl_ew_complaint), 0: none. */
int fl_tiles_run(fl_tiles *tiles);

#endif
