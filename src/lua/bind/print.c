/*
** print.c -- tensors as text: values aligned and summarised, then dtype, shape and where they are.
**
**     [[ 0.5000, -1.2500],
**      [ 3.0000,  0.0000]]
**     float32[2, 2] on cpu
**
** More than 1000 elements are summarised to three at each end of an axis. One number format serves the
** whole tensor: whole numbers as 1.0, four decimals, or four with an exponent when magnitudes differ much.
** flow.set_printoptions changes these numbers, for all tensors of the process.
**
** A global tensor is printed whole, the same text on every rank, and of a summarised one only the shown elements move
** between ranks. So tostring of a global tensor is a collective of the whole world, as item is: every rank calls it. If
** nothing can be communicated (the dry world, flow.on_rank, "@2" in the session) the part of this rank is shown
** instead, and the text says so.
**
** A tensor on the meta device is its last line alone: float32[2, 2] on meta, no values
*/
#include "core/process.h"
#include "errors.h"
#include "members.h"
#include "tensors.h"

#include <math.h>
#include <stdio.h>

enum { NUMBER_TEXT = 384 }; /* DBL_MAX with the most decimals that set_printoptions takes, 64 */

static struct {
    double threshold; /* more elements are summarised */
    int64_t edge;     /* number shown at each end of an axis then */
    int precision;    /* decimals */
    int line_width;   /* in characters */
    enum { EXPONENT_NEVER, EXPONENT_ALWAYS, EXPONENT_BY_VALUES } exponent;
} style = {1000, 3, 4, 80, EXPONENT_BY_VALUES};

struct printer {
    const fl_tensor *t;  /* local, on the host */
    fl_dtype dtype;      /* of what is printed: packed booleans are bytes */
    const int64_t *size; /* shape of what is printed */
    int64_t numel;
    int ndim;
    bool summarise;
    bool packed;          /* t holds only the elements that are shown */
    bool exponent, whole; /* the format of floats */
    int width;            /* of every number */
    luaL_Buffer *out;
};

/* ---- one number ---- */

static int number_text(char *buffer, const struct printer *printer, const void *at)
{
    fl_dtype dtype = printer->dtype;
    if (dtype == FL_BOOL) return snprintf(buffer, NUMBER_TEXT, "%s", *(const uint8_t *)at ? "true" : "false");
    if (!fl_dtype_is_float(dtype))
        return snprintf(buffer, NUMBER_TEXT, "%lld", (long long)fl_lua_read_integer(dtype, at));
    double v = fl_lua_read_number(dtype, at);
    if (isnan(v)) return snprintf(buffer, NUMBER_TEXT, "nan");
    if (isinf(v)) return snprintf(buffer, NUMBER_TEXT, v > 0 ? "inf" : "-inf");
    locale_t before = uselocale(fl_locale_plain());
    int n = printer->exponent ? snprintf(buffer, NUMBER_TEXT, "%.*e", style.precision, v)
                              : snprintf(buffer, NUMBER_TEXT, "%.*f", printer->whole ? 1 : style.precision, v);
    uselocale(before);
    return n;
}

static const char *element_at(const struct printer *printer, int64_t offset)
{
    return (const char *)printer->t->storage->data + offset * (int64_t)fl_dtype_size(printer->t->meta->dtype);
}

/* ---- the elements that are shown ---- */

/* Position after i on this axis, skipping the middle. */
static int64_t next_shown(const struct printer *printer, int axis, int64_t i)
{
    if (printer->summarise && printer->size[axis] > 2 * style.edge && i == style.edge - 1)
        return printer->size[axis] - style.edge;
    return i + 1;
}

/* Steps of t's strides from the beginning of the axis to position i. */
static int64_t steps_to(const struct printer *printer, int axis, int64_t i)
{
    int64_t hidden = printer->packed && printer->size[axis] > 2 * style.edge ? printer->size[axis] - 2 * style.edge : 0;
    return i < style.edge ? i : i - hidden;
}

static int64_t offset_to(const struct printer *printer, int axis, int64_t i)
{
    return steps_to(printer, axis, i) * printer->t->strides[axis];
}

struct float_range {
    double low, high; /* smallest and largest magnitude that is finite and not zero */
    bool whole;
};

typedef void (*visitor)(struct printer *printer, const void *at, void *context);

static void visit(struct printer *printer, int axis, int64_t offset, visitor visit_one, void *context)
{
    if (axis == printer->ndim) {
        visit_one(printer, element_at(printer, offset), context);
        return;
    }
    for (int64_t i = 0; i < printer->size[axis]; i = next_shown(printer, axis, i))
        visit(printer, axis + 1, offset + offset_to(printer, axis, i), visit_one, context);
}

