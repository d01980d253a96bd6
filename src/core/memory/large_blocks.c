/*
** large_blocks.c -- see large_blocks.h.
*/
#include "large_blocks.h"

#include <stdio.h>
#include <string.h>

enum { TOP_SITES = 3, MAX_SITES = 32 };

static fl_storage *large_blocks;

void fl_large_link(fl_storage *storage, const char *line)
{
    storage->prev = NULL;
    storage->next = large_blocks;
    if (large_blocks) large_blocks->prev = storage;
    large_blocks = storage;
    size_t length = strlen(line), cut = length < sizeof storage->site ? 0 : length - sizeof storage->site + 1;
    memcpy(storage->site, line + cut, length - cut + 1);
}

void fl_large_unlink(fl_storage *storage)
{
    if (storage->prev) storage->prev->next = storage->next;
    else large_blocks = storage->next;
    if (storage->next) storage->next->prev = storage->prev;
}

struct site {
    char name[32];
    int64_t bytes;
};

/* Adds up the large blocks of a device by the line that asked for them, largest sum first; returns how many sums. */
static int collect_sites(struct site *sites, fl_device_type device, int index)
{
    int count = 0;
    for (const fl_storage *s = large_blocks; s; s = s->next) {
        int i = 0;
        if (s->device != device || (device == FL_CUDA && s->device_index != index)) continue;
        while (i < count && strcmp(sites[i].name, s->site)) i++;
        if (i == MAX_SITES) continue;
        if (i == count) sites[count++] = (struct site){.bytes = 0};
        memcpy(sites[i].name, s->site, sizeof s->site);
        sites[i].bytes += (int64_t)s->bytes;
        for (; i > 0 && sites[i].bytes > sites[i - 1].bytes; i--) {
            struct site moved = sites[i];
            sites[i] = sites[i - 1];
            sites[i - 1] = moved;
        }
    }
    return count;
}

enum { BYTES_TEXT = 32 };
static const char *bytes_text(char *buffer, double bytes)
{
    const char *units[] = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    int unit = 0;
    while (bytes >= 1024 && unit < 6) bytes /= 1024, unit++;
    snprintf(buffer, BYTES_TEXT, unit ? "%.1f %s" : "%.0f %s", bytes, units[unit]);
    return buffer;
}

/* "; most by train.lua:41 (4.0 GiB), ..." */
enum { MOST_TEXT = 256 };
static const char *most_text(char *buffer, fl_device_type device, int index)
{
    char sum[BYTES_TEXT];
    struct site sites[MAX_SITES];
    int count = collect_sites(sites, device, index), length = 0;
    buffer[0] = '\0';
    for (int i = 0; i < count && i < TOP_SITES; i++)
        length += snprintf(buffer + length, (size_t)(MOST_TEXT - length), "%s%s (%s)", i ? ", " : "; most by ",
                           sites[i].name[0] ? sites[i].name : "the program", bytes_text(sum, (double)sites[i].bytes));
    return buffer;
}

fl_status fl_memory_error(size_t bytes, int64_t live_blocks)
{
    char asked[BYTES_TEXT], live[BYTES_TEXT], most[MOST_TEXT];
    return fl_fail(FL_ERR_MEMORY, "out of memory: %s asked for, %s live in %lld blocks%s",
                   bytes_text(asked, (double)bytes), bytes_text(live, (double)fl_storage_live), (long long)live_blocks,
                   most_text(most, FL_CPU, 0));
}

fl_status fl_device_memory_error(fl_device_type device, int index)
{
    char text[512], most[MOST_TEXT];
    snprintf(text, sizeof text, "%s", fl_message());
    return fl_fail(FL_ERR_MEMORY, "%s%s", text, most_text(most, device, index));
}
