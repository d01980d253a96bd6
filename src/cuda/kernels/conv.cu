/*
** conv.cu -- convolutions by cuDNN (cudnn.cu), or as matrix products of columns: the elements of an image under each
** tap of each window. A window of one element has the image for columns, so these are products first of all.
**
** As on the CPU (cpu/conv.c): y = weight columns, dcolumns = weight^T dy and folded back, dweight = dy columns^T.
** Columns are made for some images at a time, so that they take little memory whatever the batch. Folding gathers, so
** nothing is added by two threads; sums over images are added up in order.
*/
#include "cudnn.h"
#include "gemm.h"
#include "operand.h"
#include "quotient.h"

extern "C" {
#include "core/op/conv.h"
#include "core/op/unfold.h"
}

enum { THREADS = 256 };
static const int64_t COLUMN_BYTES = 256 << 20;

/* ---- kernels ---- */

/* A convolution as a kernel takes it, with its products; all axes of the window. */
template<typename I>
struct sizes {
    typedef I number;
    I window[FL_WINDOW_AXES], stride[FL_WINDOW_AXES], padding[FL_WINDOW_AXES], dilation[FL_WINDOW_AXES],
        x_size[FL_WINDOW_AXES], y_size[FL_WINDOW_AXES];
    I x_plane, y_plane, taps, depth, x_channels; /* the last two: of all groups */
    typename fl_divisor<I>::type by_window[FL_WINDOW_AXES], by_stride[FL_WINDOW_AXES], by_x[FL_WINDOW_AXES],
        by_y[FL_WINDOW_AXES], by_x_plane, by_y_plane, by_taps, by_depth;
};

template<typename I>
static sizes<I> sizes_of(const fl_conv *conv)
{
    sizes<I> s;
    for (int d = 0; d < FL_WINDOW_AXES; d++) {
        s.window[d] = (I)conv->window.size[d];
        s.stride[d] = (I)conv->window.stride[d];
        s.padding[d] = (I)conv->window.padding[d];
        s.dilation[d] = (I)conv->window.dilation[d];
        s.x_size[d] = (I)conv->x_size[d];
        s.y_size[d] = (I)conv->y_size[d];
        fl_divisor_set(&s.by_window[d], s.window[d]);
        fl_divisor_set(&s.by_stride[d], s.stride[d]);
        fl_divisor_set(&s.by_x[d], s.x_size[d]);
        fl_divisor_set(&s.by_y[d], s.y_size[d]);
    }
    s.x_plane = (I)fl_conv_x_plane(conv);
    s.y_plane = (I)fl_conv_y_plane(conv);
    s.taps = (I)fl_conv_taps(conv);
    s.depth = (I)(conv->groups * fl_conv_depth(conv));
    s.x_channels = (I)(conv->groups * conv->in);
    fl_divisor_set(&s.by_x_plane, s.x_plane);
    fl_divisor_set(&s.by_y_plane, s.y_plane);
    fl_divisor_set(&s.by_taps, s.taps);
    fl_divisor_set(&s.by_depth, s.depth);
    return s;
}

/* Every number that a kernel makes of the sizes has 32 bits. */
static bool is_narrow(const fl_conv *conv)
{
    int64_t channels = conv->images * conv->groups * conv->in;
    if (channels * fl_conv_x_plane(conv) > INT32_MAX
        || channels * fl_conv_taps(conv) * fl_conv_y_plane(conv) > INT32_MAX)
        return false;
    for (int d = 0; d < FL_WINDOW_AXES; d++) {
        int64_t reach = conv->x_size[d] + 2 * conv->window.padding[d] + fl_window_geometry_span(&conv->window, d);
        if (reach + conv->window.stride[d] > INT32_MAX) return false;
    }
    return true;
}

