/*
** record.c -- a program is recorded: what dispatch and boxing run becomes steps, and memory becomes slots.
**
** A slot is known by the storage that it stands for while the program is recorded. Storages are held until then, so
** that an address means one of them; those that nothing else holds any more are let go from time to time.
*/
#include "autograd/autograd.h"
#include "dispatch/listener.h"
#include "engine/engine.h"
#include "graphs.h"

#include <stdio.h>
#include <stdlib.h>

/* One entry of the table of storages. */
struct known {
    fl_storage *storage; /* owned */
    int slot;
};

static struct recording {
    fl_program *program; /* NULL: nothing is recorded */
    struct known *known; /* open addressing */
    int known_bits, known_count;
    fl_tensor **gradients; /* owned; of the leaves, as they were; NULL entries */
    int gradient_room;
    fl_status failed; /* where no status could be returned, with its message */
    char message[512];
    bool strict;
    int last_draw; /* the step of the draw that was heard last; -1: it repeated an earlier one */
    bool closing;  /* gradients are looked at, not used */
} now;

static void note_failure(fl_status status)
{
    if (status == FL_OK || now.failed != FL_OK) return;
    now.failed = status;
    snprintf(now.message, sizeof now.message, "%s", fl_message());
}

static fl_status refuse(const char *what)
{
    fl_status status = fl_fail(FL_ERR_STATE,
                               "capture: %s in a function that is captured, whose later calls are replayed without "
                               "Lua; do that outside of it",
                               what);
    if (now.strict) return status;
    note_failure(status);
    return FL_OK;
}

/* ---- which slot a storage is ---- */

static struct known *known_place(const fl_storage *storage)
{
    size_t mask = ((size_t)1 << now.known_bits) - 1, i = fl_hash_slot((uintptr_t)storage, now.known_bits);
    while (now.known[i].storage && now.known[i].storage != storage) i = (i + 1) & mask;
    return &now.known[i];
}

static int slot_known(const fl_storage *storage)
{
    const struct known *k = known_place(storage);
    return k->storage ? k->slot : -1;
}

/* Only we hold what a step has made: no op will ask for it again. */
static bool is_over(const struct known *known)
{
    return known->storage->refs == 1 && !fl_slot_is_outside(&now.program->slots[known->slot]);
}

/* A table of 2^bits places, without the entries that are over. */
static fl_status known_rebuild(int bits)
{
    struct known *old = now.known, *table = calloc((size_t)1 << bits, sizeof *table);
    size_t places = old ? (size_t)1 << now.known_bits : 0;
    if (!table) return fl_program_out_of_memory();
    now.known = table;
    now.known_bits = bits;
    now.known_count = 0;
    for (size_t i = 0; i < places; i++) {
        if (!old[i].storage) continue;
        if (is_over(&old[i])) {
            fl_storage_unref(old[i].storage);
            continue;
        }
        *known_place(old[i].storage) = old[i];
        now.known_count++;
    }
    free(old);
    return FL_OK;
}

static fl_status known_add(fl_storage *storage, int slot)
{
    if (2 * (now.known_count + 1) > 1 << now.known_bits) {
        FL_TRY(known_rebuild(now.known_bits));
        if (4 * (now.known_count + 1) > 1 << now.known_bits) FL_TRY(known_rebuild(now.known_bits + 1));
    }
    *known_place(storage) = (struct known){fl_storage_ref(storage), slot};
    now.known_count++;
    return FL_OK;
}

/* A new slot for the memory of the tensor. */
static fl_status slot_add(int *out, fl_slot_role role, fl_tensor *tensor, int index)
{
    fl_program *p = now.program;
    FL_TRY(fl_program_reserve((void **)&p->slots, sizeof *p->slots, &p->slot_room, p->slot_count));
    fl_slot *s = &p->slots[p->slot_count];
    *s = (fl_slot){.role = role, .index = index, .first = -1, .last = -1, .bytes = tensor->storage->bytes};
    FL_TRY(known_add(tensor->storage, p->slot_count));
    s->meta = fl_meta_ref(tensor->meta);
    if (role == FL_SLOT_INPUT) s->origin = tensor->offset * (int64_t)fl_dtype_size(tensor->meta->dtype);
    *out = p->slot_count++;
    return role == FL_SLOT_BOUND ? fl_tensor_detach(&s->tensor, tensor) : FL_OK;
}

