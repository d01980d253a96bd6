/*
** infer.c -- building a plan: shapes and dtypes, the SBP, metas, the kernel.
**
** Runs once per key (plan_cache.c keeps the result). A local tensor is broadcast on its one rank, so it needs
** no choice; a global one goes through sbp_choose.c, at world size 1 too.
*/
#include "infer_internal.h"
#include "cpu/elementwise.h"
#include "op/formula.h"
#include "op/outside.h"
#include "ranks/journal.h"

#include <stdio.h>
#include <stdlib.h>

/* One inference under way. */
struct build {
    const fl_op *op;
    const fl_operand *in;
    int nin;
    const fl_attrs *attrs;
    bool in_place;
    char name[64]; /* for messages: "add_" in place */
    fl_infer c;
    fl_spec *specs;        /* nin */
    const fl_meta **metas; /* nin, borrowed; NULL for numbers and absent operands */
    fl_nd_sbp out_sbp[FL_MAX_OUT];
    fl_choice choice; /* in_sbp: nin; boxings: the plan's */
    const fl_placement *placement;
    bool is_local;
};

void fl_spec_of(fl_spec *out, const fl_operand *in)
{
    *out = (fl_spec){.kind = in->kind};
    if (in->kind == FL_TENSOR) {
        out->dtype = in->tensor->meta->dtype;
        out->shape = in->tensor->meta->shape;
    } else if (in->kind != FL_NONE)
        out->dtype = in->kind == FL_NUM_BOOL ? FL_BOOL : in->kind == FL_NUM_INT ? FL_INT64 : fl_dtype_default;
}

/* ---- placements of the operands ---- */

/* The name for messages; for a hidden op that of its public function, set by its inference. */
static const char *spoken_name(const struct build *build)
{
    fl_infer c = {.op = build->op,
                  .name = build->name,
                  .attrs = build->attrs,
                  .in = build->specs,
                  .nin = build->nin,
                  .nout = build->op->nout};
    if (build->op->flags & FL_OP_HIDDEN) fl_op_infer(&c); /* errors of shapes are ignored here */
    return c.name;
}

/* Operands a and b, one local and one global. */
static fl_status fail_mixed(const struct build *build, int first, int other)
{
    int local = build->metas[first]->is_local ? first : other, global = local == first ? other : first;
    char ln[FL_OPERAND_NAME], gn[FL_OPERAND_NAME], lt[FL_META_TEXT], gt[FL_META_TEXT], sbp[FL_ND_SBP_SOURCE];
    fl_operand_name(ln, build->op, local);
    fl_operand_name(gn, build->op, global);
    return fl_fail(
        FL_ERR_SBP,
        "%s: %s is a local tensor (%s) and %s is global (%s); write %s:to_global{placement = %s.placement, sbp = %s}",
        spoken_name(build), ln, fl_meta_text(lt, build->metas[local]), gn, fl_meta_text(gt, build->metas[global]), ln,
        gn, fl_nd_sbp_source(sbp, fl_nd_sbp_fill(FL_B, build->metas[global]->nd_sbp.n)));
}

/* Local operands on two devices, or global ones on two placements. */
static fl_status fail_placements(const struct build *build, int first, int other)
{
    const fl_meta *f = build->metas[first], *o = build->metas[other];
    char fn[FL_OPERAND_NAME], on[FL_OPERAND_NAME], ft[FL_META_TEXT], ot[FL_META_TEXT], sbp[FL_ND_SBP_SOURCE],
        option[FL_ND_SBP_SOURCE + 16] = "";
    fl_operand_name(fn, build->op, first);
    fl_operand_name(on, build->op, other);
    if (build->is_local) {
        /* an operand left on the CPU should move, but not one that is written; nothing moves from FL_META */
        char fd[FL_DEVICE_TEXT], od[FL_DEVICE_TEXT];
        bool likely = (f->placement->type == FL_CPU || o->placement->type == FL_META) && f->placement->type != FL_META;
        bool first_moves = likely && !build->in_place && !(build->op->mutates & 1u << first);
        return fl_fail(FL_ERR_SBP, "%s: %s is on %s and %s on %s; write %s:to(%s.device)", spoken_name(build), fn,
                       fl_placement_device_text(fd, f->placement), on, fl_placement_device_text(od, o->placement),
                       first_moves ? fn : on, first_moves ? on : fn);
    }
    if (f->placement->ndim != o->placement->ndim)
        snprintf(option, sizeof option, ", sbp = %s",
                 fl_nd_sbp_source(sbp, fl_nd_sbp_fit(o->nd_sbp, f->placement->ndim)));
    return fl_fail(FL_ERR_SBP, "%s: %s is %s and %s is %s; write %s:to_global{placement = %s.placement%s}",
                   spoken_name(build), on, fl_meta_text(ot, o), fn, fl_meta_text(ft, f), on, fn, option);
}

