/*
** device_comm.h -- how the devices of several ranks move data among themselves: the table that a device's plug-in
** fills.
*/
#ifndef FL_DEVICE_COMM_H
#define FL_DEVICE_COMM_H

#include "base/reduce.h"
#include "group.h"
#include "site.h"
#include "memory/device.h"

/* A message to or from a member: contiguous bytes in device memory. */
typedef struct fl_segment {
    int peer; /* position in the group */
    void *data;
    size_t bytes; /* not 0 */
} fl_segment;

/* Collectives between the devices of several ranks (NCCL). */
enum { FL_DEVICE_HANDSHAKE = 256 };
typedef struct fl_device_comm {
    const char *name; /* "NCCL" */
    /* FL_OK if this process can take part; else the error names what is missing. The first call opens the library. */
    fl_status (*open)(void);
    void (*describe)(char *text, size_t size); /* "NCCL 2.28.9", when it is open */
    /* The members exchange this before they join: FL_DEVICE_HANDSHAKE bytes about device `index`. `inviting`:
    ** this member's handshake is the one that the others join by. */
    fl_status (*handshake)(void *handshake, int index, bool inviting);
    /* FL_OK if these members can communicate, or the same error on all of them: two share a device, .. */
    fl_status (*compare)(const void *handshakes, int count, const int *ranks);
    /* *handle is this member's. Errors: why this member cannot join; then no member may use it. handshakes[0]
    ** invites. */
    fl_status (*join)(void **handle, fl_group *group, const void *handshakes, int index);
    /* Ends what is under way and gives the handle up, without the others. NULL is fine. */
    void (*leave)(void *handle);
    /* From here on calls issue to the queue that was entered, and return; the members have met, and all make the same
    ** ones. Around those of one collective: its name, for messages and time-outs. `end` follows where begin
    ** went well, with what has become of them; an error breaks the group. */
    fl_status (*begin)(void *handle, const fl_collective *collective);
    fl_status (*end)(void *handle, fl_status status);
    fl_status (*all_reduce)(void *handle, void *out, const void *in, int64_t count, fl_dtype dtype, fl_reduce reduce);
    fl_status (*all_gather)(void *handle, void *out, const void *in, int64_t count,
                            fl_dtype dtype); /* count: of one member */
    fl_status (*reduce_scatter)(void *handle, void *out, const void *in, int64_t count, fl_dtype dtype,
                                fl_reduce reduce);
    /* All at once; b receives from a as many as a sends to b. */
    fl_status (*exchange)(void *handle, const fl_segment *sent, int sent_count, const fl_segment *received,
                          int received_count);
    /* n elements of every one of ins put together, in their order; as fl_combine_fn. out is none of them. */
    fl_status (*combine)(void *out, const void *const *ins, int count, int64_t n, fl_dtype dtype, fl_reduce reduce);
} fl_device_comm;

#endif
