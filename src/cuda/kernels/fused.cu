/*
** fused.cu -- lists of elementwise steps: one kernel that NVRTC compiles for their shape, or the kernels of their rows.
**
** A kernel is looked for by the shape of the steps, first among those of this process, then on disk; a shape that is
** met again is compiled. A list with a single row has its kernel already. Without NVRTC, or if a kernel cannot be
** compiled, the steps are issued one after another, with temporary memory for values that are not stored: same values,
** more traffic.
*/
#include "fused.h"
#include "copies.h"
#include "cuda/runtime/nvrtc.h"
#include "elementwise.h"

#include <assert.h>
#include <stdlib.h>

extern "C" {
#include "core/base/hash.h"
}

/* Compiling takes as long as thousands of ops. A shape is compiled when it is met again: a list computed once in a
** session is not worth it. */
#ifdef FL_EMULATED
enum { COMPILE_AT = 1 };
#else
enum { COMPILE_AT = 2 };
#endif

enum { TABLE_BITS = 10, TABLE = 1 << TABLE_BITS, MOST_KERNELS = TABLE / 2, THREADS = 256, GROUPS = 2, BLOCKS = 16 };

/* ---- one after another ---- */

struct serial {
    const fl_tiles *tiles;
    const char *name;
    int64_t size[FL_MAX_NDIM], start[FL_MAX_NDIM];
    void *memory[FL_FUSED_SLOTS]; /* temporary; NULL: not there */
    bool done[FL_FUSED_SLOTS];    /* results */
    int uses[FL_FUSED_SLOTS], last_use[FL_FUSED_SLOTS];
};

static void note_uses(serial *serial)
{
    for (int i = 0; i < serial->tiles->slot_count; i++) serial->last_use[i] = -1;
    for (int i = 0; i < serial->tiles->step_count; i++)
        for (int k = 0; k < serial->tiles->steps[i].nin; k++) {
            serial->uses[serial->tiles->steps[i].in[k]]++;
            serial->last_use[serial->tiles->steps[i].in[k]] = i;
        }
}

static bool is_row_major(const fl_tiles *tiles, const int64_t *stride)
{
    int64_t expected = 1;
    for (int i = tiles->ndim - 1; i >= 0; i--) {
        if (tiles->sizes[i] != 1 && stride[i] != expected) return false;
        expected *= tiles->sizes[i];
    }
    return true;
}

static fl_view view_of(const serial *serial, int slot)
{
    const fl_tiles *t = serial->tiles;
    const fl_tile_slot *from = &t->slots[slot];
    fl_view view = {};
    view.dtype = from->stored;
    view.size = view.logical = serial->size;
    view.start = serial->start;
    view.stride = t->strides[0];
    view.contiguous = true;
    view.numel = 1;
    if (!from->is_result && from->pattern < 0) {
        view.data = from->data;
        view.scalar[0] = from->number;
        return view;
    }
    view.data = from->data ? from->data : serial->memory[slot];
    view.ndim = t->ndim;
    view.numel = t->total;
    view.stride = t->strides[from->is_result ? 0 : from->pattern];
    view.contiguous = is_row_major(t, view.stride);
    return view;
}

/* The slot of a row's result: that of its conversion, if nothing else needs the result. */
static int target_of(const serial *serial, int step)
{
    int out = serial->tiles->steps[step].out, next = serial->last_use[out];
    bool converted = serial->uses[out] == 1 && !serial->tiles->slots[out].data
        && serial->tiles->steps[next].row == FL_EW_NONE;
    return converted ? serial->tiles->steps[next].out : out;
}

static fl_status make_room(serial *serial, int slot)
{
    const fl_tile_slot *to = &serial->tiles->slots[slot];
    serial->done[slot] = true;
    if (to->data) return FL_OK;
    return fl_cuda_malloc(&serial->memory[slot], (size_t)serial->tiles->total * fl_dtype_size(to->dtype));
}

static fl_status run_row(const serial *serial, const fl_tile_step *step, int target)
{
    fl_view in[FL_EW_MAX_IN], out = view_of(serial, target);
    for (int k = 0; k < step->nin; k++) {
        in[k] = view_of(serial, step->in[k]);
        if (!in[k].data) in[k].data = in[k].scalar;
    }
    fl_kernel kernel = {};
    kernel.name = serial->name;
    kernel.row = step->row;
    kernel.in = in;
    kernel.nin = step->nin;
    kernel.out = &out;
    kernel.nout = 1;
    fl_dtype compute = serial->tiles->slots[step->in[fl_ew_rows[step->row].mask == 0]].dtype;
    return fl_cuda_row(&kernel, compute, step->attributes);
}

static fl_status run_step(serial *serial, int i)
{
    const fl_tile_step *step = &serial->tiles->steps[i];
    if (step->row == FL_EW_NONE && serial->done[step->out]) return FL_OK;
    int target = step->row == FL_EW_NONE ? step->out : target_of(serial, i);
    FL_TRY(make_room(serial, target));
    if (step->row != FL_EW_NONE) return run_row(serial, step, target);
    static const int64_t everywhere[FL_MAX_NDIM] = {0};
    fl_view out = view_of(serial, target), in = view_of(serial, step->in[0]);
    if (in.ndim == 0) { /* one element, for all of the result */
        in.ndim = out.ndim;
        in.numel = out.numel;
        in.stride = everywhere;
        in.contiguous = out.numel == 1;
    }
    return fl_cuda_copy_view(&out, &in);
}

static void drop(serial *serial, int slot)
{
    if (serial->memory[slot]) fl_cuda_free(serial->memory[slot]);
    serial->memory[slot] = NULL;
}