static void note_range(struct printer *printer, const void *at, void *context)
{
    struct float_range *r = context;
    double v = fabs(fl_lua_read_number(printer->dtype, at));
    if (!isfinite(v)) return;
    r->whole &= v == floor(v);
    if (v == 0) return;
    if (v < r->low) r->low = v;
    if (v > r->high) r->high = v;
}

static void note_width(struct printer *printer, const void *at, void *context)
{
    char text[NUMBER_TEXT];
    int n = number_text(text, printer, at);
    if (n > printer->width) printer->width = n;
}

/* Chooses the format of floats and the width of the columns. */
static void choose_format(struct printer *printer)
{
    if (printer->numel == 0) return; /* a shape like [10^10, 0] has nothing to look at */
    if (fl_dtype_is_float(printer->dtype)) {
        struct float_range r = {INFINITY, 0, true};
        visit(printer, 0, printer->t->offset, note_range, &r);
        bool differ = r.high >= 1e8 || (!r.whole && r.high > 0 && (r.low < 1e-4 || r.high / r.low > 1e5));
        printer->exponent = style.exponent == EXPONENT_BY_VALUES ? differ : style.exponent == EXPONENT_ALWAYS;
        printer->whole = r.whole && !printer->exponent;
    }
    visit(printer, 0, printer->t->offset, note_width, NULL);
}

/* ---- writing ---- */

static void add_spaces(luaL_Buffer *buffer, int n)
{
    while (n-- > 0) luaL_addchar(buffer, ' ');
}

/* The last axis: numbers in columns, wrapped at the width of a line. */
static void add_row(struct printer *printer, int64_t offset, int indent)
{
    char text[NUMBER_TEXT];
    int axis = printer->ndim - 1, per_line = (style.line_width - indent - 1) / (printer->width + 2), on_line = 0;
    if (per_line < 1) per_line = 1;
    luaL_addchar(printer->out, '[');
    for (int64_t i = 0; i < printer->size[axis];) {
        if (on_line == per_line) {
            luaL_addchar(printer->out, '\n');
            add_spaces(printer->out, indent + 1);
            on_line = 0;
        }
        int n = number_text(text, printer, element_at(printer, offset + offset_to(printer, axis, i)));
        add_spaces(printer->out, printer->width - n);
        luaL_addlstring(printer->out, text, (size_t)n);
        on_line++;
        int64_t next = next_shown(printer, axis, i);
        if (next < printer->size[axis]) luaL_addstring(printer->out, on_line < per_line || next != i + 1 ? ", " : ",");
        if (next != i + 1) {
            luaL_addstring(printer->out, "..., ");
            on_line++;
        }
        i = next;
    }
    luaL_addchar(printer->out, ']');
}

static void add_axis(struct printer *printer, int axis, int64_t offset)
{
    if (axis == printer->ndim - 1) {
        add_row(printer, offset, axis);
        return;
    }
    luaL_addchar(printer->out, '[');
    for (int64_t i = 0; i < printer->size[axis];) {
        add_axis(printer, axis + 1, offset + offset_to(printer, axis, i));
        int64_t next = next_shown(printer, axis, i);
        if (next < printer->size[axis]) {
            luaL_addchar(printer->out, ',');
            for (int line = 0; line < printer->ndim - 1 - axis; line++) luaL_addchar(printer->out, '\n');
            add_spaces(printer->out, axis + 1);
            if (next != i + 1) {
                luaL_addstring(printer->out, "...,");
                for (int line = 0; line < printer->ndim - 1 - axis; line++) luaL_addchar(printer->out, '\n');
                add_spaces(printer->out, axis + 1);
            }
        }
        i = next;
    }
    luaL_addchar(printer->out, ']');
}

static void add_values(struct printer *printer)
{
    char text[NUMBER_TEXT];
    if (printer->numel == 0) luaL_addstring(printer->out, "[]");
    else if (printer->ndim == 0)
        luaL_addlstring(printer->out, text,
                        (size_t)number_text(text, printer, element_at(printer, printer->t->offset)));
    else add_axis(printer, 0, printer->t->offset);
}

/* ---- the elements of a global tensor that are shown ---- */

/* True if this rank holds all of it. */
static bool is_whole(const fl_meta *meta)
{
    bool whole = meta->holds && meta->local_numel == meta->numel;
    for (int k = 0; k < meta->nd_sbp.n; k++)
        whole = whole && (!fl_sbp_is_partial(meta->nd_sbp.at[k]) || meta->placement->hierarchy[k] == 1);
    return whole;
}

