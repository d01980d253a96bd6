/*
** explain.c -- what flow.explain records: every plan as it is carried out, with boxing and the alternatives.
**
** The observers run inside the core, where a Lua error may not be raised, so they note events; tables are made of
** them when the recording ends. Metas are held until then, SBPs and plans are copied.
**
** In a dry world boxing only pretends while it is watched, so that what would communicate can be explained too.
*/
#include "core/process.h"
#include "errors.h"
#include "members.h"
#include "tensors.h"

#include <stdio.h>
#include <stdlib.h>

/* An entry is an op or a boxing outside any op; the events after it, up to the next entry, are its own. */
typedef enum event_kind { ENTRY, INPUT, NUMBER, OUTPUT, WAY, PASS, STEP } event_kind;

struct event {
    event_kind kind;
    union {
        struct {
            bool is_op;
            char name[128], where[128]; /* the op, or what the script called ("backward"); script line */
        } entry;
        struct {
            const fl_meta *meta, *to; /* owned; to: the meta after boxing, NULL when it stays as it is */
            fl_box_plan *plan;        /* owned; with `to` */
            bool expected;            /* the boxing of an op's input that was not yet carried out */
        } tensor;                     /* INPUT, OUTPUT */
        char number[32];              /* NUMBER: an input that is none, as text */
        struct {
            bool chosen;
            int64_t bytes;
            int nin, nout;
            fl_nd_sbp sbp[FL_MAX_PARAMS + FL_MAX_OUT]; /* of the inputs that are tensors, then of the outputs */
        } way;
        struct {
            int stored;
            int64_t numel;
        } pass; /* PASS; its steps follow */
        struct {
            char op[64], line[FL_CHAIN_LINE];
        } step; /* STEP */
    };
};

static struct record {
    struct event *events;
    int count, capacity, op; /* op: where the last op begins */
    bool truncated;          /* out of memory: the entries so far are valid */
} record;

static void record_clear(void)
{
    for (int i = 0; i < record.count; i++) {
        struct event *e = &record.events[i];
        if (e->kind != INPUT && e->kind != OUTPUT) continue;
        fl_meta_unref(e->tensor.meta);
        fl_meta_unref(e->tensor.to);
        free(e->tensor.plan);
    }
    free(record.events);
    record = (struct record){NULL};
}

/* The next event, zeroed; NULL: out of memory, now or earlier. */
static struct event *note(event_kind kind)
{
    if (record.truncated) return NULL;
    if (record.count == record.capacity) {
        int capacity = record.capacity ? 2 * record.capacity : 64;
        struct event *grown = realloc(record.events, sizeof *grown * (size_t)capacity);
        if (!grown) {
            record.truncated = true;
            return NULL;
        }
        record.events = grown;
        record.capacity = capacity;
    }
    struct event *e = &record.events[record.count++];
    *e = (struct event){.kind = kind};
    return e;
}

static void note_entry(bool is_op, const char *name, const char *suffix)
{
    struct event *e = note(ENTRY);
    if (!e) return;
    if (is_op) record.op = record.count;
    e->entry.is_op = is_op;
    snprintf(e->entry.name, sizeof e->entry.name, "%s%s", name, suffix);
    fl_lua_where(fl_lua_current, e->entry.where, sizeof e->entry.where);
}

/* A tensor; as an input it may become `to` (else NULL) by `plan`. */
static struct event *note_tensor(event_kind kind, const fl_meta *meta, const fl_meta *to, const fl_box_plan *plan)
{
    fl_box_plan *copy = to ? fl_box_plan_copy(plan) : NULL;
    struct event *e = to && !copy ? NULL : note(kind);
    if (!e) {
        record.truncated = true;
        free(copy);
        return NULL;
    }
    e->tensor.meta = fl_meta_ref(meta);
    if (!to) return e;
    e->tensor.to = fl_meta_ref(to);
    e->tensor.plan = copy;
    return e;
}

/* ---- boxing ---- */

