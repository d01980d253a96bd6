/*
** test_tiles.c -- random lists of elementwise steps, run as tiles and op by op: the bits are the same.
**
** Every dtype, layouts of operands (contiguous, transposed, broadcast along rows or columns, with gaps, numbers), any
** results stored, a fold at the end.
*/
#include "check.h"
#include "cpu/reduce.h"
#include "cpu/tiles.h"

#include <math.h>
#include <stdlib.h>

enum { MAX_VALUES = 40, ROOM = 3 };

/* An operand or a result of both runs. */
typedef struct value {
    fl_view view;
    char *memory;
    int64_t size[3], stride[3];
    int slot;
} value;

static uint64_t state;
static uint64_t draw(void)
{
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return state;
}
static int64_t below(int64_t n) { return (int64_t)(draw() % (uint64_t)n); }

static double number_of(fl_dtype dtype)
{
    static const double odd[] = {0, -0.0, 1, -1, INFINITY, -INFINITY, NAN, 1e-40, 3e38, 0.5, 2};
    double x = (double)below(2000) / 250 - 4;
    if (fl_dtype_is_float(dtype)) return below(20) ? x : odd[below(sizeof odd / sizeof *odd)];
    return dtype == FL_BOOL ? (double)below(2) : dtype == FL_UINT8 ? (double)below(256) : (double)(below(256) - 128);
}

static void set_number(char *at, fl_dtype dtype, double x)
{
    switch (dtype) {
    case FL_FLOAT64: memcpy(at, &x, 8); break;
    case FL_FLOAT32: memcpy(at, &(float){(float)x}, 4); break;
    case FL_FLOAT16: memcpy(at, &(fl_float16){fl_float16_from_float((float)x)}, 2); break;
    case FL_BFLOAT16: memcpy(at, &(fl_bfloat16){fl_bfloat16_from_float((float)x)}, 2); break;
    case FL_INT64: memcpy(at, &(int64_t){(int64_t)x}, 8); break;
    case FL_INT32: memcpy(at, &(int32_t){(int32_t)x}, 4); break;
    case FL_INT8: memcpy(at, &(int8_t){(int8_t)x}, 1); break;
    default: memcpy(at, &(uint8_t){(uint8_t)x}, 1); break;
    }
}

static bool is_nan(const char *at, fl_dtype dtype)
{
    switch (dtype) {
    case FL_FLOAT64: return isnan(*(const double *)at);
    case FL_FLOAT32: return isnan(*(const float *)at);
    case FL_FLOAT16: return isnan(fl_float16_to_float(*(const fl_float16 *)at));
    case FL_BFLOAT16: return isnan(fl_bfloat16_to_float(*(const fl_bfloat16 *)at));
    default: return false;
    }
}

/* Equal bits; any NaN is as good as another. */
static bool same(const char *a, const char *b, fl_dtype dtype, int64_t n)
{
    int64_t size = (int64_t)fl_dtype_size(dtype);
    for (int64_t i = 0; i < n; i++, a += size, b += size)
        if (memcmp(a, b, (size_t)size) && !(is_nan(a, dtype) && is_nan(b, dtype))) return false;
    return true;
}

static void view_set(value *v, fl_dtype dtype, int ndim)
{
    int64_t numel = 1, expected = 1;
    bool contiguous = true;
    for (int i = 0; i < ndim; i++) numel *= v->size[i];
    for (int i = ndim - 1; i >= 0; i--) {
        contiguous = contiguous && (v->size[i] == 1 || v->stride[i] == expected);
        expected *= v->size[i];
    }
    v->view = (fl_view){.data = v->memory,
                        .dtype = dtype,
                        .ndim = ndim,
                        .contiguous = contiguous,
                        .numel = numel,
                        .size = v->size,
                        .stride = v->stride,
                        .start = v->size,
                        .logical = v->size};
}

/* An operand of some layout for results of this shape. */
static void operand_init(value *v, fl_dtype dtype, int ndim, const int64_t *size)
{
    int64_t room = 1;
    int layout = (int)below(6);
    for (int i = 0; i < ndim; i++) v->size[i] = size[i], room *= size[i];
    room *= ROOM;
    v->memory = aligned_alloc(64, ((size_t)room * fl_dtype_size(dtype) + 127) / 64 * 64);
    for (int64_t i = 0; i < room; i++)
        set_number(v->memory + i * (int64_t)fl_dtype_size(dtype), dtype, number_of(dtype));
    if (layout == 1) v->size[0] = 1;
    if (layout == 2) v->size[ndim - 1] = 1;
    int64_t stride = layout == 3 ? 2 : 1;
    for (int i = ndim - 1; i >= 0; i--) v->stride[i] = stride, stride *= v->size[i];
    if (layout == 4)
        for (int i = 0, next = 1; i < ndim; i++) v->stride[i] = next, next *= (int)v->size[i];
    view_set(v, dtype, ndim);
    if (layout != 5) return;
    v->view = (fl_view){.dtype = dtype, .contiguous = true, .numel = 1, .size = v->size, .stride = v->stride};
    set_number((char *)v->view.scalar, dtype, number_of(dtype));
    v->view.data = v->view.scalar;
}

