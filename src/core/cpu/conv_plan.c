/*
** conv_plan.c -- oneDNN's convolutions: see conv_plan.h.
**
** The library is opened on demand, and nothing of it is needed to build: its functions and numbers are declared here.
** Versions 2 and 3 differ in how a convolution is described, and agree in all else that is used. A description of
** memory is a struct in the former and a pointer in the latter; both are handed on by pointer.
**
** Making a plan takes about a millisecond, so plans are kept.
*/
#include "conv_plan.h"
#include "onednn.h"

#include <dlfcn.h>
#include <stdlib.h>

/* The library's numbers, the same in both versions. */
enum { FLOAT32 = 3, ANY_LAYOUT = 1, ENGINE_CPU = 1, ALGORITHM_DIRECT = 1, SCRATCHPAD_USER = 1 };
enum { FORWARD = 64, BACKWARD_DATA = 160, BACKWARD_WEIGHTS = 192 };
enum { QUERY_NAME = 8, QUERY_SCRATCHPAD = 136 };
enum { AT_BIAS = 41, AT_SCRATCHPAD = 80 };
enum { MAX_AXES = 12 };
enum { QUERY_SRC = 129, QUERY_DIFF_SRC, QUERY_WEIGHTS, QUERY_DIFF_WEIGHTS, QUERY_DST, QUERY_DIFF_DST };
enum { AT_SRC = 1, AT_DST = 17, AT_WEIGHTS = 33, AT_DIFF_SRC = 129, AT_DIFF_DST = 145, AT_DIFF_WEIGHTS = 161 };

/* Names by fl_conv_sum and side. */
static const int QUERY[3][FL_CONV_SIDES] = {{QUERY_SRC, QUERY_WEIGHTS, QUERY_DST},
                                            {QUERY_DIFF_SRC, QUERY_WEIGHTS, QUERY_DIFF_DST},
                                            {QUERY_SRC, QUERY_DIFF_WEIGHTS, QUERY_DIFF_DST}};
static const int ARGUMENT[3][FL_CONV_SIDES] = {{AT_SRC, AT_WEIGHTS, AT_DST},
                                               {AT_DIFF_SRC, AT_WEIGHTS, AT_DIFF_DST},
                                               {AT_SRC, AT_DIFF_WEIGHTS, AT_DIFF_DST}};

struct argument {
    int what;
    void *memory;
};

/* Functions of both versions: field, result, arguments. All give 0 unless said otherwise. */
#define FUNCTIONS(X)                                                                                     \
    X(engine_create, int, (void **engine, int kind, size_t index))                                       \
    X(stream_create, int, (void **stream, void *engine, unsigned flags))                                 \
    X(stream_destroy, int, (void *stream))                                                               \
    X(memory_create, int, (void **memory, const void *md, void *engine, void *at))                       \
    X(memory_destroy, int, (void *memory))                                                               \
    X(memory_set_data_handle, int, (void *memory, void *at))                                             \
    X(memory_desc_equal, int, (const void *a, const void *b))                                            \
    X(memory_desc_get_size, size_t, (const void *md))                                                    \
    X(primitive_attr_create, int, (void **attr))                                                         \
    X(primitive_attr_destroy, int, (void *attr))                                                         \
    X(primitive_attr_set_scratchpad_mode, int, (void *attr, int mode))                                   \
    X(primitive_desc_destroy, int, (void *pd))                                                           \
    X(primitive_desc_query, int, (const void *pd, int what, int index, void *result))                    \
    X(primitive_desc_query_md, const void *, (const void *pd, int what, int index))                      \
    X(primitive_create, int, (void **primitive, const void *pd))                                         \
    X(primitive_destroy, int, (void *primitive))                                                         \
    X(primitive_execute, int, (const void *primitive, void *stream, int count, const struct argument *)) \
    X(reorder_primitive_desc_create, int,                                                                \
      (void **pd, const void *from, void *from_engine, const void *to, void *to_engine, const void *attr))

/* Those of one version: describing memory and convolutions. `first` of version 2 is a struct to be filled. */
#define DESCRIBE (void *md, int axes, const int64_t *sizes, int dtype, int layout)
#define DESCRIBE_STRIDES (void *md, int axes, const int64_t *sizes, int dtype, const int64_t *strides)
#define WINDOW const int64_t *strides, const int64_t *dilations, const int64_t *before, const int64_t *after
#define FUNCTIONS_2(X)                                                                                        \
    X(memory_desc_init_by_tag, int, DESCRIBE)                                                                 \
    X(memory_desc_init_by_strides, int, DESCRIBE_STRIDES)                                                     \
    X(dilated_convolution_forward_desc_init, int,                                                             \
      (void *d, int kind, int algorithm, const void *x, const void *w, const void *b, const void *y, WINDOW)) \
    X(dilated_convolution_backward_data_desc_init, int,                                                       \
      (void *d, int algorithm, const void *x, const void *w, const void *y, WINDOW))                          \
    X(dilated_convolution_backward_weights_desc_init, int,                                                    \
      (void *d, int algorithm, const void *x, const void *w, const void *b, const void *y, WINDOW))           \
    X(primitive_desc_create, int, (void **pd, const void *d, const void *attr, void *engine, const void *hint))