/* Why nothing can be communicated here, NULL when it can. */
static const char *alone_because(void)
{
    if (fl_world_get()->size == 1) return NULL;
    return fl_world_get()->dry ? "a dry world"
        : fl_comm_refusal      ? fl_comm_refusal
        : fl_comm_get()        ? NULL
                               : "a process without transport";
}

/* Copies the shown elements of this rank's part: `from` points into the part, `to` into the packed tensor. */
struct packing {
    const fl_tensor *part;
    const fl_meta *whole, *packed;
    size_t item;
};

static void pack(const struct packing *packing, int axis, const char *from, char *to)
{
    if (axis == packing->whole->shape.ndim) {
        memcpy(to, from, packing->item);
        return;
    }
    int64_t n = packing->whole->shape.dims[axis], shown = packing->packed->shape.dims[axis];
    int64_t start = packing->whole->window.start[axis], end = start + packing->whole->window.size[axis];
    for (int64_t j = 0; j < shown; j++) {
        int64_t i = j < style.edge ? j : j + n - shown;
        if (i < start || i >= end) continue;
        pack(packing, axis + 1, from + (i - start) * packing->part->strides[axis] * (int64_t)packing->item,
             to + j * packing->packed->strides[axis] * (int64_t)packing->item);
    }
}

/* Fills the tensor with the neutral element of sums: -0.0 of floats (adding 0 would change -0.0), else 0. */
static void fill_neutral(fl_tensor *tensor, size_t item)
{
    char *p = fl_tensor_data(tensor);
    if (tensor->meta->local_numel > 0) memset(p, 0, item * (size_t)tensor->meta->local_numel);
    for (int64_t i = 0; fl_dtype_is_float(tensor->meta->dtype) && i < tensor->meta->local_numel; i++)
        p[(i + 1) * (int64_t)item - 1] = (char)0x80;
}

/* The meta of the shown elements: both ends of an axis; axes split over ranks are now sums over them. */
static fl_status packed_meta(const fl_meta **out, const fl_meta *meta)
{
    const fl_placement *host;
    fl_shape shape = meta->shape;
    fl_nd_sbp nd_sbp = meta->nd_sbp;
    for (int i = 0; i < shape.ndim; i++)
        if (shape.dims[i] > 2 * style.edge) shape.dims[i] = 2 * style.edge;
    for (int k = 0; k < nd_sbp.n; k++)
        if (fl_sbp_is_split(nd_sbp.at[k])) nd_sbp.at[k] = FL_PSUM;
    FL_TRY(fl_placement_on_cpu(&host, meta->placement));
    return fl_meta_get(out, meta->dtype == FL_BOOL ? FL_UINT8 : meta->dtype, &shape, host, nd_sbp, false);
}

/* A global tensor of the shown elements of the tensor, on the host. A value that is missing here is missing there: the
** boxing that follows fails on all ranks. */
static fl_status pack_shown(fl_tensor **out, fl_tensor *tensor)
{
    const fl_meta *meta;
    fl_tensor *packed = NULL, *part = NULL;
    FL_TRY(packed_meta(&meta, tensor->meta));
    fl_status status = fl_tensor_empty(&packed, meta);
    fl_meta_unref(meta);
    FL_TRY(status);
    size_t item = fl_dtype_size(tensor->meta->dtype);
    fill_neutral(packed, item);
    if (!tensor->meta->holds) status = FL_OK;
    else if ((status = fl_host_part(&part, tensor)) != FL_OK) fl_var_poison(&packed->storage->var, "tostring");
    else if (tensor->meta->local_numel > 0)
        pack(&(struct packing){part, tensor->meta, packed->meta, item}, 0, fl_tensor_data(part),
             fl_tensor_data(packed));
    fl_tensor_unref(part);
    *out = packed;
    return FL_OK;
}

/* Brings the elements that are printed to this rank's host. */
static fl_status fetch(fl_tensor **out, fl_tensor *tensor, bool packed)
{
    fl_tensor *shown = NULL;
    if (!packed) return fl_lua_host(out, tensor);
    FL_TRY(pack_shown(&shown, tensor));
    fl_status status = fl_lua_host(out, shown);
    fl_tensor_unref(shown);
    return status;
}

