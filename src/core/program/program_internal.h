/*
** program_internal.h -- what a program consists of: slots, steps, and where the steps' views point.
*/
#ifndef FL_PROGRAM_INTERNAL_H
#define FL_PROGRAM_INTERNAL_H

#include "program.h"
#include "ranks/history.h"
#include "value/random.h"

/* ---- slots: places for values ---- */

typedef enum fl_slot_role {
    FL_SLOT_INPUT,    /* an argument */
    FL_SLOT_BOUND,    /* reached from outside, or data made by hand: held */
    FL_SLOT_GRADIENT, /* the gradient that a leaf has when a run begins */
    FL_SLOT_SHARED,   /* made by a step: lies in the block that all share */
    FL_SLOT_OWN       /* made by a step: memory of its own, new at every run */
} fl_slot_role;

/* A pointer into a slot: a view's data, or an operand of a bare loop. */
typedef struct fl_slot_use {
    void **place;
    int64_t offset; /* bytes from the slot's start */
} fl_slot_use;

typedef struct fl_slot {
    fl_slot_role role;
    bool read, written; /* by some step; read: its value from before the run */
    bool moved;         /* taken or made by boxing, or a result: of its own */
    bool unmade;        /* a result that no step writes: empty */
    int index;          /* of the argument; of the leaf in fl_program.leaves */
    int64_t origin;  /* INPUT, while it is recorded: bytes from the storage's start to the argument's first element */
    int first, last; /* the steps that use it */
    size_t bytes;
    int64_t at;          /* SHARED: bytes from the block's start */
    fl_var var;          /* SHARED, on a device: orders the steps, and has the checks that the value depends on */
    fl_tensor *tensor;   /* INPUT, GRADIENT, OWN: during a run; BOUND: held */
    const fl_meta *meta; /* owned; of the tensor that it was made as */
    const char *data;    /* that the places of `uses` were set for */
    fl_tensor *kept; /* OWN, on a device: of the last run, memory of this one if it has no other reference; or NULL */
    /* of graphs.c */
    const char *data_before; /* after the last run */
    int64_t moves;           /* runs after which it was another one */
    bool moves_often;
    bool pends; /* it may turn out to be missing because of what the run begins with */
    fl_slot_use *uses;
    int use_count;
    int replaced; /* while it is recorded: one more than the first step that writes all of it; 0: none */
    int flag;     /* while it is recorded: one more than the last of its tensors in fl_program.flags */
} fl_slot;

/* ---- steps ---- */

typedef struct fl_program_operand {
    int slot;            /* -1: a number, or none */
    bool written, whole; /* whole: written without being read */
    bool moved_view;
    int64_t offset;      /* bytes from the slot's start */
    const fl_meta *meta; /* owned */
    const int64_t *strides;
} fl_program_operand;

/* True of all of a value that lies row-major, as a step of a group leaves it. */
static inline bool fl_operand_is_whole(const fl_program_operand *operand)
{
    const fl_meta *m = operand->meta;
    return operand->offset == 0
        && memcmp(operand->strides, m->strides, sizeof *m->strides * (size_t)m->shape.ndim) == 0;
}

typedef enum fl_step_kind {
    FL_STEP_KERNEL,
    FL_STEP_FLAT,   /* a bare loop over contiguous operands of one dtype */
    FL_STEP_FUSED,  /* several elementwise steps, and a reduction perhaps (passes.h) */
    FL_STEP_PASSED, /* no kernel: a note in the history */
    FL_STEP_DRAW,
    FL_STEP_BOX,
    FL_STEP_HOST,
    FL_STEP_NEW,  /* memory for an OWN slot */
    FL_STEP_DROP, /* nothing uses the OWN slot any more */
    FL_STEP_WAIT  /* until an OWN slot has its value */
} fl_step_kind;

