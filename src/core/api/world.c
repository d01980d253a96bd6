/*
** world.c -- opening and closing libflow in a host, its thread, its errors, its ranks.
*/
#include "api.h"
#include "core/process.h"

#include <stdio.h>
#include <stdlib.h>

static flow_config config;
static int threads_before; /* of the team, without this host's config */

_Static_assert((int)FLOW_ERR_INTERRUPTED == (int)FL_ERR_INTERRUPTED && (int)FLOW_ERR_COMM == (int)FL_ERR_COMM,
               "a status means the same outside");
_Static_assert((int)FLOW_MAX_NDIM == (int)FL_MAX_NDIM, "a shape has as many axes outside");

/* ---- calls ---- */

fl_status fl_api_enter_slow(const char *who)
{
    if (!fl_owner_is_known()) return fl_fail(FL_ERR_STATE, "%s: flow_open was not called, or flow_close since", who);
    if (!fl_owner_is_here())
        return fl_fail(FL_ERR_STATE,
                       "%s: called on another thread than flow_open; one thread calls, flow_take_over makes it another",
                       who);
    fl_tensors_reclaim();
    return FL_OK;
}

flow_status fl_api_leave_slow(fl_status status)
{
    if (status != FL_ERR_COMM || !config.on_failure || !fl_comm_get()) return (flow_status)status;
    char message[1024];
    snprintf(message, sizeof message, "%s", fl_message());
    if (config.on_failure(config.context, message)) fl_failure_end(EXIT_FAILURE, message, NULL);
    return (flow_status)fl_fail(status, "%s", message);
}

fl_status fl_api_need(const void *given, const char *who, const char *name)
{
    return given ? FL_OK : fl_fail(FL_ERR_VALUE, "%s: %s is NULL", who, name);
}

/* ---- opening and closing ---- */

static fl_status open_core(const flow_config *wanted)
{
    if (wanted && wanted->threads < 0)
        return fl_fail(FL_ERR_VALUE, "flow_open: threads must not be negative, got %d", wanted->threads);
    FL_TRY(fl_world_init());
    FL_TRY(fl_fault_init());
    FL_TRY(fl_plugin_folder(wanted ? wanted->plugins : NULL));
    config = wanted ? *wanted : (flow_config){0};
    config.plugins = NULL; /* it was copied */
    fl_warn_to(config.warn, config.context);
    threads_before = fl_team_size();
    if (config.threads) fl_team_set_size(config.threads);
    return FL_OK;
}

flow_status flow_open(const flow_config *wanted)
{
    if (fl_owner_is_known()) return (flow_status)fl_fail(FL_ERR_STATE, "flow_open: it is open already in this process");
    fl_status status = open_core(wanted);
    if (status == FL_OK) fl_owner_take();
    return (flow_status)status;
}

flow_status flow_join(const void *comm)
{
    FL_API_ENTER("flow_join");
    if (fl_tensor_count())
        return (flow_status)fl_fail(FL_ERR_STATE, "flow_join: it joins before any tensor exists; there are %lld",
                                    (long long)fl_tensor_count());
    if (fl_world_get()->size > 1 && !fl_world_get()->dry)
        return (flow_status)fl_fail(FL_ERR_STATE, "flow_join: this process has joined its ranks already");
    fl_status status = fl_launch_join_host(comm, config.threads > 0);
    fl_world_changed();
    return (flow_status)status;
}

/* Plans and the like stay, for the next flow_open. */
flow_status flow_close(void)
{
    FL_API_ENTER("flow_close");
    while (flow_no_grad_end() == FLOW_OK) continue;
    fl_api_drop_maps();
    fl_status status = fl_engine_wait_all();
    char message[1024];
    snprintf(message, sizeof message, "%s", status == FL_OK ? "" : fl_message());
    fl_launch_leave_host();
    if (fl_comm_get()) fl_world_set_dry(1, 0); /* a world of one is real */
    bool stopped = fl_engine_stop();
    if (!stopped && status == FL_OK) return (flow_status)fl_fail(FL_ERR_STATE, "flow_close: a task is still running");
    if (stopped) fl_team_stop();
    fl_team_set_size(threads_before);
    fl_tensors_reclaim();
    fl_storage_trim();
    fl_owner_drop();
    fl_warn_to(NULL, NULL);
    config = (flow_config){0};
    return status == FL_OK ? FLOW_OK : (flow_status)fl_fail(status, "%s", message);
}

flow_status flow_take_over(void)
{
    if (!fl_owner_is_known())
        return (flow_status)fl_fail(FL_ERR_STATE, "flow_take_over: flow_open was not called, or flow_close since");
    if (fl_owner_is_never())
        return (flow_status)fl_fail(FL_ERR_STATE,
                                    "flow_take_over: called on a thread of libflow's, as by a task; a thread of the "
                                    "host takes over");
    fl_owner_take();
    fl_tensors_reclaim();
    return FLOW_OK;
}

/* ---- queries that may be made at any time ---- */

const char *flow_error(void) { return fl_message(); }

flow_status flow_fail(flow_status status, const char *message)
{
    return (flow_status)fl_fail((fl_status)status, "%s", message ? message : "");
}

const char *flow_version(void) { return FL_VERSION; }

int flow_rank(void) { return fl_world_get()->rank; }

int flow_world_size(void) { return fl_world_get()->size; }

flow_status flow_seed(uint64_t seed)
{
    FL_API_ENTER("flow_seed");
    fl_manual_seed(seed);
    return FLOW_OK;
}