/* What is not known by now comes from outside. */
static fl_status slot_of(int *out, fl_tensor *tensor)
{
    *out = slot_known(tensor->storage);
    return *out >= 0 ? FL_OK : slot_add(out, FL_SLOT_BOUND, tensor, -1);
}

/* ---- operands ---- */

static fl_status operand_of(fl_program_operand *out, fl_tensor *tensor)
{
    int64_t *strides = fl_program_take(now.program, sizeof *strides * FL_MAX_NDIM);
    int slot;
    if (!strides) return fl_program_out_of_memory();
    FL_TRY(slot_of(&slot, tensor));
    memcpy(strides, tensor->strides, sizeof *strides * FL_MAX_NDIM);
    const int64_t origin = now.program->slots[slot].origin;
    *out = (fl_program_operand){.slot = slot,
                                .offset = tensor->offset * (int64_t)fl_dtype_size(tensor->meta->dtype) - origin,
                                .moved_view = tensor->moved_view,
                                .meta = fl_meta_ref(tensor->meta),
                                .strides = strides};
    return FL_OK;
}

/* The step reads or writes its operand. Data that no step has made, and that a step reads, were put there by hand: they
** are kept. */
static fl_status note_use(const fl_program_operand *operand, fl_tensor *tensor, int step)
{
    fl_slot *s = &now.program->slots[operand->slot];
    if (s->first < 0) s->first = step;
    s->last = step;
    if (!operand->whole && !s->written && !fl_slot_is_outside(s)) {
        s->role = FL_SLOT_BOUND;
        FL_TRY(fl_tensor_detach(&s->tensor, tensor));
    }
    s->read |= !operand->whole;
    s->written |= operand->written;
    return FL_OK;
}

/* Notes the tensor if it is a leaf from outside; its flag is looked at in the end. */
static fl_status note_flag(fl_tensor *tensor)
{
    fl_program *p = now.program;
    const int slot = slot_known(tensor->storage);
    if (slot < 0 || p->slots[slot].role != FL_SLOT_BOUND || !fl_autograd_is_leaf(tensor)) return FL_OK;
    for (int i = p->slots[slot].flag; i; i = p->flags[i - 1].next)
        if (p->flags[i - 1].leaf == tensor) return FL_OK;
    FL_TRY(fl_program_reserve((void **)&p->flags, sizeof *p->flags, &p->flag_room, p->flag_count));
    p->flags[p->flag_count++] = (fl_program_flag){fl_tensor_ref(tensor), false, p->slots[slot].flag};
    p->slots[slot].flag = p->flag_count;
    return FL_OK;
}

static bool is_whole(const fl_tensor *tensor)
{
    size_t bytes = (size_t)tensor->meta->local_numel * fl_dtype_size(tensor->meta->dtype);
    return tensor->contiguous && bytes == tensor->storage->bytes;
}

/* ---- steps ---- */

static fl_status step_add(fl_step **out, fl_step_kind kind, const fl_op *op, int nin, int nout)
{
    fl_program *p = now.program;
    char line[128] = "";
    if (now.failed != FL_OK && now.strict) return fl_fail(now.failed, "%s", now.message);
    FL_TRY(fl_program_reserve((void **)&p->steps, sizeof *p->steps, &p->step_room, p->step_count));
    fl_step *s = &p->steps[p->step_count];
    *s = (fl_step){.kind = kind, .op = op, .live = -1, .draw = -1};
    s->operands = fl_program_take(p, sizeof *s->operands * (size_t)(nin + nout));
    if (fl_engine_where) fl_engine_where(line, sizeof line);
    char *text = fl_program_take(p, strlen(line) + 1);
    if (!s->operands || !text) return fl_program_out_of_memory();
    s->line = strcpy(text, line);
    for (int i = 0; i < nin + nout; i++) s->operands[i].slot = -1;
    s->nin = nin;
    s->nout = nout;
    p->step_count++;
    *out = s;
    return FL_OK;
}

static fl_status take_operand(fl_step *step, int i, fl_tensor *tensor, bool written, bool whole)
{
    fl_program_operand *o = &step->operands[i];
    FL_TRY(operand_of(o, tensor));
    o->written = written;
    o->whole = whole;
    FL_TRY(note_use(o, tensor, now.program->step_count - 1));
    return note_flag(tensor);
}

