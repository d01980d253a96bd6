/*
** samplers.h -- tensors of random numbers of one distribution, and choices among weighted categories.
*/
#ifndef FL_CPU_SAMPLERS_H
#define FL_CPU_SAMPLERS_H

#include "cpu.h"
#include "op/samplers.h"

/* Fills out[0]. The parameters are operands of any shape that broadcasts to the result's, as many as there are, else a
** and b. NaN as a result where a parameter was none is an error that says `expected`. */
fl_status fl_cpu_sample(fl_kernel *kernel, fl_sampler kind, int operands, double a, double b, const char *expected);

/* out[0] = the slopes of gamma numbers in[1] in their shapes in[0]. */
fl_status fl_cpu_gamma_slope(fl_kernel *kernel);

/* out[0] [rows, count]: positions in rows of in[0] with the probabilities of their weights there. */
fl_status fl_cpu_multinomial(fl_kernel *kernel);

#endif
