/*
** call.c -- any op by its name, with arguments as its signature has them.
*/
#include "api.h"
#include "entry.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- arguments ---- */

struct binding {
    const fl_call_entry *entry;
    const char *who;
    fl_operand *in; /* `fixed`, or memory of its own */
    int nin;
    uint32_t given; /* parameters seen, a bit each */
    fl_tensor *out; /* borrowed; NULL: the result is a new tensor */
    const char *device, *placement, *sbp, *grad_sbp;
    const char *default_device; /* of ops that make tensors; NULL: the CPU */
    bool requires_grad;
    fl_attrs attrs;
    fl_operand fixed[FL_MAX_PARAMS];
};

static const char *kind_name(const flow_arg *arg)
{
    static const char *const names[] = {
        "nothing",       "a tensor", "a list of tensors", "an integer", "a list of integers", "a number",
        "true or false", "a text"};
    return (unsigned)arg->kind < sizeof names / sizeof *names ? names[arg->kind] : "an argument of no kind";
}

/* A tensor, a list or a text that is not there. */
static bool is_null(const flow_arg *arg)
{
    switch (arg->kind) {
    case FLOW_TENSOR: return !arg->value.tensor;
    case FLOW_TENSORS: return arg->count && !arg->value.tensors;
    case FLOW_INTS: return arg->count && !arg->value.ints;
    case FLOW_TEXT: return !arg->value.text;
    default: return false;
    }
}

static fl_status wrong_kind(const struct binding *binding, const char *name, const char *wanted, const flow_arg *arg)
{
    if (is_null(arg)) return fl_fail(FL_ERR_VALUE, "%s: %s is NULL", binding->who, name);
    return fl_fail(FL_ERR_VALUE, "%s: %s must be %s, got %s", binding->who, name, wanted, kind_name(arg));
}

static fl_status read_operand(fl_operand *operand, const struct binding *binding, const fl_param *param,
                              const flow_arg *arg)
{
    bool number = param->number_allowed;
    if (arg->kind == FLOW_TENSOR && arg->value.tensor) *operand = fl_of(fl_api_in(arg->value.tensor));
    else if (arg->kind == FLOW_NONE && param->optional) *operand = fl_of(NULL);
    else if (arg->kind == FLOW_INT && number) *operand = fl_of_integer(arg->value.integer);
    else if (arg->kind == FLOW_FLOAT && number) *operand = fl_of_number(arg->value.number);
    else if (arg->kind == FLOW_BOOL && number) {
        *operand = fl_of_integer(arg->value.integer != 0);
        operand->kind = FL_NUM_BOOL;
    } else return wrong_kind(binding, param->name, number ? "a tensor or a number" : "a tensor", arg);
    return FL_OK;
}

static fl_status read_operands(struct binding *binding, const fl_param *param, const flow_arg *arg)
{
    if (arg->kind != FLOW_TENSORS || is_null(arg)) return wrong_kind(binding, param->name, "a list of tensors", arg);
    if (arg->count < 0) return fl_fail(FL_ERR_VALUE, "%s: %s has %d entries", binding->who, param->name, arg->count);
    int count = param->slot + arg->count;
    if (count > FL_MAX_PARAMS) {
        fl_operand *many = malloc(sizeof *many * (size_t)count);
        if (!many) return fl_fail(FL_ERR_MEMORY, "%s: out of memory", binding->who);
        memcpy(many, binding->fixed, sizeof *many * (size_t)param->slot);
        binding->in = many;
    }
    for (int i = 0; i < arg->count; i++) {
        if (!arg->value.tensors[i])
            return fl_fail(FL_ERR_VALUE, "%s: entry %d of %s is NULL", binding->who, i, param->name);
        binding->in[param->slot + i] = fl_of(fl_api_in(arg->value.tensors[i]));
    }
    binding->nin = count;
    return FL_OK;
}

/* Position of the text among the words "mean|sum|none". */
static fl_status read_word(int64_t *out, const struct binding *binding, const fl_param *param, const char *text)
{
    char shown[FL_SHOWN_TEXT];
    int at = 0;
    for (const char *word = param->words; *word; at++) {
        size_t n = strcspn(word, "|");
        if (strlen(text) == n && memcmp(text, word, n) == 0) {
            *out = at;
            return FL_OK;
        }
        word += n + (word[n] == '|');
    }
    return fl_fail(FL_ERR_VALUE, "%s: %s must be one of %s, got '%s'", binding->who, param->name, param->words,
                   fl_text_name(shown, text));
}

