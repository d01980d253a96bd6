/*
** parts.c -- a value that is added up from parts of an axis, each with zeros around it, is written part by part: the
** gradient of what was split. Each element is still added to a zero, so that -0 becomes 0 as it does without.
*/
#include "memory/device.h"
#include "op/operand.h"
#include "op/slicing.h"
#include "passes.h"

#include <stdlib.h>
#include <string.h>

enum { PARTS = 32 };

struct parts {
    fl_program *program;
    int *made, *uses;  /* by slot: the only step that writes it, -1: none, -2: several; number of its uses */
    int count;         /* of one value: */
    int padded[PARTS]; /* the steps that put zeros around a part */
    int added[PARTS];  /* those that add it to the others; of the first one -1 */
    int axis;
    int64_t covered;
};

/* ---- finding them ---- */

static int axis_of(const fl_step *step)
{
    int64_t axis = step->kernel.attrs->at[FL_SLICE_AXIS].integer;
    return (int)(axis < 0 ? axis + step->operands[0].meta->shape.ndim : axis);
}

static int64_t start_of(const fl_step *step) { return step->kernel.attrs->at[FL_SLICE_START].integer; }
static int64_t length_of(const fl_step *step) { return step->operands[0].meta->shape.dims[axis_of(step)]; }

/* A part of neighbours among zeros, in a new value. */
static bool is_padded(const struct parts *parts, int n)
{
    const fl_step *step = &parts->program->steps[n];
    if (step->kind != FL_STEP_KERNEL || step->op != FL_OP_REF(narrow_backward) || step->history) return false;
    const fl_program_operand *out = &step->operands[1];
    return step->live < 0 && step->kernel.attrs->at[FL_SLICE_STEP].integer == 1 && out->whole
        && fl_operand_is_whole(out) && fl_dtype_is_float(out->meta->dtype)
        && !fl_slot_is_outside(&parts->program->slots[out->slot]);
}

static bool overlaps(const struct parts *parts, const fl_step *step)
{
    for (int i = 0; i < parts->count; i++) {
        const fl_step *other = &parts->program->steps[parts->padded[i]];
        if (start_of(step) < start_of(other) + length_of(other) && start_of(other) < start_of(step) + length_of(step))
            return true;
    }
    return false;
}

/* The step adds another part to the value, in place: the step that made the part; else -1. */
static int part_added(const struct parts *parts, const fl_step *step, const fl_program_operand *value)
{
    if (step->kind > FL_STEP_FLAT || step->op != FL_OP_REF(add) || step->nin != 2 || step->history) return -1;
    const fl_program_operand *to = &step->operands[0], *from = &step->operands[1];
    if (to->slot != value->slot || !to->written || from->slot < 0 || from->slot == to->slot) return -1;
    if (to->meta != value->meta || from->meta != value->meta || !fl_operand_is_whole(to) || !fl_operand_is_whole(from))
        return -1;
    const int n = parts->made[from->slot];
    if (n <= parts->padded[0] || parts->uses[from->slot] != 2 || !is_padded(parts, n)) return -1;
    const fl_step *padded = &parts->program->steps[n];
    if (axis_of(padded) != parts->axis || padded->device != step->device || overlaps(parts, padded)) return -1;
    return n;
}

static void take(struct parts *parts, int padded, int added)
{
    parts->padded[parts->count] = padded;
    parts->added[parts->count++] = added;
    parts->covered += length_of(&parts->program->steps[padded]);
}

static bool names(const fl_step *step, int slot)
{
    for (int i = 0; i < step->nin + step->nout; i++)
        if (step->operands[i].slot == slot) return true;
    return false;
}

/* All parts of the value that begins with step n, before it is used in another way. */
static bool find_parts(struct parts *parts, int n)
{
    const fl_program *p = parts->program;
    const fl_program_operand *value = &p->steps[n].operands[1];
    parts->count = 0;
    parts->covered = 0;
    parts->axis = axis_of(&p->steps[n]);
    take(parts, n, -1);
    for (int later = n + 1; later < p->step_count && parts->count < PARTS; later++) {
        if (!names(&p->steps[later], value->slot)) continue;
        const int padded = part_added(parts, &p->steps[later], value);
        if (padded < 0) break;
        take(parts, padded, later);
    }
    return parts->count > 1 && parts->covered == value->meta->shape.dims[parts->axis];
}