/* All tensor operands share one placement, or are boxed to that of the first where the op says so; without any it is
** the options', or this rank. */
static fl_status find_placement(struct build *build)
{
    int first = -1;
    for (int i = 0; i < build->nin; i++) {
        const fl_meta *m = build->metas[i];
        if (!m) continue;
        if (first < 0) {
            first = i;
            build->placement = m->placement;
            build->is_local = m->is_local;
        }
        if (m->is_local != build->is_local) return fail_mixed(build, first, i);
        if (m->placement == build->placement || (build->is_local && build->op->flags & FL_OP_FETCHES)) continue;
        return fail_placements(build, first, i);
    }
    if (first >= 0) return FL_OK;
    build->is_local = build->attrs->is_local || !build->attrs->has_placement;
    build->placement = build->attrs->has_placement ? build->attrs->placement : fl_placement_local(FL_CPU, -1);
    return FL_OK;
}

/* ---- shapes and dtypes ---- */

/* The result of x:op_() must fit into x: its shape, and a dtype of no higher category. */
static fl_status fit_in_place(struct build *build)
{
    const fl_spec *x = &build->specs[0];
    fl_spec *result = &build->c.out[0];
    char text[FL_META_TEXT], shape[FL_SHAPE_TEXT];
    if (!fl_shape_equal(&x->shape, &result->shape))
        return fl_fail(FL_ERR_SHAPE, "%s: x is %s and the result has shape %s; write x = x:%s(...)", build->name,
                       fl_meta_text(text, build->metas[0]), fl_shape_text(shape, &result->shape), build->op->name);
    if (fl_dtype_categories[result->dtype] > fl_dtype_categories[x->dtype])
        return fl_fail(FL_ERR_DTYPE, "%s: x is %s and the result is %s; write x = x:%s(...)", build->name,
                       fl_meta_text(text, build->metas[0]), fl_dtype_name(result->dtype), build->op->name);
    result->dtype = x->dtype;
    return FL_OK;
}

static fl_status infer_shapes(struct build *build)
{
    build->c = (fl_infer){.op = build->op,
                          .name = build->name,
                          .attrs = build->attrs,
                          .in = build->specs,
                          .nin = build->nin,
                          .nout = build->op->nout};
    for (int i = 0; i < build->op->nout; i++) build->c.out[i].kind = FL_TENSOR;
    FL_TRY(fl_op_infer(&build->c));
    for (int i = 0; i < build->c.nout; i++) {
        fl_shape same;
        FL_TRY(fl_shape_make(&same, build->c.name, build->c.out[i].shape.dims, build->c.out[i].shape.ndim));
        if ((unsigned)build->c.out[i].dtype >= FL_DTYPE_COUNT)
            return fl_fail(FL_ERR_DTYPE, "%s: its inference gives result %d no dtype", build->c.name, i);
    }
    return build->in_place ? fit_in_place(build) : FL_OK;
}

/* ---- SBP ---- */

/* Options that name a placement decide; the inputs (of ones_like and its kin) stay as they are. */
static fl_status sbp_from_options(struct build *build)
{
    fl_nd_sbp wanted = build->attrs->is_local ? fl_nd_sbp_fill(FL_B, 1) : build->attrs->nd_sbp;
    for (int k = 0; k < wanted.n; k++) {
        char text[FL_SBP_TEXT];
        fl_sbp s = wanted.at[k];
        if (!fl_sbp_is_partial(s) || (s == FL_PSUM && build->op->flags & FL_OP_ZEROS)) continue;
        fl_sbp_text(text, s);
        return fl_fail(FL_ERR_SBP, "%s: a new tensor must be S or B, not %s; use x:to_global{sbp = \"%s\"}",
                       build->name, text, text);
    }
    for (int i = 0; i < build->nin; i++)
        if (build->metas[i]) build->choice.in_sbp[i] = build->metas[i]->nd_sbp;
    for (int i = 0; i < build->c.nout; i++) build->out_sbp[i] = wanted;
    build->placement = build->attrs->placement;
    build->is_local = build->attrs->is_local;
    return FL_OK;
}

