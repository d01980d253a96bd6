/*
** device.cu -- the GPUs that the driver finds. A GPU gets its context when it is first used.
*/
#include "runtime.h"

#include <stdlib.h>

static int count;
static fl_cuda_device devices[FL_CUDA_DEVICES];
static bool opened[FL_CUDA_DEVICES];

int fl_cuda_count(void) { return count; }

/* ---- opening ---- */

static fl_status read_properties(fl_cuda_device *device, int index)
{
    int major, minor, shared, pools;
    FL_CUDA_TRY(cudaDeviceGetAttribute(&device->processors, cudaDevAttrMultiProcessorCount, index));
    FL_CUDA_TRY(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, index));
    FL_CUDA_TRY(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, index));
    FL_CUDA_TRY(cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, index));
    FL_CUDA_TRY(cudaDeviceGetAttribute(&pools, cudaDevAttrMemoryPoolsSupported, index));
    if (!pools)
        return fl_fail(FL_ERR_MISSING,
                       "cuda:%d: the driver has no memory pools for this GPU (CUDA 11.2 or later, no vGPU)", index);
    device->index = index;
    device->capability = 10 * major + minor;
    device->shared_bytes = (size_t)shared;
    return FL_OK;
}

static fl_status no_such(int index)
{
    if (count == 1) return fl_fail(FL_ERR_VALUE, "cuda:%d: this process sees one GPU, cuda:0", index);
    return fl_fail(FL_ERR_VALUE, "cuda:%d: this process sees %d GPUs, cuda:0 to cuda:%d", index, count, count - 1);
}

fl_status fl_cuda_open(const fl_cuda_device **out, int index)
{
    if (index < 0 || index >= count) return no_such(index);
    if (!opened[index]) {
        FL_CUDA_TRY(cudaSetDevice(index));
        FL_TRY(read_properties(&devices[index], index));
        FL_TRY(fl_cuda_memory_open(index));
        opened[index] = true;
    }
    *out = &devices[index];
    return FL_OK;
}

extern "C" const fl_cuda_device *fl_cuda_current(void) { return &devices[fl_cuda_queue_current()->device]; }

/* The driver is called once per kernel and device: a table keeps those that are set; when it is full, they are set
** again. */
extern "C" void fl_cuda_allow_shared(const void *kernel, size_t bytes)
{
    static struct {
        const void *kernel;
        int device;
        size_t bytes;
    } known[256];
    int device = fl_cuda_current()->index;
    size_t at = ((uintptr_t)kernel / 16 * 31 + (uintptr_t)device) % 256;
    for (int i = 0; i < 8 && known[at].kernel && (known[at].kernel != kernel || known[at].device != device); i++)
        at = (at + 1) % 256;
    if (known[at].kernel == kernel && known[at].device == device && known[at].bytes >= bytes) return;
    known[at].kernel = kernel;
    known[at].device = device;
    known[at].bytes = bytes;
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
}

/* ---- finding ---- */

static fl_status no_driver(int version)
{
    if (version == 0)
        return fl_fail(FL_ERR_MISSING,
                       "no NVIDIA driver found (libcuda.so.1); install the driver of the GPU, or use device \"cpu\"");
    return fl_fail(
        FL_ERR_MISSING,
        "the NVIDIA driver is too old: it supports CUDA %d.%d, and flowlua was built with CUDA %d.%d; update "
        "the driver, or "
        "build flowlua with a toolkit that is not newer",
        version / 1000, version / 10 % 100, CUDART_VERSION / 1000, CUDART_VERSION / 10 % 100);
}

static fl_status no_device(void)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    if (visible)
        return fl_fail(FL_ERR_MISSING,
                       "no GPU: CUDA_VISIBLE_DEVICES=%s hides them, or there is none; use device \"cpu\"", visible);
    return fl_fail(FL_ERR_MISSING, "no GPU: the NVIDIA driver finds none on this machine; use device \"cpu\"");
}

fl_status fl_cuda_find(void)
{
    int version = 0;
    cudaDriverGetVersion(&version);
    cudaError_t error = version ? cudaGetDeviceCount(&count) : cudaErrorInsufficientDriver;
    cudaGetLastError();
    if (error == cudaErrorInsufficientDriver) return no_driver(version);
    if (error == cudaErrorNoDevice || (error == cudaSuccess && count == 0)) return no_device();
    if (error != cudaSuccess)
        return fl_fail(FL_ERR_MISSING, "the NVIDIA driver cannot be used: %s (%s)", cudaGetErrorString(error),
                       cudaGetErrorName(error));
    if (count > FL_CUDA_DEVICES) count = FL_CUDA_DEVICES;
    return FL_OK;
}

/* A number that the launcher of this process has left in its environment. */
static int launched_as(const char *const *names, int otherwise)
{
    for (; *names; names++) {
        const char *text = getenv(*names);
        if (text && *text >= '0' && *text <= '9') return atoi(text);
    }
    return otherwise;
}

static int local_rank(void)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID", NULL};
    return launched_as(names, 0);
}

int fl_cuda_own(void) { return local_rank() % count; }

int fl_cuda_processes(void)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", NULL};
    return (launched_as(names, 1) + count - 1) / count;
}
