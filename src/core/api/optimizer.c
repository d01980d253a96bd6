/*
** optimizer.c -- optimizers of fused steps for hosts: state per parameter, and a step as one op over many of them.
**
** Parameters that differ in placement, or in the number of their steps, are updated by ops of their own. Parameters
** without a gradient are left alone; state is made at a parameter's first step.
*/
#include "api.h"
#include "base/locale.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* X(kind, name) */
#define OPTIMIZERS(X)       \
    X(SGD, "SGD")           \
    X(ADAM, "Adam")         \
    X(ADAMW, "AdamW")       \
    X(RMSPROP, "RMSprop")   \
    X(ADAGRAD, "Adagrad")   \
    X(ADADELTA, "Adadelta") \
    X(ADAMAX, "Adamax")     \
    X(NADAM, "NAdam")       \
    X(RADAM, "RAdam")       \
    X(RPROP, "Rprop")       \
    X(ASGD, "ASGD")         \
    X(LION, "Lion")         \
    X(LAMB, "LAMB")         \
    X(LARS, "LARS")

enum kind {
#define X(kind, name) kind,
    OPTIMIZERS(X)
#undef X
        KINDS
};

static const char *const kind_names[KINDS] = {
#define X(kind, name) name,
    OPTIMIZERS(X)
#undef X
};

enum { MAX_KEPT = 3 };

/* One parameter. */
struct member {
    fl_tensor *param;          /* owned */
    fl_tensor *kept[MAX_KEPT]; /* owned; NULL before the first step */
    int64_t steps;
    bool done; /* in the step that runs */
};

struct settings {
    double lr, momentum, dampening, weight_decay, beta1, beta2, eps, alpha, rho, lr_decay, initial_accumulator_value,
        momentum_decay, lambd, t0, trust_coefficient, eta_minus, eta_plus, step_size_min, step_size_max;
    bool nesterov, maximize, amsgrad, centered, decoupled_weight_decay;
};

struct flow_optimizer {
    enum kind kind;
    int count;
    struct settings settings;
    struct member members[];
};

/* ---- options ---- */

/* Kinds, a bit each. */
enum {
    OF_SGD = 1 << SGD,
    OF_RMSPROP = 1 << RMSPROP,
    OF_ADAGRAD = 1 << ADAGRAD,
    OF_ADADELTA = 1 << ADADELTA,
    OF_NADAM = 1 << NADAM,
    OF_RPROP = 1 << RPROP,
    OF_ASGD = 1 << ASGD,
    OF_LARS = 1 << LARS,
    OF_ALL = (1 << KINDS) - 1,
    OF_ADAM = 1 << ADAM | 1 << ADAMW,
    OF_MOMENTS = OF_ADAM | 1 << ADAMAX | OF_NADAM | 1 << RADAM | 1 << LAMB,
    OF_CHOICE = 1 << ADAM | OF_NADAM | 1 << RADAM
};

