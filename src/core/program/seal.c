/*
** seal.c -- a program that was recorded is made ready to run: which results share the block and where they lie in it,
** when those outside of it are made and dropped, and which pointers a run sets.
*/
#include "graphs.h"
#include "memory/device.h"
#include "passes.h"
#include "program_internal.h"

#include <stdio.h>
#include <stdlib.h>

enum { ALIGNMENT = 64 };

/* ---- the passes that are wanted ---- */

static const char *const pass_names[FL_PASSES] = {"activation", "collectives", "common", "dead",     "fusion",
                                                  "graphs",     "parts",       "place",  "recompute"};

/* Bits of the passes that the text "-dead,-fusion" leaves out. */
static unsigned passes_left_out(const char *text)
{
    unsigned out = 0;
    for (const char *at = text; at && *at;) {
        size_t length = strcspn(at, ",");
        int i = 0;
        while (
            i < FL_PASSES
            && (*at != '-' || strlen(pass_names[i]) != length - 1 || strncmp(at + 1, pass_names[i], length - 1) != 0))
            i++;
        if (i < FL_PASSES) out |= 1u << i;
        else
            fprintf(stderr,
                    "flowlua: FLOW_PASSES: %.*s is none of -activation, -collectives, -common, -dead, -fusion, "
                    "-graphs, -parts, -place, "
                    "-recompute\n",
                    (int)length, at);
        at += length + (at[length] == ',');
    }
    return out;
}

bool fl_pass_is_on(fl_pass pass)
{
    static int out = -1;
    if (out < 0) out = (int)passes_left_out(getenv("FLOW_PASSES"));
    return !(out >> pass & 1);
}

static size_t aligned(size_t bytes) { return (bytes + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1); }

/* The first and the last step that uses each slot. */
static void find_lives(fl_program *program)
{
    for (int i = 0; i < program->slot_count; i++) program->slots[i].first = program->slots[i].last = -1;
    for (int n = 0; n < program->step_count; n++)
        for (int i = 0; i < program->steps[n].nin + program->steps[n].nout; i++) {
            if (program->steps[n].operands[i].slot < 0) continue;
            fl_slot *s = &program->slots[program->steps[n].operands[i].slot];
            if (s->first < 0) s->first = n;
            s->last = n;
        }
}

/* ---- slots outside of the block ---- */

static void keep_until_end(fl_program *program, const fl_program_operand *operand)
{
    if (operand->slot < 0) return;
    fl_slot *s = &program->slots[operand->slot];
    s->moved = true;
    if (s->first < 0) {
        s->unmade = !fl_slot_is_outside(s);
        s->first = 0;
    }
    s->last = program->step_count;
}

static bool same_device(const fl_meta *a, const fl_meta *b)
{
    return a->placement->type == b->placement->type && a->placement->device_index == b->placement->device_index;
}

/* Results, gradients that are left, what is moved, and what lies on another device than most. */
static void choose_own(fl_program *program)
{
    const fl_meta *shared = NULL;
    for (int i = 0; i < program->result_count; i++) keep_until_end(program, &program->results[i]);
    for (int i = 0; i < program->leaf_count; i++)
        if (program->leaves[i].changes) keep_until_end(program, &program->leaves[i].after);
    for (int i = 0; i < program->slot_count; i++) {
        fl_slot *s = &program->slots[i];
        if (fl_slot_is_outside(s)) continue;
        if (!shared && !s->moved && s->first >= 0) shared = s->meta;
        if (s->moved || (shared && !same_device(shared, s->meta))) s->role = FL_SLOT_OWN;
        if (s->role == FL_SLOT_OWN) program->facts.bytes_own += (int64_t)s->bytes;
    }
}

/* ---- the block ---- */

/* Slots that lie in the same bytes one after the other, because each is made in place of the one before. */
struct region {
    int slot, next; /* the first; the region that took this one over, or -1 */
    int first, last;
    size_t bytes;
    int64_t at;
};

/* Each element of the only result is computed from those at its place alone. If fused steps store one result, it is
** their last: all that they read of a place is read before it is written. */
static bool is_pointwise(const fl_step *step)
{
    if (step->nout != 1) return false;
    return step->kind == FL_STEP_FUSED ? step->fused->fold < 0 : step->op->flags & FL_OP_ELEMENTWISE;
}

