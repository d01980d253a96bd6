/*
** note.c -- what a rank's history keeps of an op: a hash of the plan and of the numbers that the plan does not know.
*/
#include "call.h"

#include <stdio.h>

/* "sum of float32[8, 4] S(0)": an op is identified by its inputs, or else by its results. */
void fl_call_word_plan(char *buffer, const void *what)
{
    const fl_plan *plan = what;
    char shape[FL_SHAPE_TEXT], sbp[FL_ND_SBP_TEXT];
    const fl_meta *m = NULL;
    for (int i = 0; i < plan->nin && !m; i++) m = plan->in[i];
    if (!m && plan->nout) m = plan->out[0];
    snprintf(buffer, FL_PAST_WHAT, "%s", plan->op->name);
    size_t n = strlen(buffer);
    if (m)
        snprintf(buffer + n, FL_PAST_WHAT - n, " of %s%s %s", fl_dtype_name(m->dtype), fl_shape_text(shape, &m->shape),
                 fl_nd_sbp_text(sbp, m->nd_sbp));
}

uint64_t fl_call_hash_operands(const fl_plan *plan, const fl_operand *in)
{
    uint64_t h = 0;
    for (uint64_t left = plan->number_operands; left; left &= left - 1)
        h = fl_hash_mix(h, (uint64_t)in[__builtin_ctzll(left)].integer);
    return h;
}

uint64_t fl_call_hash_attrs(uint64_t hash, uint32_t numbers, const fl_attrs *attrs)
{
    for (uint32_t left = numbers; left; left &= left - 1) {
        const fl_attr *a = &attrs->at[__builtin_ctz(left)];
        int i = 0;
        if (!a->given) continue;
        do hash = fl_hash_mix(hash, (uint64_t)a->list[i]);
        while (++i < a->count);
    }
    return hash;
}

uint64_t fl_call_hash_numbers(const fl_call *call)
{
    uint64_t hash = fl_call_hash_operands(call->plan, call->in);
    return call->plan->numbers ? fl_call_hash_attrs(hash, call->plan->numbers, call->attrs) : hash;
}