static fl_status take_operands(fl_step *step, const fl_call *call)
{
    for (int i = 0; i < call->nin; i++) {
        fl_tensor *t = call->tensors[i];
        bool written = call->writes && fl_call_writes(call, i);
        bool whole = written && i == 0 && (call->op->flags & FL_OP_OVERWRITES) && t && is_whole(t);
        if (t) FL_TRY(take_operand(step, i, t, written, whole));
    }
    for (int i = 0; i < call->nout; i++) FL_TRY(take_operand(step, call->nin + i, call->out[i], true, !call->writes));
    return FL_OK;
}

static void take_history(fl_step *step, const fl_call *call)
{
    const fl_plan *plan = call->plan;
    if (!plan->history) return;
    step->history = plan->history;
    step->content = plan->content;
    step->numbers = plan->numbers;
    step->number_values = fl_call_hash_operands(plan, call->in);
}

static fl_status take_attrs(fl_step *step, const fl_call *call)
{
    size_t bytes = offsetof(fl_attrs, at) + sizeof(fl_attr) * (size_t)call->attrs->count;
    fl_attrs *attrs = fl_program_take(now.program, bytes);
    if (!attrs) return fl_program_out_of_memory();
    step->kernel.attrs = memcpy(attrs, call->attrs, bytes);
    return FL_OK;
}

/* The kernel's views, with arrays that stay; their data come at every run. */
static fl_status take_views(fl_step *step, const fl_kernel *kernel)
{
    int count = kernel->nin + kernel->nout;
    fl_view *views = fl_program_take(now.program, sizeof *views * (size_t)count);
    if (!views) return fl_program_out_of_memory();
    for (int i = 0; i < count; i++) {
        const fl_view *from = i < kernel->nin ? &kernel->in[i] : &kernel->out[i - kernel->nin];
        const fl_program_operand *o = &step->operands[i];
        views[i] = *from;
        if (from->data == from->scalar) views[i].data = views[i].scalar;
        if (o->slot < 0) continue;
        views[i].size = o->meta->window.size;
        views[i].start = o->meta->window.start;
        views[i].logical = o->meta->shape.dims;
        views[i].stride = o->strides;
        views[i].data = NULL;
    }
    const fl_attrs *attrs = step->kernel.attrs;
    step->kernel = *kernel;
    step->kernel.attrs = attrs;
    step->kernel.in = views;
    step->kernel.out = views + kernel->nin;
    return FL_OK;
}

/* Numbers lie in their view with no arrays of their own: an axis of them has size 1. */
static bool is_flat(const fl_call *call)
{
    bool flat = call->plan->flat && call->out[0]->contiguous;
    for (int i = 0; i < call->nin && flat; i++) flat = call->tensors[i] && call->tensors[i]->contiguous;
    return flat;
}

/* The draw whose seed and counter the kernel has, of its own or, where it repeats an earlier one, in its attributes. */
static void find_draw(fl_step *step, const fl_kernel *kernel)
{
    const fl_program *p = now.program;
    fl_generator g = {kernel->seed, kernel->counter};
    const int slot = step->op->seed_slot;
    if (!slot && !(step->op->flags & FL_OP_RANDOM)) return;
    if (slot) {
        g.seed = (uint64_t)kernel->attrs->at[slot].integer;
        g.counter = (uint64_t)kernel->attrs->at[slot + 1].integer;
    }
    for (int i = p->draw_count - 1; i >= 0 && step->draw < 0; i--)
        if (p->draws[i].seed == g.seed && p->draws[i].counter == g.counter) step->draw = i;
}

static fl_status heard_kernel(const fl_call *call, const fl_kernel *kernel)
{
    fl_step *step;
    bool flat = is_flat(call);
    FL_TRY(step_add(&step, flat ? FL_STEP_FLAT : FL_STEP_KERNEL, call->op, call->nin, call->nout));
    FL_TRY(take_operands(step, call));
    FL_TRY(take_attrs(step, call));
    take_history(step, call);
    find_draw(step, kernel);
    step->device = call->plan->device;
    step->device_index = call->plan->device_index;
    step->lane = call->plan->lane;
    step->numel = call->nout ? call->out[0]->meta->local_numel : 0;
    step->fuses = !call->writes && fl_plan_may_fuse(call->plan);
    step->folds = call->plan->folds;
    if (step->fuses && call->op->draw) step->fuses = (step->first_drawn = fl_meta_first(call->out[0]->meta)) >= 0;
    FL_TRY(take_views(step, kernel));
    if (!flat) {
        step->run = call->plan->kernel;
        return FL_OK;
    }
    step->flat = call->plan->flat;
    step->data = fl_program_take(now.program, sizeof *step->data * (FL_FLAT_MAX_IN + 1));
    return step->data ? FL_OK : fl_program_out_of_memory();
}

