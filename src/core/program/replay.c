/*
** replay.c -- a program runs: pointers are set where memory has changed, then each step does its work.
**
** Kernels on the host run on the caller, one after the other: memory shared with the engine's lanes is waited for
** first. Kernels on a device are issued as tasks, like those of eager code, one by one or as graphs (graphs.h).
*/
#include "autograd/autograd.h"
#include "base/clock.h"
#include "boxing/boxing.h"
#include "dispatch/fault.h"
#include "dispatch/listener.h"
#include "engine/control.h"
#include "engine/engine.h"
#include "engine/loss.h"
#include "graphs.h"
#include "memory/device.h"
#include "op/operand.h"
#include "op/outside.h"
#include "passes.h"
#include "ranks/comm.h"

#include <stdio.h>
#include <stdlib.h>

/* One run. */
struct run {
    fl_program *program;
    fl_program_host host;
    void *context;
    bool heals; /* something is missing, of which a step writes all */
};

/* ---- addresses of slots ---- */

static void set_data(fl_slot *slot, char *data)
{
    if (slot->data == data) return;
    slot->data = data;
    for (int i = 0; i < slot->use_count; i++) *slot->uses[i].place = data + slot->uses[i].offset;
}

/* Start of the memory that operands of the slot are counted from: an argument's first element. */
static char *start_of(const fl_slot *slot)
{
    const fl_tensor *t = slot->tensor;
    if (slot->role == FL_SLOT_INPUT) return fl_tensor_data(t);
    return t->storage->data ? t->storage->data : fl_storage_computed_data(t->storage);
}

/* All that uses the block is issued to one queue, which keeps the order of slots that lie in the same bytes. */
fl_var *fl_slot_var(fl_slot *slot) { return slot->role == FL_SLOT_SHARED ? &slot->var : &slot->tensor->storage->var; }

static bool is_on_host(const fl_slot *slot) { return slot->meta->placement->type == FL_CPU; }

/* Waits until a tensor from outside has its value, and may be written. */
static fl_status make_ready(const fl_slot *slot)
{
    fl_var *var = &slot->tensor->storage->var;
    if (!is_on_host(slot)) return fl_var_is_deferred(var) ? fl_engine_wait_var(var) : FL_OK;
    if (slot->written ? fl_var_writable(var) : fl_var_readable(var)) return FL_OK;
    if (slot->read) FL_TRY(fl_engine_wait_var(var));
    if (slot->written) fl_engine_wait_idle(var);
    return FL_OK;
}

/* Arguments, bound tensors and gradients. */
static fl_status take_outside(struct run *run, fl_tensor *const *args)
{
    fl_program *program = run->program;
    for (int i = 0; i < program->slot_count; i++) {
        fl_slot *s = &program->slots[i];
        if (!fl_slot_is_outside(s) || s->first < 0) continue;
        if (s->role == FL_SLOT_INPUT) s->tensor = args[s->index];
        if (s->role == FL_SLOT_GRADIENT) s->tensor = fl_tensor_ref(fl_autograd_grad_of(program->leaves[s->index].leaf));
        FL_TRY(make_ready(s));
        run->heals |= is_on_host(s) && s->tensor->storage->var.poison;
        set_data(s, start_of(s));
    }
    return FL_OK;
}

static const fl_slot *shared_slot(const fl_program *program)
{
    for (int i = 0; i < program->slot_count; i++)
        if (program->slots[i].role == FL_SLOT_SHARED && program->slots[i].first >= 0) return &program->slots[i];
    return NULL;
}

static fl_status take_block(fl_program *program)
{
    const fl_slot *first = shared_slot(program);
    if (program->block || !program->block_bytes || !first) return FL_OK;
    const fl_placement *p = first->meta->placement;
    FL_TRY(fl_storage_new_for(&program->block, program->block_bytes, p->type, p->device_index, FL_QUEUE_COMPUTE));
    for (int i = 0; i < program->slot_count; i++)
        if (program->slots[i].role == FL_SLOT_SHARED)
            set_data(&program->slots[i], (char *)program->block->data + program->slots[i].at);
    return FL_OK;
}

