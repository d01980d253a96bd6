/*
** program_read.c -- the list of steps that p:save(path) writes into a safetensors file (program_file.lua has its form).
**
** A file is not trusted: kinds, numbers of values and their order are checked here; operands, attributes and shapes by
** program.c, which calls every step on the meta device.
*/
#include "entry.h"
#include "program.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOST = 1000000, MOST_TEXT = 1000, VERSION = 1 };

/* ---- memory ---- */

struct fl_program_block {
    struct fl_program_block *next;
    max_align_t bytes[];
};

void *fl_program_memory(flow_program *program, size_t size)
{
    struct fl_program_block *block = calloc(1, sizeof *block + size + 1);
    if (!block) return NULL;
    block->next = program->blocks;
    program->blocks = block;
    return block->bytes;
}

void flow_program_close(flow_program *program)
{
    if (!program) return;
    for (int i = 0; i < program->weight_count; i++) fl_tensor_release(program->weights[i].tensor);
    for (struct fl_program_block *block = program->blocks, *next; block; block = next) {
        next = block->next;
        free(block);
    }
    if (program->tree) json_decref(program->tree);
    fl_safetensors_close(program->file);
    free(program);
}

/* ---- errors ---- */

/* The reader of one file. */
struct job {
    flow_program *program;
    const char *path;
    char where[64]; /* "step 3" */
    bool *defined;  /* of each value: it is an input, a weight, or made by a step before */
    bool *drawn;    /* of each number of a draw */
    int drawn_size;
};

static fl_status wrong(const struct job *job, const char *what)
{
    char shown[FL_SHOWN_TEXT];
    return fl_fail(FL_ERR_IO, "flow_program_open: %s: %s%s%s", fl_text_name(shown, job->path), job->where,
                   job->where[0] ? ": " : "", what);
}

static fl_status out_of_memory(void) { return fl_fail(FL_ERR_MEMORY, "flow_program_open: out of memory"); }

static void at(struct job *job, const char *kind, int i)
{
    snprintf(job->where, sizeof job->where, "%s %d", kind, i + 1);
}

#define WRONG(condition, what)                    \
    do {                                          \
        if (condition) return wrong(job, (what)); \
    } while (0)

#define MEMORY(place, count)                                                                \
    do {                                                                                    \
        (place) = fl_program_memory(job->program, sizeof *(place) * ((size_t)(count) + 1)); \
        if (!(place)) return out_of_memory();                                               \
    } while (0)

static fl_status read_count(int *out, const struct job *job, const json_t *list, const char *what)
{
    WRONG(!json_is_array(list) || json_array_size(list) > MOST, what);
    *out = (int)json_array_size(list);
    return FL_OK;
}

static fl_status read_text(const char **out, const struct job *job, const json_t *text, const char *what)
{
    WRONG(!json_is_string(text) || !json_string_length(text) || json_string_length(text) > MOST_TEXT
              || strlen(json_string_value(text)) != json_string_length(text),
          what);
    *out = json_string_value(text);
    return FL_OK;
}

/* Reads a flag; false if the key is missing. */
static fl_status read_flag(bool *out, const struct job *job, const json_t *object, const char *key)
{
    const json_t *flag = json_object_get(object, key);
    WRONG(flag && !json_is_boolean(flag), "a flag is neither true nor false");
    *out = json_is_true(flag);
    return FL_OK;
}

/* A value's number, from 0. */
static fl_status read_value(int *out, const struct job *job, const json_t *number, bool defined)
{
    json_int_t k = json_is_integer(number) ? json_integer_value(number) : 0;
    WRONG(k < 1 || k > job->program->value_count, "there is no such value");
    WRONG(defined && !job->defined[k - 1], "a value is used before it is made");
    *out = (int)k - 1;
    return FL_OK;
}

/* ---- values ---- */

/* "cpu {{0, 1}, {2, 3}}" of {"type": "cpu", "ranks": [[0, 1], [2, 3]]} */
static fl_status read_placement(const char **out, const struct job *job, const json_t *placement)
{
    const char *type;
    WRONG(!json_is_object(placement) || !json_is_array(json_object_get(placement, "ranks")),
          "'placement' is not a type and ranks");
    FL_TRY(read_text(&type, job, json_object_get(placement, "type"), "'placement' is not a type and ranks"));
    char *ranks = json_dumps(json_object_get(placement, "ranks"), JSON_COMPACT), *text;
    if (!ranks) return out_of_memory();
    size_t size = strlen(type) + strlen(ranks) + 2;
    text = fl_program_memory(job->program, size);
    if (text) snprintf(text, size, "%s %s", type, ranks);
    free(ranks);
    if (!text) return out_of_memory();
    for (char *c = text; *c; c++)
        if (*c == '[' || *c == ']') *c = *c == '[' ? '{' : '}';
    *out = text;
    return FL_OK;
}

