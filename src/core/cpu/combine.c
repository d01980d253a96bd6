/*
** combine.c -- the arithmetic of collectives: the copy that this machine runs.
*/
#include "combine.h"

fl_combine_fn fl_cpu_combine(fl_dtype dtype)
{
    static const fl_combine_kernels *const levels[FL_LEVEL_COUNT] = {&fl_combine_kernels_base,
#ifdef __x86_64__
                                                                     &fl_combine_kernels_avx2,
                                                                     &fl_combine_kernels_avx512
#endif
    };
    return levels[fl_cpu_level()]->at[dtype];
}
