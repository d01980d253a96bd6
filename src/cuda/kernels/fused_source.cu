/*
** fused_source.cu -- the text of kernels that are compiled at run time, from the rows' own expressions.
**
** The shape decides the text; arguments are numbered in the order of slots and steps, here and in
** fl_fused_arguments_of alike: strides of the patterns, then what slots have, then the attributes of steps.
*/
#include "elementwise.h"
#include "fused.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- rows ---- */

/* The expressions for floats, integers and bool; macros in them stay as they are. */
static const char *const expressions[FL_EW_COUNT][3] = {
    {NULL},
#define EW(id, sig, shape, types, rule, cost, flags, sbp, f, i, b, ...) {#f, #i, #b},
#include "core/op/elementwise.def"
#undef EW
};

/* The number of attributes of a step: those that its expression names. */
static int attributes_of(const char *text)
{
    int count = 0;
    for (const char *at = text; *at; at++) {
        bool word = (at > text && (at[-1] == '_' || (at[-1] | 32) >= 'a')) || at[1] == '_' || (at[1] | 32) >= 'a';
        if (word) continue;
        if (*at == 'q') return 2;
        if (*at == 'p') count = 1;
    }
    return count;
}

static const char *expression_of(const fl_fused_shape *shape, const fl_fused_step *step)
{
    fl_dtype dtype = fl_fused_compute(shape, step);
    return expressions[step->row][fl_dtype_is_float(dtype) ? 0 : dtype == FL_BOOL ? 2 : 1];
}

/* ---- the shape ---- */

static bool is_constant(const fl_layout *layout, int pattern)
{
    for (int a = 0; a < layout->count; a++)
        if (layout->axes[a].stride[pattern]) return false;
    return true;
}

static bool is_linear(const fl_layout *layout, int pattern)
{
    int64_t expected = 1;
    for (int a = layout->count - 1; a >= 0; a--) {
        if (layout->axes[a].stride[pattern] != expected) return false;
        expected *= layout->axes[a].size;
    }
    return true;
}

static fl_fused_kind kind_of(const fl_tile_slot *slot, const fl_layout *layout)
{
    if (slot->is_result) return FL_FUSED_RESULT;
    if (!slot->data) return FL_FUSED_NUMBER;
    if (slot->pattern < 0 || is_constant(layout, slot->pattern)) return FL_FUSED_ONE;
    if (is_linear(layout, slot->pattern)) return FL_FUSED_LINEAR;
    return layout->axes[layout->count - 1].stride[slot->pattern] == 0 ? FL_FUSED_SPREAD : FL_FUSED_WALKED;
}

static char *address(const fl_tile_slot *slot, const int64_t *offset)
{
    int64_t elements = slot->is_result ? offset[0] : slot->pattern < 0 ? 0 : offset[slot->pattern];
    return slot->data + elements * (int64_t)fl_dtype_size(slot->stored);
}

/* True if the slot can be loaded or stored by groups of g neighbours. */
static bool takes_groups(const fl_fused_slot *own, const fl_tile_slot *slot, const fl_layout *layout,
                         const int64_t *offset, int64_t g)
{
    int64_t size = (int64_t)fl_dtype_size(slot->stored), unit = size * g < 16 ? size * g : 16;
    bool moves = own->kind == FL_FUSED_LINEAR || own->kind == FL_FUSED_WALKED || own->is_stored;
    if (!moves) return true;
    if ((uintptr_t)address(slot, offset) % (uintptr_t)unit) return false;
    if (own->kind != FL_FUSED_WALKED) return true;
    const fl_axis *last = &layout->axes[layout->count - 1];
    bool takes = last->stride[slot->pattern] == 1;
    for (int a = 0; a < layout->count - 1; a++) takes &= layout->axes[a].stride[slot->pattern] * size % unit == 0;
    return takes;
}

/* 16 bytes of the widest operand where all can be taken so, else single elements. */
static int group_of(const fl_fused_shape *shape, const fl_tiles *tiles, const fl_layout *layout, const int64_t *offset)
{
    int64_t widest = 1;
    for (int i = 0; i < shape->slot_count; i++) {
        const fl_fused_slot *own = &shape->slots[i];
        bool moves = own->kind == FL_FUSED_LINEAR || own->kind == FL_FUSED_WALKED || own->is_stored;
        int64_t size = (int64_t)fl_dtype_size((fl_dtype)own->stored);
        if (moves && size > widest) widest = size;
    }
    int64_t g = 16 / widest;
    if (shape->axes && layout->axes[layout->count - 1].size % g) return 1;
    for (int i = 0; i < shape->slot_count; i++)
        if (!takes_groups(&shape->slots[i], &tiles->slots[i], layout, offset, g)) return 1;
    return (int)g;
}

