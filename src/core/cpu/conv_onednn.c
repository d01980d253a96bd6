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
static bool suits(const fl_conv *c, fl_conv_sum sum)
{
    double multiplications = (double)c->images * (double)(c->groups * c->out) * (double)fl_conv_depth(c)
        * (double)fl_conv_y_plane(c);
    if (multiplications < LEAST_MULTIPLICATIONS || fl_conv_is_pointwise(c)) return false;
    if (fl_conv_is_depthwise(c)) return c->groups >= 8;
    return c->out >= 8 && (c->in >= 8 || sum != FL_CONV_INPUT_GRAD);
}

static double chunk_multiplications(const struct job *j)
{
    const fl_conv *c = j->c;
    return (double)(c->groups * j->part.images * j->part.out * j->part.in * fl_conv_taps(c))
        * (double)fl_conv_y_plane(c);
}

static int64_t chunk_images(const fl_conv *c)
{
    double each = (double)(c->groups * c->out * fl_conv_depth(c)) * (double)fl_conv_y_plane(c);
    int64_t bytes = 4 * c->groups * (c->in * fl_conv_x_plane(c) + c->out * fl_conv_y_plane(c)),
            n = (int64_t)(CHUNK_MULTIPLICATIONS / each) + 1;
    if (n < c->images / UNITS) n = c->images / UNITS;
    if (n > CHUNK_BYTES / bytes) n = CHUNK_BYTES / bytes;
    if (n < 1) n = 1;
    if (n > c->images) n = c->images;
    int64_t chunks = (c->images + n - 1) / n;
    return (c->images + chunks - 1) / chunks; /* of equal size */
}

static void cut(struct job *j)
{
    const fl_conv *c = j->c;
    int64_t *channels = j->part.sum == FL_CONV_INPUT_GRAD ? &j->part.in : &j->part.out;
    j->part.images = chunk_images(c);
    j->chunks = (c->images + j->part.images - 1) / j->part.images;
    j->sections = 1;
    while (c->groups == 1 && j->chunks * j->sections * 2 <= UNITS && *channels % (2 * SECTION_CHANNELS) == 0
           && chunk_multiplications(j) > CHUNK_MULTIPLICATIONS) {
        *channels /= 2;
        j->sections *= 2;
    }
}

static bool plan(struct job *j)
{
    fl_conv_part rest = j->part;
    rest.images = j->c->images - (j->chunks - 1) * j->part.images;
    j->plan = fl_conv_plan_of(&j->part);
    j->last = j->plan && rest.images != j->part.images ? fl_conv_plan_of(&rest) : j->plan;
    if (!j->last || !fl_conv_plans_agree(j->plan, j->last)) return false;
    j->weight_bytes = j->plan->sides[FL_CONV_SIDE_WEIGHT].bytes;
    if (!j->weight_bytes) j->weight_bytes = 4 * j->c->groups * j->part.out * j->part.in * fl_conv_taps(j->c);
    j->weight_bytes = (j->weight_bytes + 63) / 64 * 64;
    return true;
}

