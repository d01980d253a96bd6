/*
** optim.h -- the optimizers' steps: the table of rules, their groups of operands, attributes and numbers. Shared by the
** kernels of the CPU and of devices.
**
** A step updates parameters, gradients and kept tensors element by element, by a rule: a row of FL_STEP_RULES and the
** formula of that name in optim_rules.inc. The numbers of a formula (fl_step) are made from the attributes once per
** call. Rules with a trust ratio (LAMB, LARS) have one number more per parameter, from two sums of squares that an op
** of its own has computed before.
*/
#ifndef FL_OPTIM_H
#define FL_OPTIM_H

#include "view.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

/* Groups of operands: the first two of all steps; then kept tensors. */
enum {
    FL_STEP_PARAMETERS,
    FL_STEP_GRADIENTS,
    FL_STEP_STATES,        /* the first of them */
    FL_STEP_MAX_GROUPS = 5 /* that a formula sees */
};

/* X(op, groups that the formula sees, those that it writes as bits, numbers made by, trust) */
#define FL_STEP_RULES(X)                                \
    X(sgd_plain_step, 2, 1, plain, 0)                   \
    X(sgd_step, 3, 1 | 4, sgd, 0)                       \
    X(adamw_step, 4, 1 | 4 | 8, moments, 0)             \
    X(amsgrad_step, 5, 1 | 4 | 8 | 16, moments, 0)      \
    X(adamax_step, 4, 1 | 4 | 8, moments, 0)            \
    X(nadam_step, 4, 1 | 4 | 8, nadam, 0)               \
    X(radam_step, 4, 1 | 4 | 8, radam, 0)               \
    X(lion_step, 3, 1 | 4, moments, 0)                  \
    X(rmsprop_step, 3, 1 | 4, rmsprop, 0)               \
    X(rmsprop_momentum_step, 4, 1 | 4 | 8, rmsprop, 0)  \
    X(rmsprop_centered_step, 4, 1 | 4 | 8, rmsprop, 0)  \
    X(rmsprop_both_step, 5, 1 | 4 | 8 | 16, rmsprop, 0) \
    X(adagrad_step, 3, 1 | 4, adagrad, 0)               \
    X(adadelta_step, 4, 1 | 4 | 8, adadelta, 0)         \
    X(rprop_step, 4, 1 | 4 | 8, rprop, 0)               \
    X(asgd_step, 3, 1 | 4, asgd, 0)                     \
    X(lamb_moments_step, 4, 4 | 8, moments, 0)          \
    X(lamb_step, 4, 1, moments, 1)                      \
    X(lars_step, 3, 1 | 4, lars, 1)                     \
    X(scale_step, 1, 1, scale, 0)

/* Those with a trust ratio. */
#define FL_STEP_TRUSTED(X) X(lamb_step) X(lars_step)

/* X(op, groups, numbers made by): two sums of squares for each parameter, of the values that the formula of that name
** gives. */
#define FL_STEP_NORMS(X)      \
    X(lamb_norms, 4, moments) \
    X(lars_norms, 2, lars)

typedef enum fl_step_rule {
#define X(name, groups, written, numbers, trust) FL_RULE_##name,
    FL_STEP_RULES(X)
#undef X
        FL_STEP_RULE_COUNT
} fl_step_rule;

typedef enum fl_step_norm {
#define X(name, groups, numbers) FL_NORM_##name,
    FL_STEP_NORMS(X)
#undef X
        FL_STEP_NORM_COUNT
} fl_step_norm;

/* Groups of operands of the whole op, with that of the trust ratio; those that it writes. */
enum {
#define X(name, groups, written, make, trust) FL_GROUPS_##name = groups + trust, FL_WRITES_##name = written,
    FL_STEP_RULES(X)
#undef X
};

