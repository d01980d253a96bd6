/*
** record_end.c -- a recording begins and ends: gradients of leaves as they were and as they are left, results, and what
** else is held.
*/
#include "dispatch/autocast.h"
#include "recording.h"

#include <stdlib.h>

/* ---- gradients of leaves ---- */

static int leaf_find(const fl_tensor *leaf)
{
    for (int i = 0; i < fl_recording_now.program->leaf_count; i++)
        if (fl_recording_now.program->leaves[i].leaf == leaf) return i;
    return -1;
}

/* The first time that a leaf's gradient is looked at. One that steps make is new in every run and has no gradient from
** before; its new value is one like any other. */
static fl_status leaf_add(fl_tensor *leaf, fl_grad_access access)
{
    fl_program *p = fl_recording_now.program;
    int room = p->leaf_room, made = fl_recording_find(leaf->storage);
    if (made >= 0 && !fl_slot_is_outside(&p->slots[made]) && p->slots[made].written) return FL_OK;
    FL_TRY(fl_program_reserve((void **)&p->leaves, sizeof *p->leaves, &p->leaf_room, p->leaf_count));
    if (p->leaf_room != room) {
        fl_tensor **grown = realloc(fl_recording_now.gradients, sizeof *grown * (size_t)p->leaf_room);
        if (!grown) return fl_program_out_of_memory();
        fl_recording_now.gradients = grown;
    }
    fl_program_leaf *l = &p->leaves[p->leaf_count];
    *l = (fl_program_leaf){.leaf = fl_tensor_ref(leaf), .depends = access == FL_GRAD_READ, .slot = -1};
    fl_recording_now.gradients[p->leaf_count++] = NULL;
    fl_tensor *before = fl_autograd_grad_of(leaf);
    if (!before) return FL_OK;
    l->before = fl_meta_ref(before->meta);
    l->offset_before = before->offset;
    fl_recording_now.gradients[p->leaf_count - 1] = fl_tensor_ref(before);
    l->slot = fl_recording_find(before->storage);
    return l->slot >= 0 ? FL_OK : fl_recording_add(&l->slot, FL_SLOT_GRADIENT, before, p->leaf_count - 1);
}

void fl_recording_gradient(const fl_tensor *tensor, fl_grad_access access)
{
    if (fl_recording_now.closing || fl_recording_now.failed != FL_OK || leaf_find(tensor) >= 0) return;
    fl_recording_now.closing = true; /* leaf_add looks at the gradient itself */
    fl_recording_fail(leaf_add((fl_tensor *)tensor, access));
    fl_recording_now.closing = false;
}

/* Records the leaves' gradients at the end. A leaf that the function itself made is gone or is an error of its own. */
static fl_status close_leaves(void)
{
    fl_program *p = fl_recording_now.program;
    for (int i = 0; i < p->leaf_count; i++) {
        fl_program_leaf *l = &p->leaves[i];
        fl_tensor *after = fl_autograd_grad_of(l->leaf);
        l->after.slot = -1;
        l->changes = !l->depends || after != fl_recording_now.gradients[i]; /* another run may begin with another one */
        if (l->changes && after) FL_TRY(fl_recording_operand(&l->after, after));
        if (l->slot >= 0 && p->slots[l->slot].first < 0 && l->after.slot != l->slot) l->slot = -1;
    }
    return FL_OK;
}

static void close_flags(void)
{
    fl_program *p = fl_recording_now.program;
    for (int i = 0; i < p->flag_count; i++) p->flags[i].requires_grad = p->flags[i].leaf->requires_grad;
    p->flag_changes = fl_autograd_flag_changes;
}

/* ---- begin and end ---- */

bool fl_program_is_recording(void) { return fl_recording_now.program != NULL; }

bool fl_program_has_failed(void) { return fl_recording_now.failed != FL_OK; }

static void stop_listening(void)
{
    fl_listen(NULL);
    fl_autograd_grad_watch = NULL;
}

static void recording_drop(void)
{
    for (size_t i = 0; fl_recording_now.known && i < (size_t)1 << fl_recording_now.known_bits; i++)
        fl_storage_unref(fl_recording_now.known[i].storage);
    for (int i = 0; fl_recording_now.gradients && i < fl_recording_now.program->leaf_count; i++)
        fl_tensor_unref(fl_recording_now.gradients[i]);
    free(fl_recording_now.known);
    free(fl_recording_now.gradients);
    memset(&fl_recording_now, 0, sizeof fl_recording_now);
}

void fl_program_abort(void)
{
    if (!fl_recording_now.program) return;
    stop_listening();
    fl_program *program = fl_recording_now.program;
    recording_drop();
    fl_program_free(program);
}

