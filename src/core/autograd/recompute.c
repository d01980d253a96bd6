/*
** recompute.c -- see recompute.h. Nodes of a first run are entries of its list, in the order of recording.
**
** A node that lacks values is filled from one list: that of the function which made it (`home`), or, once this one has
** run again, that of an inner function (`via`). Nodes are compared by their place in the list of the outermost
** function; a node of a second run has the place of the one that it repeats.
**
** Garbage collection differs from rank to rank, and with it the set of nodes that are still alive. So a
** second run ends after the last node that lacked values when it was recorded, alive or not.
*/
#include "dispatch/autocast.h"
#include "recompute.h"
#include "tape.h"
#include "value/random.h"

#include <stdio.h>
#include <stdlib.h>

enum { NAME_TEXT = 64 };

struct input {
    struct input *next;
    fl_tensor *tensor; /* owned */
    uint32_t version;
    char name[NAME_TEXT];
};

struct entry {
    fl_node *node; /* borrowed; NULL: it is gone, or none of its values will be needed */
    int64_t place; /* in the outermost function */
    bool results;  /* some of its results were left out */
};

struct fl_recompute {
    int refs;
    fl_recompute_calls calls;
    void *context;
    fl_recompute *outermost; /* this one or, owned, the one that runs again around it */
    struct entry *entries;
    int64_t count, capacity;
    int64_t needed; /* entries up to the last that lacked values */
    uint64_t first; /* nodes from this number on are of the function */
    struct input *inputs;
    fl_draws draws;
    bool sync;          /* fl_grad_sync around the first run */
    uintptr_t autocast; /* fl_autocast_now there */
    bool running_again;
};

/* A run. */
struct run {
    fl_recompute *of;
    bool again;
    bool complete;      /* again: all needed values are there */
    int64_t next;       /* again: the next entry */
    struct run *around; /* of a first run: the second run that it is part of, or NULL */
    struct run *outer;  /* the run that was current before */
};

static struct run *now;
bool fl_recompute_active;

static fl_status out_of_memory(void) { return fl_fail(FL_ERR_MEMORY, "checkpoint: out of memory for the tape"); }

/* ---- lists ---- */

void fl_recompute_unref(fl_recompute *recompute)
{
    if (!recompute || --recompute->refs > 0) return;
    for (struct input *i = recompute->inputs, *next; i; i = next) {
        next = i->next;
        fl_tensor_unref(i->tensor);
        free(i);
    }
    recompute->calls.release(recompute->context);
    if (recompute->outermost != recompute) fl_recompute_unref(recompute->outermost);
    free(recompute->draws.list);
    free(recompute->entries);
    free(recompute);
}

/* An entry for a recorded node; node: the one that it is to fill, or NULL. */
static fl_status add_entry(fl_recompute *recompute, const fl_node *recorded, fl_node *node, int64_t place)
{
    bool results = recorded->region;
    for (int i = 0; i < recorded->nout; i++) results |= recorded->out[i].omitted;
    if (recompute->count == recompute->capacity) {
        int64_t more = recompute->capacity ? 2 * recompute->capacity : 16;
        struct entry *grown = realloc(recompute->entries, sizeof *grown * (size_t)more);
        if (!grown) return out_of_memory();
        recompute->entries = grown;
        recompute->capacity = more;
    }
    recompute->entries[recompute->count++] = (struct entry){node, place, results};
    return FL_OK;
}

static void leave(fl_recompute **of, int64_t entry)
{
    fl_recompute *recompute = *of;
    if (!recompute) return;
    *of = NULL;
    recompute->entries[entry].node = NULL;
    fl_recompute_unref(recompute);
}

void fl_recompute_leave(fl_node *node)
{
    leave(&node->member->via, node->member->via_entry);
    leave(&node->member->home, node->member->place);
}

static bool lacks_values(const fl_node *node)
{
    for (int i = 0; i < node->nin; i++)
        if (node->in[i].omitted && node->in[i].value.kind == FL_NONE) return true;
    for (int i = 0; i < node->nout; i++)
        if (node->out[i].omitted && node->out[i].value.kind == FL_NONE) return true;
    return false;
}

