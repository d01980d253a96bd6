/*
** search.c -- see search.h.
**
** Neither steps nor branches depend on the comparisons: half of such branches would be mispredicted. Some values are
** searched side by side, since each step depends on the one before. A line that ends with NaN is halved as PyTorch
** halves it: the position found among unordered elements depends on the order of the steps.
*/
#include "search.h"

enum { TOGETHER = 4 };
static const double NS_PER_VALUE = 10;

#define INLINE static inline __attribute__((always_inline))
#define EACH _Pragma("GCC unroll 4") for (int k = 0; k < TOGETHER; k++)

#define T float
#define IS_NAN(x) ((x) != (x))
#define FN(name) FL_PASTE(name, f32)
#include "search.inc"

#define T double
#define IS_NAN(x) ((x) != (x))
#define FN(name) FL_PASTE(name, f64)
#include "search.inc"

#define T int64_t
#define IS_NAN(x) ((void)(x), 0)
#define FN(name) FL_PASTE(name, i64)
#include "search.inc"

void fl_cpu_search(fl_dtype dtype, const fl_search *search, int64_t count)
{
    fl_search job = *search;
    fl_team_for(count, NS_PER_VALUE,
                dtype == FL_FLOAT32       ? search_f32
                    : dtype == FL_FLOAT64 ? search_f64
                                          : search_i64,
                &job);
}
