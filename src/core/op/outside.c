/*
** outside.c -- see outside.h.
*/
#include "outside.h"
#include "registry.h"

bool fl_ops_outside;

fl_status fl_hook_failed(fl_status status, uint64_t before, const fl_op *op, const char *hook)
{
    return fl_op_is_registered(op) ? fl_fail_outside(status, before, op->name, hook) : status;
}

static fl_status call_cpu(fl_kernel *kernel)
{
    uint64_t before = fl_failures();
    return fl_fail_outside(kernel->op->cpu(kernel), before, kernel->name, "its kernel");
}

static fl_status call_on_device(fl_kernel *kernel)
{
    uint64_t before = fl_failures();
    return fl_fail_outside(kernel->op->on_device(kernel), before, kernel->name, "its kernel");
}

fl_kernel_fn fl_outside_kernel(const fl_op *op, fl_kernel_fn kernel)
{
    if (!fl_ops_outside || !kernel || !fl_op_is_registered(op)) return kernel;
    return kernel == op->on_device ? call_on_device : call_cpu;
}
