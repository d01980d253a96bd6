/*
** graphs.c -- runs of steps on a device that are recorded by it once and launched as one.
**
** A graph has the addresses that its kernels were recorded with. So steps stay outside, each a launch of its own, that
** touch a slot which keeps moving (an argument that is another tensor each time, a result that the caller keeps), and
** those that the device refuses to record. Numbers that are new at every run (learning rates, random draws) are read
** from the device's memory; a kernel that cannot do so stays outside too. The steps between them are recorded after two
** runs: by then kernels are compiled and addresses have settled. A graph is recorded anew when an address has changed,
** as long as that is seldom.
**
** Kernels that report errors in their data (an index out of range) are part of a graph: its launch makes their checks
** later, all at once, and each slot that it writes depends on the checks of the steps that its value comes from, no
** others (engine/late_check.c). So errors name op, line and data, and poison results, as those of eager code do.
**
** A step that changes tensors from outside must not run on a wrong value (dispatch/run.c). If a step before it may
** report that its operand is missing, a graph begins with it, which is launched when that has been found out: a step of
** training is one graph with its forward and backward, and one with its optimizer. Elsewhere such steps are part of any
** graph, which is launched as one if all its operands are certain to be there; else its steps are issued one by one.
*/
#include "graphs.h"

#include "engine/engine.h"
#include "memory/device_graph.h"
#include "passes.h"

#include <stdlib.h>

enum { LEAST_KERNELS = 3, SETTLED = 2, SELDOM = 16, FREE_RECORDINGS = 4, LAUNCHES_PER_RECORDING = 8 };

static fl_program_counts counts;

void fl_program_counts_get(fl_program_counts *out) { *out = counts; }
void fl_graphs_count_step(void) { counts.steps++; }

/* ---- the steps of a graph ---- */

void fl_graphs_begin(fl_program *program)
{
    for (int n = 0; n < program->step_count && fl_pass_is_on(FL_PASS_GRAPHS); n++) {
        const fl_step *s = &program->steps[n];
        program->has_graphs |= fl_step_has_kernel(s) && s->device && s->device->graph_begin;
    }
    program->graphs_stale = program->has_graphs;
}

/* The step changes what lies outside of the program. */
static bool updates(const fl_program *program, const fl_step *step)
{
    for (int i = 0; i < step->nin + step->nout; i++) {
        const fl_program_operand *o = &step->operands[i];
        if (o->slot >= 0 && o->written && fl_slot_is_outside(&program->slots[o->slot])) return true;
    }
    return false;
}

/* The step works with numbers that are new at every run. */
static bool has_new_numbers(const fl_step *step) { return step->live >= 0 || step->draw >= 0; }

static bool operand_may_join(const fl_program *program, const fl_step *step, const fl_program_operand *operand)
{
    if (operand->slot < 0) return true;
    const fl_slot *s = &program->slots[operand->slot];
    const fl_placement *p = s->meta->placement;
    if (p->type == FL_CPU || fl_device_index(step->device, p) != step->device_index) return false;
    return !s->moves_often;
}

static bool may_join(const fl_program *program, const fl_step *step)
{
    if (!step->device || !step->device->graph_begin || step->alone) return false;
    if (step->kind == FL_STEP_FUSED && step->fused->draw_count) return false;
    for (int i = 0; i < step->nin + step->nout; i++)
        if (!operand_may_join(program, step, &step->operands[i])) return false;
    return true;
}

/* The host does it before, or after, the launch. */
static bool is_of_host(const fl_step *step)
{
    return step->kind == FL_STEP_PASSED || step->kind == FL_STEP_DRAW || step->kind == FL_STEP_NEW
        || step->kind == FL_STEP_DROP;
}

/* ---- values that may turn out to be missing ---- */

/* While graphs are planned. */
struct plan {
    fl_program *program;
    struct slot_uses *all; /* by slot: by all steps */
    /* By slot: the number of the last report that its value depends on: the place of its step plus 2, or that of the
    ** first step of its graph; 1: it depends on what the run begins with; 0: it is there. */
    int *report;
};

/* The operand's value before the step counts. */
static bool is_taken(const fl_program_operand *operand)
{
    return operand->slot >= 0 && !(operand->written && operand->whole);
}

