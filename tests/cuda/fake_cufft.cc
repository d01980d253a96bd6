/*
** fake_cufft.cc -- the part of cuFFT's interface that the plug-in uses, computed by sums in the order of the stream:
** for the emulation (FLOW_CUFFT). It refuses what cuFFT does not promise: a transform without its work area, addresses
** that are not those of complex numbers, half spectra whose ends are not real. It writes to the half spectra that it
** is given, as cuFFT may.
*/
#include "../emulator/emulate.h"

#include "../../src/cuda/kernels/cufft_abi.h"

#include <cmath>
#include <complex>
#include <map>
#include <stdint.h>
#include <vector>

#define API extern "C" __attribute__((visibility("default"))) cufftResult

namespace
{

enum { SUCCESS, INVALID_PLAN, ALLOC_FAILED, INVALID_TYPE, INVALID_VALUE, INTERNAL_ERROR, WORK_BYTES = 64 };

struct plan {
    bool makes_room = true, made = false;
    long long n, in_step, in_distance, out_step, out_distance, batch;
    cufftType type;
    void *work = nullptr;
    cudaStream_t stream = nullptr;
};

std::map<cufftHandle, plan> plans;
cufftHandle last = 0;

plan *find(cufftHandle handle)
{
    auto at = plans.find(handle);
    return at == plans.end() ? nullptr : &at->second;
}

typedef std::complex<double> number;

/* By the definition, with the n roots of unity. */
std::vector<number> transform(const std::vector<number> &x, int direction)
{
    long long n = (long long)x.size();
    std::vector<number> roots(n), y(n);
    for (long long k = 0; k < n; k++) roots[k] = std::polar(1.0, direction * 2 * M_PI * (double)k / (double)n);
    for (long long k = 0; k < n; k++)
        for (long long j = 0; j < n; j++) y[k] += x[j] * roots[j * k % n];
    return y;
}

/* T: of the reals. A side that is not complex is real. */
template<typename T>
void compute(const plan &p, T *in, T *out, bool complex_in, bool complex_out, int direction)
{
    long long half = p.n / 2 + 1;
    for (long long b = 0; b < p.batch; b++) {
        std::vector<number> x(p.n);
        for (long long j = 0; j < (complex_in && !complex_out ? half : p.n); j++) {
            long long at = b * p.in_distance + j * p.in_step;
            x[j] = complex_in ? number(in[2 * at], in[2 * at + 1]) : number(in[at], 0);
            if (complex_out || !complex_in) continue;
            bool ends = j == 0 || 2 * j == p.n;
            if (ends && x[j].imag() != 0) x[j] = NAN;
            if (!ends) x[p.n - j] = std::conj(x[j]);
            in[2 * at] = in[2 * at + 1] = (T)NAN;
        }
        std::vector<number> y = transform(x, direction);
        for (long long k = 0; k < (complex_in ? p.n : half); k++) {
            long long at = b * p.out_distance + k * p.out_step;
            if (!complex_out) {
                out[at] = (T)y[k].real();
                continue;
            }
            out[2 * at] = (T)y[k].real();
            out[2 * at + 1] = !complex_in && (k == 0 || 2 * k == p.n) ? 0 : (T)y[k].imag();
        }
    }
}

template<typename T>
cufftResult issue(cufftHandle handle, cufftType type, T *in, T *out, bool complex_in, bool complex_out, int direction)
{
    plan *p = find(handle);
    if (!p || !p->made) return INVALID_PLAN;
    if (p->type != type) return INVALID_TYPE;
    if (!p->work || (uintptr_t)in % (2 * sizeof(T)) || (uintptr_t)out % (2 * sizeof(T))) return INVALID_VALUE;
    ((const fl_emulated_stream *)p->stream)->issue(p->stream, [=, of = *p] {
        compute(of, in, out, complex_in, complex_out, direction);
    });
    return SUCCESS;
}

} // namespace

API cufftCreate(cufftHandle *handle)
{
    *handle = ++last;
    plans[last] = plan();
    return SUCCESS;
}

API cufftDestroy(cufftHandle handle) { return plans.erase(handle) ? SUCCESS : INVALID_PLAN; }

API cufftSetAutoAllocation(cufftHandle handle, int allocate)
{
    plan *p = find(handle);
    if (!p || p->made) return INVALID_PLAN;
    p->makes_room = allocate;
    return SUCCESS;
}

API cufftMakePlanMany64(cufftHandle handle, int rank, long long *n, long long *in_sizes, long long in_step,
                        long long in_distance, long long *out_sizes, long long out_step, long long out_distance,
                        cufftType type, long long batch, size_t *work_bytes)
{
    plan *p = find(handle);
    if (!p || p->made) return INVALID_PLAN;
    if (p->makes_room || rank != 1 || *n < 2 || !in_sizes || !out_sizes || batch < 1) return INVALID_VALUE;
    p->n = *n;
    p->in_step = in_step;
    p->in_distance = in_distance;
    p->out_step = out_step;
    p->out_distance = out_distance;
    p->batch = batch;
    p->type = type;
    p->made = true;
    *work_bytes = WORK_BYTES;
    return SUCCESS;
}

API cufftSetWorkArea(cufftHandle handle, void *work)
{
    plan *p = find(handle);
    if (!p || !p->made) return INVALID_PLAN;
    p->work = work;
    return SUCCESS;
}

API cufftSetStream(cufftHandle handle, cudaStream_t stream)
{
    plan *p = find(handle);
    if (!p) return INVALID_PLAN;
    p->stream = stream;
    return SUCCESS;
}

API cufftExecC2C(cufftHandle plan, float2 *in, float2 *out, int direction)
{
    return issue(plan, CUFFT_C2C, (float *)in, (float *)out, true, true, direction);
}
API cufftExecR2C(cufftHandle plan, float *in, float2 *out)
{
    return issue(plan, CUFFT_R2C, in, (float *)out, false, true, CUFFT_FORWARD);
}
API cufftExecC2R(cufftHandle plan, float2 *in, float *out)
{
    return issue(plan, CUFFT_C2R, (float *)in, out, true, false, CUFFT_INVERSE);
}
API cufftExecZ2Z(cufftHandle plan, double2 *in, double2 *out, int direction)
{
    return issue(plan, CUFFT_Z2Z, (double *)in, (double *)out, true, true, direction);
}
API cufftExecD2Z(cufftHandle plan, double *in, double2 *out)
{
    return issue(plan, CUFFT_D2Z, in, (double *)out, false, true, CUFFT_FORWARD);
}
API cufftExecZ2D(cufftHandle plan, double2 *in, double *out)
{
    return issue(plan, CUFFT_Z2D, (double *)in, out, true, false, CUFFT_INVERSE);
}
