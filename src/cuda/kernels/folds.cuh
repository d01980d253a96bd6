/*
** folds.cuh -- what reductions fold: sums, products, extremes, moments, log-sum-exp, positions of extremes.
**
** Floats of 32 bits and less are added in pairs within what a thread loads at once; from there on sums are doubles, as
** they are on the CPU. Integers are int64 and wrap.
*/
#ifndef FL_FOLDS_CUH
#define FL_FOLDS_CUH

#include "reduce.cuh"

/* The type elements are converted to: sums of a few int8 fit into int32. */
template<typename T>
struct fl_element {
    typedef typename fl_wide<T>::type type;
};
template<>
struct fl_element<uint8_t> {
    typedef int32_t type;
};
template<>
struct fl_element<int8_t> {
    typedef int32_t type;
};
template<>
struct fl_element<int32_t> {
    typedef int64_t type;
};

/* The type of their sums. */
template<typename X>
struct fl_total_of {
    typedef int64_t type;
};
template<>
struct fl_total_of<float> {
    typedef double type;
};
template<>
struct fl_total_of<double> {
    typedef double type;
};

__device__ static inline float fl_add(float a, float b) { return a + b; }
__device__ static inline double fl_add(double a, double b) { return a + b; }
__device__ static inline int32_t fl_add(int32_t a, int32_t b) { return a + b; }
__device__ static inline int64_t fl_add(int64_t a, int64_t b) { return (int64_t)((uint64_t)a + (uint64_t)b); }
__device__ static inline double fl_multiply(double a, double b) { return a * b; }
__device__ static inline int64_t fl_multiply(int64_t a, int64_t b) { return (int64_t)((uint64_t)a * (uint64_t)b); }

/* Sum in pairs; x is used up. By recursion: a loop over the halves is not unrolled, and x then lies in memory. */
template<int N, typename X>
__device__ static inline X fl_sum_pairs(X *x)
{
    if constexpr (N == 1) return x[0];
    else {
#pragma unroll
        for (int i = 0; i < N / 2; i++) x[i] = fl_add(x[i], x[i + N / 2]);
        return fl_sum_pairs<N / 2>(x);
    }
}

/* Largest of two, NaN above all. */
template<typename X>
__device__ static inline X fl_larger(X a, X b)
{
    return (b > a) | (b != b) ? b : a;
}

/* ---- results ---- */

typedef enum fl_finish {
    FL_FINISH_NONE,
    FL_FINISH_MEAN,
    FL_FINISH_ANY,
    FL_FINISH_ALL,
    FL_FINISH_VARIANCE,
    FL_FINISH_DEVIATION,
    FL_FINISH_ROOT
} fl_finish;

/* The destination of results, and the operation on a total before it is stored. */
typedef struct fl_results {
    char *out;
    int dtype;
    int64_t size; /* of an element */
    fl_finish finish;
    double count;        /* logical elements per result: mean */
    double divisor;      /* variance */
    int64_t local_count; /* all */
    double p;            /* root */
} fl_results;

/* Of a power other than 2; not inline, for it is much code and rare. */
__device__ inline __attribute__((noinline)) double fl_root_of(double total, double p) { return pow(total, 1 / p); }

__device__ static inline double fl_finished(const fl_results &results, double total)
{
    switch (results.finish) {
    case FL_FINISH_MEAN: return total / results.count;
    case FL_FINISH_VARIANCE: return total / results.divisor;
    case FL_FINISH_DEVIATION: return sqrt(total / results.divisor);
    case FL_FINISH_ROOT: return results.p == 2 ? sqrt(total) : fl_root_of(total, results.p);
    default: return total;
    }
}

__device__ static inline int64_t fl_finished(const fl_results &results, int64_t total)
{
    if (results.finish == FL_FINISH_ANY) return total > 0;
    return results.finish == FL_FINISH_ALL ? total == results.local_count : total;
}

template<typename V>
__device__ static inline void fl_result_store(const fl_results &results, int64_t at, V total)
{
    fl_store_any<V>(results.out + at * results.size, results.dtype, fl_finished(results, total));
}

/* ---- sums and products ---- */

