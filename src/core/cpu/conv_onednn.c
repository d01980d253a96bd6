/*
** conv_onednn.c -- convolutions of float32 through oneDNN, with our team.
**
** The images are cut into chunks that stay in the cache. Each is brought into the layout that the library is fastest
** in, computed, and brought back. If there are few chunks, the channels of the result are cut into sections too.
** The gradient of the weight sums the chunks of a part, and then the parts in order. All cuts follow from sizes, so a
** result does not depend on the number of threads.
*/
#include "conv_plan.h"
#include "memory/scratch.h"
#include "stage.h"

/* Below so many multiplications the call takes longer than the sum. */
static const double LEAST_MULTIPLICATIONS = 1 << 18;
/* Images of a chunk: so many bytes of x and y, and no fewer multiplications unless that are all. */
static const int64_t CHUNK_BYTES = 512 << 10;
static const double CHUNK_MULTIPLICATIONS = 8 << 20;
/* Units of work that there should be, of a section's least channels. */
enum { UNITS = 16, SECTION_CHANNELS = 32 };
/* Weight gradient: at most so many parts, of so many bytes. */
enum { PARTS = 16, SUM_BLOCK = 4096 };
static const int64_t PART_BYTES = 16 << 20;
static const double NS_PER_MULTIPLICATION = 0.03;
enum { WEIGHTS_SCRATCH = 2 };

struct job {
    const fl_conv *c;
    fl_conv_part part;
    const fl_conv_plan *plan, *last; /* of a chunk, of the last one */
    int64_t chunks, sections, parts;
    char *sides[FL_CONV_SIDES]; /* as the caller has them */
    const char *bias;
    char *weights;        /* in the library's layout: [sections], or the sums [parts, sections] */
    int64_t weight_bytes; /* of a section */
    bool failed;
};

/* Measured on AVX2: windows of one element are products without unfolding, which ours are faster at; and of few
** channels the library's vectors are mostly empty. */
static bool suits(const fl_conv *conv, fl_conv_sum sum)
{
    double multiplications = (double)conv->images * (double)(conv->groups * conv->out) * (double)fl_conv_depth(conv)
        * (double)fl_conv_y_plane(conv);
    if (multiplications < LEAST_MULTIPLICATIONS || fl_conv_is_pointwise(conv)) return false;
    if (fl_conv_is_depthwise(conv)) return conv->groups >= 8;
    return conv->out >= 8 && (conv->in >= 8 || sum != FL_CONV_INPUT_GRAD);
}

static double chunk_multiplications(const struct job *job)
{
    const fl_conv *c = job->c;
    return (double)(c->groups * job->part.images * job->part.out * job->part.in * fl_conv_taps(c))
        * (double)fl_conv_y_plane(c);
}

static int64_t chunk_images(const fl_conv *conv)
{
    double each = (double)(conv->groups * conv->out * fl_conv_depth(conv)) * (double)fl_conv_y_plane(conv);
    int64_t bytes = 4 * conv->groups * (conv->in * fl_conv_x_plane(conv) + conv->out * fl_conv_y_plane(conv)),
            n = (int64_t)(CHUNK_MULTIPLICATIONS / each) + 1;
    if (n < conv->images / UNITS) n = conv->images / UNITS;
    if (n > CHUNK_BYTES / bytes) n = CHUNK_BYTES / bytes;
    if (n < 1) n = 1;
    if (n > conv->images) n = conv->images;
    int64_t chunks = (conv->images + n - 1) / n;
    return (conv->images + chunks - 1) / chunks; /* of equal size */
}

static void cut(struct job *job)
{
    const fl_conv *c = job->c;
    int64_t *channels = job->part.sum == FL_CONV_INPUT_GRAD ? &job->part.in : &job->part.out;
    job->part.images = chunk_images(c);
    job->chunks = (c->images + job->part.images - 1) / job->part.images;
    job->sections = 1;
    while (c->groups == 1 && job->chunks * job->sections * 2 <= UNITS && *channels % (2 * SECTION_CHANNELS) == 0
           && chunk_multiplications(job) > CHUNK_MULTIPLICATIONS) {
        *channels /= 2;
        job->sections *= 2;
    }
}

static bool plan(struct job *job)
{
    fl_conv_part rest = job->part;
    rest.images = job->c->images - (job->chunks - 1) * job->part.images;
    job->plan = fl_conv_plan_of(&job->part);
    job->last = job->plan && rest.images != job->part.images ? fl_conv_plan_of(&rest) : job->plan;
    if (!job->last || !fl_conv_plans_agree(job->plan, job->last)) return false;
    job->weight_bytes = job->plan->sides[FL_CONV_SIDE_WEIGHT].bytes;
    if (!job->weight_bytes)
        job->weight_bytes = 4 * job->c->groups * job->part.out * job->part.in * fl_conv_taps(job->c);
    job->weight_bytes = (job->weight_bytes + 63) / 64 * 64;
    return true;
}

