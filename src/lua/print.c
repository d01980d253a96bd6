/*
** print.c -- tensors as text: values aligned and summarised, then dtype, shape and where they are.
**
**     [[ 0.5000, -1.2500],
**      [ 3.0000,  0.0000]]
**     float32[2, 2] on cpu
**
** More than 1000 elements are summarised to three at each end of an axis. One number format serves the
** whole tensor: whole numbers as 1.0, four decimals, or four with an exponent when magnitudes differ much.
** Printing never communicates: of a global tensor it shows this rank's part.
*/
#include "binding.h"

#include <math.h>
#include <stdio.h>

enum { THRESHOLD = 1000, EDGE = 3, PRECISION = 4, LINE_WIDTH = 80, NUMBER_TEXT = 48 };

typedef struct printer {
    const fl_tensor *t;
    const int64_t *size;            /* local shape */
    int ndim;
    bool summarise;
    bool exponent, whole;           /* how floats are written */
    int width;                      /* of every number */
    luaL_Buffer *out;
} printer;

/* ---- one number ---- */

static int number_text(char *buffer, const printer *p, const void *at)
{
    fl_dtype dtype = p->t->meta->dtype;
    if (dtype == FL_BOOL) return snprintf(buffer, NUMBER_TEXT, "%s", *(const uint8_t *)at ? "true" : "false");
    if (!fl_dtype_is_float(dtype)) return snprintf(buffer, NUMBER_TEXT, "%lld", (long long)fl_lua_read_integer(dtype, at));
    double v = fl_lua_read_number(dtype, at);
    if (isnan(v)) return snprintf(buffer, NUMBER_TEXT, "nan");
    if (isinf(v)) return snprintf(buffer, NUMBER_TEXT, v > 0 ? "inf" : "-inf");
    if (p->exponent) return snprintf(buffer, NUMBER_TEXT, "%.*e", PRECISION, v);
    return snprintf(buffer, NUMBER_TEXT, "%.*f", p->whole ? 1 : PRECISION, v);
}

static const char *element_at(const printer *p, int64_t offset)
{
    return (const char *)p->t->storage->data + offset * (int64_t)fl_dtype_size(p->t->meta->dtype);
}

/* ---- which elements are shown ---- */

/* Position after i on this axis, skipping the middle. */
static int64_t next_shown(const printer *p, int axis, int64_t i)
{
    if (p->summarise && p->size[axis] > 2 * EDGE && i == EDGE - 1) return p->size[axis] - EDGE;
    return i + 1;
}

typedef struct float_range {
    double low, high;               /* smallest and largest magnitude that is finite and not zero */
    bool whole;
} float_range;

typedef void (*visitor)(printer *p, const void *at, void *context);

static void visit(printer *p, int axis, int64_t offset, visitor f, void *context)
{
    if (axis == p->ndim) {
        f(p, element_at(p, offset), context);
        return;
    }
    for (int64_t i = 0; i < p->size[axis]; i = next_shown(p, axis, i)) visit(p, axis + 1, offset + i * p->t->strides[axis], f, context);
}

static void note_range(printer *p, const void *at, void *context)
{
    float_range *r = context;
    double v = fabs(fl_lua_read_number(p->t->meta->dtype, at));
    if (!isfinite(v)) return;
    r->whole &= v == floor(v);
    if (v == 0) return;
    if (v < r->low) r->low = v;
    if (v > r->high) r->high = v;
}

static void note_width(printer *p, const void *at, void *context)
{
    char text[NUMBER_TEXT];
    int n = number_text(text, p, at);
    if (n > p->width) p->width = n;
}

/* Chooses the format of floats and the width of the columns. */
static void choose_format(printer *p)
{
    if (p->t->meta->local_numel == 0) return; /* a shape like [10^10, 0] has nothing to look at */
    if (fl_dtype_is_float(p->t->meta->dtype)) {
        float_range r = {INFINITY, 0, true};
        visit(p, 0, p->t->offset, note_range, &r);
        p->whole = r.whole && r.high < 1e8;
        p->exponent = r.high >= 1e8 || (!p->whole && r.high > 0 && (r.low < 1e-4 || r.high / r.low > 1e5));
    }
    visit(p, 0, p->t->offset, note_width, NULL);
}

/* ---- writing ---- */

static void add_spaces(luaL_Buffer *b, int n)
{
    while (n-- > 0) luaL_addchar(b, ' ');
}

