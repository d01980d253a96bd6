/*
** emulate_copy.cc -- the runtime's memory: allocation in the order of streams, copies, and their checks.
*/
#include "emulate_parts.h"

/* ---- memory ---- */

static bool on_device(const void *address)
{
    size_t left;
    const fl_emulated_memory *m = fl_emulated_memory_find(address, &left);
    return m && m->device >= 0;
}

static bool is_pageable(const void *address)
{
    size_t left;
    return !fl_emulated_memory_find(address, &left);
}

static void check_range(const void *address, size_t bytes, bool device, const char *what)
{
    size_t left = 0;
    const fl_emulated_memory *m = fl_emulated_memory_find(address, &left);
    if (device && (!m || m->device < 0)) fl_emulated_broken("%s: %p is no device memory (any more)", what, address);
    if (m && left < bytes)
        fl_emulated_broken("%s: %zu bytes at %p, of which %zu belong to the block", what, bytes, address, left);
}

static void fill_device(void *data, int value, size_t bytes)
{
    fl_emulated_rights open(true);
    memset(data, value, bytes);
}

/* New memory has its pattern (NaN, -1) in the order of the stream: earlier writes of another stream are lost. */
cudaError_t cudaMallocAsync(void **out, size_t bytes, cudaStream_t s)
{
    LOCKED;
    CUstream_st *stream = fl_emulated_stream_of(s, "cudaMallocAsync");
    fl_emulated_not_captured(stream, "cudaMallocAsync");
    fl_emulated_unsafe("cudaMallocAsync");
    int device = stream->device;
    if (fl_emulated_memory_used(device) + (int64_t)bytes > fl_emulated_device_bytes())
        fl_emulated_finish(stream, stream->issued);
    void *data = fl_emulated_memory_used(device) + (int64_t)bytes > fl_emulated_device_bytes()
        ? NULL
        : fl_emulated_memory_new(bytes, device);
    if (!data) return fl_emulated_fail(cudaErrorMemoryAllocation);
    fl_emulated_issue(stream, [=] { fill_device(data, 0xff, bytes); });
    *out = data;
    return cudaSuccess;
}

cudaError_t cudaMallocFromPoolAsync(void **out, size_t bytes, cudaMemPool_t, cudaStream_t s)
{
    return cudaMallocAsync(out, bytes, s);
}

cudaError_t cudaFreeAsync(void *data, cudaStream_t s)
{
    LOCKED;
    check_range(data, 0, true, "cudaFreeAsync");
    fl_emulated_not_captured(fl_emulated_stream_of(s, "cudaFreeAsync"), "cudaFreeAsync");
    fl_emulated_issue(fl_emulated_stream_of(s, "cudaFreeAsync"), [=] { fl_emulated_memory_free(data); });
    return cudaSuccess;
}

cudaError_t cudaMalloc(void **out, size_t bytes)
{
    LOCKED;
    fl_emulated_unsafe("cudaMalloc");
    if (fl_emulated_memory_used(fl_emulated_device) + (int64_t)bytes > fl_emulated_device_bytes())
        return fl_emulated_fail(cudaErrorMemoryAllocation);
    void *data = fl_emulated_memory_new(bytes, fl_emulated_device);
    if (!data) return fl_emulated_fail(cudaErrorMemoryAllocation);
    fill_device(data, 0xff, bytes);
    *out = data;
    return cudaSuccess;
}

cudaError_t cudaFree(void *data)
{
    LOCKED;
    fl_emulated_unsafe("cudaFree");
    fl_emulated_finish_all();
    if (data) fl_emulated_memory_free(data);
    return cudaSuccess;
}

cudaError_t cudaHostAlloc(void **out, size_t bytes, unsigned)
{
    LOCKED;
    fl_emulated_unsafe("cudaHostAlloc");
    *out = fl_emulated_memory_new(bytes, -1);
    return *out ? cudaSuccess : fl_emulated_fail(cudaErrorMemoryAllocation);
}

cudaError_t cudaFreeHost(void *data) { return cudaFree(data); }