static void all_broadcast(struct build *build)
{
    for (int i = 0; i < build->nin; i++) build->choice.in_sbp[i] = fl_nd_sbp_fill(FL_B, build->placement->ndim);
    for (int i = 0; i < build->c.nout; i++) build->out_sbp[i] = fl_nd_sbp_fill(FL_B, build->placement->ndim);
}

/* Ops over lists in groups (an optimizer step over all parameters) treat position i of every group as a call of
** its own: each parameter has its own SBP. */
static fl_status choose_by_position(struct build *build)
{
    enum { MAX_GROUPS = 8 };
    int groups = build->op->groups, length = build->nin / groups;
    fl_spec specs[MAX_GROUPS];
    const fl_meta *metas[MAX_GROUPS];
    fl_nd_sbp in_sbp[MAX_GROUPS];
    fl_box_plan *boxings[MAX_GROUPS];
    fl_choice one = {in_sbp, build->out_sbp, boxings, NULL};
    if (groups > MAX_GROUPS) return fl_fail(FL_ERR_VALUE, "%s: more than %d groups", build->name, MAX_GROUPS);
    for (int i = 0; i < length; i++) {
        fl_infer c = build->c;
        for (int g = 0; g < groups; g++) {
            specs[g] = build->specs[g * length + i];
            metas[g] = build->metas[g * length + i];
        }
        c.in = specs;
        c.nin = groups;
        FL_TRY(fl_infer_choose(&one, &c, metas, build->placement, false, NULL, NULL));
        for (int g = 0; g < groups; g++) {
            build->choice.in_sbp[g * length + i] = in_sbp[g];
            build->choice.boxings[g * length + i] = boxings[g];
        }
        build->choice.body = one.body;
    }
    return FL_OK;
}

static fl_status infer_sbp(struct build *build)
{
    if (build->attrs->has_placement) return sbp_from_options(build);
    if (build->is_local || (build->op->flags & (FL_OP_LOCAL_ONLY | FL_OP_SOURCE))) {
        all_broadcast(build);
        return FL_OK;
    }
    if (build->op->groups && build->op->nout == 0) return choose_by_position(build);
    return fl_infer_choose(&build->choice, &build->c, build->metas, build->placement, build->in_place, NULL, NULL);
}

/* ---- the plan ---- */

void fl_plan_release(fl_plan *plan)
{
    for (int i = 0; plan->in && i < plan->nin; i++) fl_meta_unref(plan->in[i]);
    for (int i = 0; plan->boxings && i < plan->nin; i++) free(plan->boxings[i]);
    for (int i = 0; i < FL_MAX_OUT; i++) fl_meta_unref(plan->out[i]);
    free(plan->in);
    free(plan->boxings);
}

/* The boxing of an input that no choice has priced: op->flags or the options give its SBP. */
static fl_status plan_boxing(fl_box_plan **out, const fl_meta *from, const fl_meta *to)
{
    fl_box_plan plan;
    FL_TRY(fl_boxing_plan(&plan, from->dtype, &from->shape, from->placement, from->nd_sbp, to->placement, to->nd_sbp));
    *out = fl_box_plan_copy(&plan);
    return *out ? FL_OK : fl_fail(FL_ERR_MEMORY, "boxing: out of memory");
}

static fl_status set_inputs(fl_plan *plan, const struct build *build)
{
    for (int i = 0; i < build->nin; i++) {
        const fl_meta *m = build->metas[i];
        if (!m) continue;
        const fl_placement *p = build->op->flags & FL_OP_FETCHES ? build->placement : m->placement;
        if (p == m->placement && fl_nd_sbp_equal(build->choice.in_sbp[i], m->nd_sbp)) plan->in[i] = fl_meta_ref(m);
        else FL_TRY(fl_meta_get(&plan->in[i], m->dtype, &m->shape, p, build->choice.in_sbp[i], m->is_local));
        if (p != m->placement && fl_meta_check_copy(m, p) != FL_OK)
            return fl_fail_prefix(FL_ERR_STATE, "%s: ", build->name);
        if (plan->in[i] != m && !plan->boxings[i]) FL_TRY(plan_boxing(&plan->boxings[i], m, plan->in[i]));
        plan->boxes = plan->boxes || plan->in[i] != m;
    }
    return FL_OK;
}