/* Element i of [images, channels, window, y]; window and y have three axes. */
template<typename T, typename I>
__global__ void __launch_bounds__(THREADS)
    unfold(T *columns, const T *x, int64_t total, I image_step, I depth_step, const __grid_constant__ sizes<I> s)
{
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= total) return;
    I above = fl_quotient((I)i, s.by_y_plane), place = (I)i - above * s.y_plane;
    I image = fl_quotient(above, s.by_depth), k = above - image * s.depth;
    I channel = fl_quotient(k, s.by_taps), tap = k - channel * s.taps, left = place, from = 0, step = 1;
    bool inside = true;
    for (int d = FL_WINDOW_AXES - 1; d >= 0; d--) {
        I position = fl_quotient(left, s.by_y[d]), t = fl_quotient(tap, s.by_window[d]);
        I at = (left - position * s.y_size[d]) * s.stride[d] - s.padding[d] + (tap - t * s.window[d]) * s.dilation[d];
        inside = inside && at >= 0 && at < s.x_size[d];
        if (inside) from += at * step;
        step *= s.x_size[d];
        left = position;
        tap = t;
    }
    from += (image * s.x_channels + channel) * s.x_plane;
    columns[image * image_step + k * depth_step + place] = inside ? x[from] : fl_store<T>(0);
}

/* The position of the window along axis d at which its tap t is on element i; -1: at none. */
template<typename I>
__device__ static inline I seen_at(const sizes<I> &sizes, int d, I i, I t)
{
    return fl_window_at(i, t, sizes.stride[d], sizes.padding[d], sizes.dilation[d], sizes.y_size[d],
                        sizes.by_stride[d]);
}

/* Element i of x: the sum of the columns that were taken from it, taps in order. */
template<typename T, typename I>
__global__ void __launch_bounds__(THREADS)
    fold(T *x, const T *columns, int64_t total, const __grid_constant__ sizes<I> s)
{
    typedef typename fl_wide<T>::type wide;
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= total) return;
    I channel = fl_quotient((I)i, s.by_x_plane), place = (I)i - channel * s.x_plane,
      line = fl_quotient(place, s.by_x[2]), depth = fl_quotient(line, s.by_x[1]), row = line - depth * s.x_size[1],
      column = place - line * s.x_size[2];
    const T *from = columns + channel * s.taps * s.y_plane;
    wide sum = 0;
    for (I tz = 0; tz < s.window[0]; tz++) {
        I z = seen_at(s, 0, depth, tz);
        for (I ty = 0; z >= 0 && ty < s.window[1]; ty++) {
            I y = seen_at(s, 1, row, ty);
            for (I tx = 0; y >= 0 && tx < s.window[2]; tx++) {
                I at = seen_at(s, 2, column, tx), tap = (tz * s.window[1] + ty) * s.window[2] + tx;
                if (at >= 0) sum += fl_load(from[tap * s.y_plane + (z * s.y_size[1] + y) * s.y_size[2] + at]);
            }
        }
    }
    x[i] = fl_store<T>(sum);
}

template<typename T, typename I>
__global__ void __launch_bounds__(THREADS)
    add_bias(T *y, const T *bias, int64_t total, I channels, typename fl_divisor<I>::type by_channels,
             typename fl_divisor<I>::type by_plane)
{
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= total) return;
    I above = fl_quotient((I)i, by_plane), channel = above - fl_quotient(above, by_channels) * channels;
    y[i] = fl_store<T>(fl_load(y[i]) + fl_load(bias[channel]));
}

/* sum + part becomes the sum, or after the last part the result; before the first one the sum is 0. */
template<typename T>
__global__ void __launch_bounds__(THREADS)
    add_part(T *out, typename fl_wide<T>::type *sum, const T *part, int64_t total, bool first, bool last)
{
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= total) return;
    typename fl_wide<T>::type value = fl_load(part[i]) + (first ? 0 : sum[i]);
    if (last) out[i] = fl_store<T>(value);
    else sum[i] = value;
}

/* Sums of `parts` arrays of `total` elements that lie behind each other, in order. */
template<typename T>
__global__ void __launch_bounds__(THREADS) sum_parts(T *out, const T *part, int64_t total, int64_t parts)
{
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= total) return;
    typename fl_wide<T>::type sum = 0;
#pragma unroll 8
    for (int64_t p = 0; p < parts; p++) sum += fl_load(part[p * total + i]);
    out[i] = fl_store<T>(sum);
}

/* ---- issuing ---- */

/* issue(an element of the dtype, a number as wide as the kernel counts in) */
template<typename F>
static void by_width(fl_dtype dtype, bool narrow, const F &issue)
{
    fl_cuda_by_float(dtype, [&](auto like) {
        if (narrow) issue(like, (int32_t)0);
        else issue(like, (int64_t)0);
        return FL_OK;
    });
}

