/*
** shared.c -- arguments in the memory of one another, or of a tensor that the program reaches from outside.
**
** A program knows memory by its slots, and takes different slots for different memory: its passes change the order of
** steps that use no slot in common. So where two of them share bytes and one is written, it cannot run.
*/
#include "autograd/autograd.h"
#include "program_internal.h"

/* Bytes of a storage: from `from` to before `to`. */
struct range {
    const fl_storage *storage;
    int64_t from, to;
};

static struct range range_at(const fl_storage *storage, int64_t from, const fl_meta *meta, const int64_t *strides)
{
    int64_t size = (int64_t)fl_dtype_size(meta->dtype), last = 0;
    if (meta->local_numel == 0) return (struct range){storage, from, from};
    for (int i = 0; i < meta->shape.ndim; i++) last += (meta->window.size[i] - 1) * strides[i];
    return (struct range){storage, from, from + (last + 1) * size};
}

static struct range range_of(const fl_tensor *tensor)
{
    return range_at(tensor->storage, tensor->offset * (int64_t)fl_dtype_size(tensor->meta->dtype), tensor->meta,
                    tensor->strides);
}

static bool overlap(const struct range *a, const struct range *b)
{
    return a->storage == b->storage && a->from < b->to && b->from < a->to;
}

bool fl_tensors_overlap(const fl_tensor *a, const fl_tensor *b)
{
    struct range ra = range_of(a), rb = range_of(b);
    return overlap(&ra, &rb);
}

/* The tensor from outside that the slot stands for; NULL: none. */
static const fl_tensor *outside_of(const fl_program *program, const fl_slot *slot)
{
    if (slot->role == FL_SLOT_BOUND) return slot->tensor;
    return slot->role == FL_SLOT_GRADIENT ? fl_autograd_grad_of(program->leaves[slot->index].leaf) : NULL;
}

/* True if a step uses these bytes of slot i, where that or the other side of them is written. */
static bool is_used(const fl_program *program, int i, const struct range *bytes, bool other_written)
{
    const fl_slot *slot = &program->slots[i];
    const fl_storage *storage = bytes->storage;
    for (int n = 0; n < program->step_count; n++) {
        const fl_step *step = &program->steps[n];
        for (int k = 0; k < step->nin + step->nout; k++) {
            const fl_program_operand *o = &step->operands[k];
            if (o->slot != i || (!other_written && !o->written)) continue;
            if (slot->role == FL_SLOT_GRADIENT) return true; /* its operands are counted from the tensor's start */
            struct range used = range_at(storage, o->offset, o->meta, o->strides);
            if (overlap(&used, bytes)) return true;
        }
    }
    return false;
}

fl_status fl_program_list_outside(fl_program *program)
{
    program->outside = fl_program_take(program, sizeof *program->outside * (size_t)(program->slot_count + 1));
    if (!program->outside) return fl_program_out_of_memory();
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < program->slot_count; i++)
            if (fl_slot_is_outside(&program->slots[i]) && program->slots[i].written == (pass == 0))
                program->outside[program->outside_count++] = i;
        if (pass == 0) program->outside_written = program->outside_count;
    }
    return FL_OK;
}

static bool argument_shares(const fl_program *program, fl_tensor *const *args, const fl_slot *slot)
{
    const fl_tensor *arg = args[slot->index];
    const int count = slot->written ? program->outside_count : program->outside_written;
    for (int k = 0; k < count; k++) {
        const int i = program->outside[k];
        const fl_slot *other = &program->slots[i];
        const fl_tensor *t = other->role == FL_SLOT_INPUT ? args[other->index] : outside_of(program, other);
        if (FL_LIKELY(!t || t->storage != arg->storage || other == slot)) continue;
        struct range bytes = range_of(arg);
        if (other->role == FL_SLOT_INPUT ? fl_tensors_overlap(t, arg) : is_used(program, i, &bytes, slot->written))
            return true;
    }
    return false;
}

int fl_program_shares(const fl_program *program, fl_tensor *const *args)
{
    for (int k = 0; k < program->outside_count; k++) {
        const fl_slot *slot = &program->slots[program->outside[k]];
        if (slot->role == FL_SLOT_INPUT && args[slot->index] && argument_shares(program, args, slot))
            return slot->index;
    }
    return -1;
}