void fl_recompute_drop(fl_node *node)
{
    for (int i = 0; i < node->nin; i++)
        if (node->in[i].omitted) fl_tape_release_saved(&node->in[i]);
    for (int i = 0; i < node->nout; i++)
        if (node->out[i].omitted) fl_tape_release_saved(&node->out[i]);
    leave(&node->member->via, node->member->via_entry);
}

/* ---- recording ---- */

/* Values that others made are kept: they are there anyway, and a write to them in place is found. */
bool fl_recompute_omits(const tape_edge *edge, const fl_tensor *tensor)
{
    if (!now || now->again) return false;
    if (!tensor) return true; /* a result */
    if (edge->leaf) return false;
    if (edge->node) return edge->node->seq >= now->of->first;
    for (const struct input *i = now->of->inputs; i; i = i->next)
        if (i->tensor->storage == tensor->storage) return false;
    return true;
}

static bool same_node(const fl_node *a, const fl_node *b, const fl_recompute *of)
{
    if (a == b) return true;
    if (!a || !b || a->op != b->op) return false;
    if (a->member && b->member)
        return a->member->outermost == b->member->outermost && a->member->place == b->member->place;
    return !a->member && a->seq >= of->first; /* of a view that caught up with its base */
}

/* Fails if operand i of a second run differs from that of the first. */
static fl_status compare_operand(const fl_node *node, const fl_node *again, int i, const fl_recompute *of)
{
    const tape_edge *a = &node->edges[i], *b = &again->edges[i];
    const tape_saved *x = &node->in[i], *y = &again->in[i];
    char is[FL_META_TEXT], was[FL_META_TEXT];
    if (a->meta && b->meta && a->meta != b->meta)
        return fl_fail(FL_ERR_STATE, "input %d of %s is %s, and was %s the first time", i, node->op->name,
                       fl_meta_placed_text(is, b->meta), fl_meta_placed_text(was, a->meta));
    bool same = !a->meta == !b->meta && !a->leaf == !b->leaf && same_node(a->node, b->node, of);
    if (!a->meta) same &= x->value.kind == y->value.kind;
    if (!a->meta && x->value.kind != FL_NONE) same &= x->value.integer == y->value.integer;
    if (!same)
        return fl_fail(FL_ERR_STATE,
                       "input %d of %s is not what it was the first time; what changes in between must be an argument",
                       i, node->op->name);
    bool outside = a->leaf ? a->leaf == b->leaf : a->node && a->node->seq < of->first;
    if (!outside || x->version == y->version) return FL_OK;
    return fl_fail(FL_ERR_STATE,
                   "input %d of %s (%s) was changed in place after it was used; change a clone() of it instead", i,
                   node->op->name, fl_meta_text(was, a->meta));
}

static fl_status compare(const fl_node *node, const fl_node *again, const fl_recompute *of)
{
    char is[FL_META_TEXT], was[FL_META_TEXT];
    if (node->op != again->op || node->nin != again->nin)
        return fl_fail(FL_ERR_STATE,
                       "it computes %s, and computed %s the first time; it must compute the same both times",
                       again->op->name, node->op->name);
    for (int i = 0; i < node->nin; i++) FL_TRY(compare_operand(node, again, i, of));
    for (int i = 0; i < again->nout; i++) /* none, where its operands suffice */
        if (node->out_meta[i] != again->out_meta[i])
            return fl_fail(FL_ERR_STATE, "%s gives %s, and gave %s the first time", node->op->name,
                           fl_meta_placed_text(is, again->out_meta[i]), fl_meta_placed_text(was, node->out_meta[i]));
    return FL_OK;
}