/* Columns of the images of a convolution, image_step and depth_step elements apart. */
static void issue_unfold(fl_dtype dtype, void *columns, const void *x, const fl_conv *conv, int64_t image_step,
                         int64_t depth_step)
{
    int64_t total = conv->images * conv->groups * fl_conv_depth(conv) * fl_conv_y_plane(conv);
    if (total == 0) return;
    by_width(dtype, is_narrow(conv), [&](auto like, auto number) {
        typedef decltype(like) T;
        typedef decltype(number) I;
        FL_LAUNCH((unfold<T, I>), dim3(fl_blocks(total, THREADS)), dim3(THREADS), 0, (T *)columns, (const T *)x, total,
                  (I)image_step, (I)depth_step, sizes_of<I>(conv));
    });
}

static void issue_fold(fl_dtype dtype, void *x, const void *columns, const fl_conv *conv)
{
    int64_t total = conv->images * conv->groups * conv->in * fl_conv_x_plane(conv);
    by_width(dtype, is_narrow(conv), [&](auto like, auto number) {
        typedef decltype(like) T;
        typedef decltype(number) I;
        FL_LAUNCH((fold<T, I>), dim3(fl_blocks(total, THREADS)), dim3(THREADS), 0, (T *)x, (const T *)columns, total,
                  sizes_of<I>(conv));
    });
}

static void issue_bias(fl_dtype dtype, void *y, const void *bias, const fl_conv *conv)
{
    int64_t plane = fl_conv_y_plane(conv), channels = conv->groups * conv->out, total = conv->images * channels * plane;
    by_width(dtype, total <= INT32_MAX, [&](auto like, auto number) {
        typedef decltype(like) T;
        typedef decltype(number) I;
        typename fl_divisor<I>::type by_channels, by_plane;
        fl_divisor_set(&by_channels, channels);
        fl_divisor_set(&by_plane, plane);
        FL_LAUNCH((add_bias<T, I>), dim3(fl_blocks(total, THREADS)), dim3(THREADS), 0, (T *)y, (const T *)bias, total,
                  (I)channels, by_channels, by_plane);
    });
}

static void batch_axis(fl_cuda_gemm *gemm, int64_t size, int64_t a_step, int64_t b_step)
{
    if (size == 1) return;
    gemm->size[gemm->batch] = size;
    gemm->a_step[gemm->batch] = a_step;
    gemm->b_step[gemm->batch++] = b_step;
}

/* ---- pieces: images whose columns are in memory at a time ---- */

struct pieces {
    fl_dtype dtype;
    int64_t item, most; /* bytes of an element; images of a piece */
    char *columns;      /* NULL: x itself */
};

static fl_status pieces_open(pieces *pieces, const fl_conv *conv, fl_dtype dtype, bool direct)
{
    pieces->dtype = dtype;
    pieces->item = (int64_t)fl_dtype_size(dtype);
    pieces->columns = NULL;
    int64_t image_bytes = conv->groups * fl_conv_depth(conv) * fl_conv_y_plane(conv) * pieces->item;
    pieces->most = direct || image_bytes == 0 ? conv->images : COLUMN_BYTES / image_bytes;
    if (pieces->most < 1) pieces->most = 1;
    if (pieces->most > conv->images) pieces->most = conv->images;
    if (direct || image_bytes == 0) return FL_OK;
    return fl_cuda_malloc((void **)&pieces->columns, (size_t)(pieces->most * image_bytes));
}

static void pieces_close(pieces *pieces)
{
    if (pieces->columns) fl_cuda_free(pieces->columns);
}

/* The images of a piece that begins at image `first`. */
static fl_conv piece_at(const pieces *pieces, const fl_conv *conv, int64_t first)
{
    fl_conv piece = *conv;
    piece.images = conv->images - first < pieces->most ? conv->images - first : pieces->most;
    return piece;
}

