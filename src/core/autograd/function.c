/*
** function.c -- see function.h. The node's operands are the inputs and behind them what was saved and is no result; a
** saved value has the edge that it has as an input, so gradients of gradients reach it.
*/
#include "dispatch/answer.h"
#include "tape.h"

#include <assert.h>
#include <stdlib.h>

/* The op of these nodes: never dispatched. */
FL_OP(autograd_function) = {
    .name = "autograd_function",
    .sig = "autograd_function()",
    .doc = "A function with a backward of its own.",
    .nout = 1,
    .flags = FL_OP_HIDDEN,
};

const char *fl_tape_node_name(const fl_node *node)
{
    return node->function ? node->function->calls.name : node->op->name;
}

void fl_tape_function_free(fl_tape_function *function)
{
    function->calls.release(function->calls.context);
    free(function);
}

static int position_of(const fl_tensor *tensor, fl_tensor *const *list, int count)
{
    for (int i = 0; i < count; i++)
        if (list[i] == tensor) return i;
    return -1;
}

static uint32_t bit(int i) { return 1u << (i < 31 ? i : 31); }

fl_status fl_autograd_function(fl_tensor *const *out, int nout, fl_tensor *const *in, int nin, fl_tensor *const *saved,
                               int saved_count, const fl_function *calls)
{
    FL_TRY(fl_answer_stop());
    fl_tape_function *function = malloc(sizeof *function + sizeof *function->saved * (size_t)saved_count);
    fl_operand *operands = malloc(sizeof *operands * (size_t)(nin + saved_count));
    if (!function || !operands) {
        free(function);
        free(operands);
        calls->release(calls->context);
        return fl_fail(FL_ERR_MEMORY, "%s: out of memory for the tape", calls->name);
    }
    assert(nout <= FL_MAX_OUT);
    *function = (fl_tape_function){.calls = *calls, .inputs = nin, .saved_count = saved_count};
    tape_saves saves = {0, 0};
    int count = nin;
    for (int i = 0; i < nin; i++) operands[i] = fl_of(in[i]);
    for (int i = 0; i < saved_count; i++) {
        int result = position_of(saved[i], out, nout);
        if (result >= 0) saves.out |= bit(result);
        else saves.in |= bit(count);
        function->saved[i] = result >= 0 ? -1 - result : count;
        if (result < 0) operands[count++] = fl_of(saved[i]);
    }
    fl_status status = fl_tape_record_function(FL_OP_REF(autograd_function), function, operands, count, out, nout,
                                               saves);
    free(operands);
    return status;
}

fl_status fl_tape_function_gradient(fl_grad *g, const fl_tape_function *function)
{
    fl_tensor *gout[FL_MAX_OUT] = {NULL}, *few[16], **saved = few;
    fl_status status = FL_OK;
    if (function->saved_count > 16 && !(saved = malloc(sizeof *saved * (size_t)function->saved_count)))
        return fl_fail(FL_ERR_MEMORY, "backward: out of memory for %s", function->calls.name);
    for (int i = 0; i < function->saved_count; i++) {
        int at = function->saved[i];
        saved[i] = at < 0 ? g->out[-1 - at] : g->in[at].tensor;
    }
    for (int i = 0; i < g->nout && status == FL_OK; i++) {
        if (g->gout[i]) gout[i] = fl_tensor_ref(g->gout[i]);
        else status = fl_vjp_zeros(&gout[i], g->out_meta[i]);
    }
    fl_function_grad call = {.gout = gout,
                             .nout = g->nout,
                             .saved = saved,
                             .saved_count = function->saved_count,
                             .gin = g->gin,
                             .need = g->need,
                             .in_meta = g->in_meta,
                             .nin = function->inputs};
    fl_answer_hooked = true;
    if (status == FL_OK) status = function->calls.backward(&call, function->calls.context);
    for (int i = 0; i < g->nout; i++) fl_tensor_unref(gout[i]);
    if (saved != few) free(saved);
    return status;
}
