/*
** recompute.c -- results that are cheap to compute wait for no later use through the step where most memory is in use:
** they are computed again before it, by the same kernel from the same values, so that no bit changes.
**
** Cheap are copies, elementwise steps, layer norms, and on the host the gelu of a product that is kept. The operands of
** such a step must be there at its second place anyway, unchanged: nothing lives longer because of it.
*/
#include "infer/infer.h"
#include "op/product.h"
#include "passes.h"

#include <stdlib.h>
#include <string.h>

enum {
    WORTH_IT = 4 << 20,    /* bytes in use at once from which on they matter */
    LEAST_SAVED = 64 << 10 /* bytes of a step's results */
};

struct lives {
    int first, last;             /* steps that name the slot */
    int first_write, last_write; /* last_write -1: none */
    int from;                    /* as of which step it takes memory of its own */
};

struct recompute {
    fl_program *program;
    struct lives *lives; /* by slot */
    bool *fixed;         /* by slot: comes from outside, or is wanted after the run */
    int64_t *bytes;      /* by step: in use then */
    int slots, steps;    /* as recorded, and room for the lists */
};

static const fl_slot *slot_of(const struct recompute *recompute, const fl_program_operand *operand)
{
    return &recompute->program->slots[operand->slot];
}

/* ---- lives ---- */

static void note_use(struct lives *life, const fl_program_operand *operand, int n)
{
    if (life->first < 0) life->first = life->from = n;
    life->last = n;
    if (!operand->written) return;
    if (life->last_write < 0) life->first_write = n;
    life->last_write = n;
}

static bool is_kernel(const fl_step *step) { return step->kind == FL_STEP_KERNEL || step->kind == FL_STEP_FLAT; }

/* An elementwise result takes the place of an operand that ends there, or both are never in memory. */
static void note_place(const struct recompute *recompute, const fl_step *step, int n)
{
    if (!is_kernel(step) || step->nout != 1 || !(step->op->flags & FL_OP_ELEMENTWISE)) return;
    struct lives *out = &recompute->lives[step->operands[step->nin].slot];
    if (out->first != n) return;
    for (int i = 0; i < step->nin; i++) {
        const fl_program_operand *o = &step->operands[i];
        if (o->slot < 0 || recompute->fixed[o->slot] || recompute->lives[o->slot].last != n) continue;
        if (slot_of(recompute, o)->bytes == slot_of(recompute, &step->operands[step->nin])->bytes) out->from = n + 1;
    }
}

static void find_lives(const struct recompute *recompute)
{
    const fl_program *p = recompute->program;
    for (int i = 0; i < p->slot_count; i++) recompute->lives[i] = (struct lives){-1, -1, -1, -1, -1};
    for (int n = 0; n < p->step_count; n++)
        for (int i = 0; i < p->steps[n].nin + p->steps[n].nout; i++)
            if (p->steps[n].operands[i].slot >= 0)
                note_use(&recompute->lives[p->steps[n].operands[i].slot], &p->steps[n].operands[i], n);
    for (int n = 0; n < p->step_count; n++) note_place(recompute, &p->steps[n], n);
}

/* The step during which most memory is in use. */
static int find_peak(const struct recompute *recompute)
{
    const fl_program *p = recompute->program;
    int peak = 0;
    memset(recompute->bytes, 0, sizeof *recompute->bytes * (size_t)(p->step_count + 1));
    for (int i = 0; i < p->slot_count; i++) {
        const struct lives *life = &recompute->lives[i];
        if (recompute->fixed[i] || life->first < 0 || life->from > life->last) continue;
        recompute->bytes[life->from] += (int64_t)p->slots[i].bytes;
        recompute->bytes[life->last + 1] -= (int64_t)p->slots[i].bytes;
    }
    for (int n = 1; n < p->step_count; n++) {
        recompute->bytes[n] += recompute->bytes[n - 1];
        if (recompute->bytes[n] > recompute->bytes[peak]) peak = n;
    }
    return peak;
}

/* ---- steps that can be computed again ---- */

/* The operands and results of a second run: of a step, or of its activation alone where it keeps the product. */
struct second {
    const fl_program_operand *in, *out;
    int nin, nout;
};

/* False: the step is not cheap. */
static bool second_of(struct second *out, const fl_step *step)
{
    const fl_program_operand *made = &step->operands[step->nin];
    if (!is_kernel(step) || step->live >= 0) return false;
    *out = (struct second){step->operands, made, step->nin, step->nout};
    if (step->op->flags & (FL_OP_ELEMENTWISE | FL_OP_VIEW) || step->op == FL_OP_REF(layer_norm_rows)) return true;
    if (step->op != FL_OP_REF(linear_gelu_kept) || step->device) return false; /* a device's product has its own gelu */
    *out = (struct second){&made[FL_GELU_KEPT], &made[FL_ACTIVATED], 1, 1};
    const fl_dtype dtype = out->in->meta->dtype;
    return step->kernel.attrs->at[FL_GELU_KEEP].integer && fl_dtype_compute(dtype) == dtype; /* else it is rounded */
}