/* Of each image and group: out = weight in, or, transposed, out = weight^T in. The weight is
** [groups, piece->out, depth], in and out are [images, groups, rows, plane]. */
static fl_status multiply_images(char *out, char *weight, char *in, const fl_conv *piece, fl_dtype dtype,
                                 bool transposed)
{
    int64_t depth = fl_conv_depth(piece), plane = fl_conv_y_plane(piece);
    fl_cuda_gemm g = {};
    g.dtype = dtype;
    g.m = transposed ? depth : piece->out;
    g.n = plane;
    g.k = transposed ? piece->out : depth;
    g.a = weight;
    g.b = in;
    g.c = out;
    g.a_row = transposed ? 1 : depth;
    g.a_col = transposed ? depth : 1;
    g.b_row = plane;
    g.b_col = 1;
    batch_axis(&g, piece->images, 0, piece->groups * g.k * plane);
    batch_axis(&g, piece->groups, piece->out * depth, g.k * plane);
    return fl_cuda_gemm_run(&g);
}

/* ---- forward ---- */

static fl_status forward(const fl_conv *conv, fl_dtype dtype, char *y, char *x, char *weight)
{
    pieces p;
    FL_TRY(pieces_open(&p, conv, dtype, fl_conv_is_pointwise(conv)));
    int64_t depth = fl_conv_depth(conv), plane = fl_conv_y_plane(conv),
            x_image = conv->groups * conv->in * fl_conv_x_plane(conv) * p.item;
    fl_status status = FL_OK;
    for (int64_t first = 0; first < conv->images && status == FL_OK; first += p.most) {
        fl_conv piece = piece_at(&p, conv, first);
        if (p.columns) issue_unfold(dtype, p.columns, x + first * x_image, &piece, conv->groups * depth * plane, plane);
        status = multiply_images(y + first * conv->groups * conv->out * plane * p.item, weight,
                                 p.columns ? p.columns : x + first * x_image, &piece, dtype, false);
    }
    pieces_close(&p);
    return status;
}

/* ---- gradient of the input ---- */

static fl_status input_grad(const fl_conv *conv, fl_dtype dtype, char *dx, char *dy, char *weight)
{
    pieces p;
    FL_TRY(pieces_open(&p, conv, dtype, fl_conv_is_pointwise(conv)));
    int64_t plane = fl_conv_y_plane(conv), x_image = conv->groups * conv->in * fl_conv_x_plane(conv) * p.item;
    fl_status status = FL_OK;
    for (int64_t first = 0; first < conv->images && status == FL_OK; first += p.most) {
        fl_conv piece = piece_at(&p, conv, first);
        status = multiply_images(p.columns ? p.columns : dx + first * x_image, weight,
                                 dy + first * conv->groups * conv->out * plane * p.item, &piece, dtype, true);
        if (status == FL_OK && p.columns) issue_fold(dtype, dx + first * x_image, p.columns, &piece);
    }
    pieces_close(&p);
    return status;
}

/* ---- gradient of the weight ---- */

/* dy of the images of a piece as [channels, images, plane]: the rows of one product. */
static fl_status gather_rows(void *out, char *dy, const fl_conv *piece, fl_dtype dtype)
{
    int64_t plane = fl_conv_y_plane(piece), channels = piece->groups * piece->out;
    int64_t size[] = {channels, piece->images, plane}, from[] = {plane, channels * plane, 1}, to[3];
    fl_shape_strides(to, size, 3);
    fl_view in = {}, rows;
    in.data = dy;
    in.dtype = dtype;
    in.ndim = 3;
    in.size = size;
    in.stride = from;
    in.numel = channels * piece->images * plane;
    rows = in;
    rows.data = out;
    rows.stride = to;
    rows.contiguous = true;
    return fl_cuda_copy_view(&rows, &in);
}

/* dy columns^T of one piece. */
static fl_status multiply_piece(char *out, char *rows, const pieces *pieces, const fl_conv *piece)
{
    int64_t depth = fl_conv_depth(piece), length = piece->images * fl_conv_y_plane(piece);
    fl_cuda_gemm g = {};
    g.dtype = pieces->dtype;
    g.m = piece->out;
    g.n = depth;
    g.k = length;
    g.a = rows;
    g.b = pieces->columns;
    g.c = out;
    g.a_row = length;
    g.a_col = 1;
    g.b_row = 1;
    g.b_col = length;
    batch_axis(&g, piece->groups, piece->out * length, depth * length);
    return fl_cuda_gemm_run(&g);
}

