/*
** random.c -- random ops: element i of a result depends only on seed, op counter and its logical index.
**
** The kernels (cpu/random.c) walk a rank's part by logical indices, so any window of any SBP draws the values the whole
** tensor has.
*/
#include "op/draw.h"
#include "op/random.h"
#include "value/random.h"
#include "cpu/random.h"
#include "ops.h"

#include <math.h>

/* ---- sources and their likes ---- */

static fl_status require_float_result(const fl_infer *infer)
{
    if (fl_dtype_is_float(infer->out[0].dtype)) return FL_OK;
    return fl_infer_fail(infer, FL_ERR_DTYPE, "takes a float dtype, not %s", fl_dtype_name(infer->out[0].dtype));
}

static fl_status infer_source(fl_infer *infer, int sizes_slot, fl_dtype otherwise)
{
    const fl_attr *sizes = &infer->attrs->at[sizes_slot];
    infer->out[0].dtype = infer->attrs->has_dtype ? infer->attrs->option_dtype : otherwise;
    return fl_shape_make(&infer->out[0].shape, infer->name, sizes->list, sizes->count);
}

static fl_status infer_float_source(fl_infer *infer)
{
    FL_TRY(infer_source(infer, FL_RAND_SIZE, fl_dtype_default));
    return require_float_result(infer);
}

static fl_status infer_like(fl_infer *infer)
{
    infer->out[0].shape = infer->in[0].shape;
    infer->out[0].dtype = infer->attrs->has_dtype ? infer->attrs->option_dtype : infer->in[0].dtype;
    return FL_OK;
}

static fl_status infer_float_like(fl_infer *infer)
{
    FL_TRY(infer_like(infer));
    return require_float_result(infer);
}

/* An element's number depends on its logical position, not on the part it lies in. */
static void sbp_same(fl_sigs *sigs) { fl_sbp_except(sigs, 0); }

static void draw_rand(fl_draw *draw, const fl_kernel *kernel)
{
    *draw = (fl_draw){FL_DRAW_UNIFORM, 0, 1, {kernel->seed, kernel->counter}};
}

static void draw_randn(fl_draw *draw, const fl_kernel *kernel)
{
    *draw = (fl_draw){FL_DRAW_NORMAL, 0, 1, {kernel->seed, kernel->counter}};
}

static fl_status kernel_draw(fl_kernel *kernel)
{
    fl_draw draw;
    kernel->op->draw(&draw, kernel);
    return fl_cpu_draw(kernel, &draw);
}

enum {
    SOURCE = FL_OP_SOURCE | FL_OP_FUNCTION_ONLY | FL_OP_RANDOM,
    LIKE = FL_OP_FUNCTION_ONLY | FL_OP_RANDOM | FL_OP_NO_GRAD
};

static const char *const rand_samples[] = {
    "2, 3", "{70}", "0, 2", "{2, 3}, {dtype = \"float64\"}", "{9}, {dtype = \"bfloat16\"}", NULL};
FL_OP(rand) = {
    .name = "rand",
    .sig = "rand(size: sizes, options)",
    .nout = 1,
    .flags = SOURCE,
    .doc = "Uniform random numbers in [0, 1).",
    .infer = infer_float_source,
    .sbp = fl_sbp_source,
    .cpu = kernel_draw,
    .draw = draw_rand,
    .samples = rand_samples,
};
FL_OP(randn) = {
    .name = "randn",
    .sig = "randn(size: sizes, options)",
    .nout = 1,
    .flags = SOURCE,
    .doc = "Normal random numbers with mean 0 and variance 1.",
    .infer = infer_float_source,
    .sbp = fl_sbp_source,
    .cpu = kernel_draw,
    .draw = draw_randn,
    .samples = rand_samples,
};

