/*
** operand.c -- operands of a call while it is inferred: see operand.h.
*/
#include "operand.h"
#include "promote.h"

#include <stdio.h>

const char *fl_operand_name(char *buffer, const fl_op *op, int i)
{
    const fl_signature *s = fl_op_signature(op);
    const fl_param *param = NULL;
    for (int k = 0; k < s->param_count; k++)
        if (s->params[k].is_tensor && s->params[k].slot <= i) param = &s->params[k];
    if (!param) snprintf(buffer, FL_OPERAND_NAME, "operand %d", i + 1);
    else if (param->is_list) snprintf(buffer, FL_OPERAND_NAME, "%s[%d]", param->name, i - param->slot + 1);
    else snprintf(buffer, FL_OPERAND_NAME, "%s", param->name);
    return buffer;
}

fl_dtype fl_infer_promote_some(const fl_infer *infer, uint32_t operands)
{
    fl_promotion p = fl_promotion_begin();
    for (int i = 0; i < infer->nin; i++) {
        const fl_spec *s = &infer->in[i];
        if (s->kind == FL_NONE || (i < 32 && !(operands >> i & 1u))) continue;
        fl_promotion_add(&p, s->dtype, s->kind == FL_TENSOR ? fl_tier_of(s->shape.ndim) : FL_TIER_NUMBER);
    }
    return fl_promotion_end(&p);
}

fl_dtype fl_infer_promote(const fl_infer *infer) { return fl_infer_promote_some(infer, UINT32_MAX); }