/* Temporary memory of a weight gradient: dy's rows of a piece; where there are several pieces, one's product and the
** sum. */
struct sums {
    char *rows, *part, *sum;
};

static fl_status sums_open(sums *sums, const pieces *pieces, const fl_conv *conv, int64_t numel)
{
    int64_t wide = (int64_t)fl_dtype_size(fl_dtype_compute(pieces->dtype));
    FL_TRY(fl_cuda_malloc((void **)&sums->rows,
                          (size_t)(conv->groups * conv->out * pieces->most * fl_conv_y_plane(conv) * pieces->item)));
    if (pieces->most == conv->images) return FL_OK;
    FL_TRY(fl_cuda_malloc((void **)&sums->part, (size_t)(numel * pieces->item)));
    return fl_cuda_malloc((void **)&sums->sum, (size_t)(numel * wide));
}

static void sums_close(sums *sums)
{
    if (sums->sum) fl_cuda_free(sums->sum);
    if (sums->part) fl_cuda_free(sums->part);
    if (sums->rows) fl_cuda_free(sums->rows);
}

static void issue_add(fl_dtype dtype, void *out, const sums *sums, int64_t numel, bool first, bool last)
{
    fl_cuda_by_float(dtype, [&](auto like) {
        typedef decltype(like) T;
        typedef typename fl_wide<T>::type wide;
        FL_LAUNCH((add_part<T>), dim3(fl_blocks(numel, THREADS)), dim3(THREADS), 0, (T *)out, (wide *)sums->sum,
                  (const T *)sums->part, numel, first, last);
        return FL_OK;
    });
}

static fl_status add_pieces(const fl_conv *conv, const pieces *pieces, const sums *sums, char *dweight, char *dy,
                            char *x)
{
    int64_t plane = fl_conv_y_plane(conv), numel = conv->groups * conv->out * fl_conv_depth(conv);
    for (int64_t first = 0; first < conv->images; first += pieces->most) {
        fl_conv piece = piece_at(pieces, conv, first);
        FL_TRY(gather_rows(sums->rows, dy + first * conv->groups * conv->out * plane * pieces->item, &piece,
                           pieces->dtype));
        issue_unfold(pieces->dtype, pieces->columns,
                     x + first * conv->groups * conv->in * fl_conv_x_plane(conv) * pieces->item, &piece, plane,
                     piece.images * plane);
        FL_TRY(multiply_piece(sums->part ? sums->part : dweight, sums->rows, pieces, &piece));
        if (sums->part)
            issue_add(pieces->dtype, dweight, sums, numel, first == 0, first + pieces->most >= conv->images);
    }
    return FL_OK;
}

static fl_status weight_grad(const fl_conv *conv, fl_dtype dtype, char *dweight, char *dy, char *x)
{
    pieces p;
    sums s = {};
    FL_TRY(pieces_open(&p, conv, dtype, false));
    fl_status status = sums_open(&s, &p, conv, conv->groups * conv->out * fl_conv_depth(conv));
    if (status == FL_OK) status = add_pieces(conv, &p, &s, dweight, dy, x);
    sums_close(&s);
    pieces_close(&p);
    return status;
}

/* The columns are the images where they lie: of every image one product, and these are added up. */
static fl_status pointwise_weight_grad(const fl_conv *conv, fl_dtype dtype, char *dweight, char *dy, char *x)
{
    int64_t plane = fl_conv_y_plane(conv), numel = conv->out * conv->in;
    void *parts;
    fl_cuda_gemm g = {};
    FL_TRY(fl_cuda_malloc(&parts, (size_t)(conv->images * numel) * fl_dtype_size(dtype)));
    g.dtype = dtype;
    g.m = conv->out;
    g.n = conv->in;
    g.k = plane;
    g.a = dy;
    g.b = x;
    g.c = (char *)parts;
    g.a_row = plane;
    g.a_col = 1;
    g.b_row = 1;
    g.b_col = plane;
    batch_axis(&g, conv->images, conv->out * plane, conv->in * plane);
    fl_status status = fl_cuda_gemm_run(&g);
    if (status == FL_OK)
        fl_cuda_by_float(dtype, [&](auto like) {
            typedef decltype(like) T;
            FL_LAUNCH((sum_parts<T>), dim3(fl_blocks(numel, THREADS)), dim3(THREADS), 0, (T *)dweight, (const T *)parts,
                      numel, conv->images);
            return FL_OK;
        });
    fl_cuda_free(parts);
    return status;
}

