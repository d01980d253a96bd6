/*
** cufft_abi.h -- the part of cuFFT's interface that cufft.cu calls by name, as NVIDIA publishes it: the library is
** opened at run time, and a machine that builds need not have its headers.
*/
#ifndef FL_CUDA_CUFFT_ABI_H
#define FL_CUDA_CUFFT_ABI_H

#include <stddef.h>

extern "C" {

typedef int cufftResult; /* 0: success */
typedef int cufftHandle;
typedef int cufftType;
enum { CUFFT_C2C = 0x29, CUFFT_R2C = 0x2a, CUFFT_C2R = 0x2c, CUFFT_Z2Z = 0x69, CUFFT_D2Z = 0x6a, CUFFT_Z2D = 0x6c };
enum { CUFFT_FORWARD = -1, CUFFT_INVERSE = 1 };

cufftResult cufftCreate(cufftHandle *plan);
cufftResult cufftDestroy(cufftHandle plan);
cufftResult cufftSetAutoAllocation(cufftHandle plan, int allocate);
cufftResult cufftMakePlanMany64(cufftHandle plan, int rank, long long *n, long long *in_sizes, long long in_step,
                                long long in_distance, long long *out_sizes, long long out_step, long long out_distance,
                                cufftType type, long long batch, size_t *work_bytes);
cufftResult cufftSetWorkArea(cufftHandle plan, void *work);
cufftResult cufftSetStream(cufftHandle plan, cudaStream_t stream);
cufftResult cufftExecC2C(cufftHandle plan, float2 *in, float2 *out, int direction);
cufftResult cufftExecR2C(cufftHandle plan, float *in, float2 *out);
cufftResult cufftExecC2R(cufftHandle plan, float2 *in, float *out);
cufftResult cufftExecZ2Z(cufftHandle plan, double2 *in, double2 *out, int direction);
cufftResult cufftExecD2Z(cufftHandle plan, double *in, double2 *out);
cufftResult cufftExecZ2D(cufftHandle plan, double2 *in, double *out);
}

#endif
