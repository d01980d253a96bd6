/*
** device.cu -- what the core sees of the plug-in: the table of the device, found GPUs, kernels by name.
**
** Starting the plug-in asks the driver how many GPUs there are and no more; a GPU gets its context when it is first
** used.
*/
#include "cuda/kernels/copies.h"
#include "cuda/runtime/runtime.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int count;
static fl_cuda_device devices[FL_CUDA_DEVICES];
static bool opened[FL_CUDA_DEVICES];

int fl_cuda_count(void) { return count; }

/* ---- opening ---- */

static fl_status read_properties(fl_cuda_device *d, int index)
{
    int major, minor, shared, pools;
    FL_CUDA_TRY(cudaDeviceGetAttribute(&d->processors, cudaDevAttrMultiProcessorCount, index));
    FL_CUDA_TRY(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, index));
    FL_CUDA_TRY(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, index));
    FL_CUDA_TRY(cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, index));
    FL_CUDA_TRY(cudaDeviceGetAttribute(&pools, cudaDevAttrMemoryPoolsSupported, index));
    if (!pools)
        return fl_fail(FL_ERR_MISSING,
                       "cuda:%d: the driver has no memory pools for this GPU (CUDA 11.2 or later, no vGPU)", index);
    d->index = index;
    d->capability = 10 * major + minor;
    d->shared_bytes = (size_t)shared;
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

/* The driver is told once: kernels and devices that it knows of are kept in a table, which merely tells it again when
** it is full. */
extern "C" void fl_cuda_allow_shared(const void *kernel, size_t bytes)
{
    static struct {
        const void *kernel;
        int device;
        size_t bytes;
    } told[256];
    int device = fl_cuda_current()->index;
    size_t at = ((uintptr_t)kernel / 16 * 31 + (uintptr_t)device) % 256;
    for (int i = 0; i < 8 && told[at].kernel && (told[at].kernel != kernel || told[at].device != device); i++)
        at = (at + 1) % 256;
    if (told[at].kernel == kernel && told[at].device == device && told[at].bytes >= bytes) return;
    told[at].kernel = kernel;
    told[at].device = device;
    told[at].bytes = bytes;
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
}

static void describe(char *text, size_t size, int index)
{
    cudaDeviceProp p;
    int driver = 0;
    cudaDriverGetVersion(&driver);
    if (cudaGetDeviceProperties(&p, index) != cudaSuccess) {
        snprintf(text, size, "cuda:%d: %s", index, cudaGetErrorString(cudaGetLastError()));
        return;
    }
    snprintf(text, size, "cuda:%d %s, compute %d.%d, %.1f GiB, driver for CUDA %d.%d", index, p.name, p.major, p.minor,
             (double)p.totalGlobalMem / (1 << 30), driver / 1000, driver / 10 % 100);
}

/* ---- kernels ---- */

extern const fl_cuda_entry __start_fl_cuda_ops[] __attribute__((weak, visibility("hidden")));
extern const fl_cuda_entry __stop_fl_cuda_ops[] __attribute__((weak, visibility("hidden")));

/* The kernel of an op, NULL when there is none: also what the core's tests ask, where there is no GPU. */
extern "C" __attribute__((visibility("default"))) fl_kernel_fn fl_device_kernel(const fl_op *op)
{
    for (const fl_cuda_entry *e = __start_fl_cuda_ops; e < __stop_fl_cuda_ops; e++)
        if (strcmp(e->op, op->name) == 0) return e->kernel;
    return NULL;
}

/* ---- starting ---- */

static fl_status no_driver(int version)
{
    if (version == 0)
        return fl_fail(FL_ERR_MISSING,
                       "no NVIDIA driver found (libcuda.so.1); install the driver of the GPU, or use device \"cpu\"");
    return fl_fail(FL_ERR_MISSING,
                   "the NVIDIA driver is too old: it knows CUDA %d.%d, and flowlua was built with CUDA %d.%d; update "
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

static fl_status find_devices(void)
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

extern "C" __attribute__((visibility("default"))) fl_status fl_device_start(const fl_device **out)
{
    static fl_device table;
    FL_TRY(find_devices());
    table.name = "cuda";
    table.count = count;
    table.own = fl_cuda_own();
    table.describe = describe;
    table.allocate = fl_cuda_allocate;
    table.release = fl_cuda_release;
    table.trim = fl_cuda_trim;
    table.memory = fl_cuda_memory;
    table.lane = fl_cuda_lane;
    table.kernel = fl_device_kernel;
    table.enter = fl_cuda_enter;
    table.copy = fl_cuda_copy;
    table.host_allocate = fl_cuda_host_allocate;
    table.host_release = fl_cuda_host_release;
    table.copy_view = fl_cuda_copy_view;
    table.fill_view = fl_cuda_fill_view;
    table.scratch = fl_cuda_malloc;
    table.drop_scratch = fl_cuda_free;
    table.comm = &fl_nccl;
    *out = &table;
    return FL_OK;
}