#define FUNCTIONS_3(X)                                                                                                \
    X(memory_desc_create_with_tag, int, DESCRIBE)                                                                     \
    X(memory_desc_create_with_strides, int, DESCRIBE_STRIDES)                                                         \
    X(memory_desc_destroy, int, (void *md))                                                                           \
    X(convolution_forward_primitive_desc_create, int,                                                                 \
      (void **pd, void *engine, int kind, int algorithm, const void *x, const void *w, const void *b, const void *y,  \
       WINDOW, const void *attr))                                                                                     \
    X(convolution_backward_data_primitive_desc_create, int,                                                           \
      (void **pd, void *engine, int algorithm, const void *x, const void *w, const void *y, WINDOW, const void *hint, \
       const void *attr))                                                                                             \
    X(convolution_backward_weights_primitive_desc_create, int,                                                        \
      (void **pd, void *engine, int algorithm, const void *x, const void *w, const void *b, const void *y, WINDOW,    \
       const void *hint, const void *attr))

#define FIELD(name, result, arguments) result(*name) arguments;
static struct {
    FUNCTIONS(FIELD)
} lib;
static struct {
    FUNCTIONS_2(FIELD)
} v2;
static struct {
    FUNCTIONS_3(FIELD)
} v3;
static void *engine, *attr; /* attr: scratch memory is the caller's */
static bool version_3;

#define NAME(name, result, arguments) "dnnl_" #name,
static const char *const names[] = {FUNCTIONS(NAME)}, *const names_2[] = {FUNCTIONS_2(NAME)},
                         *const names_3[] = {FUNCTIONS_3(NAME)};

static bool find_all(void *table, const char *const *all, size_t bytes)
{
    for (size_t i = 0; i < bytes / sizeof *all; i++) {
        void *found = dlsym(fl_onednn_library(), all[i]);
        if (!found) return false;
        memcpy((char *)table + i * sizeof found, &found, sizeof found);
    }
    return true;
}

static bool open_library(void)
{
    if (!fl_onednn_library() || !find_all(&lib, names, sizeof names)) return false;
    version_3 = find_all(&v3, names_3, sizeof names_3);
    if (!version_3 && !find_all(&v2, names_2, sizeof names_2)) return false;
    fl_onednn_serial();
    if (lib.engine_create(&engine, ENGINE_CPU, 0) != 0 || lib.primitive_attr_create(&attr) != 0) return false;
    return lib.primitive_attr_set_scratchpad_mode(attr, SCRATCHPAD_USER) == 0;
}

static bool is_open(void)
{
    static bool tried, open;
    if (!tried) open = open_library();
    tried = true;
    return open;
}

/* ---- descriptions of memory ---- */

/* at: the address that the library takes. */
struct description {
    _Alignas(64) char room[2048]; /* version 2: 696 bytes */
    void *at;
};

/* strides NULL: the library chooses the layout. */
static bool describe(struct description *description, int axes, const int64_t *sizes, const int64_t *strides)
{
    description->at = version_3 ? NULL : description->room;
    void *into = version_3 ? (void *)&description->at : description->room;
    if (strides)
        return (version_3 ? v3.memory_desc_create_with_strides : v2.memory_desc_init_by_strides)(into, axes, sizes,
                                                                                                 FLOAT32, strides)
            == 0;
    return (version_3 ? v3.memory_desc_create_with_tag : v2.memory_desc_init_by_tag)(into, axes, sizes, FLOAT32,
                                                                                     ANY_LAYOUT)
        == 0;
}

static void forget(struct description *description)
{
    if (version_3 && description->at) v3.memory_desc_destroy(description->at);
    description->at = NULL;
}

struct fl_conv_plan_own {
    struct description plain[FL_CONV_SIDES], any[FL_CONV_SIDES], bias;
    void *hint, *desc, *primitive;
    const void *scratch;
    uint64_t used; /* when */
};

/* Sizes and strides of an operand of a part: without axes of depth where there are none. */
struct layout {
    int axes;
    int64_t sizes[MAX_AXES], strides[MAX_AXES];
};

