/*
** program.c -- programs that p:save(path) wrote, run by hosts: step by step, as scripts call their ops.
**
** The ops of a run are recorded for gradients as all ops are, so that a host can train a program. When it is opened
** each step is called on the meta device, which checks operands, attributes and shapes.
*/
#include "program.h"

#include <stdio.h>
#include <stdlib.h>

/* One run. */
struct run {
    const flow_program *program;
    fl_tensor **slots;   /* owned, [value_count] */
    fl_generator *drawn; /* [draw_count] */
    const char *type;    /* of the device where it runs: in place of "meta", on which programs are traced */
    bool checks;         /* on the meta device alone: results are compared with what is written */
};

/* ---- steps ---- */

static bool is_text(const flow_arg *arg, const char *name)
{
    return arg->kind == FLOW_TEXT && strcmp(arg->name, name) == 0;
}

/* A device or placement as it is in this run; buffer: for a placement of another type. */
static void place_arg(flow_arg *arg, char **buffer, const struct run *run)
{
    if (!is_text(arg, "device") && !is_text(arg, "placement")) return;
    const char *text = arg->value.text, *ranks = text + strcspn(text, " ");
    size_t type = (size_t)(ranks - text);
    bool meta = type == 4 && strncmp(text, "meta", 4) == 0;
    if (!meta && !run->checks) return;
    size_t size = strlen(run->type) + strlen(ranks) + 1;
    char *copy = realloc(*buffer, size);
    if (!copy) return;
    snprintf(copy, size, "%s%s", run->type, ranks);
    *buffer = copy;
    arg->value.text = copy;
}

/* Operands, by the names of their parameters; `list`: room for a list of them. */
static fl_status fill_operands(flow_arg *args, int *count, flow_tensor **list, const fl_program_step *step,
                               const struct run *run)
{
    int listed = 0;
    for (int i = 0; i < step->nin; i++) {
        const fl_program_operand *operand = &step->in[i];
        flow_arg arg = operand->value < 0 ? operand->number : flow_of(fl_api_out(run->slots[operand->value]));
        const char *name;
        bool is_list;
        FL_TRY(fl_api_operand_name(&name, &is_list, step->op, i));
        if (!is_list) {
            if (*count == 2 * FL_MAX_PARAMS) return fl_fail(FL_ERR_VALUE, "%s: too many operands", step->op);
            args[(*count)++] = flow_named(name, arg);
            continue;
        }
        if (arg.kind != FLOW_TENSOR) return fl_fail(FL_ERR_VALUE, "%s: %s must hold tensors", step->op, name);
        list[listed++] = arg.value.tensor;
        if (listed == 1) args[(*count)++] = flow_named(name, flow_list(list, 0));
        args[*count - 1].count = listed;
    }
    return FL_OK;
}

/* "float32[2, 3] as S(0)" */
enum { VALUE_TEXT = FL_SHAPE_TEXT + 160 };
static const char *value_text(char *buffer, fl_dtype dtype, const fl_shape *shape, const char *sbp)
{
    char dims[FL_SHAPE_TEXT];
    snprintf(buffer, VALUE_TEXT, "%s%s%s%.128s", fl_dtype_name(dtype), fl_shape_text(dims, shape), sbp ? " as " : "",
             sbp ? sbp : "");
    return buffer;
}

static fl_status compare(const fl_tensor *tensor, const fl_program_value *value)
{
    char made[VALUE_TEXT], written[VALUE_TEXT];
    const fl_meta *m = tensor->meta;
    bool same = m->dtype == value->dtype && fl_shape_equal(&m->shape, &value->shape) && m->is_local == !value->sbp;
    fl_nd_sbp sbp;
    if (same && value->sbp) {
        FL_TRY(fl_api_sbp(&sbp, "flow_program_open", value->sbp, m->placement, m->shape.ndim));
        same = fl_nd_sbp_equal(sbp, m->nd_sbp);
    }
    return same ? FL_OK
                : fl_fail(FL_ERR_IO, "makes %s, and %s is written", value_text(made, m->dtype, &m->shape, NULL),
                          value_text(written, value->dtype, &value->shape, value->sbp));
}