/* True if the kernel may write its result over operand i. */
static bool may_reuse(const fl_program *program, const fl_step *step, int i)
{
    const fl_program_operand *in = &step->operands[i], *out = &step->operands[step->nin];
    if (in->slot < 0 || !is_pointwise(step)) return false;
    const fl_slot *from = &program->slots[in->slot], *to = &program->slots[out->slot];
    if (from->role != FL_SLOT_SHARED || to->role != FL_SLOT_SHARED || from->bytes != to->bytes) return false;
    if (in->meta->local_numel != out->meta->local_numel || in->offset || out->offset) return false;
    if (fl_dtype_size(in->meta->dtype) != fl_dtype_size(out->meta->dtype)) return false;
    for (int k = 0; k < step->nin; k++)
        if (k != i && step->operands[k].slot == in->slot
            && memcmp(step->operands[k].strides, in->strides, sizeof *in->strides * FL_MAX_NDIM) != 0)
            return false;
    return memcmp(in->strides, in->meta->strides, sizeof *in->strides * (size_t)in->meta->shape.ndim) == 0
        && memcmp(out->strides, out->meta->strides, sizeof *out->strides * (size_t)out->meta->shape.ndim) == 0;
}

/* regions: by slot at first, each of its own. */
static void share_in_place(const fl_program *program, struct region *regions)
{
    for (int n = 0; n < program->step_count; n++) {
        const fl_step *s = &program->steps[n];
        if (s->kind > FL_STEP_FUSED || s->nout != 1 || s->operands[s->nin].slot < 0) continue;
        const int to = s->operands[s->nin].slot;
        if (program->slots[to].first != n) continue;
        for (int i = 0; i < s->nin; i++) {
            const int from = s->operands[i].slot;
            if (from < 0 || program->slots[from].last != n || !may_reuse(program, s, i)) continue;
            int root = from;
            while (regions[root].next >= 0) root = regions[root].next;
            regions[to].next = root;
            regions[root].last = program->slots[to].last;
            break;
        }
    }
}

static int largest_first(const void *a, const void *b)
{
    const struct region *x = *(const struct region *const *)a, *y = *(const struct region *const *)b;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? 1 : -1;
    return x->first - y->first;
}

static bool live_together(const struct region *a, const struct region *b)
{
    return a->first <= b->last && b->first <= a->last;
}

/* Places the region at the lowest bytes that nothing takes while it lives. placed: in the order of their places. */
static void place(struct region **placed, int count, struct region *region)
{
    int64_t at = 0;
    for (int i = 0; i < count; i++) {
        if (!live_together(placed[i], region)) continue;
        if (placed[i]->at >= at + (int64_t)region->bytes) break;
        int64_t past = placed[i]->at + (int64_t)placed[i]->bytes;
        if (past > at) at = past;
    }
    region->at = at;
    int i = count;
    for (; i > 0 && placed[i - 1]->at > at; i--) placed[i] = placed[i - 1];
    placed[i] = region;
}

/* Puts the regions into the block; returns its bytes. order: room for as many pointers twice. */
static size_t place_all(struct region *regions, int count, struct region **order)
{
    struct region **placed = order + count;
    size_t bytes = 0;
    int n = 0;
    for (int i = 0; i < count; i++)
        if (regions[i].slot >= 0 && regions[i].next < 0) order[n++] = &regions[i];
    qsort(order, (size_t)n, sizeof *order, largest_first);
    for (int i = 0; i < n; i++) {
        place(placed, i, order[i]);
        size_t past = (size_t)order[i]->at + order[i]->bytes;
        if (past > bytes) bytes = past;
    }
    return bytes;
}

/* The most bytes that live at one step. */
static int64_t most_at_once(const fl_program *program, const struct region *regions, int count)
{
    int64_t most = 0;
    for (int n = 0; n < program->step_count; n++) {
        int64_t bytes = 0;
        for (int i = 0; i < count; i++)
            if (regions[i].slot >= 0 && regions[i].next < 0 && regions[i].first <= n && n <= regions[i].last)
                bytes += (int64_t)regions[i].bytes;
        if (bytes > most) most = bytes;
    }
    return most;
}