static fl_status read_list(fl_attr *attr, const struct binding *binding, const fl_param *param, const flow_arg *arg)
{
    memset(attr->list, 0, sizeof attr->list);
    if (arg->kind == FLOW_TEXT && *param->words && arg->value.text) {
        attr->kind = FL_WORD;
        return read_word(&attr->integer, binding, param, arg->value.text);
    }
    if (arg->kind == FLOW_INT) {
        attr->list[0] = arg->value.integer;
        return FL_OK;
    }
    if (arg->kind != FLOW_INTS || is_null(arg))
        return wrong_kind(binding, param->name, "an integer or a list of integers", arg);
    if (arg->count < 0 || arg->count > FL_MAX_NDIM)
        return fl_fail(FL_ERR_VALUE, "%s: %s holds at most %d integers, got %d", binding->who, param->name, FL_MAX_NDIM,
                       arg->count);
    if (arg->count) memcpy(attr->list, arg->value.ints, sizeof *attr->list * (size_t)arg->count);
    attr->count = arg->count;
    return FL_OK;
}

static fl_status read_number(fl_attr *attr, const struct binding *binding, const fl_param *param, const flow_arg *arg)
{
    bool scalar = param->type == FL_ATTR_SCALAR;
    if (arg->kind == FLOW_INT || (arg->kind == FLOW_BOOL && scalar)) {
        attr->kind = arg->kind == FLOW_BOOL ? FL_NUM_BOOL : FL_NUM_INT;
        attr->integer = arg->value.integer;
        if (scalar) return FL_OK;
        attr->number = (double)arg->value.integer;
    } else if (arg->kind == FLOW_FLOAT) attr->number = arg->value.number;
    else return wrong_kind(binding, param->name, "a number", arg);
    attr->kind = FL_NUM_FLOAT;
    if (isnan(attr->number)) attr->number = NAN; /* one of them, for keys of plans */
    return FL_OK;
}

static fl_status read_text(fl_attr *attr, const struct binding *binding, const fl_param *param, const flow_arg *arg)
{
    fl_dtype dtype;
    if (arg->kind != FLOW_TEXT || !arg->value.text) return wrong_kind(binding, param->name, "a text", arg);
    if (param->type == FL_ATTR_WORD) return read_word(&attr->integer, binding, param, arg->value.text);
    if (param->type == FL_ATTR_TEXT) {
        attr->text = arg->value.text;
        return FL_OK;
    }
    FL_TRY(fl_api_dtype(&dtype, binding->who, arg->value.text));
    attr->integer = dtype;
    return FL_OK;
}

static fl_status read_attr(struct binding *binding, const fl_param *param, const flow_arg *arg)
{
    fl_attr *a = &binding->attrs.at[param->slot];
    if (arg->kind == FLOW_NONE) return FL_OK; /* as if it were left out */
    a->given = true;
    a->count = 1;
    a->kind = FL_NUM_INT;
    switch (param->type) {
    case FL_ATTR_BOOL:
        if (arg->kind != FLOW_BOOL) return wrong_kind(binding, param->name, "true or false", arg);
        a->integer = arg->value.integer != 0;
        return FL_OK;
    case FL_ATTR_INT:
    case FL_ATTR_AXIS:
        if (arg->kind != FLOW_INT) return wrong_kind(binding, param->name, "an integer", arg);
        a->integer = arg->value.integer;
        return FL_OK;
    case FL_ATTR_FLOAT:
    case FL_ATTR_SCALAR: return read_number(a, binding, param, arg);
    case FL_ATTR_DTYPE:
    case FL_ATTR_WORD:
    case FL_ATTR_TEXT: return read_text(a, binding, param, arg);
    case FL_ATTR_AXES:
    case FL_ATTR_INTS:
    case FL_ATTR_SIZES: return read_list(a, binding, param, arg);
    case FL_ATTR_OPTIONS: break;
    }
    return FL_OK;
}

static bool is_options(const fl_param *param) { return !param->is_tensor && param->type == FL_ATTR_OPTIONS; }

