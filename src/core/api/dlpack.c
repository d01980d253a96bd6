/*
** dlpack.c -- memory shared with other libraries, for hosts.
*/
#include "api.h"

typedef fl_status take_fn(fl_tensor **out, void *managed);
typedef fl_status give_fn(void **out, fl_tensor *tensor);

static flow_status take(flow_tensor **out, void *managed, const char *name, take_fn *taking)
{
    fl_tensor *taken;
    FL_API_ENTER(name);
    FL_API_TRY(fl_api_need(out, name, "out"));
    FL_API_TRY(taking(&taken, managed));
    *out = fl_api_out(taken);
    return FLOW_OK;
}

static flow_status give(void **out, flow_tensor *tensor, const char *name, give_fn *giving)
{
    FL_API_ENTER(name);
    FL_API_TRY(fl_api_need(out, name, "out"));
    FL_API_TRY(fl_api_need(tensor, name, "tensor"));
    fl_status status = giving(out, fl_api_in(tensor));
    return status == FL_OK ? FLOW_OK : (flow_status)fl_fail_prefix(status, "%s: ", name);
}

flow_status flow_from_dlpack(flow_tensor **out, void *managed)
{
    return take(out, managed, "flow_from_dlpack", fl_dlpack_take);
}

flow_status flow_to_dlpack(void **out, flow_tensor *tensor)
{
    return give(out, tensor, "flow_to_dlpack", fl_dlpack_give);
}

flow_status flow_from_dlpack_unversioned(flow_tensor **out, void *managed)
{
    return take(out, managed, "flow_from_dlpack_unversioned", fl_dlpack_take_unversioned);
}

flow_status flow_to_dlpack_unversioned(void **out, flow_tensor *tensor)
{
    return give(out, tensor, "flow_to_dlpack_unversioned", fl_dlpack_give_unversioned);
}