static fl_status set_outputs(fl_plan *plan, const struct build *build)
{
    for (int i = 0; i < build->c.nout; i++) {
        const fl_spec *spec = &build->c.out[i];
        if (i == 0 && fl_op_writes(build->op, 0, build->nin, build->in_place))
            plan->out[0] = fl_meta_ref(build->metas[0]);
        else {
            fl_status status = fl_meta_get(&plan->out[i], spec->dtype, &spec->shape, build->placement,
                                           build->out_sbp[i], build->is_local);
            if (status != FL_OK) return fl_fail_prefix(status, "%s: ", build->c.name);
        }
    }
    plan->runs = build->placement->my_index >= 0 && build->placement->type != FL_META;
    return FL_OK;
}

/* The dtype Lua numbers are handed over in: that of the promoted operands, or a float when the result is one. Beside
** integers that are compared they stay whole: 300 is more than any uint8. */
static fl_dtype number_dtype(const struct build *build)
{
    bool numbers = false;
    for (int i = 0; i < build->nin; i++) numbers = numbers || build->specs[i].kind > FL_TENSOR;
    if (!numbers) return FL_FLOAT32;
    fl_dtype dtype = fl_infer_promote(&build->c);
    if (build->c.nout > 0 && fl_dtype_is_float(build->c.out[0].dtype) && !fl_dtype_is_float(dtype))
        dtype = build->c.out[0].dtype;
    if (build->c.nout > 0 && build->c.out[0].dtype == FL_BOOL && fl_dtype_is_integer(dtype)) dtype = FL_INT64;
    return fl_dtype_compute(dtype);
}

enum { FLAT_UP_TO = 8192 }; /* elements: more may want the team */

/* The bare loop for small operands of one meta, of which one may be a number. */
static void choose_flat(fl_plan *plan, const struct build *build)
{
    if (!build->op->flat || !plan->kernel || plan->device || !plan->runs || plan->boxes || build->attrs->count
        || plan->nin > FL_FLAT_MAX_IN)
        return;
    int64_t numel = plan->out[0]->local_numel;
    int numbers = 0;
    if (numel > FLAT_UP_TO) return;
    for (int i = 0; i < plan->nin; i++) {
        if (plan->in[i] == plan->out[0]) continue;
        if (plan->in[i] || build->specs[i].kind <= FL_TENSOR || plan->number_dtype != plan->out[0]->dtype) return;
        numbers++;
    }
    if (numbers > 1 || (numbers && numel > FL_EW_REPEATS)) return;
    plan->flat = build->op->flat(build->op->row, plan->out[0]->dtype);
    plan->flat_number = numbers > 0;
}

enum {
    DEFERS_FROM = 32 * 1024,          /* elements: smaller ones lie in the caches anyway */
    DEFERS_FROM_ON_DEVICES = 4 * 1024 /* there a launch costs more than a step of a chain */
};

int64_t fl_infer_defers_from(bool on_device)
{
    static int64_t from[2];
    if (from[on_device]) return from[on_device];
    const char *fuse = getenv("FLOW_FUSE"), *text = getenv("FLOW_FUSE_FROM");
    long long wanted = text ? atoll(text) : 0;
    int64_t own = on_device ? DEFERS_FROM_ON_DEVICES : DEFERS_FROM;
    from[on_device] = fuse && strcmp(fuse, "0") == 0 ? INT64_MAX : wanted > 0 ? wanted : own;
    return from[on_device];
}

bool fl_plan_may_fuse(const fl_plan *plan)
{
    const fl_op *op = plan->op;
    if (!op->row && !op->draw && !(op->flags & FL_OP_CASTS)) return false;
    if (op->row && fl_ew_may_fail(op->row, fl_dtype_compute(plan->out[0]->dtype))) return false;
    if (plan->device && (op->draw || !plan->device->tiles)) return false;
    return plan->kernel && plan->runs && !op->mutates
        && plan->out[0]->local_numel >= fl_infer_defers_from(plan->device != NULL);
}