static fl_status heard_passed(const fl_call *call)
{
    fl_step *step;
    int slot;
    for (int i = 0; i < call->nin; i++) { /* a view of a leaf */
        if (!call->tensors[i] || !fl_dtype_is_float(call->tensors[i]->meta->dtype)) continue;
        FL_TRY(slot_of(&slot, call->tensors[i]));
        FL_TRY(note_flag(call->tensors[i]));
    }
    if (!call->plan->history) return FL_OK;
    FL_TRY(step_add(&step, FL_STEP_PASSED, call->op, 0, 0));
    FL_TRY(take_attrs(step, call));
    take_history(step, call);
    return FL_OK;
}

/* A draw that repeats an earlier one (recompute.h) counts nothing. */
static fl_status draw_add(const fl_meta *meta, const fl_generator *drawn)
{
    fl_step *step;
    fl_program *p = now.program;
    now.last_draw = -1;
    for (int i = 0; i < p->draw_count; i++)
        if (p->draws[i].seed == drawn->seed && p->draws[i].counter == drawn->counter) return FL_OK;
    now.last_draw = p->step_count;
    FL_TRY(fl_program_reserve((void **)&p->draws, sizeof *p->draws, &p->draw_room, p->draw_count));
    FL_TRY(step_add(&step, FL_STEP_DRAW, NULL, 0, 0));
    step->drawn_for = fl_meta_ref(meta);
    step->draw = p->draw_count;
    p->draws[p->draw_count++] = *drawn;
    return FL_OK;
}

static void heard_draw(const fl_meta *meta, const fl_generator *drawn) { note_failure(draw_add(meta, drawn)); }

/* The steps since then work without it, and a later draw that begins where it began is none of its repetitions. */
static void heard_undraw(void)
{
    fl_program *p = now.program;
    if (now.last_draw < 0 || now.failed != FL_OK) return;
    fl_step *drawn = &p->steps[now.last_draw];
    for (int n = now.last_draw + 1; n < p->step_count; n++)
        if (p->steps[n].draw == drawn->draw) p->steps[n].draw = -1;
    fl_meta_unref(drawn->drawn_for);
    drawn->drawn_for = NULL;
    drawn->kind = FL_STEP_PASSED;
    drawn->draw = now.last_draw = -1;
    p->draw_count--;
}

static fl_status heard_boxed(fl_tensor *out, fl_tensor *x)
{
    fl_step *step;
    if (out->meta->local_numel == 0 && x->meta->local_numel == 0 && !out->meta->holds && !x->meta->holds) return FL_OK;
    FL_TRY(step_add(&step, FL_STEP_BOX, NULL, 1, 1));
    FL_TRY(take_operand(step, 0, x, false, false));
    FL_TRY(take_operand(step, 1, out, true, true));
    for (int i = 0; i < 2; i++) now.program->slots[step->operands[i].slot].moved = true;
    return FL_OK;
}

static void heard_made(fl_tensor *tensor)
{
    int slot;
    if (now.failed == FL_OK) note_failure(slot_add(&slot, FL_SLOT_SHARED, tensor, -1));
}

fl_status fl_program_refuse(const char *what)
{
    if (fl_answerer_now) return fl_answerer_now->read();
    return now.program ? refuse(what) : FL_OK;
}

static const fl_listener listener = {.kernel = heard_kernel,
                                     .passed = heard_passed,
                                     .drew = heard_draw,
                                     .undrew = heard_undraw,
                                     .boxed = heard_boxed,
                                     .made = heard_made,
                                     .refuse = refuse};

/* ---- gradients of leaves ---- */

static int leaf_find(const fl_tensor *leaf)
{
    for (int i = 0; i < now.program->leaf_count; i++)
        if (now.program->leaves[i].leaf == leaf) return i;
    return -1;
}

