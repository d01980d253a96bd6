/*
** nccl_abi.h -- the part of NCCL's interface that is used, as it has been since version 2.14.
**
** Declared here because the library is opened at run time: neither it nor its header need be there when this is built.
*/
#ifndef FL_NCCL_ABI_H
#define FL_NCCL_ABI_H

#include <cuda_runtime_api.h>
#include <limits.h>
#include <stddef.h>

enum {
    FL_NCCL_SUCCESS = 0,
    FL_NCCL_INVALID_ARGUMENT = 4,
    FL_NCCL_INVALID_USAGE = 5,
    FL_NCCL_REMOTE_ERROR = 6,
    FL_NCCL_IN_PROGRESS = 7
};
enum {
    FL_NCCL_INT8,
    FL_NCCL_UINT8,
    FL_NCCL_INT32,
    FL_NCCL_UINT32,
    FL_NCCL_INT64,
    FL_NCCL_UINT64,
    FL_NCCL_FLOAT16,
    FL_NCCL_FLOAT32,
    FL_NCCL_FLOAT64,
    FL_NCCL_BFLOAT16
};
enum { FL_NCCL_SUM, FL_NCCL_PROD, FL_NCCL_MAX, FL_NCCL_MIN };

typedef struct fl_nccl_comm fl_nccl_comm; /* opaque */
typedef struct fl_nccl_id {
    char bytes[128];
} fl_nccl_id;

/* As of version 2.14, which all later ones take. */
typedef struct fl_nccl_config {
    size_t size;
    unsigned magic, version;
    int blocking; /* 0: calls return at once; their result is queried later */
    int unset;    /* fills bytes that later versions read as a field */
} fl_nccl_config;
#define FL_NCCL_CONFIG                                        \
    {                                                         \
        sizeof(fl_nccl_config), 0xcafebeef, 21400, 0, INT_MIN \
    }

/* X(function, parameters); all return a result but GetErrorString. */
/* clang-format off */
#define FL_NCCL_FUNCTIONS(X) \
    X(GetVersion, (int *version)) \
    X(GetUniqueId, (fl_nccl_id *id)) \
    X(CommInitRankConfig, (fl_nccl_comm **comm, int count, fl_nccl_id id, int rank, fl_nccl_config *config)) \
    X(CommAbort, (fl_nccl_comm *comm)) \
    X(CommGetAsyncError, (fl_nccl_comm *comm, int *result)) \
    X(AllReduce, (const void *in, void *out, size_t count, int type, int op, fl_nccl_comm *comm, cudaStream_t stream)) \
    X(AllGather, (const void *in, void *out, size_t count, int type, fl_nccl_comm *comm, cudaStream_t stream)) \
    X(ReduceScatter, \
      (const void *in, void *out, size_t count, int type, int op, fl_nccl_comm *comm, cudaStream_t stream)) \
    X(Send, (const void *in, size_t count, int type, int peer, fl_nccl_comm *comm, cudaStream_t stream)) \
    X(Recv, (void *out, size_t count, int type, int peer, fl_nccl_comm *comm, cudaStream_t stream)) \
    X(GroupStart, (void)) \
    X(GroupEnd, (void))
/* clang-format on */

#endif
