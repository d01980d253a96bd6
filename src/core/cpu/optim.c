/*
** optim.c -- one pass over all tensors of an optimizer's step: see optim.h.
**
** Tensors are cut into stretches of fixed size that the team shares. float16 and bfloat16, and operands that are not
** contiguous, go through contiguous copies in float32.
*/
#include "optim.h"

#include <math.h>
#include <stdlib.h>

enum { STRETCH = 8192, VISIT_NS = 10 }; /* elements of one unit of work; the overhead of one */

/* ---- all tensors of a call, as stretches ---- */

/* One tensor of each group. */
struct member {
    void *groups[FL_STEP_MAX_GROUPS]; /* float or double, contiguous */
    void *copies[FL_STEP_MAX_GROUPS]; /* owned; NULL where the operand itself is used */
    int64_t numel, first;             /* first: stretches before this tensor */
    bool is_double;
};

struct pack {
    fl_kernel *kernel;
    int members, groups;
    uint32_t written;         /* groups to be copied back */
    struct member *list;      /* owned */
    int64_t stretches, numel; /* of all */
    void (*visit)(const struct pack *pack, const struct member *member, int64_t at, int64_t n, int64_t stretch);
    const fl_optim_kernels *kernels;
    /* used by the visitors */
    const fl_step_fn *step;
    const fl_norms_fn *norms;
    double (*const *sum)(const void *x, int64_t n);
    double (*const *trust)(double length, double change, const fl_step *step); /* [0] NULL: none */
    fl_step numbers;
    double *partial; /* one per stretch, two of norms */
    double factor;
};

static fl_view *operand(const struct pack *pack, int index, int group)
{
    return &pack->kernel->in[group * pack->members + index];
}

static void close_pack(struct pack *pack)
{
    for (int i = 0; i < pack->members; i++)
        for (int g = 0; g < pack->groups; g++) free(pack->list[i].copies[g]);
    free(pack->list);
}

/* The operand in the dtype it is computed in, contiguous. */
static fl_status open_operand(struct pack *pack, int index, int group)
{
    struct member *m = &pack->list[index];
    fl_view *v = operand(pack, index, group);
    fl_dtype dtype = m->is_double ? FL_FLOAT64 : FL_FLOAT32;
    m->groups[group] = v->data;
    if (v->numel == 0 || (v->contiguous && v->dtype == dtype)) return FL_OK;
    m->copies[group] = m->groups[group] = malloc((size_t)v->numel * fl_dtype_size(dtype));
    if (!m->copies[group])
        return fl_fail(FL_ERR_MEMORY, "%s: out of memory for %lld elements", pack->kernel->name, (long long)v->numel);
    int64_t strides[FL_MAX_NDIM];
    fl_view copy = *v;
    fl_shape_strides(strides, v->size, v->ndim);
    copy.data = m->copies[group];
    copy.dtype = dtype;
    copy.stride = strides;
    copy.contiguous = true;
    return fl_cpu_copy(&copy, v);
}

static fl_status write_back(struct pack *pack)
{
    for (int i = 0; i < pack->members; i++)
        for (int g = 0; g < pack->groups; g++) {
            if (!pack->list[i].copies[g] || !(pack->written >> g & 1u)) continue;
            fl_view *v = operand(pack, i, g), copy = *v;
            int64_t strides[FL_MAX_NDIM];
            fl_shape_strides(strides, v->size, v->ndim);
            copy.data = pack->list[i].copies[g];
            copy.dtype = pack->list[i].is_double ? FL_FLOAT64 : FL_FLOAT32;
            copy.stride = strides;
            copy.contiguous = true;
            FL_TRY(fl_cpu_copy(v, &copy));
        }
    return FL_OK;
}