/* True for a boxing of the last op's inputs, which was noted with them: that it is carried out adds nothing. */
static bool was_noted(const fl_meta *from, const fl_meta *to)
{
    for (int i = record.op; i < record.count; i++) {
        struct event *e = &record.events[i];
        if (e->kind == INPUT && e->tensor.expected && e->tensor.meta == from && e->tensor.to == to) {
            e->tensor.expected = false;
            return true;
        }
    }
    return false;
}

/* The name of the C function on top of Lua's stack: the one that the script called. */
static const char *caller(lua_State *L)
{
    lua_Debug ar;
    if (!L || !lua_getstack(L, 0, &ar) || !lua_getinfo(L, "nS", &ar) || *ar.what != 'C' || !ar.name) return "to_global";
    return ar.name;
}

/* A further observer: a planned script is counted. */
static void (*other_observer)(const fl_box_plan *plan, const fl_meta *from, const fl_meta *to);

static void observe_boxing(const fl_box_plan *plan, const fl_meta *from, const fl_meta *to)
{
    if (other_observer) other_observer(plan, from, to);
    if (from->is_local || was_noted(from, to)) return;
    note_entry(false, caller(fl_lua_current), "");
    note_tensor(INPUT, from, to, plan);
    note_tensor(OUTPUT, to, NULL, NULL);
}

/* ---- ops ---- */

static void note_number(const fl_operand *operand)
{
    struct event *e = note(NUMBER);
    if (!e) return;
    locale_t before = uselocale(fl_locale_plain());
    if (operand->kind == FL_NUM_FLOAT) snprintf(e->number, sizeof e->number, "%.6g", operand->number);
    else if (operand->kind == FL_NONE) snprintf(e->number, sizeof e->number, "nil");
    else snprintf(e->number, sizeof e->number, "%lld", (long long)operand->integer);
    uselocale(before);
}

/* plan: from it to `wanted`; NULL: it stays as it is. */
static void note_input(const fl_operand *operand, const fl_meta *wanted, const fl_box_plan *plan)
{
    if (operand->kind != FL_TENSOR) {
        note_number(operand);
        return;
    }
    struct event *e = note_tensor(INPUT, operand->tensor->meta, plan ? wanted : NULL, plan);
    if (e) e->tensor.expected = plan != NULL;
}

static void note_candidate(void *context, const fl_candidate *candidate, int nin, int nout)
{
    const fl_plan *plan = context;
    struct event *e = note(WAY);
    if (!e) return;
    e->way.chosen = candidate->chosen;
    e->way.bytes = candidate->bytes;
    for (int i = 0; i < nin; i++)
        if (plan->in[i]) e->way.sbp[e->way.nin++] = candidate->in_out[i];
    for (int i = 0; i < nout; i++) e->way.sbp[e->way.nin + e->way.nout++] = candidate->in_out[nin + i];
}

/* The signatures that were compared: only a tensor on several ranks has a choice. */
static void note_candidates(const fl_plan *plan, const fl_operand *in, const fl_attrs *attrs, bool in_place)
{
    const fl_op *op = plan->op;
    const fl_meta *metas[FL_MAX_PARAMS], *placed = plan->out[0];
    fl_spec specs[FL_MAX_PARAMS];
    fl_nd_sbp in_sbp[FL_MAX_PARAMS], out_sbp[FL_MAX_OUT];
    fl_choice choice = {in_sbp, out_sbp, NULL, NULL};
    if (!placed || placed->is_local || placed->placement->count == 1 || plan->nin > FL_MAX_PARAMS || op->groups
        || (op->flags & FL_OP_SOURCE))
        return;
    fl_infer c = {.op = op, .name = op->name, .attrs = attrs, .in = specs, .nin = plan->nin, .nout = plan->nout};
    for (int i = 0; i < plan->nin; i++) {
        fl_spec_of(&specs[i], &in[i]);
        metas[i] = in[i].kind == FL_TENSOR ? in[i].tensor->meta : NULL;
    }
    for (int i = 0; i < plan->nout; i++) c.out[i].kind = FL_TENSOR;
    if (fl_op_infer(&c) != FL_OK) return;
    fl_infer_choose(&choice, &c, metas, placed->placement, in_place, note_candidate, (void *)plan);
}

