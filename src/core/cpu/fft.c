/*
** fft.c -- Fourier transforms of the lines of an array: see fft.h.
**
** Lines that lie as a plan takes them are transformed where they are. Others, those that are cut or filled up, and real
** ones of odd length, pass through a buffer, as many at a time as a vector has lanes.
*/
#include "fft.h"
#include "memory/scratch.h"

#include <string.h>

enum { OWN_SCRATCH = 1, STEP_SCRATCH = 2 };
enum { MOST_BESIDE = 4096, SHARED_SQUARE = 1 << 15, FEW_LANES = 4 };

/* A call: the job, and what its threads share. */
struct work {
    const fl_fft *job;
    const fl_fft_plan *plan; /* of complex lines: of half the length where `packed` */
    const fl_fft_kernels *loops;
    bool packed;  /* real lines as complex ones of half the length */
    bool shared;  /* the team works on one line at a time */
    int64_t item; /* bytes of a real */
    int64_t lines, group;
    size_t bytes; /* of scratch memory: of the plan, and of the buffers */
    int failed;   /* atomic: out of memory */
};

/* ---- complex lines side by side in memory ---- */

struct square {
    const fl_fft_plan *plan;
    const fl_fft_kernels *loops;
    void *between, *out;
    const void *in;
    bool inverse;
    double scale;
    int *failed;
};

static void *step_scratch(const struct square *square)
{
    size_t n1 = (size_t)square->plan->first.m, n2 = (size_t)square->plan->second.m, lanes = (size_t)square->plan->lanes;
    void *scratch = fl_scratch(STEP_SCRATCH,
                               6 * ((n1 > n2 ? n1 : n2) + lanes) * lanes * fl_dtype_size(square->plan->dtype));
    if (!scratch) __atomic_store_n(square->failed, 1, __ATOMIC_RELAXED);
    return scratch;
}

static void square_columns(void *context, int64_t begin, int64_t end)
{
    const struct square *s = context;
    void *scratch = step_scratch(s);
    for (int64_t b = begin; scratch && b < end; b++)
        s->loops->columns(s->plan, s->between, s->in, b, s->inverse, scratch);
}

static void square_rows(void *context, int64_t begin, int64_t end)
{
    const struct square *s = context;
    void *scratch = step_scratch(s);
    for (int64_t b = begin; scratch && b < end; b++)
        s->loops->rows(s->plan, s->out, s->between, b, s->inverse, s->scale, scratch);
}

static void square(const struct work *work, const fl_fft_plan *plan, void *out, const void *in, bool inverse,
                   double scale, void *scratch)
{
    struct square s = {plan, work->loops, scratch, out, in, inverse, scale, (int *)&work->failed};
    int64_t lanes = plan->lanes, columns = (plan->second.m + lanes - 1) / lanes,
            rows = (plan->first.m + lanes - 1) / lanes;
    double cost = work->shared ? (double)(plan->n * lanes) * 0.6 : 0;
    if (work->shared) {
        fl_team_for(columns, cost / (double)columns, square_columns, &s);
        fl_team_for(rows, cost / (double)rows, square_rows, &s);
    } else {
        square_columns(&s, 0, columns);
        square_rows(&s, 0, rows);
    }
}

static void lines(const struct work *work, const fl_fft_plan *plan, void *out, int64_t out_distance, const void *in,
                  int64_t in_distance, int count, bool inverse, double scale, void *scratch);

/* Bluestein: j k = (j^2 + k^2 - (k - j)^2) / 2, so a transform is a convolution between two products. */
static void chirp(const struct work *work, const fl_fft_plan *plan, void *out, const void *in, bool inverse,
                  double scale, char *scratch)
{
    int64_t n = plan->n, m = plan->inner->n;
    char *a = scratch, *b = a + 2 * m * work->item, *rest = b + 2 * m * work->item;
    work->loops->product(a, in, plan->chirp, n, inverse, false, 1);
    memset(a + 2 * n * work->item, 0, (size_t)(2 * (m - n) * work->item));
    lines(work, plan->inner, b, 0, a, 0, 1, false, 1, rest);
    work->loops->product(b, b, plan->spectrum, m, false, false, 1 / (double)m);
    lines(work, plan->inner, a, 0, b, 0, 1, true, 1, rest);
    work->loops->product(out, a, plan->chirp, n, false, inverse, scale);
}

/* `count` lines, at most the lanes, `distance` complex numbers apart. */
static void lines(const struct work *work, const fl_fft_plan *plan, void *out, int64_t out_distance, const void *in,
                  int64_t in_distance, int count, bool inverse, double scale, void *scratch)
{
    bool beside = plan->way == FL_FFT_LANES
        || (plan->way == FL_FFT_SQUARE && count >= FEW_LANES && plan->n <= MOST_BESIDE);
    if (beside) {
        work->loops->lanes_of(plan, out, out_distance, in, in_distance, count, inverse, scale, scratch);
        return;
    }
    for (int i = 0; i < count; i++) {
        char *to = (char *)out + i * out_distance * 2 * work->item;
        const char *from = (const char *)in + i * in_distance * 2 * work->item;
        switch (plan->way) {
        case FL_FFT_LINE: work->loops->line(plan, to, from, inverse, scale, scratch); break;
        case FL_FFT_SQUARE: square(work, plan, to, from, inverse, scale, scratch); break;
        case FL_FFT_CHIRP: chirp(work, plan, to, from, inverse, scale, scratch); break;
        default: /* the one number, times scale */
            for (int k = 0; k < 2; k++) {
                if (plan->dtype == FL_FLOAT64) ((double *)to)[k] = ((const double *)from)[k] * scale;
                else ((float *)to)[k] = (float)(((const float *)from)[k] * scale);
            }
        }
    }
}

