/*
** cpu.h -- CPU kernels: the level chosen at run time, loops compiled once per level.
**
** Files named *.lv.c are compiled once per level with -DFL_LEVEL=base|avx2|avx512 and the matching
** machine flags; FL_LV(name) gives each copy a name of its own. The others take that of this
** machine: FL_BY_LEVEL(name).
*/
#ifndef FL_CPU_H
#define FL_CPU_H

#include "op/view.h"
#include "engine/team.h"

typedef enum fl_level { FL_LEVEL_BASE, FL_LEVEL_AVX2, FL_LEVEL_AVX512, FL_LEVEL_COUNT } fl_level;

/* Best level of this machine, or a lower one named by FLOW_CPU=base|avx2|avx512. */
fl_level fl_cpu_level(void);
const char *fl_cpu_level_name(fl_level level);

/* Not above `most`, so that all ranks compute alike: before any kernel has run. */
void fl_cpu_level_limit(fl_level most);

#define FL_PASTE_(a, b) a##_##b
#define FL_PASTE(a, b) FL_PASTE_(a, b)
#define FL_LV(name) FL_PASTE(name, FL_LEVEL)

/* Declares the copies of FL_LV(name). */
#define FL_DECLARE_LEVELS(type, name) \
    extern type name##_base;          \
    extern type name##_avx2;          \
    extern type name##_avx512

/* A pointer to the copy that this machine runs. FL_ONE_LEVEL: the build has the base level alone. */
#if defined(__x86_64__) && !defined(FL_ONE_LEVEL)
#define FL_BY_LEVEL(name)                                                                                            \
    ({                                                                                                               \
        static __typeof__(&name##_base) const copies[FL_LEVEL_COUNT] = {&name##_base, &name##_avx2, &name##_avx512}; \
        copies[fl_cpu_level()];                                                                                      \
    })
#else
#define FL_BY_LEVEL(name) (&name##_base)
#endif

/* C[m,n] = alpha * op(A) op(B) + beta * C, row-major, float32; leading dimensions in elements. One call uses
** the team. oneDNN above the small-matrix limit when it is there, own code else. */
void fl_cpu_sgemm(bool ta, bool tb, int64_t m, int64_t n, int64_t k, float alpha, const float *a, int64_t lda,
                  const float *b, int64_t ldb, float beta, float *c, int64_t ldc);

/* Copies `in` to `out` (same local shape, any strides, converts dtypes). The permute kernel lives here. */
fl_status fl_cpu_copy(const fl_view *out, const fl_view *in);

/* Every element of `out` becomes *value (of out's dtype). */
fl_status fl_cpu_fill(const fl_view *out, const void *value);

/* Zeroes what lies above (lower: below is kept) or below a diagonal of each matrix of `out`, which is contiguous and
** not empty. diagonal: columns right of the main one, in logical positions. */
void fl_cpu_zero_triangle(const fl_view *out, int64_t diagonal, bool lower);

#endif