static const char *const like_samples[] = {"flow.randn(2, 3)", "flow.arange(4), {dtype = \"float32\"}", NULL};
FL_OP(rand_like) = {
    .name = "rand_like",
    .sig = "rand_like(x, options)",
    .nout = 1,
    .flags = LIKE,
    .doc = "Uniform random numbers in [0, 1) with the shape of x.",
    .infer = infer_float_like,
    .sbp = sbp_same,
    .cpu = kernel_draw,
    .draw = draw_rand,
    .samples = like_samples,
};
FL_OP(randn_like) = {
    .name = "randn_like",
    .sig = "randn_like(x, options)",
    .nout = 1,
    .flags = LIKE,
    .doc = "Normal random numbers with the shape of x.",
    .infer = infer_float_like,
    .sbp = sbp_same,
    .cpu = kernel_draw,
    .draw = draw_randn,
    .samples = like_samples,
};

/* ---- integers ---- */

/* low .. high - 1 is not empty and fits the dtype, as far as integers go. */
static fl_status check_bounds(const char *who, int64_t low, int64_t high, fl_dtype dtype)
{
    if (high <= low)
        return fl_fail(FL_ERR_VALUE, "%s: high %lld must be greater than low %lld", who, (long long)high,
                       (long long)low);
    if (low >= fl_dtype_ranges[dtype].lowest && high - 1 <= fl_dtype_ranges[dtype].highest) return FL_OK;
    return fl_fail(FL_ERR_VALUE, "%s: %lld to %lld does not fit %s", who, (long long)low, (long long)high - 1,
                   fl_dtype_name(dtype));
}

static fl_status check_randint(const fl_operand *in, int nin, const fl_attrs *attrs)
{
    return check_bounds("randint", attrs->at[FL_RANDINT_LOW].integer, attrs->at[FL_RANDINT_HIGH].integer,
                        attrs->has_dtype ? attrs->option_dtype : FL_INT64);
}

static fl_status check_randint_like(const fl_operand *in, int nin, const fl_attrs *attrs)
{
    fl_dtype dtype = attrs->has_dtype ? attrs->option_dtype : in[0].tensor->meta->dtype;
    return check_bounds("randint_like", attrs->at[FL_RANDINT_LOW].integer, attrs->at[FL_RANDINT_HIGH].integer, dtype);
}

static fl_status infer_randint(fl_infer *infer) { return infer_source(infer, FL_RANDINT_SIZE, FL_INT64); }

static fl_status kernel_randint(fl_kernel *kernel)
{
    return fl_cpu_fill_random_integers(kernel, kernel->attrs->at[FL_RANDINT_LOW].integer,
                                       kernel->attrs->at[FL_RANDINT_HIGH].integer);
}

static const char *const randint_samples[] = {"0, 10, {2, 3}", "-5, 5, {70}", "0, 2, {4}, {dtype = \"bool\"}",
                                              "-4000000000, 4000000000, {9}", NULL};
FL_OP(randint) = {
    .name = "randint",
    .sig = "randint(~low: int, ~high: int, size: sizes, options)",
    .nout = 1,
    .flags = SOURCE,
    .doc = "Random integers from low to high - 1.",
    .infer = infer_randint,
    .check = check_randint,
    .sbp = fl_sbp_source,
    .cpu = kernel_randint,
    .samples = randint_samples,
};

static const char *const randint_like_samples[] = {"flow.arange(6), 0, 10", "flow.randn(2, 3), -2, 3", NULL};
FL_OP(randint_like) = {
    .name = "randint_like",
    .sig = "randint_like(x, ~low: int, ~high: int, options)",
    .nout = 1,
    .flags = LIKE,
    .doc = "Random integers from low to high - 1 with the shape and dtype of x.",
    .infer = infer_like,
    .check = check_randint_like,
    .sbp = sbp_same,
    .cpu = kernel_randint,
    .samples = randint_like_samples,
};

/* ---- permutations ---- */

enum { RANDPERM_N }; /* the attribute of randperm */