static fl_status read_param(struct binding *binding, int i, const flow_arg *arg)
{
    const fl_param *p = &binding->entry->signature->params[i];
    if (binding->given >> i & 1u) return fl_fail(FL_ERR_VALUE, "%s: '%s' is given twice", binding->who, p->name);
    if (!(arg->kind == FLOW_NONE && !p->is_tensor)) binding->given |= 1u << i;
    if (!p->is_tensor) return read_attr(binding, p, arg);
    return p->is_list ? read_operands(binding, p, arg) : read_operand(&binding->in[p->slot], binding, p, arg);
}

/* ---- arguments with names ---- */

static fl_status unknown_name(const struct binding *binding, const char *name)
{
    static const char *const options[] = {"out", "dtype", "device", "placement", "sbp", "requires_grad"};
    const fl_signature *s = binding->entry->signature;
    char shown[FL_SHOWN_TEXT];
    const char *best = NULL;
    int count = s->param_count + (s->has_options ? 6 : 1), least = 99;
    if (!*name) return fl_fail(FL_ERR_VALUE, "%s: the name of an argument is NULL or empty", binding->who);
    for (int i = 0; i < count; i++) {
        const char *known = i < s->param_count ? s->params[i].name : options[i - s->param_count];
        int distance = fl_suggest_distance(name, known);
        if (distance < 0 || distance >= least || (i < s->param_count && is_options(&s->params[i]))) continue;
        least = distance;
        best = known;
    }
    return fl_fail(FL_ERR_VALUE, "%s: it has no argument '%s'%s%s%s", binding->who, fl_text_name(shown, name),
                   best ? "; did you mean '" : "", best ? best : "", best ? "'?" : "");
}

static bool takes_options(const fl_call_entry *entry)
{
    return entry->signature->has_options || fl_op_is_placed(entry->op) || entry->op == FL_OP_REF(to_local);
}

/* Destination of an option that is a text; NULL: the option is none. */
static const char **text_option(struct binding *binding, const char *name)
{
    if (strcmp(name, "device") == 0) return &binding->device;
    if (strcmp(name, "placement") == 0) return &binding->placement;
    if (strcmp(name, "sbp") == 0) return &binding->sbp;
    return strcmp(name, "grad_sbp") == 0 && !binding->entry->signature->has_options ? &binding->grad_sbp : NULL;
}

/* dtype, device, placement, sbp, requires_grad; *known false: none of them. */
static fl_status read_option(bool *known, struct binding *binding, const flow_arg *arg)
{
    const char *name = arg->name, **text = text_option(binding, name);
    bool dtype = strcmp(name, "dtype") == 0, grad = strcmp(name, "requires_grad") == 0;
    *known = text || dtype || grad;
    if (!*known || arg->kind == FLOW_NONE) return FL_OK;
    if (grad) {
        if (arg->kind != FLOW_BOOL) return wrong_kind(binding, name, "true or false", arg);
        binding->requires_grad = arg->value.integer != 0;
        return FL_OK;
    }
    if (arg->kind != FLOW_TEXT || !arg->value.text) return wrong_kind(binding, name, "a text", arg);
    if (text) *text = arg->value.text;
    else {
        FL_TRY(fl_api_dtype(&binding->attrs.option_dtype, binding->who, arg->value.text));
        binding->attrs.has_dtype = true;
    }
    return FL_OK;
}

/* The tensor that the result is written into. */
static fl_status read_out(struct binding *binding, const flow_arg *arg)
{
    if (arg->kind == FLOW_NONE) return FL_OK;
    if (arg->kind != FLOW_TENSOR || is_null(arg)) return wrong_kind(binding, "out", "a tensor", arg);
    if (binding->out) return fl_fail(FL_ERR_VALUE, "%s: 'out' is given twice", binding->who);
    if (binding->entry->in_place)
        return fl_fail(FL_ERR_VALUE, "%s: writes its operand, and takes no out", binding->who);
    binding->out = fl_api_in(arg->value.tensor);
    return FL_OK;
}