/* Ends a run: its memory is given back; slots that it wrote, or would have written, get a new version. */
static void leave(fl_program *program)
{
    for (int i = 0; i < program->slot_count; i++) {
        fl_slot *s = &program->slots[i];
        if (s->tensor && s->written && fl_slot_is_outside(s)) fl_var_bump(&s->tensor->storage->var);
        if (s->role == FL_SLOT_INPUT) s->tensor = NULL;
        if (s->role != FL_SLOT_OWN && s->role != FL_SLOT_GRADIENT) continue;
        fl_tensor_unref(s->tensor);
        s->tensor = NULL;
    }
    program->busy = false;
}

static fl_status view_of(fl_tensor **out, fl_tensor *base, int64_t start, const fl_program_operand *operand)
{
    FL_TRY(fl_tensor_view(out, base, operand->meta, operand->strides,
                          start + operand->offset / (int64_t)fl_dtype_size(operand->meta->dtype)));
    (*out)->moved_view = operand->moved_view;
    return FL_OK;
}

/* A tensor that is an operand, or a result. */
static fl_status tensor_of(fl_tensor **out, const fl_program *program, const fl_program_operand *operand)
{
    const fl_slot *s = &program->slots[operand->slot];
    return view_of(out, s->tensor, s->role == FL_SLOT_INPUT ? s->tensor->offset : 0, operand);
}

/* ---- steps ---- */

/* "mul of float32[64, 128] B" */
static void word_step(char *buffer, const void *what)
{
    const fl_step *step = what;
    char text[FL_META_TEXT] = "";
    const fl_meta *m = NULL;
    for (int i = 0; i < step->nin + step->nout + step->noted && !m; i++) m = step->operands[i].meta;
    snprintf(buffer, FL_PAST_WHAT, "%s of %.80s", step->op->name, m ? fl_meta_text(text, m) : "nothing");
}

static void take_draw(fl_step *step, fl_attrs *attrs, const fl_generator *drawn)
{
    const int slot = step->op->seed_slot;
    step->kernel.seed = drawn->seed;
    step->kernel.counter = drawn->counter;
    if (!slot) return;
    attrs->at[slot].integer = (int64_t)drawn->seed;
    attrs->at[slot + 1].integer = (int64_t)drawn->counter;
}

/* The host's numbers, random ones, the rank's history. */
static fl_status prepare(const struct run *run, fl_step *step)
{
    fl_attrs *attrs = (fl_attrs *)step->kernel.attrs;
    if (step->live >= 0) {
        FL_TRY(run->host(run->context, step->live, step->op, attrs));
        FL_TRY(fl_op_check(step->op, NULL, 0, attrs));
    }
    if (step->draw >= 0) take_draw(step, attrs, &run->program->draws[step->draw]);
    if (step->history && !fl_comm_refusal) {
        uint64_t numbers = fl_call_hash_attrs(step->number_values, step->numbers, attrs);
        fl_history_note(step->history, step->content, numbers, word_step, step);
    }
    return FL_OK;
}

struct issued {
    fl_step *step;
};

fl_status fl_step_launch(fl_step *step)
{
    if (step->kind == FL_STEP_FUSED) return step->device->tiles(&step->fused->tiles, step->op->name);
    return step->run(&step->kernel);
}

static fl_status issue_run(void *payload)
{
    fl_step *step = ((const struct issued *)payload)->step;
    FL_TRY(step->device->enter(step->device_index, FL_QUEUE_COMPUTE));
    return fl_step_launch(step);
}

/* As in dispatch: a step that changes its operands is not issued on a wrong value (engine.h). */
static unsigned flags_of(const fl_step *step)
{
    unsigned flags = 0;
    for (int i = 0; i < step->nin; i++)
        if (step->operands[i].slot >= 0 && step->operands[i].written) flags |= FL_TASK_UPDATES;
    if (flags && step->operands[0].written && step->operands[0].whole) flags |= FL_TASK_OVERWRITES;
    return flags;
}

/* The variables that the step reads and does not write, and those it writes; lists of as many as it has operands. */
static void collect_vars(const fl_program *program, const fl_step *step, fl_var **reads, int *read_count,
                         fl_var **writes, int *write_count)
{
    int count = step->nin + step->nout;
    for (int i = 0; i < count; i++) {
        const fl_program_operand *o = &step->operands[i];
        if (o->slot < 0) continue;
        fl_var *var = fl_slot_var(&program->slots[o->slot]);
        if (o->written) writes[(*write_count)++] = var;
        else reads[(*read_count)++] = var;
    }
    fl_vars_once(reads, read_count, writes, write_count);
}

enum { VARIABLES = 64 };