/* Attributes, by what makes the numbers. */
enum { FL_PLAIN_LR, FL_PLAIN_DECAY, FL_PLAIN_MAXIMIZE };
enum { FL_SGD_LR, FL_SGD_MOMENTUM, FL_SGD_DAMPENING, FL_SGD_DECAY, FL_SGD_NESTEROV, FL_SGD_FIRST, FL_SGD_MAXIMIZE };
enum {
    FL_ADAM_LR,
    FL_ADAM_BETA1,
    FL_ADAM_BETA2,
    FL_ADAM_EPS,
    FL_ADAM_DECAY,
    FL_ADAM_STEP,
    FL_ADAM_DECOUPLED,
    FL_ADAM_MAXIMIZE,
    FL_NADAM_MOMENTUM_DECAY
};
enum { FL_RMS_LR, FL_RMS_ALPHA, FL_RMS_EPS, FL_RMS_DECAY, FL_RMS_MOMENTUM, FL_RMS_MAXIMIZE };
enum { FL_GRAD_LR, FL_GRAD_LR_DECAY, FL_GRAD_DECAY, FL_GRAD_EPS, FL_GRAD_STEP, FL_GRAD_MAXIMIZE };
enum { FL_DELTA_LR, FL_DELTA_RHO, FL_DELTA_EPS, FL_DELTA_DECAY, FL_DELTA_MAXIMIZE };
enum { FL_RPROP_SHRINK, FL_RPROP_GROW, FL_RPROP_LEAST, FL_RPROP_MOST, FL_RPROP_MAXIMIZE };
enum { FL_ASGD_LR, FL_ASGD_LAMBD, FL_ASGD_ALPHA, FL_ASGD_T0, FL_ASGD_DECAY, FL_ASGD_STEP, FL_ASGD_MAXIMIZE };
enum { FL_LARS_LR, FL_LARS_MOMENTUM, FL_LARS_DECAY, FL_LARS_TRUST, FL_LARS_EPS, FL_LARS_MAXIMIZE };
enum { FL_SCALE_FACTOR };
enum { FL_CLIP_MAX_NORM };

/* clip_scale_: the gradients, and the norm once for each. */
enum { FL_CLIP_GRADIENTS, FL_CLIP_NORMS, FL_CLIP_GROUPS };

/* The numbers of one step, ready to be used by formulas.
**   sign            -1 to maximize
**   decay, shrink   decay * p is added to the gradient; p is multiplied by shrink
**   keep1, rest1    of the first average: keep1 * average + rest1 * x; keep2, rest2 of the second
**   rate, next      factor of the update; of NAdam's second part, and RAdam's without a variance
**   root, eps       1 / sqrt of the second average's correction; the addend of its root
**   damping, ahead, along    SGD: buffer = keep1 * buffer + damping * g, update = ahead * g + along * buffer
**   least, most     bounds of Rprop's steps
**   coefficient     of LARS's ratio; trust: the ratio itself, set per parameter */
#define FL_STEP_NUMBERS(X) \
    X(sign)                \
    X(decay)               \
    X(shrink)              \
    X(keep1)               \
    X(rest1)               \
    X(keep2)               \
    X(rest2)               \
    X(rate)                \
    X(next)                \
    X(root)                \
    X(eps)                 \
    X(momentum)            \
    X(damping)             \
    X(ahead)               \
    X(along)               \
    X(least)               \
    X(most)                \
    X(coefficient)         \
    X(trust)

typedef struct fl_step {
#define X(name) double name;
    FL_STEP_NUMBERS(X)
#undef X
} fl_step;

/* ---- numbers from attributes ---- */

static inline void fl_step_plain(fl_step *step, const fl_attr *attr)
{
    step->sign = attr[FL_PLAIN_MAXIMIZE].integer ? -1 : 1;
    step->decay = attr[FL_PLAIN_DECAY].number;
    step->rate = attr[FL_PLAIN_LR].number;
}

