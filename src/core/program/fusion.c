/*
** fusion.c -- elementwise steps of one shape run in one pass over memory, and what only they use has no memory.
**
** The steps are taken in order. Elementwise ones are gathered in groups, one per shape and device; a group runs before
** the first step that reads a result of it in another way, or writes what it reads. A reduction of a result takes the
** elements from the group.
*/
#include "passes.h"

#include "base/hash.h"
#include "infer/infer.h"

#include <stdlib.h>

enum { GROUPS = 8, MEMBERS = FL_TILES_STEPS, MAX_INPUTS = 8 };

/* A value in memory that a group reads. */
struct input {
    int slot;
    int64_t offset;
};

struct group {
    bool open;
    int ndim;
    int64_t size[FL_MAX_NDIM];
    const fl_device *device;
    int device_index;
    int members[MEMBERS], count;         /* steps */
    int results[MEMBERS], tile[MEMBERS]; /* by member: its slot, and that of the tiles */
    struct input inputs[MAX_INPUTS];
    const fl_program_operand *input_operands[MAX_INPUTS];
    int input_count;
    fl_fused fused;
};

struct pass {
    fl_program *program;
    const fl_step *steps; /* as recorded */
    struct group *groups;
    fl_step *out;
    int out_count, out_room;
    int *uses; /* by slot: operands and results that name it */
    uint64_t clock;
};

static fl_status put(struct pass *pass, const fl_step *step)
{
    FL_TRY(fl_program_reserve((void **)&pass->out, sizeof *pass->out, &pass->out_room, pass->out_count));
    pass->out[pass->out_count++] = *step;
    return FL_OK;
}

/* ---- kinds of steps ---- */

static bool has_shape(const struct group *group, const fl_meta *meta)
{
    return group->ndim == meta->shape.ndim
        && memcmp(group->size, meta->window.size, sizeof *group->size * (size_t)group->ndim) == 0;
}

/* Neighbours of the operand's innermost axis lie apart: copy kernels do that better. */
static bool is_scattered(const fl_program_operand *operand)
{
    int last = operand->meta->shape.ndim - 1;
    while (last > 0 && operand->meta->window.size[last] == 1) last--;
    return last >= 0 && operand->meta->window.size[last] > 1 && operand->strides[last] > 1;
}

static bool is_candidate(const fl_step *step)
{
    if ((step->kind != FL_STEP_KERNEL && step->kind != FL_STEP_FLAT) || !step->fuses || step->nout != 1) return false;
    for (int i = 0; i < step->nin; i++)
        if (step->operands[i].slot >= 0 && is_scattered(&step->operands[i])) return false;
    return true;
}

/* ---- groups ---- */

static int member_of(const struct group *group, int slot)
{
    for (int i = 0; group->open && i < group->count; i++)
        if (group->results[i] == slot) return i;
    return -1;
}

static bool reads(const struct group *group, int slot)
{
    for (int i = 0; group->open && i < group->input_count; i++)
        if (group->inputs[i].slot == slot) return true;
    return false;
}

/* Counts the uses of the slot by the steps of the group. */
static int uses_within(const struct pass *pass, const struct group *group, int slot)
{
    int uses = 0;
    for (int i = 0; i < group->count; i++) {
        const fl_step *s = &pass->steps[group->members[i]];
        for (int k = 0; k < s->nin + s->nout; k++) uses += s->operands[k].slot == slot;
    }
    return uses;
}

/* The report of the step for flow.explain and a trace. */
static fl_status set_report(const struct pass *pass, const struct group *group, const fl_step *fold, fl_step *step)
{
    fl_chain_pass *report = &step->fused->pass;
    fl_chain_step *steps = fl_program_take(pass->program, sizeof *steps * (size_t)(group->count + 1));
    if (!steps) return fl_program_out_of_memory();
    *report = (fl_chain_pass){.steps = steps, .stored = step->nout, .numel = group->fused.tiles.total};
    for (int i = 0; i < group->count; i++) {
        const fl_step *s = &pass->steps[group->members[i]];
        steps[report->count++] = (fl_chain_step){s->op->name, s->line};
    }
    if (fold) steps[report->count++] = (fl_chain_step){fold->op->name, fold->line};
    return FL_OK;
}

