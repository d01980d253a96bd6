/*
** loss.cu -- negative log-likelihood of class labels per row, of scores (cross_entropy) or log-probabilities
** (nll_loss).
**
** The formula is fl_nll's (core/cpu/rows.h). Scores are read once, forward: the fold collects the log-sum-exp and what
** smoothing needs. A label out of range is reported when its row is finished, with the text of the CPU.
*/
#include "core/op/loss.h"
#include "rows.cuh"

#include <stdio.h>

template<typename T>
using wide = typename fl_wide<T>::type;

/* ---- labels ---- */

/* The data of the text for a wrong label. */
struct label_words {
    char who[16];
    int ndim;
    int64_t classes, size[FL_MAX_NDIM], start[FL_MAX_NDIM];
};

/* "[2, 0]", the logical position of local row i; "" for a 0-d target. */
static void position_text(char *out, size_t size, const label_words *words, int64_t i)
{
    long long at[FL_MAX_NDIM];
    size_t used = 0;
    for (int a = words->ndim - 1; a >= 0; a--) {
        at[a] = words->start[a] + i % words->size[a];
        i /= words->size[a];
    }
    out[0] = 0;
    for (int a = 0; a < words->ndim; a++)
        used += (size_t)snprintf(out + used, size - used, "%s%lld%s", a ? ", " : "[", at[a],
                                 a + 1 == words->ndim ? "]" : "");
}

static void word_label(char *text, size_t size, const void *context, long long row, long long label)
{
    const label_words *w = (const label_words *)context;
    char position[FL_MAX_NDIM * 24];
    position_text(position, sizeof position, w, row);
    if (w->classes == 0)
        snprintf(text, size, "%s: target%s is %lld, but input has no classes", w->who, position, label);
    else
        snprintf(text, size, "%s: target%s is %lld, but input has %lld classes (0 to %lld)", w->who, position, label,
                 (long long)w->classes, (long long)w->classes - 1);
}

/* Labels, weights and attributes, as the kernels take them. X: the type of arithmetic. */
template<typename X>
struct labels {
    const int64_t *target;
    int64_t target_stride;
    const X *weight;           /* of all classes; NULL: ones */
    const double *weight_sum;  /* NULL: there are no weights, or no smoothing */
    int64_t first, n, classes; /* this part's classes begin at `first`, there are n of them */
    int64_t ignore;
    double smoothing;
    fl_cuda_fault *fault;

    /* Of a row; false: it does not count. */
    __device__ bool label(int64_t *out, int64_t row) const
    {
        int64_t l = target[row * target_stride];
        *out = l;
        if (l == ignore) return false;
        if ((uint64_t)l < (uint64_t)classes) return true;
        fl_cuda_report(fault, row, l);
        return false;
    }
    __device__ X weight_of(int64_t c) const { return weight ? weight[c] : (X)1; }
    __device__ X sharpness() const { return (X)(1 - smoothing); }
    __device__ X share() const { return (X)(smoothing / (double)classes); }
};

/* ---- operands ---- */

/* An op's operands on the device. */
struct operands {
    fl_row_shape shape;
    fl_rows_of target, weight, input, g, lse;
    void *weight_sum;
};

/* Operand numbers; -1: the op does not have it. */
struct slots {
    int input, target, weight, g, lse;
};

static fl_status open_operand(fl_rows_of *rows, fl_kernel *kernel, int slot, int leading, fl_dtype dtype)
{
    if (slot < 0) return FL_OK;
    return fl_rows_open(rows, &kernel->in[slot], leading, dtype);
}

static int class_axis(const fl_view *view) { return view->ndim > 1; }

/* The sum of all weights, which smoothing needs. */
template<typename X>
static fl_status sum_weights(operands *operands, const fl_view *weight)
{
    int64_t one = 1;
    fl_view v = *weight;
    FL_TRY(fl_cuda_malloc(&operands->weight_sum, sizeof(double)));
    v.data = (void *)operands->weight.data;
    v.ndim = 1;
    v.stride = &one;
    fl_sum_fold<X, FL_MAP_SAME> fold = {};
    fold.results.out = (char *)operands->weight_sum;
    fold.results.dtype = FL_FLOAT64;
    fold.results.size = sizeof(double);
    return fl_fold_axes<X>(&v, 1, fold, false);
}

