/*
** fault.c -- FLOW_FAULT: one op of one rank fails on purpose.
*/
#include "fault.h"
#include "record.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

bool fl_fault_armed;

#define FAULT_KINDS(X) X(exit) X(kill) X(segv) X(sleep) X(skip) X(error)

typedef enum fault_kind {
#define X(name) FAULT_##name,
    FAULT_KINDS(X)
#undef X
        FAULT_none
} fault_kind;

static const char *const kind_names[] = {
#define X(name) #name,
    FAULT_KINDS(X)
#undef X
};

static struct {
    int64_t rank, op_number;
    fault_kind kind;
    int64_t ops; /* counted so far */
} fault;

enum { SLEEP_SECONDS = 3600 };

/* A whole number followed by ':'; moves *text behind it. */
static bool read_number(int64_t *out, const char **text)
{
    char *end;
    *out = strtoll(*text, &end, 10);
    if (end == *text || *end != ':') return false;
    *text = end + 1;
    return true;
}

fl_status fl_fault_init(void)
{
    const char *text = getenv("FLOW_FAULT"), *at = text;
    if (!text || !*text) return FL_OK;
    bool good = read_number(&fault.rank, &at) && read_number(&fault.op_number, &at);
    fault.kind = 0;
    while (good && fault.kind < FAULT_none && strcmp(at, kind_names[fault.kind]) != 0) fault.kind++;
    if (!good || fault.rank < 0 || fault.op_number < 1 || fault.kind == FAULT_none)
        return fl_fail(FL_ERR_VALUE,
                       "FLOW_FAULT=%s: must be rank:op_number:kind, ops counted from 1, kind one of exit, kill, "
                       "segv, sleep, skip, error (FLOW_FAULT=1:20:exit)",
                       text);
    fl_fault_armed = true;
    fl_dispatch_watch(FL_WATCH_FAULT, true);
    return FL_OK;
}

/* True if this op is to fail. Does what ends or stops the process; FAULT_skip and FAULT_error are left to the
** caller. */
static fault_kind take_turn(void)
{
    if (fl_world_get()->rank != fault.rank || ++fault.ops != fault.op_number) return FAULT_none;
    switch (fault.kind) {
    case FAULT_exit: exit(1);
    case FAULT_kill: raise(SIGKILL); break;
    case FAULT_segv: raise(SIGSEGV); break;
    case FAULT_sleep:
        for (unsigned left = SLEEP_SECONDS; left > 0;) left = sleep(left); /* whatever signals come */
        break;
    default: break;
    }
    return fault.kind;
}

static fl_status fail(const char *name) { return fl_fail(FL_ERR_STATE, "%s: made to fail by FLOW_FAULT", name); }

bool fl_fault_step(fl_status *status, const char *name)
{
    fault_kind kind = take_turn();
    if (kind != FAULT_skip && kind != FAULT_error) return false;
    *status = kind == FAULT_error ? fail(name) : FL_OK;
    return true;
}

bool fl_fault_op(fl_status *status, fl_tensor **out, const char *name, const fl_meta *const *metas, int nout,
                 fl_tensor *target)
{
    fault_kind kind = take_turn();
    if (kind != FAULT_skip && kind != FAULT_error) return false;
    *status = kind == FAULT_error ? fail(name) : FL_OK;
    for (int i = 0; i < nout && *status == FL_OK; i++) {
        if (target) out[i] = fl_tensor_ref(target);
        else *status = fl_tensor_empty(&out[i], metas[i]);
        if (*status != FL_OK)
            while (--i >= 0) fl_tensor_unref(out[i]);
    }
    return true;
}
