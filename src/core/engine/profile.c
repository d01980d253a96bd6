/*
** profile.c -- the newest 65,536 ops with their times, written as a Chrome trace.
**
** chrome://tracing and ui.perfetto.dev show the file. Ranks add to one file, in which a rank is a process; times are
** those of the host's clock, the same for all of them; ops of a device are shown when the device ran them. Lanes'
** threads record too, so a lock guards the ring: it costs some 20 ns, only while profiling.
*/
#include "engine_internal.h"
#include "base/locale.h"
#include "value/placement.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

enum { PROFILE_ENTRIES = 1 << 16 };

struct entry {
    const char *name;
    char *own; /* owned: in the place of name, then after its end the steps, or "" ; NULL: name holds */
    char line[FL_LINE_TEXT];
    int lane;
    uint64_t pushed, started, ended; /* ns */
};

bool fl_engine_profiling;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct entry *entries; /* owned; NULL while off */
static uint64_t recorded;

/* Takes entry->own over. */
static void add(const struct entry *entry)
{
    pthread_mutex_lock(&lock);
    if (entries) {
        struct entry *e = &entries[recorded++ % PROFILE_ENTRIES];
        if (recorded > PROFILE_ENTRIES) free(e->own);
        *e = *entry;
    } else free(entry->own);
    pthread_mutex_unlock(&lock);
}

void fl_profile_add(const char *name, const char *line, int lane, uint64_t pushed, uint64_t started, uint64_t ended)
{
    struct entry e = {.name = name, .lane = lane, .pushed = pushed, .started = started, .ended = ended};
    snprintf(e.line, sizeof e.line, "%s", line);
    add(&e);
}

void fl_engine_profile_pass(const char *name, const char *line, const char *steps, uint64_t started)
{
    struct entry e = {.name = "fused", .lane = FL_LANE_CPU, .pushed = started, .started = started, .ended = fl_now()};
    size_t length = strlen(name) + 1;
    if (line) snprintf(e.line, sizeof e.line, "%s", line);
    else if (fl_engine_where) fl_engine_where(e.line, sizeof e.line);
    if (!steps) steps = "";
    e.own = malloc(length + strlen(steps) + 1);
    if (e.own) {
        memcpy(e.own, name, length);
        memcpy(e.own + length, steps, strlen(steps) + 1);
    }
    add(&e);
}

/* With the lock held. */
static void forget(void)
{
    uint64_t count = recorded < PROFILE_ENTRIES ? recorded : PROFILE_ENTRIES;
    for (uint64_t i = 0; i < count; i++) free(entries[i].own);
    free(entries);
}

fl_status fl_engine_profile_start(void)
{
    fl_status status = FL_OK;
    fl_engine_compute_deferred();
    pthread_mutex_lock(&lock);
    if (!entries) entries = malloc(PROFILE_ENTRIES * sizeof *entries);
    if (!entries) status = fl_fail(FL_ERR_MEMORY, "profile: out of memory for %d entries", PROFILE_ENTRIES);
    recorded = 0;
    pthread_mutex_unlock(&lock);
    if (status == FL_OK) fl_engine_profiling = true;
    fl_engine_update_direct();
    return status;
}

/* A JSON string. */
static void write_string(FILE *stream, const char *text)
{
    putc('"', stream);
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\') fprintf(stream, "\\%c", c);
        else if (c < 0x20 || c == 0x7f) fprintf(stream, "\\u%04x", c);
        else putc(c, stream);
    }
    putc('"', stream);
}

static double microseconds(uint64_t time) { return (double)time / 1e3; }

static void write_entry(FILE *stream, const struct entry *entry)
{
    fprintf(stream, ",\n{\"ph\":\"X\",\"pid\":%d,\"name\":", fl_world_get()->rank);
    write_string(stream, entry->own ? entry->own : entry->name);
    fprintf(stream, ",\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f,\"args\":{\"line\":", entry->lane,
            microseconds(entry->started), (double)(entry->ended - entry->started) / 1e3);
    write_string(stream, entry->line);
    const char *steps = entry->own ? entry->own + strlen(entry->own) + 1 : "";
    if (*steps) {
        fputs(",\"steps\":", stream);
        write_string(stream, steps);
    }
    fprintf(stream, ",\"waited\":%.3f}}", (double)(entry->started - entry->pushed) / 1e3);
}

static void write_names(FILE *stream)
{
    int rank = fl_world_get()->rank;
    fprintf(stream, "{\"ph\":\"M\",\"pid\":%d,\"name\":\"process_name\",\"args\":{\"name\":\"rank %d\"}}", rank, rank);
    for (int i = 0; i < fl_lane_count; i++) {
        fprintf(stream, ",\n{\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"name\":\"thread_name\",\"args\":{\"name\":", rank, i);
        write_string(stream, fl_lanes[i].name);
        fputs("}}", stream);
    }
}

/* After what other ranks have written, whose end is moved: the file is whole after each of them. */
static void write_trace(FILE *stream)
{
    static const char head[] = "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n", end[] = "\n]}\n";
    bool first_rank = fseek(stream, 1 - (long)sizeof end, SEEK_END) != 0;
    fputs(first_rank ? head : ",\n", stream);
    write_names(stream);
    locale_t before = uselocale(fl_locale_plain());
    uint64_t first = recorded > PROFILE_ENTRIES ? recorded - PROFILE_ENTRIES : 0;
    for (uint64_t i = first; i < recorded; i++) write_entry(stream, &entries[i % PROFILE_ENTRIES]);
    uselocale(before);
    fputs(end, stream);
}

/* Opened for this process alone until it is closed. */
static FILE *open_locked(const char *path)
{
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (file < 0) return NULL;
    FILE *f = flock(file, LOCK_EX) == 0 ? fdopen(file, "r+") : NULL;
    if (!f) close(file);
    return f;
}

/* Adds to a file and reports a full disk. */
static fl_status add_to_file(const char *path)
{
    FILE *f = open_locked(path);
    if (!f) return fl_fail(FL_ERR_IO, "profile: cannot write '%s': %s", path, strerror(errno));
    write_trace(f);
    int broken = ferror(f), error = errno;
    if (fclose(f) != 0 && !broken) broken = 1, error = errno;
    if (broken) return fl_fail(FL_ERR_IO, "profile: cannot write '%s': %s", path, strerror(error));
    return FL_OK;
}

/* The file is empty at first or holds what other ranks have added. */
fl_status fl_engine_profile_dump(const char *path)
{
    if (!fl_engine_profiling) return fl_fail(FL_ERR_STATE, "profile: it was not started");
    FL_TRY(fl_engine_wait_lanes());
    for (int i = 0; i < fl_lane_count; i++)
        if (fl_lanes[i].stream) fl_stream_times(&fl_lanes[i]);
    pthread_mutex_lock(&lock);
    fl_status status = add_to_file(path);
    if (status == FL_OK) { /* else another path may be tried */
        forget();
        entries = NULL;
        fl_engine_profiling = false;
    }
    fl_engine_update_direct();
    pthread_mutex_unlock(&lock);
    return status;
}