static void push_axis(struct layout *layout, int64_t size, int64_t stride)
{
    layout->sizes[layout->axes] = size;
    layout->strides[layout->axes++] = stride;
}

static bool has_depth(const fl_conv *conv)
{
    const fl_window_geometry *w = &conv->window;
    return conv->x_size[0] > 1 || conv->y_size[0] > 1 || w->size[0] > 1 || w->padding[0] > 0;
}

static void push_space(struct layout *layout, const fl_conv *conv, const int64_t size[FL_WINDOW_AXES])
{
    if (has_depth(conv)) push_axis(layout, size[0], size[1] * size[2]);
    push_axis(layout, size[1], size[2]);
    push_axis(layout, size[2], 1);
}

static struct layout images_layout(const fl_conv_part *part, const int64_t size[FL_WINDOW_AXES], int64_t whole,
                                   int64_t channels)
{
    struct layout l = {0};
    int64_t plane = fl_conv_volume(size);
    push_axis(&l, part->images, part->conv.groups * whole * plane);
    push_axis(&l, part->conv.groups * channels, plane);
    push_space(&l, &part->conv, size);
    return l;
}

static struct layout weight_layout(const fl_conv_part *part)
{
    struct layout l = {0};
    int64_t depth = fl_conv_depth(&part->conv);
    if (part->conv.groups > 1) push_axis(&l, part->conv.groups, part->conv.out * depth);
    push_axis(&l, part->out, depth);
    push_axis(&l, part->in, fl_conv_taps(&part->conv));
    push_space(&l, &part->conv, part->conv.window.size);
    return l;
}

static bool describe_sides(fl_conv_plan *plan)
{
    const fl_conv_part *p = &plan->part;
    struct fl_conv_plan_own *own = plan->own;
    struct layout l[FL_CONV_SIDES] = {images_layout(p, p->conv.x_size, p->conv.in, p->in), weight_layout(p),
                                      images_layout(p, p->conv.y_size, p->conv.out, p->out)};
    for (int i = 0; i < FL_CONV_SIDES; i++)
        if (!describe(&own->plain[i], l[i].axes, l[i].sizes, l[i].strides)
            || !describe(&own->any[i], l[i].axes, l[i].sizes, NULL))
            return false;
    int64_t count = p->conv.groups * p->out, one = 1;
    return !p->bias || describe(&own->bias, 1, &count, &one);
}

/* ---- describing the convolution ---- */

/* The geometry in the library's terms. */
struct window {
    int64_t strides[MAX_AXES], dilations[MAX_AXES], before[MAX_AXES], after[MAX_AXES];
};

static struct window window_of(const fl_conv *conv)
{
    struct window out = {0};
    const fl_window_geometry *w = &conv->window;
    for (int d = has_depth(conv) ? 0 : 1, i = 0; d < FL_WINDOW_AXES; d++, i++) {
        out.strides[i] = w->stride[d];
        out.dilations[i] = w->dilation[d] - 1;
        out.before[i] = w->padding[d];
        out.after[i] = (conv->y_size[d] - 1) * w->stride[d] + fl_window_geometry_span(w, d) - conv->x_size[d]
            - w->padding[d];
    }
    return out;
}

/* forward too, as gradients want its description as a hint. */
static bool describe_conv_2(void **out, const fl_conv_plan *plan, int64_t sum, void *hint)
{
    _Alignas(64) char d[16384]; /* 5976 bytes */
    struct fl_conv_plan_own *own = plan->own;
    struct window w = window_of(&plan->part.conv);
    const void *x = own->any[0].at, *weight = own->any[1].at, *y = own->any[2].at;
    int failed = sum == FL_CONV_FORWARD
        ? v2.dilated_convolution_forward_desc_init(d, FORWARD, ALGORITHM_DIRECT, x, weight, own->bias.at, y, w.strides,
                                                   w.dilations, w.before, w.after)
        : sum == FL_CONV_INPUT_GRAD
        ? v2.dilated_convolution_backward_data_desc_init(d, ALGORITHM_DIRECT, x, weight, y, w.strides, w.dilations,
                                                         w.before, w.after)
        : v2.dilated_convolution_backward_weights_desc_init(d, ALGORITHM_DIRECT, x, weight, NULL, y, w.strides,
                                                            w.dilations, w.before, w.after);
    return failed == 0 && v2.primitive_desc_create(out, d, attr, engine, hint) == 0;
}