static const struct option {
    const char *name;
    size_t offset;
    int of;
    bool flag;
    double least, most;
} options[] = {
#define NUMBER(name, kinds, least, most)                                  \
    {                                                                     \
#name, offsetof(struct settings, name), kinds, false, least, most \
    }
#define FLAG(name, kinds)                                         \
    {                                                             \
#name, offsetof(struct settings, name), kinds, true, 0, 1 \
    }
    NUMBER(lr, OF_ALL, 0, INFINITY),
    NUMBER(weight_decay, OF_ALL & ~OF_RPROP, 0, INFINITY),
    FLAG(maximize, OF_ALL),
    NUMBER(momentum, OF_SGD | OF_RMSPROP | OF_LARS, 0, 1),
    NUMBER(dampening, OF_SGD, -INFINITY, INFINITY),
    FLAG(nesterov, OF_SGD),
    NUMBER(beta1, OF_MOMENTS | 1 << LION, 0, 1),
    NUMBER(beta2, OF_MOMENTS | 1 << LION, 0, 1),
    NUMBER(eps, OF_MOMENTS | OF_RMSPROP | OF_ADAGRAD | OF_ADADELTA | OF_LARS, 0, INFINITY),
    FLAG(amsgrad, OF_ADAM),
    FLAG(decoupled_weight_decay, OF_CHOICE),
    NUMBER(alpha, OF_RMSPROP | OF_ASGD, 0, INFINITY),
    FLAG(centered, OF_RMSPROP),
    NUMBER(lr_decay, OF_ADAGRAD, 0, INFINITY),
    NUMBER(initial_accumulator_value, OF_ADAGRAD, 0, INFINITY),
    NUMBER(rho, OF_ADADELTA, 0, 1),
    NUMBER(momentum_decay, OF_NADAM, 0, INFINITY),
    NUMBER(eta_minus, OF_RPROP, 0, 1),
    NUMBER(eta_plus, OF_RPROP, 1, INFINITY),
    NUMBER(step_size_min, OF_RPROP, 0, INFINITY),
    NUMBER(step_size_max, OF_RPROP, 0, INFINITY),
    NUMBER(lambd, OF_ASGD, 0, INFINITY),
    NUMBER(t0, OF_ASGD, 0, INFINITY),
    NUMBER(trust_coefficient, OF_LARS, 0, INFINITY),
#undef NUMBER
#undef FLAG
};
enum { OPTIONS = sizeof options / sizeof *options };

/* As in scripts (optim_rules.lua). */
static struct settings defaults_of(enum kind kind)
{
    struct settings s = {.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .alpha = 0.99, .rho = 0.9};
    switch (kind) {
    case ADAMW: s.weight_decay = 0.01; break;
    case RMSPROP: s.lr = 1e-2; break;
    case ADAGRAD:
        s.lr = 1e-2;
        s.eps = 1e-10;
        break;
    case ADADELTA:
        s.lr = 1;
        s.eps = 1e-6;
        break;
    case ADAMAX: s.lr = 2e-3; break;
    case NADAM:
        s.lr = 2e-3;
        s.momentum_decay = 4e-3;
        break;
    case RPROP:
        s.lr = 1e-2;
        s.eta_minus = 0.5;
        s.eta_plus = 1.2;
        s.step_size_min = 1e-6;
        s.step_size_max = 50;
        break;
    case ASGD:
        s.lr = 1e-2;
        s.lambd = 1e-4;
        s.alpha = 0.75;
        s.t0 = 1e6;
        break;
    case LION:
        s.lr = 1e-4;
        s.beta2 = 0.99;
        break;
    case LAMB: s.eps = 1e-6; break;
    case LARS:
        s.lr = 1e-2;
        s.momentum = 0.9;
        s.trust_coefficient = 1e-3;
        break;
    default: break;
    }
    return s;
}

static int options_of(enum kind kind) { return 1 << kind; }

static fl_status unknown_option(enum kind kind, const char *name)
{
    const char *best = NULL;
    int least = 99;
    for (int i = 0; i < OPTIONS; i++) {
        int distance = fl_suggest_distance(name, options[i].name);
        if (!(options[i].of & options_of(kind)) || distance < 0 || distance >= least) continue;
        least = distance;
        best = options[i].name;
    }
    return fl_fail(FL_ERR_VALUE, "%s: unknown option '%s'%s%s%s", kind_names[kind], name,
                   best ? "; did you mean '" : "", best ? best : "", best ? "'?" : "");
}

