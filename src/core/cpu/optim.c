/*
** optim.c -- one pass over all tensors of an optimizer's step: see optim.h.
**
** Tensors are cut into stretches of fixed size that the team shares. float16 and bfloat16, and operands that are not
** contiguous, go through contiguous copies in float32.
*/
#include "optim.h"

#include <stdlib.h>

enum { STRETCH = 8192 }; /* elements of one unit of work */

/* ---- all tensors of a call, as stretches ---- */

/* One tensor of each group. */
typedef struct member {
    void *groups[FL_STEP_GROUPS]; /* float or double, contiguous */
    void *copies[FL_STEP_GROUPS]; /* owned; NULL where the operand itself is used */
    int64_t numel, first;         /* first: stretches before this tensor */
    bool is_double;
} member;

typedef struct pack {
    fl_kernel *kernel;
    int members, groups;
    uint32_t written; /* groups to be copied back */
    member *list;     /* owned */
    int64_t stretches;
    void (*visit)(const struct pack *p, const member *m, int64_t at, int64_t n, int64_t stretch);
    const fl_optim_kernels *kernels;
    /* what the visitors use */
    const fl_step_fn *step;
    fl_step numbers;
    double *partial; /* one per stretch */
    double factor;
} pack;

static fl_view *operand(const pack *p, int index, int group) { return &p->kernel->in[group * p->members + index]; }

static void close_pack(pack *p)
{
    for (int i = 0; i < p->members; i++)
        for (int g = 0; g < p->groups; g++) free(p->list[i].copies[g]);
    free(p->list);
}

/* The operand in the dtype it is computed in, contiguous. */
static fl_status open_operand(pack *p, int index, int group)
{
    member *m = &p->list[index];
    fl_view *v = operand(p, index, group);
    fl_dtype dtype = m->is_double ? FL_FLOAT64 : FL_FLOAT32;
    m->groups[group] = v->data;
    if (v->numel == 0 || (v->contiguous && v->dtype == dtype)) return FL_OK;
    m->copies[group] = m->groups[group] = malloc((size_t)v->numel * fl_dtype_size(dtype));
    if (!m->copies[group])
        return fl_fail(FL_ERR_MEMORY, "%s: out of memory for %lld elements", p->kernel->name, (long long)v->numel);
    int64_t strides[FL_MAX_NDIM];
    fl_view copy = *v;
    fl_shape_strides(strides, v->size, v->ndim);
    copy.data = m->copies[group];
    copy.dtype = dtype;
    copy.stride = strides;
    copy.contiguous = true;
    return fl_cpu_copy(&copy, v);
}

static fl_status write_back(pack *p)
{
    for (int i = 0; i < p->members; i++)
        for (int g = 0; g < p->groups; g++) {
            if (!p->list[i].copies[g] || !(p->written >> g & 1u)) continue;
            fl_view *v = operand(p, i, g), copy = *v;
            int64_t strides[FL_MAX_NDIM];
            fl_shape_strides(strides, v->size, v->ndim);
            copy.data = p->list[i].copies[g];
            copy.dtype = p->list[i].is_double ? FL_FLOAT64 : FL_FLOAT32;
            copy.stride = strides;
            copy.contiguous = true;
            FL_TRY(fl_cpu_copy(v, &copy));
        }
    return FL_OK;
}

static fl_status open_pack(pack *p, fl_kernel *kernel, int members, int groups)
{
    p->kernel = kernel;
    p->kernels = FL_BY_LEVEL(fl_optim_kernels);
    p->members = members;
    p->groups = groups;
    p->stretches = 0;
    p->list = calloc((size_t)members, sizeof *p->list);
    if (!p->list) return fl_fail(FL_ERR_MEMORY, "%s: out of memory for %d tensors", kernel->name, members);
    fl_status status = FL_OK;
    for (int i = 0; i < members; i++) {
        member *m = &p->list[i];
        m->numel = kernel->in[i].numel;
        m->is_double = kernel->in[i].dtype == FL_FLOAT64;
        m->first = p->stretches;
        p->stretches += (m->numel + STRETCH - 1) / STRETCH;
        for (int g = 0; g < groups && status == FL_OK; g++) status = open_operand(p, i, g);
    }
    if (status != FL_OK) close_pack(p);
    return status;
}

