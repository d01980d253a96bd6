/*
** emulate_device.cc -- devices, errors and settings of the emulation, and the lock that guards all of it.
*/
#include "emulate_parts.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static thread_local cudaError_t last_error;
thread_local int fl_emulated_device;

std::recursive_mutex &fl_emulated_lock = fl_emulated_immortal<std::recursive_mutex>();

void fl_emulated_broken(const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fprintf(stderr, "CUDA emulated: %s\n", text);
    abort();
}

int fl_emulated_setting(const char *name, int otherwise)
{
    const char *text = getenv(name);
    return text && *text ? atoi(text) : otherwise;
}

/* ---- capabilities of a device ---- */

static int compute(void) { return fl_emulated_setting("FLOW_CUDA_EMULATED_COMPUTE", 80); }

/* Most dynamic shared memory of a block, from the CUDA C++ Programming Guide's table of compute capabilities. */
int fl_emulated_shared_limit(void)
{
    switch (compute()) {
    case 75: return 64 << 10;
    case 86:
    case 89: return 99 << 10;
    case 90: return 227 << 10;
    default: return 163 << 10;
    }
}

static int device_count(void) { return fl_emulated_setting("FLOW_CUDA_EMULATED_DEVICES", 2); }

cudaError_t fl_emulated_fail(cudaError_t error)
{
    if (error != cudaSuccess) last_error = error;
    return error;
}

int64_t fl_emulated_device_bytes(void)
{
    const char *text = getenv("FLOW_CUDA_EMULATED_BYTES");
    return text && *text ? atoll(text) : (int64_t)4 << 30;
}

/* ---- devices and errors ---- */

cudaError_t cudaGetDeviceCount(int *count)
{
    *count = device_count();
    return *count ? cudaSuccess : fl_emulated_fail(cudaErrorNoDevice);
}

cudaError_t cudaSetDevice(int device)
{
    if (device < 0 || device >= device_count()) return fl_emulated_fail(cudaErrorInvalidDevice);
    fl_emulated_device = device;
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device)
{
    *device = fl_emulated_device;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int)
{
    switch (attribute) {
    case cudaDevAttrMultiProcessorCount: *value = 4; break; /* few, so that loops over a grid are tried */
    case cudaDevAttrComputeCapabilityMajor: *value = compute() / 10; break;
    case cudaDevAttrComputeCapabilityMinor: *value = compute() % 10; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = fl_emulated_shared_limit(); break;
    case cudaDevAttrMaxThreadsPerMultiProcessor: *value = 2048; break;
    case cudaDevAttrL2CacheSize: *value = 40 << 20; break;
    case cudaDevAttrMemoryPoolsSupported: *value = 1; break;
    default: return fl_emulated_fail(cudaErrorInvalidValue);
    }
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *out, int device)
{
    memset(out, 0, sizeof *out);
    snprintf(out->name, sizeof out->name, "emulated GPU");
    snprintf(out->uuid.bytes, sizeof out->uuid.bytes, "emulated %d", device); /* the same for all processes */
    out->totalGlobalMem = (size_t)fl_emulated_device_bytes();
    out->major = compute() / 10;
    out->minor = compute() % 10;
    out->multiProcessorCount = 4;
    return device < device_count() ? cudaSuccess : fl_emulated_fail(cudaErrorInvalidDevice);
}

cudaError_t cudaDeviceGetPCIBusId(char *text, int size, int device)
{
    snprintf(text, (size_t)size, "0000:%02x:00.0", device + 1);
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version) { return cudaDriverGetVersion(version); }
cudaError_t cudaDeviceCanAccessPeer(int *can, int, int) { return *can = 1, cudaSuccess; }
cudaError_t cudaDeviceEnablePeerAccess(int, unsigned) { return cudaSuccess; }
cudaError_t cudaFuncSetAttribute(const void *, cudaFuncAttribute, int) { return cudaSuccess; }

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks_of_one, const void *, int threads_of_block,
                                                          size_t)
{
    *blocks_of_one = 2048 / threads_of_block;
    return cudaSuccess;
}

cudaError_t cudaPeekAtLastError(void) { return last_error; }

cudaError_t cudaGetLastError(void)
{
    cudaError_t error = last_error;
    last_error = cudaSuccess;
    return error;
}

const char *cudaGetErrorName(cudaError_t error)
{
    switch (error) {
    case cudaSuccess: return "cudaSuccess";
    case cudaErrorMemoryAllocation: return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidConfiguration: return "cudaErrorInvalidConfiguration";
    case cudaErrorInvalidValue: return "cudaErrorInvalidValue";
    case cudaErrorNoDevice: return "cudaErrorNoDevice";
    case cudaErrorNotReady: return "cudaErrorNotReady";
    case cudaErrorInvalidDevice: return "cudaErrorInvalidDevice";
    default: return "an error";
    }
}

const char *cudaGetErrorString(cudaError_t error)
{
    switch (error) {
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorInvalidConfiguration: return "invalid configuration argument";
    case cudaErrorInvalidValue: return "invalid argument";
    case cudaErrorNoDevice: return "no CUDA-capable device is detected";
    default: return cudaGetErrorName(error);
    }
}
