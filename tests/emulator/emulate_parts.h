/*
** emulate_parts.h -- what the parts of the emulation share.
**
** emulate_fiber.cc has the stacks of threads, emulate_block.cc a launch, emulate_stream.cc streams and events,
** emulate_graph.cc launches that are noted and repeated,
** emulate_copy.cc allocation and copies, emulate_device.cc devices and errors, emulate_memory.cc the blocks of memory
** with their access rights; emulate_check.cc checks each access of a kernel, where the plug-in was compiled for that.
**
** One lock guards everything: kernels, copies and calls of the runtime run one at a time, whichever thread makes them.
** A breach of CUDA's rules that a GPU would not report (a barrier that not all threads reach, a copy across
** the end of a block or from the wrong side) ends the process with a message: it is a defect of the plug-in.
*/
#ifndef FL_EMULATE_PARTS_H
#define FL_EMULATE_PARTS_H

#include "emulate.h"

#include <deque>
#include <mutex>
#include <vector>
#ifndef __x86_64__
#include <ucontext.h>
#endif

/* An object that is never destroyed: static objects of others end later. */
template<typename T>
static inline T &fl_emulated_immortal(void)
{
    return *new T();
}

/* Held by whoever calls the runtime or runs a kernel. */
extern std::recursive_mutex &fl_emulated_lock;
#define LOCKED std::lock_guard<std::recursive_mutex> locked(fl_emulated_lock)

/* A defect of the plug-in: says it and ends the process. */
void __attribute__((noreturn, format(printf, 1, 2))) fl_emulated_broken(const char *format, ...);

/* The place of the running kernel: "here.cu:7: block (0, 0, 0), thread 5"; when none runs, the last launch. */
void fl_emulated_place(char *text, size_t size);

/* ---- devices and errors ---- */

/* Of this thread: the current device. */
extern thread_local int fl_emulated_device;

/* Remembers an error for cudaGetLastError; returns it. */
cudaError_t fl_emulated_fail(cudaError_t error);

/* The number in a variable of the environment. */
int fl_emulated_setting(const char *name, int otherwise);

/* Most dynamic shared memory of a block. */
int fl_emulated_shared_limit(void);

/* Memory of a device. */
int64_t fl_emulated_device_bytes(void);

/* ---- fibers ---- */

/* A place where execution can stop and go on: a stack of its own, or (the scheduler's) the caller's. */
struct fl_emulated_fiber {
    char *stack;        /* NULL: the caller's */
    const void *bottom; /* for AddressSanitizer */
    size_t size;
    void *shadow;
#ifdef __x86_64__
    void *pointer; /* stack pointer while it is stopped */
#else
    ucontext_t context;
#endif
};

extern fl_emulated_fiber fl_emulated_scheduler, *fl_emulated_fiber_now;

/* A stack on which fl_emulated_fiber_main begins when it is first switched to. */
fl_emulated_fiber *fl_emulated_fiber_new(void);

/* Stops the fiber that runs and goes on with another one. */
void fl_emulated_fiber_switch(fl_emulated_fiber *to);

/* To be called first by fl_emulated_fiber_main. */
void fl_emulated_fiber_arrive(fl_emulated_fiber *at);

/* Runs threads of blocks; never returns. */
void fl_emulated_fiber_main(void);

/* ---- launches ---- */

enum { FL_EMULATED_THREADS = 1024 }; /* of a block, at most */

struct fl_emulated_launch {
    int device;
    dim3 grid, threads;
    size_t shared;
    std::function<void()> body;
    const char *file;
    int line;
};
void fl_emulated_run_launch(const fl_emulated_launch &l);

/* ---- streams ---- */

/* Something issued; `after`, if any, must have come so far before, and `ready`, if any, must return true. */
struct fl_emulated_item {
    std::function<void()> run;
    CUstream_st *after;
    uint64_t position;
    std::function<bool()> ready;
};

struct CUstream_st : fl_emulated_stream {
    int device;
    std::deque<fl_emulated_item> queue;
    uint64_t issued, done;
    cudaGraph_t captured; /* receives what is issued; NULL: it runs */
};

/* The stream, which must not be the default one. `what` names the caller. */
CUstream_st *fl_emulated_stream_of(cudaStream_t s, const char *what);

void fl_emulated_issue(CUstream_st *s, std::function<void()> run, CUstream_st *after = NULL, uint64_t position = 0,
                       std::function<bool()> ready = nullptr);

/* Adds work to a captured stream. */
void fl_emulated_capture(CUstream_st *s, std::function<void()> run);

/* Ends the process: where the stream is captured; where CUDA forbids the call because this thread captures. */
void fl_emulated_not_captured(const CUstream_st *s, const char *what);
void fl_emulated_unsafe(const char *what);

/* The caller waits until the stream has come so far; the others go on meanwhile. */
void fl_emulated_finish(CUstream_st *s, uint64_t position);
void fl_emulated_finish_all(void);

/* ---- memory ---- */

typedef struct fl_emulated_memory {
    size_t bytes;
    int device;
} fl_emulated_memory; /* device -1: pinned host memory */

/* 512-byte aligned; NULL when the system has no more. */
void *fl_emulated_memory_new(size_t bytes, int device);

/* Its addresses are not given out again for a while: an access to them is reported. */
void fl_emulated_memory_free(void *data);

/* The block that holds the address and how many bytes of it are left there, or NULL. */
const fl_emulated_memory *fl_emulated_memory_find(const void *address, size_t *left);

/* Ends the process with a message if the address is in or next to a block, living or freed. */
void fl_emulated_memory_explain(const void *address);

/* Bytes in use on a device (-1: pinned). */
int64_t fl_emulated_memory_used(int device);

/* While it lives, this thread may touch device memory, or not. */
class fl_emulated_rights
{
  public:
    explicit fl_emulated_rights(bool open);
    ~fl_emulated_rights();

  private:
    int before;
};

/* ---- accesses of kernels ---- */

/* The section of threadIdx and the like. */
#define FL_EMULATED_PLACE __attribute__((section("fl_emulated_place")))
extern const char __start_fl_emulated_place[] __attribute__((visibility("hidden")));
extern const char __stop_fl_emulated_place[] __attribute__((visibility("hidden")));

/* The thread that runs and its launch. */
typedef struct fl_emulated_now {
    const char *stack; /* of the thread, and its bytes */
    size_t stack_bytes;
    int device, thread;
    const void *arguments; /* of the launch */
    size_t argument_bytes, shared_bytes;
    uint32_t barriers;     /* of blocks, ever: those of a block have numbers that no other has */
    uint16_t meetings[32]; /* of the lanes of each warp */
} fl_emulated_now;
extern fl_emulated_now fl_emulated_running;

/* True while this thread runs a kernel's code, not the emulation's or the host's. */
extern thread_local bool fl_emulated_in_kernel __attribute__((tls_model("initial-exec")));

/* Checks an access that the emulation makes in place of the kernel. */
void fl_emulated_access(const void *p, size_t size, bool writes);

/* A block is gone: nothing is known of its addresses any more. */
void fl_emulated_forget_blocks(void);

#endif