/* The member that a stretch belongs to. */
static int member_of(const pack *p, int64_t stretch)
{
    int low = 0, high = p->members;
    while (high - low > 1) {
        int middle = (low + high) / 2;
        if (p->list[middle].first <= stretch) low = middle;
        else high = middle;
    }
    return low;
}

static void visit_stretches(void *context, int64_t begin, int64_t end)
{
    const pack *p = context;
    int i = member_of(p, begin);
    for (int64_t s = begin; s < end; s++) {
        while (i + 1 < p->members && p->list[i + 1].first <= s) i++;
        const member *m = &p->list[i];
        int64_t at = (s - m->first) * STRETCH, n = m->numel - at < STRETCH ? m->numel - at : STRETCH;
        p->visit(p, m, at, n, s);
    }
}

/* ---- steps ---- */

static void visit_step(const pack *p, const member *m, int64_t at, int64_t n, int64_t stretch)
{
    void *groups[FL_STEP_GROUPS];
    int64_t bytes = at * (m->is_double ? 8 : 4);
    for (int g = 0; g < p->groups; g++) groups[g] = (char *)m->groups[g] + bytes;
    p->step[m->is_double](groups, n, &p->numbers);
}

static const fl_step_fn *kernel_of(const fl_optim_kernels *kernels, fl_step_kind kind)
{
    return kind == FL_STEP_ADAM ? kernels->adam : kind == FL_STEP_SGD ? kernels->sgd : kernels->sgd_momentum;
}

fl_status fl_cpu_step(fl_kernel *kernel, int groups, uint32_t written, fl_step_kind kind, const fl_step *numbers)
{
    pack p = {.written = written,
              .visit = visit_step,
              .step = kernel_of(FL_BY_LEVEL(fl_optim_kernels), kind),
              .numbers = *numbers};
    FL_TRY(open_pack(&p, kernel, kernel->nin / groups, groups));
    fl_team_for(p.stretches, STRETCH * 0.4, visit_stretches, &p);
    fl_status status = write_back(&p);
    close_pack(&p);
    return status;
}

/* ---- clipping by the total norm ---- */

static void visit_squares(const pack *p, const member *m, int64_t at, int64_t n, int64_t stretch)
{
    const char *data = m->groups[0];
    p->partial[stretch] = p->kernels->squares[m->is_double](data + at * (m->is_double ? 8 : 4), n);
}

fl_status fl_cpu_squares(fl_kernel *kernel)
{
    double sum = 0;
    pack p = {.visit = visit_squares};
    FL_TRY(open_pack(&p, kernel, kernel->nin, 1));
    p.partial = malloc(sizeof *p.partial * (size_t)(p.stretches + 1));
    if (!p.partial) {
        close_pack(&p);
        return fl_fail(FL_ERR_MEMORY, "%s: out of memory for %lld sums", kernel->name, (long long)p.stretches);
    }
    fl_team_for(p.stretches, STRETCH * 0.1, visit_stretches, &p);
    for (int64_t i = 0; i < p.stretches; i++) sum += p.partial[i];
    if (kernel->out[0].dtype == FL_FLOAT64) *(double *)kernel->out[0].data = sum;
    else *(float *)kernel->out[0].data = (float)sum;
    free(p.partial);
    close_pack(&p);
    return FL_OK;
}

static void visit_scale(const pack *p, const member *m, int64_t at, int64_t n, int64_t stretch)
{
    char *data = m->groups[0];
    p->kernels->scale[m->is_double](data + at * (m->is_double ? 8 : 4), n, p->factor);
}

fl_status fl_cpu_scale(fl_kernel *kernel, int members, double factor)
{
    pack p = {.visit = visit_scale, .written = 1, .factor = factor};
    FL_TRY(open_pack(&p, kernel, members, 1));
    fl_team_for(p.stretches, STRETCH * 0.1, visit_stretches, &p);
    fl_status status = write_back(&p);
    close_pack(&p);
    return status;
}