/* ---- the choice of a method ---- */

/* A product of the images as they lie, where its rows are aligned as cuBLASLt's fast kernels want them. Sums over
** images are no sums in float32 if the products are rounded to 16 bits before. */
static bool is_product(fl_cudnn_pass pass, const fl_conv *conv, fl_dtype dtype)
{
    static const int64_t alignment = 16, most_bytes = 64 << 20;
    int64_t item = (int64_t)fl_dtype_size(dtype), plane = fl_conv_y_plane(conv);
    if (!fl_conv_is_pointwise(conv) || conv->groups != 1 || !fl_cublas_open()) return false;
    if (plane * item % alignment || conv->in * item % alignment || conv->out * item % alignment) return false;
    return pass != FL_CUDNN_WEIGHT_GRAD || (item > 2 && conv->images * conv->out * conv->in * item <= most_bytes);
}

/* So little to do that what counts is the time of calls: of columns and one product less than of cuDNN. */
static bool is_small(fl_cudnn_pass pass, const fl_conv *conv, fl_dtype dtype)
{
    static const int64_t most_products = 1 << 27, fewest = 32;
    int64_t columns = conv->images * fl_conv_depth(conv) * fl_conv_y_plane(conv);
    return pass == FL_CUDNN_FORWARD && dtype == FL_FLOAT32 && conv->groups == 1 && conv->out >= fewest
        && fl_conv_depth(conv) >= fewest && columns <= most_products / conv->out && fl_cublas_open();
}

/* ---- ops ---- */

/* Computes the result of `pass` from the other two. */
static fl_status convolve(fl_cudnn_pass pass, const fl_conv *conv, fl_dtype dtype, char *x, char *weight, char *y)
{
    bool done = false, product = is_product(pass, conv, dtype);
    if (!product && !is_small(pass, conv, dtype)) FL_TRY(fl_cudnn_conv(&done, pass, conv, dtype, x, weight, y));
    if (done) return FL_OK;
    switch (pass) {
    case FL_CUDNN_FORWARD: return forward(conv, dtype, y, x, weight);
    case FL_CUDNN_INPUT_GRAD: return input_grad(conv, dtype, x, y, weight);
    default: return product ? pointwise_weight_grad(conv, dtype, weight, y, x) : weight_grad(conv, dtype, weight, y, x);
    }
}

struct operands {
    fl_cuda_operand a, b, bias, out;
};

/* A view aligned as cuDNN requires, or a copy. */
static fl_view aligned(const fl_view *view)
{
    fl_view v = *view;
    v.contiguous = view->contiguous && (uintptr_t)view->data % FL_CUDNN_ALIGNMENT == 0;
    return v;
}

static fl_status open_operands(operands *operands, const fl_kernel *kernel)
{
    fl_dtype dtype = kernel->out[0].dtype;
    fl_view a = aligned(&kernel->in[0]), b = aligned(&kernel->in[1]), out = aligned(&kernel->out[0]);
    FL_TRY(fl_cuda_operand_in(&operands->a, &a, dtype, false));
    FL_TRY(fl_cuda_operand_in(&operands->b, &b, dtype, false));
    if (kernel->nin == 3) FL_TRY(fl_cuda_operand_in(&operands->bias, &kernel->in[FL_CONV_BIAS], dtype, false));
    return fl_cuda_operand_out(&operands->out, &out, dtype);
}

static fl_status close_operands(operands *operands, const fl_kernel *kernel, fl_status status)
{
    if (status == FL_OK) status = fl_cuda_operand_store(&operands->out, &kernel->out[0], kernel->out[0].dtype);
    fl_cuda_operand_close(&operands->out);
    fl_cuda_operand_close(&operands->bias);
    fl_cuda_operand_close(&operands->b);
    fl_cuda_operand_close(&operands->a);
    return status == FL_OK ? fl_cuda_check(kernel->name) : status;
}

