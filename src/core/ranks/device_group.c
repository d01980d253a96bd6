/*
** device_group.c -- the members of a group find out whether their devices can communicate.
*/
#include "device_group.h"
#include "comm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct fl_device_group {
    bool negotiated;
    uint64_t begun; /* group->begun when it was negotiated */
    void *handle;   /* owned; NULL: the CPUs move the data */
};

/* The data that a member shows the others. */
struct notice {
    bool able;
    char error[FL_ERROR_TEXT]; /* why not */
    unsigned char handshake[FL_DEVICE_HANDSHAKE];
};

static void set_ability(struct notice *mine, fl_status status)
{
    mine->able = status == FL_OK;
    snprintf(mine->error, sizeof mine->error, "%s", mine->able ? "" : fl_message());
}

/* The first member that is not able; -1: all are. */
static int first_unable(const struct notice *all, int count)
{
    for (int i = 0; i < count; i++)
        if (!all[i].able) return i;
    return -1;
}

/* Every member has what it takes; now they join, and it counts only if all of them have. */
static fl_status join(struct fl_device_group *group, fl_group *g, const fl_device *device, struct notice *all,
                      const void *handshakes)
{
    struct notice mine = {.able = false};
    if (device->comm->compare(handshakes, g->count, g->ranks) != FL_OK) return FL_OK;
    set_ability(&mine, device->comm->join(&group->handle, g, handshakes, device->own));
    fl_status status = fl_comm_share(g, "joining of devices", all, &mine, sizeof mine, 0);
    int unable = status == FL_OK ? first_unable(all, g->count) : g->me;
    if (unable < 0) return FL_OK;
    if (status == FL_OK && g->me == unable)
        fl_warn("%s cannot be used, tensors travel through host memory: rank %d: %s", device->comm->name,
                g->ranks[unable], all[unable].error);
    device->comm->leave(group->handle);
    group->handle = NULL;
    return status;
}

static fl_status negotiate(struct fl_device_group *group, fl_group *g, const fl_device *device)
{
    struct notice mine = {.able = false}, *all = malloc((size_t)g->count * sizeof *all);
    unsigned char *handshakes = malloc((size_t)g->count * FL_DEVICE_HANDSHAKE);
    fl_status status = all && handshakes ? FL_OK
                                         : fl_fail(FL_ERR_MEMORY, "out of memory for a group of %d ranks", g->count);
    if (status == FL_OK && device->comm) set_ability(&mine, device->comm->open());
    if (mine.able) set_ability(&mine, device->comm->handshake(mine.handshake, device->own, g->me == 0));
    if (status == FL_OK) status = fl_comm_share(g, "meeting of devices", all, &mine, sizeof mine, 0);
    if (status == FL_OK && first_unable(all, g->count) < 0) {
        for (int i = 0; i < g->count; i++)
            memcpy(handshakes + (size_t)i * FL_DEVICE_HANDSHAKE, all[i].handshake, FL_DEVICE_HANDSHAKE);
        status = join(group, g, device, all, handshakes);
    }
    free(handshakes);
    free(all);
    return status;
}

bool fl_device_group_known(const fl_group *group)
{
    return group->devices && group->devices->negotiated && group->devices->begun == group->begun;
}

fl_status fl_device_group_get(void **handle, fl_group *group, const fl_device *device)
{
    struct fl_device_group *d = group->devices;
    if (!d) d = group->devices = calloc(1, sizeof *d);
    if (!d) return fl_fail(FL_ERR_MEMORY, "out of memory for a group of %d ranks", group->count);
    if (!fl_device_group_known(group)) {
        if (d->handle) device->comm->leave(d->handle);
        *d = (struct fl_device_group){.negotiated = false};
        FL_TRY(negotiate(d, group, device));
        d->negotiated = true;
        d->begun = group->begun;
    }
    *handle = d->handle;
    return FL_OK;
}
