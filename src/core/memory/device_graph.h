/*
** device_graph.h -- the common part of graphs that devices record (fl_device.graph_begin).
*/
#ifndef FL_DEVICE_GRAPH_H
#define FL_DEVICE_GRAPH_H

#include "device.h"

enum { FL_GRAPH_REPORTS = 8 }; /* as many as a task may have checks */

/* The op that a kernel of a graph names when it reports an error in its data: borrowed. */
typedef struct fl_graph_report {
    const char *op, *line;
} fl_graph_report;

/* A device's own begins so. */
struct fl_device_graph {
    /* Numbers that the kernels recorded so far read from the device's memory: each launch puts there what the operands
    ** (fl_kernel) of the ops have then. An op that has added none works with the numbers that it was recorded with. */
    int renewed;
    /* Checks that each launch makes later (fl_engine_check_step_later), in this order, of the kernels recorded so far;
    ** who they belong to is set by the caller. */
    int report_count;
    fl_graph_report reports[FL_GRAPH_REPORTS];
};

#endif