/* The node gets what its twin has saved, connected to its own graph. */
static fl_status take_values(fl_node *node, const fl_node *again)
{
    for (int i = 0; i < node->nin; i++) {
        tape_saved *to = &node->in[i];
        const tape_saved *from = &again->in[i];
        if (!to->omitted || to->value.kind != FL_NONE || from->value.kind != FL_TENSOR) continue;
        fl_tensor *t;
        FL_TRY(fl_tensor_detach(&t, from->value.tensor));
        to->value = fl_of(t);
        to->version = from->version;
        if (node->edges[i].node) FL_TRY(fl_tape_attach(t, node->edges[i].node, node->edges[i].slot));
    }
    for (int i = 0; i < again->nout; i++) {
        tape_saved *to = &node->out[i];
        const tape_saved *from = &again->out[i];
        if (!to->omitted || to->value.kind != FL_NONE || from->value.kind != FL_TENSOR) continue;
        to->value = fl_of(fl_tensor_ref(from->value.tensor));
        to->version = from->version;
    }
    return FL_OK;
}

static fl_status stop(void) { return fl_fail(FL_ERR_STATE, "checkpoint: all values are there"); }

/* A node of a second run; inner: the inner function that recorded it, or NULL. */
static fl_status note_again(struct run *run, fl_node *again, fl_recompute *inner)
{
    fl_recompute *of = run->of;
    if (run->complete) return stop();
    if (run->next >= of->count) return FL_OK;
    struct entry *entry = &of->entries[run->next++];
    fl_node *n = entry->node;
    again->member->outermost = of->outermost;
    again->member->place = entry->place;
    if (inner) FL_TRY(add_entry(inner, again, NULL, entry->place));
    if (n && n->run) { /* backward comes to it */
        FL_TRY(compare(n, again, of));
        FL_TRY(take_values(n, again));
        if (inner && lacks_values(n)) {
            leave(&n->member->via, n->member->via_entry);
            n->member->via = inner;
            n->member->via_entry = inner->count - 1;
            inner->refs++;
            inner->entries[inner->count - 1].node = n;
        }
    }
    if (run->next < of->needed) return FL_OK;
    run->complete = true;
    return stop();
}

/* A node of a first run. */
static fl_status note_first(struct run *run, fl_node *node)
{
    fl_recompute *of = run->of;
    bool lacks = lacks_values(node);
    fl_status status = FL_OK;
    if (run->around) {
        int64_t count = of->count;
        status = note_again(run->around, node, of);
        if (of->count == count) return status;
    } else {
        FL_TRY(add_entry(of, node, node, of->count));
        *node->member = (tape_member){.outermost = of, .home = of, .place = of->count - 1};
        of->refs++;
    }
    if (lacks) of->needed = of->count;
    return status;
}

fl_status fl_recompute_note(fl_node *node)
{
    if (!now || node->member) return FL_OK;
    node->member = calloc(1, sizeof *node->member);
    if (!node->member) return out_of_memory();
    return now->again ? note_again(now, node, NULL) : note_first(now, node);
}

bool fl_recompute_needs_operands(const fl_op *op)
{
    if (!now || !now->again || now->complete || now->next + 1 != now->of->needed) return false;
    const struct entry *entry = &now->of->entries[now->next];
    return !entry->results && (!entry->node || entry->node->op == op);
}

/* ---- runs ---- */

static void run_begin(struct run *run)
{
    run->outer = now;
    now = run;
    fl_recompute_active = true;
}

static void run_end(struct run *run)
{
    now = run->outer;
    fl_recompute_active = now != NULL;
}

struct run *fl_recompute_pause(void)
{
    struct run *paused = now;
    now = NULL;
    return paused;
}

void fl_recompute_resume(struct run *paused) { now = paused; }

bool fl_recompute_wanted(void) { return fl_grad_enabled && (!now || now->again); }

bool fl_recompute_is_running(void) { return now != NULL; }

bool fl_recompute_complete(void)
{
    for (const struct run *r = now; r; r = r->around)
        if (r->complete) return true;
    return false;
}

fl_status fl_recompute_begin(fl_recompute **out, fl_recompute_calls calls, void *context)
{
    fl_recompute *r = calloc(1, sizeof *r);
    struct run *run = calloc(1, sizeof *run);
    if (!r || !run) {
        free(r);
        free(run);
        calls.release(context);
        return out_of_memory();
    }
    r->refs = 1;
    r->calls = calls;
    r->context = context;
    r->outermost = now ? now->of->outermost : r;
    if (r->outermost != r) r->outermost->refs++;
    r->first = fl_tape_next_seq();
    r->sync = fl_grad_sync;
    r->autocast = fl_autocast_now;
    run->of = r;
    run->around = now;
    run_begin(run);
    fl_draws_begin(&r->draws, false);
    *out = r;
    return FL_OK;
}

