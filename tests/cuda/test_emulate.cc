/*
** test_emulate.cc -- the emulation of CUDA that kernels are tested with: threads, barriers, order of streams. And
** divisions of sizes that no emulation can walk over.
*/
#include "cuda/kernels/index.h"
#include "../c/check.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static cudaStream_t stream;

#define LAUNCH(kernel, grid, block, shared, ...)                                 \
    fl_emulate(                                                                  \
        stream, (const void *)(kernel), (grid), (block), (shared), "here.cu", 7, \
        [=](const auto &...a) { (kernel)(a...); }, __VA_ARGS__)

__global__ void reverse_block(int *x)
{
    __shared__ int shared[256];
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    shared[threadIdx.x] = x[i];
    __syncthreads();
    x[i] = shared[blockDim.x - 1 - threadIdx.x];
}

__global__ void warp_sums(float *out, const float *x, int n)
{
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    float sum = i < n ? x[i] : 0;
    for (int d = 16; d > 0; d /= 2) sum += __shfl_down_sync(0xffffffffu, sum, d);
    if (threadIdx.x % 32 == 0) atomicAdd(out, sum);
}

__global__ void shuffles(int *out)
{
    int lane = (int)threadIdx.x;
    out[lane] = __shfl_sync(0xffffffffu, lane, 3);
    out[32 + lane] = __shfl_up_sync(0xffffffffu, lane, 1);
    out[64 + lane] = __shfl_xor_sync(0xffffffffu, lane, 5, 8);
    out[96 + lane] = (int)__ballot_sync(0xffffffffu, lane % 2);
    out[128 + lane] = __syncthreads_count(lane < 5);
    out[160 + lane] = (int)__reduce_add_sync(0xffffffffu, (unsigned)lane);
    if (lane < 16) out[192 + lane] = __shfl_sync(0xffffu, lane, 2, 4);
    else out[192 + lane] = __all_sync(0xffff0000u, lane > 3);
}

__global__ void places(int *out)
{
    int i = (int)((blockIdx.y * gridDim.x + blockIdx.x) * blockDim.x * blockDim.y + threadIdx.y * blockDim.x
                  + threadIdx.x);
    out[i] = (int)(1000 * blockIdx.y + 100 * blockIdx.x + 10 * threadIdx.y + threadIdx.x);
}

__global__ void half_barrier(int *)
{
    if (threadIdx.x < 32) __syncthreads();
}

__global__ void half_warp(int *out)
{
    if (threadIdx.x < 5) out[0] = __shfl_sync(0xffffffffu, 1, 0);
}

__global__ void outside(int *out)
{
    if (threadIdx.x < 4) out[threadIdx.x] = __shfl_sync(0xfu, 1, 5);
}

__global__ void set(float *x, int i) { x[i] = 1; }
__global__ void set_four(float *x) { *(float4 *)x = make_float4(1, 2, 3, 4); }
__global__ void set_dynamic(int i) { ((char *)fl_emulated_shared())[i] = 1; }

__global__ void set_shared(int *out, int i)
{
    __shared__ int values[8];
    values[i] = 1;
    *out = values[0];
}

/* One thread sums what all have written: with and without waiting for them. */
__global__ void sum_shared(int *out, bool waits)
{
    __shared__ int values[64];
    values[threadIdx.x] = (int)threadIdx.x;
    if (waits) __syncthreads();
    if (threadIdx.x > 0) return;
    for (int i = 0; i < 64; i++) *out += values[i];
}

/* Lanes read what others wrote after they met; then each writes again what others have read. */
__global__ void pass_on(int *out, bool meets)
{
    __shared__ int values[32];
    values[threadIdx.x] = (int)threadIdx.x;
    __syncwarp();
    out[threadIdx.x] = values[31 - threadIdx.x];
    if (meets) __syncwarp();
    values[threadIdx.x] = 0;
}

/* Two groups of asynchronous copies; groups: number of them that are waited for. */
__global__ void copy_twice(int *out, const int *from, int groups)
{
    __shared__ __align__(16) int values[8];
    for (int i = 0; i < 2; i++) {
        fl_emulated_copy16(values + 4 * i, from + 4 * i, true);
        fl_emulated_copy_commit();
    }
    fl_emulated_copy_wait(2 - groups);
    out[0] = values[0];
    out[1] = values[4];
}