static fl_status read_named(struct binding *binding, const flow_arg *arg)
{
    const fl_signature *s = binding->entry->signature;
    bool known = false;
    for (int i = 0; i < s->param_count; i++)
        if (!is_options(&s->params[i]) && strcmp(s->params[i].name, arg->name) == 0
            && strcmp(arg->name, "grad_sbp") != 0)
            return read_param(binding, i, arg);
    if (!binding->entry->of_program && strcmp(arg->name, "out") == 0) return read_out(binding, arg);
    if (takes_options(binding->entry)) FL_TRY(read_option(&known, binding, arg));
    return known ? FL_OK : unknown_name(binding, arg->name);
}

/* Axes of the tensor that is made or taken, for "S(-1)"; 0 when not known. */
static int ndim_of(const struct binding *binding)
{
    const fl_signature *s = binding->entry->signature;
    for (int i = 0; i < s->param_count; i++)
        if (!s->params[i].is_tensor && s->params[i].type == FL_ATTR_SIZES)
            return binding->attrs.at[s->params[i].slot].count;
    return binding->nin > 0 && binding->in[0].kind == FL_TENSOR ? binding->in[0].tensor->meta->shape.ndim : 0;
}

static fl_status apply_options(struct binding *binding)
{
    fl_api_place place;
    binding->attrs.requires_grad = binding->requires_grad;
    if (!binding->device && !binding->placement && !binding->sbp) {
        if (!(binding->entry->op->flags & FL_OP_SOURCE) || !binding->default_device) return FL_OK;
        binding->device = binding->default_device;
    }
    FL_TRY(fl_api_place_of(&place, binding->who, binding->device, binding->placement, binding->sbp, ndim_of(binding)));
    binding->attrs.has_placement = true;
    binding->attrs.is_local = place.is_local;
    binding->attrs.placement = place.placement;
    binding->attrs.nd_sbp = place.nd_sbp;
    return FL_OK;
}

static fl_status apply_grad_sbp(struct binding *binding)
{
    const fl_meta *x = binding->in[0].tensor->meta;
    fl_nd_sbp sbp;
    FL_TRY(fl_api_sbp(&sbp, binding->who, binding->grad_sbp, x->placement, x->shape.ndim));
    return fl_place_set_grad_sbp(&binding->attrs, binding->entry->op, x, sbp, binding->who);
}

/* Sets and checks the place of an op that moves its operand, in a step of a program. */
static fl_status apply_place(struct binding *binding)
{
    const fl_op *op = binding->entry->op;
    if (binding->grad_sbp) FL_TRY(apply_grad_sbp(binding));
    return fl_op_is_placed(op) ? fl_place_check(&binding->attrs, op, binding->who) : FL_OK;
}

static fl_status check_required(const struct binding *binding)
{
    const fl_signature *s = binding->entry->signature;
    for (int i = 0; i < s->param_count; i++) {
        const fl_param *p = &s->params[i];
        bool required = p->is_tensor ? !p->optional : p->type != FL_ATTR_OPTIONS && p->required;
        if (required && !(binding->given >> i & 1u))
            return fl_fail(FL_ERR_VALUE, "%s: missing argument '%s': %s", binding->who, p->name,
                           binding->entry->op->sig);
    }
    return FL_OK;
}

static fl_status read_args(struct binding *binding, const flow_arg *args, int nargs)
{
    const fl_signature *s = binding->entry->signature;
    int at = 0, i = 0;
    for (; at < nargs && !args[at].name; at++, i++) {
        while (i < s->param_count && is_options(&s->params[i])) i++;
        if (i == s->param_count)
            return fl_fail(FL_ERR_VALUE, "%s: too many arguments: %s", binding->who, binding->entry->op->sig);
        FL_TRY(read_param(binding, i, &args[at]));
    }
    for (; at < nargs; at++) {
        if (!args[at].name)
            return fl_fail(FL_ERR_VALUE, "%s: argument %d has no name, after one that has", binding->who, at + 1);
        FL_TRY(read_named(binding, &args[at]));
    }
    FL_TRY(check_required(binding));
    if (!takes_options(binding->entry)) return FL_OK;
    FL_TRY(apply_options(binding));
    return s->has_options ? FL_OK : apply_place(binding);
}

/* ---- calling ---- */

/* Moves results together if a body has left some out, as unique does; returns their number. */
static inline int without_absent(fl_tensor **results, int nout)
{
    int made = 0;
    for (int i = 0; i < nout; i++)
        if (results[i]) results[made++] = results[i];
    return made;
}