/* The kernel's launches go into the device's queue. Steps of optimizers have thousands of operands. */
static fl_status issue(fl_program *program, fl_step *step)
{
    fl_var *stack[2 * VARIABLES], **vars = stack;
    size_t count = (size_t)(step->nin + step->nout);
    if (count > VARIABLES) vars = malloc(2 * count * sizeof *vars);
    if (!vars) return fl_fail(FL_ERR_MEMORY, "%s: out of memory for %zu operands", step->op->name, count);
    struct issued payload = {step};
    fl_task task = {.name = step->op->name,
                    .run = issue_run,
                    .payload = &payload,
                    .payload_size = sizeof payload,
                    .reads = vars,
                    .writes = vars + count,
                    .lane = step->lane,
                    .flags = flags_of(step),
                    .line = *step->line ? step->line : NULL};
    collect_vars(program, step, vars, &task.read_count, vars + count, &task.write_count);
    fl_graphs_count_step();
    const int64_t checks = fl_engine_checks_made();
    fl_status status = fl_engine_push(&task);
    if (vars != stack) free(vars);
    if (fl_engine_checks_made() > checks) fl_graphs_note_report(program, step);
    return status;
}

/* ---- fused steps ---- */

/* The source of a reduction's elements. */
struct source {
    fl_source source; /* first */
    const fl_step *step;
    fl_tensor *made; /* owned; the operand, where it had to be in memory and no other step uses it */
};

static bool give_tiles(fl_source *source, fl_tiles *tiles, int *slot)
{
    const fl_fused *f = ((struct source *)source)->step->fused;
    *tiles = f->tiles;
    *slot = f->fold;
    return true;
}

static void *give_data(fl_source *source)
{
    struct source *s = (struct source *)source;
    const fl_fused *f = s->step->fused;
    fl_tiles tiles = f->tiles;
    if (!tiles.slots[f->fold].data) {
        if (fl_tensor_empty(&s->made, f->from) != FL_OK) return NULL;
        fl_tiles_store(&tiles, f->fold, fl_tensor_data(s->made));
    }
    void *data = tiles.slots[f->fold].data;
    fl_tiles_run(&tiles);
    return data;
}

static fl_status run_fold(fl_step *step)
{
    struct source source = {.source = {give_tiles, give_data}, .step = step};
    step->kernel.source = &source.source;
    fl_status status = step->run(&step->kernel);
    fl_tensor_unref(source.made);
    return status;
}

static fl_status run_fused(fl_program *program, fl_step *step)
{
    fl_fused *f = step->fused;
    for (int i = 0; i < f->draw_count; i++) {
        const fl_generator *g = &program->draws[f->draws[i].number];
        f->draws[i].draw->key = (fl_random_key){g->seed, g->counter};
    }
    if (step->device) return issue(program, step);
    if (f->fold >= 0) return run_fold(step);
    fl_tiles tiles = f->tiles;
    fl_tiles_run(&tiles);
    return FL_OK;
}

static fl_status box(fl_program *program, const fl_step *step)
{
    fl_tensor *x;
    fl_slot *to = &program->slots[step->operands[1].slot];
    if (step->displaced) FL_TRY(fl_step_note_turn(step));
    FL_TRY(tensor_of(&x, program, &step->operands[0]));
    fl_status status = fl_boxing_apply(&to->tensor, x, step->operands[1].meta);
    fl_tensor_unref(x);
    if (status == FL_OK) set_data(to, start_of(to));
    return status;
}

static bool is_unused(const fl_tensor *tensor) { return tensor->refs == 1 && tensor->storage->refs == 1; }

/* Graphs are recorded with addresses: a slot stays where it was, unless its memory from the last run has other
** references. */
static fl_status make(const fl_program *program, fl_slot *slot)
{
    bool keeps = program->has_graphs && !is_on_host(slot) && !slot->moves_often;
    if (slot->kept && (!keeps || !is_unused(slot->kept))) {
        fl_tensor_unref(slot->kept);
        slot->kept = NULL;
    }
    if (slot->kept) slot->tensor = fl_tensor_ref(slot->kept);
    else FL_TRY(fl_tensor_empty(&slot->tensor, slot->meta));
    if (keeps && !slot->kept) slot->kept = fl_tensor_ref(slot->tensor);
    set_data(slot, slot->tensor->storage->data);
    return FL_OK;
}