/* Adds the text that says which part of a global tensor was shown. */
static void add_part(luaL_Buffer *buffer, const fl_meta *meta, const char *because)
{
    char text[64];
    bool partial = false;
    for (int k = 0; k < meta->nd_sbp.n; k++)
        partial |= fl_sbp_is_partial(meta->nd_sbp.at[k]) && meta->placement->hierarchy[k] > 1;
    int rank = fl_world_get()->rank;
    snprintf(text, sizeof text, meta->holds ? "\nshown is the part of rank %d" : "\nrank %d holds no part of it", rank);
    luaL_addstring(buffer, text);
    if (meta->holds && meta->local_numel != meta->numel) luaL_addstring(buffer, ": [");
    for (int i = 0; meta->holds && meta->local_numel != meta->numel && i < meta->shape.ndim; i++) {
        snprintf(text, sizeof text, "%s%lld:%lld%s", i ? ", " : "", (long long)meta->window.start[i],
                 (long long)(meta->window.start[i] + meta->window.size[i]), i + 1 < meta->shape.ndim ? "" : "]");
        luaL_addstring(buffer, text);
    }
    if (partial && meta->holds) luaL_addstring(buffer, ", and the value combines what every rank holds");
    lua_pushfstring(buffer->L, " (nothing is communicated in %s)", because);
    luaL_addvalue(buffer);
}

/* because: why only this rank's part was shown, NULL when all was. */
static void add_about(luaL_Buffer *buffer, const fl_tensor *tensor, const char *because)
{
    char text[FL_META_TEXT];
    luaL_addstring(buffer, fl_meta_placed_text(text, tensor->meta));
    if (tensor->meta->placement->type == FL_META) luaL_addstring(buffer, ", no values");
    const char *made_by = fl_autograd_node_name(tensor);
    if (made_by) {
        luaL_addstring(buffer, ", gradient through ");
        luaL_addstring(buffer, made_by);
    } else if (tensor->requires_grad) luaL_addstring(buffer, ", requires_grad");
    if (because) add_part(buffer, tensor->meta, because);
}

static int meta_tostring(lua_State *L, const fl_tensor *tensor)
{
    luaL_Buffer b;
    luaL_buffinit(L, &b);
    add_about(&b, tensor, NULL);
    luaL_pushresult(&b);
    return 1;
}

/* tostring(x) */
int fl_lua_tostring(lua_State *L)
{
    fl_tensor *t = fl_lua_check_tensor(L, 1, "tostring", "x");
    if (t->meta->placement->type == FL_META) return meta_tostring(L, t);
    fl_box *box = fl_lua_new_box(L);
    luaL_Buffer b;
    struct printer p = {.out = &b, .dtype = t->meta->dtype, .ndim = t->meta->shape.ndim};
    const char *alone = t->meta->is_local ? NULL : alone_because();
    bool part = alone || t->meta->is_local;
    p.size = part ? t->meta->window.size : t->meta->shape.dims;
    p.numel = part ? t->meta->local_numel : t->meta->numel;
    p.summarise = (double)p.numel > style.threshold;
    p.packed = p.summarise && !part;
    FL_CHECK(L, part ? fl_host_part(&box->tensor, t) : fetch(&box->tensor, t, p.packed));
    p.t = box->tensor;
    choose_format(&p);
    luaL_buffinit(L, &b);
    add_values(&p);
    luaL_addstring(&b, p.ndim > 1 && p.numel ? "\n" : "  ");
    add_about(&b, t, alone && !is_whole(t->meta) ? alone : NULL);
    luaL_pushresult(&b);
    return 1;
}

/* _io.print_style([threshold, edge, precision, line width, exponent: true, false, nil]) -> the five that held */
int fl_lua_print_style(lua_State *L)
{
    bool sets = lua_gettop(L) > 0;
    lua_settop(L, 5);
    lua_pushnumber(L, style.threshold);
    lua_pushinteger(L, style.edge);
    lua_pushinteger(L, style.precision);
    lua_pushinteger(L, style.line_width);
    if (style.exponent == EXPONENT_BY_VALUES) lua_pushnil(L);
    else lua_pushboolean(L, style.exponent == EXPONENT_ALWAYS);
    if (!sets) return 5;
    style.threshold = luaL_checknumber(L, 1);
    style.edge = luaL_checkinteger(L, 2);
    style.precision = (int)luaL_checkinteger(L, 3);
    style.line_width = (int)luaL_checkinteger(L, 4);
    style.exponent = lua_isnil(L, 5) ? EXPONENT_BY_VALUES : lua_toboolean(L, 5) ? EXPONENT_ALWAYS : EXPONENT_NEVER;
    return 5;
}
