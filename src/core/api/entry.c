/*
** entry.c -- see entry.h.
*/
#include "api.h"
#include "entry.h"

#include <stdlib.h>

static const fl_call_form forms[] = {
    {"max", "max_all", "max_axis", "maximum", "max(x), max(x, axis: axis, keepdim: bool = false) or max(x, y)"},
    {"min", "min_all", "min_axis", "minimum", "min(x), min(x, axis: axis, keepdim: bool = false) or min(x, y)"},
};

static const fl_call_form *find_form(const char *name)
{
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        if (strcmp(forms[i].name, name) == 0) return &forms[i];
    return NULL;
}

/* Functions of scripts that are no ops, and the functions that hosts call in their place. */
static const struct {
    const char *name, *instead;
} elsewhere[] = {
    {"to_global", "flow_to_global or flow_from_local"},
    {"to_local", "flow_to_local"},
    {"to_device", "\"to\""},
    {"from_local", "flow_from_local"},
    {"tensor", "flow_copy_in"},
    {"backward", "flow_backward"},
    {"grad", "flow_gradients"},
    {"requires_grad_", "flow_require_grad"},
    {"repeat", "\"rep\""},
    {"from_dlpack", "flow_from_dlpack"},
    {"manual_seed", "flow_seed"},
    {"item", "flow_item"},
    {"save", "flow_save"},
    {"load", "flow_file_read"},
};

/* At most half full; its size is a power of two. */
static fl_call_entry **table;
static size_t table_size, entries;

/* Hidden ops that are not marked trust callers. */
static bool may_call(const fl_op *op, bool of_program)
{
    return !(op->flags & FL_OP_HIDDEN) || op->flags & (FL_OP_BY_NAME | (of_program ? FL_OP_BY_STEP : 0));
}

/* The op of a name, also of "add_". */
static const fl_op *find_op(bool *in_place, const char *name, bool of_program)
{
    char stem[64];
    size_t n = strlen(name);
    const fl_op *op = fl_op_find(name);
    *in_place = false;
    if (op) return may_call(op, of_program) ? op : NULL;
    if (n < 2 || n > sizeof stem || name[n - 1] != '_') return NULL;
    memcpy(stem, name, n - 1);
    stem[n - 1] = '\0';
    op = fl_op_find(stem);
    *in_place = true;
    return op && fl_op_in_place(op) && may_call(op, of_program) ? op : NULL;
}

static fl_status unknown_op(const char *name)
{
    char shown[FL_SHOWN_TEXT];
    const char *best = NULL;
    int least = 99;
    for (size_t i = 0; i < sizeof elsewhere / sizeof *elsewhere; i++)
        if (strcmp(elsewhere[i].name, name) == 0)
            return fl_fail(FL_ERR_VALUE, "flow_call: '%s' is no op; call %s", name, elsewhere[i].instead);
    FL_FOR_EACH_OP(op)
    {
        int distance = fl_suggest_distance(name, (*op)->name);
        if (distance < 0 || distance >= least || !may_call(*op, false)) continue;
        least = distance;
        best = (*op)->name;
    }
    return fl_fail(FL_ERR_VALUE, "flow_call: there is no op '%s'%s%s%s", fl_text_name(shown, name),
                   best ? "; did you mean '" : "", best ? best : "", best ? "'?" : "");
}

static bool is_plain(const fl_signature *signature)
{
    bool plain = true;
    for (int i = 0; i < signature->param_count; i++)
        plain = plain && signature->params[i].is_tensor && !signature->params[i].is_list;
    return plain;
}

static fl_status new_method(fl_call_entry **out, const fl_call_method *method)
{
    fl_call_entry *e = calloc(1, sizeof *e);
    if (e) e->name = strdup(method->name);
    if (!e || !e->name) {
        free(e);
        return fl_fail(FL_ERR_MEMORY, "%s: out of memory", method->name);
    }
    e->method = method;
    *out = e;
    return FL_OK;
}