/* ---- writing them ---- */

static bool is_contiguous(const fl_meta *meta, const int64_t *strides)
{
    int64_t expected = 1;
    for (int i = meta->shape.ndim - 1; i >= 0; i--) {
        if (meta->window.size[i] != 1 && strides[i] != expected) return false;
        expected *= meta->window.size[i];
    }
    return true;
}

/* The step puts its part, plus 0, where it belongs in the value. */
static fl_status write_part(fl_program *program, fl_step *step, const fl_program_operand *value)
{
    const fl_op *op = FL_OP_REF(add);
    const fl_program_operand *x = &step->operands[0];
    const fl_dtype dtype = value->meta->dtype;
    fl_program_operand *operands = fl_program_take(program, 3 * sizeof *operands);
    fl_view *views = fl_program_take(program, 3 * sizeof *views);
    fl_attrs *attrs = fl_program_take(program, sizeof *attrs);
    if (!operands || !views || !attrs) return fl_program_out_of_memory();
    const int64_t offset = start_of(step) * value->strides[axis_of(step)];
    fl_attrs_init(attrs, op);
    views[0] = step->kernel.in[0];
    fl_view_of_number(&views[1], &(fl_operand){.kind = FL_NUM_FLOAT}, dtype);
    views[2] = views[0];
    views[2].stride = value->strides;
    views[2].contiguous = is_contiguous(x->meta, value->strides);
    operands[0] = *x;
    operands[1] = (fl_program_operand){.slot = -1};
    operands[2] = (fl_program_operand){.slot = value->slot,
                                       .written = true,
                                       .offset = offset * (int64_t)fl_dtype_size(dtype),
                                       .meta = fl_meta_ref(x->meta),
                                       .strides = value->strides};
    fl_meta_unref(step->operands[1].meta);
    step->operands = operands;
    step->nin = step->kernel.nin = 2;
    step->kernel.in = views;
    step->kernel.out = &views[2];
    step->kernel.attrs = attrs;
    step->op = op;
    fl_kernel_set_op(&step->kernel, op);
    return FL_OK;
}

static fl_status join(const struct parts *parts)
{
    fl_program *p = parts->program;
    fl_kernel_fn run;
    const fl_program_operand value = p->steps[parts->padded[0]].operands[1];
    const fl_device_type type = value.meta->placement->type;
    FL_TRY(fl_device_kernel_of(&run, type, FL_OP_REF(add)));
    if (!run) return FL_OK;
    for (int i = 0; i < parts->count; i++) {
        fl_step *step = &p->steps[parts->padded[i]];
        FL_TRY(write_part(p, step, &value));
        step->run = run;
        step->fuses = step->folds = false; /* others write to the value too */
        if (parts->added[i] >= 0) fl_step_forget(&p->steps[parts->added[i]]);
    }
    return FL_OK;
}

static void find_makers(const struct parts *parts)
{
    const fl_program *p = parts->program;
    for (int i = 0; i < p->slot_count; i++) parts->made[i] = -1;
    for (int n = 0; n < p->step_count; n++)
        for (int i = 0; i < p->steps[n].nin + p->steps[n].nout; i++) {
            const fl_program_operand *o = &p->steps[n].operands[i];
            if (o->slot >= 0 && o->written) parts->made[o->slot] = parts->made[o->slot] == -1 ? n : -2;
        }
}

fl_status fl_pass_parts(fl_program *program)
{
    const size_t slots = (size_t)program->slot_count + 1;
    struct parts parts = {.program = program,
                          .made = malloc(slots * sizeof *parts.made),
                          .uses = calloc(slots, sizeof *parts.uses)};
    fl_status status = parts.made && parts.uses ? FL_OK : fl_program_out_of_memory();
    if (status == FL_OK) {
        find_makers(&parts);
        fl_pass_count_uses(program, parts.uses);
    }
    for (int n = 0; n < program->step_count && status == FL_OK; n++)
        if (is_padded(&parts, n) && find_parts(&parts, n)) status = join(&parts);
    free(parts.made);
    free(parts.uses);
    return status;
}