static fl_status set_option(struct settings *settings, enum kind kind, const char *name, const char *value,
                            uint64_t *given)
{
    const struct option *o = NULL;
    for (int i = 0; i < OPTIONS; i++)
        if (strcmp(options[i].name, name) == 0 && options[i].of & options_of(kind)) o = &options[i];
    if (!o) return unknown_option(kind, name);
    const uint64_t bit = (uint64_t)1 << (o - options);
    if (*given & bit) return fl_fail(FL_ERR_VALUE, "%s: %s is given twice", kind_names[kind], name);
    *given |= bit;
    char *end, *place = (char *)settings + o->offset;
    double number = fl_plain_number(value, &end);
    if (o->flag) {
        bool on = strcmp(value, "true") == 0;
        if (!on && strcmp(value, "false") != 0)
            return fl_fail(FL_ERR_VALUE, "%s: %s must be true or false, got '%s'", kind_names[kind], name, value);
        *(bool *)place = on;
        return FL_OK;
    }
    if (end == value || *end || isnan(number))
        return fl_fail(FL_ERR_VALUE, "%s: %s must be a number, got '%s'", kind_names[kind], name, value);
    if (number < o->least || number > o->most || (number == 1 && strncmp(name, "beta", 4) == 0))
        return fl_fail(FL_ERR_VALUE, "%s: %s=%g is out of its range", kind_names[kind], name, number);
    *(double *)place = number;
    return FL_OK;
}

/* Copies what lies before `stop`, without spaces around it; returns what follows. */
static const char *read_word(char *word, size_t size, const char *at, const char *stop)
{
    while (isspace((unsigned char)*at)) at++;
    size_t n = strcspn(at, stop), used = n;
    while (used && isspace((unsigned char)at[used - 1])) used--;
    if (used >= size) used = size - 1;
    memcpy(word, at, used);
    word[used] = '\0';
    return at + n;
}

/* "lr=1e-3, weight_decay=0.1" */
static fl_status read_settings(struct settings *settings, enum kind kind, const char *text)
{
    char name[40], value[40], shown[FL_SHOWN_TEXT];
    uint64_t given = 0; /* options, a bit each */
    while (text && *text) {
        const char *at = read_word(name, sizeof name, text, "=,");
        if (*at != '=')
            return fl_fail(FL_ERR_VALUE, "%s: options are written \"lr=1e-3, weight_decay=0.1\", got '%s'",
                           kind_names[kind], fl_text_name(shown, text));
        at = read_word(value, sizeof value, at + 1, ",");
        FL_TRY(set_option(settings, kind, fl_text_name(shown, name), value, &given));
        text = *at ? at + 1 : at;
    }
    if (settings->nesterov && (settings->momentum == 0 || settings->dampening != 0))
        return fl_fail(FL_ERR_VALUE, "%s: nesterov needs momentum and no dampening", kind_names[kind]);
    return FL_OK;
}

/* ---- making ---- */

static fl_status find_kind(enum kind *out, const char *name)
{
    char shown[FL_SHOWN_TEXT];
    for (int k = 0; k < KINDS; k++)
        if (strcmp(name, kind_names[k]) == 0) {
            *out = (enum kind)k;
            return FL_OK;
        }
    char known[160] = "";
    for (int k = 0; k < KINDS; k++)
        snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s", k ? ", " : "", kind_names[k]);
    return fl_fail(FL_ERR_VALUE, "flow_optimizer_new: there is no optimizer '%s'; there are %s",
                   fl_text_name(shown, name), known);
}

static fl_status check_params(flow_tensor *const *params, int count)
{
    for (int i = 0; i < count; i++) {
        fl_tensor *p = fl_api_in(params[i]);
        if (!p) return fl_fail(FL_ERR_VALUE, "flow_optimizer_new: parameter %d is NULL", i);
        if (!fl_dtype_is_float(p->meta->dtype))
            return fl_fail(
                FL_ERR_DTYPE,
                "flow_optimizer_new: parameter %d is of dtype %s; only floating-point tensors have gradients", i,
                fl_dtype_name(p->meta->dtype));
        if (!fl_autograd_is_leaf(p))
            return fl_fail(FL_ERR_STATE, "flow_optimizer_new: parameter %d is not a leaf: it was computed", i);
        for (int j = 0; j < i; j++)
            if (params[j] == params[i])
                return fl_fail(FL_ERR_VALUE, "flow_optimizer_new: parameters %d and %d are the same", j, i);
    }
    return FL_OK;
}