static bool is_made(const struct second *second, int slot)
{
    for (int i = 0; i < second->nout; i++)
        if (second->out[i].slot == slot) return true;
    return false;
}

static bool names(const fl_step *step, const struct second *second)
{
    for (int i = 0; i < step->nin + step->nout; i++)
        if (is_made(second, step->operands[i].slot)) return true;
    return false;
}

/* Step n makes new values, which nothing else writes. */
static bool makes_values(const struct recompute *recompute, int n, const struct second *second)
{
    for (int i = 0; i < second->nin; i++)
        if (second->in[i].slot >= 0 && second->in[i].written && second->in == recompute->program->steps[n].operands)
            return false;
    for (int i = 0; i < second->nout; i++) {
        const fl_program_operand *o = &second->out[i];
        if (o->slot < 0 || o->slot >= recompute->slots || !o->whole || recompute->fixed[o->slot]) return false;
        if (recompute->lives[o->slot].first != n || recompute->lives[o->slot].last_write != n) return false;
    }
    return true;
}

/* The first use after the peak; -1: there is none, or the peak itself is one. */
static int use_after(const struct recompute *recompute, int peak, const struct second *second)
{
    for (int n = peak; n < recompute->program->step_count; n++)
        if (names(&recompute->program->steps[n], second)) return n == peak ? -1 : n;
    return -1;
}

/* True if the operands are the same before step `again` as at step n, and in memory. */
static bool can_run_before(const struct recompute *recompute, int n, int again, const struct second *second)
{
    for (int i = 0; i < second->nin; i++) {
        const int slot = second->in[i].slot;
        if (slot < 0) continue;
        if (recompute->lives[slot].last_write > n && recompute->lives[slot].first_write < again) return false;
        if (!recompute->fixed[slot] && recompute->lives[slot].last < again) return false;
    }
    return true;
}

/* The bytes of step n's results that are live at the peak. */
static int64_t bytes_waiting(const struct recompute *recompute, int peak, const struct second *second)
{
    int64_t bytes = 0;
    for (int i = 0; i < second->nout; i++) {
        const int slot = second->out[i].slot;
        if (slot >= 0 && recompute->lives[slot].last > peak) bytes += (int64_t)recompute->program->slots[slot].bytes;
    }
    return bytes;
}

/* The step whose second run saves most at the peak, and before which that is; -1: there is none. */
static int choose(int *again, const struct recompute *recompute, int peak)
{
    int best = -1;
    int64_t most = LEAST_SAVED - 1;
    for (int n = 0; n < peak; n++) {
        struct second second;
        if (!second_of(&second, &recompute->program->steps[n]) || !makes_values(recompute, n, &second)) continue;
        const int64_t bytes = bytes_waiting(recompute, peak, &second);
        if (bytes <= most || !can_run_before(recompute, n, peak + 1, &second)) continue;
        const int use = use_after(recompute, peak, &second);
        if (use < 0 || !can_run_before(recompute, n, use, &second)) continue;
        best = n;
        most = bytes;
        *again = use;
    }
    return best;
}

/* ---- computing it again ---- */

/* Views and operands of its own, for other results. */
static fl_status copy_operands(fl_step *step, fl_program *program, const struct second *second, const fl_view *in,
                               const fl_view *out)
{
    const int count = second->nin + second->nout;
    fl_view *views = fl_program_take(program, sizeof *views * (size_t)count);
    fl_program_operand *operands = fl_program_take(program, sizeof *operands * (size_t)count);
    if (!views || !operands) return fl_program_out_of_memory();
    for (int i = 0; i < count; i++) {
        const fl_view *view = i < second->nin ? &in[i] : &out[i - second->nin];
        operands[i] = i < second->nin ? second->in[i] : second->out[i - second->nin];
        views[i] = *view;
        if (view->data == view->scalar) views[i].data = views[i].scalar;
    }
    for (int i = 0; i < second->nin; i++) operands[i].written = operands[i].whole = false;
    step->operands = operands;
    step->kernel.in = views;
    step->kernel.out = views + second->nin;
    step->nin = step->kernel.nin = second->nin;
    step->nout = step->kernel.nout = second->nout;
    if (step->kind != FL_STEP_FLAT) return FL_OK;
    step->data = fl_program_take(program, sizeof *step->data * (FL_FLAT_MAX_IN + 1));
    return step->data ? FL_OK : fl_program_out_of_memory();
}

