/*
** kernel_cache.cu -- compiled kernels on disk, in $XDG_CACHE_HOME/flowlua/kernels or ~/.cache/flowlua/kernels.
**
** A file is named by a hash of all that the kernel was made from and carries that text, so a file is either right or is
** not taken. Files appear whole, by a rename. That the cache cannot be read or written is no error.
*/
#include "nvrtc.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

extern "C" {
#include "core/base/hash.h"
}

enum { PATH = 4096, MOST_FILES = 1 << 16 };
static const int64_t LIMIT = 64 << 20,
                     KEPT = 48 << 20; /* bytes of all files, and what is left where that is exceeded */

/* A file: this, the text, the image. */
struct head {
    char magic[16];
    uint64_t text_bytes, image_bytes, image_hash;
};
static const char magic[16] = "flowlua kernel1";

/* ---- places ---- */

/* false: there is no place for it. */
static bool folder(char *path, bool make)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int length = cache && *cache == '/' ? snprintf(path, PATH, "%s/flowlua/kernels", cache)
        : home && *home == '/'          ? snprintf(path, PATH, "%s/.cache/flowlua/kernels", home)
                                        : PATH;
    if (length >= PATH - 64) return false;
    if (!make) return true;
    for (char *at = path + 1; *at; at++) {
        if (*at != '/') continue;
        *at = '\0';
        mkdir(path, 0700);
        *at = '/';
    }
    mkdir(path, 0700);
    return true;
}

static bool file_of(char *path, const char *text, bool make)
{
    size_t bytes = strlen(text);
    if (!folder(path, make)) return false;
    snprintf(path + strlen(path), 64, "/%016llx%016llx", (unsigned long long)fl_hash_bytes(FL_HASH_START, text, bytes),
             (unsigned long long)fl_hash_words(FL_HASH_GOLDEN, text, bytes));
    return true;
}

/* ---- reading ---- */

static bool is_right(const char *data, size_t bytes, const char *text)
{
    struct head head;
    if (bytes < sizeof head) return false;
    memcpy(&head, data, sizeof head);
    if (memcmp(head.magic, magic, sizeof magic) || head.text_bytes != strlen(text)) return false;
    if (head.text_bytes > bytes || head.image_bytes != bytes - sizeof head - head.text_bytes) return false;
    if (bytes - sizeof head < head.text_bytes || memcmp(data + sizeof head, text, head.text_bytes)) return false;
    return fl_hash_bytes(FL_HASH_START, data + sizeof head + head.text_bytes, head.image_bytes) == head.image_hash;
}

/* All bytes of a file that is not larger than the cache. */
static char *read_whole(size_t *bytes, int file)
{
    struct stat about;
    if (fstat(file, &about) || !S_ISREG(about.st_mode) || about.st_size > LIMIT) return NULL;
    char *data = (char *)malloc((size_t)about.st_size + 1);
    size_t done = 0;
    while (data && done < (size_t)about.st_size) {
        ssize_t n = read(file, data + done, (size_t)about.st_size - done);
        if (n <= 0) break;
        done += (size_t)n;
    }
    *bytes = done;
    return data;
}

void *fl_kernel_cache_read(size_t *bytes, const char *text)
{
    char path[PATH];
    size_t whole = 0;
    if (!file_of(path, text, false)) return NULL;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return NULL;
    char *data = read_whole(&whole, file);
    bool right = data && is_right(data, whole, text);
    if (right) futimens(file, NULL); /* the most recently used files are kept */
    close(file);
    if (!right) {
        free(data);
        return NULL;
    }
    size_t before = sizeof(struct head) + strlen(text);
    *bytes = whole - before;
    memmove(data, data + before, *bytes);
    return data;
}

/* ---- writing ---- */

struct kept {
    char name[64];
    int64_t bytes;
    struct timespec used;
};

static int by_age(const void *a, const void *b)
{
    const struct timespec *x = &((const kept *)a)->used, *y = &((const kept *)b)->used;
    if (x->tv_sec != y->tv_sec) return x->tv_sec < y->tv_sec ? -1 : 1;
    return x->tv_nsec < y->tv_nsec ? -1 : x->tv_nsec > y->tv_nsec;
}

/* The files of the folder, in malloc'd memory. */
static kept *list_files(int *count, int64_t *sum, DIR *directory)
{
    kept *files = NULL;
    *count = 0;
    *sum = 0;
    for (struct dirent *e = readdir(directory); e && *count < MOST_FILES; e = readdir(directory)) {
        struct stat about;
        if (strlen(e->d_name) >= sizeof files->name) continue;
        if (fstatat(dirfd(directory), e->d_name, &about, AT_SYMLINK_NOFOLLOW) || !S_ISREG(about.st_mode)) continue;
        if ((*count & (*count - 1)) == 0) {
            kept *more = (kept *)realloc(files, (size_t)(*count ? 2 * *count : 1) * sizeof *files);
            if (!more) break;
            files = more;
        }
        kept *file = &files[(*count)++];
        memcpy(file->name, e->d_name, strlen(e->d_name) + 1);
        file->bytes = about.st_size;
        file->used = about.st_mtim;
        *sum += about.st_size;
    }
    return files;
}

/* Removes what was not used for longest where there is too much. */
static void prune(void)
{
    char path[PATH];
    DIR *directory = folder(path, false) ? opendir(path) : NULL;
    int count;
    int64_t sum;
    if (!directory) return;
    kept *files = list_files(&count, &sum, directory);
    if (sum > LIMIT) {
        qsort(files, (size_t)count, sizeof *files, by_age);
        for (int i = 0; i < count && sum > KEPT; i++) {
            unlinkat(dirfd(directory), files[i].name, 0);
            sum -= files[i].bytes;
        }
    }
    free(files);
    closedir(directory);
}

void fl_kernel_cache_write(const char *text, const void *image, size_t bytes)
{
    char path[PATH], temporary[PATH + 32];
    struct head head;
    if (!file_of(path, text, true)) return;
    memcpy(head.magic, magic, sizeof magic);
    head.text_bytes = strlen(text);
    head.image_bytes = bytes;
    head.image_hash = fl_hash_bytes(FL_HASH_START, image, bytes);
    snprintf(temporary, sizeof temporary, "%s.%ld", path, (long)getpid());
    FILE *file = fopen(temporary, "wb");
    if (!file) return;
    bool written = fwrite(&head, sizeof head, 1, file) == 1 && fwrite(text, head.text_bytes, 1, file) == 1
        && fwrite(image, bytes, 1, file) == 1;
    written = fclose(file) == 0 && written;
    if (!written || rename(temporary, path)) unlink(temporary);
    else prune();
}