typedef enum fl_map {
    FL_MAP_SAME,
    FL_MAP_NOT_ZERO,
    FL_MAP_ABSOLUTE,
    FL_MAP_SQUARE,
    FL_MAP_POWER,
    FL_MAP_NUMBER
} fl_map;

template<fl_map MAP, typename X>
__device__ static inline auto fl_mapped(X x, double p)
{
    if constexpr (MAP == FL_MAP_NOT_ZERO) return (int32_t)(x != 0);
    else if constexpr (MAP == FL_MAP_ABSOLUTE) return fl_abs(x);
    else if constexpr (MAP == FL_MAP_SQUARE) return x * x;
    else if constexpr (MAP == FL_MAP_POWER) return fl_power(fl_abs(x), (X)p);
    else if constexpr (MAP == FL_MAP_NUMBER) return x == x ? x : (X)0;
    else return x;
}

/* The sum of a function of the elements. */
template<typename X_, fl_map MAP>
struct fl_sum_fold {
    typedef X_ X;
    typedef decltype(fl_mapped<MAP>(X(), 0.0)) part;
    typedef typename fl_total_of<part>::type Total;
    enum { VECTORS = MAP != FL_MAP_POWER };
    fl_results results;

    __device__ Total none() const { return 0; }
    __device__ Total join(Total a, Total b) const { return fl_add(a, b); }
    template<int N, int W, int P>
    __device__ void absorb(Total &total, const X (&x)[N], const fl_place<P> &) const
    {
        part mapped[N];
#pragma unroll
        for (int i = 0; i < N; i++) mapped[i] = fl_mapped<MAP>(x[i], results.p);
        total = fl_add(total, (Total)fl_sum_pairs<N>(mapped));
    }
    __device__ void finish(Total total, int64_t result, int64_t) const { fl_result_store(results, result, total); }
};

/* Partial products of floats overflow where the whole does not: doubles. */
template<typename X_>
struct fl_product_fold {
    typedef X_ X;
    typedef typename fl_total_of<X>::type Total;
    enum { VECTORS = 0 };
    fl_results results;

    __device__ Total none() const { return 1; }
    __device__ Total join(Total a, Total b) const { return fl_multiply(a, b); }
    template<int N, int W, int P>
    __device__ void absorb(Total &total, const X (&x)[N], const fl_place<P> &) const
    {
#pragma unroll
        for (int i = 0; i < N; i++) total = fl_multiply(total, (Total)x[i]);
    }
    __device__ void finish(Total total, int64_t result, int64_t) const { fl_result_store(results, result, total); }
};

/* ---- extremes ---- */

/* The order turned round, so that the smallest is the largest: its own inverse. */
__device__ static inline float fl_turned(float x) { return -x; }
__device__ static inline double fl_turned(double x) { return -x; }
__device__ static inline int32_t fl_turned(int32_t x) { return ~x; }
__device__ static inline int64_t fl_turned(int64_t x) { return ~x; }

template<typename X_>
struct fl_extreme_fold {
    typedef X_ X;
    typedef X_ Total; /* negated for the smallest */
    enum { VECTORS = 1 };
    fl_results results;
    bool smallest, absolute; /* absolute: floats only */
    X nothing;               /* total of nothing */

    __device__ Total none() const { return nothing; }
    __device__ Total join(Total a, Total b) const { return fl_larger(a, b); }
    template<int N, int W, int P>
    __device__ void absorb(Total &total, const X (&x)[N], const fl_place<P> &) const
    {
#pragma unroll
        for (int i = 0; i < N; i++) {
            X v = x[i];
            if constexpr (std::is_floating_point<X>::value) v = absolute ? fl_abs(v) : v;
            total = fl_larger(total, smallest ? fl_turned(v) : v);
        }
    }
    __device__ void finish(Total total, int64_t result, int64_t) const
    {
        typedef typename fl_total_of<X>::type value;
        fl_result_store(results, result, (value)(smallest ? fl_turned(total) : total));
    }
};

/* ---- moments ---- */

typedef struct fl_moments {
    double count, mean, squares;
} fl_moments; /* squares: sum of squared deviations */

