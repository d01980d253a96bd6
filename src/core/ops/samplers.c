/*
** samplers.c -- random numbers of distributions: in place, by tensors of parameters, choices among categories.
**
** As of all random ops, what element i becomes depends only on seed, op counter and its logical index.
*/
#include "op/samplers.h"
#include "cpu/samplers.h"
#include "ops.h"

static fl_status infer_float_operand(fl_infer *infer)
{
    FL_TRY(fl_require_float(infer, 0));
    return fl_infer_same(infer);
}

/* Elements are independent: each is drawn by its logical index. A number drawn from a partial sum would not be one. */
static void sbp_same(fl_sigs *sigs) { fl_sbp_except(sigs, 0); }

/* ---- in place ---- */

static fl_status kernel_fill(fl_kernel *kernel)
{
    const fl_attrs *attrs = kernel->attrs;
    double second = attrs->count > FL_SAMPLER_SECOND ? attrs->at[FL_SAMPLER_SECOND].number : 0;
    return fl_cpu_sample(kernel, (fl_sampler)kernel->variant, 0, attrs->at[FL_SAMPLER_FIRST].number, second,
                         "has no such parameter");
}

static fl_status check_exponential_(const fl_operand *in, int nin, const fl_attrs *attrs)
{
    double rate = attrs->at[FL_SAMPLER_FIRST].number;
    return rate > 0 ? FL_OK : fl_fail(FL_ERR_VALUE, "exponential_: lambd %g must be positive", rate);
}

static fl_status check_cauchy_(const fl_operand *in, int nin, const fl_attrs *attrs)
{
    double sigma = attrs->at[FL_SAMPLER_SECOND].number;
    return sigma > 0 ? FL_OK : fl_fail(FL_ERR_VALUE, "cauchy_: sigma %g must be positive", sigma);
}

static fl_status check_log_normal_(const fl_operand *in, int nin, const fl_attrs *attrs)
{
    double std = attrs->at[FL_SAMPLER_SECOND].number;
    return std > 0 ? FL_OK : fl_fail(FL_ERR_VALUE, "log_normal_: std %g must be positive", std);
}

static fl_status check_geometric_(const fl_operand *in, int nin, const fl_attrs *attrs)
{
    double p = attrs->at[FL_SAMPLER_FIRST].number;
    return p > 0 && p < 1 ? FL_OK : fl_fail(FL_ERR_VALUE, "geometric_: p %g is not between 0 and 1", p);
}

static const char *const no_vjp[] = {NULL}; /* the old value is gone */

#define FILL(ident, variant_, signature, infer_, doc_, ...)           \
    FL_OP(ident) = {                                                  \
        .name = #ident,                                               \
        .sig = signature,                                             \
        .nout = 1,                                                    \
        .flags = FL_OP_METHOD_ONLY | FL_OP_OVERWRITES | FL_OP_RANDOM, \
        .mutates = 1,                                                 \
        .variant = variant_,                                          \
        .doc = doc_,                                                  \
        .infer = infer_,                                              \
        .check = check_##ident,                                       \
        .sbp = sbp_same,                                              \
        .cpu = kernel_fill,                                           \
        .vjp = no_vjp,                                                \
        .samples = (const char *const[]){__VA_ARGS__, NULL},          \
    }

FILL(exponential_, FL_SAMPLER_EXPONENTIAL, "exponential_(x, ~lambd: float = 1)", infer_float_operand,
     "Fills x with exponential random numbers of the rate lambd.", "flow.zeros(2, 3)",
     "flow.zeros(70):narrow(0, 3, 60), 2", "flow.zeros(3, 4):t(), 0.5");
FILL(cauchy_, FL_SAMPLER_CAUCHY, "cauchy_(x, ~median: float = 0, ~sigma: float = 1)", infer_float_operand,
     "Fills x with random numbers of Cauchy's distribution.", "flow.zeros(2, 3)", "flow.zeros(70), -1, 2",
     "flow.zeros(3, 4):t(), 0, 5");
FILL(log_normal_, FL_SAMPLER_LOG_NORMAL, "log_normal_(x, ~mean: float = 1, ~std: float = 2)", infer_float_operand,
     "Fills x with numbers whose logarithms are normal, with this mean and deviation.", "flow.zeros(2, 3)",
     "flow.zeros(70), -1, 0.5", "flow.zeros(3, 4):t(), 0, 1");
FILL(geometric_, FL_SAMPLER_GEOMETRIC, "geometric_(x, ~p: float)", fl_infer_same,
     "Fills x with the numbers of trials up to the first success, each of which has the probability p.",
     "flow.zeros(2, 3), 0.5", "flow.zeros(70), 0.1", "flow.zeros(3, 4, {dtype = \"int64\"}):t(), 0.9");

/* ---- by parameters ---- */

static fl_status kernel_poisson(fl_kernel *kernel)
{
    return fl_cpu_sample(kernel, FL_SAMPLER_POISSON, 1, 0, 0, "a rate must not be negative");
}

FL_OP(poisson) = {
    .name = "poisson",
    .sig = "poisson(x)",
    .nout = 1,
    .flags = FL_OP_RANDOM | FL_OP_NO_GRAD,
    .doc = "Random counts of Poisson's distribution, whose rates are the elements of x.",
    .infer = infer_float_operand,
    .sbp = sbp_same,
    .cpu = kernel_poisson,
    FL_SAMPLES("flow.rand(2, 3) * 5", "(flow.rand(4, 3) * 40):t()", "flow.rand(70, {dtype = \"float64\"}) * 1000"),
};