static void drop(fl_slot *slot)
{
    fl_tensor_unref(slot->tensor);
    slot->tensor = NULL;
}

/* Waits until boxing has ended with the slot. */
static fl_status wait_for(const fl_slot *slot)
{
    FL_TRY(fl_engine_wait_var(&slot->tensor->storage->var));
    fl_engine_wait_idle(&slot->tensor->storage->var);
    return FL_OK;
}

static fl_status run_prepared(const struct run *run, fl_step *step)
{
    fl_program *p = run->program;
    switch (step->kind) {
    case FL_STEP_KERNEL: return step->device ? issue(p, step) : step->run(&step->kernel);
    case FL_STEP_FLAT: step->flat(step->data[0], (const void *const *)step->data + 1, step->numel, NULL); return FL_OK;
    case FL_STEP_FUSED: return run_fused(p, step);
    case FL_STEP_DRAW: p->draws[step->draw] = fl_dispatch_draw(step->drawn_for); return FL_OK;
    case FL_STEP_HOST: return run->host(run->context, step->live, NULL, NULL);
    case FL_STEP_BOX: return box(p, step);
    case FL_STEP_NEW: return make(p, &p->slots[step->slot]);
    case FL_STEP_DROP: drop(&p->slots[step->slot]); return FL_OK;
    case FL_STEP_WAIT: return wait_for(&p->slots[step->slot]);
    default: return FL_OK;
    }
}

static fl_status run_step(const struct run *run, fl_step *step)
{
    if (step->kind < FL_STEP_DRAW && (step->draw >= 0 || step->history || step->live >= 0)) FL_TRY(prepare(run, step));
    return run_prepared(run, step);
}

static fl_status fail_at(const fl_step *step, fl_status status)
{
    return *step->line ? fl_fail_prefix(status, "captured at %s: ", step->line) : status;
}

/* The parts of the step: itself, or steps that run in one pass. */
static const fl_step *parts_of(int *count, const fl_program *program, const fl_step *step)
{
    *count = step->kind == FL_STEP_FUSED ? step->fused->pass.count : 1;
    return step->kind == FL_STEP_FUSED ? &program->retired[step->fused->first_retired] : step;
}

static void show(const fl_step *step)
{
    const int count = step->nin + step->nout;
    const fl_meta **metas = malloc(sizeof *metas * (size_t)(count + 1));
    fl_operand *numbers = calloc((size_t)count + 1, sizeof *numbers);
    for (int i = 0; i < count && metas && numbers; i++) {
        metas[i] = step->operands[i].slot < 0 ? NULL : step->operands[i].meta;
        if (!metas[i] && i < step->nin) numbers[i] = fl_number_of_view(&step->kernel.in[i]);
    }
    if (metas && numbers)
        fl_replay_observer(&(fl_replayed){step->op->name, step->line, step->nin, step->nout, metas, numbers});
    free(metas);
    free(numbers);
}

/* A kernel, or fused steps, that began at `started`. Tasks of a device are in the trace by themselves. */
static void report(const fl_program *program, const fl_step *step, uint64_t started)
{
    int count;
    const fl_step *parts = parts_of(&count, program, step);
    for (int i = 0; i < count && fl_replay_observer; i++) show(&parts[i]);
    const fl_chain_step alone = {step->op->name, step->line};
    const fl_chain_pass pass = {.steps = &alone, .count = 1, .stored = step->nout, .numel = step->numel};
    if (step->device && !fl_chain_observer) return;
    fl_chain_report(step->kind == FL_STEP_FUSED ? &step->fused->pass : &pass, started);
}

/* FLOW_FAULT: the ops of the step are counted. True: it does not run. */
static bool stopped(fl_status *status, const fl_program *program, const fl_step *step)
{
    int count;
    const fl_step *parts = parts_of(&count, program, step);
    for (int i = 0; i < count; i++)
        if (fl_fault_step(status, parts[i].op->name)) return true;
    return false;
}

static fl_status run_watched(const struct run *run, fl_step *step)
{
    const uint64_t started = fl_now();
    const bool computes = step->kind <= FL_STEP_FUSED;
    fl_status status = FL_OK;
    if (computes && fl_fault_armed && stopped(&status, run->program, step)) return status;
    status = run_step(run, step);
    if (computes && status == FL_OK && fl_chain_reports()) report(run->program, step, started);
    return status;
}

