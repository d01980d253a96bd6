/*
** combine.h -- the same stretch of several buffers put together: the arithmetic of collectives.
**
** The order is that of the buffers, whatever the length and the machine, so all ranks that add the same parts get
** the same bits. float16 and bfloat16 are added in float32 and rounded once. In maxima and minima a NaN wins.
*/
#ifndef FL_CPU_COMBINE_H
#define FL_CPU_COMBINE_H

#include "base/reduce.h"
#include "cpu.h"

/* n elements of ins[0] .. ins[in_count - 1] into every one of outs. `stream`: the results will not be read soon and go
** past the caches. outs may be the ins themselves, element for element. */
typedef void (*fl_combine_fn)(void *const *outs, int out_count, const void *const *ins, int in_count, int64_t n,
                              fl_reduce reduce, bool stream);

typedef struct fl_combine_kernels {
    fl_combine_fn at[FL_DTYPE_COUNT];
} fl_combine_kernels;

FL_DECLARE_LEVELS(const fl_combine_kernels, fl_combine_kernels);

/* Of the level of this machine. */
FL_EXPORT fl_combine_fn fl_cpu_combine(fl_dtype dtype);

#endif
