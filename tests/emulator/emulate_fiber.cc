/*
** emulate_fiber.cc -- fibers: stacks between which the one thread of a launch switches.
*/
#include "emulate_parts.h"

#include <stdlib.h>
#include <sys/mman.h>
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif

#ifdef __SANITIZE_ADDRESS__
enum { STACK_BYTES = 512 << 10, GUARD_BYTES = 4096 };
#else
enum { STACK_BYTES = 128 << 10, GUARD_BYTES = 4096 };
#endif

#ifdef __x86_64__
/* Saves what a callee must keep, leaves the stack pointer in *from and goes on at `to`. */
extern "C" void fl_emulated_switch(void **from, void *to);
__asm__(".text\n"
        ".hidden fl_emulated_switch\n"
        ".globl fl_emulated_switch\n"
        ".type fl_emulated_switch, @function\n"
        "fl_emulated_switch:\n"
        "    pushq %rbp\n    pushq %rbx\n    pushq %r12\n    pushq %r13\n    pushq %r14\n    pushq %r15\n"
        "    movq %rsp, (%rdi)\n"
        "    movq %rsi, %rsp\n"
        "    popq %r15\n    popq %r14\n    popq %r13\n    popq %r12\n    popq %rbx\n    popq %rbp\n"
        "    ret\n"
        ".size fl_emulated_switch, .-fl_emulated_switch\n");

/* The first switch pops six registers and returns into fl_emulated_fiber_main, the stack aligned as after a call. */
static void fiber_prepare(fl_emulated_fiber *f)
{
    void **top = (void **)(f->stack + GUARD_BYTES + STACK_BYTES) - 2;
    top[0] = (void *)fl_emulated_fiber_main;
    top[1] = NULL;
    for (int i = 1; i <= 6; i++) top[-i] = NULL;
    f->pointer = top - 6;
}
static void fiber_jump(fl_emulated_fiber *from, fl_emulated_fiber *to)
{
    fl_emulated_switch(&from->pointer, to->pointer);
}
#else
static void fiber_prepare(fl_emulated_fiber *f)
{
    getcontext(&f->context);
    f->context.uc_stack.ss_sp = f->stack + GUARD_BYTES;
    f->context.uc_stack.ss_size = STACK_BYTES;
    f->context.uc_link = NULL;
    makecontext(&f->context, fl_emulated_fiber_main, 0);
}
static void fiber_jump(fl_emulated_fiber *from, fl_emulated_fiber *to) { swapcontext(&from->context, &to->context); }
#endif

fl_emulated_fiber *fl_emulated_fiber_new(void)
{
    fl_emulated_fiber *f = (fl_emulated_fiber *)calloc(1, sizeof *f);
    f->stack = (char *)mmap(NULL, GUARD_BYTES + STACK_BYTES, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (f->stack == (char *)MAP_FAILED) fl_emulated_broken("no memory for the stack of a thread");
    mprotect(f->stack, GUARD_BYTES, PROT_NONE);
    f->bottom = f->stack + GUARD_BYTES;
    f->size = STACK_BYTES;
    fiber_prepare(f);
    return f;
}

fl_emulated_fiber fl_emulated_scheduler, *fl_emulated_fiber_now;

fl_emulated_now fl_emulated_running;
thread_local bool fl_emulated_in_kernel;

/* Calls AddressSanitizer before and after a switch to another stack. */
static void fiber_leave(fl_emulated_fiber *from, const fl_emulated_fiber *to)
{
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_start_switch_fiber(&from->shadow, to->bottom, to->size);
#else
    (void)from, (void)to;
#endif
}

void fl_emulated_fiber_arrive(fl_emulated_fiber *at)
{
#ifdef __SANITIZE_ADDRESS__
    const void *bottom;
    size_t size;
    __sanitizer_finish_switch_fiber(at->shadow, &bottom, &size);
    if (at != &fl_emulated_scheduler) fl_emulated_scheduler.bottom = bottom, fl_emulated_scheduler.size = size;
#else
    (void)at;
#endif
}

void fl_emulated_fiber_switch(fl_emulated_fiber *to)
{
    fl_emulated_fiber *from = fl_emulated_fiber_now;
    fiber_leave(from, to);
    fl_emulated_fiber_now = to;
    fl_emulated_running.stack = to->stack;
    fl_emulated_running.stack_bytes = GUARD_BYTES + STACK_BYTES;
    fiber_jump(from, to);
    fl_emulated_fiber_arrive(from);
}
