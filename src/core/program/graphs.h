/*
** graphs.h -- runs of steps on a device that are launched as one.
*/
#ifndef FL_PROGRAM_GRAPHS_H
#define FL_PROGRAM_GRAPHS_H

#include "program_internal.h"

/* Steps from `from` to before `past`: kernels of one device, and what the host does for them. */
typedef struct fl_graph {
    int from, past;
    const fl_device *device;
    int device_index, lane;
    fl_device_graph *made; /* owned; NULL: none yet */
    bool recorded;         /* with the addresses in `data` */
    bool updates;          /* some step changes what lies outside of the program, */
    bool waits;            /* and needs what earlier steps may report as missing: that is waited for */
    int recordings;
    int64_t launches;
    /* slots that steps outside of it use too, or that come from outside */
    int slot_count;
    int *slots;
    bool *read, *written; /* read: its value from before the graph */
    unsigned *checks;     /* of the launch, which its value depends on (fl_task.checks) */
    const char **data;
    fl_var **vars; /* that reads and writes were made from */
    fl_var **reads, **writes;
    unsigned *write_checks;
    struct var_checks *var_checks; /* room to find them */
    int read_count, write_count, update_count;
} fl_graph;

/* Before the first run: decides whether any step may be part of a graph. */
void fl_graphs_begin(fl_program *program);

/* Before a run: which steps are launched together, where that has changed. */
fl_status fl_graphs_plan(fl_program *program);

/* The step may report errors in its data. */
void fl_graphs_note_report(fl_program *program, fl_step *step);

/* After a run: which slots lie where they lay before. */
void fl_graphs_note(fl_program *program);

/* *may false: values that it works with are missing, or may be, and it changes what lies outside of the program. Its
** steps are to be run one by one. If that is not seldom, later graphs that change such values begin with that, and wait
** for what they need. */
fl_status fl_graph_may_run(bool *may, fl_program *program, const fl_graph *graph);

/* Launches the kernels of a graph, recording it first where it must be. *done false: they are to be issued by
** themselves. */
fl_status fl_graph_launch(bool *done, fl_program *program, fl_graph *graph);

void fl_graphs_drop(fl_program *program);

/* One step that a replay has issued by itself. */
void fl_graphs_count_step(void);

/* ---- of replay.c ---- */

/* The step's launches, into the queue that was entered. */
fl_status fl_step_launch(fl_step *step);

fl_var *fl_slot_var(fl_slot *slot);

static inline bool fl_step_has_kernel(const fl_step *step)
{
    return step->kind == FL_STEP_KERNEL || step->kind == FL_STEP_FUSED;
}

#endif