static fl_status infer_randperm(fl_infer *infer)
{
    int64_t n = infer->attrs->at[RANDPERM_N].integer;
    if (n < 0) return fl_infer_fail(infer, FL_ERR_VALUE, "n %lld is negative", (long long)n);
    infer->out[0].dtype = infer->attrs->has_dtype ? infer->attrs->option_dtype : FL_INT64;
    return fl_shape_make(&infer->out[0].shape, infer->name, &n, 1);
}

static const char *const randperm_samples[] = {"10", "0", "1", "300, {dtype = \"int32\"}", NULL};
FL_OP(randperm) = {
    .name = "randperm",
    .sig = "randperm(n: int, options)",
    .nout = 1,
    .flags = SOURCE,
    .doc = "The integers 0 to n - 1 in random order.",
    .infer = infer_randperm,
    .sbp = fl_sbp_source,
    .cpu = fl_cpu_randperm,
    .samples = randperm_samples,
};

/* ---- bernoulli ---- */

static fl_status infer_float_operand(fl_infer *infer)
{
    FL_TRY(fl_require_float(infer, 0));
    return fl_infer_same(infer);
}

static fl_status check_probability(const char *who, const fl_attr *probability)
{
    if (!probability->given || (probability->number >= 0 && probability->number <= 1)) return FL_OK;
    return fl_fail(FL_ERR_VALUE, "%s: p %g is not between 0 and 1", who, probability->number);
}

static fl_status check_bernoulli(const fl_operand *in, int nin, const fl_attrs *attrs)
{
    return check_probability("bernoulli", &attrs->at[FL_BERNOULLI_P]);
}

static fl_status check_bernoulli_(const fl_operand *in, int nin, const fl_attrs *attrs)
{
    return check_probability("bernoulli_", &attrs->at[FL_BERNOULLI_P]);
}

static fl_status kernel_bernoulli(fl_kernel *kernel)
{
    const fl_attr *p = &kernel->attrs->at[FL_BERNOULLI_P];
    return fl_cpu_bernoulli(kernel, p->given ? p->number : (double)NAN);
}

static const char *const bernoulli_samples[] = {"flow.rand(2, 3)", "flow.rand(4, 3):t()",
                                                "flow.rand(70, {dtype = \"float64\"})", "flow.randn(5, 4), 0.3", NULL};
FL_OP(bernoulli) = {
    .name = "bernoulli",
    .sig = "bernoulli(x, ~p: float = nil)",
    .nout = 1,
    .flags = FL_OP_RANDOM | FL_OP_NO_GRAD,
    .doc = "1 with the probability given by the element of x, or by p, else 0.",
    .infer = infer_float_operand,
    .check = check_bernoulli,
    .sbp = sbp_same,
    .cpu = kernel_bernoulli,
    .samples = bernoulli_samples,
};

/* ---- in place ---- */

static void draw_uniform_(fl_draw *draw, const fl_kernel *kernel)
{
    double low = kernel->attrs->at[FL_UNIFORM_LOW].number, high = kernel->attrs->at[FL_UNIFORM_HIGH].number;
    *draw = (fl_draw){FL_DRAW_UNIFORM, low, high - low, {kernel->seed, kernel->counter}};
}

static void draw_normal_(fl_draw *draw, const fl_kernel *kernel)
{
    double mean = kernel->attrs->at[FL_NORMAL_MEAN].number, std = kernel->attrs->at[FL_NORMAL_STD].number;
    *draw = (fl_draw){FL_DRAW_NORMAL, mean, std, {kernel->seed, kernel->counter}};
}

static fl_status check_uniform_(const fl_operand *in, int nin, const fl_attrs *attrs)
{
    double low = attrs->at[FL_UNIFORM_LOW].number, high = attrs->at[FL_UNIFORM_HIGH].number;
    if (low <= high) return FL_OK;
    return fl_fail(FL_ERR_VALUE, "uniform_: low %g must not be greater than high %g", low, high);
}