/* `view` has the class axis: the input, or its gradient. */
static fl_status operands_open(operands *operands, fl_kernel *kernel, const slots *slots, const fl_view *view)
{
    fl_dtype dtype = view->dtype, compute = fl_dtype_compute(dtype);
    int axis = class_axis(view);
    memset(operands, 0, sizeof *operands);
    operands->shape = fl_row_shape_of(view, axis);
    if (slots->input >= 0)
        FL_TRY(fl_rows_open_along(&operands->input, &kernel->in[slots->input], axis, &operands->shape, true, dtype));
    FL_TRY(open_operand(&operands->target, kernel, slots->target, kernel->in[slots->target].ndim, FL_INT64));
    FL_TRY(open_operand(&operands->weight, kernel, slots->weight, 0, compute));
    FL_TRY(open_operand(&operands->g, kernel, slots->g, kernel->in[slots->target].ndim, dtype));
    FL_TRY(open_operand(&operands->lse, kernel, slots->lse, kernel->in[slots->target].ndim, dtype));
    if (!operands->weight.data || kernel->attrs->at[FL_LOSS_SMOOTHING].number <= 0) return FL_OK;
    const fl_view *weight = &kernel->in[slots->weight];
    return compute == FL_FLOAT64 ? sum_weights<double>(operands, weight) : sum_weights<float>(operands, weight);
}

static void operands_close(operands *operands)
{
    fl_rows_close(&operands->target);
    fl_rows_close(&operands->weight);
    fl_rows_close(&operands->input);
    fl_rows_close(&operands->g);
    fl_rows_close(&operands->lse);
    if (operands->weight_sum) fl_cuda_free(operands->weight_sum);
}

template<typename X>
static fl_status labels_init(labels<X> *labels, fl_kernel *kernel, const operands *operands, const fl_view *view,
                             const fl_view *target, bool named_cross_entropy)
{
    int axis = class_axis(view);
    label_words words = {};
    snprintf(words.who, sizeof words.who, "%s", fl_loss_name(kernel->variant, named_cross_entropy));
    words.ndim = target->ndim;
    words.classes = view->logical[axis];
    for (int i = 0; i < target->ndim; i++) words.size[i] = target->size[i], words.start[i] = target->start[i];
    labels->target = (const int64_t *)operands->target.data;
    labels->target_stride = operands->target.stride;
    labels->weight = (const X *)operands->weight.data;
    labels->weight_sum = (const double *)operands->weight_sum;
    labels->first = view->start[axis];
    labels->n = view->size[axis];
    labels->classes = view->logical[axis];
    labels->ignore = kernel->attrs->at[FL_LOSS_IGNORE].integer;
    labels->smoothing = kernel->attrs->at[FL_LOSS_SMOOTHING].number;
    return fl_cuda_fault_new(&labels->fault, word_label, &words, sizeof words);
}

/* ---- forward ---- */

struct nll_total {
    fl_powers powers;
    double weighted, mass; /* sums of w x and of w, for smoothing */
};

template<typename T>
struct nll_fold {
    typedef wide<T> X;
    typedef nll_total Total;
    enum { VECTORS = 1 };
    labels<X> of;
    const T *x;
    int64_t class_stride;
    T *loss, *lse, *count; /* lse NULL: x are log-probabilities */

