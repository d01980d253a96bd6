/*
** device_graph.h -- what a device tells of a graph that it records (fl_device.graph_begin).
*/
#ifndef FL_DEVICE_GRAPH_H
#define FL_DEVICE_GRAPH_H

#include "device.h"

/* A device's own begins so. */
struct fl_device_graph {
    /* Numbers that the kernels recorded so far read from the device's memory: each launch puts there what the operands
    ** (fl_kernel) of the ops have then. An op that has added none works with the numbers that it was recorded with. */
    int renewed;
};

#endif
