/*
** piece.c -- calls and values of pieces: kept, compared, freed.
*/
#include "piece.h"
#include "program_internal.h"

#include <stdlib.h>

static fl_status out_of_memory(void) { return fl_program_out_of_memory(); }

fl_piece *fl_piece_new(fl_piece *parent)
{
    fl_piece *p = calloc(1, sizeof *p);
    if (!p) return NULL;
    p->parent = parent;
    p->first = parent ? parent->first + parent->value_count : 0;
    return p;
}

static bool is_text(const fl_op *op, int slot)
{
    const fl_signature *s = fl_op_signature(op);
    for (int i = 0; i < s->param_count; i++)
        if (!s->params[i].is_tensor && s->params[i].slot == slot) return s->params[i].type == FL_ATTR_TEXT;
    return false;
}

static void attrs_free(fl_piece_call *call)
{
    for (int i = 0; call->attrs && i < call->attrs->count; i++)
        if (call->attrs->at[i].given && is_text(call->op, i)) free((char *)call->attrs->at[i].text);
    free(call->attrs);
}

static void call_free(fl_piece_call *call)
{
    attrs_free(call);
    free(call->in);
    free(call->out);
    free(call->leaves);
    free(call->turned);
}

void fl_piece_free(fl_piece *piece)
{
    if (!piece) return;
    for (fl_piece *next, *p = piece->child; p; p = next) {
        next = p->sibling;
        fl_piece_free(p);
    }
    for (int i = 0; i < piece->call_count; i++) call_free(&piece->calls[i]);
    for (int i = 0; i < piece->value_count; i++) {
        fl_tensor_unref(piece->values[i].outside);
        fl_meta_unref(piece->values[i].meta);
        fl_view_link_unref(piece->values[i].link);
        fl_tensor_unref(piece->values[i].view_base);
    }
    fl_program_free(piece->program);
    free(piece->calls);
    free(piece->values);
    free(piece->inputs);
    free(piece->results);
    free(piece);
}

fl_piece_value *fl_piece_value_of(fl_piece *piece, int id)
{
    while (id < piece->first) piece = piece->parent;
    return &piece->values[id - piece->first];
}

fl_status fl_piece_add_value(fl_piece *piece, const fl_piece_value *value)
{
    FL_TRY(fl_program_reserve((void **)&piece->values, sizeof *piece->values, &piece->value_room, piece->value_count));
    fl_piece_value *v = &piece->values[piece->value_count++];
    *v = *value;
    v->meta = fl_meta_ref(value->meta);
    if (value->outside) v->outside = fl_tensor_ref(value->outside);
    if (value->link) v->link = fl_view_link_ref(value->link);
    if (value->view_base) v->view_base = fl_tensor_ref(value->view_base);
    return FL_OK;
}

fl_status fl_piece_add_call(fl_piece_call **out, fl_piece *piece, fl_piece_kind kind, int nin, int nout)
{
    FL_TRY(fl_program_reserve((void **)&piece->calls, sizeof *piece->calls, &piece->call_room, piece->call_count));
    fl_piece_call *c = &piece->calls[piece->call_count];
    *c = (fl_piece_call){.kind = kind, .nin = nin, .nout = nout};
    c->in = calloc((size_t)nin + 1, sizeof *c->in);
    c->out = calloc((size_t)nout + 1, sizeof *c->out);
    if (!c->in || !c->out) {
        call_free(c);
        return out_of_memory();
    }
    piece->call_count++;
    *out = c;
    return FL_OK;
}

static size_t bytes_of(const fl_attrs *attrs)
{
    return offsetof(fl_attrs, at) + sizeof *attrs->at * (size_t)attrs->count;
}

fl_status fl_piece_keep_attrs(fl_piece_call *call, const fl_attrs *attrs)
{
    call->attrs = malloc(sizeof *call->attrs);
    if (!call->attrs) return out_of_memory();
    memcpy(call->attrs, attrs, bytes_of(attrs));
    for (int i = 0; i < attrs->count; i++) {
        if (!attrs->at[i].given || !is_text(call->op, i)) continue;
        call->attrs->at[i].text = strdup(attrs->at[i].text);
        if (!call->attrs->at[i].text) return out_of_memory();
    }
    return FL_OK;
}

/* Bits of the attributes that are values, not part of a plan's key. */
static uint32_t numbers_of(const fl_op *op)
{
    const fl_signature *s = fl_op_signature(op);
    uint32_t numbers = 0;
    for (int i = 0; i < s->param_count; i++) {
        const fl_param *p = &s->params[i];
        if (!p->is_tensor && p->is_value && p->slot >= 0 && p->type != FL_ATTR_TEXT) numbers |= 1u << p->slot;
    }
    return numbers;
}

bool fl_piece_has_attrs(const fl_piece_call *call, const fl_attrs *attrs)
{
    const fl_attrs *own = call->attrs;
    if (own->count != attrs->count) return false;
    if (FL_LIKELY(memcmp(own, attrs, bytes_of(own)) == 0)) return true;
    if (memcmp(own, attrs, offsetof(fl_attrs, at)) != 0) return false;
    const uint32_t numbers = call->live ? numbers_of(call->op) : 0;
    for (int i = 0; i < own->count; i++) {
        const fl_attr *a = &own->at[i], *b = &attrs->at[i];
        if (a->given != b->given || a->kind != b->kind || a->count != b->count) return false;
        if (!a->given || numbers >> i & 1) continue;
        if (is_text(call->op, i) ? strcmp(a->text, b->text) != 0 : memcmp(a, b, sizeof *a) != 0) return false;
    }
    return true;
}

void fl_piece_take_numbers(fl_piece_call *call, const fl_attrs *attrs)
{
    for (uint32_t left = numbers_of(call->op); left; left &= left - 1)
        call->attrs->at[__builtin_ctz(left)] = attrs->at[__builtin_ctz(left)];
}

static bool same_value(const fl_piece_value *a, const fl_piece_value *b)
{
    return a->outside == b->outside && a->meta == b->meta && a->base == b->base && a->offset == b->offset
        && a->requires_grad == b->requires_grad && a->has_node == b->has_node
        && memcmp(a->strides, b->strides, sizeof *a->strides * (size_t)a->meta->shape.ndim) == 0;
}

static bool same_call(const fl_piece_call *a, const fl_piece_call *b)
{
    if (a->kind != b->kind || a->op != b->op || a->in_place != b->in_place || a->grad_enabled != b->grad_enabled)
        return false;
    if (a->retain != b->retain || a->nin != b->nin || a->nout != b->nout || a->leaf_count != b->leaf_count)
        return false;
    for (int i = 0; i < a->nin; i++)
        if (a->in[i].kind != b->in[i].kind || (a->in[i].kind != FL_NONE && a->in[i].integer != b->in[i].integer))
            return false;
    if (memcmp(a->out, b->out, sizeof *a->out * (size_t)a->nout) != 0) return false;
    if (a->leaf_count && memcmp(a->leaves, b->leaves, sizeof *a->leaves * (size_t)a->leaf_count) != 0) return false;
    return a->past == b->past && (!a->attrs || fl_piece_has_attrs(a, b->attrs));
}

bool fl_piece_begins_alike(fl_piece *a, fl_piece *b, int count)
{
    if (a == b || count == 0) return true;
    if (a->call_count < count || b->call_count < count) return false;
    for (int i = 0; i < count; i++)
        if (!same_call(&a->calls[i], &b->calls[i])) return false;
    for (int i = 0; i < a->calls[count - 1].past - a->first; i++)
        if (!same_value(&a->values[i], &b->values[i])) return false;
    return true;
}
