/*
** api.h -- what the files of the C interface share: entering and leaving a call, and reading what hosts pass.
**
** A flow_tensor is a fl_tensor and a flow_status a fl_status; hosts see neither.
*/
#ifndef FL_API_H
#define FL_API_H

#include "flow.h"
#include "base/owner.h"
#include "core/script.h"

/* ---- calls ---- */

/* Error: flow_open was not called, or on another thread. Takes back what other threads have released. */
fl_status fl_api_enter_slow(const char *who);
static inline fl_status fl_api_enter(const char *who)
{
    return FL_LIKELY(fl_owner_is_here() && !fl_tensors_released) ? FL_OK : fl_api_enter_slow(who);
}

/* The result of a call; after a failure of other ranks the host is asked whether the job ends. */
flow_status fl_api_leave_slow(fl_status status);
static inline flow_status fl_api_leave(fl_status status)
{
    return FL_LIKELY(status != FL_ERR_COMM) ? (flow_status)status : fl_api_leave_slow(status);
}

#define FL_API_ENTER(who)                                                 \
    do {                                                                  \
        fl_status entered_ = fl_api_enter(who);                           \
        if (FL_UNLIKELY(entered_ != FL_OK)) return (flow_status)entered_; \
    } while (0)

/* Passes an error of the core on. */
#define FL_API_TRY(expression)                                           \
    do {                                                                 \
        fl_status status_ = (expression);                                \
        if (FL_UNLIKELY(status_ != FL_OK)) return fl_api_leave(status_); \
    } while (0)

static inline fl_tensor *fl_api_in(const flow_tensor *tensor) { return (fl_tensor *)tensor; }
static inline flow_tensor *fl_api_out(fl_tensor *tensor) { return (flow_tensor *)tensor; }

/* Error: NULL was given for what is called `name`. */
fl_status fl_api_need(const void *given, const char *who, const char *name);

/* ---- texts of hosts (parse.c) ---- */

fl_status fl_api_dtype(fl_dtype *out, const char *who, const char *text);
fl_status fl_api_device(const fl_placement **out, const char *who, const char *text);
/* "cpu", "cuda {0, 1}", "cpu {{0, 1}, {2, 3}}" */
fl_status fl_api_placement(const fl_placement **out, const char *who, const char *text);
/* "S(0), B"; one for each axis of the placement. ndim: of the tensor, for S(-1). */
fl_status fl_api_sbp(fl_nd_sbp *out, const char *who, const char *text, const fl_placement *placement, int ndim);

/* The place of a tensor: a device, or a placement with an SBP. Texts may be NULL; all NULL: the CPU. */
typedef struct fl_api_place {
    const fl_placement *placement;
    fl_nd_sbp nd_sbp;
    bool is_local;
} fl_api_place;
fl_status fl_api_place_of(fl_api_place *out, const char *who, const char *device, const char *placement,
                          const char *sbp, int ndim);

/* The meta of a spec, one reference. */
fl_status fl_api_meta(const fl_meta **out, const char *who, const flow_spec *spec);

/* Releases what the host has mapped and not unmapped (tensor.c). */
void fl_api_drop_maps(void);

/* ---- steps of programs (call.c) ---- */

typedef struct fl_api_step {
    const char *op; /* "add_": in place */
    bool no_grad, undraws;
    const fl_generator *again; /* the draw to repeat; NULL: it draws by itself, or nothing */
    fl_draw_note *note;        /* the draw that it made */
    const char *device;        /* of ops that make tensors and are not given any place */
} fl_api_step;

/* Calls an op with all its results, *count of them; it may also be one of those that calls from scripts become. */
fl_status fl_api_call_step(fl_tensor **out, int *count, const fl_api_step *step, const flow_arg *args, int nargs);

/* Name of the parameter that operand `index` belongs to; the list takes all from its first on. */
fl_status fl_api_operand_name(const char **out, bool *is_list, const char *op, int index);

#endif
