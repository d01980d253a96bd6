/*
** test_emulate.cc -- the emulation of CUDA that kernels are tested with: threads, barriers, order of streams.
*/
#include "../../src/cuda/emulate.h"
#include "../c/check.h"

#include <sys/wait.h>
#include <unistd.h>

static cudaStream_t stream;

#define LAUNCH(kernel, grid, block, shared, ...) \
    fl_emulate(stream, (const void *)(kernel), (grid), (block), (shared), "here.cu", 7, [=](const auto &...a) { (kernel)(a...); }, __VA_ARGS__)

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
    int i = (int)((blockIdx.y * gridDim.x + blockIdx.x) * blockDim.x * blockDim.y + threadIdx.y * blockDim.x + threadIdx.x);
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

__global__ void dynamic(unsigned char *out) { *out = ((unsigned char *)fl_emulated_shared())[99]; }
__global__ void add(int *x, int n) { atomicAdd(x, n); }
__global__ void triple(int *x) { *x = (int)(3u * (unsigned)*x); }

template <typename T> static T *device_array(int n)
{
    T *data;
    CHECK(cudaMallocAsync((void **)&data, (size_t)n * sizeof *data, stream) == cudaSuccess);
    return data;
}

template <typename T> static void read_back(T *out, const T *data, int n)
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

/* Does a child that runs this end with the message? */
template <typename F> static bool dies(const char *message, F &&f)
{
    int ends[2];
    char text[1024];
    if (pipe(ends)) return false;
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], 2);
        f();
        cudaDeviceSynchronize();
        _exit(0);
    }
    close(ends[1]);
    ssize_t n = read(ends[0], text, sizeof text - 1);
    close(ends[0]);
    int status;
    waitpid(child, &status, 0);
    text[n > 0 ? n : 0] = '\0';
    if (!strstr(text, message)) fprintf(stderr, "said: %s", text);
    return !(WIFEXITED(status) && WEXITSTATUS(status) == 0) && strstr(text, message);
}

static void test_defects(void)
{
    int *out = device_array<int>(4), host = 0;
    CHECK(dies("here.cu:7: block (0, 0, 0): 32 of 64 threads have ended and 32 wait", [=] { LAUNCH(half_barrier, 1, 64, 0, out); }));
    CHECK(dies("waits at a shuffle with lanes ffffffff", [=] { LAUNCH(half_warp, 1, 32, 0, out); }));
    CHECK(dies("of which 16 belong to the block", [&] { cudaMemcpyAsync(out, out, 20, cudaMemcpyDefault, stream); }));
    CHECK(dies("is said to be of kind 1", [&] { cudaMemcpyAsync(&host, out, 4, cudaMemcpyHostToDevice, stream); }));
    CHECK(dies("CUDA emulated: a copy", [&] {
        cudaFreeAsync(out, stream);
        cudaMemcpyAsync(out, out, 4, cudaMemcpyDeviceToDevice, stream);
    }));
}

/* One stream writes what another reads: ordered by an event the result is right however the streams are stirred; without, a
** deferred run sees wrong ones. */
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

int main(void)
{
    cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    cudaStream_t first = stream;
    RUN(test_barrier);
    RUN(test_lanes);
    RUN(test_places);
    RUN(test_defects);
    RUN(test_order);
    stream = first;
    return finish();
}
