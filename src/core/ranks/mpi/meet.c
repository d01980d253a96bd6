/*
** meet.c -- meetings of members that do not share memory: each sends to all others.
**
** A packet is the used part of an entry with its data. Every member sends its own to all others, so each of them finds
** by itself which members are missing. One that stops waiting sends its error to all others: those that wait stop with
** the same text at once, one that enters late stops with it too.
*/
#include "internal.h"

#include <stdlib.h>
#include <string.h>

/* The head of a packet; then dims, name, where, error and data. */
struct packet {
    uint64_t sequence, fingerprint, tag, drawn, past;
    fl_nd_sbp from, to;
    uint32_t flags, bytes;
    int8_t ndim;
    uint8_t dtype, name, where; /* lengths of the texts */
    uint16_t error;
    uint16_t unused;
};

struct note {
    int32_t status;
    char message[1020];
};

enum {
    PACKET_BYTES = (sizeof(struct packet) + sizeof(int64_t) * FL_MAX_NDIM + FL_COLLECTIVE_NAME + FL_WHERE_TEXT
                    + FL_ERROR_TEXT + FL_EAGER_BYTES + 63)
        & ~63,
    STEPS_PER_PROBE = 64
};

static unsigned char *packet_of(const fl_mpi_group *mpi_group, int i)
{
    return mpi_group->packets + (size_t)i * PACKET_BYTES;
}

/* ---- packets ---- */

static unsigned char *append(unsigned char *at, const void *bytes, size_t n)
{
    if (n) memcpy(at, bytes, n);
    return at + n;
}

static const unsigned char *take(void *out, const unsigned char *at, size_t n)
{
    if (n) memcpy(out, at, n);
    return at + n;
}

static size_t dims_size(int ndim) { return ndim > 0 ? sizeof(int64_t) * (size_t)ndim : 0; }

static int write_packet(unsigned char *at, const fl_entry *entry, const void *data)
{
    struct packet l = {.sequence = entry->sequence,
                       .fingerprint = entry->fingerprint,
                       .tag = entry->tag,
                       .drawn = entry->drawn,
                       .past = entry->past,
                       .from = entry->collective.from,
                       .to = entry->collective.to,
                       .flags = entry->flags,
                       .bytes = entry->bytes,
                       .ndim = (int8_t)entry->collective.shape.ndim,
                       .dtype = entry->collective.dtype,
                       .name = (uint8_t)strnlen(entry->collective.name, FL_COLLECTIVE_NAME - 1),
                       .where = (uint8_t)strnlen(entry->collective.where, FL_WHERE_TEXT - 1),
                       .error = (uint16_t)strnlen(entry->error, FL_ERROR_TEXT - 1)};
    unsigned char *end = append(at, &l, sizeof l);
    end = append(end, entry->collective.shape.dims, dims_size(l.ndim));
    end = append(end, entry->collective.name, l.name);
    end = append(end, entry->collective.where, l.where);
    end = append(end, entry->error, l.error);
    end = append(end, data, l.bytes);
    return (int)(end - at);
}

/* false: it was not written by this version of the program. */
static bool read_packet(fl_entry *entry, void *data, const unsigned char *at, int size)
{
    struct packet l;
    if (size < (int)sizeof l) return false;
    at = take(&l, at, sizeof l);
    size_t want = sizeof l + dims_size(l.ndim) + l.name + l.where + l.error + l.bytes;
    if (want != (size_t)size || l.ndim > FL_MAX_NDIM || l.name >= FL_COLLECTIVE_NAME || l.where >= FL_WHERE_TEXT
        || l.error >= FL_ERROR_TEXT || l.bytes > FL_EAGER_BYTES)
        return false;
    memset(entry, 0, sizeof *entry);
    entry->sequence = l.sequence;
    entry->fingerprint = l.fingerprint;
    entry->tag = l.tag;
    entry->drawn = l.drawn;
    entry->past = l.past;
    entry->flags = l.flags;
    entry->bytes = l.bytes;
    entry->in = entry->out = FL_PRIVATE;
    entry->collective.from = l.from;
    entry->collective.to = l.to;
    entry->collective.dtype = l.dtype;
    entry->collective.shape.ndim = l.ndim;
    at = take(entry->collective.shape.dims, at, dims_size(l.ndim));
    at = take(entry->collective.name, at, l.name);
    at = take(entry->collective.where, at, l.where);
    at = take(entry->error, at, l.error);
    take(data, at, l.bytes);
    return true;
}

/* ---- notes ---- */

/* This rank stops waiting with this thread's error, which is sent to all others. The note is never freed. */
static void send_notes(const fl_group *group, const fl_mpi_group *mpi_group, fl_status status)
{
    struct note *n = calloc(1, sizeof *n);
    if (!n) return;
    n->status = status;
    strncpy(n->message, fl_message(), sizeof n->message - 1);
    for (int i = 0; i < group->count; i++) {
        MPI_Request request;
        if (i == group->me
            || MPI_Isend(n, sizeof *n, MPI_BYTE, group->ranks[i], mpi_group->tag + 1, fl_mpi_messages, &request)
                != MPI_SUCCESS)
            continue;
        MPI_Request_free(&request);
    }
}

/* FL_OK, or the error of a member that has stopped waiting. MPI reads what has come after it has looked: a second look
** finds what came before the first. */
static fl_status look_for_notes(const fl_mpi_group *mpi_group)
{
    int there = 0;
    MPI_Status from;
    struct note n;
    for (int i = 0; i < 2 && !there; i++)
        MPI_TRY(MPI_Iprobe, (MPI_ANY_SOURCE, mpi_group->tag + 1, fl_mpi_messages, &there, &from));
    if (!there) return FL_OK;
    MPI_TRY(MPI_Recv,
            (&n, sizeof n, MPI_BYTE, from.MPI_SOURCE, mpi_group->tag + 1, fl_mpi_messages, MPI_STATUS_IGNORE));
    return fl_fail((fl_status)n.status, "%s", n.message);
}