/* The last report that the step's operands depend on, of those after `settled`; 0: none. */
static int report_of(const struct plan *plan, const fl_step *step, int settled)
{
    int last = 0;
    for (int i = 0; i < step->nin + step->nout; i++) {
        const fl_program_operand *o = &step->operands[i];
        if (is_taken(o) && plan->report[o->slot] > settled && plan->report[o->slot] > last)
            last = plan->report[o->slot];
    }
    return last;
}

/* The results of the step depend on its operands, and on its own report: number `own`. (Boxing makes certain of its
** operand.) */
static void pass_report(const struct plan *plan, const fl_step *step, int settled, int own)
{
    int report = step->kind == FL_STEP_BOX ? 0 : report_of(plan, step, settled);
    if (step->reports) report = own;
    for (int i = 0; i < step->nin + step->nout; i++) {
        const int slot = step->operands[i].slot;
        if (slot >= 0 && step->operands[i].written)
            plan->report[slot] = report ? report : plan->program->slots[slot].pends;
    }
}

/* A graph that begins with step `from`. */
struct extent {
    int past; /* its last kernel */
    int kernels;
    bool waits;
};

static struct extent extent_of(const struct plan *plan, int from)
{
    const fl_program *p = plan->program;
    const fl_step *first = &p->steps[from];
    const int own = from + 2;
    struct extent e = {.past = from};
    for (int n = from; n < p->step_count; n++) {
        const fl_step *s = &p->steps[n];
        if (is_of_host(s)) continue;
        if (!fl_step_has_kernel(s) || !may_join(p, s)) break;
        if (s->device != first->device || s->device_index != first->device_index || s->lane != first->lane) break;
        if (updates(p, s) && report_of(plan, s, e.waits ? own - 1 : 0)) {
            if (n > from) break;
            e.waits = true;
        }
        pass_report(plan, s, e.waits ? own - 1 : 0, own);
        e.past = n + 1;
        e.kernels++;
    }
    return e;
}

/* ---- slots that a graph uses ---- */

/* Uses of a slot by steps. */
typedef struct slot_uses {
    int count, writes;
    int first;  /* the step that uses it first, */
    bool taken; /* it reads the value from before */
} slot_uses;

static void count_uses(slot_uses *uses, const fl_program *program, int from, int past)
{
    for (int n = from; n < past; n++)
        for (int i = 0; i < program->steps[n].nin + program->steps[n].nout; i++) {
            const fl_program_operand *o = &program->steps[n].operands[i];
            if (o->slot < 0) continue;
            slot_uses *u = &uses[o->slot];
            if (!u->count++) u->first = n;
            u->taken |= u->first == n && i < program->steps[n].nin && is_taken(o);
            u->writes += o->written;
        }
}

/* A variable that a graph writes, and the checks that its value depends on. */
struct var_checks {
    const fl_var *var;
    unsigned checks;
};

static void graph_free(fl_graph *graph)
{
    if (graph->made) graph->device->graph_drop(graph->made);
    free(graph->slots);
    free(graph->read);
    free(graph->written);
    free(graph->checks);
    free(graph->data);
    free(graph->vars);
    free(graph->reads);
    free(graph->writes);
    free(graph->write_checks);
    free(graph->var_checks);
}

/* all: uses by all steps; inside: by those of the graph. */
static fl_status list_slots(fl_graph *graph, const fl_program *program, const slot_uses *all, const slot_uses *inside)
{
    size_t most = (size_t)program->slot_count + 1;
    graph->slots = malloc(most * sizeof *graph->slots);
    graph->read = malloc(most * sizeof *graph->read);
    graph->written = malloc(most * sizeof *graph->written);
    graph->checks = calloc(most, sizeof *graph->checks);
    graph->data = calloc(most, sizeof *graph->data);
    graph->vars = calloc(most, sizeof *graph->vars);
    graph->reads = malloc(most * sizeof *graph->reads);
    graph->writes = malloc(most * sizeof *graph->writes);
    graph->write_checks = malloc(most * sizeof *graph->write_checks);
    graph->var_checks = malloc(most * sizeof *graph->var_checks);
    if (!graph->slots || !graph->read || !graph->written || !graph->checks || !graph->data || !graph->vars
        || !graph->reads || !graph->writes || !graph->write_checks || !graph->var_checks)
        return fl_program_out_of_memory();
    for (int i = 0; i < program->slot_count; i++) {
        bool is_inner = program->slots[i].role == FL_SLOT_SHARED && inside[i].count == all[i].count;
        if (!inside[i].count || is_inner) continue;
        graph->read[graph->slot_count] = inside[i].taken;
        graph->written[graph->slot_count] = inside[i].writes > 0;
        graph->updates |= inside[i].writes > 0 && fl_slot_is_outside(&program->slots[i]);
        graph->slots[graph->slot_count++] = i;
    }
    return FL_OK;
}