/* ---- real lines ---- */

/* Real lines of even length n: complex ones of n / 2, and a step between halves. */
static void real_lines(const struct work *work, void *out, const void *in, int count, char *scratch)
{
    const fl_fft *job = work->job;
    int64_t half = job->n / 2, number = 2 * work->item;
    char *z = scratch, *rest = z + work->group * (half + 1) * number;
    if (job->kind == FL_FFT_REAL_TO_HALF) {
        lines(work, work->plan, z, half, in, half, count, false, 1, rest);
        for (int i = 0; i < count; i++)
            work->loops->mirror(work->plan, (char *)out + i * (half + 1) * number, z + i * half * number, false,
                                job->inverse, job->scale, job->inside);
        return;
    }
    for (int i = 0; i < count; i++)
        work->loops->mirror(work->plan, z + i * half * number, (const char *)in + i * (half + 1) * number, true,
                            job->inverse, job->scale, job->inside);
    lines(work, work->plan, out, half, z, half, count, true, 1, rest);
}

static double get(const struct work *work, const void *array, int64_t at)
{
    return work->item == sizeof(double) ? ((const double *)array)[at] : (double)((const float *)array)[at];
}
static void set(const struct work *work, void *array, int64_t at, double value)
{
    if (work->item == sizeof(double)) ((double *)array)[at] = value;
    else ((float *)array)[at] = (float)value;
}

/* Real lines of odd length: complex ones whose other half is known. */
static void odd_lines(const struct work *work, void *out, const void *in, int count, char *scratch)
{
    const fl_fft *job = work->job;
    int64_t n = job->n, half = n / 2 + 1, number = 2 * work->item;
    char *z = scratch, *rest = z + work->group * n * number;
    bool forth = job->kind == FL_FFT_REAL_TO_HALF;
    for (int i = 0; i < count; i++)
        for (int64_t k = 0; k < n; k++) {
            int64_t at = k < half ? k : n - k;
            double factor = k ? job->inside : 1;
            set(work, z, (i * n + k) * 2,
                forth ? get(work, in, i * n + k) : factor * get(work, in, (i * half + at) * 2));
            double part = forth || !k ? 0 : factor * get(work, in, (i * half + at) * 2 + 1);
            set(work, z, (i * n + k) * 2 + 1, k < half ? part : -part);
        }
    lines(work, work->plan, z, n, z, n, count, job->inverse, job->scale, rest);
    for (int i = 0; i < count; i++)
        for (int64_t k = 0; k < (forth ? half : n); k++) {
            if (!forth) set(work, out, i * n + k, get(work, z, (i * n + k) * 2));
            for (int part = 0; forth && part < 2; part++)
                set(work, out, (i * half + k) * 2 + part,
                    (k ? job->inside : 1) * (part && !k ? 0 : get(work, z, (i * n + k) * 2 + part)));
        }
}

/* ---- lines of any layout ---- */

static void natural_lines(const struct work *work, void *out, const void *in, int count, char *scratch)
{
    const fl_fft *job = work->job;
    if (job->kind == FL_FFT_COMPLEX)
        lines(work, work->plan, out, job->n, in, job->n, count, job->inverse, job->scale, scratch);
    else if (work->packed) real_lines(work, out, in, count, scratch);
    else odd_lines(work, out, in, count, scratch);
}

/* Copies `n` numbers of `width` bytes from the first to the last of lines, filling up with zeros to `room`. */
static void line_in(char *to, const char *from, int64_t step, int64_t n, int64_t room, int64_t width)
{
    if (step == 1 && n > 0) memcpy(to, from, (size_t)(n * width));
    for (int64_t j = 0; step != 1 && j < n; j++) memcpy(to + j * width, from + j * step * width, (size_t)width);
    memset(to + n * width, 0, (size_t)((room - n) * width));
}