static bool describe_conv_3(void **out, const fl_conv_plan *plan, int64_t sum, void *hint)
{
    struct fl_conv_plan_own *own = plan->own;
    struct window w = window_of(&plan->part.conv);
    const void *x = own->any[0].at, *weight = own->any[1].at, *y = own->any[2].at;
    if (sum == FL_CONV_FORWARD)
        return v3.convolution_forward_primitive_desc_create(out, engine, FORWARD, ALGORITHM_DIRECT, x, weight,
                                                            own->bias.at, y, w.strides, w.dilations, w.before, w.after,
                                                            attr)
            == 0;
    if (sum == FL_CONV_INPUT_GRAD)
        return v3.convolution_backward_data_primitive_desc_create(out, engine, ALGORITHM_DIRECT, x, weight, y,
                                                                  w.strides, w.dilations, w.before, w.after, hint, attr)
            == 0;
    return v3.convolution_backward_weights_primitive_desc_create(out, engine, ALGORITHM_DIRECT, x, weight, NULL, y,
                                                                 w.strides, w.dilations, w.before, w.after, hint, attr)
        == 0;
}

static bool describe_conv(void **out, const fl_conv_plan *plan, int64_t sum, void *hint)
{
    return (version_3 ? describe_conv_3 : describe_conv_2)(out, plan, sum, hint);
}

/* False if the library would unfold the images itself or use its reference code: our own kernels are faster then. */
static bool has_own_code(const void *desc)
{
    const char *name = NULL;
    return lib.primitive_desc_query(desc, QUERY_NAME, 0, &name) == 0 && name
        && (strncmp(name, "jit", 3) == 0 || strncmp(name, "brg", 3) == 0);
}

/* ---- plans ---- */

static bool make_reorder(void **out, const void *from, const void *to)
{
    void *desc = NULL;
    if (lib.reorder_primitive_desc_create(&desc, from, engine, to, engine, NULL) != 0) return false;
    bool made = lib.primitive_create(out, desc) == 0;
    lib.primitive_desc_destroy(desc);
    return made;
}

static bool make_side(fl_conv_plan *plan, int side)
{
    fl_conv_side *s = &plan->sides[side];
    int result = plan->part.sum == FL_CONV_FORWARD ? FL_CONV_SIDE_Y
        : plan->part.sum == FL_CONV_INPUT_GRAD     ? FL_CONV_SIDE_X
                                                   : FL_CONV_SIDE_WEIGHT;
    s->plain = plan->own->plain[side].at;
    s->own = lib.primitive_desc_query_md(plan->own->desc, QUERY[plan->part.sum][side], 0);
    if (!s->own) return false;
    if (lib.memory_desc_equal(s->plain, s->own)) return true;
    s->bytes = (int64_t)lib.memory_desc_get_size(s->own);
    return side == result ? make_reorder(&s->reorder, s->own, s->plain) : make_reorder(&s->reorder, s->plain, s->own);
}

static bool make(fl_conv_plan *plan)
{
    struct fl_conv_plan_own *own = plan->own;
    fl_onednn_serial();
    if (!describe_sides(plan)) return false;
    if (plan->part.sum != FL_CONV_FORWARD && !describe_conv(&own->hint, plan, FL_CONV_FORWARD, NULL)) return false;
    if (!describe_conv(&own->desc, plan, plan->part.sum, own->hint) || !has_own_code(own->desc)) return false;
    for (int i = 0; i < FL_CONV_SIDES; i++)
        if (!make_side(plan, i)) return false;
    own->scratch = lib.primitive_desc_query_md(own->desc, QUERY_SCRATCHPAD, 0);
    plan->scratch_bytes = own->scratch ? (int64_t)lib.memory_desc_get_size(own->scratch) : 0;
    return lib.primitive_create(&own->primitive, own->desc) == 0;
}

/* Empties a plan that keeps its memory. */
static void unmake(fl_conv_plan *plan)
{
    struct fl_conv_plan_own *own = plan->own;
    for (int i = 0; i < FL_CONV_SIDES; i++) {
        if (plan->sides[i].reorder) lib.primitive_destroy(plan->sides[i].reorder);
        forget(&own->plain[i]);
        forget(&own->any[i]);
    }
    forget(&own->bias);
    if (own->primitive) lib.primitive_destroy(own->primitive);
    if (own->desc) lib.primitive_desc_destroy(own->desc);
    if (own->hint) lib.primitive_desc_destroy(own->hint);
    memset(plan->sides, 0, sizeof plan->sides);
    own->primitive = own->desc = own->hint = NULL;
}

enum { PLANS = 256 };
static fl_conv_plan plans[PLANS];