flow_status flow_optimizer_new(flow_optimizer **out, const char *kind_name, flow_tensor *const *params, int count,
                               const char *text)
{
    enum kind kind = SGD;
    FL_API_ENTER("flow_optimizer_new");
    FL_API_TRY(fl_api_need(out, "flow_optimizer_new", "out"));
    FL_API_TRY(fl_api_need(kind_name, "flow_optimizer_new", "kind"));
    FL_API_TRY(find_kind(&kind, kind_name));
    if (count < 1) return (flow_status)fl_fail(FL_ERR_VALUE, "flow_optimizer_new: it needs parameters, got %d", count);
    FL_API_TRY(fl_api_need(params, "flow_optimizer_new", "params"));
    FL_API_TRY(check_params(params, count));
    struct settings settings = defaults_of(kind);
    FL_API_TRY(read_settings(&settings, kind, text));
    flow_optimizer *o = calloc(1, sizeof *o + sizeof *o->members * (size_t)count);
    if (!o) return (flow_status)fl_fail(FL_ERR_MEMORY, "flow_optimizer_new: out of memory");
    o->kind = kind;
    o->count = count;
    o->settings = settings;
    for (int i = 0; i < count; i++) o->members[i].param = fl_tensor_ref(fl_api_in(params[i]));
    *out = o;
    return FLOW_OK;
}

void flow_optimizer_free(flow_optimizer *optimizer)
{
    if (!optimizer) return;
    for (int i = 0; i < optimizer->count; i++) {
        struct member *m = &optimizer->members[i];
        for (int k = 0; k < MAX_KEPT; k++) fl_tensor_release(m->kept[k]);
        fl_tensor_release(m->param);
    }
    free(optimizer);
}

/* ---- steps ---- */

static const fl_op *step_of(const flow_optimizer *optimizer)
{
    const struct settings *s = &optimizer->settings;
    switch (optimizer->kind) {
    case SGD: return s->momentum != 0 ? FL_OP_REF(sgd_step) : FL_OP_REF(sgd_plain_step);
    case RMSPROP:
        if (s->centered) return s->momentum != 0 ? FL_OP_REF(rmsprop_both_step) : FL_OP_REF(rmsprop_centered_step);
        return s->momentum != 0 ? FL_OP_REF(rmsprop_momentum_step) : FL_OP_REF(rmsprop_step);
    case ADAGRAD: return FL_OP_REF(adagrad_step);
    case ADADELTA: return FL_OP_REF(adadelta_step);
    case ADAMAX: return FL_OP_REF(adamax_step);
    case NADAM: return FL_OP_REF(nadam_step);
    case RADAM: return FL_OP_REF(radam_step);
    case RPROP: return FL_OP_REF(rprop_step);
    case ASGD: return FL_OP_REF(asgd_step);
    case LION: return FL_OP_REF(lion_step);
    case LAMB: return FL_OP_REF(lamb_step);
    case LARS: return FL_OP_REF(lars_step);
    default: return s->amsgrad ? FL_OP_REF(amsgrad_step) : FL_OP_REF(adamw_step);
    }
}

/* The op of the sums of squares that a step's last list holds; NULL: there is no such list. */
static const fl_op *norms_of(const flow_optimizer *optimizer)
{
    switch (optimizer->kind) {
    case LAMB: return FL_OP_REF(lamb_norms);
    case LARS: return FL_OP_REF(lars_norms);
    default: return NULL;
    }
}

static int kept_count(const flow_optimizer *optimizer)
{
    return step_of(optimizer)->groups - 2 - (norms_of(optimizer) != NULL);
}

