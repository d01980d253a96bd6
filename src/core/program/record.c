/*
** record.c -- a program is recorded: kernels that dispatch and boxing run become steps.
*/
#include "recording.h"

#include "engine/control.h"

#include <stdio.h>

fl_recording fl_recording_now;

void fl_recording_fail(fl_status status)
{
    if (status == FL_OK || fl_recording_now.failed != FL_OK) return;
    fl_recording_now.failed = status;
    snprintf(fl_recording_now.message, sizeof fl_recording_now.message, "%s", fl_message());
}

fl_status fl_recording_refuse(const char *what)
{
    fl_status status = fl_fail(FL_ERR_STATE,
                               "capture: %s in a function that is captured, whose later calls are replayed without "
                               "Lua; do that outside of it",
                               what);
    if (fl_recording_now.strict) return status;
    fl_recording_fail(status);
    return FL_OK;
}

/* ---- steps ---- */

fl_status fl_recording_step(fl_step **out, fl_step_kind kind, const fl_op *op, int nin, int nout)
{
    fl_program *p = fl_recording_now.program;
    char line[128] = "";
    if (fl_recording_now.failed != FL_OK && fl_recording_now.strict)
        return fl_fail(fl_recording_now.failed, "%s", fl_recording_now.message);
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
    FL_TRY(fl_recording_operand(o, tensor));
    o->written = written;
    o->whole = whole;
    FL_TRY(fl_recording_use(o, tensor, fl_recording_now.program->step_count - 1));
    return fl_recording_flag(tensor);
}

static fl_status take_operands(fl_step *step, const fl_call *call)
{
    for (int i = 0; i < call->nin; i++) {
        fl_tensor *t = call->tensors[i];
        bool written = call->writes && fl_call_writes(call, i);
        bool whole = written && i == 0 && (call->op->flags & FL_OP_OVERWRITES) && t && fl_recording_is_whole(t);
        if (t) FL_TRY(take_operand(step, i, t, written, whole));
    }
    const bool whole = !call->writes || step->operands[0].whole; /* the result of an op that writes is its target */
    for (int i = 0; i < call->nout; i++) FL_TRY(take_operand(step, call->nin + i, call->out[i], true, whole));
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
    fl_attrs *attrs = fl_program_take(fl_recording_now.program, bytes);
    if (!attrs) return fl_program_out_of_memory();
    step->kernel.attrs = memcpy(attrs, call->attrs, bytes);
    return FL_OK;
}

