/*
** test_copy.c -- fl_cpu_copy against element-by-element copies: random layouts with gaps, permutations, expanded
** inputs, every pair of dtypes, every CPU level of this machine; large transposes past the caches.
*/
#define _GNU_SOURCE
#include "check.h"
#include "core/cpu/cpu.h"

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static unsigned state = 5;
static int below(int n)
{
    state = state * 1664525u + 1013904223u;
    return (int)((state >> 8) % (unsigned)n);
}

static double get(const void *p, fl_dtype d, int64_t i)
{
    switch (d) {
    case FL_BOOL: return ((const uint8_t *)p)[i] != 0;
    case FL_UINT8: return ((const uint8_t *)p)[i];
    case FL_INT8: return ((const int8_t *)p)[i];
    case FL_INT32: return ((const int32_t *)p)[i];
    case FL_INT64: return (double)((const int64_t *)p)[i];
    case FL_FLOAT16: return fl_float16_to_float(((const fl_float16 *)p)[i]);
    case FL_BFLOAT16: return fl_bfloat16_to_float(((const fl_bfloat16 *)p)[i]);
    case FL_FLOAT32: return ((const float *)p)[i];
    default: return ((const double *)p)[i];
    }
}

static void put(void *p, fl_dtype d, int64_t i, double v)
{
    switch (d) {
    case FL_BOOL: ((uint8_t *)p)[i] = v != 0; break;
    case FL_UINT8: ((uint8_t *)p)[i] = (uint8_t)(int64_t)v; break;
    case FL_INT8: ((int8_t *)p)[i] = (int8_t)(int64_t)v; break;
    case FL_INT32: ((int32_t *)p)[i] = (int32_t)v; break;
    case FL_INT64: ((int64_t *)p)[i] = (int64_t)v; break;
    case FL_FLOAT16: ((fl_float16 *)p)[i] = fl_float16_from_float((float)v); break;
    case FL_BFLOAT16: ((fl_bfloat16 *)p)[i] = fl_bfloat16_from_float((float)v); break;
    case FL_FLOAT32: ((float *)p)[i] = (float)v; break;
    default: ((double *)p)[i] = v; break;
    }
}

typedef struct side {
    int64_t stride[FL_MAX_NDIM], extent; /* extent: elements of the buffer */
    char *data;
} side;

/* Axes in a random order in memory, sometimes with gaps, sometimes (inputs) expanded. */
static void lay_out(side *s, const int64_t *size, int ndim, bool input)
{
    int order[FL_MAX_NDIM];
    for (int i = 0; i < ndim; i++) order[i] = i;
    for (int i = ndim - 1; i > 0 && (input || below(3) == 0); i--) {
        int j = below(i + 1), t = order[i];
        order[i] = order[j];
        order[j] = t;
    }
    int64_t next = below(6) == 0 ? 2 : 1;
    for (int i = ndim - 1; i >= 0; i--) {
        s->stride[order[i]] = next;
        next *= size[order[i]] ? size[order[i]] : 1;
        if (below(8) == 0) next += below(3);
    }
    for (int i = 0; input && i < ndim; i++)
        if (below(10) == 0) s->stride[i] = 0;
    s->extent = next * 2 + 2;
    s->data = malloc((size_t)s->extent * 8);
}

static bool one_case(void)
{
    int ndim = below(6), long_axis = below(8) == 0;
    int64_t size[FL_MAX_NDIM], n = 1;
    for (int i = 0; i < ndim; i++) {
        size[i] = below(20) == 0 ? 0 : 1 + below(long_axis && i >= ndim - 2 ? 70 : below(3) ? 5 : 20);
        if (n * size[i] > 20000) size[i] = 1;
        n *= size[i];
    }
    fl_dtype from = (fl_dtype)below(FL_DTYPE_COUNT), to = below(2) ? from : (fl_dtype)below(FL_DTYPE_COUNT);
    side a, b;
    lay_out(&a, size, ndim, true);
    lay_out(&b, size, ndim, false);
    for (int64_t i = 0; i < a.extent; i++)
        put(a.data, from, i, fl_dtype_is_float(from) ? (below(1000) - 500) / 40.0 : below(100));
    memset(b.data, 0x55, (size_t)b.extent * 8);
    char *want = malloc((size_t)b.extent * 8);
    memcpy(want, b.data, (size_t)b.extent * 8);
    for (int64_t k = 0; k < n; k++) {
        int64_t x = 0, y = 0, rest = k;
        for (int i = ndim - 1; i >= 0; i--) {
            x += rest % size[i] * a.stride[i];
            y += rest % size[i] * b.stride[i];
            rest /= size[i];
        }
        put(want, to, y, get(a.data, from, x));
    }
    fl_view in = {.data = a.data, .dtype = from, .ndim = ndim, .size = size, .stride = a.stride, .numel = n};
    fl_view out = {.data = b.data, .dtype = to, .ndim = ndim, .size = size, .stride = b.stride, .numel = n};
    bool good = fl_cpu_copy(&out, &in) == FL_OK && memcmp(b.data, want, (size_t)b.extent * 8) == 0;
    free(a.data);
    free(b.data);
    free(want);
    return good;
}