/* first: the buffers' contents (finite) do not count yet; they become the gradients. */
static inline void fl_step_sgd(fl_step *step, const fl_attr *attr)
{
    bool nesterov = attr[FL_SGD_NESTEROV].integer, first = attr[FL_SGD_FIRST].integer;
    step->sign = attr[FL_SGD_MAXIMIZE].integer ? -1 : 1;
    step->decay = attr[FL_SGD_DECAY].number;
    step->rate = attr[FL_SGD_LR].number;
    step->keep1 = first ? 0 : attr[FL_SGD_MOMENTUM].number;
    step->damping = first ? 1 : 1 - attr[FL_SGD_DAMPENING].number;
    step->ahead = nesterov ? 1 : 0;
    step->along = nesterov ? attr[FL_SGD_MOMENTUM].number : 1;
}

static inline void fl_step_moments(fl_step *s, const fl_attr *attr)
{
    double lr = attr[FL_ADAM_LR].number, beta1 = attr[FL_ADAM_BETA1].number, beta2 = attr[FL_ADAM_BETA2].number;
    double decay = attr[FL_ADAM_DECAY].number, step = (double)attr[FL_ADAM_STEP].integer;
    bool decoupled = attr[FL_ADAM_DECOUPLED].integer;
    s->sign = attr[FL_ADAM_MAXIMIZE].integer ? -1 : 1;
    s->decay = decoupled ? 0 : decay;
    s->shrink = decoupled ? 1 - lr * decay : 1;
    s->keep1 = beta1;
    s->rest1 = 1 - beta1;
    s->keep2 = beta2;
    s->rest2 = 1 - beta2;
    s->eps = attr[FL_ADAM_EPS].number;
    s->next = lr;
    s->rate = lr / (1 - pow(beta1, step));
    s->root = 1 / sqrt(1 - pow(beta2, step));
}

/* The product of all momenta up to this step; one that is 0 beside 1 stays so. */
static inline double fl_nadam_product(double beta1, double decay, int64_t step)
{
    double by = pow(0.96, decay), power = 1, product = 1;
    for (int64_t t = 1; t <= step && product > 1e-20; t++) product *= beta1 * (1 - 0.5 * (power *= by));
    return product;
}

static inline void fl_step_nadam(fl_step *s, const fl_attr *attr)
{
    double lr = attr[FL_ADAM_LR].number, beta1 = attr[FL_ADAM_BETA1].number,
           decay = attr[FL_NADAM_MOMENTUM_DECAY].number;
    double step = (double)attr[FL_ADAM_STEP].integer, now = beta1 * (1 - 0.5 * pow(0.96, step * decay));
    double next = beta1 * (1 - 0.5 * pow(0.96, (step + 1) * decay));
    double product = fl_nadam_product(beta1, decay, attr[FL_ADAM_STEP].integer);
    fl_step_moments(s, attr);
    s->rate = lr * (1 - now) / (1 - product);
    s->next = lr * next / (1 - product * next);
}

/* The variance counts once its estimate has a length of more than 5. */
static inline void fl_step_radam(fl_step *s, const fl_attr *attr)
{
    double beta2 = attr[FL_ADAM_BETA2].number, step = (double)attr[FL_ADAM_STEP].integer, power = pow(beta2, step);
    double limit = 2 / (1 - beta2) - 1, length = limit - 2 * step * power / (1 - power);
    fl_step_moments(s, attr);
    s->next = s->rate;
    s->rate = 0;
    if (!(length > 5)) return;
    s->rate = s->next * sqrt((length - 4) * (length - 2) * limit / ((limit - 4) * (limit - 2) * length))
        * sqrt(1 - power);
    s->next = 0;
}