/* The rank that holds the first channels of the weight adds the bias. */
static fl_status launch_conv(fl_kernel *kernel)
{
    operands o = {};
    if (kernel->out[0].numel == 0) return FL_OK;
    fl_conv c = fl_conv_of(kernel->attrs, &kernel->in[FL_CONV_X], &kernel->in[FL_CONV_WEIGHT], &kernel->out[0]);
    fl_status status = open_operands(&o, kernel);
    if (status == FL_OK) status = convolve(FL_CUDNN_FORWARD, &c, kernel->out[0].dtype, o.a.data, o.b.data, o.out.data);
    if (status == FL_OK && o.bias.data && kernel->in[FL_CONV_WEIGHT].start[1] == 0)
        issue_bias(kernel->out[0].dtype, o.out.data, o.bias.data, &c);
    return close_operands(&o, kernel, status);
}

static fl_status launch_input_grad(fl_kernel *kernel)
{
    operands o = {};
    if (kernel->out[0].numel == 0) return FL_OK;
    fl_conv c = fl_conv_of(kernel->attrs, &kernel->out[0], &kernel->in[FL_CONV_GRAD_OTHER],
                           &kernel->in[FL_CONV_GRAD_G]);
    fl_status status = open_operands(&o, kernel);
    if (status == FL_OK)
        status = convolve(FL_CUDNN_INPUT_GRAD, &c, kernel->out[0].dtype, o.out.data, o.b.data, o.a.data);
    return close_operands(&o, kernel, status);
}

static fl_status launch_weight_grad(fl_kernel *kernel)
{
    operands o = {};
    int64_t zero = 0;
    if (kernel->out[0].numel == 0) return FL_OK;
    fl_conv c = fl_conv_of(kernel->attrs, &kernel->in[FL_CONV_GRAD_OTHER], &kernel->out[0],
                           &kernel->in[FL_CONV_GRAD_G]);
    if (c.images == 0) return fl_cuda_fill_view(&kernel->out[0], &zero);
    fl_status status = open_operands(&o, kernel);
    if (status == FL_OK)
        status = convolve(FL_CUDNN_WEIGHT_GRAD, &c, kernel->out[0].dtype, o.b.data, o.out.data, o.a.data);
    return close_operands(&o, kernel, status);
}

/* ---- columns of windows ---- */

static fl_status launch_columns(fl_kernel *kernel, bool folds)
{
    const fl_view *out = &kernel->out[0];
    fl_cuda_operand from = {}, to = {};
    if (out->numel == 0) return FL_OK;
    fl_conv c = fl_unfold_of(kernel->attrs, folds ? out : &kernel->in[0], folds);
    int64_t windows = fl_conv_y_plane(&c);
    fl_status status = fl_cuda_operand_in(&from, &kernel->in[0], out->dtype, false);
    if (status == FL_OK) status = fl_cuda_operand_out(&to, out, out->dtype);
    if (status == FL_OK && folds) issue_fold(out->dtype, to.data, from.data, &c);
    if (status == FL_OK && !folds)
        issue_unfold(out->dtype, to.data, from.data, &c, fl_conv_depth(&c) * windows, windows);
    if (status == FL_OK) status = fl_cuda_operand_store(&to, out, out->dtype);
    fl_cuda_operand_close(&to);
    fl_cuda_operand_close(&from);
    return status == FL_OK ? fl_cuda_check(kernel->name) : status;
}

static fl_status launch_unfold(fl_kernel *kernel) { return launch_columns(kernel, false); }
static fl_status launch_fold(fl_kernel *kernel) { return launch_columns(kernel, true); }

FL_CUDA_OP(im2col, launch_unfold);
FL_CUDA_OP(col2im, launch_fold);
FL_CUDA_OP(conv1d, launch_conv);
FL_CUDA_OP(conv2d, launch_conv);
FL_CUDA_OP(conv3d, launch_conv);
FL_CUDA_OP(conv1d_input_grad, launch_input_grad);
FL_CUDA_OP(conv2d_input_grad, launch_input_grad);
FL_CUDA_OP(conv3d_input_grad, launch_input_grad);
FL_CUDA_OP(conv1d_weight_grad, launch_weight_grad);
FL_CUDA_OP(conv2d_weight_grad, launch_weight_grad);
FL_CUDA_OP(conv3d_weight_grad, launch_weight_grad);