/* [2, rows, columns] turned into [2, columns, rows]; large enough to bypass the caches. */
static bool large_transpose(int64_t rows, int64_t columns, fl_dtype dtype, int64_t shift)
{
    int64_t n = 2 * rows * columns, width = (int64_t)fl_dtype_size(dtype);
    int64_t size[3] = {2, columns, rows}, from[3] = {rows * columns, 1, columns}, to[3] = {rows * columns, rows, 1};
    char *a = malloc((size_t)(n * width)), *b = malloc((size_t)((n + shift) * width));
    for (int64_t i = 0; i < n * width; i++) a[i] = (char)(i * 2654435761u >> 13);
    fl_view in = {.data = a, .dtype = dtype, .ndim = 3, .size = size, .stride = from, .numel = n};
    fl_view out = {.data = b + shift * width, .dtype = dtype, .ndim = 3, .size = size, .stride = to, .numel = n};
    bool good = fl_cpu_copy(&out, &in) == FL_OK;
    for (int64_t i = 0; good && i < n; i++) {
        int64_t batch = i / (rows * columns), c = i / rows % columns, r = i % rows;
        good = memcmp(b + (i + shift) * width, a + (batch * rows * columns + r * columns + c) * width, (size_t)width)
            == 0;
    }
    free(a);
    free(b);
    return good;
}

/* In a child, because the level is chosen once per process. */
static bool good_on_level(fl_level level)
{
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        setenv("FLOW_CPU", fl_cpu_level_name(level), 1);
        bool good = fl_cpu_level() == level;
        for (int i = 0; good && i < 6000; i++) good = one_case();
        good = good && large_transpose(1031, 1500, FL_FLOAT32, 0) && large_transpose(1024, 1024, FL_FLOAT32, 1);
        good = good && large_transpose(700, 1001, FL_FLOAT64, 0) && large_transpose(1300, 2100, FL_BFLOAT16, 0)
            && large_transpose(2100, 2300, FL_UINT8, 0);
        _exit(good ? 0 : 1);
    }
    int status = 1;
    return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

static void base_level(void) { CHECK(good_on_level(FL_LEVEL_BASE)); }

static fl_level best;
static void avx2_level(void)
{
    if (best < FL_LEVEL_AVX2) SKIP("this machine has no AVX2");
    CHECK(good_on_level(FL_LEVEL_AVX2));
}
static void avx512_level(void)
{
    if (best < FL_LEVEL_AVX512) SKIP("this machine has no AVX-512");
    CHECK(good_on_level(FL_LEVEL_AVX512));
}

static void fills_any_layout(void)
{
    int64_t size[2] = {3, 4}, stride[2] = {1, 5};
    float data[20], value = 2.5f;
    memset(data, 0, sizeof data);
    fl_view out = {.data = data, .dtype = FL_FLOAT32, .ndim = 2, .size = size, .stride = stride, .numel = 12};
    CHECK(fl_cpu_fill(&out, &value) == FL_OK);
    for (int i = 0; i < 20; i++) CHECK(data[i] == (i % 5 < 3 ? 2.5f : 0));
}

int main(void)
{
    char *wanted = getenv("FLOW_CPU");
    if (wanted) unsetenv("FLOW_CPU");
    pid_t child = fork(); /* asked in a child, so that the children below still choose */
    if (child == 0) _exit(fl_cpu_level());
    int status = 0;
    if (child > 0 && waitpid(child, &status, 0) == child) best = (fl_level)WEXITSTATUS(status);
    RUN(base_level);
    RUN(avx2_level);
    RUN(avx512_level);
    RUN(fills_any_layout);
    return finish();
}
