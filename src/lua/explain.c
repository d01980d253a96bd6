/*
** explain.c -- what flow.explain sees: every plan as it is carried out, with boxing and the alternatives.
**
** The observer runs inside the core, where Lua may not be entered, so it writes lines of text; explain.lua makes tables
** of them. Lines are fields separated by tabs, the first says what the line is:
**
**     op    name, script line
**     in    name of the meta, SBP it is boxed to, bytes, steps ("" when it stays as it is)
**     out   name of the meta
**     way   1 if it was chosen, bytes, SBPs of the inputs, SBPs of the outputs
**
** A boxing that no op asked for (to_global, gradients on their way to a leaf, item) is a line `op` of its own.
*/
#include "binding.h"

#include "../core/boxing.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static struct record {
    char *text;
    size_t length, capacity;
    bool truncated;             /* out of memory: what is there is still good */
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

/* "all-reduce"; with several hierarchy axes "all-reduce along axis 1" */
static void add_step(const fl_box_step *step, int position)
{
    const char *name = fl_box_kind_name(step->kind), *comma = position ? ", " : "";
    if (step->axis < 0 || step->placement->ndim == 1) add("%s%s", comma, name);
    else add("%s%s along axis %d", comma, name, step->axis);
}

static void add_boxing(const fl_box_plan *plan, const fl_meta *to)
{
    char sbp[FL_ND_SBP_TEXT];
    add("%s\t%lld\t", fl_nd_sbp_text(sbp, to->nd_sbp), (long long)plan->bytes);
    for (int i = 0; i < plan->count; i++) add_step(&plan->steps[i], i);
    add("\n");
}

static void add_input(const fl_operand *o, const fl_meta *wanted)
{
    char text[FL_META_TEXT];
    fl_box_plan plan;
    if (o->kind == FL_NUM_FLOAT) add("in\t%.6g\t\t0\t\n", o->number);
    else if (o->kind != FL_TENSOR) add(o->kind == FL_NONE ? "in\tnil\t\t0\t\n" : "in\t%lld\t\t0\t\n", (long long)o->integer);
    else {
        const fl_meta *m = o->tensor->meta;
        add("in\t%s\t", fl_meta_text(text, m));
        if (wanted && wanted != m && fl_boxing_plan(&plan, m->dtype, &m->shape, m->placement, m->nd_sbp, wanted->placement, wanted->nd_sbp) == FL_OK)
            add_boxing(&plan, wanted);
        else add("\t0\t\n");
    }
}

/* ---- boxing ---- */

/* Boxings that ops on record will ask for: not told a second time. */
static struct expected {
    const fl_meta *from, *to;
} expected[FL_MAX_PARAMS];
static int expected_count;

static void expect(const fl_meta *from, const fl_meta *to)
{
    if (expected_count == FL_MAX_PARAMS) memmove(expected, expected + 1, sizeof *expected * (size_t)--expected_count);
    expected[expected_count++] = (struct expected){from, to};
}

static bool was_expected(const fl_meta *from, const fl_meta *to)
{
    for (int i = 0; i < expected_count; i++)
        if (expected[i].from == from && expected[i].to == to) {
            expected[i] = expected[--expected_count];
            return true;
        }
    return false;
}

static void add_op(const char *name, const char *suffix)
{
    char where[128];
    fl_lua_where(fl_lua_current, where, sizeof where);
    add("op\t%s%s\t%s\n", name, suffix, where);
}

static void observe_boxing(const fl_box_plan *plan, const fl_meta *from, const fl_meta *to)
{
    char text[FL_META_TEXT];
    if (from->is_local || was_expected(from, to)) return;
    add_op("to_global", "");
    add("in\t%s\t", fl_meta_text(text, from));
    add_boxing(plan, to);
    add("out\t%s\n", fl_meta_text(text, to));
}

/* ---- ops ---- */

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
    if (!placed || placed->is_local || placed->placement->count == 1 || plan->nin > FL_MAX_PARAMS || op->groups || (op->flags & FL_OP_SOURCE)) return;
    fl_infer c = {.op = op, .name = op->name, .attrs = attrs, .in = specs, .nin = plan->nin, .nout = plan->nout};
    for (int i = 0; i < plan->nin; i++) {
        fl_spec_of(&specs[i], &in[i]);
        metas[i] = in[i].kind == FL_TENSOR ? in[i].tensor->meta : NULL;
    }
    for (int i = 0; i < plan->nout; i++) c.out[i].kind = FL_TENSOR;
    if (op->infer(&c) != FL_OK) return;
    fl_infer_choose(in_sbp, out_sbp, &body, &c, metas, placed->placement, in_place, add_candidate, (void *)plan);
}

static void observe(const fl_plan *plan, const fl_operand *in, const fl_attrs *attrs, bool in_place)
{
    char text[FL_META_TEXT];
    fl_attrs defaults;
    if (!attrs) {
        fl_attrs_init(&defaults, plan->op);
        attrs = &defaults;
    }
    add_op(plan->op->name, in_place ? "_" : "");
    for (int i = 0; i < plan->nin; i++) {
        const fl_meta *wanted = plan->body ? NULL : plan->in[i]; /* the ops of a body box for themselves */
        add_input(&in[i], wanted);
        if (wanted && wanted != in[i].tensor->meta) expect(in[i].tensor->meta, wanted);
    }
    for (int i = 0; i < plan->nout; i++)
        if (plan->out[i]) add("out\t%s\n", fl_meta_text(text, plan->out[i]));
    add_candidates(plan, in, attrs, in_place);
}

/* flow._explain(true) begins; flow._explain(false) ends and returns the lines */
static int explain(lua_State *L)
{
    fl_lua_current = L;
    if (lua_toboolean(L, 1)) {
        if (fl_infer_observer) FL_RAISE(L, "explain: is running already");
        record.length = 0;
        record.truncated = false;
        expected_count = 0;
        fl_infer_observer = observe;
        fl_boxing_observer = observe_boxing;
        return 0;
    }
    fl_infer_observer = NULL;
    fl_boxing_observer = NULL;
    lua_pushlstring(L, record.text, record.length);
    free(record.text);
    record = (struct record){NULL, 0, 0, false};
    return 1;
}

void fl_lua_open_explain(lua_State *L, int flow)
{
    static const luaL_Reg functions[] = {{"_explain", explain}, {NULL, NULL}};
    fl_lua_set_functions(L, flow, functions);
}
