/*
** nvrtc_abi.h -- the part of NVRTC's and the driver's interfaces that nvrtc.cu calls by name, as NVIDIA publishes them:
** both are opened at run time, and a machine that builds need not have their headers.
*/
#ifndef FL_CUDA_NVRTC_ABI_H
#define FL_CUDA_NVRTC_ABI_H

#include <stddef.h>

extern "C" {

typedef int nvrtcResult; /* 0: success */
typedef struct _nvrtcProgram *nvrtcProgram;
nvrtcResult nvrtcVersion(int *major, int *minor);
nvrtcResult nvrtcGetNumSupportedArchs(int *count);
nvrtcResult nvrtcGetSupportedArchs(int *archs);
nvrtcResult nvrtcCreateProgram(nvrtcProgram *program, const char *source, const char *name, int count,
                               const char *const *headers, const char *const *names);
nvrtcResult nvrtcCompileProgram(nvrtcProgram program, int count, const char *const *options);
nvrtcResult nvrtcDestroyProgram(nvrtcProgram *program);
nvrtcResult nvrtcGetProgramLogSize(nvrtcProgram program, size_t *bytes);
nvrtcResult nvrtcGetProgramLog(nvrtcProgram program, char *log);
nvrtcResult nvrtcGetCUBINSize(nvrtcProgram program, size_t *bytes);
nvrtcResult nvrtcGetCUBIN(nvrtcProgram program, char *image);
nvrtcResult nvrtcGetPTXSize(nvrtcProgram program, size_t *bytes);
nvrtcResult nvrtcGetPTX(nvrtcProgram program, char *image);

typedef int CUresult; /* 0: success; the numbers are those of cudaError_t */
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
CUresult cuModuleLoadData(CUmodule *module, const void *image);
CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name);
CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                        unsigned block_y, unsigned block_z, unsigned shared_bytes, cudaStream_t stream,
                        void **arguments, void **extra);
}

#endif