static fl_status check_normal_(const fl_operand *in, int nin, const fl_attrs *attrs)
{
    if (attrs->at[FL_NORMAL_STD].number >= 0) return FL_OK;
    return fl_fail(FL_ERR_VALUE, "normal_: std %g must not be negative", attrs->at[FL_NORMAL_STD].number);
}

static const char *const no_vjp[] = {NULL}; /* the old value is gone */
static const char *const uniform_samples[] = {"flow.zeros(2, 3)", "flow.zeros(70), -1, 2", "flow.zeros(3, 4):t(), 0, 5",
                                              NULL};
FL_OP(uniform_) = {
    .name = "uniform_",
    .sig = "uniform_(x, ~low: float = 0, ~high: float = 1)",
    .nout = 1,
    .flags = FL_OP_METHOD_ONLY | FL_OP_OVERWRITES | FL_OP_RANDOM,
    .mutates = 1,
    .doc = "Fills x with uniform random numbers from low to high.",
    .infer = infer_float_operand,
    .check = check_uniform_,
    .sbp = sbp_same,
    .cpu = kernel_draw,
    .draw = draw_uniform_,
    .vjp = no_vjp,
    .samples = uniform_samples,
};
FL_OP(normal_) = {
    .name = "normal_",
    .sig = "normal_(x, ~mean: float = 0, ~std: float = 1)",
    .nout = 1,
    .flags = FL_OP_METHOD_ONLY | FL_OP_OVERWRITES | FL_OP_RANDOM,
    .mutates = 1,
    .doc = "Fills x with normal random numbers.",
    .infer = infer_float_operand,
    .check = check_normal_,
    .sbp = sbp_same,
    .cpu = kernel_draw,
    .draw = draw_normal_,
    .vjp = no_vjp,
    .samples = uniform_samples,
};

static const char *const bernoulli__samples[] = {"flow.zeros(2, 3)", "flow.zeros(70), 0.2",
                                                 "flow.zeros(3, 4, {dtype = \"int64\"}):t(), 0.5", NULL};
FL_OP(bernoulli_) = {
    .name = "bernoulli_",
    .sig = "bernoulli_(x, ~p: float = 0.5)",
    .nout = 1,
    .flags = FL_OP_METHOD_ONLY | FL_OP_OVERWRITES | FL_OP_RANDOM,
    .mutates = 1,
    .doc = "Fills x with ones, with the probability p, and zeros.",
    .infer = fl_infer_same,
    .check = check_bernoulli_,
    .sbp = sbp_same,
    .cpu = kernel_bernoulli,
    .vjp = no_vjp,
    .samples = bernoulli__samples,
};

static fl_status check_random_(const fl_operand *in, int nin, const fl_attrs *attrs)
{
    int64_t low, high;
    fl_dtype dtype = in[0].tensor->meta->dtype;
    fl_random_range(&low, &high, attrs, dtype);
    if (!attrs->at[FL_RANDOM_FROM].given && !attrs->at[FL_RANDOM_TO].given) return FL_OK;
    if (!fl_dtype_is_float(dtype)) return check_bounds("random_", low, high, dtype);
    return check_bounds("random_", low, high, FL_INT64);
}

static fl_status kernel_random_(fl_kernel *kernel)
{
    int64_t low, high;
    fl_random_range(&low, &high, kernel->attrs, kernel->out[0].dtype);
    return fl_cpu_fill_random_integers(kernel, low, high);
}

static const char *const random__samples[] = {"flow.zeros(2, 3)",
                                              "flow.zeros(70), 10",
                                              "flow.zeros(3, 4):t(), -5, 5",
                                              "flow.zeros(9, {dtype = \"int64\"})",
                                              "flow.zeros(9, {dtype = \"uint8\"}), 3, 9",
                                              NULL};
