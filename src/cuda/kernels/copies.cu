/*
** copies.cu -- copies between any two layouts, and fills.
**
** Axes are sorted by the output's strides and merged where both sides allow; then the widest unit, up to 16 bytes, is
** chosen that the run along the last axis, all strides and both addresses allow. When the input is read in nearly the
** order of the output, or in runs of 64 bytes, elements are moved one by one (`lines`). A row that is written many
** times is read once by each of the threads (`repeat`). Otherwise both sides are walked in their own order, through
** shared memory (permute.cu).
*/
#include "copies.h"
#include "permute.h"

enum { THREADS = 256, EACH = 4, REPEATS = 16, LONG_RUN = 64, LARGE = 1 << 16 };

typedef fl_walk<2, FL_LAYOUT_AXES> copy_walk;
typedef fl_walk<1, FL_LAYOUT_AXES> fill_walk;

/* ---- kernels ---- */

template<typename T>
static __global__ void __launch_bounds__(THREADS)
    lines(char *out, const char *in, uint32_t total, const __grid_constant__ copy_walk walk)
{
    uint32_t index[EACH], first = blockIdx.x * (THREADS * EACH) + threadIdx.x;
    int64_t offset[EACH][2];
    T value[EACH];
    for (int k = 0; k < EACH; k++) index[k] = first + k * THREADS;
    fl_walk_locate(offset, walk, index);
#pragma unroll
    for (int k = 0; k < EACH; k++)
        if (index[k] < total) value[k] = *(const T *)(in + offset[k][1]);
#pragma unroll
    for (int k = 0; k < EACH; k++)
        if (index[k] < total) *(T *)(out + offset[k][0]) = value[k];
}

/* threads [rows][units of a row]: each writes its unit into REPEATS rows, step bytes apart. */
template<typename T>
static __global__ void __launch_bounds__(THREADS)
    repeat(char *out, const char *in, int64_t rows, int64_t units, int64_t step)
{
    int64_t unit = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, all = (int64_t)REPEATS * blockDim.y;
    if (unit >= units) return;
    T value = *(const T *)(in + unit * (int64_t)sizeof(T));
    for (int64_t first = blockIdx.y * all + threadIdx.y; first < rows; first += gridDim.y * all) {
#pragma unroll
        for (int k = 0; k < REPEATS; k++) {
            int64_t row = first + k * (int)blockDim.y;
            if (row < rows) *(T *)(out + row * step + unit * (int64_t)sizeof(T)) = value;
        }
    }
}

template<typename T>
static __global__ void __launch_bounds__(THREADS)
    fill(char *out, T value, uint32_t total, const __grid_constant__ fill_walk walk)
{
    uint32_t index[EACH], first = blockIdx.x * (THREADS * EACH) + threadIdx.x;
    int64_t offset[EACH][1];
    for (int k = 0; k < EACH; k++) index[k] = first + k * THREADS;
    fl_walk_locate(offset, walk, index);
#pragma unroll
    for (int k = 0; k < EACH; k++)
        if (index[k] < total) *(T *)(out + offset[k][0]) = value;
}

/* ---- planning ---- */

static void layout_of(fl_layout *layout, const fl_view *const *views, int operands)
{
    const fl_view *out = views[0];
    layout->operands = operands;
    layout->count = out->ndim;
    for (int i = 0; i < out->ndim; i++) {
        layout->axes[i].size = out->size[i];
        for (int o = 0; o < operands; o++)
            layout->axes[i].stride[o] = views[o]->stride[i] * (int64_t)fl_dtype_size(views[o]->dtype);
    }
    fl_layout_simplify(layout);
}

static bool is_multiple(const fl_layout *layout, const char *const *data, int64_t unit)
{
    int64_t bits = 0;
    for (int o = 0; o < layout->operands; o++) {
        bits |= (int64_t)(uintptr_t)data[o];
        for (int i = 0; i < layout->count - 1; i++) bits |= layout->axes[i].stride[o];
    }
    return bits % unit == 0;
}

/* The widest unit for elements of `width` bytes; the last axis then counts units, and is gone when it was just one. */
static int widen(fl_layout *layout, const char *const *data, int width)
{
    if (layout->count == 0) return width;
    fl_axis *last = &layout->axes[layout->count - 1];
    for (int o = 0; o < layout->operands; o++)
        if (last->stride[o] != width) return width;
    int64_t run = last->size * width;
    int unit = 16;
    while (unit > width && (run % unit != 0 || !is_multiple(layout, data, unit))) unit /= 2;
    last->size = run / unit;
    for (int o = 0; o < layout->operands; o++) last->stride[o] = unit;
    if (last->size == 1) layout->count--;
    return unit;
}

/* True if the input is read in runs, or with strides in the output's order. */
static bool reads_in_order(const fl_cuda_copy_job *job)
{
    const fl_layout *l = &job->layout;
    int64_t before = INT64_MAX, least = INT64_MAX;
    bool falling = true;
    for (int i = 0; i < l->count; i++) {
        int64_t stride = fl_layout_magnitude(l->axes[i].stride[1]);
        if (stride == 0) continue;
        falling &= stride <= before;
        before = stride;
        if (stride < least) least = stride;
    }
    return falling
        || (before == least && l->axes[l->count - 1].stride[1] != 0
            && l->axes[l->count - 1].size * job->unit >= LONG_RUN);
}