/* ---- meeting ---- */

static fl_status prepare(fl_group *group, fl_mpi_group *mpi_group)
{
    if (mpi_group->packets) return FL_OK;
    if (!mpi_group->requests) mpi_group->requests = malloc(2 * (size_t)group->count * sizeof *mpi_group->requests);
    unsigned char *packets = malloc((size_t)group->count * PACKET_BYTES);
    if (!mpi_group->requests || !packets) {
        free(packets);
        return fl_fail(FL_ERR_MEMORY, "mpi: out of memory for the packets of %d ranks", group->count);
    }
    mpi_group->packets = packets;
    return FL_OK;
}

static fl_status expect_packet(const fl_group *group, fl_mpi_group *mpi_group, int i)
{
    MPI_TRY(MPI_Irecv,
            (packet_of(mpi_group, i), PACKET_BYTES, MPI_BYTE, group->ranks[i], mpi_group->tag, fl_mpi_messages,
             &mpi_group->requests[i]));
    return FL_OK;
}

static fl_status post_packets(fl_group *group, fl_mpi_group *mpi_group, const fl_entry *mine, const void *data)
{
    int size = write_packet(packet_of(mpi_group, group->me), mine, data);
    for (int i = 0; i < 2 * group->count; i++) mpi_group->requests[i] = MPI_REQUEST_NULL;
    for (int i = 0; i < group->count; i++) {
        group->entries[i].sequence = 0; /* not come yet */
        if (i != group->me) FL_TRY(expect_packet(group, mpi_group, i));
    }
    for (int k = 1; k < group->count; k++) { /* each member begins with another one */
        int i = (group->me + k) % group->count;
        MPI_TRY(MPI_Isend,
                (packet_of(mpi_group, group->me), size, MPI_BYTE, group->ranks[i], mpi_group->tag, fl_mpi_messages,
                 &mpi_group->requests[group->count + i]));
    }
    group->entries[group->me] = *mine;
    if (mine->bytes) memcpy(group->data + (size_t)group->me * FL_EAGER_BYTES, data, mine->bytes);
    return FL_OK;
}

/* Reads the packets that have come; *left: number of those that have not. A packet of a meeting that failed before all
** groups were reset is dropped. */
static fl_status read_packets(fl_group *group, fl_mpi_group *mpi_group, int *left)
{
    *left = 0;
    for (int i = 0; i < group->count; i++) {
        MPI_Status status;
        int here, size;
        if (group->entries[i].sequence) continue;
        MPI_TRY(MPI_Test, (&mpi_group->requests[i], &here, &status));
        *left += !here;
        if (!here) continue;
        MPI_TRY(MPI_Get_count, (&status, MPI_BYTE, &size));
        if (!read_packet(&group->entries[i], group->data + (size_t)i * FL_EAGER_BYTES, packet_of(mpi_group, i), size))
            return fl_fail(FL_ERR_COMM, "mpi: rank %d runs another version of flowlua", group->ranks[i]);
        if (group->entries[i].sequence > group->begun) continue;
        group->entries[i].sequence = 0;
        FL_TRY(expect_packet(group, mpi_group, i));
        ++*left;
    }
    return FL_OK;
}

static bool is_missing(const fl_group *group, int i) { return group->entries[i].sequence == 0; }

static fl_status await_packets(fl_group *group, fl_mpi_group *mpi_group, unsigned flags)
{
    fl_wait wait = {.group = group, .flags = flags, .missing = is_missing};
    int left;
    for (unsigned step = 1;; step++) {
        FL_TRY(read_packets(group, mpi_group, &left));
        if (left == 0 || step % STEPS_PER_PROBE == 0) FL_TRY(look_for_notes(mpi_group));
        if (left == 0) return FL_OK;
        fl_status status = fl_wait_step(&wait);
        if (status == FL_OK) continue;
        send_notes(group, mpi_group, status);
        return status;
    }
}

fl_status fl_mpi_meet(fl_group *group, const fl_entry *mine, const void *data, size_t bytes, unsigned flags)
{
    fl_mpi_group *h;
    FL_TRY(fl_mpi_usable());
    FL_TRY(fl_mpi_handle(&h, group));
    FL_TRY(prepare(group, h));
    FL_TRY(post_packets(group, h, mine, data));
    FL_TRY(await_packets(group, h, flags));
    return fl_mpi_wait(group, h->requests + group->count, group->count);
}

/* ---- reset ---- */

/* Letters that were never read are still under way, so their memory stays theirs. */
static void abandon_packets(fl_mpi_group *mpi_group, int members)
{
    bool sending = false;
    for (int i = 0; i < 2 * members; i++) {
        MPI_Request *r = &mpi_group->requests[i];
        int done = 1;
        if (*r != MPI_REQUEST_NULL) MPI_Test(r, &done, MPI_STATUS_IGNORE);
        if (done) continue;
        if (i < members) {
            MPI_Cancel(r);
            MPI_Wait(r, MPI_STATUS_IGNORE);
        } else {
            MPI_Request_free(r);
            sending = true;
        }
    }
    if (sending) mpi_group->packets = NULL;
}

void fl_mpi_reset(fl_group *group)
{
    fl_mpi_group *h = group->handle;
    if (!h || !h->packets) return;
    abandon_packets(h, group->count);
    while (look_for_notes(h) != FL_OK) continue;
}