static fl_status plan_block(fl_program *program)
{
    int count = program->slot_count;
    struct region *regions = malloc(sizeof *regions * (size_t)(count + 1));
    struct region **order = malloc(sizeof *order * 2 * (size_t)(count + 1));
    if (!regions || !order) {
        free(regions);
        free(order);
        return fl_program_out_of_memory();
    }
    for (int i = 0; i < count; i++) {
        const fl_slot *s = &program->slots[i];
        bool shared = s->role == FL_SLOT_SHARED && s->first >= 0;
        regions[i] = (struct region){shared ? i : -1, -1, s->first, s->last, aligned(s->bytes), 0};
        if (shared) program->facts.bytes_alone += (int64_t)regions[i].bytes;
    }
    if (fl_pass_is_on(FL_PASS_PLACE)) share_in_place(program, regions);
    for (int i = 0; i < count; i++)
        if (regions[i].slot >= 0 && regions[i].next < 0) program->facts.bytes_in_place += (int64_t)regions[i].bytes;
    program->facts.bytes_least = most_at_once(program, regions, count);
    program->block_bytes = place_all(regions, count, order);
    if (program->block_bytes == 0)
        program->block_bytes = ALIGNMENT; /* its variable orders tensors of no elements too */
    program->facts.bytes_shared = (int64_t)program->block_bytes;
    for (int i = 0; i < count; i++) {
        int root = i;
        while (regions[root].next >= 0) root = regions[root].next;
        program->slots[i].at = regions[root].at;
    }
    free(regions);
    free(order);
    return FL_OK;
}

/* ---- memory of its own, and waits ---- */

/* The list of steps as it grows. */
struct list {
    fl_step *steps;
    int count, room;
};

static fl_status put(struct list *list, const fl_step *step)
{
    FL_TRY(fl_program_reserve((void **)&list->steps, sizeof *list->steps, &list->room, list->count));
    list->steps[list->count++] = *step;
    return FL_OK;
}

static fl_status put_slot(struct list *list, fl_step_kind kind, int slot)
{
    return put(list, &(fl_step){.kind = kind, .slot = slot, .live = -1, .draw = -1, .line = ""});
}

/* Accesses that boxing has begun to a slot, and no step has waited for: bits of `begun`. */
enum { BEING_READ = 1, BEING_WRITTEN = 2 };

/* A kernel on the host needs what it reads to be there, and what it writes not to be read any more. (Devices order this
** in their queues.) */
static fl_status put_waits(struct list *list, const fl_step *step, unsigned char *begun)
{
    if (step->device || step->kind > FL_STEP_FUSED) return FL_OK;
    for (int i = 0; i < step->nin + step->nout; i++) {
        const fl_program_operand *o = &step->operands[i];
        if (o->slot < 0 || !(begun[o->slot] & (o->written ? BEING_READ | BEING_WRITTEN : BEING_WRITTEN))) continue;
        FL_TRY(put_slot(list, FL_STEP_WAIT, o->slot));
        begun[o->slot] = 0;
    }
    return FL_OK;
}

static fl_status put_step(fl_program *program, struct list *list, int n, unsigned char *begun)
{
    fl_step *step = &program->steps[n];
    int count = step->nin + step->nout;
    for (int i = 0; i < count && step->kind != FL_STEP_BOX; i++) {
        int slot = step->operands[i].slot;
        if (slot < 0 || program->slots[slot].role != FL_SLOT_OWN || program->slots[slot].first != n) continue;
        bool again = false;
        for (int k = 0; k < i; k++) again |= step->operands[k].slot == slot;
        if (!again) FL_TRY(put_slot(list, FL_STEP_NEW, slot));
    }
    FL_TRY(put_waits(list, step, begun));
    FL_TRY(put(list, step));
    for (int i = 0; i < count; i++) {
        int slot = step->operands[i].slot;
        if (slot < 0) continue;
        if (step->kind == FL_STEP_BOX) begun[slot] |= i == 0 ? BEING_READ : BEING_WRITTEN;
        if (program->slots[slot].role != FL_SLOT_OWN || program->slots[slot].last != n) continue;
        bool again = false;
        for (int k = 0; k < i; k++) again |= step->operands[k].slot == slot;
        if (!again) FL_TRY(put_slot(list, FL_STEP_DROP, slot));
    }
    return FL_OK;
}