bool fl_fused_shape_of(fl_fused_shape *shape, const fl_tiles *tiles, const fl_layout *layout, const int64_t *offset)
{
    if (!is_linear(layout, 0)) return false;
    memset(shape, 0, sizeof *shape);
    shape->slot_count = (uint8_t)tiles->slot_count;
    shape->step_count = (uint8_t)tiles->step_count;
    for (int i = 0; i < tiles->step_count; i++) {
        const fl_tile_step *step = &tiles->steps[i];
        fl_fused_step *own = &shape->steps[i];
        own->row = step->row;
        own->nin = step->nin;
        own->out = step->out;
        for (int k = 0; k < step->nin; k++) own->in[k] = step->in[k];
        for (int k = 0; k < step->nin; k++) shape->slots[step->in[k]].kind = 1;
        shape->slots[step->out].kind = 1;
    }
    for (int i = 0; i < tiles->slot_count; i++) {
        const fl_tile_slot *slot = &tiles->slots[i];
        fl_fused_slot *own = &shape->slots[i];
        if (!own->kind) continue;
        own->kind = (uint8_t)kind_of(slot, layout);
        own->dtype = (uint8_t)slot->dtype;
        own->stored = (uint8_t)slot->stored;
        own->is_stored = slot->is_result && slot->data;
        if (own->kind != FL_FUSED_WALKED && own->kind != FL_FUSED_SPREAD) continue;
        own->pattern = (uint8_t)slot->pattern;
        shape->axes = (uint8_t)layout->count;
        shape->patterns = (uint8_t)tiles->pattern_count;
    }
    shape->group = (uint8_t)group_of(shape, tiles, layout, offset);
    return true;
}

/* ---- arguments ---- */

static bool value_add(fl_fused_arguments *arguments, int64_t bytes)
{
    if (arguments->values == FL_FUSED_VALUES) return false;
    arguments->bytes[arguments->values++] = bytes;
    return true;
}

/* An axis counts groups, and the strides of the last one are those of groups. */
static bool add_strides(fl_fused_arguments *arguments, const fl_fused_shape *shape, const fl_layout *layout)
{
    bool added = true;
    for (int p = 1; p < shape->patterns; p++)
        for (int a = 0; a < shape->axes; a++)
            added &= value_add(arguments, layout->axes[a].stride[p] * (a == shape->axes - 1 ? shape->group : 1));
    return added;
}

static void add_counts(fl_fused_arguments *arguments, const fl_fused_shape *shape, const fl_layout *layout)
{
    int64_t total = fl_layout_numel(layout);
    uint32_t *at = (uint32_t *)&arguments->bytes[arguments->values];
    *at++ = (uint32_t)(total / shape->group);
    *at++ = (uint32_t)(total % shape->group);
    for (int a = 0; a < shape->axes; a++, at += 3) {
        fl_division size = fl_division_of(layout->axes[a].size / (a == shape->axes - 1 ? shape->group : 1));
        memcpy(at, &size, sizeof size);
    }
}

bool fl_fused_arguments_of(fl_fused_arguments *arguments, const fl_fused_shape *shape, const fl_tiles *tiles,
                           const fl_layout *layout, const int64_t *offset)
{
    arguments->values = 0;
    bool fits = add_strides(arguments, shape, layout);
    for (int i = 0; i < shape->slot_count; i++) {
        const fl_fused_slot *own = &shape->slots[i];
        const fl_tile_slot *slot = &tiles->slots[i];
        fl_view number = {};
        number.dtype = slot->stored;
        number.scalar[0] = slot->number;
        if (own->kind == FL_FUSED_NUMBER) fits &= value_add(arguments, fl_cuda_number(&number, slot->dtype));
        else if (own->kind != FL_FUSED_UNUSED && (own->kind != FL_FUSED_RESULT || own->is_stored))
            fits &= value_add(arguments, (int64_t)(intptr_t)address(slot, offset));
    }
    for (int i = 0; i < shape->step_count; i++) {
        const fl_fused_step *step = &shape->steps[i];
        int count = step->row ? attributes_of(expression_of(shape, step)) : 0;
        for (int k = 0; k < count; k++)
            fits &= value_add(arguments,
                              fl_cuda_attribute(&tiles->steps[i].attributes[k], fl_fused_compute(shape, step)));
    }
    if (arguments->values == 0) fits &= value_add(arguments, 0);
    if (fits) add_counts(arguments, shape, layout);
    return fits;
}