/* The kernel's views, with arrays that stay; their data come at every run. */
static fl_status take_views(fl_step *step, const fl_kernel *kernel)
{
    int count = kernel->nin + kernel->nout;
    fl_view *views = fl_program_take(fl_recording_now.program, sizeof *views * (size_t)count);
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
    const fl_program *p = fl_recording_now.program;
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

static fl_status record_kernel(const fl_call *call, const fl_kernel *kernel)
{
    fl_step *step;
    bool flat = is_flat(call);
    FL_TRY(fl_recording_step(&step, flat ? FL_STEP_FLAT : FL_STEP_KERNEL, call->op, call->nin, call->nout));
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
    step->data = fl_program_take(fl_recording_now.program, sizeof *step->data * (FL_FLAT_MAX_IN + 1));
    return step->data ? FL_OK : fl_program_out_of_memory();
}

static void note_slot(int *used, int *count, const fl_tensor *tensor)
{
    if (tensor) used[(*count)++] = fl_recording_find(tensor->storage);
}

/* The slots that the call uses, as far as they are known: first those that it would write. A view writes nothing. */
static fl_status note_slots(fl_step *step, const fl_call *call)
{
    int *used = fl_program_take(fl_recording_now.program, sizeof *used * (size_t)(call->nin + call->nout + 1)), n = 0;
    const fl_tensor *x = call->nin ? call->tensors[0] : NULL;
    if (!used) return fl_program_out_of_memory();
    for (int i = 0; i < call->nin && call->writes; i++)
        if (fl_call_writes(call, i)) note_slot(used, &n, call->tensors[i]);
    for (int i = 0; i < call->nout && !call->writes; i++)
        if (!x || call->out[i]->storage != x->storage) note_slot(used, &n, call->out[i]);
    step->used_written = n;
    for (int i = 0; i < call->nin; i++)
        if (!call->writes || !fl_call_writes(call, i)) note_slot(used, &n, call->tensors[i]);
    step->used = used;
    step->used_count = n;
    return FL_OK;
}

static fl_status record_passed(const fl_call *call)
{
    fl_step *step;
    int slot;
    for (int i = 0; i < call->nin; i++) { /* a view of a leaf */
        if (!call->tensors[i] || !fl_dtype_is_float(call->tensors[i]->meta->dtype)) continue;
        FL_TRY(fl_recording_slot(&slot, call->tensors[i]));
        FL_TRY(fl_recording_flag(call->tensors[i]));
    }
    if (!call->plan->history) return FL_OK;
    FL_TRY(fl_recording_step(&step, FL_STEP_PASSED, call->op, 0, 0));
    FL_TRY(take_attrs(step, call));
    take_history(step, call);
    return note_slots(step, call);
}

/* A draw that repeats an earlier one (recompute.h) counts nothing. */
static fl_status draw_add(const fl_meta *meta, const fl_generator *drawn)
{
    fl_step *step;
    fl_program *p = fl_recording_now.program;
    fl_recording_now.last_draw = -1;
    for (int i = 0; i < p->draw_count; i++)
        if (p->draws[i].seed == drawn->seed && p->draws[i].counter == drawn->counter) return FL_OK;
    fl_recording_now.last_draw = p->step_count;
    FL_TRY(fl_program_reserve((void **)&p->draws, sizeof *p->draws, &p->draw_room, p->draw_count));
    FL_TRY(fl_recording_step(&step, FL_STEP_DRAW, NULL, 0, 0));
    step->drawn_for = fl_meta_ref(meta);
    step->draw = p->draw_count;
    p->draws[p->draw_count++] = *drawn;
    return FL_OK;
}

static void record_draw(const fl_meta *meta, const fl_generator *drawn) { fl_recording_fail(draw_add(meta, drawn)); }

/* The steps since then work without it, and a later draw that begins where it began is none of its repetitions. */
static void record_undraw(void)
{
    fl_program *p = fl_recording_now.program;
    if (fl_recording_now.last_draw < 0 || fl_recording_now.failed != FL_OK) return;
    fl_step *drawn = &p->steps[fl_recording_now.last_draw];
    for (int n = fl_recording_now.last_draw + 1; n < p->step_count; n++)
        if (p->steps[n].draw == drawn->draw) p->steps[n].draw = -1;
    fl_meta_unref(drawn->drawn_for);
    drawn->drawn_for = NULL;
    drawn->kind = FL_STEP_PASSED;
    drawn->draw = fl_recording_now.last_draw = -1;
    p->draw_count--;
}

static fl_status record_boxed(fl_tensor *out, fl_tensor *x, int priority)
{
    fl_step *step;
    if (out->meta->local_numel == 0 && x->meta->local_numel == 0 && !out->meta->holds && !x->meta->holds) return FL_OK;
    FL_TRY(fl_recording_step(&step, FL_STEP_BOX, NULL, 1, 1));
    step->priority = (int8_t)priority;
    FL_TRY(take_operand(step, 0, x, false, false));
    FL_TRY(take_operand(step, 1, out, true, true));
    for (int i = 0; i < 2; i++) fl_recording_now.program->slots[step->operands[i].slot].moved = true;
    return FL_OK;
}

static void record_made(fl_tensor *tensor)
{
    int slot;
    if (fl_recording_now.failed == FL_OK) fl_recording_fail(fl_recording_add(&slot, FL_SLOT_SHARED, tensor, -1));
}

fl_status fl_program_refuse(const char *what)
{
    if (fl_answerer_now) return fl_answerer_now->read();
    return fl_recording_now.program ? fl_recording_refuse(what) : FL_OK;
}

const fl_listener fl_recording_listener = {.kernel = record_kernel,
                                           .passed = record_passed,
                                           .drew = record_draw,
                                           .undrew = record_undraw,
                                           .boxed = record_boxed,
                                           .made = record_made,
                                           .refuse = fl_recording_refuse};
