/*
** plugin.cu -- the plug-in's interface to the core: the table of the device, and kernels by the names of their ops.
**
** Starting the plug-in only reads the number of GPUs from the driver.
*/
#include "cuda/kernels/copies.h"
#include "cuda/kernels/fused.h"
#include "cuda/runtime/runtime.h"

#include <stdio.h>
#include <string.h>

extern "C" {
#include "core/base/plugin.h"
#include "core/op/op.h"
FL_PLUGIN
}

/* ---- kernels ---- */

extern const fl_cuda_entry __start_fl_cuda_ops[] __attribute__((weak, visibility("hidden")));
extern const fl_cuda_entry __stop_fl_cuda_ops[] __attribute__((weak, visibility("hidden")));

/* The kernel of an op, NULL when there is none: also called by the core's tests, where there is no GPU. */
extern "C" __attribute__((visibility("default"))) fl_kernel_fn fl_device_kernel(const fl_op *op)
{
    for (const fl_cuda_entry *e = __start_fl_cuda_ops; e < __stop_fl_cuda_ops; e++)
        if (strcmp(e->op, op->name) == 0) return e->kernel;
    return NULL;
}

/* ---- the table ---- */

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

static void *current_stream(void) { return fl_cuda_queue_current()->stream; }

extern "C" __attribute__((visibility("default"))) fl_status fl_device_start(const fl_device **out)
{
    static fl_device table;
    FL_TRY(fl_cuda_find());
    table.name = "cuda";
    table.count = fl_cuda_count();
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
    table.tiles = fl_cuda_tiles;
    table.stream = current_stream;
    table.graph_begin = fl_cuda_graph_begin;
    table.graph_end = fl_cuda_graph_end;
    table.graph_launch = fl_cuda_graph_launch;
    table.graph_drop = fl_cuda_graph_drop;
    table.comm = &fl_nccl;
    *out = &table;
    return FL_OK;
}