typedef struct fl_step {
    fl_step_kind kind;
    bool fuses;      /* may run in one pass with others */
    bool folds;      /* takes operand 0 while that is computed */
    bool alone;      /* the device cannot record it (graphs.h), */
    bool reports;    /* or it can, and its kernels may report errors in its data */
    bool meets;      /* of BOX: ranks meet in it (fl_step_find_meeting), */
    bool ahead;      /* and it may begin before its place (collectives.c) */
    int8_t priority; /* of BOX (base/priority.h), */
    bool displaced;  /* and it has overtaken another one, or was overtaken (priorities.c); */
    int turn;        /* its number in the script's order, among those of its ranks */
    const fl_op *op;
    union {
        fl_kernel_fn run;
        fl_flat_fn flat;
        int slot; /* NEW, DROP, WAIT */
    };
    fl_kernel kernel; /* of KERNEL: its views lie in the pool */
    struct fl_fused *fused;
    int64_t first_drawn; /* logical index of the first element, of what draws */
    void **data;         /* of FLAT: the result, then operands */
    int64_t numel;
    int live; /* HOST, and where attributes come from the host: the number; else -1 */
    const fl_device *device;
    int device_index, lane;
    fl_program_operand *operands; /* inputs, then results */
    int nin, nout;
    int noted;       /* of PASSED: operands of the step whose note it is */
    const int *used; /* of PASSED: the slots of its operands and results, */
    int used_count;
    int used_written;         /* of which it would write the first ones, if this rank had elements of them */
    bool absent;              /* of HOST: it stands for a kernel that this rank has no part in */
    int draw;                 /* DRAW: its number; else that of the draw whose seed the step works with, -1: none */
    const fl_meta *drawn_for; /* owned; of DRAW */
    /* the rank's history */
    fl_history *history;
    uint64_t content, number_values;
    uint32_t numbers;
    const char *line; /* "train.lua:12" */
} fl_step;

/* ---- programs ---- */

typedef struct fl_program_leaf {
    fl_tensor *leaf;          /* owned */
    const fl_meta *before;    /* owned; of the gradient before, NULL: it had none */
    bool depends;             /* on whether there was one */
    int slot;                 /* of the gradient before, -1: not used */
    int64_t offset_before;    /* of it, in elements */
    bool changes;             /* the run leaves it with another one */
    fl_program_operand after; /* that; slot -1: none */
} fl_program_leaf;

/* A leaf from outside: another program may be recorded where it requires grad, and where it does not. */
typedef struct fl_program_flag {
    fl_tensor *leaf; /* owned */
    bool requires_grad;
    int next; /* of the same slot, one more than its place; 0: none */
} fl_program_flag;

typedef struct fl_pool_block {
    struct fl_pool_block *next;
    size_t used, size;
    char bytes[] __attribute__((aligned(16)));
} fl_pool_block;

struct fl_program {
    fl_pool_block *pool;
    fl_slot *slots;
    int slot_count, slot_room;
    fl_step *steps;
    int step_count, step_room;
    fl_step *retired; /* the steps that were fused: they own what fused steps point to */
    int retired_count, retired_room;
    fl_program_leaf *leaves;
    int leaf_count, leaf_room;
    fl_program_flag *flags;
    int flag_count, flag_room;
    uint64_t flag_changes; /* fl_autograd_flag_changes when they were found to fit */
    fl_generator *draws;   /* of this run */
    int draw_count, draw_room;
    fl_program_operand *results;
    int result_count, input_count;
    int *outside; /* slots of memory from outside: first those that are written (shared.c) */
    int outside_count, outside_written;
    bool strict; /* the whole of a function, which is recorded or an error */
    bool busy;
    size_t block_bytes;
    fl_storage *block;
    bool has_graphs, graphs_stale; /* steps may be launched together; which has to be found out */
    int64_t uncertain_runs;        /* with a graph that might not be launched as such (graphs.c) */
    int64_t runs;
    struct fl_graph *graphs;
    int graph_count, graph_room;
    fl_program_facts facts;
    int64_t host_ops; /* that kernels on the host compute, fused ones each */
};

/* FL_ERR_MEMORY with its message. */
fl_status fl_program_out_of_memory(void);

/* Memory that lives as long as the program; NULL: there is none. */
void *fl_program_take(fl_program *program, size_t bytes);

/* Room for one more entry of a list of `count`; FL_ERR_MEMORY. */
fl_status fl_program_reserve(void **list, size_t size, int *room, int count);

/* Lifetimes, the shared block, and where pointers go: after the last step. */
fl_status fl_program_seal(fl_program *program);

/* Lists the slots of memory from outside. */
fl_status fl_program_list_outside(fl_program *program);

static inline bool fl_slot_is_outside(const fl_slot *slot) { return slot->role <= FL_SLOT_GRADIENT; }

#endif