/* The gelu of the product that `step` keeps. */
static fl_status make_gelu(fl_step *step, fl_program *program)
{
    const fl_op *op = FL_OP_REF(gelu);
    fl_attrs *attrs = fl_program_take(program, sizeof *attrs);
    if (!attrs) return fl_program_out_of_memory();
    fl_attrs_init(attrs, op);
    attrs->at[FL_GELU_APPROXIMATE] = step->kernel.attrs->at[FL_GELU_APPROXIMATE];
    step->run = op->cpu;
    step->fuses = step->numel >= fl_infer_defers_from(false);
    step->op = op;
    fl_kernel_set_op(&step->kernel, op);
    step->kernel.attrs = attrs;
    return FL_OK;
}

/* The second run of step n, as a step. */
static fl_status make_second(fl_step *out, const struct recompute *recompute, int n, const struct second *second)
{
    fl_program *p = recompute->program;
    *out = p->steps[n];
    out->history = NULL;
    const fl_view *made = out->kernel.out;
    const bool alone = second->in != out->operands;
    if (alone) FL_TRY(make_gelu(out, p));
    FL_TRY(copy_operands(out, p, second, alone ? &made[FL_GELU_KEPT] : out->kernel.in, made));
    for (int i = 0; i < out->nout; i++) {
        FL_TRY(fl_program_reserve((void **)&p->slots, sizeof *p->slots, &p->slot_room, p->slot_count));
        p->slots[p->slot_count] = p->slots[second->out[i].slot];
        fl_meta_ref(p->slots[p->slot_count].meta);
        out->operands[out->nin + i].slot = p->slot_count++;
    }
    for (int i = 0; i < out->nin + out->nout; i++)
        if (out->operands[i].slot >= 0) fl_meta_ref(out->operands[i].meta);
    return FL_OK;
}

/* As of step `from`, what `copy` makes is used in place of what it was copied from. */
static void rename_uses(const fl_program *program, int from, const struct second *second, const fl_step *copy)
{
    for (int n = from; n < program->step_count; n++) {
        const fl_step *step = &program->steps[n];
        for (int i = 0; i < step->nin + step->nout; i++)
            for (int k = 0; k < second->nout; k++)
                if (step->operands[i].slot == second->out[k].slot) {
                    step->operands[i].slot = copy->operands[copy->nin + k].slot;
                    break;
                }
    }
}

static fl_status run_again(const struct recompute *recompute, int n, int again)
{
    fl_program *p = recompute->program;
    struct second second;
    fl_step copy;
    second_of(&second, &p->steps[n]);
    FL_TRY(fl_program_reserve((void **)&p->steps, sizeof *p->steps, &p->step_room, p->step_count));
    FL_TRY(make_second(&copy, recompute, n, &second));
    rename_uses(p, again, &second, &copy);
    memmove(&p->steps[again + 1], &p->steps[again], sizeof *p->steps * (size_t)(p->step_count - again));
    p->steps[again] = copy;
    p->step_count++;
    return FL_OK;
}

static void find_fixed(const struct recompute *recompute)
{
    const fl_program *p = recompute->program;
    for (int i = 0; i < p->slot_count; i++) recompute->fixed[i] = p->slots[i].moved || fl_slot_is_outside(&p->slots[i]);
    for (int i = 0; i < p->result_count; i++)
        if (p->results[i].slot >= 0) recompute->fixed[p->results[i].slot] = true;
    for (int i = 0; i < p->leaf_count; i++)
        if (p->leaves[i].changes && p->leaves[i].after.slot >= 0) recompute->fixed[p->leaves[i].after.slot] = true;
}

/* Each step at most once: results of copies are not looked at. */
static fl_status lower_peak(const struct recompute *recompute)
{
    for (int count = 0; count < recompute->steps; count++) {
        int again = 0;
        find_lives(recompute);
        const int peak = find_peak(recompute);
        const int n = recompute->bytes[peak] < WORTH_IT ? -1 : choose(&again, recompute, peak);
        if (n < 0) return FL_OK;
        FL_TRY(run_again(recompute, n, again));
    }
    return FL_OK;
}

fl_status fl_pass_recompute(fl_program *program)
{
    const size_t steps = (size_t)program->step_count;
    size_t results = 0;
    for (size_t n = 0; n < steps; n++) results += (size_t)program->steps[n].nout;
    const size_t slots = (size_t)program->slot_count + results + 1;
    struct recompute r = {program,
                          malloc(slots * sizeof *r.lives),
                          calloc(slots, sizeof *r.fixed),
                          malloc((2 * steps + 1) * sizeof *r.bytes),
                          program->slot_count,
                          program->step_count};
    fl_status status = r.lives && r.fixed && r.bytes ? FL_OK : fl_program_out_of_memory();
    if (status == FL_OK) {
        find_fixed(&r);
        status = lower_peak(&r);
    }
    free(r.lives);
    free(r.fixed);
    free(r.bytes);
    return status;
}