static fl_var *outside_var(const fl_program *program, const fl_program_operand *operand)
{
    const fl_slot *s = operand->slot < 0 ? NULL : &program->slots[operand->slot];
    return s && fl_slot_is_outside(s) ? &s->tensor->storage->var : NULL;
}

/* An error if memory that the step read was lost meanwhile. Its results outside of the program are missing then;
** targets of later updates keep their values. (Steps of a device are tasks, for which the engine does that.) */
static fl_status check_losses(const fl_program *program, const fl_step *step)
{
    const fl_program_operand *o, *end = step->operands + step->nin + step->nout;
    fl_status status = FL_OK;
    fl_var *read = NULL, *written;
    for (o = step->operands; o < end && status == FL_OK && !step->device; o++)
        if (!o->whole && (read = outside_var(program, o))) status = fl_loss_check(read);
    for (o = step->operands; o < end && status != FL_OK; o++)
        if (o->written && (written = outside_var(program, o))) fl_loss_pass(written, read);
    return status;
}

static inline fl_status run_once(const struct run *run, fl_step *step, bool watched)
{
    fl_status status = FL_UNLIKELY(watched) ? run_watched(run, step) : run_step(run, step);
    return FL_UNLIKELY(fl_loss_any()) && status == FL_OK ? check_losses(run->program, step) : status;
}

/* A poisoned variable that the step replaces gets a value again, or the error of the step. */
static fl_status run_healing(const struct run *run, fl_step *step, bool watched)
{
    fl_var *var;
    for (int i = 0; i < step->nin + step->nout; i++)
        if (step->operands[i].whole && (var = outside_var(run->program, &step->operands[i]))) fl_var_clear(var);
    fl_status status = run_once(run, step, watched);
    for (int i = 0; i < step->nin + step->nout && status != FL_OK; i++)
        if (step->operands[i].whole && (var = outside_var(run->program, &step->operands[i])))
            fl_var_poison(var, step->op->name);
    return status;
}

static bool is_watched(void) { return fl_chain_reports() || fl_fault_armed; }

static fl_status run_range(const struct run *run, int from, int past)
{
    fl_program *p = run->program;
    bool watched = is_watched();
    for (int i = from; i < past; i++) {
        fl_status status = FL_UNLIKELY(run->heals) && !p->steps[i].device ? run_healing(run, &p->steps[i], watched)
                                                                          : run_once(run, &p->steps[i], watched);
        if (FL_UNLIKELY(status != FL_OK)) return fail_at(&p->steps[i], status);
    }
    return FL_OK;
}

/* The host's work for the steps of a graph, except that memory is dropped after the launch. *past: before
** the step that fails, or after all. */
static fl_status prepare_graph(const struct run *run, const fl_graph *graph, int *past)
{
    for (int i = graph->from; i < graph->past; i++) {
        fl_step *s = &run->program->steps[i];
        fl_status status = FL_OK;
        *past = i;
        if (s->kind == FL_STEP_DROP) continue;
        if (!fl_step_has_kernel(s)) status = run_step(run, s);
        else if (s->history || s->draw >= 0 || s->live >= 0) status = prepare(run, s);
        if (status != FL_OK) return fail_at(s, status);
    }
    *past = graph->past;
    return FL_OK;
}

/* Kernels of the graph's steps before `past`, one by one, unless they were launched; and memory is dropped. */
static fl_status issue_steps(const struct run *run, const fl_graph *graph, int past, bool launched)
{
    fl_program *p = run->program;
    for (int i = graph->from; i < past; i++) {
        fl_step *s = &p->steps[i];
        if (s->kind != FL_STEP_DROP && (launched || !fl_step_has_kernel(s))) continue;
        fl_status status = run_prepared(run, s);
        if (status != FL_OK) return fail_at(s, status);
    }
    return FL_OK;
}

static fl_status run_graph(const struct run *run, fl_graph *graph)
{
    char message[1024];
    bool may_run, launched;
    int past;
    FL_TRY(fl_graph_may_run(&may_run, run->program, graph));
    if (!may_run) return run_range(run, graph->from, graph->past);
    fl_status status = prepare_graph(run, graph, &past);
    if (status != FL_OK) { /* as eager code, which fails at this step after it has run those before */
        snprintf(message, sizeof message, "%s", fl_message());
        FL_TRY(issue_steps(run, graph, past, false));
        return fl_fail(status, "%s", message);
    }
    status = fl_graph_launch(&launched, run->program, graph);
    if (status != FL_OK) return fail_at(&run->program->steps[graph->from], status);
    return issue_steps(run, graph, past, launched);
}