static void observe_op(const fl_plan *plan, const fl_operand *in, const fl_attrs *attrs, bool in_place)
{
    fl_attrs defaults;
    if (!attrs) {
        fl_attrs_init(&defaults, plan->op);
        attrs = &defaults;
    }
    note_entry(true, plan->op->name, in_place ? "_" : "");
    for (int i = 0; i < plan->nin; i++)
        note_input(&in[i], plan->in[i],
                   plan->body && !plan->op->compute ? NULL : plan->boxings[i]); /* a body's ops box for themselves */
    for (int i = 0; i < plan->nout; i++)
        if (plan->out[i]) note_tensor(OUTPUT, plan->out[i], NULL, NULL);
    note_candidates(plan, in, attrs, in_place);
}

/* ---- passes ---- */

static void observe_pass(const fl_chain_pass *pass)
{
    struct event *e = pass->count > 1 ? note(PASS) : NULL;
    if (!e) return;
    e->pass.stored = pass->stored;
    e->pass.numel = pass->numel;
    for (int i = 0; i < pass->count; i++) {
        struct event *step = note(STEP);
        if (!step) return;
        snprintf(step->step.op, sizeof step->step.op, "%s", pass->steps[i].op);
        snprintf(step->step.line, sizeof step->step.line, "%s", pass->steps[i].line);
    }
}

/* ---- replays ---- */

static void observe_replayed(const fl_replayed *op)
{
    struct event *e = note(ENTRY);
    if (!e) return;
    record.op = record.count;
    e->entry.is_op = true;
    snprintf(e->entry.name, sizeof e->entry.name, "%s", op->op);
    snprintf(e->entry.where, sizeof e->entry.where, "%s", op->line);
    for (int i = 0; i < op->nin; i++)
        if (op->metas[i]) note_tensor(INPUT, op->metas[i], NULL, NULL);
        else note_number(&op->numbers[i]);
    for (int i = 0; i < op->nout; i++)
        if (op->metas[op->nin + i]) note_tensor(OUTPUT, op->metas[op->nin + i], NULL, NULL);
}

/* ---- the events as tables; their fields are listed in explain.lua ---- */

/* Stack indices while the report is made; those after REPORT belong to its last entry. */
enum { REPORT = 1, ENTRY_TABLE, INPUTS, OUTPUTS, WAYS, BOXING };

/* Puts the value on top of the stack at the end of the list at index. */
static void append(lua_State *L, int list) { lua_rawseti(L, list, (lua_Integer)lua_rawlen(L, list) + 1); }

static void set_text(lua_State *L, const char *key, const char *text)
{
    lua_pushstring(L, text);
    lua_setfield(L, -2, key);
}

static void set_integer(lua_State *L, const char *key, int64_t value)
{
    lua_pushinteger(L, value);
    lua_setfield(L, -2, key);
}

static void set_boolean(lua_State *L, const char *key, bool value)
{
    lua_pushboolean(L, value);
    lua_setfield(L, -2, key);
}

/* A tensor; of a local one also the device, unless that is the CPU. */
static const char *tensor_text(char *buffer, const fl_meta *meta)
{
    return meta->placement->type == FL_CPU ? fl_meta_text(buffer, meta) : fl_meta_placed_text(buffer, meta);
}

static void append_rank(lua_State *L, int rank)
{
    lua_pushinteger(L, rank);
    append(L, lua_gettop(L) - 1);
}

/* The groups of ranks that differ only in hierarchy axis `axis`. */
static void push_groups(lua_State *L, const fl_placement *placement, int axis)
{
    int stride = 1;
    for (int k = axis + 1; k < placement->ndim; k++) stride *= placement->hierarchy[k];
    lua_newtable(L);
    for (int first = 0; first < placement->count; first++) {
        if (first / stride % placement->hierarchy[axis] != 0) continue;
        lua_newtable(L);
        for (int i = 0; i < placement->hierarchy[axis]; i++) append_rank(L, placement->ranks[first + i * stride]);
        append(L, lua_gettop(L) - 1);
    }
}