static fl_status add_graph(const struct plan *plan, int from, const struct extent *extent)
{
    fl_program *program = plan->program;
    FL_TRY(fl_program_reserve((void **)&program->graphs, sizeof *program->graphs, &program->graph_room,
                              program->graph_count));
    slot_uses *inside = calloc((size_t)program->slot_count + 1, sizeof *inside);
    if (!inside) return fl_program_out_of_memory();
    const fl_step *first = &program->steps[from];
    fl_graph *g = &program->graphs[program->graph_count++];
    *g = (fl_graph){.from = from,
                    .past = extent->past,
                    .waits = extent->waits,
                    .device = first->device,
                    .device_index = first->device_index,
                    .lane = first->lane};
    count_uses(inside, program, from, extent->past);
    fl_status status = list_slots(g, program, plan->all, inside);
    free(inside);
    return status;
}

static void forget_graphs(fl_program *program)
{
    for (int i = 0; i < program->graph_count; i++) graph_free(&program->graphs[i]);
    program->graph_count = 0;
}

static fl_status find_graphs(const struct plan *plan)
{
    const fl_program *p = plan->program;
    for (int i = 0; i < p->slot_count; i++) plan->report[i] = p->slots[i].pends;
    for (int n = 0; n < p->step_count; n++) {
        const fl_step *s = &p->steps[n];
        if (!fl_step_has_kernel(s) || !may_join(p, s)) {
            if (!is_of_host(s)) pass_report(plan, s, 0, n + 2);
            continue;
        }
        const struct extent e = extent_of(plan, n);
        if (e.kernels >= LEAST_KERNELS) FL_TRY(add_graph(plan, n, &e));
        n = e.past - 1;
    }
    return FL_OK;
}

fl_status fl_graphs_plan(fl_program *program)
{
    if (!program->graphs_stale || program->runs < SETTLED) return FL_OK;
    forget_graphs(program);
    const size_t slots = (size_t)program->slot_count + 1;
    struct plan plan = {program, calloc(slots, sizeof *plan.all), calloc(slots, sizeof *plan.report)};
    fl_status status = plan.all && plan.report ? FL_OK : fl_program_out_of_memory();
    if (status == FL_OK) count_uses(plan.all, program, 0, program->step_count);
    if (status == FL_OK) status = find_graphs(&plan);
    free(plan.all);
    free(plan.report);
    if (status != FL_OK) forget_graphs(program);
    else program->graphs_stale = false;
    return status;
}

void fl_graphs_note_report(fl_program *program, fl_step *step)
{
    program->graphs_stale |= program->has_graphs && !step->reports;
    step->reports = true;
}

void fl_graphs_note(fl_program *program)
{
    if (!program->has_graphs) return;
    program->runs++;
    for (int i = 0; i < program->slot_count; i++) {
        fl_slot *s = &program->slots[i];
        if (s->role == FL_SLOT_SHARED || s->first < 0) continue;
        s->moves += s->data != s->data_before;
        s->data_before = s->data;
        bool often = s->moves > 1 + program->runs / SELDOM;
        program->graphs_stale |= often != s->moves_often;
        s->moves_often = often;
    }
}

void fl_graphs_drop(fl_program *program)
{
    forget_graphs(program);
    free(program->graphs);
}

/* ---- recording ---- */

