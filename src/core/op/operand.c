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

/* ---- numbers as views ---- */

static const int64_t zeros[FL_MAX_NDIM];

void fl_view_of_number(fl_view *view, const fl_operand *operand, fl_dtype dtype)
{
    double number = operand->kind == FL_NUM_FLOAT ? operand->number : (double)operand->integer;
    int64_t integer = operand->kind == FL_NUM_FLOAT ? (int64_t)operand->number : operand->integer;
    view->data = view->scalar;
    view->dtype = dtype;
    view->ndim = 0;
    view->contiguous = true;
    view->size = view->stride = view->start = view->logical = zeros;
    view->numel = 1;
    switch (dtype) {
    case FL_FLOAT64: memcpy(view->scalar, &number, sizeof number); break;
    case FL_FLOAT32: {
        float f = (float)number;
        memcpy(view->scalar, &f, sizeof f);
        break;
    }
    case FL_FLOAT16: {
        fl_float16 h = fl_float16_from_float((float)number);
        memcpy(view->scalar, &h, sizeof h);
        break;
    }
    case FL_BFLOAT16: {
        fl_bfloat16 h = fl_bfloat16_from_float((float)number);
        memcpy(view->scalar, &h, sizeof h);
        break;
    }
    case FL_INT64: view->scalar[0] = integer; break;
    case FL_INT32: {
        int32_t i = (int32_t)integer;
        memcpy(view->scalar, &i, sizeof i);
        break;
    }
    case FL_BOOL: {
        uint8_t b = number != 0;
        memcpy(view->scalar, &b, sizeof b);
        break;
    }
    default: {
        uint8_t b = (uint8_t)integer;
        memcpy(view->scalar, &b, sizeof b);
        break;
    }
    }
}

fl_operand fl_number_of_view(const fl_view *view)
{
    union {
        double f64;
        float f32;
        fl_float16 f16;
        fl_bfloat16 bf16;
        int64_t i64;
        int32_t i32;
        uint8_t u8;
    } number;
    if (!view->data) return (fl_operand){FL_NONE, {0}};
    memcpy(&number, view->scalar, sizeof number);
    switch (view->dtype) {
    case FL_FLOAT64: return fl_of_number(number.f64);
    case FL_FLOAT32: return fl_of_number(number.f32);
    case FL_FLOAT16: return fl_of_number(fl_float16_to_float(number.f16));
    case FL_BFLOAT16: return fl_of_number(fl_bfloat16_to_float(number.bf16));
    case FL_INT64: return fl_of_integer(number.i64);
    case FL_INT32: return fl_of_integer(number.i32);
    default: return fl_of_integer(number.u8);
    }
}