static const fl_conv_plan *plan_of(const struct job *job, int64_t chunk)
{
    return chunk + 1 < job->chunks ? job->plan : job->last;
}

/* ---- the buffers of a thread ---- */

/* The room of a plan's sides, of its scratch memory, and of `more` bytes, which begin at *end. */
static bool room_open(fl_conv_run *run, char **end, const fl_conv_plan *plan, int64_t more)
{
    int64_t at[FL_CONV_SIDES + 2] = {0};
    for (int i = 0; i <= FL_CONV_SIDES; i++) {
        int64_t bytes = i == FL_CONV_SIDES ? plan->scratch_bytes : plan->sides[i].bytes;
        at[i + 1] = at[i] + (bytes + 63) / 64 * 64;
    }
    char *room = fl_scratch(FL_KERNEL_SCRATCH, (size_t)(at[FL_CONV_SIDES + 1] + more + 64));
    void *own[FL_CONV_SIDES];
    for (int i = 0; i < FL_CONV_SIDES && room; i++) own[i] = room + at[i];
    if (end && room) *end = room + at[FL_CONV_SIDES + 1];
    return room && fl_conv_run_open(run, plan, own, room + at[FL_CONV_SIDES]);
}

static void fail(struct job *job) { __atomic_store_n(&job->failed, true, __ATOMIC_RELAXED); }

/* Points at the operands of a chunk and a section, as the caller has them. */
static void point(fl_conv_run *run, const struct job *job, int64_t chunk, int64_t section)
{
    const fl_conv *c = job->c;
    bool by_in = job->part.sum == FL_CONV_INPUT_GRAD;
    int64_t in = by_in ? section * job->part.in : 0, out = by_in ? 0 : section * job->part.out,
            image = chunk * job->part.images * c->groups;
    fl_conv_run_at(run, FL_CONV_SIDE_X, job->sides[FL_CONV_SIDE_X] + 4 * (image * c->in + in) * fl_conv_x_plane(c));
    fl_conv_run_at(run, FL_CONV_SIDE_Y, job->sides[FL_CONV_SIDE_Y] + 4 * (image * c->out + out) * fl_conv_y_plane(c));
    fl_conv_run_at(run, FL_CONV_SIDE_WEIGHT,
                   job->sides[FL_CONV_SIDE_WEIGHT] + 4 * (out * fl_conv_depth(c) + in * fl_conv_taps(c)));
    fl_conv_run_bias_at(run, job->bias ? job->bias + 4 * out : NULL);
}

/* The run is one of the chunk's plan. */
static bool turn_to(fl_conv_run *run, const struct job *job, int64_t chunk)
{
    const fl_conv_plan *wanted = plan_of(job, chunk);
    if (run->plan == wanted) return true;
    if (run->plan) fl_conv_run_close(run);
    return room_open(run, NULL, wanted, 0);
}

/* ---- forward, and the gradient of the input ---- */

static void images_part(void *context, int64_t from, int64_t to)
{
    struct job *j = context;
    int input = j->part.sum == FL_CONV_FORWARD ? FL_CONV_SIDE_X : FL_CONV_SIDE_Y,
        result = j->part.sum == FL_CONV_FORWARD ? FL_CONV_SIDE_Y : FL_CONV_SIDE_X;
    fl_conv_run run = {0};
    bool done = true;
    for (int64_t i = from, brought = -1; i < to && done; i++) {
        int64_t chunk = i / j->sections, section = i % j->sections;
        if (!turn_to(&run, j, chunk)) {
            fail(j);
            return;
        }
        point(&run, j, chunk, section);
        if (j->weights) fl_conv_run_own_at(&run, FL_CONV_SIDE_WEIGHT, j->weights + section * j->weight_bytes);
        done = (chunk == brought || fl_conv_run_bring(&run, input)) && fl_conv_run_sum(&run)
            && fl_conv_run_return(&run, result);
        brought = chunk;
    }
    if (run.plan) fl_conv_run_close(&run);
    if (!done) fail(j);
}

/* The weight in the library's layout, once for all. */
static bool bring_weights(struct job *job)
{
    fl_conv_run run;
    if (!job->plan->sides[FL_CONV_SIDE_WEIGHT].bytes) return true;
    job->weights = fl_scratch(WEIGHTS_SCRATCH, (size_t)(job->sections * job->weight_bytes));
    if (!job->weights || !room_open(&run, NULL, job->plan, 0)) return false;
    bool done = true;
    for (int64_t section = 0; section < job->sections && done; section++) {
        point(&run, job, 0, section);
        fl_conv_run_own_at(&run, FL_CONV_SIDE_WEIGHT, job->weights + section * job->weight_bytes);
        done = fl_conv_run_bring(&run, FL_CONV_SIDE_WEIGHT);
    }
    fl_conv_run_close(&run);
    return done;
}

static bool images(struct job *job)
{
    if (!bring_weights(job)) return false;
    fl_team_for(job->chunks * job->sections, chunk_multiplications(job) * NS_PER_MULTIPLICATION, images_part, job);
    return !job->failed;
}