/* One group: the ranks of both. */
static void push_union(lua_State *L, const fl_placement *p, const fl_placement *q)
{
    lua_newtable(L);
    lua_newtable(L);
    for (int i = 0; i < p->count; i++) append_rank(L, p->ranks[i]);
    for (int i = 0; i < q->count; i++)
        if (fl_placement_index(p, q->ranks[i]) < 0) append_rank(L, q->ranks[i]);
    append(L, lua_gettop(L) - 1);
}

/* One step of the boxing from `from` to `to`; before: the SBP it finds. */
static void push_step(lua_State *L, const fl_box_step *step, fl_nd_sbp before, const fl_meta *from, const fl_meta *to)
{
    char text[FL_ND_SBP_TEXT], shape[FL_SHAPE_TEXT];
    const char *kind = fl_box_kind_name(step->kind);
    bool whole = step->axis < 0;
    lua_newtable(L);
    set_text(L, "kind", kind);
    if (!whole) set_integer(L, "axis", step->axis);
    lua_pushfstring(L, whole || step->placement->ndim == 1 ? "%s" : "%s along axis %d", kind, step->axis);
    lua_setfield(L, -2, "text");
    set_boolean(L, "communicates", step->kind > FL_BOX_RELABEL);
    set_text(L, "from", whole ? fl_nd_sbp_text(text, before) : fl_sbp_text(text, step->from));
    set_text(L, "to", whole ? fl_nd_sbp_text(text, step->after) : fl_sbp_text(text, step->to));
    set_integer(L, "bytes", step->bytes);
    lua_pushfstring(L, "%s%s", fl_dtype_name(from->dtype), fl_shape_text(shape, &from->shape));
    lua_setfield(L, -2, "tensor");
    if (whole) push_union(L, from->placement, to->placement);
    else push_groups(L, step->placement, step->axis);
    lua_setfield(L, -2, "groups");
}

/* The boxing of the last of the entry's inputs. */
static void append_boxing(lua_State *L, const struct event *event)
{
    const fl_meta *from = event->tensor.meta, *to = event->tensor.to;
    fl_nd_sbp before = from->nd_sbp;
    char sbp[FL_ND_SBP_TEXT];
    lua_newtable(L);
    set_integer(L, "input", (int64_t)lua_rawlen(L, INPUTS));
    set_text(L, "from", fl_nd_sbp_text(sbp, from->nd_sbp));
    set_text(L, "to", fl_nd_sbp_text(sbp, to->nd_sbp));
    set_integer(L, "bytes", event->tensor.plan->bytes);
    lua_newtable(L);
    for (int i = 0; i < event->tensor.plan->count; i++) {
        const fl_box_step *step = &event->tensor.plan->steps[i];
        push_step(L, step, before, from, to);
        append(L, lua_gettop(L) - 1);
        before = step->after;
    }
    lua_setfield(L, -2, "steps");
    append(L, BOXING);
}

static void append_input(lua_State *L, const char *text, const struct event *boxed)
{
    char sbp[FL_ND_SBP_TEXT];
    lua_newtable(L);
    set_text(L, "text", text);
    set_integer(L, "bytes", boxed ? boxed->tensor.plan->bytes : 0);
    if (boxed) set_text(L, "boxed_to", fl_nd_sbp_text(sbp, boxed->tensor.to->nd_sbp));
    append(L, INPUTS);
    if (boxed) append_boxing(L, boxed);
}

/* "S(0) x B" */
static void set_sbps(lua_State *L, const char *key, const fl_nd_sbp *sbp, int n, const char *between)
{
    char text[FL_ND_SBP_TEXT];
    luaL_Buffer b;
    luaL_buffinit(L, &b);
    for (int i = 0; i < n; i++) {
        if (i) luaL_addstring(&b, between);
        luaL_addstring(&b, fl_nd_sbp_text(text, sbp[i]));
    }
    luaL_pushresult(&b);
    lua_setfield(L, -2, key);
}

