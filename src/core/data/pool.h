/*
** pool.h -- threads that share the items of a batch.
**
** One process has one pool, which grows to what jobs ask for; jobs of several lanes share it. The team of the engine
** (team.h) is for short loops inside kernels and spins; items may take seconds and read files, so the threads of the
** pool sleep.
*/
#ifndef FL_POOL_H
#define FL_POOL_H

#include "base/status.h"
#include "engine/var.h"

#include <stdint.h>

enum { FL_POOL_MOST = 256 };

/* Threads for a job whose caller asked for `wanted`; 0: one per core, the default everywhere. At most FL_POOL_MOST. */
int fl_pool_workers(int wanted);

/* Work on one item. seat: from 0 to workers - 1; no two threads have the same one at the same time, so it numbers
** buffers. */
typedef fl_status (*fl_pool_body)(void *context, int64_t item, int seat);

/* Runs body for the items 0 to count - 1, begun in this order, on up to `workers` threads, of which the caller is one.
** Returns when all are done. After an error no further item is begun, and the result is the error of the first item,
** by number, that failed: always the same. Cancelled with FL_ERR_STATE when the engine stops (engine.h). */
fl_status fl_pool_run(int64_t count, int workers, fl_pool_body body, void *context);

/* A task of the engine that fills a batch; its function calls fl_pool_run. Such tasks have a lane of their own: batches
** are made one after the other, each by all workers, while the script goes on. An error is raised where the batch is
** used: of a batch that nobody uses it is no news, unless it was given to the script (fl_var_give). `payload` is
** copied. */
typedef struct fl_pool_task {
    const char *name; /* a constant: the first word of messages */
    fl_status (*run)(void *payload);
    const void *payload;
    size_t payload_size;
    fl_var *const *reads;
    fl_var *const *writes;
    int read_count, write_count; /* a variable is in one of the two lists, once */
} fl_pool_task;
fl_status fl_pool_push(const fl_pool_task *task);

/* That lane, for tasks that fl_pool_push does not make. */
fl_status fl_pool_lane(int *lane);

/* Ends them, after the engine (fl_engine_stop): no job may be there. The next job starts others. */
void fl_pool_stop(void);

#endif