/* Puts the results into their slots; takes their references over. */
static fl_status store(struct run *run, const fl_program_step *step, fl_tensor **results, int count)
{
    fl_status status = count == step->nout
        ? FL_OK
        : fl_fail(FL_ERR_IO, "%s: has %d results, and %d are written", step->op, count, step->nout);
    for (int i = 0; i < count; i++) {
        if (status == FL_OK && run->checks) status = compare(results[i], &run->program->values[step->out[i]]);
        if (status != FL_OK) {
            fl_tensor_unref(results[i]);
            continue;
        }
        fl_tensor_unref(run->slots[step->out[i]]);
        run->slots[step->out[i]] = results[i];
    }
    return status;
}

/* args: room for operands and attributes; list: for operands. */
static fl_status call_step(struct run *run, const fl_program_step *step, flow_arg *args, flow_tensor **list)
{
    fl_tensor *results[FL_MAX_OUT] = {NULL};
    fl_draw_note note = {.count = 0};
    fl_api_step call = {
        .op = step->op, .no_grad = step->no_grad, .undraws = step->undraws, .note = &note, .device = run->type};
    char *texts[FL_MAX_PARAMS] = {NULL};
    int count = 0, nargs = 0;
    if (step->redraws) call.again = &run->drawn[step->redraws - 1];
    fl_status status = fill_operands(args, &nargs, list, step, run);
    for (int i = 0; i < step->nnamed; i++) {
        args[nargs] = step->named[i];
        place_arg(&args[nargs++], &texts[i], run);
    }
    if (status == FL_OK) status = fl_api_call_step(results, &count, &call, args, nargs);
    for (int i = 0; i < step->nnamed; i++) free(texts[i]);
    FL_TRY(status);
    for (int i = 0; i < step->ndraws && i < note.count; i++) run->drawn[step->draws[i] - 1] = note.at[i];
    return store(run, step, results, count);
}

static fl_status run_step(struct run *run, const fl_program_step *step)
{
    if (step->detaches) {
        fl_tensor *same;
        FL_TRY(fl_tensor_detach(&same, run->slots[step->in[0].value]));
        return store(run, step, &same, 1);
    }
    flow_arg *args = malloc(sizeof *args * 4 * FL_MAX_PARAMS);
    flow_tensor **list = malloc(sizeof *list * ((size_t)step->nin + 1));
    fl_status status = args && list ? call_step(run, step, args, list) : fl_fail(FL_ERR_MEMORY, "out of memory");
    free(args);
    free(list);
    return status;
}

/* ---- runs ---- */

static void end_run(struct run *run)
{
    for (int i = 0; run->slots && i < run->program->value_count; i++) fl_tensor_unref(run->slots[i]);
    free(run->slots);
    free(run->drawn);
}

static fl_status begin_run(struct run *run, const flow_program *program)
{
    run->program = program;
    run->slots = calloc((size_t)program->value_count + 1, sizeof *run->slots);
    run->drawn = calloc((size_t)program->draw_count + 1, sizeof *run->drawn);
    return run->slots && run->drawn ? FL_OK : fl_fail(FL_ERR_MEMORY, "out of memory");
}

static fl_status run_steps(struct run *run, const char *who)
{
    for (int i = 0; i < run->program->step_count; i++) {
        const fl_program_step *step = &run->program->steps[i];
        fl_status status = run_step(run, step);
        if (status != FL_OK) return fl_fail_prefix(status, "%s: step %d (%.40s): ", who, i + 1, step->op);
    }
    return FL_OK;
}

/* The meta of a value on the meta device. */
static fl_status meta_of(const fl_meta **out, const fl_program_value *value)
{
    const fl_placement *place = fl_placement_local(FL_META, -1), *named;
    fl_nd_sbp sbp = fl_nd_sbp_fill(FL_B, 1);
    if (value->placement) {
        FL_TRY(fl_api_placement(&named, "flow_program_open", value->placement));
        FL_TRY(fl_placement_get(&place, FL_META, named->ranks, named->count, named->hierarchy, named->ndim));
        FL_TRY(fl_api_sbp(&sbp, "flow_program_open", value->sbp, place, value->shape.ndim));
    }
    return fl_meta_get(out, value->dtype, &value->shape, place, sbp, !value->placement);
}