static fl_status put_all(fl_program *program)
{
    struct list list = {0};
    unsigned char *begun = calloc((size_t)program->slot_count + 1, 1);
    fl_status status = begun ? FL_OK : fl_program_out_of_memory();
    for (int i = 0; i < program->slot_count && status == FL_OK; i++)
        if (program->slots[i].unmade) status = put_slot(&list, FL_STEP_NEW, i);
    for (int n = 0; n < program->step_count && status == FL_OK; n++) status = put_step(program, &list, n, begun);
    free(begun);
    if (status != FL_OK) {
        free(list.steps);
        return status;
    }
    free(program->steps);
    program->steps = list.steps;
    program->step_count = list.count;
    program->step_room = list.room;
    return FL_OK;
}

/* ---- pointers ---- */

/* The address of the step's pointer to its operand i. */
static void **place_of(fl_step *step, int i)
{
    if (step->kind == FL_STEP_FLAT) return i < step->nin ? &step->data[i + 1] : &step->data[0];
    return i < step->nin ? &step->kernel.in[i].data : &step->kernel.out[i - step->nin].data;
}

/* One more pointer into the slot; the first time they are counted. */
static void list_use(fl_slot *slot, void **place, int64_t offset, bool counts)
{
    if (!counts) slot->uses[slot->use_count] = (fl_slot_use){place, offset};
    slot->use_count++;
}

static void list_uses_of(fl_program *program, fl_step *step, bool counts)
{
    int from = 0, to = step->kind <= FL_STEP_FLAT ? step->nin + step->nout : 0;
    if (step->kind == FL_STEP_FUSED) {
        fl_tiles *tiles = &step->fused->tiles;
        for (int i = 0; i < tiles->slot_count; i++) {
            void *mark = tiles->slots[i].data;
            if (mark)
                list_use(&program->slots[fl_fused_slot(mark)], (void **)&tiles->slots[i].data, fl_fused_offset(mark),
                         counts);
        }
        if (step->fused->fold >= 0) from = to = step->nin + step->nout, from--;
    }
    for (int i = from; i < to; i++) {
        const fl_program_operand *o = &step->operands[i];
        void **place = step->kind == FL_STEP_FUSED ? &step->kernel.out[0].data : place_of(step, i);
        if (o->slot >= 0) list_use(&program->slots[o->slot], place, o->offset, counts);
    }
}

static fl_status list_uses(fl_program *program)
{
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < program->slot_count && pass; i++) {
            fl_slot *s = &program->slots[i];
            s->uses = fl_program_take(program, sizeof *s->uses * (size_t)(s->use_count + 1));
            if (!s->uses) return fl_program_out_of_memory();
            s->use_count = 0;
        }
        for (int n = 0; n < program->step_count; n++) list_uses_of(program, &program->steps[n], pass == 0);
    }
    return FL_OK;
}

fl_status fl_program_seal(fl_program *program)
{
    if (fl_pass_is_on(FL_PASS_COLLECTIVES))
        FL_TRY(fl_pass_priorities(program)); /* before steps differ from rank to rank */
    if (fl_pass_is_on(FL_PASS_COMMON)) FL_TRY(fl_pass_common(program));
    if (fl_pass_is_on(FL_PASS_DEAD)) FL_TRY(fl_pass_dead(program));
    if (fl_pass_is_on(FL_PASS_PARTS)) FL_TRY(fl_pass_parts(program));
    if (fl_pass_is_on(FL_PASS_RECOMPUTE)) FL_TRY(fl_pass_recompute(program));
    if (fl_pass_is_on(FL_PASS_ACTIVATION)) FL_TRY(fl_pass_activation(program));
    if (fl_pass_is_on(FL_PASS_DEAD)) FL_TRY(fl_pass_dead(program));
    if (fl_pass_is_on(FL_PASS_COLLECTIVES)) FL_TRY(fl_pass_collectives(program));
    if (fl_pass_is_on(FL_PASS_FUSION)) FL_TRY(fl_pass_fusion(program));
    for (int n = 0; n < program->step_count; n++) {
        const fl_step *s = &program->steps[n];
        program->facts.steps += s->kind <= FL_STEP_FUSED || s->kind == FL_STEP_BOX;
        if (s->kind <= FL_STEP_FUSED && !s->device)
            program->host_ops += s->kind == FL_STEP_FUSED ? s->fused->pass.count : 1;
    }
    find_lives(program);
    choose_own(program);
    FL_TRY(plan_block(program));
    FL_TRY(put_all(program));
    fl_graphs_begin(program);
    FL_TRY(fl_program_list_outside(program));
    return list_uses(program);
}