static void result_init(value *v, fl_dtype dtype, int ndim, const int64_t *size)
{
    int64_t stride = 1;
    for (int i = ndim - 1; i >= 0; i--) v->size[i] = size[i], v->stride[i] = stride, stride *= size[i];
    v->memory = aligned_alloc(64, ((size_t)stride * fl_dtype_size(dtype) + 127) / 64 * 64);
    view_set(v, dtype, ndim);
}

static bool is_number(const value *v) { return v->view.data == v->view.scalar; }

/* The dtype of a row's result; false: these operands are not for it. */
static bool result_of(fl_dtype *dtype, fl_dtype *compute, const fl_kernel *kernel)
{
    const fl_ew_row *row = &fl_ew_rows[kernel->row];
    bool tensor = false;
    fl_dtype all = FL_BOOL;
    for (int i = 0; i < kernel->nin; i++) {
        const fl_view *in = &kernel->in[i];
        if (i == row->mask) {
            if (in->dtype != FL_BOOL || in->data == in->scalar) return false;
            continue;
        }
        if (in->data == in->scalar) {
            if (row->rule == FL_EW_COMPARE || row->rule == FL_EW_LOGIC) return false;
            continue;
        }
        all = tensor ? fl_dtype_promote(all, in->dtype) : in->dtype;
        tensor = true;
    }
    for (int i = 0; i < kernel->nin; i++) /* numbers of the same category or below it */
        if (fl_dtype_categories[kernel->in[i].dtype] > fl_dtype_categories[all]) return false;
    if (!tensor) return false;
    if (row->rule == FL_EW_FILL) all = kernel->in[0].dtype;
    if (row->rule == FL_EW_FILL && kernel->in[0].data == kernel->in[0].scalar) return false;
    if (row->rule == FL_EW_FLOAT) all = fl_dtype_to_float(all);
    if (row->rule != FL_EW_LOGIC && !(row->categories >> fl_dtype_categories[all] & 1)) return false;
    *dtype = fl_ew_is_predicate(row->rule) ? FL_BOOL : all;
    *compute = fl_ew_compute_dtype(kernel, *dtype);
    return (*FL_BY_LEVEL(fl_ew_loops))[kernel->row][*compute] != NULL;
}

static int operands_of(int row)
{
    static const int8_t counts[FL_EW_COUNT] = {
#define COUNT_MAP1 1
#define COUNT_VECTORS 1
#define COUNT_MAP2 2
#define COUNT_MAP3 3
#define COUNT_TEST1 1
#define COUNT_TEST2 2
#define COUNT_TRIG 1
#define COUNT_SWITCH 1
#define COUNT_POW2 2
#define COUNT_FIRST 1
#define COUNT_RATIO 2
#define COUNT_POW3 3
#define COUNT_WHERE 3
#define COUNT_FILL 3
#define EW(id, sig, shape, ...) [FL_EW_##id] = COUNT_##shape,
#include "op/elementwise.def"
#undef EW
    };
    return counts[row];
}

/* A row, mostly one of those whose values stay in registers, or any. */
static int row_of(bool cheap)
{
    static const uint8_t rows[] = {FL_EW_add,     FL_EW_sub,   FL_EW_mul,  FL_EW_div,    FL_EW_addcmul,
                                   FL_EW_addcdiv, FL_EW_neg,   FL_EW_sqrt, FL_EW_square, FL_EW_reciprocal,
                                   FL_EW_relu,    FL_EW_clamp, FL_EW_abs};
    return cheap && below(8) ? rows[below(sizeof rows)] : 1 + (int)below(FL_EW_COUNT - 1);
}

/* Appends the result of a random row, computed at once and as a step. */
static bool step_add(value *values, int *count, fl_tiles *tiles, int ndim, const int64_t *size, bool cheap)
{
    fl_attrs attrs = {.count = 2,
                      .at = {{.given = true, .kind = FL_NUM_FLOAT, .number = (double)below(2)},
                             {.given = true, .kind = FL_NUM_FLOAT, .number = 3}}};
    fl_view in[FL_EW_MAX_IN];
    int slots[FL_EW_MAX_IN], row = row_of(cheap), nin = operands_of(row), last = *count - 1;
    for (int i = 0; i < nin; i++) {
        const value *v = &values[cheap && below(2) ? last : (int)below(*count)];
        in[i] = v->view;
        if (is_number(v)) in[i].data = in[i].scalar;
        slots[i] = v->slot;
    }
    fl_kernel kernel = {.name = "step", .row = row, .attrs = &attrs, .in = in, .nin = nin, .nout = 1};
    fl_dtype dtype, compute;
    fl_ew_attr attributes[FL_EW_ATTRS];
    if (!result_of(&dtype, &compute, &kernel)) return false;
    if (fl_dtype_is_integer(compute)
        && (row == FL_EW_fmod || row == FL_EW_remainder || row == FL_EW_floor_divide || row == FL_EW_pow))
        return false;
    value *v = &values[*count];
    result_init(v, dtype, ndim, size);
    kernel.out = &v->view;
    CHECK(fl_cpu_elementwise(&kernel) == FL_OK);
    fl_ew_attributes(attributes, &kernel);
    v->slot = fl_tiles_row(tiles, row, compute, dtype, attributes, slots, nin);
    if (v->slot == FL_TILES_FULL) {
        free(v->memory);
        return false;
    }
    ++*count;
    return true;
}

