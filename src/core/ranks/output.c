/*
** output.c -- what the ranks of a job print, whole line by whole line.
**
** mpirun gives each rank a pseudo terminal for its output and a pipe for its errors, reads 4096 bytes from each that
** has some, and passes them on as they come: lines that are longer, or lie across such a border, have those of other
** ranks in their midst. So all ranks write to what rank 0 was given, from which everything comes out in the order in
** which it went in. A write to a terminal is not interrupted by others; to a pipe it is, beyond PIPE_BUF, and so takes
** a lock.
**
** Errors keep a way of their own even where both end in one file (2>&1) and may break a long line there: mpirun ends a
** job that fails without reading what is left of a long output. A rank keeps what mpirun gave it open: Open MPI takes a
** rank whose streams are closed for one that has ended.
*/
#define _GNU_SOURCE
#include "output.h"
#include "launch.h"
#include "shared.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

enum { PATH_TEXT = 64, WORDS_BYTES = 1 << 16 };

/* ---- the options of mpirun ---- */

/* The words of a process's command line, each with its NUL; their bytes, 0 when it cannot be read. */
static size_t read_words(char *words, int pid)
{
    char path[PATH_TEXT];
    snprintf(path, sizeof path, "/proc/%d/cmdline", pid);
    FILE *file = fopen(path, "r");
    if (!file) return 0;
    size_t n = fread(words, 1, WORDS_BYTES - 1, file);
    fclose(file);
    words[n] = '\0';
    return n;
}

static bool is_mpirun(const char *program)
{
    static const char *const names[] = {"mpirun", "mpiexec", "orterun", "prterun"};
    const char *slash = strrchr(program, '/'), *name = slash ? slash + 1 : program;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strncmp(name, names[i], strlen(names[i])) == 0) return true;
    return false;
}

/* --tag-output, --output-filename, --output tag, -xml, --xterm, orte_timestamp_output: rank 0's mark on all lines,
** or all of them in its file, would be wrong. */
static bool tells_ranks_apart(const char *option)
{
    return strstr(option, "output") || strstr(option, "xml") || strstr(option, "xterm");
}

static bool environment_tells_apart(void)
{
    for (char **at = environ; *at; at++) {
        char name[128];
        bool ours = strncmp(*at, "OMPI_MCA_orte_", 14) == 0 || strncmp(*at, "PRTE_MCA_", 9) == 0;
        snprintf(name, sizeof name, "%.*s", (int)strcspn(*at, "="), *at);
        if (ours && tells_ranks_apart(name)) return true;
    }
    return false;
}

/* True if that process is an mpirun that passes the ranks' output on unchanged. Its options end where the program
** begins. */
static bool passes_plainly(int pid)
{
    char *words = malloc(2 * WORDS_BYTES), *mine = words + WORDS_BYTES;
    size_t n = words && read_words(mine, (int)getpid()) ? read_words(words, pid) : 0;
    bool plainly = n > 0 && is_mpirun(words) && !environment_tells_apart();
    for (size_t at = n ? strlen(words) + 1 : 0; at < n && plainly && strcmp(words + at, mine) != 0;
         at += strlen(words + at) + 1) {
        const char *word = words + at;
        bool option = word[0] == '-' || strncmp(word, "orte_", 5) == 0 || strncmp(word, "prte_", 5) == 0;
        plainly = !(option && tells_ranks_apart(word));
    }
    free(words);
    return plainly;
}

/* ---- the target of a descriptor ---- */

/* Number of the pseudo terminal whose far end is that descriptor of a process, -1: it is none. */
static int far_end(int pid, const char *descriptor)
{
    char path[PATH_TEXT], line[128], target[PATH_TEXT] = "";
    int number = -1;
    snprintf(path, sizeof path, "/proc/%d/fd/%.10s", pid, descriptor);
    ssize_t n = readlink(path, target, sizeof target - 1);
    if (n < 4 || strcmp(target + n - 4, "ptmx") != 0) return -1;
    snprintf(path, sizeof path, "/proc/%d/fdinfo/%.10s", pid, descriptor);
    FILE *file = fopen(path, "r");
    while (file && number < 0 && fgets(line, sizeof line, file)) sscanf(line, "tty-index: %d", &number);
    if (file) fclose(file);
    return number;
}

static bool same_file(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

/* True if the process holds the other end of that pseudo terminal or pipe. */
static bool holds_other_end(int pid, const struct stat *pipe)
{
    char path[PATH_TEXT];
    struct stat theirs;
    snprintf(path, sizeof path, "/proc/%d/fd", pid);
    DIR *folder = S_ISCHR(pipe->st_mode) || S_ISFIFO(pipe->st_mode) ? opendir(path) : NULL;
    bool found = false;
    for (struct dirent *entry; folder && !found && (entry = readdir(folder));) {
        if (S_ISCHR(pipe->st_mode)) found = far_end(pid, entry->d_name) == (int)minor(pipe->st_rdev);
        else found = fstatat(dirfd(folder), entry->d_name, &theirs, 0) == 0 && same_file(pipe, &theirs);
    }
    if (folder) closedir(folder);
    return found;
}

static bool look_at(struct stat *out, int pid, int descriptor)
{
    char path[PATH_TEXT];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", pid, descriptor);
    return stat(path, out) == 0;
}

/* True if that descriptor of a rank is still the launcher's. */
static bool is_given(int launcher, int pid, int descriptor)
{
    struct stat s;
    return look_at(&s, pid, descriptor) && holds_other_end(launcher, &s);
}

/* ---- joining ---- */

/* Redirects the descriptor to the file that process `first` writes. */
static bool redirect(int descriptor, int first)
{
    char path[PATH_TEXT];
    if (first == (int)getpid()) return true;
    snprintf(path, sizeof path, "/proc/%d/fd/%d", first, descriptor);
    int file = open(path, O_WRONLY | O_NOCTTY | O_CLOEXEC);
    bool good = file >= 0 && fcntl(descriptor, F_DUPFD_CLOEXEC, STDERR_FILENO + 1) >= 0 && dup2(file, descriptor) >= 0;
    if (file >= 0) close(file);
    return good;
}

static ssize_t write_locked(void *context, const char *text, size_t size)
{
    size_t done = 0;
    bool locked = fl_shared_lock();
    while (done < size) {
        ssize_t n = write((int)(intptr_t)context, text + done, size - done);
        if (n < 0 && errno != EINTR) break;
        if (n > 0) done += (size_t)n;
    }
    int why = errno;
    if (locked) fl_shared_unlock();
    errno = why;
    return done == size ? (ssize_t)size : 0;
}

/* Each line of output, and each write of errors, goes in one piece. */
static void keep_whole(int descriptor)
{
    static char line[FL_OUTPUT_LINE];
    FILE **stream = descriptor == STDOUT_FILENO ? &stdout : &stderr, *locked = NULL;
    if (!isatty(descriptor))
        locked = fopencookie((void *)(intptr_t)descriptor, "w", (cookie_io_functions_t){.write = write_locked});
    if (locked) *stream = locked;
    if (descriptor == STDOUT_FILENO) setvbuf(stdout, line, _IOLBF, sizeof line);
    else setvbuf(stderr, NULL, _IONBF, 0);
}

void fl_output_join(int first)
{
    int launcher = fl_launcher();
    if (!passes_plainly(launcher)) return;
    for (int descriptor = STDOUT_FILENO; descriptor <= STDERR_FILENO; descriptor++) {
        bool given = is_given(launcher, first, descriptor) && is_given(launcher, (int)getpid(), descriptor);
        if (given && redirect(descriptor, first)) keep_whole(descriptor);
    }
}