/* "S(0), B" of ["S(0)", "B"] */
static fl_status read_sbp(const char **out, const struct job *job, const json_t *sbp)
{
    char text[FL_ND_SBP_TEXT] = "", *copy;
    size_t i, n = 0;
    json_t *word;
    WRONG(!json_is_array(sbp) || json_array_size(sbp) > FL_MAX_HIERARCHY, "'sbp' is not a list of words");
    json_array_foreach(sbp, i, word)
    {
        WRONG(!json_is_string(word) || json_string_length(word) >= FL_SBP_TEXT, "'sbp' is not a list of words");
        n += (size_t)snprintf(text + n, sizeof text - n, "%s%s", n ? ", " : "", json_string_value(word));
    }
    MEMORY(copy, n);
    memcpy(copy, text, n);
    *out = copy;
    return FL_OK;
}

static fl_status read_place(const char **placement, const char **sbp, const struct job *job, const json_t *object)
{
    const json_t *where = json_object_get(object, "placement"), *how = json_object_get(object, "sbp");
    WRONG(!where != !how, "placement and sbp go together");
    if (!where) return FL_OK;
    FL_TRY(read_placement(placement, job, where));
    return read_sbp(sbp, job, how);
}

static fl_status read_one_value(fl_program_value *value, const struct job *job, const json_t *json)
{
    const char *dtype;
    const json_t *shape = json_object_get(json, "shape");
    int64_t dims[FL_MAX_NDIM] = {0};
    size_t i;
    json_t *size;
    FL_TRY(read_text(&value->name, job, json_object_get(json, "name"), "'name' is not a name"));
    FL_TRY(read_text(&dtype, job, json_object_get(json, "dtype"), "'dtype' is not a name"));
    FL_TRY(fl_api_dtype(&value->dtype, "flow_program_open", dtype));
    WRONG(!json_is_array(shape) || json_array_size(shape) > FL_MAX_NDIM, "'shape' is not a list of sizes");
    json_array_foreach(shape, i, size)
    {
        WRONG(!json_is_integer(size), "'shape' is not a list of sizes");
        dims[i] = json_integer_value(size);
    }
    FL_TRY(fl_shape_make(&value->shape, "flow_program_open", dims, (int)json_array_size(shape)));
    return read_place(&value->placement, &value->sbp, job, json);
}

static fl_status read_values(struct job *job, const json_t *list)
{
    flow_program *p = job->program;
    FL_TRY(read_count(&p->value_count, job, list, "'values' is not a list"));
    MEMORY(p->values, p->value_count);
    MEMORY(job->defined, p->value_count);
    for (int i = 0; i < p->value_count; i++) {
        at(job, "value", i);
        FL_TRY(read_one_value(&p->values[i], job, json_array_get(list, (size_t)i)));
    }
    return FL_OK;
}

/* Inputs and weights define their values, outputs use them. */
static fl_status read_entries(fl_program_entry **out, int *count, struct job *job, const json_t *tree, const char *key,
                              bool defines)
{
    const json_t *list = json_object_get(tree, key);
    fl_program_entry *entries;
    int n = 0;
    FL_TRY(read_count(&n, job, list, "inputs, weights or outputs are not a list"));
    MEMORY(entries, n);
    for (int i = 0; i < n; i++) {
        const json_t *t = json_array_get(list, (size_t)i);
        at(job, key, i);
        FL_TRY(read_text(&entries[i].name, job, json_object_get(t, "name"), "'name' is not a name"));
        FL_TRY(read_value(&entries[i].value, job, json_object_get(t, "value"), !defines));
        FL_TRY(read_flag(&entries[i].requires_grad, job, t, "requires_grad"));
        if (!defines) continue;
        WRONG(job->defined[entries[i].value], "its value is made twice");
        job->defined[entries[i].value] = true;
    }
    *out = entries;
    *count = n;
    return FL_OK;
}

/* ---- steps ---- */