FL_OP(random_) = {
    .name = "random_",
    .sig = "random_(x, ~from: int = nil, ~to: int = nil)",
    .nout = 1,
    .flags = FL_OP_METHOD_ONLY | FL_OP_OVERWRITES | FL_OP_RANDOM,
    .mutates = 1,
    .doc =
        "Fills x with integers from `from` to to - 1, of one number from 0 on; without bounds with all that the dtype "
        "can count from 0 on.",
    .infer = fl_infer_same,
    .check = check_random_,
    .sbp = sbp_same,
    .cpu = kernel_random_,
    .vjp = no_vjp,
    .samples = random__samples,
};

/* ---- dropout ---- */

static void draw_dropout(fl_draw *draw, const fl_kernel *kernel)
{
    double p = kernel->attrs->at[FL_DROPOUT_P].number;
    draw->kind = FL_DRAW_DROPOUT;
    draw->low = p;
    draw->range = p < 1 ? 1 / (1 - p) : 0;
    draw->key.seed = (uint64_t)kernel->attrs->at[FL_DROPOUT_SEED].integer;
    draw->key.counter = (uint64_t)kernel->attrs->at[FL_DROPOUT_COUNTER].integer;
}

/* The mask depends on the logical position, so all parts have the same one: linear in x. */
static void sbp_dropout(fl_sigs *sigs)
{
    fl_sbp_except(sigs, 0);
    fl_sbp_partial(sigs, 1, FL_PSUM);
}

/* A mask is its own transpose. */
static const char *const dropout_apply_vjp[] = {"dropout_apply(g, p, seed, counter)"};
static const char *const dropout_apply_samples[] = {"flow.randn(4, 5), 0.5, 1, 2",
                                                    "flow.randn(70):narrow(0, 3, 60), 0.25, 7, 0",
                                                    "flow.randn(3, 4):t(), 1, 0, 0", NULL};
FL_OP(dropout_apply) = {
    .name = "dropout_apply",
    .sig = "dropout_apply(x, ~p: float, ~seed: int, ~counter: int)",
    .nout = 1,
    .flags = FL_OP_HIDDEN,
    .doc = "Dropout with the mask of this seed and counter; its gradient has the same mask.",
    .infer = infer_float_operand,
    .sbp = sbp_dropout,
    .cpu = kernel_draw,
    .draw = draw_dropout,
    .seed_slot = FL_DROPOUT_SEED,
    .vjp = dropout_apply_vjp,
    .samples = dropout_apply_samples,
};

static fl_status body_dropout(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *given)
{
    double p = given->at[FL_DROPOUT_P].number;
    FL_TRY(fl_require_float_tensor("dropout", "x", in[0].tensor));
    if (!(p >= 0 && p <= 1)) return fl_fail(FL_ERR_VALUE, "dropout: p %g is not between 0 and 1", p);
    if (!given->at[FL_DROPOUT_TRAINING].integer || p == 0) {
        *out = fl_tensor_ref(in[0].tensor);
        return FL_OK;
    }
    fl_generator g = fl_dispatch_draw(in[0].tensor->meta);
    fl_attrs attrs;
    fl_attrs_init(&attrs, FL_OP_REF(dropout_apply));
    fl_attr_set_number(&attrs, FL_DROPOUT_P, p);
    fl_attr_set(&attrs, FL_DROPOUT_SEED, (int64_t)g.seed);
    fl_attr_set(&attrs, FL_DROPOUT_COUNTER, (int64_t)g.counter);
    return FL_CALL_WITH(out, &attrs, dropout_apply, in[0]);
}

static const char *const dropout_samples[] = {"flow.randn(2, 3)", "flow.randn(2, 3), 0.2",
                                              "flow.randn(2, 3), 0.5, false", NULL};
FL_OP(dropout) = {
    .name = "dropout",
    .sig = "dropout(x, ~p: float = 0.5, ~training: bool = true)",
    .nout = 1,
    .doc = "Zeroes each element with probability p and scales the others by 1 / (1 - p); x itself if not training.",
    .body = body_dropout,
    .samples = dropout_samples,
};