/* share: b's part of the elements. (Chan, Golub and LeVeque 1979.) */
__device__ static inline fl_moments fl_moments_join(const fl_moments &a, const fl_moments &b, double share)
{
    double delta = b.mean - a.mean;
    fl_moments t = {a.count + b.count, a.mean + delta * share, a.squares + b.squares + delta * delta * share * a.count};
    return t;
}

/* Mean and sum of squared deviations in one read: exact within what a thread loads at once, then joined. */
template<typename X_>
struct fl_moments_sums {
    typedef X_ X;
    typedef fl_moments Total;
    enum { VECTORS = 1 };

    __device__ Total none() const
    {
        Total t = {0, 0, 0};
        return t;
    }
    __device__ Total join(const Total &a, const Total &b) const
    {
        if (b.count == 0) return a;
        return a.count == 0 ? b : fl_moments_join(a, b, b.count / (a.count + b.count));
    }
    template<int N, int W, int P>
    __device__ void absorb(Total &total, const X (&x)[N], const fl_place<P> &) const
    {
        X shifted[N], squares[N];
#pragma unroll
        for (int i = 0; i < N; i++) shifted[i] = squares[i] = x[i] - x[0];
        X mean = fl_sum_pairs<N>(squares) / (X)N;
#pragma unroll
        for (int i = 0; i < N; i++) squares[i] = (shifted[i] - mean) * (shifted[i] - mean);
        Total chunk = {N, (double)x[0] + (double)mean, (double)fl_sum_pairs<N>(squares)};
        if (total.count == 0) total = chunk;
        else total = fl_moments_join(total, chunk, (double)((X)N / (X)(total.count + N)));
    }
};

template<typename X>
struct fl_variance_fold : fl_moments_sums<X> {
    fl_results results;
    __device__ void finish(const fl_moments &total, int64_t result, int64_t) const
    {
        fl_result_store(results, result, total.squares);
    }
};

/* ---- log-sum-exp ---- */

typedef struct fl_powers {
    double top, sum;
} fl_powers; /* sum of e^(x - center of top) */

/* An infinite center would give inf - inf. */
__device__ static inline double fl_center_of(double top) { return isinf(top) ? 0 : top; }

/* The sum as one about another center; a sum of nothing is 0 about any. */
__device__ static inline double fl_powers_about(const fl_powers &total, double center)
{
    return total.sum == 0 ? 0 : total.sum * exp(fl_center_of(total.top) - center);
}

__device__ static inline fl_powers fl_powers_join(const fl_powers &a, const fl_powers &b)
{
    double top = fl_larger(a.top, b.top), center = fl_center_of(top);
    fl_powers t = {top, fl_powers_about(a, center) + fl_powers_about(b, center)};
    return t;
}

__device__ static inline double fl_powers_log(const fl_powers &total)
{
    return log(total.sum) + fl_center_of(total.top);
}

template<int N, typename X>
__device__ static inline void fl_powers_absorb(fl_powers &total, const X (&x)[N])
{
    X top = x[0], e[N];
#pragma unroll
    for (int i = 1; i < N; i++) top = fl_larger(top, x[i]);
    double whole = fl_larger(total.top, (double)top), center = fl_center_of(whole);
#pragma unroll
    for (int i = 0; i < N; i++) e[i] = fl_exp(x[i] - (X)center);
    if (whole != total.top) total.sum = fl_powers_about(total, center);
    total.top = whole;
    total.sum += (double)fl_sum_pairs<N>(e);
}

template<typename X_>
struct fl_powers_sums {
    typedef X_ X;
    typedef fl_powers Total;
    enum { VECTORS = 1 };

    __device__ Total none() const
    {
        Total t = {-INFINITY, 0};
        return t;
    }
    __device__ Total join(const Total &a, const Total &b) const { return fl_powers_join(a, b); }
    template<int N, int W, int P>
    __device__ void absorb(Total &total, const X (&x)[N], const fl_place<P> &) const
    {
        fl_powers_absorb(total, x);
    }
};

template<typename X>
struct fl_logsumexp_fold : fl_powers_sums<X> {
    fl_results results;
    __device__ void finish(const fl_powers &total, int64_t result, int64_t) const
    {
        fl_result_store(results, result, fl_powers_log(total));
    }
};

#endif