/* Records one step; false: it cannot be part of the graph. */
static bool record_step(fl_graph *graph, fl_step *step)
{
    fl_device_graph *made = graph->made;
    const int renewed = made->renewed, reports = made->report_count;
    step->alone = fl_step_launch(step) != FL_OK || (has_new_numbers(step) && made->renewed == renewed);
    for (int k = reports; k < made->report_count; k++)
        made->reports[k] = (fl_graph_report){step->op->name, *step->line ? step->line : NULL};
    return !step->alone;
}

/* The results of the step depend on the checks of its operands, and on its own; checks: by slot. */
static void pass_checks(unsigned *checks, const fl_step *step, unsigned own)
{
    for (int i = 0; i < step->nin + step->nout; i++)
        if (is_taken(&step->operands[i])) own |= checks[step->operands[i].slot];
    for (int i = 0; i < step->nin + step->nout; i++)
        if (step->operands[i].slot >= 0 && step->operands[i].written) checks[step->operands[i].slot] = own;
}

/* Kernels that the device refuses stay outside from the next run on; graphs are made anew where some turn out to report
** errors, which they did not when they were issued by themselves. */
static bool record_steps(fl_program *program, fl_graph *graph, unsigned *checks)
{
    bool whole = true;
    for (int n = graph->from; n < graph->past; n++) {
        fl_step *s = &program->steps[n];
        if (!fl_step_has_kernel(s)) continue;
        const int before = graph->made->report_count;
        whole = record_step(graph, s) && whole;
        const int after = graph->made->report_count;
        const bool is_new = after > before && !s->reports;
        s->reports |= is_new;
        program->graphs_stale |= is_new || s->alone;
        whole = whole && !(is_new && graph->updates);
        pass_checks(checks, s, (1u << after) - (1u << before));
    }
    return whole;
}

static bool record(fl_program *program, fl_graph *graph)
{
    unsigned *checks = calloc((size_t)program->slot_count + 1, sizeof *checks);
    graph->recorded = false;
    if (!checks || graph->device->graph_begin(&graph->made, graph->device_index) != FL_OK) {
        free(checks);
        program->has_graphs = false;
        return false;
    }
    const bool whole = record_steps(program, graph, checks);
    const bool ended = graph->device->graph_end(graph->made, whole) == FL_OK;
    for (int i = 0; i < graph->slot_count; i++) graph->checks[i] = checks[graph->slots[i]];
    free(checks);
    program->has_graphs = program->has_graphs && ended;
    graph->recorded = whole && ended;
    graph->recordings++;
    counts.recordings += graph->recorded;
    return graph->recorded;
}

/* True if it is recorded for where its slots lie now. */
static bool is_right(fl_graph *graph, const fl_program *program)
{
    bool same = graph->recorded;
    for (int i = 0; i < graph->slot_count; i++) {
        const char *data = program->slots[graph->slots[i]].data;
        same &= graph->data[i] == data;
        graph->data[i] = data;
    }
    return same;
}

/* True if the kernels were issued with these addresses before, on which they may depend. */
static bool may_record(const fl_graph *graph, const fl_program *program)
{
    for (int i = 0; i < graph->slot_count; i++) {
        const fl_slot *s = &program->slots[graph->slots[i]];
        if (s->role != FL_SLOT_SHARED && s->data != s->data_before) return false;
    }
    return graph->recordings < FREE_RECORDINGS + graph->launches / LAUNCHES_PER_RECORDING;
}

/* ---- launching ---- */

/* Lists those that are read as well, or those that are only written. */
static void list_written(fl_graph *graph, bool read)
{
    for (int i = 0; i < graph->slot_count; i++)
        if (graph->written[i] && graph->read[i] == read) graph->writes[graph->write_count++] = graph->vars[i];
    fl_vars_once(graph->reads, &graph->read_count, graph->writes, &graph->write_count);
}

static int compare_vars(const void *a, const void *b)
{
    const fl_var *x = ((const struct var_checks *)a)->var, *y = ((const struct var_checks *)b)->var;
    return (x > y) - (x < y);
}