/* The plan, or else the place of the one that was not used for longest. */
static fl_conv_plan *find(bool *found, const fl_conv_part *part)
{
    fl_conv_plan *oldest = plans;
    for (int i = 0; i < PLANS; i++) {
        if ((*found = plans[i].own && memcmp(&plans[i].part, part, sizeof *part) == 0)) return &plans[i];
        if (!plans[i].own) return &plans[i];
        if (plans[i].own->used < oldest->own->used) oldest = &plans[i];
    }
    return oldest;
}

const fl_conv_plan *fl_conv_plan_of(const fl_conv_part *part)
{
    static uint64_t count;
    fl_conv_part key = *part;
    key.conv.images = 0;
    bool found;
    if (!is_open()) return NULL;
    fl_conv_plan *plan = find(&found, &key);
    if (!found) {
        if (plan->own) unmake(plan);
        else if (!(plan->own = calloc(1, sizeof *plan->own))) return NULL;
        plan->part = key;
        plan->usable = make(plan);
        if (!plan->usable) unmake(plan);
    }
    plan->own->used = ++count;
    return plan->usable ? plan : NULL;
}

bool fl_conv_plans_agree(const fl_conv_plan *a, const fl_conv_plan *b)
{
    return a == b || lib.memory_desc_equal(a->sides[FL_CONV_SIDE_WEIGHT].own, b->sides[FL_CONV_SIDE_WEIGHT].own);
}

/* ---- runs ---- */

bool fl_conv_run_open(fl_conv_run *run, const fl_conv_plan *plan, void *const own[FL_CONV_SIDES], void *scratch)
{
    static char nowhere[64];
    *run = (fl_conv_run){.plan = plan};
    fl_onednn_serial();
    bool made = lib.stream_create(&run->stream, engine, 1) == 0;
    for (int i = 0; i < FL_CONV_SIDES && made; i++) {
        const fl_conv_side *s = &plan->sides[i];
        made = lib.memory_create(&run->plain[i], s->plain, engine, NULL) == 0;
        if (made && s->bytes) made = lib.memory_create(&run->own[i], s->own, engine, own[i]) == 0;
    }
    if (made && plan->part.bias) made = lib.memory_create(&run->bias, plan->own->bias.at, engine, NULL) == 0;
    if (made && plan->scratch_bytes)
        made = lib.memory_create(&run->scratch, plan->own->scratch, engine, scratch ? scratch : nowhere) == 0;
    if (!made) fl_conv_run_close(run);
    return made;
}

void fl_conv_run_close(fl_conv_run *run)
{
    for (int i = 0; i < FL_CONV_SIDES; i++) {
        if (run->plain[i]) lib.memory_destroy(run->plain[i]);
        if (run->own[i]) lib.memory_destroy(run->own[i]);
    }
    if (run->bias) lib.memory_destroy(run->bias);
    if (run->scratch) lib.memory_destroy(run->scratch);
    if (run->stream) lib.stream_destroy(run->stream);
}

void fl_conv_run_at(fl_conv_run *run, int side, const void *plain)
{
    lib.memory_set_data_handle(run->plain[side], (void *)plain);
}

void fl_conv_run_bias_at(fl_conv_run *run, const void *bias)
{
    if (run->bias) lib.memory_set_data_handle(run->bias, (void *)bias);
}

void fl_conv_run_own_at(fl_conv_run *run, int side, void *own)
{
    lib.memory_set_data_handle(run->own[side] ? run->own[side] : run->plain[side], own);
}

static bool reorder(fl_conv_run *run, int side, void *from, void *to)
{
    const struct argument arguments[] = {{AT_SRC, from}, {AT_DST, to}};
    return lib.primitive_execute(run->plan->sides[side].reorder, run->stream, 2, arguments) == 0;
}

bool fl_conv_run_bring(fl_conv_run *run, int side)
{
    return !run->own[side] || reorder(run, side, run->plain[side], run->own[side]);
}

bool fl_conv_run_return(fl_conv_run *run, int side)
{
    return !run->own[side] || reorder(run, side, run->own[side], run->plain[side]);
}

bool fl_conv_run_sum(fl_conv_run *run)
{
    struct argument arguments[FL_CONV_SIDES + 2];
    int count = 0;
    for (int i = 0; i < FL_CONV_SIDES; i++)
        arguments[count++] = (struct argument){ARGUMENT[run->plan->part.sum][i],
                                               run->own[i] ? run->own[i] : run->plain[i]};
    if (run->bias) arguments[count++] = (struct argument){AT_BIAS, run->bias};
    if (run->scratch) arguments[count++] = (struct argument){AT_SCRATCHPAD, run->scratch};
    return lib.primitive_execute(run->plan->own->primitive, run->stream, count, arguments) == 0;
}