    __device__ Total none() const
    {
        Total t = {{-INFINITY, 0}, 0, 0};
        return t;
    }
    __device__ Total join(const Total &a, const Total &b) const
    {
        Total t = {fl_powers_join(a.powers, b.powers), a.weighted + b.weighted, a.mass + b.mass};
        return t;
    }
    template<int N, int W, int P>
    __device__ void absorb(Total &total, const X (&v)[N], const fl_place<P> &place) const
    {
        if (lse) fl_powers_absorb(total.powers, v);
        if (of.smoothing <= 0) return;
        X weighted[N], mass[N];
#pragma unroll
        for (int i = 0; i < N; i++) {
            mass[i] = of.weight_of(of.first + place.at[i / W] + i % W * place.step);
            weighted[i] = mass[i] * v[i];
        }
        total.weighted += (double)fl_sum_pairs<N>(weighted);
        total.mass += (double)fl_sum_pairs<N>(mass);
    }
    __device__ void finish(const Total &total, int64_t row, int64_t offset) const
    {
        bool undefined = isinf(total.powers.top) && of.n > 0; /* inf - inf */
        X log_sum = lse ? undefined ? (X)NAN : (X)(log(total.powers.sum) + (of.n > 0 ? total.powers.top : 0)) : (X)0,
          value = 0, w = 0;
        int64_t label;
        if (of.label(&label, row)) {
            int64_t at = label - of.first;
            w = of.weight_of(label);
            if (at >= 0 && at < of.n)
                value = of.sharpness() * w * (log_sum - (X)fl_load(x[offset + at * class_stride]));
            if (of.smoothing > 0) value += of.share() * (X)((double)log_sum * total.mass - total.weighted);
        }
        if (lse) lse[row] = fl_store<T>(log_sum);
        loss[row] = fl_store<T>(value);
        count[row] = fl_store<T>(w);
    }
};

/* Log-probabilities without smoothing: one element of each row. */
template<typename T>
__global__ void __launch_bounds__(FL_MAP_THREADS)
    nll_picked(nll_fold<T> fold, int64_t rows, int64_t stride, fl_row_shape shape)
{
    int64_t row = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    int64_t offset = shape.inner == 1 ? row * stride : row / shape.inner * shape.n * shape.inner + row % shape.inner;
    fold.finish(fold.none(), row, offset);
}

template<typename T>
static fl_status forward(fl_kernel *kernel, const operands *operands)
{
    nll_fold<T> fold = {};
    int64_t rows = operands->shape.outer * operands->shape.inner;
    bool of_scores = kernel->variant == FL_LOSS_OF_SCORES;
    bool named = !of_scores && kernel->attrs->at[FL_NLL_NAMED_CROSS_ENTROPY].integer;
    FL_TRY(labels_init(&fold.of, kernel, operands, &kernel->in[FL_LOSS_INPUT], &kernel->in[FL_LOSS_TARGET], named));
    fold.x = (const T *)operands->input.data;
    fold.class_stride = operands->shape.inner;
    fold.loss = (T *)kernel->out[FL_LOSS_ROWS].data;
    fold.lse = of_scores ? (T *)kernel->out[FL_SCORES_ROWS_LSE].data : NULL;
    fold.count = (T *)kernel->out[of_scores ? FL_SCORES_ROWS_COUNT : FL_LOGS_ROWS_COUNT].data;
    if (fold.lse || fold.of.smoothing > 0) return fl_reduce_each_row<T>(&operands->input, &operands->shape, fold, true);
    FL_LAUNCH((nll_picked<T>), dim3(fl_blocks(rows, FL_MAP_THREADS)), dim3(FL_MAP_THREADS), 0, fold, rows,
              operands->input.stride, operands->shape);
    return FL_OK;
}

static fl_status launch_forward(fl_kernel *kernel)
{
    static const slots s = {FL_LOSS_INPUT, FL_LOSS_TARGET, FL_LOSS_WEIGHT, -1, -1};
    operands o;
    if (kernel->out[0].numel == 0) return FL_OK;
    fl_status status = operands_open(&o, kernel, &s, &kernel->in[FL_LOSS_INPUT]);
    if (status == FL_OK)
        status = fl_cuda_by_float(kernel->in[0].dtype, [&](auto like) { return forward<decltype(like)>(kernel, &o); });
    operands_close(&o);
    return status == FL_OK ? fl_cuda_check(kernel->name) : status;
}