__global__ void count_shared(int *out)
{
    __shared__ int count;
    if (threadIdx.x == 0) count = 0;
    __syncthreads();
    atomicAdd(&count, 1);
    __syncthreads();
    *out = count;
}

__global__ void dynamic(unsigned char *out) { *out = ((unsigned char *)fl_emulated_shared())[99]; }
__global__ void add(int *x, int n) { atomicAdd(x, n); }
__global__ void triple(int *x) { *x = (int)(3u * (unsigned)*x); }

template<typename T>
static T *device_array(int n)
{
    T *data;
    CHECK(cudaMallocAsync((void **)&data, (size_t)n * sizeof *data, stream) == cudaSuccess);
    return data;
}

template<typename T>
static void read_back(T *out, const T *data, int n)
{
    CHECK(cudaMemcpyAsync(out, data, (size_t)n * sizeof *out, cudaMemcpyDeviceToHost, stream) == cudaSuccess);
    CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
}

static void test_barrier(void)
{
    int host[512], *data = device_array<int>(512);
    for (int i = 0; i < 512; i++) host[i] = i;
    cudaMemcpyAsync(data, host, sizeof host, cudaMemcpyHostToDevice, stream);
    LAUNCH(reverse_block, 2, 256, 0, data);
    read_back(host, data, 512);
    for (int i = 0; i < 512; i++) CHECK(host[i] == (i < 256 ? 255 - i : 767 - i));
    cudaFreeAsync(data, stream);
}

static void test_lanes(void)
{
    float x[1000], sum = -1, *data = device_array<float>(1001);
    for (int i = 0; i < 1000; i++) x[i] = (float)i;
    cudaMemsetAsync(data, 0, 4, stream);
    cudaMemcpyAsync(data + 1, x, sizeof x, cudaMemcpyHostToDevice, stream);
    LAUNCH(warp_sums, 8, 128, 0, data, data + 1, 1000);
    read_back(&sum, data, 1);
    CHECK(sum == 499500);
    int host[224], *out = device_array<int>(224);
    LAUNCH(shuffles, 1, 32, 0, out);
    read_back(host, out, 224);
    for (int i = 0; i < 32; i++) {
        CHECK(host[i] == 3);
        CHECK(host[32 + i] == (i ? i - 1 : 0));
        CHECK(host[64 + i] == (i ^ 5));
        CHECK(host[96 + i] == (int)0xaaaaaaaa);
        CHECK(host[128 + i] == 5);
        CHECK(host[160 + i] == 496);
        CHECK(host[192 + i] == (i < 16 ? i / 4 * 4 + 2 : 1));
    }
}

static void test_places(void)
{
    int host[48], *out = device_array<int>(48);
    LAUNCH(places, dim3(2, 4), dim3(3, 2), 0, out);
    read_back(host, out, 48);
    for (int i = 0; i < 48; i++) CHECK(host[i] == 1000 * (i / 12) + 100 * (i / 6 % 2) + 10 * (i / 3 % 2) + i % 3);
    unsigned char byte = 0, *bytes = device_array<unsigned char>(1);
    LAUNCH(dynamic, 1, 1, 100, bytes);
    read_back(&byte, bytes, 1);
    CHECK(byte == 255);
    CHECK(cudaGetLastError() == cudaSuccess);
    LAUNCH(dynamic, 0, 1, 100, bytes);
    CHECK(cudaGetLastError() == cudaErrorInvalidConfiguration);
    LAUNCH(dynamic, 1, 2000, 100, bytes);
    CHECK(cudaGetLastError() == cudaErrorInvalidConfiguration);
    CHECK(cudaGetLastError() == cudaSuccess);
}

