/*
** mapped.c -- see mapped.h.
*/
#include "mapped.h"
#include "call.h"
#include "record.h"

static int mapped; /* storages */

void fl_mapped_set(fl_storage *storage, int access)
{
    mapped += (access != 0) - (storage->mapped != 0);
    storage->mapped = (uint8_t)access & 3u;
    fl_dispatch_watch(FL_WATCH_MAPPED, mapped > 0);
}

static fl_status fail(const fl_op *op, const char *suffix, const char *what, int access)
{
    return fl_fail(FL_ERR_STATE, "%s%s: %s is mapped for %s by the host; call flow_unmap first", op->name, suffix, what,
                   access & FL_MAPPED_WRITE ? "writing" : "reading");
}

fl_status fl_mapped_check_out(const fl_op *op, const fl_tensor *out)
{
    int access = out->storage ? out->storage->mapped : 0;
    return access ? fail(op, "", "out", access) : FL_OK;
}

fl_status fl_mapped_check_task(const char *who, const char *list, const fl_tensor *tensor, bool writes)
{
    int access = tensor->storage ? tensor->storage->mapped : 0;
    if (!(access & FL_MAPPED_WRITE) && !(access && writes)) return FL_OK;
    return fl_fail(FL_ERR_STATE, "%s: a tensor of %s is mapped for %s by the host; call flow_unmap first", who, list,
                   access & FL_MAPPED_WRITE ? "writing" : "reading");
}

fl_status fl_mapped_check(const fl_op *op, const fl_operand *in, int nin, bool in_place)
{
    if (!mapped) return FL_OK;
    const fl_call call = {.op = op, .nin = nin, .target = in_place ? in[0].tensor : NULL};
    for (int i = 0; i < nin; i++) {
        if (in[i].kind != FL_TENSOR || !in[i].tensor->storage) continue;
        int access = in[i].tensor->storage->mapped;
        if (!(access & FL_MAPPED_WRITE) && !(access && fl_call_writes(&call, i))) continue;
        return fail(op, in_place ? "_" : "", fl_op_operand_name(op, i), access);
    }
    return FL_OK;
}
