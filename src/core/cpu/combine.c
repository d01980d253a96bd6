/*
** combine.c -- the arithmetic of collectives: the copy that this machine runs.
*/
#include "combine.h"

fl_combine_fn fl_cpu_combine(fl_dtype dtype) { return FL_BY_LEVEL(fl_combine_kernels)->at[dtype]; }