/* While ops are reported one by one, each is a task of its own. */
static fl_status run_steps(const struct run *run)
{
    fl_program *p = run->program;
    bool tells_apart = is_watched() || fl_engine_mode_get() == FL_ENGINE_NAIVE;
    int next = 0;
    FL_TRY(fl_graphs_plan(p));
    for (int i = 0; i < p->graph_count && !tells_apart; i++) {
        FL_TRY(run_range(run, next, p->graphs[i].from));
        FL_TRY(run_graph(run, &p->graphs[i]));
        next = p->graphs[i].past;
    }
    return run_range(run, next, p->step_count);
}

/* ---- gradients of leaves ---- */

/* The memory that the gradient is in when a run begins: that of the first leaf that has it, or bound. */
static const fl_storage *memory_before(const fl_program *program, const fl_program_leaf *leaf)
{
    const fl_slot *s = &program->slots[leaf->slot];
    const fl_tensor *t = s->role == FL_SLOT_BOUND ? s->tensor : fl_autograd_grad_of(program->leaves[s->index].leaf);
    return t ? t->storage : NULL;
}

static bool leaf_fits(const fl_program *program, const fl_program_leaf *leaf)
{
    const fl_tensor *g = fl_autograd_grad_of(leaf->leaf);
    if (leaf->depends && (g ? g->meta : NULL) != leaf->before) return false;
    if (leaf->slot < 0) return true;
    return g && g->storage == memory_before(program, leaf) && g->offset == leaf->offset_before && g->contiguous;
}

static bool flags_fit(fl_program *program)
{
    if (program->flag_changes == fl_autograd_flag_changes) return true;
    for (int i = 0; i < program->flag_count; i++)
        if (program->flags[i].leaf->requires_grad != program->flags[i].requires_grad) return false;
    program->flag_changes = fl_autograd_flag_changes;
    return true;
}

bool fl_program_fits(fl_program *program)
{
    if (!flags_fit(program)) return false;
    for (int i = 0; i < program->leaf_count; i++)
        if (!leaf_fits(program, &program->leaves[i])) return false;
    return true;
}

/* Gradients that the run does not look at and leaves changed: their memory is free from the start. */
static fl_status drop_gradients(const fl_program *program)
{
    for (int i = 0; i < program->leaf_count; i++) {
        const fl_program_leaf *l = &program->leaves[i];
        if (l->changes && !l->depends && l->slot < 0) FL_TRY(fl_autograd_set_grad(l->leaf, NULL));
    }
    return FL_OK;
}

static fl_status set_gradients(const fl_program *program)
{
    for (int i = 0; i < program->leaf_count; i++) {
        const fl_program_leaf *l = &program->leaves[i];
        fl_tensor *g = NULL;
        if (!l->changes) continue;
        if (l->after.slot >= 0) FL_TRY(tensor_of(&g, program, &l->after));
        fl_status status = fl_autograd_set_grad(l->leaf, g);
        fl_tensor_unref(g);
        FL_TRY(status);
    }
    return FL_OK;
}

/* ---- a run ---- */

static fl_status give_results(const fl_program *program, fl_tensor **results)
{
    for (int i = 0; i < program->result_count; i++) {
        fl_status status = tensor_of(&results[i], program, &program->results[i]);
        if (status == FL_OK) continue;
        while (i-- > 0) fl_tensor_unref(results[i]);
        return status;
    }
    return FL_OK;
}

bool fl_program_is_busy(const fl_program *program) { return program->busy; }

fl_status fl_program_run(fl_program *program, fl_tensor *const *args, fl_tensor **results, fl_program_host host,
                         void *context)
{
    struct run run = {program, host, context, false};
    if (program->busy) return fl_fail(FL_ERR_STATE, "capture: the program is running already");
    program->busy = true;
    fl_status status = drop_gradients(program);
    if (status == FL_OK) status = take_outside(&run, args);
    if (status == FL_OK) status = take_block(program);
    if (status == FL_OK) status = run_steps(&run);
    if (status == FL_OK) fl_engine_direct_ops += program->host_ops;
    if (status == FL_OK) status = set_gradients(program);
    if (status == FL_OK) status = give_results(program, results);
    if (status == FL_OK) fl_graphs_note(program);
    leave(program);
    return status;
}