fl_status fl_recompute_input(fl_recompute *recompute, fl_tensor *tensor, const char *name)
{
    struct input *i = calloc(1, sizeof *i);
    if (!i) return out_of_memory();
    i->tensor = fl_tensor_ref(tensor);
    i->version = tensor->storage->var.version;
    snprintf(i->name, sizeof i->name, "%s", name);
    i->next = recompute->inputs;
    recompute->inputs = i;
    return FL_OK;
}

/* An input that was written since the function was called, or NULL. */
static const struct input *written_input(const fl_recompute *recompute)
{
    for (const struct input *i = recompute->inputs; i; i = i->next)
        if (i->tensor->storage->var.version != i->version) return i;
    return NULL;
}

fl_status fl_recompute_end(fl_recompute *recompute, bool done)
{
    struct run *run = now;
    run_end(run);
    free(run);
    fl_draws_end(&recompute->draws);
    if (!done) return FL_OK;
    if (recompute->draws.failed) return out_of_memory();
    const struct input *written = written_input(recompute);
    if (!written || recompute->needed == 0) return FL_OK;
    return fl_fail(FL_ERR_STATE,
                   "checkpoint: the function changed %s in place, and would do so again when it is computed again; "
                   "let it work on a clone()",
                   written->name);
}

/* Runs the function again: fills the nodes that a backward comes to. */
static fl_status run_again(fl_recompute *recompute)
{
    char text[FL_META_TEXT];
    const struct input *written = written_input(recompute);
    if (written)
        return fl_fail(FL_ERR_STATE,
                       "backward: %s of flow.checkpoint (%s), needed to compute its function again, was changed in "
                       "place after it was used; change a clone() of it instead",
                       written->name, fl_meta_text(text, written->tensor->meta));
    if (recompute->running_again)
        return fl_fail(FL_ERR_STATE,
                       "backward: called from inside a function that flow.checkpoint computes again, over "
                       "its own graph");
    struct run run = {.of = recompute, .again = true};
    fl_draws draws = recompute->draws;
    bool enabled = fl_grad_enabled, sync = fl_grad_sync, watched = fl_dispatch_watched & FL_WATCH_AGAIN;
    uintptr_t autocast = fl_autocast_now;
    recompute->running_again = true;
    recompute->refs++;
    fl_grad_enabled = true;
    fl_grad_sync = recompute->sync;
    fl_dispatch_watch(FL_WATCH_AGAIN, true);
    fl_autocast_resume(recompute->autocast);
    run_begin(&run);
    fl_draws_begin(&draws, true);
    fl_status status = recompute->calls.run(recompute->context);
    fl_draws_end(&draws);
    run_end(&run);
    fl_autocast_resume(autocast);
    fl_dispatch_watch(FL_WATCH_AGAIN, watched);
    fl_grad_sync = sync;
    fl_grad_enabled = enabled;
    recompute->running_again = false;
    if (run.complete) status = FL_OK; /* it was stopped */
    else if (status == FL_OK)
        status = fl_fail(FL_ERR_STATE,
                         "checkpoint: the function computes less when it runs again (%lld ops with a gradient, %lld "
                         "the first time); it must compute the same both times",
                         (long long)run.next, (long long)recompute->count);
    if (status == FL_OK && draws.failed)
        status = fl_fail(FL_ERR_STATE, "checkpoint: the function draws more random numbers when it runs again");
    fl_recompute_unref(recompute);
    return status;
}

fl_status fl_recompute_fill(fl_node *node)
{
    const fl_recompute *last = NULL;
    while (lacks_values(node)) {
        fl_recompute *from = node->member->via ? node->member->via : node->member->home;
        if (!from || from == last)
            return fl_fail(FL_ERR_STATE,
                           "backward: %s lies in a flow.checkpoint inside a function that runs again; a backward in "
                           "that function cannot go through it",
                           node->op->name);
        last = from;
        FL_TRY(run_again(from));
    }
    return FL_OK;
}
