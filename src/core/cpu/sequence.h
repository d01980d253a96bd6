/*
** sequence.h -- equally spaced numbers along the one axis of a view, which is a part of the whole sequence.
*/
#ifndef FL_CPU_SEQUENCE_H
#define FL_CPU_SEQUENCE_H

#include "cpu.h"

/* start, start + step, ... in integers that wrap around. */
fl_status fl_cpu_count(const fl_view *out, int64_t start, int64_t step);

/* The same in double precision. */
fl_status fl_cpu_arange(const fl_view *out, double start, double step);

/* As many numbers as the whole has, from start to stop, both included. */
fl_status fl_cpu_linspace(const fl_view *out, double start, double stop);

#endif