static void append_way(lua_State *L, const struct event *event)
{
    lua_newtable(L);
    set_boolean(L, "chosen", event->way.chosen);
    set_integer(L, "bytes", event->way.bytes);
    set_sbps(L, "inputs", event->way.sbp, event->way.nin, " x ");
    set_sbps(L, "outputs", event->way.sbp + event->way.nin, event->way.nout, " and ");
    append(L, WAYS);
}

/* Puts an entry at the end of the report and its lists where the events after it find them. */
static void append_entry(lua_State *L, const struct event *event)
{
    static const char *const lists[] = {"inputs", "outputs", "ways", "boxing"};
    lua_settop(L, REPORT);
    lua_newtable(L);
    set_text(L, "op", event->entry.is_op ? event->entry.name : "to_global");
    if (!event->entry.is_op) set_text(L, "by", event->entry.name);
    set_text(L, "line", event->entry.where);
    lua_pushvalue(L, ENTRY_TABLE);
    append(L, REPORT);
    for (int i = 0; i < 4; i++) {
        lua_newtable(L);
        lua_pushvalue(L, -1);
        lua_setfield(L, ENTRY_TABLE, lists[i]);
    }
}

/* A pass belongs to no entry: its ops were called before. */
static void append_pass(lua_State *L, const struct event *event)
{
    lua_settop(L, REPORT);
    lua_getfield(L, REPORT, "passes");
    lua_newtable(L);
    set_integer(L, "stored", event->pass.stored);
    set_integer(L, "elements", event->pass.numel);
    lua_newtable(L);
    lua_pushvalue(L, -1);
    lua_setfield(L, -3, "steps");
    lua_insert(L, ENTRY_TABLE); /* the list of steps, where append_step finds it */
    append(L, ENTRY_TABLE + 1);
}

static void append_step(lua_State *L, const struct event *event)
{
    lua_newtable(L);
    set_text(L, "op", event->step.op);
    set_text(L, "line", event->step.line);
    append(L, ENTRY_TABLE);
}

static void append_event(lua_State *L, const struct event *event)
{
    char text[FL_META_TEXT];
    switch (event->kind) {
    case ENTRY: append_entry(L, event); break;
    case INPUT: append_input(L, tensor_text(text, event->tensor.meta), event->tensor.to ? event : NULL); break;
    case NUMBER: append_input(L, event->number, NULL); break;
    case OUTPUT:
        lua_pushstring(L, tensor_text(text, event->tensor.meta));
        append(L, OUTPUTS);
        break;
    case WAY: append_way(L, event); break;
    case PASS: append_pass(L, event); break;
    case STEP: append_step(L, event); break;
    }
}

/* ---- beginning and end ---- */

static void watch(bool on)
{
    static bool pretended; /* before */
    bool pretend = on ? fl_world_get()->dry || fl_boxing_pretend : pretended;
    fl_engine_compute_deferred();
    fl_infer_observer = on ? observe_op : NULL;
    fl_chain_observer = on ? observe_pass : NULL;
    fl_replay_observer = on ? observe_replayed : NULL;
    if (on) other_observer = fl_boxing_observer;
    fl_boxing_observer = on ? observe_boxing : other_observer;
    if (on) pretended = fl_boxing_pretend;
    if (pretend == fl_boxing_pretend) return;
    fl_boxing_pretend = pretend;
    fl_boxing_forget();
}

/* flow._explain(true) begins; flow._explain(false) ends and returns the list of entries */
static int explain(lua_State *L)
{
    fl_lua_enter(L);
    if (lua_toboolean(L, 1)) {
        if (fl_infer_observer) FL_RAISE(L, "explain: is running already");
        record_clear();
        watch(true);
        return 0;
    }
    watch(false);
    luaL_checkstack(L, 16, "explain");
    lua_settop(L, 0);
    lua_newtable(L);
    lua_newtable(L);
    lua_setfield(L, REPORT, "passes");
    for (int i = 0; i < record.count; i++) append_event(L, &record.events[i]);
    lua_settop(L, REPORT);
    record_clear();
    return 1;
}

/* flow._pcall(f, ...): pcall, but f may not yield: other code would run in its place and be recorded */
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