/* ---- gradient of the weight ---- */

static void add(float *sum, const float *more, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) sum[i] += more[i];
}

/* Adds the chunks of a part to its sums; the run is closed by the caller. */
static bool sum_chunks(fl_conv_run *run, const struct job *job, int64_t part, int64_t section)
{
    int64_t first = job->chunks * part / job->parts, end = job->chunks * (part + 1) / job->parts;
    float *sum = (float *)(job->weights + (part * job->sections + section) * job->weight_bytes);
    for (int64_t chunk = first; chunk < end; chunk++) {
        const fl_conv_plan *wanted = plan_of(job, chunk);
        char *more;
        if (run->plan) fl_conv_run_close(run);
        if (!room_open(run, &more, wanted, job->weight_bytes)) {
            run->plan = NULL;
            return false;
        }
        point(run, job, chunk, section);
        fl_conv_run_own_at(run, FL_CONV_SIDE_WEIGHT, chunk == first ? (void *)sum : more);
        if (!fl_conv_run_bring(run, FL_CONV_SIDE_X) || !fl_conv_run_bring(run, FL_CONV_SIDE_Y) || !fl_conv_run_sum(run))
            return false;
        if (chunk > first) add(sum, (const float *)more, job->weight_bytes / 4);
    }
    return true;
}

static void weight_part(void *context, int64_t from, int64_t to)
{
    struct job *j = context;
    fl_conv_run run = {0};
    bool done = true;
    for (int64_t i = from; i < to && done; i++) done = sum_chunks(&run, j, i / j->sections, i % j->sections);
    if (run.plan) fl_conv_run_close(&run);
    if (!done) fail(j);
}

/* The parts after the first one are added to it. */
static void add_parts(void *context, int64_t from, int64_t to)
{
    struct job *j = context;
    int64_t whole = j->sections * j->weight_bytes / 4, begin = from * SUM_BLOCK,
            end = to * SUM_BLOCK < whole ? to * SUM_BLOCK : whole;
    float *sums = (float *)j->weights;
    for (int64_t part = 1; part < j->parts; part++) add(sums + begin, sums + part * whole + begin, end - begin);
}

static bool return_weights(struct job *job)
{
    fl_conv_run run;
    if (!job->plan->sides[FL_CONV_SIDE_WEIGHT].bytes) {
        int64_t bytes = 4 * job->c->groups * job->part.out * fl_conv_depth(job->c);
        for (int64_t i = 0; i < job->sections; i++)
            memcpy(job->sides[FL_CONV_SIDE_WEIGHT] + i * bytes, job->weights + i * job->weight_bytes, (size_t)bytes);
        return true;
    }
    if (!room_open(&run, NULL, job->plan, 0)) return false;
    bool done = true;
    for (int64_t section = 0; section < job->sections && done; section++) {
        point(&run, job, 0, section);
        fl_conv_run_own_at(&run, FL_CONV_SIDE_WEIGHT, job->weights + section * job->weight_bytes);
        done = fl_conv_run_return(&run, FL_CONV_SIDE_WEIGHT);
    }
    fl_conv_run_close(&run);
    return done;
}

static bool weight(struct job *job)
{
    int64_t bytes = job->sections * job->weight_bytes;
    job->parts = PART_BYTES / bytes;
    if (job->parts > PARTS) job->parts = PARTS;
    if (job->parts > job->chunks) job->parts = job->chunks;
    if (job->parts < 1) job->parts = 1;
    job->weights = fl_scratch(WEIGHTS_SCRATCH, (size_t)(job->parts * bytes));
    if (!job->weights) return false;
    double chunks = (double)job->chunks / (double)job->parts;
    fl_team_for(job->parts * job->sections, chunks * chunk_multiplications(job) * NS_PER_MULTIPLICATION, weight_part,
                job);
    if (job->failed) return false;
    fl_team_for((bytes / 4 + SUM_BLOCK - 1) / SUM_BLOCK, (double)(job->parts * SUM_BLOCK) * 0.1, add_parts, job);
    return return_weights(job);
}

fl_status fl_cpu_conv_onednn(bool *done, fl_conv_sum sum, const fl_conv *conv, const void *x, const void *weights,
                             const void *y, const void *bias)
{
    struct job j = {.c = conv,
                    .part = {.conv = *conv, .in = conv->in, .out = conv->out, .sum = sum, .bias = bias != NULL},
                    .sides = {(char *)x, (char *)weights, (char *)y},
                    .bias = bias};
    *done = false;
    if (!suits(conv, sum)) return FL_OK;
    cut(&j);
    if (!plan(&j)) return FL_OK;
    *done = true;
    if (sum == FL_CONV_WEIGHT_GRAD ? weight(&j) : images(&j)) return FL_OK;
    return fl_fail(FL_ERR_MEMORY, "conv: out of memory for images in the layout of oneDNN");
}