/* Quotients around every multiple that is near a power of two. */
static void test_divisions(void)
{
    const int64_t divisors[] = {2,
                                3,
                                5,
                                7,
                                10,
                                255,
                                256,
                                257,
                                641,
                                65537,
                                INT32_MAX,
                                INT64_C(1) << 31,
                                INT64_C(6700417),
                                INT64_C(1) << 40,
                                (INT64_C(1) << 40) + 1,
                                INT64_MAX / 2,
                                INT64_MAX};
    for (int64_t divisor : divisors) {
        fl_division_wide wide = fl_division_wide_of(divisor);
        fl_division narrow = fl_division_of(divisor > INT32_MAX ? 1 : divisor);
        for (int bit = 0; bit < 63; bit++)
            for (int64_t around = -2; around <= 2; around++) {
                int64_t multiple = (INT64_C(1) << bit) / divisor * divisor, n = multiple + around;
                if (n < 0 || (around > 0 && multiple > INT64_MAX - around)) continue;
                CHECK(fl_divide_wide((uint64_t)n, wide) == (uint64_t)(n / divisor));
                if (n <= INT32_MAX && divisor <= INT32_MAX)
                    CHECK(fl_divide((uint32_t)n, narrow) == (uint32_t)(n / divisor));
            }
        CHECK(fl_divide_wide(INT64_MAX, wide) == (uint64_t)(INT64_MAX / divisor));
    }
}

/* True if a child that runs this ends with the message. */
template<typename F>
static bool dies(const char *message, F &&f)
{
    int ends[2];
    char text[1024];
    if (pipe(ends)) return false;
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], 2);
#ifdef __SANITIZE_ADDRESS__
        __sanitizer_set_report_path("stderr");
#endif
        f();
        cudaDeviceSynchronize();
        _exit(0);
    }
    close(ends[1]);
    size_t length = 0;
    ssize_t n;
    while (length < sizeof text - 1 && (n = read(ends[0], text + length, sizeof text - 1 - length)) > 0)
        length += (size_t)n;
    close(ends[0]);
    int status;
    waitpid(child, &status, 0);
    text[length] = '\0';
    if (!strstr(text, message)) fprintf(stderr, "said: %s", text);
    return !(WIFEXITED(status) && WEXITSTATUS(status) == 0) && strstr(text, message);
}

static void test_defects(void)
{
    int *out = device_array<int>(4), host = 0;
    CHECK(dies("here.cu:7: block (0, 0, 0): 32 of 64 threads have ended and 32 wait",
               [=] { LAUNCH(half_barrier, 1, 64, 0, out); }));
    CHECK(dies("waits at a shuffle with lanes ffffffff", [=] { LAUNCH(half_warp, 1, 32, 0, out); }));
    CHECK(dies("asks for what lane 5 has, which is none of them", [=] { LAUNCH(outside, 1, 32, 0, out); }));
    CHECK(dies("of which 16 belong to the block", [&] { cudaMemcpyAsync(out, out, 20, cudaMemcpyDefault, stream); }));
    CHECK(dies("is said to be of kind 1", [&] { cudaMemcpyAsync(&host, out, 4, cudaMemcpyHostToDevice, stream); }));
    CHECK(dies("CUDA emulated: a copy", [&] {
        cudaFreeAsync(out, stream);
        cudaMemcpyAsync(out, out, 4, cudaMemcpyDeviceToDevice, stream);
    }));
}

static void test_copies(void)
{
    int host[8] = {1, 2, 3, 4, 5, 6, 7, 8}, *data = device_array<int>(8), *out = device_array<int>(2);
    cudaMemcpyAsync(data, host, sizeof host, cudaMemcpyHostToDevice, stream);
    for (int groups = 0; groups <= 2; groups++) {
        LAUNCH(copy_twice, 1, 1, 0, out, data, groups);
        read_back(host, out, 2);
        CHECK(host[0] == (groups >= 1 ? 1 : -1) && host[1] == (groups == 2 ? 5 : -1));
    }
    CHECK(dies("they must be multiples of 16", [=] { LAUNCH(copy_twice, 1, 1, 0, out, data + 1, 2); }));
    cudaFreeAsync(data, stream);
    cudaFreeAsync(out, stream);
}