static fl_status new_entry(fl_call_entry **out, const char *name, bool of_program)
{
    bool in_place;
    const fl_call_method *method = of_program ? NULL : fl_call_method_find(name);
    if (method) return new_method(out, method);
    const fl_call_form *form = of_program ? NULL : find_form(name);
    const fl_op *op = find_op(&in_place, form ? form->along : name, of_program);
    if (!op) return unknown_op(name);
    fl_call_entry *e = calloc(1, sizeof *e);
    const fl_signature *s = fl_op_signature(op);
    fl_attrs all;
    size_t bytes = offsetof(fl_attrs, at) + sizeof(fl_attr) * (size_t)s->attr_count;
    if (e) e->defaults = malloc(bytes);
    if (e) e->name = strdup(name);
    if (!e || !e->defaults || !e->name) {
        if (e) free(e->defaults), free(e->name);
        free(e);
        return fl_fail(FL_ERR_MEMORY, "%s: out of memory", op->name);
    }
    fl_attrs_init(&all, op);
    memcpy(e->defaults, &all, bytes);
    e->op = op;
    e->signature = s;
    e->in_place = in_place;
    e->plain = is_plain(s);
    e->of_program = of_program;
    e->form = form;
    *out = e;
    return FL_OK;
}

/* The slot of a name's entry: the entry, or the empty slot where it belongs. */
static fl_call_entry **place_of(const char *name, bool of_program)
{
    uint32_t hash = 2166136261u;
    for (const char *c = name; *c; c++) hash = (hash ^ (unsigned char)*c) * 16777619u;
    size_t at = (hash ^ hash >> 15) & (table_size - 1);
    while (table[at] && (table[at]->of_program != of_program || strcmp(table[at]->name, name) != 0))
        at = (at + 1) & (table_size - 1);
    return &table[at];
}

static fl_status grow_table(void)
{
    size_t old_size = table_size, size = old_size ? 2 * old_size : 1024;
    fl_call_entry **old = table, **grown = calloc(size, sizeof *grown);
    if (!grown) return fl_fail(FL_ERR_MEMORY, "flow_call: out of memory");
    table = grown;
    table_size = size;
    for (size_t i = 0; i < old_size; i++)
        if (old[i]) *place_of(old[i]->name, old[i]->of_program) = old[i];
    free(old);
    return FL_OK;
}

fl_status fl_call_entry_find(fl_call_entry **out, const char *name, bool of_program)
{
    if (FL_UNLIKELY(2 * entries >= table_size)) FL_TRY(grow_table());
    fl_call_entry **place = place_of(name, of_program);
    if (!*place) {
        FL_TRY(new_entry(place, name, of_program));
        entries++;
    }
    *out = *place;
    return FL_OK;
}

const char *flow_signature(const char *op)
{
    bool in_place;
    const fl_call_form *form = op ? find_form(op) : NULL;
    const fl_call_method *method = op ? fl_call_method_find(op) : NULL;
    if (form || method) return form ? form->sig : method->sig;
    const fl_op *found = op ? find_op(&in_place, op, false) : NULL;
    return found ? found->sig : NULL;
}

/* ---- ops in shared objects ---- */

static fl_status load_ops(const char *path)
{
    const fl_ops_library *library;
    bool known;
    FL_TRY(fl_ops_open(&library, &known, path));
    if (known) return FL_OK;
    for (const fl_op *const *op = library->first; op < library->last; op++)
        if (flow_signature((*op)->name)) return fl_fail(FL_ERR_VALUE, "%s: there is an op of this name", (*op)->name);
    return fl_ops_register(library);
}

flow_status flow_load_ops(const char *path)
{
    FL_API_ENTER("flow_load_ops");
    FL_API_TRY(fl_api_need(path, "flow_load_ops", "path"));
    fl_status status = *path ? load_ops(path) : fl_fail(FL_ERR_VALUE, "the path is empty");
    return status == FL_OK ? FLOW_OK : (flow_status)fl_fail_prefix(status, "flow_load_ops: ");
}