static fl_status fill_meta(struct run *run, const fl_program_entry *entries, int count)
{
    for (int i = 0; i < count; i++) {
        const fl_meta *meta;
        FL_TRY(meta_of(&meta, &run->program->values[entries[i].value]));
        fl_status status = fl_tensor_empty(&run->slots[entries[i].value], meta);
        fl_meta_unref(meta);
        FL_TRY(status);
    }
    return FL_OK;
}

/* Calls all steps on the meta device, where nothing is drawn or computed. */
static fl_status check_program(const flow_program *program)
{
    struct run run = {.type = "meta", .checks = true};
    bool recording = fl_record_pause();
    fl_status status = begin_run(&run, program);
    if (status == FL_OK) status = fill_meta(&run, program->inputs, program->input_count);
    if (status == FL_OK) status = fill_meta(&run, program->weights, program->weight_count);
    if (status == FL_OK) status = run_steps(&run, "flow_program_open");
    fl_record_resume(recording);
    end_run(&run);
    return status;
}

/* ---- opening ---- */

static int find_weight(const fl_safetensors *file, const char *name)
{
    for (int i = 0; i < file->count; i++)
        if (strcmp(file->entries[i].name, name) == 0) return i;
    return -1;
}

static fl_status read_weight(flow_program *program, fl_program_entry *weight, const fl_placement *device)
{
    const fl_program_value *value = &program->values[weight->value];
    char shown[FL_SHOWN_TEXT];
    int at = find_weight(program->file, weight->name);
    const fl_safetensors_entry *e = at >= 0 ? &program->file->entries[at] : NULL;
    if (!e || e->dtype != value->dtype || !fl_shape_equal(&e->shape, &value->shape))
        return fl_fail(FL_ERR_IO, "flow_program_open: the weight '%s' is not in the file, or not as the list says",
                       fl_text_name(shown, weight->name));
    if (value->placement) {
        const fl_placement *named, *place;
        fl_nd_sbp sbp;
        FL_TRY(fl_api_placement(&named, "flow_program_open", value->placement));
        FL_TRY(fl_placement_get(&place, device->type, named->ranks, named->count, named->hierarchy, named->ndim));
        FL_TRY(fl_api_sbp(&sbp, "flow_program_open", value->sbp, place, value->shape.ndim));
        FL_TRY(fl_load_global(&weight->tensor, program->file, at, place, sbp));
    } else {
        FL_TRY(fl_load_local(&weight->tensor, program->file, at));
        if (device->type != FL_CPU) {
            fl_tensor *host = weight->tensor;
            weight->tensor = NULL;
            fl_status status = fl_to_device(&weight->tensor, host, device);
            fl_tensor_unref(host);
            FL_TRY(status);
        }
    }
    if (!weight->requires_grad || !fl_dtype_is_float(value->dtype)) return FL_OK;
    return fl_autograd_set_requires_grad(weight->tensor, true);
}

static fl_status open_program(flow_program **out, const char *path, const char *device)
{
    flow_program *p;
    const fl_placement *place;
    FL_TRY(fl_api_device(&place, "flow_program_open", device ? device : "cpu"));
    FL_TRY(fl_program_read(&p, path));
    fl_status status = check_program(p);
    for (int i = 0; i < p->weight_count && status == FL_OK; i++) status = read_weight(p, &p->weights[i], place);
    if (status != FL_OK) flow_program_close(p);
    else *out = p;
    return status;
}

flow_status flow_program_open(flow_program **out, const char *path, const char *device)
{
    FL_API_ENTER("flow_program_open");
    FL_API_TRY(fl_api_need(out, "flow_program_open", "out"));
    FL_API_TRY(fl_api_need(path, "flow_program_open", "path"));
    return fl_api_leave(open_program(out, path, device));
}

/* ---- its parts ---- */

