/*
** activation.c -- a product and the activation of its result are one step, which applies it while the product's rows
** lie in the cache: relu, and gelu of floats that are not rounded to 16 bits in between.
*/
#include "memory/device.h"
#include "op/product.h"
#include "passes.h"

#include <stdlib.h>
#include <string.h>

/* The op that replaces the linear step and the activation; NULL: none. */
static const fl_op *joined_op(const fl_step *activation)
{
    fl_dtype dtype = activation->operands[activation->nin].meta->dtype;
    if (activation->op == FL_OP_REF(relu)) return FL_OP_REF(linear_relu);
    if (activation->op == FL_OP_REF(gelu) && fl_dtype_compute(dtype) == dtype) return FL_OP_REF(linear_gelu_kept);
    return NULL;
}

static bool is_kernel(const fl_step *step) { return step->kind == FL_STEP_KERNEL || step->kind == FL_STEP_FLAT; }

/* The activation of all of a product that nothing writes again, in place of the step that makes it: its number, or -1.
** made: by slot, the step that writes it; -1: none, or several. */
static int product_of(const fl_program *program, const fl_step *step, const int *made)
{
    if (!is_kernel(step) || step->nin != 1 || step->nout != 1 || !joined_op(step)) return -1;
    const fl_program_operand *x = &step->operands[0], *y = &step->operands[1];
    if (x->slot < 0 || x->written || !y->whole || made[x->slot] < 0) return -1;
    const fl_step *product = &program->steps[made[x->slot]];
    if (!is_kernel(product) || product->op != FL_OP_REF(linear) || product->device != step->device) return -1;
    const fl_program_operand *z = &product->operands[product->nin];
    return z->meta == x->meta && x->offset == 0 && memcmp(z->strides, x->strides, sizeof *x->strides * FL_MAX_NDIM) == 0
        ? made[x->slot]
        : -1;
}

/* The activated result alone. */
static void join_relu(fl_step *product, const fl_step *activation)
{
    fl_program_operand *out = &product->operands[product->nin];
    fl_meta_unref(out->meta);
    *out = activation->operands[activation->nin];
    fl_meta_ref(out->meta);
    product->kernel.out = activation->kernel.out;
}

/* The activated result and the product before it, which gradients need. */
static fl_status join_gelu(fl_program *program, fl_step *product, const fl_step *activation)
{
    int nin = product->nin;
    fl_program_operand *operands = fl_program_take(program, sizeof *operands * (size_t)(nin + 2));
    fl_view *out = fl_program_take(program, 2 * sizeof *out);
    fl_attrs *attrs = fl_program_take(program, sizeof *attrs);
    if (!operands || !out || !attrs) return fl_program_out_of_memory();
    memcpy(operands, product->operands, sizeof *operands * (size_t)nin);
    operands[nin + FL_ACTIVATED] = activation->operands[activation->nin];
    fl_meta_ref(operands[nin + FL_ACTIVATED].meta);
    operands[nin + FL_GELU_KEPT] = product->operands[nin];
    out[FL_ACTIVATED] = activation->kernel.out[0];
    out[FL_GELU_KEPT] = product->kernel.out[0];
    fl_attrs_init(attrs, FL_OP_REF(linear_gelu_kept));
    attrs->at[FL_GELU_APPROXIMATE] = activation->kernel.attrs->at[FL_GELU_APPROXIMATE];
    product->operands = operands;
    product->nout = product->kernel.nout = 2;
    product->kernel.out = out;
    product->kernel.attrs = attrs;
    return FL_OK;
}

static fl_status join(fl_program *program, fl_step *product, fl_step *activation)
{
    const fl_op *op = joined_op(activation);
    fl_kernel_fn run = op->cpu;
    if (product->device) FL_TRY(fl_device_kernel_of(&run, product->operands[product->nin].meta->placement->type, op));
    if (!run) return FL_OK;
    if (op == FL_OP_REF(linear_relu)) join_relu(product, activation);
    else FL_TRY(join_gelu(program, product, activation));
    product->op = op;
    fl_kernel_set_op(&product->kernel, op);
    product->run = run;
    fl_step_forget(activation);
    return FL_OK;
}

/* By slot: the step that writes it; -1: none, or several. */
static void find_makers(const fl_program *program, int *made)
{
    for (int i = 0; i < program->slot_count; i++) made[i] = -1;
    for (int n = 0; n < program->step_count; n++)
        for (int i = 0; i < program->steps[n].nin + program->steps[n].nout; i++) {
            const fl_program_operand *o = &program->steps[n].operands[i];
            if (o->slot >= 0 && o->written) made[o->slot] = made[o->slot] == -1 ? n : -2;
        }
}

fl_status fl_pass_activation(fl_program *program)
{
    size_t slots = (size_t)program->slot_count + 1;
    int *made = malloc(slots * sizeof *made), *uses = calloc(slots, sizeof *uses);
    fl_status status = made && uses ? FL_OK : fl_program_out_of_memory();
    if (status == FL_OK) {
        find_makers(program, made);
        fl_pass_count_uses(program, uses);
    }
    for (int n = 0; n < program->step_count && status == FL_OK; n++) {
        fl_step *step = &program->steps[n];
        int product = product_of(program, step, made);
        bool alone = product >= 0 && uses[step->operands[0].slot] == 2; /* the product's and this one */
        if (product < 0 || alone != (step->op == FL_OP_REF(relu))) continue;
        status = join(program, &program->steps[product], step);
    }
    free(made);
    free(uses);
    return status;
}