static void test_memory(void)
{
    float *x = device_array<float>(1000), host[2] = {0}, *there;
    CHECK(dies("here.cu:7: block (0, 0, 0), thread 0: touches byte 4096 of a block of 4000 bytes of GPU 0",
               [=] { LAUNCH(set, 1, 1, 0, x, 1024); }));
#ifdef __SANITIZE_ADDRESS__
    const char *end = "use-after-poison";
#else
    const char *end = "byte 4000 of";
#endif
    CHECK(dies(end, [=] {
        LAUNCH(set, 1, 1, 0, x, 1000);
        cudaFreeAsync(x, stream);
    }));
    CHECK(dies("touches byte 12 of what was a block of 4000 bytes of GPU 0 and is freed", [=] {
        cudaFreeAsync(x, stream);
        LAUNCH(set, 1, 1, 0, x, 3);
    }));
    CHECK(cudaHostAlloc((void **)&there, 8, 0) == cudaSuccess);
    LAUNCH(set, 1, 1, 0, there, 1);
    there[0] = 2;
    CHECK(cudaStreamSynchronize(stream) == cudaSuccess && there[0] + there[1] == 3);
    read_back(host, x, 2);
    cudaFreeHost(there);
    cudaFreeAsync(x, stream);
}

static void test_host_touches_device_memory(void)
{
    int key = pkey_alloc(0, 0);
    if (key < 0) SKIP("this CPU has no protection keys, by which the emulation sees what the host touches");
    pkey_free(key);
    float *x = device_array<float>(1000);
    CHECK(
        dies("after the launch at here.cu:7: host code touches device memory: byte 8 of a block of 4000 bytes of GPU 0",
             [=] {
                 LAUNCH(set, 1, 1, 0, x, 3);
                 cudaDeviceSynchronize();
                 x[2] = 1;
             }));
    cudaFreeAsync(x, stream);
}

/* Errors that only a build finds that checks each access. */
static void test_accesses(void)
{
    int *out = device_array<int>(64), host = 0;
    float *x = (float *)out;
    cudaMemsetAsync(out, 0, 256, stream);
    LAUNCH(sum_shared, 1, 64, 0, out, true);
    LAUNCH(pass_on, 1, 32, 0, out, true);
    LAUNCH(count_shared, 1, 64, 0, out);
    LAUNCH(set_dynamic, 1, 1, 100, 99);
    LAUNCH(set_four, 1, 1, 0, x + 4);
    read_back(&host, out, 1);
    CHECK(host == 64);
#ifdef __SANITIZE_THREAD__
    CHECK(dies("thread 0: touches byte 256 of a block of 256 bytes", [=] { LAUNCH(set, 1, 1, 0, x, 64); }));
    CHECK(dies("thread 0 writes 16 bytes of a block of 264 bytes, from byte 256 on",
               [=] { LAUNCH(set_four, 1, 1, 0, device_array<float>(66) + 64); }));
    CHECK(dies("that is neither memory of the GPU nor pinned", [&] { LAUNCH(set, 1, 1, 0, (float *)&host, 0); }));
    CHECK(dies("which must be a multiple of 16", [=] { LAUNCH(set_four, 1, 1, 0, x + 1); }));
    CHECK(dies("writes 1 bytes of dynamic shared memory from byte 100 on: the launch asked for 100",
               [=] { LAUNCH(set_dynamic, 1, 1, 100, 100); }));
    CHECK(dies("uses index 8 of a shorter array at tests/cuda/test_emulate.cc",
               [=] { LAUNCH(set_shared, 1, 1, 0, out, 8); }));
    CHECK(dies("with no barrier between", [=] { LAUNCH(sum_shared, 1, 64, 0, out, false); }));
    CHECK(dies("with no barrier between", [=] { LAUNCH(pass_on, 1, 32, 0, out, false); }));
    CHECK(dies("runs on GPU 0 and writes memory of GPU 1", [=] {
        cudaStream_t here = stream;
        cudaSetDevice(1);
        cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
        float *far = device_array<float>(4);
        stream = here;
        LAUNCH(set, 1, 1, 0, far, 0);
    }));
#endif
    cudaFreeAsync(out, stream);
}