/* ---- the text ---- */

struct text {
    char *data;
    size_t length, room;
    bool failed;
};

static void put(text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void put(text *text, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(text->data ? text->data + text->length : NULL, text->room - text->length, format, arguments);
    va_end(arguments);
    if (text->length + (size_t)length >= text->room && !text->failed) {
        size_t room = 2 * text->room + (size_t)length + 4096;
        char *data = (char *)realloc(text->data, room);
        text->failed = !data;
        if (!data) return;
        text->data = data;
        text->room = room;
        va_start(arguments, format);
        vsnprintf(text->data + text->length, text->room - text->length, format, arguments);
        va_end(arguments);
    }
    if (!text->failed) text->length += (size_t)length;
}

static const char *const types[FL_DTYPE_COUNT] = {"fl_flag", "uint8_t",       "int8_t", "int32_t", "int64_t",
                                                  "__half",  "__nv_bfloat16", "float",  "double"};

/* Of the values that a row computes with. */
static const char *wide_type(fl_dtype dtype) { return dtype == FL_BOOL ? "uint8_t" : types[dtype]; }

/* The first arguments of slots and steps. */
struct places {
    int slot[FL_FUSED_SLOTS], step[FL_FUSED_STEPS], count;
};

static void number_arguments(places *places, const fl_fused_shape *shape)
{
    places->count = shape->patterns ? (shape->patterns - 1) * shape->axes : 0;
    for (int i = 0; i < shape->slot_count; i++) {
        const fl_fused_slot *slot = &shape->slots[i];
        places->slot[i] = places->count;
        places->count += slot->kind != FL_FUSED_UNUSED && (slot->kind != FL_FUSED_RESULT || slot->is_stored);
    }
    for (int i = 0; i < shape->step_count; i++) {
        const fl_fused_step *step = &shape->steps[i];
        places->step[i] = places->count;
        places->count += step->row ? attributes_of(expression_of(shape, step)) : 0;
    }
    if (places->count == 0) places->count = 1;
}

static void write_rows(text *text, const fl_fused_shape *shape)
{
    for (int i = 0; i < shape->step_count; i++) {
        const fl_fused_step *step = &shape->steps[i];
        if (!step->row) continue;
        fl_dtype dtype = fl_fused_compute(shape, step);
        put(text, "FL_ROW(row%d, %s, %s, %s)\n", i, wide_type(dtype),
            fl_dtype_size(dtype) < 8 ? "uint32_t" : "uint64_t", expression_of(shape, step));
    }
}

static bool is_in_memory(const fl_fused_slot *slot)
{
    return slot->kind == FL_FUSED_ONE || slot->kind == FL_FUSED_LINEAR || slot->kind == FL_FUSED_WALKED
        || slot->kind == FL_FUSED_SPREAD;
}

static bool is_group(const fl_fused_slot *slot)
{
    return slot->kind == FL_FUSED_LINEAR || slot->kind == FL_FUSED_WALKED;
}

static void write_loaded(text *text, const fl_fused_shape *shape)
{
    put(text, "    template<int G> struct loaded {\n");
    for (int i = 0; i < shape->slot_count; i++)
        if (is_in_memory(&shape->slots[i]))
            put(text, "        fl_group<%s, %s> s%d;\n", types[shape->slots[i].stored],
                is_group(&shape->slots[i]) ? "G" : "1", i);
    put(text, "    };\n");
}

/* The element where a slot's group begins: " + at[0] * j.value[0] + at[1] * j.value[1]". */
static void write_place(text *text, const fl_fused_shape *shape, const fl_fused_slot *slot)
{
    if (slot->kind == FL_FUSED_ONE) put(text, "0");
    else if (slot->kind == FL_FUSED_LINEAR) put(text, "element");
    else
        for (int a = 0; a < shape->axes; a++)
            put(text, "%sat[%d] * j.value[%d]", a ? " + " : "", a, (slot->pattern - 1) * shape->axes + a);
}

static void write_load(text *text, const fl_fused_shape *shape, const places *places)
{
    put(text,
        "    template<int G> __device__ static void load(loaded<G> &o, const job &j, const uint32_t *at,\n"
        "                                              int64_t element)\n    {\n"
        "        (void)o, (void)at, (void)element;\n");
    for (int i = 0; i < shape->slot_count; i++) {
        const fl_fused_slot *slot = &shape->slots[i];
        if (!is_in_memory(slot)) continue;
        put(text, "        fl_group_load(o.s%d, j.value[%d], ", i, places->slot[i]);
        write_place(text, shape, slot);
        put(text, ");\n");
    }
    put(text, "    }\n");
}

/* Writes the code that gives steps the value of an operand for element n. */
static void write_operand(text *text, const fl_fused_shape *shape, const places *places, int i)
{
    const fl_fused_slot *slot = &shape->slots[i];
    const char *type = types[slot->dtype];
    if (slot->kind == FL_FUSED_NUMBER)
        put(text, "            const %s v%d = fl_number<%s>(j.value[%d]);\n", type, i, type, places->slot[i]);
    else if (is_in_memory(slot))
        put(text, "            const %s v%d = fl_convert<%s>(e%d.at[%s]);\n", type, i, type, i,
            is_group(slot) ? "n" : "0");
}

static void write_step(text *text, const fl_fused_shape *shape, const places *places, int i)
{
    const fl_fused_step *step = &shape->steps[i];
    const char *to = types[shape->slots[step->out].dtype];
    if (!step->row) {
        put(text, "            const %s v%d = fl_convert<%s>(v%d);\n", to, step->out, to, step->in[0]);
        return;
    }
    fl_dtype compute = fl_fused_compute(shape, step);
    int attributes = attributes_of(expression_of(shape, step));
    bool is_bool = shape->slots[step->out].dtype == FL_BOOL;
    put(text, "            const %s v%d = fl_store<%s>(%srow%d(", to, step->out, to, is_bool ? "(uint8_t)(0 != " : "",
        i);
    for (int k = 0; k < FL_EW_MAX_IN; k++)
        if (k < step->nin) put(text, "(%s)fl_load(v%d), ", wide_type(compute), step->in[k]);
        else put(text, "0, ");
    for (int k = 0; k < FL_EW_ATTRS; k++) {
        const char *end = k == FL_EW_ATTRS - 1 ? ")" : ", ";
        if (k < attributes) put(text, "fl_number<%s>(j.value[%d])%s", wide_type(compute), places->step[i] + k, end);
        else put(text, "0%s", end);
    }
    put(text, "%s);\n", is_bool ? ")" : "");
}

static void write_compute(text *text, const fl_fused_shape *shape, const places *places)
{
    put(text,
        "    template<int G> __device__ static void compute(const loaded<G> &o, const job &j, int64_t element)\n    {\n"
        "        (void)o;\n");
    for (int i = 0; i < shape->slot_count; i++) {
        const fl_fused_slot *slot = &shape->slots[i];
        if (is_in_memory(slot)) put(text, "        const auto e%d = fl_group_elements(o.s%d);\n", i, i);
        if (slot->is_stored) put(text, "        fl_pack<%s, G> r%d;\n", types[slot->stored], i);
    }
    put(text, "#pragma unroll\n        for (int n = 0; n < G; n++) {\n");
    for (int i = 0; i < shape->slot_count; i++) write_operand(text, shape, places, i);
    for (int i = 0; i < shape->step_count; i++) {
        write_step(text, shape, places, i);
        int out = shape->steps[i].out;
        if (shape->slots[out].is_stored) put(text, "            r%d.at[n] = v%d;\n", out, out);
    }
    put(text, "        }\n");
    for (int i = 0; i < shape->slot_count; i++)
        if (shape->slots[i].is_stored)
            put(text, "        fl_pack_store((%s *)j.value[%d] + element, r%d);\n", types[shape->slots[i].stored],
                places->slot[i], i);
    put(text, "    }\n");
}

char *fl_fused_source(const fl_fused_shape *shape)
{
    text t = {};
    places p;
    number_arguments(&p, shape);
    put(&t,
        "#ifdef __CUDACC_RTC__\nenum { FL_EW_DIVISION_BY_ZERO = %d, FL_EW_NEGATIVE_POWER = %d };\n#endif\n"
        "#include \"cuda/kernels/fused.cuh\"\n\n",
        FL_EW_DIVISION_BY_ZERO, FL_EW_NEGATIVE_POWER);
    write_rows(&t, shape);
    put(&t, "\ntypedef fl_fused_job<%d, %d> job;\nstruct steps {\n", p.count, shape->axes);
    write_loaded(&t, shape);
    write_load(&t, shape, &p);
    write_compute(&t, shape, &p);
    put(&t,
        "};\n\nextern \"C\" __global__ void __launch_bounds__(FL_FUSED_THREADS) fl_fused(const __grid_constant__ job "
        "j)\n"
        "{\n    fl_fused_run<steps, %d>(j);\n}\n",
        shape->group);
    if (t.failed) free(t.data);
    return t.failed ? NULL : t.data;
}