static const fl_conv_plan *plan_of(const struct job *j, int64_t chunk)
{
    return chunk + 1 < j->chunks ? j->plan : j->last;
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

static void fail(struct job *j) { __atomic_store_n(&j->failed, true, __ATOMIC_RELAXED); }

/* Points at the operands of a chunk and a section, as the caller has them. */
static void point(fl_conv_run *run, const struct job *j, int64_t chunk, int64_t section)
{
    const fl_conv *c = j->c;
    bool by_in = j->part.sum == FL_CONV_INPUT_GRAD;
    int64_t in = by_in ? section * j->part.in : 0, out = by_in ? 0 : section * j->part.out,
            image = chunk * j->part.images * c->groups;
    fl_conv_run_at(run, FL_CONV_SIDE_X, j->sides[FL_CONV_SIDE_X] + 4 * (image * c->in + in) * fl_conv_x_plane(c));
    fl_conv_run_at(run, FL_CONV_SIDE_Y, j->sides[FL_CONV_SIDE_Y] + 4 * (image * c->out + out) * fl_conv_y_plane(c));
    fl_conv_run_at(run, FL_CONV_SIDE_WEIGHT,
                   j->sides[FL_CONV_SIDE_WEIGHT] + 4 * (out * fl_conv_depth(c) + in * fl_conv_taps(c)));
    fl_conv_run_bias_at(run, j->bias ? j->bias + 4 * out : NULL);
}

/* The run is one of the chunk's plan. */
static bool turn_to(fl_conv_run *run, const struct job *j, int64_t chunk)
{
    const fl_conv_plan *wanted = plan_of(j, chunk);
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
static bool bring_weights(struct job *j)
{
    fl_conv_run run;
    if (!j->plan->sides[FL_CONV_SIDE_WEIGHT].bytes) return true;
    j->weights = fl_scratch(WEIGHTS_SCRATCH, (size_t)(j->sections * j->weight_bytes));
    if (!j->weights || !room_open(&run, NULL, j->plan, 0)) return false;
    bool done = true;
    for (int64_t section = 0; section < j->sections && done; section++) {
        point(&run, j, 0, section);
        fl_conv_run_own_at(&run, FL_CONV_SIDE_WEIGHT, j->weights + section * j->weight_bytes);
        done = fl_conv_run_bring(&run, FL_CONV_SIDE_WEIGHT);
    }
    fl_conv_run_close(&run);
    return done;
}

static bool images(struct job *j)
{
    if (!bring_weights(j)) return false;
    fl_team_for(j->chunks * j->sections, chunk_multiplications(j) * NS_PER_MULTIPLICATION, images_part, j);
    return !j->failed;
}

/* ---- gradient of the weight ---- */

static void add(float *sum, const float *more, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) sum[i] += more[i];
}

/* Adds the chunks of a part to its sums; the run is closed by the caller. */
static bool sum_chunks(fl_conv_run *run, const struct job *j, int64_t part, int64_t section)
{
    int64_t first = j->chunks * part / j->parts, end = j->chunks * (part + 1) / j->parts;
    float *sum = (float *)(j->weights + (part * j->sections + section) * j->weight_bytes);
    for (int64_t chunk = first; chunk < end; chunk++) {
        const fl_conv_plan *wanted = plan_of(j, chunk);
        char *more;
        if (run->plan) fl_conv_run_close(run);
        if (!room_open(run, &more, wanted, j->weight_bytes)) {
            run->plan = NULL;
            return false;
        }
        point(run, j, chunk, section);
        fl_conv_run_own_at(run, FL_CONV_SIDE_WEIGHT, chunk == first ? (void *)sum : more);
        if (!fl_conv_run_bring(run, FL_CONV_SIDE_X) || !fl_conv_run_bring(run, FL_CONV_SIDE_Y) || !fl_conv_run_sum(run))
            return false;
        if (chunk > first) add(sum, (const float *)more, j->weight_bytes / 4);
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

static bool return_weights(struct job *j)
{
    fl_conv_run run;
    if (!j->plan->sides[FL_CONV_SIDE_WEIGHT].bytes) {
        int64_t bytes = 4 * j->c->groups * j->part.out * fl_conv_depth(j->c);
        for (int64_t i = 0; i < j->sections; i++)
            memcpy(j->sides[FL_CONV_SIDE_WEIGHT] + i * bytes, j->weights + i * j->weight_bytes, (size_t)bytes);
        return true;
    }
    if (!room_open(&run, NULL, j->plan, 0)) return false;
    bool done = true;
    for (int64_t section = 0; section < j->sections && done; section++) {
        point(&run, j, 0, section);
        fl_conv_run_own_at(&run, FL_CONV_SIDE_WEIGHT, j->weights + section * j->weight_bytes);
        done = fl_conv_run_return(&run, FL_CONV_SIDE_WEIGHT);
    }
    fl_conv_run_close(&run);
    return done;
}

static bool weight(struct job *j)
{
    int64_t bytes = j->sections * j->weight_bytes;
    j->parts = PART_BYTES / bytes;
    if (j->parts > PARTS) j->parts = PARTS;
    if (j->parts > j->chunks) j->parts = j->chunks;
    if (j->parts < 1) j->parts = 1;
    j->weights = fl_scratch(WEIGHTS_SCRATCH, (size_t)(j->parts * bytes));
    if (!j->weights) return false;
    double chunks = (double)j->chunks / (double)j->parts;
    fl_team_for(j->parts * j->sections, chunks * chunk_multiplications(j) * NS_PER_MULTIPLICATION, weight_part, j);
    if (j->failed) return false;
    fl_team_for((bytes / 4 + SUM_BLOCK - 1) / SUM_BLOCK, (double)(j->parts * SUM_BLOCK) * 0.1, add_parts, j);
    return return_weights(j);
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