static fl_status open_pack(struct pack *pack, fl_kernel *kernel, int members, int groups)
{
    pack->kernel = kernel;
    pack->kernels = FL_BY_LEVEL(fl_optim_kernels);
    pack->members = members;
    pack->groups = groups;
    pack->stretches = pack->numel = 0;
    pack->list = calloc((size_t)members, sizeof *pack->list);
    if (!pack->list) return fl_fail(FL_ERR_MEMORY, "%s: out of memory for %d tensors", kernel->name, members);
    fl_status status = FL_OK;
    for (int i = 0; i < members; i++) {
        struct member *m = &pack->list[i];
        m->numel = kernel->in[i].numel;
        m->is_double = kernel->in[i].dtype == FL_FLOAT64;
        m->first = pack->stretches;
        pack->stretches += (m->numel + STRETCH - 1) / STRETCH;
        pack->numel += m->numel;
        for (int g = 0; g < groups && status == FL_OK; g++) status = open_operand(pack, i, g);
    }
    if (status != FL_OK) close_pack(pack);
    return status;
}

/* The member that a stretch belongs to. */
static int member_of(const struct pack *pack, int64_t stretch)
{
    int low = 0, high = pack->members;
    while (high - low > 1) {
        int middle = (low + high) / 2;
        if (pack->list[middle].first <= stretch) low = middle;
        else high = middle;
    }
    return low;
}

static void visit_stretches(void *context, int64_t begin, int64_t end)
{
    const struct pack *p = context;
    int i = member_of(p, begin);
    for (int64_t s = begin; s < end; s++) {
        while (i + 1 < p->members && p->list[i + 1].first <= s) i++;
        const struct member *m = &p->list[i];
        int64_t at = (s - m->first) * STRETCH, n = m->numel - at < STRETCH ? m->numel - at : STRETCH;
        p->visit(p, m, at, n, s);
    }
}

/* Visits all, at so many ns an element. Most stretches of small tensors are far from full. */
static void visit_all(struct pack *pack, double ns)
{
    double stretches = (double)pack->stretches;
    fl_team_for(pack->stretches, VISIT_NS + ns * (double)pack->numel / (stretches ? stretches : 1), visit_stretches,
                pack);
}

/* ---- steps ---- */

static void move_groups(void **groups, const struct pack *pack, const struct member *member, int64_t at)
{
    int64_t bytes = at * (member->is_double ? 8 : 4);
    for (int g = 0; g < FL_STEP_MAX_GROUPS; g++)
        groups[g] = g < pack->groups ? (char *)member->groups[g] + bytes : NULL;
}

/* Element i of the sums of squares of a member, which follow all groups that a formula sees. */
static double norm_of(const struct pack *pack, int index, int i)
{
    const fl_view *v = operand(pack, index, pack->groups);
    const char *data = v->data;
    int64_t at = i * v->stride[0];
    return sqrt(v->dtype == FL_FLOAT64 ? ((const double *)data)[at] : (double)((const float *)data)[at]);
}

static void visit_step(const struct pack *pack, const struct member *member, int64_t at, int64_t n, int64_t stretch)
{
    void *groups[FL_STEP_MAX_GROUPS];
    move_groups(groups, pack, member, at);
    if (!pack->trust[0]) {
        pack->step[member->is_double](groups, n, &pack->numbers);
        return;
    }
    int index = (int)(member - pack->list);
    fl_step numbers = pack->numbers;
    numbers.trust = pack->trust[member->is_double](norm_of(pack, index, 0), norm_of(pack, index, 1), &numbers);
    pack->step[member->is_double](groups, n, &numbers);
}

fl_status fl_cpu_step(fl_kernel *kernel, fl_step_rule rule, const fl_step *numbers)
{
#define X(name, groups, written, make, trust) {groups, written, trust},
    static const struct {
        int groups, written, trust;
    } rules[] = {FL_STEP_RULES(X)};
#undef X
    const fl_optim_kernels *kernels = FL_BY_LEVEL(fl_optim_kernels);
    struct pack p = {.written = (uint32_t)rules[rule].written,
                     .visit = visit_step,
                     .step = kernels->steps[rule],
                     .trust = kernels->trusts[rule],
                     .numbers = *numbers};
    FL_TRY(open_pack(&p, kernel, kernel->nin / (rules[rule].groups + rules[rule].trust), rules[rule].groups));
    visit_all(&p, 0.4);
    fl_status status = write_back(&p);
    close_pack(&p);
    return status;
}