const char *flow_program_name(const flow_program *program, flow_part part, int index)
{
    if (!program || index < 0) return NULL;
    switch (part) {
    case FLOW_INPUTS: return index < program->input_count ? program->inputs[index].name : NULL;
    case FLOW_WEIGHTS: return index < program->weight_count ? program->weights[index].name : NULL;
    case FLOW_OUTPUTS: return index < program->output_count ? program->outputs[index].name : NULL;
    }
    return NULL;
}

flow_status flow_program_input(flow_spec *spec, const flow_program *program, int index)
{
    FL_API_ENTER("flow_program_input");
    FL_API_TRY(fl_api_need(spec, "flow_program_input", "spec"));
    FL_API_TRY(fl_api_need(program, "flow_program_input", "program"));
    if (index < 0 || index >= program->input_count)
        return (flow_status)fl_fail(FL_ERR_VALUE, "flow_program_input: the program has %d inputs, there is no %d",
                                    program->input_count, index);
    const fl_program_value *value = &program->values[program->inputs[index].value];
    *spec = (flow_spec){.dtype = fl_dtype_name(value->dtype),
                        .ndim = value->shape.ndim,
                        .shape = value->shape.dims,
                        .placement = value->placement,
                        .sbp = value->sbp};
    return FLOW_OK;
}

flow_tensor *flow_program_weight(const flow_program *program, int index)
{
    bool there = program && index >= 0 && index < program->weight_count;
    return there ? fl_api_out(fl_tensor_ref(program->weights[index].tensor)) : NULL;
}

/* ---- running ---- */

static fl_status take_inputs(struct run *run, flow_tensor *const *inputs, int count)
{
    const flow_program *p = run->program;
    char is[VALUE_TEXT], wanted[VALUE_TEXT];
    if (count != p->input_count)
        return fl_fail(FL_ERR_VALUE, "flow_program_run: the program has %d inputs, %d were given", p->input_count,
                       count);
    for (int i = 0; i < count; i++) {
        fl_tensor *t = fl_api_in(inputs[i]);
        const fl_program_value *value = &p->values[p->inputs[i].value];
        if (!t) return fl_fail(FL_ERR_VALUE, "flow_program_run: the input '%s' is NULL", p->inputs[i].name);
        if (t->meta->dtype != value->dtype || !fl_shape_equal(&t->meta->shape, &value->shape))
            return fl_fail(FL_ERR_SHAPE, "flow_program_run: the input '%s' is %s, the program was made for %s",
                           p->inputs[i].name, value_text(is, t->meta->dtype, &t->meta->shape, NULL),
                           value_text(wanted, value->dtype, &value->shape, NULL));
        run->slots[p->inputs[i].value] = fl_tensor_ref(t);
        if (i == 0) run->type = fl_device_type_name(t->meta->placement->type);
    }
    for (int i = 0; i < p->weight_count; i++) {
        run->slots[p->weights[i].value] = fl_tensor_ref(p->weights[i].tensor);
        if (!run->type) run->type = fl_device_type_name(p->weights[i].tensor->meta->placement->type);
    }
    if (!run->type) run->type = "cpu";
    return FL_OK;
}

flow_status flow_program_run(flow_tensor **out, int nout, const flow_program *program, flow_tensor *const *inputs,
                             int count)
{
    struct run run = {0};
    FL_API_ENTER("flow_program_run");
    FL_API_TRY(fl_api_need(program, "flow_program_run", "program"));
    if (count > 0) FL_API_TRY(fl_api_need(inputs, "flow_program_run", "inputs"));
    if (nout > 0) FL_API_TRY(fl_api_need(out, "flow_program_run", "out"));
    if (nout < 0 || nout > program->output_count)
        return (flow_status)fl_fail(FL_ERR_VALUE, "flow_program_run: the program has %d result%s, %d were asked for",
                                    program->output_count, program->output_count == 1 ? "" : "s", nout);
    fl_status status = begin_run(&run, program);
    if (status == FL_OK) status = take_inputs(&run, inputs, count);
    if (status == FL_OK) status = run_steps(&run, "flow_program_run");
    for (int i = 0; i < nout && status == FL_OK; i++)
        out[i] = fl_api_out(fl_tensor_ref(run.slots[program->outputs[i].value]));
    end_run(&run);
    return fl_api_leave(status);
}