static void check_fold(fl_tiles *tiles, const value *last)
{
    static const fl_fold folds[] = {FL_FOLD_SUM, FL_FOLD_COUNT, FL_FOLD_LARGEST, FL_FOLD_SMALLEST, FL_FOLD_SQUARES};
    fl_reduce_job job = {.name = "fold", .fold = folds[below(4 + fl_dtype_is_float(last->view.dtype))]};
    bool all = below(2);
    int64_t total = last->view.numel, run = all ? total : last->size[last->view.ndim - 1], results = total / run;
    uint32_t mask = all ? (1u << last->view.ndim) - 1 : 1u << (last->view.ndim - 1);
    fl_dtype dtype = fl_dtype_is_float(last->view.dtype) ? last->view.dtype : FL_INT64;
    size_t bytes = (size_t)results * fl_dtype_size(dtype);
    char *want = calloc(1, bytes), *got = calloc(1, bytes);
    fl_view out = {.data = want, .dtype = dtype, .contiguous = true, .numel = results};
    CHECK(fl_cpu_reduce(&out, &last->view, mask, &job) == FL_OK);
    out.data = got;
    if (fl_cpu_reduce_takes_tiles(total, run, &job)) {
        CHECK(fl_cpu_reduce_tiles(&out, tiles, last->slot, run, &job) == FL_OK);
        CHECK(same(got, want, dtype, results));
    } else CHECK(fl_tiles_run(tiles) == 0);
    free(want);
    free(got);
}

static void check_list(uint64_t seed, int ndim, const int64_t *size)
{
    static fl_tiles tiles;
    value values[MAX_VALUES];
    char *stored[MAX_VALUES] = {NULL};
    int count = 0, inputs = 1 + (int)below(4), wanted = inputs + 1 + (int)below(14);
    bool cheap = below(2); /* of one dtype that spines have */
    fl_dtype dtype = below(2) ? FL_FLOAT32 : FL_FLOAT64;
    fl_tiles_begin(&tiles, ndim, size, NULL);
    while (count < inputs) {
        value *v = &values[count];
        operand_init(v, cheap ? dtype : (fl_dtype)below(FL_DTYPE_COUNT), ndim, size);
        v->slot = fl_tiles_operand(&tiles, &v->view);
        if (v->slot == FL_TILES_FULL) {
            free(v->memory);
            inputs = count;
        } else count++;
    }
    int first = count;
    for (int tries = 0; count < wanted && tries < 400; tries++) step_add(values, &count, &tiles, ndim, size, cheap);
    for (int i = first; i < count; i++) {
        if (i < count - 1 && below(3)) continue;
        if (tiles.slots[values[i].slot].data) continue; /* the same step twice */
        stored[i] = aligned_alloc(64,
                                  ((size_t)values[i].view.numel * fl_dtype_size(values[i].view.dtype) + 127) / 64 * 64);
        fl_tiles_store(&tiles, values[i].slot, stored[i]);
    }
    if (count > first && below(2)) check_fold(&tiles, &values[count - 1]);
    else CHECK(fl_tiles_run(&tiles) == 0);
    for (int i = 0; i < count; i++) {
        if (stored[i] && !same(stored[i], values[i].memory, values[i].view.dtype, values[i].view.numel)) {
            printf("seed %llu: value %d differs\n", (unsigned long long)seed, i);
            CHECK(false);
        }
        free(stored[i]);
        free(values[i].memory);
    }
}

static uint64_t first_seed = 1, lists = 1500;

static void lists_give_the_bits_of_their_ops(void)
{
    static const int64_t shapes[][3] = {{1, 1, 1},     {7, 1, 1},      {31, 33, 1},   {3, 5, 17},  {1, 1024, 1},
                                        {4, 257, 1},   {2, 2047, 1},   {2, 2048, 1},  {64, 8, 40}, {3, 300, 300},
                                        {65537, 1, 1}, {131073, 1, 1}, {70, 2500, 1}, {2, 2049, 1}};
    for (uint64_t seed = first_seed; seed < first_seed + lists; seed++) {
        state = seed * 0x9e3779b97f4a7c15u + 1;
        for (int i = 0; i < 5; i++) draw();
        const int64_t *shape = shapes[below(sizeof shapes / sizeof *shapes)];
        check_list(seed, shape[2] > 1 ? 3 : shape[1] > 1 ? 2 : 1, shape);
    }
}

/* test_tiles [first seed [lists]] */
int main(int argc, char **argv)
{
    if (argc > 1) first_seed = strtoull(argv[1], NULL, 10);
    if (argc > 2) lists = strtoull(argv[2], NULL, 10);
    RUN(lists_give_the_bits_of_their_ops);
    return finish();
}
