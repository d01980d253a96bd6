/*
** library.c -- see library.h. All ops of an object are registered, or none.
*/
#include "library.h"
#include "autograd/autograd.h"
#include "base/plugin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One that is registered. The list stays until the process ends. */
struct registered {
    const fl_ops_library *library;
    struct registered *next;
};
static struct registered *libraries;

static bool is_known(const fl_ops_library *library)
{
    for (const struct registered *r = libraries; r; r = r->next)
        if (r->library == library) return true;
    return false;
}

static fl_status check_abi(const fl_ops_library *library, const char *path)
{
    static const fl_ops_abi now = FL_OPS_ABI_NOW;
    if (memcmp(library->magic, FL_OPS_MAGIC, sizeof FL_OPS_MAGIC) != 0)
        return fl_fail(FL_ERR_VALUE, "'%s' has an fl_ops_library_entry that is none of FL_OPS_LIBRARY's", path);
    if (memcmp(&library->abi, &now, sizeof now) == 0) return FL_OK;
    const int32_t *has = &library->abi.number, *wanted = &now.number;
    char sizes[2][160] = {"", ""};
    for (size_t i = 0; i < sizeof now / sizeof *has; i++) {
        size_t a = strlen(sizes[0]), b = strlen(sizes[1]);
        snprintf(sizes[0] + a, sizeof sizes[0] - a, "%s%d", i ? "." : "", has[i]);
        snprintf(sizes[1] + b, sizeof sizes[1] - b, "%s%d", i ? "." : "", wanted[i]);
    }
    return fl_fail(FL_ERR_VALUE,
                   "'%s' was built for another flowlua: its ABI is %s, this one's %s; build it again with the headers "
                   "of this one",
                   path, sizes[0], sizes[1]);
}

static bool is_name(const char *name)
{
    size_t n = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_");
    return n > 0 && n <= 40 && !name[n] && (*name < '0' || *name > '9') && name[n - 1] != '_';
}

/* Fails for a descriptor that cannot be used. */
static fl_status check_op(const fl_op *op)
{
    fl_signature s;
    if (!op->name || !is_name(op->name))
        return fl_fail(FL_ERR_VALUE, "'%.40s' is no name of an op: lower-case letters, digits and _, no _ at the end",
                       op->name ? op->name : "");
    size_t n = strlen(op->name);
    if (!op->sig || strncmp(op->sig, op->name, n) != 0 || op->sig[n] != '(')
        return fl_fail(FL_ERR_VALUE, "%s: its signature must be \"%s(...)\", it is \"%s\"", op->name, op->name,
                       op->sig ? op->sig : "");
    FL_TRY(fl_signature_parse(&s, op->sig));
    if (!op->doc || !*op->doc) return fl_fail(FL_ERR_VALUE, "%s: it has no sentence of documentation", op->name);
    if (op->nout < 1 || op->nout > FL_MAX_OUT)
        return fl_fail(FL_ERR_VALUE, "%s: it has %d results, 1 to %d are possible", op->name, op->nout, FL_MAX_OUT);
    if (!op->body && !op->infer) return fl_fail(FL_ERR_VALUE, "%s: it has neither infer nor a body", op->name);
    if (!op->body && !op->cpu) return fl_fail(FL_ERR_VALUE, "%s: it has no CPU kernel", op->name);
    if (op->row || op->draw || op->flat || op->formula || op->compute || op->seed_slot
        || (op->flags & (FL_OP_FOLDS | FL_OP_CASTS | FL_OP_ZEROS)))
        return fl_fail(FL_ERR_VALUE, "%s: it sets what only built-in ops have", op->name);
    if (fl_op_find(op->name)) return fl_fail(FL_ERR_VALUE, "%s: there is an op of this name", op->name);
    return FL_OK;
}

static fl_status check_library(const fl_ops_library *library, const char *path)
{
    if (library->first == library->last) return fl_fail(FL_ERR_VALUE, "'%s' has no ops", path);
    for (const fl_op *const *op = library->first; op < library->last; op++) {
        FL_TRY(check_op(*op));
        for (const fl_op *const *other = library->first; other < op; other++)
            if (strcmp((*other)->name, (*op)->name) == 0)
                return fl_fail(FL_ERR_VALUE, "%s: it is in '%s' twice", (*op)->name, path);
    }
    return FL_OK;
}

fl_status fl_ops_open(const fl_ops_library **out, bool *known, const char *path)
{
    void *handle, *entry;
    char here[FL_PLUGIN_PATH];
    if (!strchr(path, '/')) { /* the loader would look for it elsewhere */
        if (snprintf(here, sizeof here, "./%s", path) >= (int)sizeof here)
            return fl_fail(FL_ERR_VALUE, "the path has more than %d characters", (int)sizeof here - 3);
        path = here;
    }
    FL_TRY(fl_plugin_open_file(&handle, &entry, path, "fl_ops_library_entry"));
    const fl_ops_library *library = entry;
    *known = is_known(library);
    if (!*known) {
        FL_TRY(check_abi(library, path));
        FL_TRY(check_library(library, path));
    }
    *out = library;
    return FL_OK;
}

fl_status fl_ops_register(const fl_ops_library *library)
{
    struct registered *entry = malloc(sizeof *entry);
    if (!entry) return fl_fail(FL_ERR_MEMORY, "out of memory for a library of ops");
    fl_status status = FL_OK;
    int count = 0;
    for (const fl_op *const *op = library->first; op < library->last && status == FL_OK; op++)
        if ((status = fl_op_register(*op)) == FL_OK) count++;
    for (const fl_op *const *op = library->first; op < library->last && status == FL_OK; op++)
        status = fl_vjp_check(*op); /* may call other ops of the library */
    if (status != FL_OK) {
        fl_op_forget(count);
        free(entry);
        return status;
    }
    *entry = (struct registered){library, libraries};
    libraries = entry;
    return FL_OK;
}
