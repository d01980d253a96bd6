/*
** explain.c -- what flow.explain sees: every plan as it is carried out, with boxing and the alternatives.
**
** The observers run inside the core, where Lua may not be entered, so they write lines of text; explain.lua makes
** tables of them. Lines are fields separated by tabs, the first says what the line is:
**
**     op    name, script line
**     in    name of the meta, its SBP and the one it is boxed to ("" when it stays as it is), bytes
**     out   name of the meta
**     way   1 if it was chosen, bytes, SBPs of the inputs, SBPs of the outputs
**     box   what the script called ("to_global", "backward"), script line: a boxing that no op asked for;
**           `in` and `out` follow
**     step  of the `in` above: kind, 1 if it needs peers, hierarchy axis or -1, number of those axes, SBP before and
**           after, bytes, dtype and shape, groups of ranks ("0 2;1 3")
**
** In a dry world boxing only pretends while it is watched, so that what would communicate can be explained too.
*/
#include "errors.h"
#include "members.h"
#include "tensors.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static struct record {
    char *text;
    size_t length, capacity;
    bool truncated; /* out of memory: what is there is still good */
} record;

static void add(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void add(const char *format, ...)
{
    enum { LINE = 2048 };
    if (record.capacity - record.length < LINE) {
        size_t capacity = record.capacity ? 2 * record.capacity : 16 * LINE;
        char *grown = record.truncated ? NULL : realloc(record.text, capacity);
        if (!grown) {
            record.truncated = true;
            return;
        }
        record.text = grown;
        record.capacity = capacity;
    }
    va_list args;
    va_start(args, format);
    int n = vsnprintf(record.text + record.length, LINE, format, args);
    va_end(args);
    record.length += (size_t)(n < LINE ? n : LINE - 1);
}

/* ---- boxing ---- */

/* The groups of ranks that differ only in hierarchy axis `axis`. */
static void add_groups(const fl_placement *p, int axis)
{
    int stride = 1, n = 0;
    for (int k = axis + 1; k < p->ndim; k++) stride *= p->hierarchy[k];
    for (int first = 0; first < p->count; first++) {
        if (first / stride % p->hierarchy[axis] != 0) continue;
        if (n++) add(";");
        for (int i = 0; i < p->hierarchy[axis]; i++) add(i ? " %d" : "%d", p->ranks[first + i * stride]);
    }
}

/* One group: the ranks of both. */
static void add_union(const fl_placement *p, const fl_placement *q)
{
    for (int i = 0; i < p->count; i++) add(i ? " %d" : "%d", p->ranks[i]);
    for (int i = 0; i < q->count; i++)
        if (fl_placement_index(p, q->ranks[i]) < 0) add(" %d", q->ranks[i]);
}

static void add_steps(const fl_box_plan *plan, const fl_meta *from, const fl_meta *to)
{
    fl_nd_sbp before = from->nd_sbp;
    char a[FL_ND_SBP_TEXT], b[FL_ND_SBP_TEXT], shape[FL_SHAPE_TEXT];
    for (int i = 0; i < plan->count; i++) {
        const fl_box_step *step = &plan->steps[i];
        bool whole = step->axis < 0;
        add("step\t%s\t%d\t%d\t%d\t", fl_box_kind_name(step->kind), step->kind > FL_BOX_RELABEL, step->axis,
            step->placement->ndim);
        add("%s\t%s\t", whole ? fl_nd_sbp_text(a, before) : fl_sbp_text(a, step->from),
            whole ? fl_nd_sbp_text(b, step->after) : fl_sbp_text(b, step->to));
        add("%lld\t%s%s\t", (long long)step->bytes, fl_dtype_name(from->dtype), fl_shape_text(shape, &from->shape));
        if (whole) add_union(from->placement, to->placement);
        else add_groups(step->placement, step->axis);
        add("\n");
        before = step->after;
    }
}

/* A tensor; of a local one also the device, unless that is the CPU. */
static const char *tensor_text(char *buffer, const fl_meta *m)
{
    return m->placement->type == FL_CPU ? fl_meta_text(buffer, m) : fl_meta_placed_text(buffer, m);
}

/* An input that becomes `to` (NULL: it stays as it is) by `plan`. */
static void add_boxed(const fl_meta *from, const fl_meta *to, const fl_box_plan *plan)
{
    char text[FL_META_TEXT], sbp[FL_ND_SBP_TEXT];
    add("in\t%s\t%s\t", tensor_text(text, from), fl_nd_sbp_text(sbp, from->nd_sbp));
    if (!to) add("\t0\n");
    else {
        add("%s\t%lld\n", fl_nd_sbp_text(sbp, to->nd_sbp), (long long)plan->bytes);
        add_steps(plan, from, to);
    }
}

/* The boxing of the last op's inputs: that it is seen again when it is carried out says nothing new. */
static struct announced {
    const fl_meta *from, *to; /* not to be looked into: they may be gone */
} * announced;
static int announced_count, announced_capacity;

static void announce(const fl_meta *from, const fl_meta *to)
{
    if (announced_count == announced_capacity) {
        int capacity = announced_capacity ? 2 * announced_capacity : 16;
        struct announced *grown = realloc(announced, sizeof *grown * (size_t)capacity);
        if (!grown) return;
        announced = grown;
        announced_capacity = capacity;
    }
    announced[announced_count++] = (struct announced){from, to};
}

static bool was_announced(const fl_meta *from, const fl_meta *to)
{
    for (int i = 0; i < announced_count; i++)
        if (announced[i].from == from && announced[i].to == to) {
            announced[i] = announced[--announced_count];
            return true;
        }
    return false;
}

static void add_entry(const char *kind, const char *name, const char *suffix)
{
    char where[128];
    fl_lua_where(fl_lua_current, where, sizeof where);
    add("%s\t%s%s\t%s\n", kind, name, suffix, where);
}

/* What the script called: the C function on top of Lua's stack. */
static const char *caller(lua_State *L)
{
    lua_Debug ar;
    if (!L || !lua_getstack(L, 0, &ar) || !lua_getinfo(L, "nS", &ar) || *ar.what != 'C' || !ar.name) return "to_global";
    return ar.name;
}

static void observe_boxing(const fl_box_plan *plan, const fl_meta *from, const fl_meta *to)
{
    char text[FL_META_TEXT];
    if (from->is_local || was_announced(from, to)) return;
    add_entry("box", caller(fl_lua_current), "");
    add_boxed(from, to, plan);
    add("out\t%s\n", tensor_text(text, to));
}

/* ---- ops ---- */

static void add_input(const fl_operand *o, const fl_meta *wanted)
{
    fl_box_plan plan;
    if (o->kind == FL_NUM_FLOAT) add("in\t%.6g\t\t\t0\n", o->number);
    else if (o->kind != FL_TENSOR)
        add(o->kind == FL_NONE ? "in\tnil\t\t\t0\n" : "in\t%lld\t\t\t0\n", (long long)o->integer);
    else {
        const fl_meta *m = o->tensor->meta;
        bool boxed = wanted && wanted != m
            && fl_boxing_plan(&plan, m->dtype, &m->shape, m->placement, m->nd_sbp, wanted->placement, wanted->nd_sbp)
                == FL_OK;
        if (boxed) announce(m, wanted);
        add_boxed(m, boxed ? wanted : NULL, &plan);
    }
}

static void add_candidate(void *context, const fl_candidate *c, int nin, int nout)
{
    char sbp[FL_ND_SBP_TEXT];
    const fl_plan *plan = context;
    add("way\t%d\t%lld\t", c->chosen, (long long)c->bytes);
    for (int i = 0, n = 0; i < nin; i++)
        if (plan->in[i]) add(n++ ? " x %s" : "%s", fl_nd_sbp_text(sbp, c->in_out[i]));
    add("\t");
    for (int i = 0; i < nout; i++) add(i ? " and %s" : "%s", fl_nd_sbp_text(sbp, c->in_out[nin + i]));
    add("\n");
}

/* The signatures that were compared: only a tensor on several ranks has a choice. */
static void add_candidates(const fl_plan *plan, const fl_operand *in, const fl_attrs *attrs, bool in_place)
{
    const fl_op *op = plan->op;
    const fl_meta *metas[FL_MAX_PARAMS], *placed = plan->out[0];
    fl_spec specs[FL_MAX_PARAMS];
    fl_nd_sbp in_sbp[FL_MAX_PARAMS], out_sbp[FL_MAX_OUT];
    fl_body body;
    if (!placed || placed->is_local || placed->placement->count == 1 || plan->nin > FL_MAX_PARAMS || op->groups
        || (op->flags & FL_OP_SOURCE))
        return;
    fl_infer c = {.op = op, .name = op->name, .attrs = attrs, .in = specs, .nin = plan->nin, .nout = plan->nout};
    for (int i = 0; i < plan->nin; i++) {
        fl_spec_of(&specs[i], &in[i]);
        metas[i] = in[i].kind == FL_TENSOR ? in[i].tensor->meta : NULL;
    }
    for (int i = 0; i < plan->nout; i++) c.out[i].kind = FL_TENSOR;
    if (op->infer(&c) != FL_OK) return;
    fl_infer_choose(in_sbp, out_sbp, &body, &c, metas, placed->placement, in_place, add_candidate, (void *)plan);
}

static void observe_op(const fl_plan *plan, const fl_operand *in, const fl_attrs *attrs, bool in_place)
{
    char text[FL_META_TEXT];
    fl_attrs defaults;
    if (!attrs) {
        fl_attrs_init(&defaults, plan->op);
        attrs = &defaults;
    }
    announced_count = 0;
    add_entry("op", plan->op->name, in_place ? "_" : "");
    for (int i = 0; i < plan->nin; i++)
        add_input(&in[i], plan->body ? NULL : plan->in[i]); /* the ops of a body box for themselves */
    for (int i = 0; i < plan->nout; i++)
        if (plan->out[i]) add("out\t%s\n", tensor_text(text, plan->out[i]));
    add_candidates(plan, in, attrs, in_place);
}

/* ---- beginning and end ---- */

static void watch(bool on)
{
    static bool pretended; /* before */
    bool pretend = on ? fl_world_get()->dry || fl_boxing_pretend : pretended;
    fl_infer_observer = on ? observe_op : NULL;
    fl_boxing_observer = on ? observe_boxing : NULL;
    announced_count = 0;
    if (on) pretended = fl_boxing_pretend;
    if (pretend == fl_boxing_pretend) return;
    fl_boxing_pretend = pretend;
    fl_boxing_forget();
}

/* flow._explain(true) begins; flow._explain(false) ends and returns the lines */
static int explain(lua_State *L)
{
    fl_lua_current = L;
    if (lua_toboolean(L, 1)) {
        if (fl_infer_observer) FL_RAISE(L, "explain: is running already");
        record.length = 0;
        record.truncated = false;
        watch(true);
        return 0;
    }
    watch(false);
    lua_pushlstring(L, record.text, record.length);
    free(record.text);
    record = (struct record){NULL, 0, 0, false};
    return 1;
}

/* flow._pcall(f, ...): pcall, but f may not yield: somebody else would run in its place and be recorded */
static int pcall_whole(lua_State *L)
{
    bool good = lua_pcall(L, lua_gettop(L) - 1, LUA_MULTRET, 0) == LUA_OK;
    lua_pushboolean(L, good);
    lua_insert(L, 1);
    return lua_gettop(L);
}

void fl_lua_open_explain(lua_State *L, int flow)
{
    static const luaL_Reg functions[] = {{"_explain", explain}, {"_pcall", pcall_whole}, {NULL, NULL}};
    fl_lua_set_functions(L, flow, functions);
}