/* The first time that a leaf's gradient is looked at. */
static fl_status leaf_add(fl_tensor *leaf, fl_grad_access access)
{
    fl_program *p = now.program;
    int room = p->leaf_room, made = slot_known(leaf->storage);
    if (made >= 0 && !fl_slot_is_outside(&p->slots[made])) return refuse("a tensor that has a gradient is made");
    FL_TRY(fl_program_reserve((void **)&p->leaves, sizeof *p->leaves, &p->leaf_room, p->leaf_count));
    if (p->leaf_room != room) {
        fl_tensor **grown = realloc(now.gradients, sizeof *grown * (size_t)p->leaf_room);
        if (!grown) return fl_program_out_of_memory();
        now.gradients = grown;
    }
    fl_program_leaf *l = &p->leaves[p->leaf_count];
    *l = (fl_program_leaf){.leaf = fl_tensor_ref(leaf), .depends = access == FL_GRAD_READ, .slot = -1};
    now.gradients[p->leaf_count++] = NULL;
    fl_tensor *before = fl_autograd_grad_of(leaf);
    if (!before) return FL_OK;
    l->before = fl_meta_ref(before->meta);
    l->offset_before = before->offset;
    now.gradients[p->leaf_count - 1] = fl_tensor_ref(before);
    l->slot = slot_known(before->storage);
    return l->slot >= 0 ? FL_OK : slot_add(&l->slot, FL_SLOT_GRADIENT, before, p->leaf_count - 1);
}

static void heard_gradient(const fl_tensor *tensor, fl_grad_access access)
{
    if (now.closing || now.failed != FL_OK || leaf_find(tensor) >= 0) return;
    now.closing = true; /* leaf_add looks at the gradient itself */
    note_failure(leaf_add((fl_tensor *)tensor, access));
    now.closing = false;
}

/* What becomes of the gradients. A leaf that the function itself made is gone or is an error of its own. */
static fl_status close_leaves(void)
{
    fl_program *p = now.program;
    for (int i = 0; i < p->leaf_count; i++) {
        fl_program_leaf *l = &p->leaves[i];
        fl_tensor *after = fl_autograd_grad_of(l->leaf);
        l->after.slot = -1;
        l->changes = !l->depends || after != now.gradients[i]; /* another run may begin with another one */
        if (l->changes && after) FL_TRY(operand_of(&l->after, after));
        if (l->slot >= 0 && p->slots[l->slot].first < 0 && l->after.slot != l->slot) l->slot = -1;
    }
    return FL_OK;
}

static void close_flags(void)
{
    fl_program *p = now.program;
    for (int i = 0; i < p->flag_count; i++) p->flags[i].requires_grad = p->flags[i].leaf->requires_grad;
    p->flag_changes = fl_autograd_flag_changes;
}

/* ---- begin and end ---- */

bool fl_program_is_recording(void) { return now.program != NULL; }

bool fl_program_has_failed(void) { return now.failed != FL_OK; }

static void stop_listening(void)
{
    fl_listen(NULL);
    fl_autograd_grad_watch = NULL;
}

static void recording_drop(void)
{
    for (size_t i = 0; now.known && i < (size_t)1 << now.known_bits; i++) fl_storage_unref(now.known[i].storage);
    for (int i = 0; now.gradients && i < now.program->leaf_count; i++) fl_tensor_unref(now.gradients[i]);
    free(now.known);
    free(now.gradients);
    memset(&now, 0, sizeof now);
}

void fl_program_abort(void)
{
    if (!now.program) return;
    stop_listening();
    fl_program *program = now.program;
    recording_drop();
    fl_program_free(program);
}

fl_status fl_program_begin(fl_tensor *const *args, int count, bool strict)
{
    int slot;
    if (now.program) return fl_fail(FL_ERR_STATE, "capture: a function is captured already");
    now.program = calloc(1, sizeof *now.program);
    fl_status status = now.program ? known_rebuild(8) : fl_program_out_of_memory();
    for (int i = 0; i < count && status == FL_OK; i++) status = slot_add(&slot, FL_SLOT_INPUT, args[i], i);
    if (status != FL_OK) {
        fl_program_abort();
        return status;
    }
    now.program->input_count = count;
    now.strict = strict;
    fl_autograd_grad_watch = heard_gradient;
    fl_listen(&listener);
    return FL_OK;
}