static inline void fl_step_rmsprop(fl_step *step, const fl_attr *attr)
{
    step->sign = attr[FL_RMS_MAXIMIZE].integer ? -1 : 1;
    step->decay = attr[FL_RMS_DECAY].number;
    step->rate = attr[FL_RMS_LR].number;
    step->keep1 = attr[FL_RMS_ALPHA].number;
    step->rest1 = 1 - step->keep1;
    step->eps = attr[FL_RMS_EPS].number;
    step->momentum = attr[FL_RMS_MOMENTUM].number;
}

static inline void fl_step_adagrad(fl_step *step, const fl_attr *attr)
{
    step->sign = attr[FL_GRAD_MAXIMIZE].integer ? -1 : 1;
    step->decay = attr[FL_GRAD_DECAY].number;
    step->eps = attr[FL_GRAD_EPS].number;
    step->rate = attr[FL_GRAD_LR].number
        / (1 + (double)(attr[FL_GRAD_STEP].integer - 1) * attr[FL_GRAD_LR_DECAY].number);
}

static inline void fl_step_adadelta(fl_step *step, const fl_attr *attr)
{
    step->sign = attr[FL_DELTA_MAXIMIZE].integer ? -1 : 1;
    step->decay = attr[FL_DELTA_DECAY].number;
    step->rate = attr[FL_DELTA_LR].number;
    step->eps = attr[FL_DELTA_EPS].number;
    step->keep1 = attr[FL_DELTA_RHO].number;
    step->rest1 = 1 - step->keep1;
}

static inline void fl_step_rprop(fl_step *step, const fl_attr *attr)
{
    step->sign = attr[FL_RPROP_MAXIMIZE].integer ? -1 : 1;
    step->keep1 = attr[FL_RPROP_SHRINK].number;
    step->keep2 = attr[FL_RPROP_GROW].number;
    step->least = attr[FL_RPROP_LEAST].number;
    step->most = attr[FL_RPROP_MOST].number;
}

static inline void fl_step_asgd(fl_step *step, const fl_attr *attr)
{
    double lr = attr[FL_ASGD_LR].number, lambd = attr[FL_ASGD_LAMBD].number,
           done = (double)attr[FL_ASGD_STEP].integer - 1;
    step->sign = attr[FL_ASGD_MAXIMIZE].integer ? -1 : 1;
    step->decay = attr[FL_ASGD_DECAY].number;
    step->rate = lr / pow(1 + lambd * lr * done, attr[FL_ASGD_ALPHA].number);
    step->shrink = 1 - lambd * step->rate;
    step->rest1 = 1 / fmax(1, done - attr[FL_ASGD_T0].number);
    step->keep1 = 1 - step->rest1;
}

static inline void fl_step_lars(fl_step *step, const fl_attr *attr)
{
    step->sign = attr[FL_LARS_MAXIMIZE].integer ? -1 : 1;
    step->decay = attr[FL_LARS_DECAY].number;
    step->rate = attr[FL_LARS_LR].number;
    step->momentum = attr[FL_LARS_MOMENTUM].number;
    step->coefficient = attr[FL_LARS_TRUST].number;
    step->eps = attr[FL_LARS_EPS].number;
}

static inline void fl_step_scale(fl_step *step, const fl_attr *attr) { step->rate = attr[FL_SCALE_FACTOR].number; }

static inline fl_step fl_step_of(fl_step_rule rule, const fl_attr *attr)
{
    fl_step s;
    memset(&s, 0, sizeof s);
    switch (rule) {
#define X(name, groups, written, make, trust) \
    case FL_RULE_##name: fl_step_##make(&s, attr); break;
        FL_STEP_RULES(X)
#undef X
    default: break;
    }
    return s;
}

static inline fl_step fl_step_of_norm(fl_step_norm norm, const fl_attr *attr)
{
    fl_step s;
    memset(&s, 0, sizeof s);
    switch (norm) {
#define X(name, groups, make) \
    case FL_NORM_##name: fl_step_##make(&s, attr); break;
        FL_STEP_NORMS(X)
#undef X
    default: break;
    }
    return s;
}

#endif
