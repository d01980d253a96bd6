/*
** scratch.c -- buffers of a thread: kept from call to call, freed when the thread ends.
*/
#include "scratch.h"
#include "blocks.h"
#include "base/status.h"

#include <pthread.h>

struct scratch {
    void *data;
    int size_class;
};

static _Thread_local struct scratch buffers[FL_SCRATCH_SLOTS];
static pthread_key_t scratch_key;
static pthread_once_t scratch_once = PTHREAD_ONCE_INIT;

static void scratch_free(void *own)
{
    struct scratch *list = own;
    for (int i = 0; i < FL_SCRATCH_SLOTS; i++) {
        if (list[i].data) fl_block_release(list[i].data, list[i].size_class);
        list[i] = (struct scratch){NULL, 0};
    }
}

static void scratch_key_new(void) { pthread_key_create(&scratch_key, scratch_free); }

void *fl_scratch(int slot, size_t bytes)
{
    struct scratch *s = &buffers[slot];
    if (bytes > FL_BLOCK_MAX) return NULL;
    int c = fl_block_class(bytes ? bytes : 1);
    if (FL_LIKELY(s->data && s->size_class >= c)) return s->data;
    pthread_once(&scratch_once, scratch_key_new);
    pthread_setspecific(scratch_key, buffers); /* frees them when the thread ends */
    if (s->data) fl_block_release(s->data, s->size_class);
    *s = (struct scratch){fl_block_new(c), c};
    return s->data;
}

void fl_scratch_release(void) { scratch_free(buffers); }