/* The step that the group becomes; operands: those it reads, those it stores, and the results of `fold` (or NULL). */
static fl_status put_fused(struct pass *pass, struct group *group, const fl_step *fold)
{
    fl_program *p = pass->program;
    const fl_step *last = &pass->steps[group->members[group->count - 1]];
    fl_step step = {.kind = FL_STEP_FUSED,
                    .op = fold ? fold->op : last->op,
                    .line = fold ? fold->line : last->line,
                    .live = -1,
                    .draw = -1,
                    .device = group->device,
                    .device_index = group->device_index,
                    .lane = last->lane,
                    .nin = group->input_count};
    int room = group->input_count + group->count + FL_MAX_OUT;
    step.operands = fl_program_take(p, sizeof *step.operands * (size_t)room);
    step.fused = fl_program_take(p, sizeof *step.fused);
    if (!step.operands || !step.fused) return fl_program_out_of_memory();
    for (int i = 0; i < group->input_count; i++) step.operands[i] = *group->input_operands[i];
    for (int i = 0; i < group->count; i++) {
        int slot = group->results[i], folded = fold && fold->operands[0].slot == slot;
        if (pass->uses[slot] - folded == uses_within(pass, group, slot)) continue;
        const fl_step *s = &pass->steps[group->members[i]];
        fl_tiles_store(&group->fused.tiles, group->tile[i], fl_fused_mark(slot, 0));
        step.operands[step.nin + step.nout++] = s->operands[s->nin];
    }
    if (fold) {
        group->fused.fold = group->tile[member_of(group, fold->operands[0].slot)];
        group->fused.from = fold->operands[0].meta;
        step.run = fold->run;
        step.kernel = fold->kernel;
        step.operands[step.nin + step.nout++] = fold->operands[1];
    }
    for (int i = 0; i < step.nin + step.nout; i++) fl_meta_ref(step.operands[i].meta);
    *step.fused = group->fused;
    step.fused->first_retired = pass->program->retired_count;
    FL_TRY(set_report(pass, group, fold, &step));
    return put(pass, &step);
}

/* A member is not run by itself: its references stay with the program. */
static fl_status retire(struct pass *pass, const fl_step *step)
{
    fl_program *p = pass->program;
    FL_TRY(fl_program_reserve((void **)&p->retired, sizeof *p->retired, &p->retired_room, p->retired_count));
    p->retired[p->retired_count++] = *step;
    return FL_OK;
}

static fl_status flush(struct pass *pass, struct group *group, const fl_step *fold)
{
    if (!group->open) return FL_OK;
    bool alone = group->count == 1 && !fold;
    fl_status status = alone ? put(pass, &pass->steps[group->members[0]]) : put_fused(pass, group, fold);
    group->open = false;
    if (alone || status != FL_OK) return status;
    for (int i = 0; i < group->count; i++) FL_TRY(retire(pass, &pass->steps[group->members[i]]));
    return fold ? retire(pass, fold) : FL_OK;
}

static struct group *group_for(const struct pass *pass, const fl_step *step)
{
    for (int i = 0; i < GROUPS; i++) {
        struct group *g = &pass->groups[i];
        if (g->open && has_shape(g, step->operands[step->nin].meta) && g->device == step->device
            && g->device_index == step->device_index)
            return g;
    }
    return NULL;
}

/* A new group for steps like this one; that which began first runs where there are too many. */
static fl_status group_open(struct group **out, struct pass *pass, const fl_step *step)
{
    struct group *g = NULL, *oldest = &pass->groups[0];
    const fl_meta *m = step->operands[step->nin].meta;
    for (int i = 0; i < GROUPS; i++) {
        if (!pass->groups[i].open) g = &pass->groups[i];
        else if (pass->groups[i].members[0] < oldest->members[0]) oldest = &pass->groups[i];
    }
    if (!g) FL_TRY(flush(pass, g = oldest, NULL));
    g->open = true;
    g->ndim = m->shape.ndim;
    memcpy(g->size, m->window.size, sizeof g->size);
    g->device = step->device;
    g->device_index = step->device_index;
    g->count = g->input_count = 0;
    g->fused.draw_count = 0;
    g->fused.fold = -1;
    fl_tiles_begin(&g->fused.tiles, g->ndim, g->size, NULL);
    *out = g;
    return FL_OK;
}

/* ---- adding a step ---- */

/* The slot of the tiles for operand i; FL_TILES_FULL: there is no room. */
static int tile_operand(struct group *group, const fl_step *step, int i)
{
    const fl_program_operand *o = &step->operands[i];
    fl_view view = step->kernel.in[i];
    if (o->slot < 0) {
        view.ndim = 0;
        view.data = view.scalar;
        return fl_tiles_operand(&group->fused.tiles, &view);
    }
    int member = member_of(group, o->slot), k = 0;
    if (member >= 0) return group->tile[member];
    while (k < group->input_count && (group->inputs[k].slot != o->slot || group->inputs[k].offset != o->offset)) k++;
    if (k == MAX_INPUTS) return FL_TILES_FULL;
    if (k == group->input_count) {
        group->inputs[k] = (struct input){o->slot, o->offset};
        group->input_operands[group->input_count++] = o;
    }
    view.data = fl_fused_mark(o->slot, o->offset);
    return fl_tiles_operand(&group->fused.tiles, &view);
}