/* The initial value of kept tensor k. */
static double initial_of(const flow_optimizer *optimizer, int k)
{
    if (optimizer->kind == ADAGRAD) return optimizer->settings.initial_accumulator_value;
    return optimizer->kind == RPROP && k == 1 ? optimizer->settings.lr : 0;
}

static fl_status make_state(const flow_optimizer *optimizer, struct member *member)
{
    fl_tensor *plain;
    int count = kept_count(optimizer);
    if (member->kept[0] || count == 0) return FL_OK;
    FL_TRY(fl_tensor_detach(&plain, member->param));
    fl_status status = FL_OK;
    for (int k = 0; k < count && status == FL_OK; k++) {
        double initial = initial_of(optimizer, k);
        if (initial == 0) status = FL_CALL(&member->kept[k], zeros_like, fl_of(plain));
        else {
            fl_attrs attrs;
            fl_attrs_init(&attrs, FL_OP_REF(full_like));
            fl_attr_set_number(&attrs, FL_FILL_VALUE, initial);
            status = FL_CALL_WITH(&member->kept[k], &attrs, full_like, fl_of(plain));
        }
    }
    fl_tensor_unref(plain);
    return status;
}

static void set(fl_attrs *attrs, const fl_op *op, const char *name, double value)
{
    const fl_signature *s = fl_op_signature(op);
    for (int i = 0; i < s->param_count; i++) {
        const fl_param *p = &s->params[i];
        if (p->is_tensor || strcmp(p->name, name) != 0) continue;
        if (p->type == FL_ATTR_FLOAT) fl_attr_set_number(attrs, p->slot, value);
        else fl_attr_set(attrs, p->slot, (int64_t)value);
    }
}

/* The attributes of an op of step number `step`; names that it does not have are left out. */
static void set_all(fl_attrs *attrs, const fl_op *op, const flow_optimizer *optimizer, int64_t step)
{
    const struct settings *s = &optimizer->settings;
    bool decoupled = optimizer->kind == ADAMW || optimizer->kind == LION || s->decoupled_weight_decay;
    const struct {
        const char *name;
        double value;
    } values[] = {{"lr", s->lr},
                  {"weight_decay", s->weight_decay},
                  {"maximize", s->maximize},
                  {"momentum", s->momentum},
                  {"dampening", s->dampening},
                  {"nesterov", s->nesterov},
                  {"first", step == 1},
                  {"beta1", s->beta1},
                  {"beta2", s->beta2},
                  {"eps", s->eps},
                  {"step", (double)step},
                  {"decoupled", decoupled},
                  {"alpha", s->alpha},
                  {"rho", s->rho},
                  {"lr_decay", s->lr_decay},
                  {"momentum_decay", s->momentum_decay},
                  {"shrink", s->eta_minus},
                  {"grow", s->eta_plus},
                  {"least", s->step_size_min},
                  {"most", s->step_size_max},
                  {"lambd", s->lambd},
                  {"t0", s->t0},
                  {"trust_coefficient", s->trust_coefficient}};
    fl_attrs_init(attrs, op);
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) set(attrs, op, values[i].name, values[i].value);
}

/* An op that writes some of its operands. */
static fl_status run_step(const fl_op *op, const flow_optimizer *optimizer, int64_t step, const fl_operand *in, int nin)
{
    fl_tensor *out[FL_MAX_OUT] = {NULL};
    fl_attrs attrs;
    set_all(&attrs, op, optimizer, step);
    FL_TRY(fl_dispatch(out, op, in, nin, &attrs));
    for (int i = 0; i < op->nout; i++) fl_tensor_unref(out[i]);
    return FL_OK;
}

/* ---- rates by norms ---- */

/* A group of parameters in its step: `count` operands in each of the lists of `in`. sums: the last list, owned. */
struct group {
    const flow_optimizer *optimizer;
    int64_t step;
    fl_operand *in;
    int count;
    fl_tensor **sums;
};