static fl_status kernel_standard_gamma(fl_kernel *kernel)
{
    return fl_cpu_sample(kernel, FL_SAMPLER_GAMMA, 1, 0, 0, "a shape must not be negative");
}

FL_OP(standard_gamma) = {
    .name = "standard_gamma",
    .sig = "standard_gamma(x)",
    .nout = 1,
    .flags = FL_OP_RANDOM,
    .doc =
        "Random numbers of the gamma distribution of rate 1, whose shapes are the elements of x; they have gradients.",
    .infer = infer_float_operand,
    .sbp = sbp_same,
    .cpu = kernel_standard_gamma,
    FL_VJP("g * standard_gamma_slope(x, out)"),
    FL_SAMPLES("flow.rand(2, 3) + 0.5", "(flow.rand(4, 3) * 40):t()", "flow.rand(70, {dtype = \"float64\"})"),
};

static fl_status infer_pair(fl_infer *infer)
{
    FL_TRY(fl_require_float(infer, 0));
    FL_TRY(fl_require_float(infer, 1));
    FL_TRY(fl_infer_broadcast_shape(infer));
    infer->out[0].dtype = fl_infer_promote(infer);
    return FL_OK;
}

FL_OP(standard_gamma_slope) = {
    .name = "standard_gamma_slope",
    .sig = "standard_gamma_slope(x, y)",
    .nout = 1,
    .flags = FL_OP_HIDDEN | FL_OP_NO_GRAD,
    .doc = "How gamma numbers y change with their shapes x while their quantiles stay.",
    .infer = infer_pair,
    .sbp = fl_sbp_elementwise,
    .cpu = fl_cpu_gamma_slope,
    FL_SAMPLES("flow.rand(2, 3) + 0.5, flow.rand(2, 3) + 0.1", "flow.rand(3, 4) * 40 + 1, flow.rand(3, 4) * 40 + 1"),
};

static fl_status kernel_binomial(fl_kernel *kernel)
{
    return fl_cpu_sample(kernel, FL_SAMPLER_BINOMIAL, 2, 0, 0,
                         "a count must not be negative and a probability between 0 and 1");
}

FL_OP(binomial) = {
    .name = "binomial",
    .sig = "binomial(count, prob)",
    .nout = 1,
    .flags = FL_OP_FUNCTION_ONLY | FL_OP_RANDOM | FL_OP_NO_GRAD,
    .doc = "Random numbers of successes in `count` trials that have the probability `prob`.",
    .infer = infer_pair,
    .sbp = fl_sbp_elementwise,
    .cpu = kernel_binomial,
    FL_SAMPLES("flow.full({2, 3}, 5.0), flow.rand(2, 3)", "flow.full({4, 1}, 100.0), flow.rand(3)",
               "flow.full({70}, 1000.0, {dtype = \"float64\"}), flow.rand(70, {dtype = \"float64\"})"),
};

/* ---- categories ---- */

static fl_status infer_multinomial(fl_infer *infer)
{
    char text[FL_SHAPE_TEXT];
    const fl_shape *x = &infer->in[0].shape;
    FL_TRY(fl_require_float(infer, 0));
    int64_t count = infer->attrs->at[FL_MULTINOMIAL_COUNT].integer;
    fl_shape_text(text, x);
    if (x->ndim != 1 && x->ndim != 2)
        return fl_infer_fail(infer, FL_ERR_SHAPE, "takes weights [n] or [rows, n], x is %s", text);
    int64_t n = x->dims[x->ndim - 1];
    if (count < 1) return fl_infer_fail(infer, FL_ERR_VALUE, "num_samples %lld must be at least 1", (long long)count);
    if (n == 0) return fl_infer_fail(infer, FL_ERR_SHAPE, "there is no category to choose, x is %s", text);
    if (!infer->attrs->at[FL_MULTINOMIAL_REPLACEMENT].integer && count > n)
        return fl_infer_fail(infer, FL_ERR_VALUE,
                             "num_samples %lld is more than the %lld categories; write {replacement = true}",
                             (long long)count, (long long)n);
    infer->out[0].shape = *x;
    infer->out[0].shape.dims[x->ndim - 1] = count;
    infer->out[0].dtype = FL_INT64;
    return FL_OK;
}

/* Rows are independent; a choice needs all weights of its row. */
static void sbp_multinomial(fl_sigs *sigs) { fl_sbp_except(sigs, 1u << (sigs->in[0].shape.ndim - 1)); }

FL_OP(multinomial) = {
    .name = "multinomial",
    .sig = "multinomial(x, num_samples: int, replacement: bool = false)",
    .nout = 1,
    .flags = FL_OP_RANDOM | FL_OP_NO_GRAD,
    .doc = "Random positions in each row of x, with probabilities in proportion to the weights there; a position comes "
           "once if `replacement` is false.",
    .infer = infer_multinomial,
    .sbp = sbp_multinomial,
    .cpu = fl_cpu_multinomial,
    FL_SAMPLES("flow.rand(5), 3", "flow.rand(4, 6), 6", "flow.rand(3, 7):t(), 9, true",
               "flow.rand(70, {dtype = \"float64\"}), 20, true"),
};