FL_CUDA_OP(cross_entropy_rows, launch_forward);
FL_CUDA_OP(nll_rows, launch_forward);

/* ---- backward ---- */

/* dx = g (total softmax - targets); total is what the loss counts of the log-sum-exp. */
template<typename T, int INPUTS_>
struct nll_map {
    typedef wide<T> X;
    enum { INPUTS = INPUTS_ }; /* 1: scores, with their log-sum-exp; 0: log-probabilities */
    struct state {
        X scale, lse, share, part;
        int64_t label;
        bool counts;
    };
    labels<X> of;
    const T *g, *lse;
    int64_t g_stride, lse_stride;
    bool targets;

    __device__ state begin(int64_t row) const
    {
        state s = {};
        int64_t label;
        s.counts = of.label(&label, row);
        if (!s.counts) return s;
        X dy = fl_load(g[row * g_stride]), picked = of.sharpness() * of.weight_of(label);
        if (INPUTS > 0) {
            double all = of.weight_sum ? *of.weight_sum : (double)of.classes;
            s.scale = dy * (picked + (of.smoothing > 0 ? (X)(of.smoothing / (double)of.classes * all) : (X)0));
            s.lse = fl_load(lse[row * lse_stride]);
        }
        s.label = targets ? label - of.first : -1;
        s.part = dy * picked;
        s.share = targets && of.smoothing > 0 ? dy * of.share() : (X)0;
        return s;
    }
    __device__ X at(const state &of_row, X x, X, int64_t c) const
    {
        if (!of_row.counts) return 0;
        X dx = INPUTS > 0 ? fl_exp_for<T>::of(x - of_row.lse) * of_row.scale : (X)0;
        if (targets && of.smoothing > 0 && c >= 0 && c < of.n) dx -= of.weight_of(of.first + c) * of_row.share;
        return c == of_row.label ? dx - of_row.part : dx;
    }
};

template<typename T, int INPUTS>
static fl_status backward(fl_kernel *kernel, const operands *operands, const fl_view *target, bool targets)
{
    nll_map<T, INPUTS> map = {};
    FL_TRY(labels_init(&map.of, kernel, operands, &kernel->out[0], target, false));
    map.g = (const T *)operands->g.data;
    map.g_stride = operands->g.stride;
    map.lse = (const T *)operands->lse.data;
    map.lse_stride = operands->lse.stride;
    map.targets = targets;
    fl_map_operands<T> m = {(T *)kernel->out[0].data, (const T *)operands->input.data, NULL, operands->input.stride, 0,
                            operands->shape};
    fl_map_rows(m, map);
    return FL_OK;
}

static fl_status launch_backward(fl_kernel *kernel)
{
    static const slots of_scores = {FL_SCORES_INPUT, FL_SCORES_TARGET, FL_SCORES_WEIGHT, FL_SCORES_DY, FL_SCORES_LSE},
                       of_logs = {-1, FL_LOGS_TARGET, FL_LOGS_WEIGHT, FL_LOGS_DY, -1};
    bool scores = kernel->variant == FL_LOSS_OF_SCORES;
    const slots *s = scores ? &of_scores : &of_logs;
    operands o;
    if (kernel->out[0].numel == 0) return FL_OK;
    fl_status status = operands_open(&o, kernel, s, &kernel->out[0]);
    if (status == FL_OK)
        status = fl_cuda_by_float(kernel->out[0].dtype, [&](auto like) {
            typedef decltype(like) T;
            const fl_view *target = &kernel->in[s->target];
            return scores ? backward<T, 1>(kernel, &o, target, kernel->attrs->at[FL_SCORES_TARGETS].integer != 0)
                          : backward<T, 0>(kernel, &o, target, true);
        });
    operands_close(&o);
    return status == FL_OK ? fl_cuda_check(kernel->name) : status;
}

FL_CUDA_OP(cross_entropy_backward, launch_backward);
FL_CUDA_OP(nll_backward, launch_backward);