/* Stands where a plan has a body that needs to know the op: op->compute, or the op itself on the CPU (plan->on_host).
** Dispatch knows them. */
static fl_status body_of_op(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    return fl_fail(FL_ERR_STATE, "a body was called without its op");
}

/* A formula of results that may wait, in a dtype that its rows compute in, is left to the chains. */
static bool waits_as_ops(const struct build *build)
{
    const fl_formula *formula = build->op->formula;
    const fl_placement *p = build->placement;
    fl_dtype dtype = build->c.out[0].dtype;
    if (!formula->as_ops || build->in_place || !build->is_local || p->type == FL_META) return false;
    if (fl_dtype_compute(dtype) != dtype
        || fl_shape_numel(&build->c.out[0].shape) < fl_infer_defers_from(p->type != FL_CPU))
        return false;
    for (int i = 0; i < build->nin; i++)
        if (build->specs[i].kind == FL_TENSOR && build->specs[i].dtype != dtype) return false;
    return true;
}

/* The body, or the kernel of the device that holds the operands. */
static fl_status choose_kernel(fl_plan *plan, const struct build *build)
{
    plan->body = build->choice.body ? build->choice.body : build->op->body;
    if (build->op->compute && (!build->op->formula || build->c.as_ops || waits_as_ops(build))) plan->body = body_of_op;
    if (build->c.as_ops && build->in_place)
        return fl_fail(FL_ERR_VALUE, "%s: a formula of integers has no loop in place; write x:copy_(%s(x))",
                       build->name, build->op->name);
    if (plan->body) return FL_OK;
    if (build->placement->type == FL_META) return FL_OK;
    plan->kernel = fl_outside_kernel(build->op, build->op->cpu);
    if (build->placement->type != FL_CUDA || !plan->runs) return FL_OK;
    FL_TRY(fl_device_get(&plan->device, build->placement->type));
    plan->device_index = fl_device_index(plan->device, build->placement);
    plan->lane = plan->device->lane(plan->device_index, FL_QUEUE_COMPUTE);
    plan->kernel = build->op->on_device ? fl_outside_kernel(build->op, build->op->on_device)
                                        : plan->device->kernel(build->op);
    if (plan->kernel || build->op->view) return FL_OK;
    plan->on_host = build->op->flags & FL_OP_HOST_ONLY && !build->op->mutates && !build->in_place;
    if (plan->on_host) plan->body = body_of_op;
    if (plan->on_host) return FL_OK;
    return fl_fail(FL_ERR_MISSING, "%s: it has no %s kernel; move the operands to the CPU: x:to(\"cpu\")", build->name,
                   plan->device->name);
}

static fl_status fill_plan(fl_plan *plan, struct build *build)
{
    if (build->op->groups && build->nin % build->op->groups != 0)
        return fl_fail(FL_ERR_VALUE, "%s: %d tensors do not make %d lists of equal length", build->name, build->nin,
                       build->op->groups);
    FL_TRY(find_placement(build));
    FL_TRY(infer_shapes(build));
    FL_TRY(infer_sbp(build));
    plan->nout = build->c.nout;
    FL_TRY(set_inputs(plan, build));
    FL_TRY(set_outputs(plan, build));
    FL_TRY(choose_kernel(plan, build));
    plan->number_dtype = number_dtype(build);
    choose_flat(plan, build);
    plan->defers = !plan->boxes && !(build->in_place && plan->device) && fl_plan_may_fuse(plan);
    plan->folds = build->op->flags & FL_OP_FOLDS && plan->nin == 1 && plan->kernel && !plan->device;
    return FL_OK;
}

/* ---- notes for other ranks ---- */

/* A local operand is this rank's own affair, its shape too. */
static uint64_t operand_content(uint64_t h, const fl_operand *operand)
{
    if (operand->kind != FL_TENSOR) return fl_hash_mix(h, (uint64_t)operand->kind);
    const fl_meta *m = operand->tensor->meta;
    return fl_hash_mix(h, m->is_local ? (uint64_t)m->dtype << 8 | 1 : m->hash);
}

