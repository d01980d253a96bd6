/*
** recurrent.lv.c -- sequences of recurrent layers, of one CPU level: see recurrent.h.
**
** A step takes the hidden units panel by panel: the product of all rows' states with a panel of each gate's weights
** lies in the L1 while the cells' arithmetic follows, in one pass. Backward takes the arithmetic of a step first, then
** one product by the whole weight. Products are those of gemm.lv.c.
*/
#include "recurrent.h"
#include "gemm.h"
#include "vmath.h"

enum { UNITS = FL_RECURRENT_UNITS, ROWS = 48, MAX_GATES = 4 }; /* ROWS: of a product that stays in the L1 */

/* The step at which a row is `count` steps after its first one. */
static inline int64_t step_at(const fl_recurrent *recurrent, int64_t count)
{
    return recurrent->reverse ? recurrent->steps - 1 - count : count;
}

static inline int units_of(const fl_recurrent *recurrent, int64_t unit)
{
    return (int)(recurrent->width - unit < UNITS ? recurrent->width - unit : UNITS);
}

/* Behind its length a row keeps its state. */
static inline bool rests(const fl_recurrent *recurrent, int64_t row, int64_t step)
{
    return recurrent->lengths && step >= recurrent->lengths[row];
}

#define T float
#define FN(name) FL_PASTE(name, f32)
#define GEMM FL_LV(fl_gemm_f32)
#define PACK FL_LV(fl_gemm_pack_f32)
#define TANH(x) fl_tanh_f32(x)
#define SIGMOID(x) (1.0f / (1.0f + fl_exp_f32(-(x))))
#include "recurrent.inc"

#define T double
#define FN(name) FL_PASTE(name, f64)
#define GEMM FL_LV(fl_gemm_f64)
#define PACK FL_LV(fl_gemm_pack_f64)
#define TANH(x) fl_tanh_f64(x)
#define SIGMOID(x) (1.0 / (1.0 + fl_exp_f64(-(x))))
#include "recurrent.inc"