int64_t fl_program_length(void) { return now.program ? now.program->step_count : 0; }

fl_status fl_program_mark_live(int id, int64_t since)
{
    if (now.program->step_count == since) return fl_program_mark_host(id);
    if (now.program->step_count != since + 1)
        return fl_fail(FL_ERR_STATE, "capture: an op whose numbers change must be one kernel");
    now.program->steps[since].live = id;
    return FL_OK;
}

fl_status fl_program_mark_host(int id)
{
    fl_step *step;
    FL_TRY(step_add(&step, FL_STEP_HOST, NULL, 0, 0));
    step->live = id;
    return FL_OK;
}

static fl_status take_results(fl_tensor *const *results, int count)
{
    fl_program *p = now.program;
    p->results = fl_program_take(p, sizeof *p->results * (size_t)(count + 1));
    if (!p->results) return fl_program_out_of_memory();
    for (; p->result_count < count; p->result_count++)
        FL_TRY(operand_of(&p->results[p->result_count], results[p->result_count]));
    return FL_OK;
}

/* How many tensors that the caller and the leaves hold refer to the storage. */
static int holders_of(const fl_storage *storage, fl_tensor *const *results, int count)
{
    int holders = 0;
    for (int i = 0; i < count; i++) {
        bool again = false;
        for (int k = 0; k < i; k++) again |= results[k] == results[i];
        holders += !again && results[i]->storage == storage;
    }
    for (int i = 0; i < now.program->leaf_count; i++) {
        const fl_tensor *g = fl_autograd_grad_of(now.program->leaves[i].leaf);
        holders += g && g->storage == storage;
    }
    return holders;
}

/* A run cannot renew what the function has put elsewhere. */
static fl_status check_nothing_else_is_held(fl_tensor *const *results, int count)
{
    for (size_t i = 0; i < (size_t)1 << now.known_bits; i++) {
        const struct known *k = &now.known[i];
        if (!k->storage) continue;
        const fl_slot *s = &now.program->slots[k->slot];
        if (fl_slot_is_outside(s) || s->first < 0) continue;
        if (k->storage->refs - 1 <= holders_of(k->storage, results, count)) continue;
        const fl_step *made = &now.program->steps[s->first];
        char text[FL_META_TEXT];
        return fl_fail(FL_ERR_STATE,
                       "capture: a tensor that the function made (%s by %s, %s) is still held after its return, and a "
                       "replay would not renew it; return it, or make it before",
                       fl_meta_text(text, s->meta), made->op ? made->op->name : "boxing", made->line);
    }
    return FL_OK;
}

bool fl_program_is_held(fl_tensor *const *results, int count)
{
    bool closing = now.closing;
    now.closing = true;
    fl_status status = now.failed == FL_OK ? check_nothing_else_is_held(results, count) : FL_OK;
    now.closing = closing;
    return status != FL_OK;
}

static fl_status recording_end(fl_program **out, fl_tensor *const *results, int count)
{
    FL_TRY(take_results(results, count));
    FL_TRY(close_leaves());
    close_flags();
    FL_TRY(fl_program_seal(now.program));
    *out = now.program;
    recording_drop();
    return FL_OK;
}

fl_status fl_program_end(fl_program **out, bool *held, fl_tensor *const *results, int count)
{
    stop_listening();
    now.closing = true;
    fl_status status = now.failed == FL_OK ? FL_OK : fl_fail(now.failed, "%s", now.message);
    if (status == FL_OK) *held = (status = check_nothing_else_is_held(results, count)) != FL_OK;
    if (status == FL_OK) status = recording_end(out, results, count);
    if (status != FL_OK) fl_program_abort();
    return status;
}

fl_status fl_program_end_piece(fl_program **out, fl_tensor *const *results, int count)
{
    stop_listening();
    fl_status status = now.failed == FL_OK ? FL_OK : fl_fail(now.failed, "%s", now.message);
    if (status == FL_OK) status = recording_end(out, results, count);
    if (status != FL_OK) fl_program_abort();
    return status;
}

bool fl_program_made(const fl_storage *storage)
{
    const int slot = slot_known(storage);
    return slot >= 0 && !fl_slot_is_outside(&now.program->slots[slot]);
}