fl_status fl_program_begin(fl_tensor *const *args, int count, bool strict)
{
    int slot;
    if (fl_recording_now.program) return fl_fail(FL_ERR_STATE, "capture: a function is captured already");
    fl_autocast_forget();
    fl_recording_now.program = calloc(1, sizeof *fl_recording_now.program);
    fl_status status = fl_recording_now.program ? fl_recording_rebuild(8) : fl_program_out_of_memory();
    for (int i = 0; i < count && status == FL_OK; i++) status = fl_recording_add(&slot, FL_SLOT_INPUT, args[i], i);
    if (status != FL_OK) {
        fl_program_abort();
        return status;
    }
    fl_recording_now.program->input_count = count;
    fl_recording_now.strict = fl_recording_now.program->strict = strict;
    fl_autograd_grad_watch = fl_recording_gradient;
    fl_listen(&fl_recording_listener);
    return FL_OK;
}

int64_t fl_program_length(void) { return fl_recording_now.program ? fl_recording_now.program->step_count : 0; }

fl_status fl_program_mark_live(int id, int64_t since)
{
    if (fl_recording_now.program->step_count == since) {
        FL_TRY(fl_program_mark_host(id));
        fl_recording_now.program->steps[since].absent = true;
        return FL_OK;
    }
    if (fl_recording_now.program->step_count != since + 1)
        return fl_fail(FL_ERR_STATE, "capture: an op whose numbers change must be one kernel");
    fl_recording_now.program->steps[since].live = id;
    return FL_OK;
}

fl_status fl_program_mark_host(int id)
{
    fl_step *step;
    FL_TRY(fl_recording_step(&step, FL_STEP_HOST, NULL, 0, 0));
    step->live = id;
    return FL_OK;
}

static fl_status take_results(fl_tensor *const *results, int count)
{
    fl_program *p = fl_recording_now.program;
    p->results = fl_program_take(p, sizeof *p->results * (size_t)(count + 1));
    if (!p->results) return fl_program_out_of_memory();
    for (; p->result_count < count; p->result_count++)
        FL_TRY(fl_recording_operand(&p->results[p->result_count], results[p->result_count]));
    return FL_OK;
}

/* Counts the tensors held by the caller and the leaves that refer to the storage. */
static int holders_of(const fl_storage *storage, fl_tensor *const *results, int count)
{
    int holders = 0;
    for (int i = 0; i < count; i++) {
        bool again = false;
        for (int k = 0; k < i; k++) again |= results[k] == results[i];
        holders += !again && results[i]->storage == storage;
    }
    for (int i = 0; i < fl_recording_now.program->leaf_count; i++) {
        const fl_tensor *g = fl_autograd_grad_of(fl_recording_now.program->leaves[i].leaf);
        holders += g && g->storage == storage;
    }
    return holders;
}

/* A run cannot renew what the function has put elsewhere. */
static fl_status check_nothing_else_is_held(fl_tensor *const *results, int count)
{
    for (size_t i = 0; i < (size_t)1 << fl_recording_now.known_bits; i++) {
        const fl_recorded_storage *k = &fl_recording_now.known[i];
        if (!k->storage) continue;
        const fl_slot *s = &fl_recording_now.program->slots[k->slot];
        if (fl_slot_is_outside(s) || s->first < 0) continue;
        if (k->storage->refs - 1 <= holders_of(k->storage, results, count)) continue;
        const fl_step *made = &fl_recording_now.program->steps[s->first];
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
    bool closing = fl_recording_now.closing;
    fl_recording_now.closing = true;
    fl_status status = fl_recording_now.failed == FL_OK ? check_nothing_else_is_held(results, count) : FL_OK;
    fl_recording_now.closing = closing;
    return status != FL_OK;
}

static fl_status recording_end(fl_program **out, fl_tensor *const *results, int count)
{
    FL_TRY(take_results(results, count));
    FL_TRY(close_leaves());
    close_flags();
    FL_TRY(fl_program_seal(fl_recording_now.program));
    *out = fl_recording_now.program;
    recording_drop();
    return FL_OK;
}

fl_status fl_program_end(fl_program **out, bool *held, fl_tensor *const *results, int count)
{
    fl_autocast_forget();
    stop_listening();
    fl_recording_now.closing = true;
    fl_status status = fl_recording_now.failed == FL_OK
        ? FL_OK
        : fl_fail(fl_recording_now.failed, "%s", fl_recording_now.message);
    if (status == FL_OK) *held = (status = check_nothing_else_is_held(results, count)) != FL_OK;
    if (status == FL_OK) status = recording_end(out, results, count);
    if (status != FL_OK) fl_program_abort();
    return status;
}

fl_status fl_program_end_piece(fl_program **out, fl_tensor *const *results, int count)
{
    stop_listening();
    fl_status status = fl_recording_now.failed == FL_OK
        ? FL_OK
        : fl_fail(fl_recording_now.failed, "%s", fl_recording_now.message);
    if (status == FL_OK) status = recording_end(out, results, count);
    if (status != FL_OK) fl_program_abort();
    return status;
}

bool fl_program_made(const fl_storage *storage)
{
    const int slot = fl_recording_find(storage);
    return slot >= 0 && !fl_slot_is_outside(&fl_recording_now.program->slots[slot]);
}