/* The slot of the tiles with the step's result. */
static int tile_step(struct pass *pass, struct group *group, const fl_step *step, const int *in)
{
    fl_fused *f = &group->fused;
    fl_dtype result = step->operands[step->nin].meta->dtype;
    if (step->op->draw) {
        fl_draw *draw = fl_program_take(pass->program, sizeof *draw);
        if (!draw) return FL_TILES_FULL;
        step->op->draw(draw, &step->kernel);
        if (step->draw >= 0) { /* else its seed came from outside: it stays */
            f->draws[f->draw_count].draw = draw;
            f->draws[f->draw_count++].number = step->draw;
        }
        return fl_tiles_draw(&f->tiles, draw, (uint64_t)step->first_drawn, in[0], result);
    }
    if (!step->op->row) return fl_tiles_cast(&f->tiles, in[0], result);
    fl_ew_attr attributes[FL_EW_ATTRS];
    fl_ew_attributes(attributes, &step->kernel);
    return fl_tiles_row(&f->tiles, step->op->row, fl_ew_compute_dtype(&step->kernel, step->kernel.out[0].dtype), result,
                        attributes, in, step->nin);
}

/* Adds the step; false, and the group as it was: it has no room. before: room for the group as it was. */
static bool try_add(struct pass *pass, struct group *group, int n, struct group *before)
{
    const fl_step *step = &pass->steps[n];
    int in[FL_EW_MAX_IN] = {0}, reads = step->op->flags & FL_OP_RANDOM ? 0 : step->nin;
    bool fits = group->count < MEMBERS;
    *before = *group;
    for (int i = 0; i < reads && fits; i++) fits = (in[i] = tile_operand(group, step, i)) != FL_TILES_FULL;
    int tile = fits ? tile_step(pass, group, step, in) : FL_TILES_FULL;
    if (tile == FL_TILES_FULL) {
        *group = *before;
        return false;
    }
    group->members[group->count] = n;
    group->results[group->count] = step->operands[step->nin].slot;
    group->tile[group->count++] = tile;
    return true;
}

/* Groups whose results the step reads run before it: all but `own`, and that too where it reads a part of a value. */
static fl_status flush_read(struct pass *pass, const fl_step *step, const struct group *own)
{
    for (int i = 0; i < GROUPS; i++) {
        struct group *g = &pass->groups[i];
        bool read = false;
        for (int k = 0; k < step->nin + step->nout && !read; k++) {
            const fl_program_operand *o = &step->operands[k];
            int member = o->slot >= 0 ? member_of(g, o->slot) : -1;
            read = member >= 0 && !(g == own && k < step->nin && fl_operand_is_whole(o) && has_shape(g, o->meta));
            read = read || (o->slot >= 0 && o->written && reads(g, o->slot));
        }
        if (read) FL_TRY(flush(pass, g, NULL));
    }
    return FL_OK;
}

static fl_status put_note(struct pass *pass, fl_step *step)
{
    fl_step note;
    return fl_step_take_note(&note, step) ? put(pass, &note) : FL_OK;
}

static fl_status gather(struct pass *pass, int n, struct group *before)
{
    fl_step *step = (fl_step *)&pass->steps[n];
    FL_TRY(flush_read(pass, step, group_for(pass, step)));
    FL_TRY(put_note(pass, step));
    struct group *g = group_for(pass, step);
    if (g && try_add(pass, g, n, before)) return FL_OK;
    if (g) FL_TRY(flush(pass, g, NULL));
    FL_TRY(group_open(&g, pass, step));
    if (try_add(pass, g, n, before)) return FL_OK;
    g->open = false;
    return put(pass, step);
}

/* The group that the reduction takes its operand from, as a whole; NULL: it reads memory. */
static struct group *source_of(const struct pass *pass, const fl_step *step)
{
    if (step->kind != FL_STEP_KERNEL || !step->folds || step->nin != 1 || step->nout != 1) return NULL;
    const fl_program_operand *o = &step->operands[0];
    for (int i = 0; i < GROUPS; i++)
        if (member_of(&pass->groups[i], o->slot) >= 0 && fl_operand_is_whole(o) && has_shape(&pass->groups[i], o->meta))
            return &pass->groups[i];
    return NULL;
}

static fl_status take(struct pass *pass, int n, struct group *before)
{
    fl_step *step = (fl_step *)&pass->steps[n];
    if (is_candidate(step)) return gather(pass, n, before);
    struct group *source = source_of(pass, step);
    if (source) {
        FL_TRY(put_note(pass, step));
        return flush(pass, source, step);
    }
    FL_TRY(flush_read(pass, step, NULL));
    return put(pass, step);
}

fl_status fl_pass_fusion(fl_program *program)
{
    struct pass pass = {.program = program, .steps = program->steps};
    pass.groups = calloc(GROUPS + 1, sizeof *pass.groups);
    pass.uses = calloc((size_t)program->slot_count + 1, sizeof *pass.uses);
    fl_status status = pass.groups && pass.uses ? FL_OK : fl_program_out_of_memory();
    if (status == FL_OK) fl_pass_count_uses(program, pass.uses);
    for (int n = 0; n < program->step_count && status == FL_OK; n++) status = take(&pass, n, &pass.groups[GROUPS]);
    for (int i = 0; i < GROUPS && status == FL_OK; i++) status = flush(&pass, &pass.groups[i], NULL);
    if (status == FL_OK) {
        free(program->steps);
        program->steps = pass.out;
        program->step_count = pass.out_count;
        program->step_room = pass.out_room;
    } else free(pass.out);
    free(pass.groups);
    free(pass.uses);
    return status;
}