static void line_out(char *to, int64_t step, const char *from, int64_t n, int64_t room, int64_t width)
{
    if (step == 1 && n > 0) memcpy(to, from, (size_t)(n * width));
    for (int64_t j = 0; step != 1 && j < n; j++) memcpy(to + j * step * width, from + j * width, (size_t)width);
    for (int64_t j = n; j < room; j++) memset(to + j * step * width, 0, (size_t)width);
}

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* Lines begin .. begin + count - 1 through buffers. */
static void buffered_lines(const struct work *work, int64_t begin, int count, char *scratch)
{
    const fl_fft *job = work->job;
    int64_t takes = fl_fft_takes(job), gives = fl_fft_gives(job), wide_in = fl_fft_width_in(job) * work->item,
            wide_out = fl_fft_width_out(job) * work->item;
    char *in = scratch, *out = in + ((work->group * takes * wide_in + 63) & ~(int64_t)63);
    char *rest = out + ((work->group * gives * wide_out + 63) & ~(int64_t)63);
    for (int i = 0; i < count; i++) {
        int64_t outer = (begin + i) / job->inner, lane = (begin + i) % job->inner;
        const char *from = (const char *)job->in + (outer * job->in_size * job->inner + lane) * wide_in;
        line_in(in + i * takes * wide_in, from, job->inner, smaller(takes, job->in_size), takes, wide_in);
    }
    natural_lines(work, out, in, count, rest);
    for (int i = 0; i < count; i++) {
        int64_t outer = (begin + i) / job->inner, lane = (begin + i) % job->inner;
        char *to = (char *)job->out + (outer * job->out_size * job->inner + lane) * wide_out;
        line_out(to, job->inner, out + i * gives * wide_out, smaller(gives, job->out_size), job->out_size, wide_out);
    }
}

static void *own_scratch(struct work *work)
{
    void *scratch = fl_scratch(OWN_SCRATCH, work->bytes);
    if (!scratch) __atomic_store_n(&work->failed, 1, __ATOMIC_RELAXED);
    return scratch;
}

static bool is_natural(const fl_fft *job)
{
    return job->inner == 1 && job->in_size == fl_fft_takes(job) && job->out_size == fl_fft_gives(job);
}

static void run_groups(void *context, int64_t begin, int64_t end)
{
    struct work *w = context;
    const fl_fft *job = w->job;
    char *scratch = own_scratch(w);
    int64_t wide_in = fl_fft_takes(job) * fl_fft_width_in(job) * w->item,
            wide_out = fl_fft_gives(job) * fl_fft_width_out(job) * w->item;
    for (int64_t g = begin; scratch && g < end; g++) {
        int64_t first = g * w->group;
        int count = (int)smaller(w->group, w->lines - first);
        if (is_natural(job))
            natural_lines(w, (char *)job->out + first * wide_out, (const char *)job->in + first * wide_in, count,
                          scratch);
        else buffered_lines(w, first, count, scratch);
    }
}

/* Lines side by side: neighbours are the lanes. */
static void run_beside(void *context, int64_t begin, int64_t end)
{
    struct work *w = context;
    const fl_fft *job = w->job;
    char *scratch = own_scratch(w);
    int64_t groups = (job->inner + w->group - 1) / w->group;
    for (int64_t g = begin; scratch && g < end; g++) {
        int64_t lane = g % groups * w->group, at = (g / groups * job->n * job->inner + lane) * 2 * w->item;
        w->loops->beside(w->plan, (char *)job->out + at, job->inner, (const char *)job->in + at, job->inner,
                         (int)smaller(w->group, job->inner - lane), job->inverse, job->scale, scratch);
    }
}

static void run(struct work *work)
{
    const fl_fft *job = work->job;
    double cost = (double)(job->n * work->group) * 4;
    bool beside = job->kind == FL_FFT_COMPLEX && job->inner > 1 && job->in_size == job->n && job->out_size == job->n
        && work->plan->whole.passes > 0 && job->n <= MOST_BESIDE;
    if (beside) {
        fl_team_for(job->outer * ((job->inner + work->group - 1) / work->group), cost, run_beside, work);
        return;
    }
    int64_t groups = (work->lines + work->group - 1) / work->group;
    work->shared = job->n >= SHARED_SQUARE && groups < fl_team_size();
    if (work->shared) run_groups(work, 0, groups);
    else fl_team_for(groups, cost, run_groups, work);
}

fl_status fl_cpu_fft(const fl_fft *job)
{
    struct work w = {.job = job, .lines = job->outer * job->inner, .item = (int64_t)fl_dtype_size(job->dtype)};
    fl_fft_plan *plan;
    if (w.lines == 0 || job->out_size == 0) return FL_OK;
    w.packed = job->kind != FL_FFT_COMPLEX && job->n % 2 == 0;
    FL_TRY(fl_fft_plan_take(&plan, job->name, w.packed ? job->n / 2 : job->n, job->dtype));
    w.plan = plan;
    w.loops = fl_fft_loops(job->dtype);
    w.group = job->n >= MOST_BESIDE ? 1 : plan->lanes;
    size_t lanes_bytes = 6 * (size_t)plan->n * (size_t)(plan->lanes * w.item) + 512;
    w.bytes = fl_fft_scratch(plan);
    if (plan->n <= MOST_BESIDE && plan->whole.passes && w.bytes < lanes_bytes) w.bytes = lanes_bytes;
    w.bytes += (size_t)(6 * w.group * (job->n + 2) * w.item) + 512;
    run(&w);
    fl_fft_plan_give(plan);
    if (!w.failed) return FL_OK;
    return fl_fail(FL_ERR_MEMORY, "%s: out of memory for %lld lines of length %lld", job->name, (long long)w.lines,
                   (long long)job->n);
}