/* ---- sums of squares ---- */

static fl_status open_sums(struct pack *pack, fl_kernel *kernel, int members, int groups, int each)
{
    FL_TRY(open_pack(pack, kernel, members, groups));
    pack->partial = malloc(sizeof *pack->partial * (size_t)(pack->stretches * each + 1));
    if (pack->partial) return FL_OK;
    close_pack(pack);
    return fl_fail(FL_ERR_MEMORY, "%s: out of memory for %lld sums", kernel->name, (long long)pack->stretches);
}

static void close_sums(struct pack *pack)
{
    free(pack->partial);
    close_pack(pack);
}

static void store_sum(const fl_view *out, int64_t at, double value)
{
    if (out->dtype == FL_FLOAT64) ((double *)out->data)[at] = value;
    else ((float *)out->data)[at] = (float)value;
}

static void visit_norms(const struct pack *pack, const struct member *member, int64_t at, int64_t n, int64_t stretch)
{
    void *groups[FL_STEP_MAX_GROUPS];
    move_groups(groups, pack, member, at);
    pack->norms[member->is_double](&pack->partial[2 * stretch], groups, n, &pack->numbers);
}

fl_status fl_cpu_step_norms(fl_kernel *kernel, fl_step_norm norm, const fl_step *numbers)
{
#define X(name, groups, make) groups,
    static const int groups[] = {FL_STEP_NORMS(X)};
#undef X
    struct pack p = {.visit = visit_norms, .norms = FL_BY_LEVEL(fl_optim_kernels)->norms[norm], .numbers = *numbers};
    FL_TRY(open_sums(&p, kernel, kernel->nin / groups[norm], groups[norm], 2));
    visit_all(&p, 0.2);
    for (int i = 0; i < p.members; i++) {
        int64_t end = i + 1 < p.members ? p.list[i + 1].first : p.stretches;
        double sums[2] = {0, 0};
        for (int64_t s = p.list[i].first; s < end; s++)
            for (int k = 0; k < 2; k++) sums[k] += p.partial[2 * s + k];
        for (int k = 0; k < 2; k++) store_sum(&kernel->out[0], 2 * i + k, sums[k]);
    }
    close_sums(&p);
    return FL_OK;
}

/* ---- clipping by the total norm ---- */

static void visit_sum(const struct pack *pack, const struct member *member, int64_t at, int64_t n, int64_t stretch)
{
    const char *data = member->groups[0];
    pack->partial[stretch] = pack->sum[member->is_double](data + at * (member->is_double ? 8 : 4), n);
}

static fl_status sum_all(fl_kernel *kernel, double (*const *sum_of)(const void *x, int64_t n))
{
    double sum = 0;
    struct pack p = {.visit = visit_sum, .sum = sum_of};
    FL_TRY(open_sums(&p, kernel, kernel->nin, 1, 1));
    visit_all(&p, 0.1);
    for (int64_t i = 0; i < p.stretches; i++) sum += p.partial[i];
    store_sum(&kernel->out[0], 0, sum);
    close_sums(&p);
    return FL_OK;
}

fl_status fl_cpu_squares(fl_kernel *kernel) { return sum_all(kernel, FL_BY_LEVEL(fl_optim_kernels)->squares); }
fl_status fl_cpu_nonfinite(fl_kernel *kernel) { return sum_all(kernel, FL_BY_LEVEL(fl_optim_kernels)->nonfinite); }

static void visit_scale(const struct pack *pack, const struct member *member, int64_t at, int64_t n, int64_t stretch)
{
    char *data = member->groups[0];
    pack->kernels->scale[member->is_double](data + at * (member->is_double ? 8 : 4), n, pack->factor);
}

fl_status fl_cpu_scale(fl_kernel *kernel, int members, double factor)
{
    struct pack p = {.visit = visit_scale, .written = 1, .factor = factor};
    FL_TRY(open_pack(&p, kernel, members, 1));
    visit_all(&p, 0.1);
    fl_status status = write_back(&p);
    close_pack(&p);
    return status;
}