/* Gives the results that are wanted. */
static fl_status run(flow_tensor **out, int count, const fl_call_entry *entry, const fl_operand *in, int nin,
                     const fl_attrs *attrs)
{
    fl_tensor *results[FL_MAX_OUT] = {NULL};
    int nout = entry->in_place ? 1 : entry->op->nout;
    if (count > nout)
        return fl_fail(FL_ERR_VALUE, "%s: it has %d result%s, %d were asked for", entry->name, nout,
                       nout == 1 ? "" : "s", count);
    FL_TRY(entry->in_place ? fl_dispatch_inplace(results, entry->op, in, nin, attrs)
                           : fl_dispatch(results, entry->op, in, nin, attrs));
    fl_status status = FL_UNLIKELY(attrs->requires_grad) ? fl_autograd_set_requires_grad(results[0], true) : FL_OK;
    const int made = without_absent(results, nout);
    if (status == FL_OK && count > made)
        status = fl_fail(FL_ERR_VALUE, "%s: with these arguments it has %d result%s, %d were asked for", entry->name,
                         made, made == 1 ? "" : "s", count);
    for (int i = 0; i < made; i++)
        if (i < count && status == FL_OK) out[i] = fl_api_out(results[i]);
        else fl_tensor_unref(results[i]);
    return status;
}

/* The result goes into binding->out, which is given with one reference more. */
static fl_status run_into(flow_tensor **out, int count, const struct binding *binding)
{
    if (count > 1) return fl_fail(FL_ERR_VALUE, "%s: it has 1 result, %d were asked for", binding->who, count);
    FL_TRY(fl_dispatch_into(binding->out, binding->entry->op, binding->in, binding->nin, &binding->attrs));
    if (count) out[0] = fl_api_out(fl_tensor_ref(binding->out));
    return FL_OK;
}

/* An op whose parameters are all tensors, each given by its position. */
static fl_status call_plain(flow_tensor **out, int count, const fl_call_entry *entry, const flow_arg *args)
{
    const fl_signature *s = entry->signature;
    struct binding binding;
    fl_operand in[FL_MAX_PARAMS];
    binding.who = entry->name;
    for (int i = 0; i < s->param_count; i++) {
        if (FL_LIKELY(args[i].kind == FLOW_TENSOR && args[i].value.tensor))
            in[i] = fl_of(fl_api_in(args[i].value.tensor));
        else FL_TRY(read_operand(&in[i], &binding, &s->params[i], &args[i]));
    }
    return run(out, count, entry, in, s->param_count, entry->defaults);
}

static fl_status call_any(flow_tensor **out, int count, const fl_call_entry *entry, const flow_arg *args, int nargs)
{
    const fl_signature *s = entry->signature;
    struct binding binding = {.entry = entry, .who = entry->name, .nin = s->tensor_count};
    binding.in = binding.fixed;
    memcpy(&binding.attrs, entry->defaults, offsetof(fl_attrs, at) + sizeof(fl_attr) * (size_t)s->attr_count);
    fl_status status = read_args(&binding, args, nargs);
    if (status == FL_OK)
        status = binding.out ? run_into(out, count, &binding)
                             : run(out, count, entry, binding.in, binding.nin, &binding.attrs);
    if (binding.in != binding.fixed) free(binding.in);
    return status;
}

static bool all_positional(const flow_arg *args, int nargs)
{
    for (int i = 0; i < nargs; i++)
        if (args[i].name) return false;
    return true;
}

/* The entry that these arguments of a form mean: an axis or keepdim, a second tensor, or none of them. */
static fl_status pick_form(fl_call_entry **entry, const flow_arg *args, int *nargs)
{
    const fl_call_form *form = (*entry)->form;
    const flow_arg *second = NULL;
    for (int i = 1; i < *nargs && !second; i++)
        if (!args[i].name || strcmp(args[i].name, "out") != 0) second = &args[i];
    if (second && second->kind == FLOW_NONE && *nargs == 2) second = NULL, *nargs = 1;
    const char *name = !second ? form->all : second->kind == FLOW_TENSOR ? form->pair : form->along;
    return fl_call_entry_find(entry, name, false);
}