static bool split_alike(const fl_operand *x, const fl_operand *y)
{
    return fl_nd_sbp_equal(x->tensor->meta->nd_sbp, y->tensor->meta->nd_sbp);
}

/* Row `row` of the sums, which are whole on every rank. */
static fl_status take_row(fl_tensor **out, fl_tensor *rows, int64_t row)
{
    fl_attrs attrs;
    fl_attrs_init(&attrs, FL_OP_REF(select));
    set(&attrs, FL_OP_REF(select), "axis", 0);
    set(&attrs, FL_OP_REF(select), "index", (double)row);
    return FL_CALL_WITH(out, &attrs, select, fl_of(rows));
}

/* Sums over parts of global tensors are partial. */
static fl_status add_up(fl_tensor **out, fl_tensor *rows)
{
    const fl_meta *meta = rows->meta;
    if (!meta->is_local)
        return fl_to_global(out, rows, meta->placement, fl_nd_sbp_fill(FL_B, meta->placement->ndim), NULL);
    *out = fl_tensor_ref(rows);
    return FL_OK;
}

/* The sums of the parameters that are split as the first one is: `alike` of them, whose positions are in `at`. */
static fl_status sum_alike(struct group *group, const int *at, int alike, fl_operand *in)
{
    const fl_op *op = norms_of(group->optimizer);
    fl_tensor *rows = NULL, *whole = NULL;
    fl_attrs attrs;
    for (int k = 0; k < op->groups; k++)
        for (int i = 0; i < alike; i++) in[k * alike + i] = group->in[k * group->count + at[i]];
    set_all(&attrs, op, group->optimizer, group->step);
    FL_TRY(fl_dispatch(&rows, op, in, op->groups * alike, &attrs));
    fl_status status = add_up(&whole, rows);
    for (int i = 0; i < alike && status == FL_OK; i++) status = take_row(&group->sums[at[i]], whole, i);
    fl_tensor_unref(rows);
    if (whole) fl_tensor_unref(whole);
    return status;
}

/* The sums of squares of all parameters and of their updates: by an op for those that are split alike. `at` and `in`
** have room for all. */
static fl_status sum_all(struct group *group, int *at, fl_operand *in)
{
    for (int first = 0; first < group->count; first++) {
        int alike = 0;
        if (group->sums[first]) continue;
        for (int i = first; i < group->count; i++)
            if (split_alike(&group->in[i], &group->in[first])) at[alike++] = i;
        FL_TRY(sum_alike(group, at, alike, in));
    }
    return FL_OK;
}

/* LAMB's moments of the step come before the norms of its update. */
static fl_status run_trusted(struct group *group)
{
    const fl_op *op = step_of(group->optimizer);
    int count = group->count, lists = op->groups;
    if (group->optimizer->kind == LAMB)
        FL_TRY(run_step(FL_OP_REF(lamb_moments_step), group->optimizer, group->step, group->in, (lists - 1) * count));
    fl_operand *in = malloc(sizeof *in * (size_t)(lists * count));
    int *at = malloc(sizeof *at * (size_t)count);
    group->sums = calloc((size_t)count, sizeof *group->sums);
    fl_status status = in && at && group->sums ? sum_all(group, at, in)
                                               : fl_fail(FL_ERR_MEMORY, "flow_step: out of memory");
    if (status == FL_OK) {
        for (int i = 0; i < count; i++) group->in[(lists - 1) * count + i] = fl_of(group->sums[i]);
        status = run_step(op, group->optimizer, group->step, group->in, lists * count);
    }
    for (int i = 0; group->sums && i < count; i++) fl_tensor_release(group->sums[i]);
    free(group->sums);
    free(at);
    free(in);
    return status;
}

/* ---- groups ---- */

static bool belongs(const struct member *member, const struct member *first)
{
    return !member->done && fl_autograd_grad_of(member->param) && member->steps == first->steps
        && member->param->meta->placement == first->param->meta->placement
        && member->param->meta->is_local == first->param->meta->is_local;
}