static fl_status run_steps(const fl_tiles *tiles, const char *name)
{
    serial s = {};
    fl_status status = FL_OK;
    s.tiles = tiles;
    s.name = name;
    memcpy(s.size, tiles->sizes, sizeof s.size);
    note_uses(&s);
    for (int i = 0; i < tiles->step_count && status == FL_OK; i++) {
        const fl_tile_step *step = &tiles->steps[i];
        status = run_step(&s, i);
        for (int k = 0; k < step->nin; k++)
            if (s.last_use[step->in[k]] == i) drop(&s, step->in[k]);
    }
    for (int i = 0; i < tiles->slot_count; i++) drop(&s, i);
    return status;
}

/* ---- kernels by shape ---- */

struct entry {
    uint64_t hash;
    int device;
    fl_fused_shape *shape;   /* owned; NULL: a free place */
    int met;                 /* computations of the shape, until there is a kernel */
    fl_nvrtc_kernel *kernel; /* NULL: there is none yet, or it cannot be had */
};

static entry table[TABLE];
static int entries;

/* The shape's place, or a free one; NULL: there are as many kernels as there may be. */
static entry *place_of(const fl_fused_shape *shape, int device)
{
    uint64_t hash = fl_hash_words(FL_HASH_START ^ (uint64_t)device, shape, sizeof *shape);
    size_t at = fl_hash_slot(hash, TABLE_BITS);
    for (; table[at].shape; at = (at + 1) % TABLE)
        if (table[at].hash == hash && table[at].device == device && memcmp(table[at].shape, shape, sizeof *shape) == 0)
            return &table[at];
    if (entries == MOST_KERNELS) return NULL;
    table[at].hash = hash;
    table[at].device = device;
    return &table[at];
}

static fl_nvrtc_kernel *make_kernel(const fl_fused_shape *shape, bool compile)
{
    char *source = fl_fused_source(shape);
    fl_nvrtc_kernel *kernel = source ? fl_nvrtc_make(source, "fl_fused", compile) : NULL;
    free(source);
    return kernel;
}

static fl_nvrtc_kernel *kernel_for(const fl_fused_shape *shape)
{
    entry *e = place_of(shape, fl_cuda_current()->index);
    if (!e) return NULL;
    if (!e->shape) {
        e->shape = (fl_fused_shape *)malloc(sizeof *shape);
        if (!e->shape) return NULL;
        *e->shape = *shape;
        e->met = 0;
        entries++;
    }
    if (!e->kernel && e->met < COMPILE_AT) e->kernel = make_kernel(shape, ++e->met == COMPILE_AT);
    return e->kernel;
}

/* ---- in one pass ---- */

/* The axes of a result, with the strides of the patterns in elements. */
static void lay_out(fl_layout *layout, const fl_tiles *tiles)
{
    layout->count = tiles->ndim;
    layout->operands = tiles->pattern_count;
    for (int a = 0; a < tiles->ndim; a++) {
        layout->axes[a].size = tiles->sizes[a];
        for (int p = 0; p < tiles->pattern_count; p++) layout->axes[a].stride[p] = tiles->strides[p][a];
    }
    fl_layout_simplify(layout);
    if (layout->count == 0) layout->axes[layout->count++] = {1, {1, 1, 1, 1}};
}

/* false: these steps have no kernel. */
static bool launch(fl_status *status, const fl_tiles *tiles, const fl_layout *layout, const int64_t *offset)
{
    fl_fused_shape shape;
    fl_fused_arguments arguments;
    if (!fl_fused_shape_of(&shape, tiles, layout, offset)) return false;
    if (!fl_fused_arguments_of(&arguments, &shape, tiles, layout, offset)) return false;
    fl_nvrtc_kernel *kernel = kernel_for(&shape);
    if (!kernel) return false;
    int64_t groups = (fl_layout_numel(layout) + shape.group - 1) / shape.group;
    unsigned blocks = fl_blocks(groups, THREADS, GROUPS), most = (unsigned)(fl_cuda_current()->processors * BLOCKS);
    *status = fl_nvrtc_launch(kernel, blocks < most ? blocks : most, THREADS, arguments.bytes);
    return true;
}

/* Cuts along the first axis until elements can be counted. The first piece decides whether there are kernels: the
** others have its shape, or one that differs in what its addresses are multiples of. */
static bool launch_pieces(fl_status *status, const fl_tiles *tiles, const fl_layout *layout, const int64_t *offset)
{
    if (fl_layout_numel(layout) <= FL_INDEX_LIMIT) return launch(status, tiles, layout, offset);
    fl_layout half = *layout;
    int64_t beyond[FL_LAYOUT_OPERANDS], first = layout->axes[0].size / 2;
    if (first > 64) first -= first % 64;
    for (int p = 0; p < layout->operands; p++) beyond[p] = offset[p] + first * layout->axes[0].stride[p];
    half.axes[0].size = first;
    if (!launch_pieces(status, tiles, &half, offset)) return false;
    half.axes[0].size = layout->axes[0].size - first;
    return *status != FL_OK || launch_pieces(status, tiles, &half, beyond);
}

static int rows_of(const fl_tiles *tiles)
{
    int rows = 0;
    for (int i = 0; i < tiles->step_count; i++) rows += tiles->steps[i].row != FL_EW_NONE;
    return rows;
}

fl_status fl_cuda_tiles(const fl_tiles *tiles, const char *name)
{
    const int64_t zero[FL_LAYOUT_OPERANDS] = {0};
    fl_layout layout;
    fl_status status = FL_OK;
    if (tiles->total == 0) return FL_OK;
    lay_out(&layout, tiles);
    if (rows_of(tiles) < 2 || !launch_pieces(&status, tiles, &layout, zero)) return run_steps(tiles, name);
    return status == FL_OK ? fl_cuda_check(name) : status;
}