/* The checks of each variable that is written: those of all slots that lie in it. */
static void list_checks(fl_graph *graph)
{
    struct var_checks *sorted = graph->var_checks;
    size_t count = 0, last = 0;
    for (int i = 0; i < graph->slot_count; i++)
        if (graph->written[i]) sorted[count++] = (struct var_checks){graph->vars[i], graph->checks[i]};
    qsort(sorted, count, sizeof *sorted, compare_vars);
    for (size_t i = 1; i < count; i++) {
        if (sorted[i].var == sorted[last].var) sorted[last].checks |= sorted[i].checks;
        else sorted[++last] = sorted[i];
    }
    for (int i = 0; i < graph->write_count; i++) {
        const struct var_checks key = {.var = graph->writes[i]};
        const struct var_checks *found = bsearch(&key, sorted, last + 1, sizeof *sorted, compare_vars);
        graph->write_checks[i] = found->checks;
    }
}

/* A variable is in one of the lists, once; of those that are written, those that are read too come first. */
static void list_vars(fl_graph *graph)
{
    graph->read_count = graph->write_count = 0;
    for (int i = 0; i < graph->slot_count; i++)
        if (!graph->written[i]) graph->reads[graph->read_count++] = graph->vars[i];
    list_written(graph, true);
    graph->update_count = graph->write_count;
    list_written(graph, false);
    if (graph->made->report_count) list_checks(graph);
}

static void take_vars(fl_graph *graph, fl_program *program, bool recorded_now)
{
    bool same = graph->read_count + graph->write_count > 0 && !recorded_now;
    for (int i = 0; i < graph->slot_count; i++) {
        fl_var *var = fl_slot_var(&program->slots[graph->slots[i]]);
        same &= graph->vars[i] == var;
        graph->vars[i] = var;
    }
    if (!same) list_vars(graph);
}

static bool is_missing(const fl_var *var)
{
    return __atomic_load_n(&var->poison, __ATOMIC_ACQUIRE) != NULL && !fl_is_pending(var);
}

/* It may be missing, because of what the run began with, and the graph cannot run as one now: if that is not seldom,
** later ones wait for it. */
static void note_pending(fl_program *program, fl_slot *slot)
{
    if (slot->pends || program->uncertain_runs <= 1 + program->runs / SELDOM) return;
    slot->pends = program->graphs_stale = true;
}

fl_status fl_graph_may_run(bool *may, fl_program *program, const fl_graph *graph)
{
    bool is_certain = true, is_there = true;
    for (int i = 0; i < graph->slot_count; i++) {
        fl_slot *s = &program->slots[graph->slots[i]];
        if (!graph->read[i] || (s->role != FL_SLOT_SHARED && !s->tensor)) continue;
        fl_var *var = fl_slot_var(s);
        if (graph->waits) FL_TRY(fl_pending_settle(var));
        is_there = is_there && !is_missing(var);
        if (!graph->updates || !fl_is_pending(var)) continue;
        is_certain = false;
        note_pending(program, s);
    }
    program->uncertain_runs += !is_certain;
    *may = is_there && is_certain;
    return FL_OK;
}

struct launch {
    const fl_graph *graph;
};

static fl_status launch(void *payload)
{
    const fl_graph *g = ((const struct launch *)payload)->graph;
    FL_TRY(g->device->enter(g->device_index, FL_QUEUE_COMPUTE));
    return g->device->graph_launch(g->made);
}

fl_status fl_graph_launch(bool *done, fl_program *program, fl_graph *graph)
{
    const bool right = is_right(graph, program);
    *done = false;
    if (!right) {
        graph->recorded = false;
        if (!program->has_graphs || !may_record(graph, program) || !record(program, graph)) return FL_OK;
    }
    struct launch payload = {graph};
    take_vars(graph, program, !right);
    *done = true;
    graph->launches++;
    counts.graphs++;
    return fl_engine_push(&(fl_task){.name = "captured steps",
                                     .run = launch,
                                     .payload = &payload,
                                     .payload_size = sizeof payload,
                                     .reads = graph->reads,
                                     .writes = graph->writes,
                                     .read_count = graph->read_count,
                                     .write_count = graph->write_count,
                                     .update_count = graph->update_count,
                                     .checks = graph->made->report_count ? graph->write_checks : NULL,
                                     .lane = graph->lane});
}