/* Updates all that belong to the first one by one op: params, gradients, kept tensors, each a list. */
static fl_status step_group(flow_optimizer *optimizer, int first, fl_operand *in)
{
    int count = 0, at = 0, lists = 2 + kept_count(optimizer);
    struct member *m = optimizer->members, *f = &m[first];
    for (int i = first; i < optimizer->count; i++) count += belongs(&m[i], f);
    for (int i = first; i < optimizer->count; i++) {
        if (i != first && !belongs(&m[i], f)) continue;
        FL_TRY(make_state(optimizer, &m[i]));
        in[at] = fl_of(m[i].param);
        in[count + at] = fl_of(fl_autograd_grad_of(m[i].param));
        for (int k = 0; k < lists - 2; k++) in[(2 + k) * count + at] = fl_of(m[i].kept[k]);
        at++;
    }
    struct group group = {.optimizer = optimizer, .step = f->steps + 1, .in = in, .count = count};
    if (norms_of(optimizer)) FL_TRY(run_trusted(&group));
    else FL_TRY(run_step(step_of(optimizer), optimizer, group.step, in, lists * count));
    for (int i = optimizer->count - 1; i >= first; i--) /* the first one last: others are compared with it */
        if (i == first || belongs(&m[i], f)) m[i].done = true;
    return FL_OK;
}

/* A step that can change nothing was not meant. */
static fl_status check_gradients(const flow_optimizer *optimizer)
{
    bool wanted = false;
    for (int i = 0; i < optimizer->count; i++) {
        if (fl_autograd_grad_of(optimizer->members[i].param)) return FL_OK;
        wanted |= optimizer->members[i].param->requires_grad;
    }
    return fl_fail(FL_ERR_STATE, "flow_step: no parameter has a gradient%s",
                   wanted ? "; call flow_backward before" : ", and none requires one; call flow_require_grad");
}

static fl_status step_all(flow_optimizer *optimizer)
{
    FL_TRY(check_gradients(optimizer));
    fl_operand *in = malloc(sizeof *in * (2 + MAX_KEPT) * (size_t)optimizer->count);
    fl_status status = in ? FL_OK : fl_fail(FL_ERR_MEMORY, "flow_step: out of memory");
    for (int i = 0; i < optimizer->count; i++) optimizer->members[i].done = false;
    for (int i = 0; i < optimizer->count && status == FL_OK; i++)
        if (!optimizer->members[i].done && fl_autograd_grad_of(optimizer->members[i].param))
            status = step_group(optimizer, i, in);
    for (int i = 0; i < optimizer->count; i++) optimizer->members[i].steps += optimizer->members[i].done;
    free(in);
    return status;
}

flow_status flow_step(flow_optimizer *optimizer)
{
    FL_API_ENTER("flow_step");
    FL_API_TRY(fl_api_need(optimizer, "flow_step", "optimizer"));
    bool recording = fl_record_pause();
    fl_status status = step_all(optimizer);
    fl_record_resume(recording);
    return fl_api_leave(status);
}

flow_status flow_zero_grad(flow_optimizer *optimizer)
{
    FL_API_ENTER("flow_zero_grad");
    FL_API_TRY(fl_api_need(optimizer, "flow_zero_grad", "optimizer"));
    for (int i = 0; i < optimizer->count; i++) FL_API_TRY(fl_autograd_set_grad(optimizer->members[i].param, NULL));
    return FLOW_OK;
}

flow_status flow_set_lr(flow_optimizer *optimizer, double lr)
{
    FL_API_ENTER("flow_set_lr");
    FL_API_TRY(fl_api_need(optimizer, "flow_set_lr", "optimizer"));
    if (!(lr >= 0)) return (flow_status)fl_fail(FL_ERR_VALUE, "flow_set_lr: lr must be at least 0, got %g", lr);
    optimizer->settings.lr = lr;
    return FLOW_OK;
}