/* So many of what is called `name` are given; of none NULL may be. */
static inline fl_status check_counted(const void *given, int count, const char *op, const char *name)
{
    if (FL_LIKELY(count > 0 && given)) return FL_OK;
    if (count < 0) return fl_fail(FL_ERR_VALUE, "%s: the number of %s is %d", op, name, count);
    return count ? fl_api_need(given, op, name) : FL_OK;
}

flow_status flow_call(flow_tensor **out, int count, const char *op, const flow_arg *args, int nargs)
{
    fl_call_entry *entry;
    FL_API_ENTER("flow_call");
    FL_API_TRY(fl_api_need(op, "flow_call", "op"));
    FL_API_TRY(check_counted(args, nargs, op, "args"));
    FL_API_TRY(check_counted(out, count, op, "out"));
    FL_API_TRY(fl_call_entry_find(&entry, op, false));
    if (FL_LIKELY(entry->plain && nargs == entry->signature->param_count && all_positional(args, nargs)))
        return fl_api_leave(call_plain(out, count, entry, args));
    if (entry->method) return fl_api_leave(entry->method->call(out, count, args, nargs));
    if (entry->form) FL_API_TRY(pick_form(&entry, args, &nargs));
    return fl_api_leave(call_any(out, count, entry, args, nargs));
}

/* ---- steps of programs ---- */

static fl_status dispatch_step(fl_tensor **out, const struct binding *binding, const fl_api_step *step)
{
    const fl_call_entry *entry = binding->entry;
    fl_draw_note *before = fl_draws_noted;
    fl_generator generator = *fl_generator_current();
    bool enabled = fl_grad_enabled;
    fl_draws_noted = step->note;
    if (step->no_grad) fl_grad_enabled = false;
    fl_status status = entry->in_place ? fl_dispatch_inplace(out, entry->op, binding->in, binding->nin, &binding->attrs)
                                       : fl_dispatch(out, entry->op, binding->in, binding->nin, &binding->attrs);
    fl_grad_enabled = enabled;
    fl_draws_noted = before;
    if (status == FL_OK && step->undraws) fl_dispatch_undraw(&generator);
    if (status == FL_OK && binding->attrs.requires_grad) status = fl_autograd_set_requires_grad(out[0], true);
    return status;
}

/* The seed and the counter of what is drawn again. */
static fl_status set_again(struct binding *binding, const fl_generator *again)
{
    int slot = binding->entry->op->seed_slot;
    if (!again) return FL_OK;
    if (!slot) return fl_fail(FL_ERR_VALUE, "%s: draws nothing again", binding->who);
    fl_attr_set(&binding->attrs, slot, (int64_t)again->seed);
    fl_attr_set(&binding->attrs, slot + 1, (int64_t)again->counter);
    return FL_OK;
}

fl_status fl_api_call_step(fl_tensor **out, int *count, const fl_api_step *step, const flow_arg *args, int nargs)
{
    fl_call_entry *entry;
    FL_TRY(fl_call_entry_find(&entry, step->op, true));
    const fl_signature *s = entry->signature;
    struct binding binding = {
        .entry = entry, .who = entry->name, .nin = s->tensor_count, .default_device = step->device};
    binding.in = binding.fixed;
    memcpy(&binding.attrs, entry->defaults, offsetof(fl_attrs, at) + sizeof(fl_attr) * (size_t)s->attr_count);
    fl_status status = read_args(&binding, args, nargs);
    if (status == FL_OK) status = set_again(&binding, step->again);
    if (status == FL_OK) status = dispatch_step(out, &binding, step);
    if (status == FL_OK) *count = entry->in_place ? 1 : entry->op->nout;
    if (binding.in != binding.fixed) free(binding.in);
    return status;
}

fl_status fl_api_operand_name(const char **out, bool *is_list, const char *op, int index)
{
    fl_call_entry *entry;
    FL_TRY(fl_call_entry_find(&entry, op, true));
    const fl_param *list = NULL;
    for (int i = 0, fixed = 0; i < entry->signature->param_count; i++) {
        const fl_param *p = &entry->signature->params[i];
        if (!p->is_tensor) continue;
        if (p->is_list) list = p;
        else if (fixed++ == index) list = p, i = FL_MAX_PARAMS;
    }
    if (!list) return fl_fail(FL_ERR_VALUE, "%s: operand %d does not fit %s", op, index + 1, entry->op->sig);
    *out = list->name;
    *is_list = list->is_list;
    return FL_OK;
}
