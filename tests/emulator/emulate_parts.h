/*
** emulate_parts.h -- what the parts of the emulation share.
**
** emulate.cc has threads, launches, streams, copies; emulate_memory.cc the blocks of memory and who may touch them;
** emulate_check.cc looks at each access that a kernel makes, where the plug-in was compiled for that.
*/
#ifndef FL_EMULATE_PARTS_H
#define FL_EMULATE_PARTS_H

#include "emulate.h"

#include <mutex>

/* Held by whoever calls the runtime or runs a kernel. */
extern std::recursive_mutex &fl_emulated_lock;
#define LOCKED std::lock_guard<std::recursive_mutex> locked(fl_emulated_lock)

/* A defect of the plug-in: says it and ends the process. */
void __attribute__((noreturn, format(printf, 1, 2))) fl_emulated_broken(const char *format, ...);

/* Where the running kernel is: "here.cu:7: block (0, 0, 0), thread 5"; when none runs, which was launched last. */
void fl_emulated_place(char *text, size_t size);

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

/* Where threadIdx and the like are. */
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

/* Does this thread run a kernel's code, not the emulation's or the host's? */
extern thread_local bool fl_emulated_in_kernel __attribute__((tls_model("initial-exec")));

/* What the emulation touches in place of the kernel. */
void fl_emulated_access(const void *p, size_t size, bool writes);

/* A block is gone: nothing is known of its addresses any more. */
void fl_emulated_forget_blocks(void);

#endif
