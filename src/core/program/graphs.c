/*
** graphs.c -- runs of steps on a device that are recorded by it once and launched as one.
**
** A graph has the addresses that its kernels were recorded with. So steps stay outside, each a launch of its own, that
** touch a slot which keeps moving (an argument that is another tensor each time, a result that the caller keeps), and
** those that the device refuses to record, because they report errors in their data. Numbers that are new at every run
** (learning rates, random draws) are read from the device's memory; a kernel that cannot do so stays outside too. What
** remains between them is recorded after two runs: by then kernels are compiled and addresses have settled. A graph is
** recorded anew when an address has changed, as long as that is seldom.
**
** A step that changes tensors from outside must not run on a wrong value (dispatch/run.c). It is part of a graph where
** nothing before it in the program reports errors, and the graph is launched where all that it uses from outside is
** there for certain; else its steps are issued one by one.
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

/* ---- which steps ---- */

void fl_graphs_begin(fl_program *program)
{
    for (int n = 0; n < program->step_count && fl_pass_is_on(FL_PASS_GRAPHS); n++) {
        const fl_step *s = &program->steps[n];
        program->has_graphs |= fl_step_has_kernel(s) && s->device && s->device->graph_begin;
    }
    program->graphs_stale = program->has_graphs;
}

static bool is_update(const fl_program *program, const fl_program_operand *operand)
{
    return operand->slot >= 0 && operand->written && fl_slot_is_outside(&program->slots[operand->slot]);
}

/* The step works with numbers that are new at every run. */
static bool has_new_numbers(const fl_step *step) { return step->live >= 0 || step->draw >= 0; }

/* The place of the first step that may report errors in its data. */
static int first_that_reports(const fl_program *program)
{
    int n = 0;
    if (program->updates_apart) return 0;
    while (n < program->step_count && !(program->steps[n].alone && !has_new_numbers(&program->steps[n]))) n++;
    return n;
}