/* The last axis: numbers in columns, wrapped at the width of a line. */
static void add_row(printer *p, int64_t offset, int indent)
{
    char text[NUMBER_TEXT];
    int axis = p->ndim - 1, per_line = (LINE_WIDTH - indent - 1) / (p->width + 2), on_line = 0;
    if (per_line < 1) per_line = 1;
    luaL_addchar(p->out, '[');
    for (int64_t i = 0; i < p->size[axis];) {
        if (on_line == per_line) {
            luaL_addchar(p->out, '\n');
            add_spaces(p->out, indent + 1);
            on_line = 0;
        }
        int n = number_text(text, p, element_at(p, offset + i * p->t->strides[axis]));
        add_spaces(p->out, p->width - n);
        luaL_addlstring(p->out, text, (size_t)n);
        on_line++;
        int64_t next = next_shown(p, axis, i);
        if (next < p->size[axis]) luaL_addstring(p->out, on_line < per_line || next != i + 1 ? ", " : ",");
        if (next != i + 1) {
            luaL_addstring(p->out, "..., ");
            on_line++;
        }
        i = next;
    }
    luaL_addchar(p->out, ']');
}

static void add_axis(printer *p, int axis, int64_t offset)
{
    if (axis == p->ndim - 1) {
        add_row(p, offset, axis);
        return;
    }
    luaL_addchar(p->out, '[');
    for (int64_t i = 0; i < p->size[axis];) {
        add_axis(p, axis + 1, offset + i * p->t->strides[axis]);
        int64_t next = next_shown(p, axis, i);
        if (next < p->size[axis]) {
            luaL_addchar(p->out, ',');
            for (int line = 0; line < p->ndim - 1 - axis; line++) luaL_addchar(p->out, '\n');
            add_spaces(p->out, axis + 1);
            if (next != i + 1) {
                luaL_addstring(p->out, "...,");
                for (int line = 0; line < p->ndim - 1 - axis; line++) luaL_addchar(p->out, '\n');
                add_spaces(p->out, axis + 1);
            }
        }
        i = next;
    }
    luaL_addchar(p->out, ']');
}

static void add_values(printer *p)
{
    char text[NUMBER_TEXT];
    if (p->t->meta->local_numel == 0) luaL_addstring(p->out, "[]");
    else if (p->ndim == 0) luaL_addlstring(p->out, text, (size_t)number_text(text, p, element_at(p, p->t->offset)));
    else add_axis(p, 0, p->t->offset);
}

/* Which part of a global tensor was shown, when it is not all of it. */
static void add_part(luaL_Buffer *b, const fl_meta *meta)
{
    char text[64];
    bool partial = false;
    for (int k = 0; k < meta->nd_sbp.n; k++) partial |= fl_sbp_is_partial(meta->nd_sbp.at[k]);
    int rank = fl_world_get()->rank;
    if (!meta->holds) {
        snprintf(text, sizeof text, "\nrank %d holds no part of it", rank);
        luaL_addstring(b, text);
    } else if (meta->local_numel != meta->numel) {
        snprintf(text, sizeof text, "\nshown is the part of rank %d: [", rank);
        luaL_addstring(b, text);
        for (int i = 0; i < meta->shape.ndim; i++) {
            snprintf(text, sizeof text, "%s%lld:%lld", i ? ", " : "", (long long)meta->window.start[i],
                     (long long)(meta->window.start[i] + meta->window.size[i]));
            luaL_addstring(b, text);
        }
        luaL_addchar(b, ']');
    }
    if (partial && meta->holds) luaL_addstring(b, meta->placement->count > 1 ? "\n(partial: the value combines what every rank holds)" : "");
}

static void add_about(luaL_Buffer *b, const fl_tensor *t)
{
    char text[FL_META_TEXT];
    const fl_placement *p = t->meta->placement;
    luaL_addstring(b, fl_meta_text(text, t->meta));
    if (t->meta->is_local) {
        snprintf(text, sizeof text, p->type == FL_CPU ? " on cpu" : p->device_index < 0 ? " on cuda" : " on cuda:%d", p->device_index);
        luaL_addstring(b, text);
    }
    const char *made_by = fl_autograd_node_name(t);
    if (made_by) {
        luaL_addstring(b, ", gradient through ");
        luaL_addstring(b, made_by);
    } else if (t->requires_grad) luaL_addstring(b, ", requires_grad");
    if (!t->meta->is_local) add_part(b, t->meta);
}

/* tostring(x) */
int fl_lua_tostring(lua_State *L)
{
    fl_tensor *t = fl_lua_check_tensor(L, 1, "tostring", "x");
    fl_box *box = fl_lua_new_box(L);
    luaL_Buffer b;
    printer p = {.out = &b};
    FL_CHECK(L, fl_lua_host_part(&box->tensor, t));
    p.t = box->tensor;
    p.size = fl_tensor_local_shape(p.t);
    p.ndim = p.t->meta->shape.ndim;
    p.summarise = p.t->meta->local_numel > THRESHOLD;
    choose_format(&p);
    luaL_buffinit(L, &b);
    add_values(&p);
    luaL_addstring(&b, p.ndim > 1 && p.t->meta->local_numel ? "\n" : "  ");
    add_about(&b, t);
    luaL_pushresult(&b);
    return 1;
}
