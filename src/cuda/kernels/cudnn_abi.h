/*
** cudnn_abi.h -- the part of cuDNN's interface that cudnn.cu calls by name, as it is in all versions 9.
**
** Declared here because the library is opened at run time: neither it nor its headers need be there when this is built.
*/
#ifndef FL_CUDNN_ABI_H
#define FL_CUDNN_ABI_H

#include <cuda_runtime_api.h>
#include <stddef.h>

/* A status: SUCCESS, or a code whose thousands are the kind of failure. */
enum { FL_CUDNN_SUCCESS = 0, FL_CUDNN_KINDS = 1000, FL_CUDNN_BAD_PARAM = 2, FL_CUDNN_NOT_SUPPORTED = 3 };

enum { FL_CUDNN_FLOAT32 = 0, FL_CUDNN_FLOAT64 = 1, FL_CUDNN_FLOAT16 = 2, FL_CUDNN_BFLOAT16 = 9 };

/* Of float32 DEFAULT may round operands to TF32, FMA does not. TENSOR_OP is for operands of 16 bits. */
enum { FL_CUDNN_DEFAULT_MATH = 0, FL_CUDNN_TENSOR_OP_MATH = 1, FL_CUDNN_FMA_MATH = 3 };

enum { FL_CUDNN_NCHW = 0, FL_CUDNN_NHWC = 1, FL_CUDNN_CROSS_CORRELATION = 1, FL_CUDNN_DETERMINISTIC = 1 };

/* Algorithms that sum products. Others transform tiles of the image, by Winograd's way or Fourier's. */
enum {
    FL_CUDNN_FORWARD_IMPLICIT_GEMM = 0,
    FL_CUDNN_FORWARD_IMPLICIT_PRECOMP_GEMM = 1,
    FL_CUDNN_FORWARD_GEMM = 2,
    FL_CUDNN_FORWARD_DIRECT = 3,
    FL_CUDNN_BACKWARD_DATA_1 = 1,
    FL_CUDNN_BACKWARD_FILTER_1 = 1
};

/* Opaque. */
typedef struct fl_cudnn_handle fl_cudnn_handle;
typedef struct fl_cudnn_tensor fl_cudnn_tensor;
typedef struct fl_cudnn_filter fl_cudnn_filter;
typedef struct fl_cudnn_window fl_cudnn_window;

/* Performance of an algorithm, of forward or of either gradient. */
typedef struct fl_cudnn_perf {
    int algorithm, status;
    float time;
    size_t memory;
    int determinism, math, reserved[3];
} fl_cudnn_perf;

/* X(function, parameters); all return a status. */
/* clang-format off */
#define FL_CUDNN_FUNCTIONS(X) \
    X(Create, (fl_cudnn_handle **handle)) \
    X(SetStream, (fl_cudnn_handle *handle, cudaStream_t stream)) \
    X(CreateTensorDescriptor, (fl_cudnn_tensor **tensor)) \
    X(SetTensorNdDescriptor, (fl_cudnn_tensor *tensor, int type, int ndim, const int *size, const int *stride)) \
    X(DestroyTensorDescriptor, (fl_cudnn_tensor *tensor)) \
    X(CreateFilterDescriptor, (fl_cudnn_filter **filter)) \
    X(SetFilterNdDescriptor, (fl_cudnn_filter *filter, int type, int format, int ndim, const int *size)) \
    X(DestroyFilterDescriptor, (fl_cudnn_filter *filter)) \
    X(CreateConvolutionDescriptor, (fl_cudnn_window **window)) \
    X(SetConvolutionNdDescriptor, \
      (fl_cudnn_window *window, int axes, const int *padding, const int *stride, const int *dilation, int mode, \
       int compute_type)) \
    X(SetConvolutionGroupCount, (fl_cudnn_window *window, int groups)) \
    X(SetConvolutionMathType, (fl_cudnn_window *window, int math)) \
    X(DestroyConvolutionDescriptor, (fl_cudnn_window *window)) \
    X(GetConvolutionForwardAlgorithm_v7, \
      (fl_cudnn_handle *handle, fl_cudnn_tensor *x, fl_cudnn_filter *w, fl_cudnn_window *window, fl_cudnn_tensor *y, \
       int room, int *count, fl_cudnn_perf *results)) \
    X(GetConvolutionForwardWorkspaceSize, \
      (fl_cudnn_handle *handle, fl_cudnn_tensor *x, fl_cudnn_filter *w, fl_cudnn_window *window, fl_cudnn_tensor *y, \
       int algorithm, size_t *bytes)) \
    X(ConvolutionForward, \
      (fl_cudnn_handle *handle, const void *alpha, fl_cudnn_tensor *x, const void *x_data, fl_cudnn_filter *w, \
       const void *w_data, fl_cudnn_window *window, int algorithm, void *workspace, size_t bytes, const void *beta, \
       fl_cudnn_tensor *y, void *y_data)) \
    X(GetConvolutionBackwardDataAlgorithm_v7, \
      (fl_cudnn_handle *handle, fl_cudnn_filter *w, fl_cudnn_tensor *y, fl_cudnn_window *window, fl_cudnn_tensor *x, \
       int room, int *count, fl_cudnn_perf *results)) \
    X(GetConvolutionBackwardDataWorkspaceSize, \
      (fl_cudnn_handle *handle, fl_cudnn_filter *w, fl_cudnn_tensor *y, fl_cudnn_window *window, fl_cudnn_tensor *x, \
       int algorithm, size_t *bytes)) \
    X(ConvolutionBackwardData, \
      (fl_cudnn_handle *handle, const void *alpha, fl_cudnn_filter *w, const void *w_data, fl_cudnn_tensor *y, \
       const void *y_data, fl_cudnn_window *window, int algorithm, void *workspace, size_t bytes, const void *beta, \
       fl_cudnn_tensor *x, void *x_data)) \
    X(GetConvolutionBackwardFilterAlgorithm_v7, \
      (fl_cudnn_handle *handle, fl_cudnn_tensor *x, fl_cudnn_tensor *y, fl_cudnn_window *window, fl_cudnn_filter *w, \
       int room, int *count, fl_cudnn_perf *results)) \
    X(GetConvolutionBackwardFilterWorkspaceSize, \
      (fl_cudnn_handle *handle, fl_cudnn_tensor *x, fl_cudnn_tensor *y, fl_cudnn_window *window, fl_cudnn_filter *w, \
       int algorithm, size_t *bytes)) \
    X(ConvolutionBackwardFilter, \
      (fl_cudnn_handle *handle, const void *alpha, fl_cudnn_tensor *x, const void *x_data, fl_cudnn_tensor *y, \
       const void *y_data, fl_cudnn_window *window, int algorithm, void *workspace, size_t bytes, const void *beta, \
       fl_cudnn_filter *w, void *w_data))
/* clang-format on */

#endif