static bool operand_may_join(const fl_program *program, const fl_step *step, const fl_program_operand *operand)
{
    if (operand->slot < 0) return true;
    const fl_slot *s = &program->slots[operand->slot];
    const fl_placement *p = s->meta->placement;
    if (p->type == FL_CPU || fl_device_index(step->device, p) != step->device_index) return false;
    return !s->moves_often && !(is_update(program, operand) && step - program->steps > program->reports_from);
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

/* Past the last kernel of a graph that begins with step `from`; *kernels: how many there are. */
static int end_of(const fl_program *program, int from, int *kernels)
{
    const fl_step *first = &program->steps[from];
    int past = from;
    *kernels = 0;
    for (int n = from; n < program->step_count; n++) {
        const fl_step *s = &program->steps[n];
        if (is_of_host(s)) continue;
        if (!fl_step_has_kernel(s) || !may_join(program, s)) break;
        if (s->device != first->device || s->device_index != first->device_index || s->lane != first->lane) break;
        past = n + 1;
        ++*kernels;
    }
    return past;
}

/* ---- what a graph touches ---- */

/* Uses of each slot by steps; [1]: those that write. */
typedef struct slot_uses {
    int count, writes;
} slot_uses;

static void count_uses(slot_uses *uses, const fl_program *program, int from, int past)
{
    for (int n = from; n < past; n++)
        for (int i = 0; i < program->steps[n].nin + program->steps[n].nout; i++) {
            const fl_program_operand *o = &program->steps[n].operands[i];
            if (o->slot < 0) continue;
            uses[o->slot].count++;
            uses[o->slot].writes += o->written;
        }
}

static void graph_free(fl_graph *graph)
{
    if (graph->made) graph->device->graph_drop(graph->made);
    free(graph->slots);
    free(graph->written);
    free(graph->data);
    free(graph->vars);
    free(graph->reads);
    free(graph->writes);
}

/* all: uses by all steps; inside: by those of the graph. */
static fl_status list_slots(fl_graph *graph, const fl_program *program, const slot_uses *all, const slot_uses *inside)
{
    size_t most = (size_t)program->slot_count + 1;
    graph->slots = malloc(most * sizeof *graph->slots);
    graph->written = malloc(most * sizeof *graph->written);
    graph->data = calloc(most, sizeof *graph->data);
    graph->vars = calloc(most, sizeof *graph->vars);
    graph->reads = malloc(most * sizeof *graph->reads);
    graph->writes = malloc(most * sizeof *graph->writes);
    if (!graph->slots || !graph->written || !graph->data || !graph->vars || !graph->reads || !graph->writes)
        return fl_program_out_of_memory();
    for (int i = 0; i < program->slot_count; i++) {
        bool is_inner = program->slots[i].role == FL_SLOT_SHARED && inside[i].count == all[i].count;
        if (!inside[i].count || is_inner) continue;
        graph->written[graph->slot_count] = inside[i].writes > 0;
        graph->updates |= inside[i].writes > 0 && fl_slot_is_outside(&program->slots[i]);
        graph->slots[graph->slot_count++] = i;
    }
    return FL_OK;
}

static fl_status add_graph(fl_program *program, int from, int past, const slot_uses *all)
{
    FL_TRY(fl_program_reserve((void **)&program->graphs, sizeof *program->graphs, &program->graph_room,
                              program->graph_count));
    slot_uses *inside = calloc((size_t)program->slot_count + 1, sizeof *inside);
    if (!inside) return fl_program_out_of_memory();
    const fl_step *first = &program->steps[from];
    fl_graph *g = &program->graphs[program->graph_count++];
    *g = (fl_graph){
        .from = from, .past = past, .device = first->device, .device_index = first->device_index, .lane = first->lane};
    count_uses(inside, program, from, past);
    fl_status status = list_slots(g, program, all, inside);
    free(inside);
    return status;
}

static void forget_graphs(fl_program *program)
{
    for (int i = 0; i < program->graph_count; i++) graph_free(&program->graphs[i]);
    program->graph_count = 0;
}

static fl_status find_graphs(fl_program *program, const slot_uses *all)
{
    program->reports_from = first_that_reports(program);
    for (int n = 0, past; n<program->step_count; n = past> n ? past : n + 1) {
        int kernels = 0;
        past = n;
        if (!fl_step_has_kernel(&program->steps[n]) || !may_join(program, &program->steps[n])) continue;
        past = end_of(program, n, &kernels);
        if (kernels >= LEAST_KERNELS) FL_TRY(add_graph(program, n, past, all));
    }
    return FL_OK;
}

fl_status fl_graphs_plan(fl_program *program)
{
    if (!program->graphs_stale || program->runs < SETTLED) return FL_OK;
    forget_graphs(program);
    slot_uses *all = calloc((size_t)program->slot_count + 1, sizeof *all);
    if (!all) return fl_program_out_of_memory();
    count_uses(all, program, 0, program->step_count);
    fl_status status = find_graphs(program, all);
    free(all);
    if (status != FL_OK) forget_graphs(program);
    else program->graphs_stale = false;
    return status;
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

/* Kernels that the device refuses stay outside from the next run on. */
static bool record(fl_program *program, fl_graph *graph)
{
    bool whole = true;
    graph->recorded = false;
    if (graph->device->graph_begin(&graph->made, graph->device_index) != FL_OK) {
        program->has_graphs = false;
        return false;
    }
    for (int n = graph->from; n < graph->past; n++) {
        fl_step *s = &program->steps[n];
        if (!fl_step_has_kernel(s)) continue;
        const int renewed = graph->made->renewed;
        s->alone = fl_step_launch(s) != FL_OK || (has_new_numbers(s) && graph->made->renewed == renewed);
        whole = whole && !s->alone;
    }
    bool ended = graph->device->graph_end(graph->made, whole) == FL_OK;
    program->graphs_stale |= !whole;
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

/* What kernels do may depend on their addresses: they were issued with these before. */
static bool may_record(const fl_graph *graph, const fl_program *program)
{
    for (int i = 0; i < graph->slot_count; i++) {
        const fl_slot *s = &program->slots[graph->slots[i]];
        if (s->role != FL_SLOT_SHARED && s->data != s->data_before) return false;
    }
    return graph->recordings < FREE_RECORDINGS + graph->launches / LAUNCHES_PER_RECORDING;
}

/* ---- launching ---- */

/* A variable is in one of the lists, once. */
static void list_vars(fl_graph *graph)
{
    graph->read_count = graph->write_count = 0;
    for (int i = 0; i < graph->slot_count; i++)
        if (graph->written[i]) fl_vars_add(graph->writes, &graph->write_count, graph->vars[i]);
    for (int i = 0; i < graph->slot_count; i++)
        if (!graph->written[i] && !fl_vars_have(graph->writes, graph->write_count, graph->vars[i]))
            fl_vars_add(graph->reads, &graph->read_count, graph->vars[i]);
}

static void take_vars(fl_graph *graph, fl_program *program)
{
    bool same = graph->read_count + graph->write_count > 0;
    for (int i = 0; i < graph->slot_count; i++) {
        fl_var *var = fl_slot_var(&program->slots[graph->slots[i]]);
        same &= graph->vars[i] == var;
        graph->vars[i] = var;
    }
    if (!same) list_vars(graph);
}

static bool is_certain(const fl_var *var) { return __atomic_load_n(&var->poison, __ATOMIC_ACQUIRE) == NULL; }

bool fl_graph_may_run(fl_program *program, const fl_graph *graph)
{
    bool certain = true;
    for (int i = 0; i < graph->slot_count && graph->updates; i++) {
        fl_slot *s = &program->slots[graph->slots[i]];
        const bool is_there = s->role == FL_SLOT_SHARED || s->tensor; /* else its steps make it */
        certain = certain && (!is_there || is_certain(fl_slot_var(s)));
    }
    if (!certain && ++program->uncertain_runs > 1 + program->runs / SELDOM)
        program->updates_apart = program->graphs_stale = true;
    return certain;
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
    bool right = is_right(graph, program);
    *done = false;
    if (!right) {
        graph->recorded = false;
        if (!program->has_graphs || !may_record(graph, program) || !record(program, graph)) return FL_OK;
    }
    struct launch payload = {graph};
    take_vars(graph, program);
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
                                     .lane = graph->lane});
}
