/*
** dlpack.c -- memory shared with other libraries, for hosts.
*/
#include "api.h"

flow_status flow_from_dlpack(flow_tensor **out, void *managed)
{
    fl_tensor *taken;
    FL_API_ENTER("flow_from_dlpack");
    FL_API_TRY(fl_api_need(out, "flow_from_dlpack", "out"));
    FL_API_TRY(fl_dlpack_take(&taken, managed));
    *out = fl_api_out(taken);
    return FLOW_OK;
}

flow_status flow_to_dlpack(void **out, flow_tensor *tensor)
{
    FL_API_ENTER("flow_to_dlpack");
    FL_API_TRY(fl_api_need(out, "flow_to_dlpack", "out"));
    FL_API_TRY(fl_api_need(tensor, "flow_to_dlpack", "tensor"));
    fl_status status = fl_dlpack_give(out, fl_api_in(tensor));
    return status == FL_OK ? FLOW_OK : (flow_status)fl_fail_prefix(status, "flow_to_dlpack: ");
}