/* Numbers, {"float": "inf"}, words, lists of whole numbers. */
static fl_status read_arg(flow_arg *out, const struct job *job, const json_t *json)
{
    const char *word = json_is_object(json) ? json_string_value(json_object_get(json, "float")) : NULL;
    size_t i;
    json_t *item;
    if (json_is_integer(json)) *out = flow_int(json_integer_value(json));
    else if (json_is_real(json)) *out = flow_float(json_real_value(json));
    else if (json_is_boolean(json)) *out = flow_bool(json_is_true(json));
    else if (json_is_string(json)) *out = flow_text(json_string_value(json));
    else if (word && strcmp(word, "nan") == 0) *out = flow_float(NAN);
    else if (word && strcmp(word, "inf") == 0) *out = flow_float(INFINITY);
    else if (word && strcmp(word, "-inf") == 0) *out = flow_float(-INFINITY);
    else {
        int64_t *ints;
        WRONG(!json_is_array(json) || json_array_size(json) > FL_MAX_NDIM,
              "an attribute is no number, word or list of these");
        MEMORY(ints, json_array_size(json));
        json_array_foreach(json, i, item)
        {
            WRONG(!json_is_integer(item), "an attribute is not a list of whole numbers");
            ints[i] = json_integer_value(item);
        }
        *out = flow_ints(ints, (int)json_array_size(json));
    }
    return FL_OK;
}

static fl_status read_operands(fl_program_step *step, const struct job *job, const json_t *list)
{
    FL_TRY(read_count(&step->nin, job, list, "'in' is not a list"));
    MEMORY(step->in, step->nin);
    for (int i = 0; i < step->nin; i++) {
        const json_t *t = json_array_get(list, (size_t)i), *value = json_object_get(t, "value");
        step->in[i].value = -1;
        step->in[i].number = flow_nothing();
        if (value) FL_TRY(read_value(&step->in[i].value, job, value, true));
        else if (!json_is_null(t)) FL_TRY(read_arg(&step->in[i].number, job, t));
    }
    return FL_OK;
}

static fl_status read_option(flow_arg *out, const struct job *job, const char *key, const json_t *json)
{
    const char *text = json_string_value(json);
    if (strcmp(key, "placement") == 0) FL_TRY(read_placement(&text, job, json));
    else if (strcmp(key, "sbp") == 0 || strcmp(key, "grad_sbp") == 0) FL_TRY(read_sbp(&text, job, json));
    else if (strcmp(key, "requires_grad") == 0) {
        WRONG(!json_is_boolean(json), "'requires_grad' is neither true nor false");
        *out = flow_named("requires_grad", flow_bool(json_is_true(json)));
        return FL_OK;
    } else WRONG((strcmp(key, "dtype") != 0 && strcmp(key, "device") != 0) || !text, "an option is not known");
    *out = flow_named(key, flow_text(text));
    return FL_OK;
}

/* Attributes, then options. */
static fl_status read_named(fl_program_step *step, const struct job *job, json_t *attrs, json_t *options)
{
    const char *key;
    json_t *t;
    WRONG((attrs && !json_is_object(attrs)) || (options && !json_is_object(options)),
          "'attrs' or 'options' is no object");
    WRONG(json_object_size(attrs) + json_object_size(options) > FL_MAX_PARAMS, "has too many attributes");
    MEMORY(step->named, FL_MAX_PARAMS);
    json_object_foreach(attrs, key, t)
    {
        WRONG(strcmp(key, "grad_sbp") == 0, "'grad_sbp' is an option");
        FL_TRY(read_arg(&step->named[step->nnamed], job, t));
        step->named[step->nnamed++].name = key;
    }
    json_object_foreach(options, key, t) FL_TRY(read_option(&step->named[step->nnamed++], job, key, t));
    return FL_OK;
}

static fl_status read_draws(fl_program_step *step, struct job *job, const json_t *json)
{
    const json_t *list = json_object_get(json, "draws"), *again = json_object_get(json, "redraws");
    if (list) FL_TRY(read_count(&step->ndraws, job, list, "'draws' is not a list"));
    WRONG(step->ndraws > FL_DRAWS_NOTED, "draws more often than a step can");
    MEMORY(step->draws, step->ndraws);
    for (int i = 0; i < step->ndraws; i++) {
        json_int_t number = json_integer_value(json_array_get(list, (size_t)i));
        WRONG(number < 1 || number > job->drawn_size || job->drawn[number - 1], "a draw has no number of its own");
        job->drawn[number - 1] = true;
        step->draws[i] = (int)number;
        if (number > job->program->draw_count) job->program->draw_count = (int)number;
    }
    if (!again) return FL_OK;
    json_int_t number = json_integer_value(again);
    WRONG(number < 1 || number > job->drawn_size || !job->drawn[number - 1],
          "no step before it makes the draw that it repeats");
    step->redraws = (int)number;
    return FL_OK;
}