/* The global result, or the first global operand; NULL: all are local. */
static const fl_meta *global_meta(const fl_plan *plan)
{
    for (int i = 0; i < plan->nout; i++)
        if (!plan->out[i]->is_local) return plan->out[i];
    for (int i = 0; i < plan->nin; i++)
        if (plan->in[i] && !plan->in[i]->is_local) return plan->in[i];
    return NULL;
}

/* Clones are not noted: a rank may copy its part because of its strides, which differ between ranks and change no
** number. For the same reason a sum of the runtime has the same note in place and not in place. */
fl_status fl_plan_note(fl_plan *plan, const fl_operand *in, const fl_attrs *attrs, const uint64_t *words, int count)
{
    const fl_meta *global = global_meta(plan);
    if (!global || global->placement->type == FL_META || plan->op == FL_OP_REF(clone)) return FL_OK;
    if (plan->body && !plan->op->compute) return FL_OK; /* its ops are reported instead */
    FL_TRY(fl_history_get(&plan->history, global->placement->ranks, global->placement->count));
    const fl_signature *s = fl_op_signature(plan->op);
    uint64_t h = fl_hash_words(0, plan->op->name, strlen(plan->op->name));
    for (int i = 0; i < plan->nin; i++) {
        h = operand_content(h, &in[i]);
        if (in[i].kind > FL_TENSOR && i < 64) plan->number_operands |= (uint64_t)1 << i; /* lists are of tensors */
    }
    for (int i = 0; i < plan->nout; i++)
        h = fl_hash_mix(h, plan->out[i]->is_local ? plan->out[i]->dtype : plan->out[i]->hash);
    for (int i = 0; i < count; i++) h = fl_hash_mix(h, words[i]);
    for (int i = 0; attrs && i < s->param_count; i++) {
        const fl_param *p = &s->params[i];
        if (!p->is_tensor && p->is_value && p->slot >= 0 && p->type != FL_ATTR_TEXT) plan->numbers |= 1u << p->slot;
    }
    if (plan->number_operands || plan->numbers)
        plan->number = plan->numbers || plan->number_operands & (plan->number_operands - 1)
            ? FL_PLAN_NUMBERS
            : (int8_t)__builtin_ctzll(plan->number_operands);
    plan->content = h | 1;
    return FL_OK;
}

fl_status fl_plan_build(fl_plan *plan, const fl_op *op, const fl_operand *in, int nin, const fl_attrs *attrs,
                        bool in_place)
{
    fl_attrs defaults;
    struct build b = {.op = op, .in = in, .nin = nin, .attrs = attrs, .in_place = in_place};
    if (!attrs) {
        fl_attrs_init(&defaults, op);
        b.attrs = &defaults;
    }
    snprintf(b.name, sizeof b.name, in_place ? "%s_" : "%s", op->name);
    size_t n = nin ? (size_t)nin : 1;
    *plan = (fl_plan){.op = op,
                      .place = FL_JOURNAL_PLACE(op),
                      .number = FL_PLAN_NO_NUMBER,
                      .nin = nin,
                      .in = calloc(n, sizeof *plan->in),
                      .boxings = calloc(n, sizeof *plan->boxings)};
    b.specs = calloc(n, sizeof *b.specs);
    b.metas = calloc(n, sizeof *b.metas);
    b.choice.in_sbp = calloc(n, sizeof *b.choice.in_sbp);
    b.choice.out_sbp = b.out_sbp;
    b.choice.boxings = plan->boxings;
    fl_status status = FL_OK;
    if (!plan->in || !plan->boxings || !b.specs || !b.metas || !b.choice.in_sbp)
        status = fl_fail(FL_ERR_MEMORY, "%s: out of memory", b.name);
    for (int i = 0; status == FL_OK && i < nin; i++) {
        fl_spec_of(&b.specs[i], &in[i]);
        b.metas[i] = in[i].kind == FL_TENSOR ? in[i].tensor->meta : NULL;
    }
    if (status == FL_OK) status = fill_plan(plan, &b);
    if (status != FL_OK) {
        fl_plan_release(plan);
        *plan = (fl_plan){0};
    }
    free(b.specs);
    free(b.metas);
    free(b.choice.in_sbp);
    return status;
}