static void test_limits(void)
{
    unsigned char *out = device_array<unsigned char>(1);
    LAUNCH(dynamic, 1, 1, 163 << 10, out);
    CHECK(cudaGetLastError() == cudaSuccess);
    LAUNCH(dynamic, 1, 1, (163 << 10) + 1, out);
    CHECK(cudaGetLastError() == cudaErrorInvalidValue);
    LAUNCH(dynamic, dim3(1, 65536), 1, 100, out);
    CHECK(cudaGetLastError() == cudaErrorInvalidConfiguration);
    setenv("FLOW_CUDA_EMULATED_COMPUTE", "86", 1);
    LAUNCH(dynamic, 1, 1, (99 << 10) + 1, out);
    CHECK(cudaGetLastError() == cudaErrorInvalidValue);
    unsetenv("FLOW_CUDA_EMULATED_COMPUTE");
    cudaFreeAsync(out, stream);
}

/* One stream writes what another reads: ordered by an event the result is right however the streams are stirred;
** without, a deferred run sees wrong ones. */
static int wrong_results(bool ordered)
{
    cudaStream_t first, second;
    cudaEvent_t event;
    cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking);
    cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking);
    cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    int wrong = 0, *host;
    cudaHostAlloc((void **)&host, sizeof *host, 0);
    for (int i = 0; i < 200; i++) {
        stream = first;
        int *x = device_array<int>(1);
        cudaMemsetAsync(x, 0, sizeof *x, first);
        LAUNCH(add, 1, 2, 0, x, 5);
        if (ordered) {
            cudaEventRecord(event, first);
            cudaStreamWaitEvent(second, event, 0);
        }
        stream = second;
        LAUNCH(triple, 1, 1, 0, x);
        cudaMemcpyAsync(host, x, sizeof *x, cudaMemcpyDeviceToHost, second);
        cudaStreamSynchronize(second);
        cudaStreamSynchronize(first);
        wrong += *host != 30;
        cudaFreeAsync(x, second);
    }
    cudaFreeHost(host);
    cudaEventDestroy(event);
    return wrong;
}

static void test_order(void)
{
    const char *mode = getenv("FLOW_CUDA_EMULATED");
    bool deferred = mode && !strcmp(mode, "deferred");
    CHECK(wrong_results(true) == 0);
    CHECK((wrong_results(false) > 0) == deferred);
}

/* Captured work runs at each launch, with the arguments it had. */
static void test_graphs(void)
{
    int *x = device_array<int>(1), host = -1;
    void *other;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaMemsetAsync(x, 0, sizeof *x, stream);
    for (int value = 5; value < 7; value++) {
        CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
        LAUNCH(add, 1, 2, 0, x, value);
        LAUNCH(triple, 1, 1, 0, x);
        CHECK(cudaStreamEndCapture(stream, &graph) == cudaSuccess);
        if (value == 5) CHECK(cudaGraphInstantiate(&exec, graph, 0) == cudaSuccess);
        else CHECK(cudaGraphExecUpdate(exec, graph, NULL) == cudaSuccess);
        cudaGraphDestroy(graph);
        read_back(&host, x, 1);
        CHECK(host == (value == 5 ? 0 : 120));
        for (int i = 0; i < 2; i++) CHECK(cudaGraphLaunch(exec, stream) == cudaSuccess);
    }
    cudaGraphExecDestroy(exec);
    read_back(&host, x, 1);
    CHECK(host == ((120 + 12) * 3 + 12) * 3);
    CHECK(dies("cudaMallocAsync: the stream is captured", [&] {
        cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
        cudaMallocAsync(&other, 4, stream);
    }));
    CHECK(dies("cudaMalloc while this thread captures a stream", [&] {
        cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
        cudaMalloc(&other, 4);
    }));
    CHECK(dies("a wait for the stream: the stream is captured", [&] {
        cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed);
        cudaStreamSynchronize(stream);
    }));
    cudaFreeAsync(x, stream);
}

int main(void)
{
    cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    cudaStream_t first = stream;
    RUN(test_barrier);
    RUN(test_lanes);
    RUN(test_places);
    RUN(test_divisions);
    RUN(test_defects);
    RUN(test_copies);
    RUN(test_memory);
    RUN(test_host_touches_device_memory);
    RUN(test_accesses);
    RUN(test_limits);
    RUN(test_graphs);
    RUN(test_order);
    stream = first;
    return finish();
}