static fl_status read_step(fl_program_step *step, struct job *job, const json_t *json, int i)
{
    const char *op;
    char *name;
    bool in_place = false;
    at(job, "step", i);
    FL_TRY(read_text(&op, job, json_object_get(json, "op"), "'op' is not a name"));
    snprintf(job->where, sizeof job->where, "step %d (%.40s)", i + 1, op);
    FL_TRY(read_flag(&in_place, job, json, "in_place"));
    FL_TRY(read_flag(&step->no_grad, job, json, "no_grad"));
    FL_TRY(read_flag(&step->undraws, job, json, "undraws"));
    MEMORY(name, strlen(op) + 1);
    snprintf(name, strlen(op) + 2, "%s%s", op, in_place ? "_" : "");
    step->op = name;
    const fl_call_method *method = fl_call_method_find(name);
    step->detaches = method && method->detaches;
    FL_TRY(read_operands(step, job, json_object_get(json, "in")));
    WRONG(step->detaches && (step->nin != 1 || step->in[0].value < 0), "takes one value");
    FL_TRY(read_named(step, job, json_object_get(json, "attrs"), json_object_get(json, "options")));
    const json_t *list = json_object_get(json, "out");
    FL_TRY(read_count(&step->nout, job, list, "'out' is not a list"));
    MEMORY(step->out, step->nout);
    for (int k = 0; k < step->nout; k++) {
        FL_TRY(read_value(&step->out[k], job, json_array_get(list, (size_t)k), false));
        job->defined[step->out[k]] = true;
    }
    return read_draws(step, job, json);
}

static fl_status read_steps(struct job *job, const json_t *list)
{
    flow_program *p = job->program;
    job->where[0] = '\0';
    FL_TRY(read_count(&p->step_count, job, list, "'steps' is not a list"));
    job->drawn_size = 4 * p->step_count;
    MEMORY(p->steps, p->step_count);
    MEMORY(job->drawn, job->drawn_size);
    for (int i = 0; i < p->step_count; i++) FL_TRY(read_step(&p->steps[i], job, json_array_get(list, (size_t)i), i));
    return FL_OK;
}

static fl_status read_tree(struct job *job)
{
    flow_program *p = job->program;
    const json_t *tree = p->tree, *version = json_object_get(tree, "version");
    WRONG(!json_is_object(tree), "its list of steps is not an object");
    WRONG(!json_is_integer(version) || json_integer_value(version) != VERSION, "it is of another version");
    WRONG(json_array_size(json_object_get(tree, "backward")),
          "it is a program of gradients; save the program itself, flow_backward gives the gradients of its results");
    FL_TRY(read_values(job, json_object_get(tree, "values")));
    FL_TRY(read_entries(&p->inputs, &p->input_count, job, tree, "inputs", true));
    FL_TRY(read_entries(&p->weights, &p->weight_count, job, tree, "weights", true));
    FL_TRY(read_steps(job, json_object_get(tree, "steps")));
    return read_entries(&p->outputs, &p->output_count, job, tree, "outputs", false);
}

static fl_status read_file(struct job *job)
{
    flow_program *p = job->program;
    const char *text = NULL;
    FL_TRY(fl_safetensors_open(&p->file, job->path));
    for (int i = 0; i < p->file->metadata_count; i++)
        if (strcmp(p->file->metadata[2 * i], "flow.program") == 0) text = p->file->metadata[2 * i + 1];
    WRONG(!text, "holds no program: p:save(path) writes one");
    fl_status status = fl_json_read(&p->tree, text, strlen(text), (fl_json_limits){.no_nul = true});
    if (status != FL_OK) return fl_fail_prefix(status, "flow_program_open: %s: its list of steps: ", job->path);
    return read_tree(job);
}

fl_status fl_program_read(flow_program **out, const char *path)
{
    struct job job = {.path = path, .program = calloc(1, sizeof *job.program)};
    if (!job.program) return out_of_memory();
    fl_status status = read_file(&job);
    if (status != FL_OK) flow_program_close(job.program);
    else *out = job.program;
    return status;
}