template<typename T>
static void launch_lines(const fl_cuda_copy_job *job)
{
    const int64_t zero[FL_LAYOUT_OPERANDS] = {0};
    fl_each_piece(&job->layout, zero, [&](const fl_layout *layout, const int64_t *offset) {
        copy_walk walk;
        int64_t total = fl_layout_numel(layout);
        fl_walk_init(&walk, layout);
        FL_LAUNCH((lines<T>), fl_blocks(total, THREADS, EACH), THREADS, 0, job->out + offset[0], job->in + offset[1],
                  (uint32_t)total, walk);
    });
}

/* Many bytes without gaps on both sides that cannot be moved in wide units: the driver cuts them at better places. */
static bool copy_run(const fl_cuda_copy_job *job)
{
    const fl_axis *run = &job->layout.axes[0];
    if (job->layout.count != 1 || job->unit == 16 || run->stride[0] != job->unit || run->stride[1] != job->unit
        || run->size * job->unit < LARGE)
        return false;
    cudaMemcpyAsync(job->out, job->in, (size_t)(run->size * job->unit), cudaMemcpyDeviceToDevice, fl_cuda_stream());
    return true;
}

/* A row of 32 units and more, written into several rows. */
static bool copy_repeated(const fl_cuda_copy_job *job)
{
    const fl_axis *rows = &job->layout.axes[0], *row = &job->layout.axes[1];
    if (job->layout.count != 2 || rows->stride[1] != 0 || row->stride[0] != job->unit || row->stride[1] != job->unit
        || rows->size < REPEATS || row->size < 32)
        return false;
    unsigned wide = 32;
    while (wide < THREADS && wide < row->size) wide *= 2;
    unsigned high = THREADS / wide;
    int64_t blocks = (rows->size + REPEATS * high - 1) / (REPEATS * high);
    dim3 grid(fl_blocks(row->size, (int)wide), (unsigned)(blocks < 65535 ? blocks : 65535));
    fl_cuda_by_unit(job->unit, [&](auto like) {
        FL_LAUNCH((repeat<decltype(like)>), grid, dim3(wide, high), 0, job->out, job->in, rows->size, row->size,
                  rows->stride[0]);
    });
    return true;
}

fl_status fl_cuda_copy_view(const fl_view *out, const fl_view *in)
{
    const fl_view *views[] = {out, in};
    fl_cuda_copy_job j;
    if (out->numel == 0) return FL_OK;
    layout_of(&j.layout, views, 2);
    j.out = (char *)out->data;
    j.in = (const char *)in->data;
    j.unit = (int)fl_dtype_size(in->dtype);
    if (out->dtype != in->dtype) {
        bool done = !reads_in_order(&j) && fl_cuda_cast_tiles(&j, out->dtype, in->dtype);
        if (!done) fl_cuda_cast(&j.layout, j.out, out->dtype, j.in, in->dtype);
        return fl_cuda_check("copy");
    }
    const char *data[] = {j.out, j.in};
    j.unit = widen(&j.layout, data, j.unit);
    bool done = copy_run(&j) || copy_repeated(&j)
        || (!reads_in_order(&j) && (fl_cuda_transpose(&j) || fl_cuda_permute_tiles(&j)));
    if (!done) fl_cuda_by_unit(j.unit, [&](auto like) { launch_lines<decltype(like)>(&j); });
    return fl_cuda_check("copy");
}

/* ---- fills ---- */

template<typename T>
static void launch_fill(const fl_layout *layout, char *out, const void *repeated)
{
    const int64_t zero[FL_LAYOUT_OPERANDS] = {0};
    T value;
    memcpy(&value, repeated, sizeof value);
    fl_each_piece(layout, zero, [&](const fl_layout *l, const int64_t *offset) {
        fill_walk walk;
        int64_t total = fl_layout_numel(l);
        fl_walk_init(&walk, l);
        FL_LAUNCH((fill<T>), fl_blocks(total, THREADS, EACH), THREADS, 0, out + offset[0], value, (uint32_t)total,
                  walk);
    });
}

/* repeated: 16 bytes of values that have `width` bytes. */
static void fill_layout(fl_layout layout, char *data, const char *repeated, int width)
{
    const char *const addresses[] = {data};
    int unit = widen(&layout, addresses, width);
    fl_cuda_by_unit(unit, [&](auto like) { launch_fill<decltype(like)>(&layout, data, repeated); });
}

/* A run is cut where memory is aligned, so that all but its ends is written in wide units. */
static void fill_run(const fl_layout *run, char *data, const char *repeated, int width)
{
    int64_t size = run->axes[0].size, before = (int64_t)(-(uintptr_t)data % 16) / width,
            whole = (size - before) / (16 / width) * (16 / width);
    const int64_t parts[] = {before, whole, size - before - whole};
    for (int i = 0; i < 3; i++) {
        fl_layout part = *run;
        part.axes[0].size = parts[i];
        if (parts[i]) fill_layout(part, data, repeated, width);
        data += parts[i] * width;
    }
}

fl_status fl_cuda_fill_view(const fl_view *out, const void *value)
{
    fl_layout l;
    int width = (int)fl_dtype_size(out->dtype);
    char *data = (char *)out->data, repeated[16];
    if (out->numel == 0) return FL_OK;
    layout_of(&l, &out, 1);
    for (int i = 0; i < 16; i += width) memcpy(repeated + i, value, (size_t)width);
    bool large_run = l.count == 1 && l.axes[0].stride[0] == width && l.axes[0].size * width >= LARGE;
    if (large_run) fill_run(&l, data, repeated, width);
    else fill_layout(l, data, repeated, width);
    return fl_cuda_check("fill");
}