cudaError_t cudaHostGetDevicePointer(void **out, void *host, unsigned)
{
    *out = host;
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *available, size_t *total)
{
    LOCKED;
    *total = (size_t)fl_emulated_device_bytes();
    *available = *total - (size_t)fl_emulated_memory_used(fl_emulated_device);
    return cudaSuccess;
}

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *pool, int device)
{
    *pool = (cudaMemPool_t)(intptr_t)(device + 1);
    return cudaSuccess;
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void *) { return cudaSuccess; }
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t, size_t) { return cudaSuccess; }

cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, cudaMemPoolAttr, void *value)
{
    LOCKED;
    *(uint64_t *)value = (uint64_t)fl_emulated_memory_used((int)(intptr_t)pool - 1);
    return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes *out, const void *address)
{
    LOCKED;
    size_t left;
    const fl_emulated_memory *m = fl_emulated_memory_find(address, &left);
    memset(out, 0, sizeof *out);
    out->type = !m ? cudaMemoryTypeUnregistered : m->device < 0 ? cudaMemoryTypeHost : cudaMemoryTypeDevice;
    out->device = m && m->device >= 0 ? m->device : fl_emulated_device;
    return cudaSuccess;
}

/* ---- copies ---- */

static void check_kind(const void *out, const void *in, cudaMemcpyKind kind)
{
    if (kind == cudaMemcpyDefault) return;
    bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    if (to_device != on_device(out) || from_device != on_device(in))
        fl_emulated_broken("a copy from %p to %p is said to be of kind %d", in, out, (int)kind);
}

/* Ranges are checked when the copy runs, too: the memory may have been freed by then. */
static void copy_now(void *out, const void *in, size_t bytes, bool to_device, bool from_device)
{
    check_range(out, bytes, to_device, "a copy's target");
    check_range(in, bytes, from_device, "a copy's source");
    fl_emulated_rights open(true);
    memmove(out, in, bytes);
}

/* Waits for no stream of ours: they are all non-blocking ones. */
cudaError_t cudaMemcpy(void *out, const void *in, size_t bytes, cudaMemcpyKind kind)
{
    LOCKED;
    fl_emulated_unsafe("cudaMemcpy");
    check_kind(out, in, kind);
    copy_now(out, in, bytes, on_device(out), on_device(in));
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *out, const void *in, size_t bytes, cudaMemcpyKind kind, cudaStream_t s)
{
    LOCKED;
    fl_emulated_stream_of(s, "cudaMemcpyAsync");
    check_kind(out, in, kind);
    bool to_device = on_device(out), from_device = on_device(in), waits = is_pageable(in) || is_pageable(out);
    if (waits) fl_emulated_not_captured(s, "a copy of pageable memory");
    fl_emulated_issue(s, [=] { copy_now(out, in, bytes, to_device, from_device); });
    if (waits) fl_emulated_finish(s, s->issued);
    return cudaSuccess;
}

/* Fails unless the caller names the GPUs of both blocks correctly. */
cudaError_t cudaMemcpyPeerAsync(void *out, int to, const void *in, int from, size_t bytes, cudaStream_t s)
{
    LOCKED;
    size_t left;
    const fl_emulated_memory *target = fl_emulated_memory_find(out, &left),
                             *source = fl_emulated_memory_find(in, &left);
    if (!target || !source || target->device != to || source->device != from)
        fl_emulated_broken("a copy from %p to %p is said to be from GPU %d to GPU %d", in, out, from, to);
    return cudaMemcpyAsync(out, in, bytes, cudaMemcpyDeviceToDevice, s);
}

cudaError_t cudaMemcpy2DAsync(void *out, size_t out_pitch, const void *in, size_t in_pitch, size_t width, size_t height,
                              cudaMemcpyKind kind, cudaStream_t s)
{
    for (size_t i = 0; i < height; i++) {
        cudaError_t error = cudaMemcpyAsync((char *)out + i * out_pitch, (const char *)in + i * in_pitch, width, kind,
                                            s);
        if (error != cudaSuccess) return error;
    }
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *out, int value, size_t bytes, cudaStream_t s)
{
    LOCKED;
    fl_emulated_issue(fl_emulated_stream_of(s, "cudaMemsetAsync"), [=] {
        check_range(out, bytes, true, "cudaMemsetAsync");
        fill_device(out, value, bytes);
    });
    return cudaSuccess;
}
