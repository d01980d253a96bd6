/*
** view.h -- what a kernel receives: operands as views of this rank's parts, attributes, random counters.
**
** A kernel sees dtypes, shapes and views; no tensor and no op descriptor.
*/
#ifndef FL_VIEW_H
#define FL_VIEW_H

#include "value/placement.h"
#include "base/dtype.h"
#include "base/shape.h"

enum { FL_MAX_ATTRS = 10, FL_MAX_OUT = 4, FL_FLAT_MAX_IN = 3 };

typedef struct fl_op fl_op; /* op.h */

/* The kind of an operand or an attribute. */
typedef enum fl_kind {
    FL_NONE,
    FL_TENSOR,
    FL_NUM_BOOL,
    FL_NUM_INT,
    FL_NUM_FLOAT,
    FL_WORD
} fl_kind; /* a word: of attributes */

/* ---- attributes ---- */

typedef struct fl_attr {
    bool given;   /* false: the script left it out and there is no default */
    fl_kind kind; /* scalar: which sort of number; ints: FL_WORD where a word stands for them */
    int count;    /* lists: entries; also sizes, axes */
    union {
        int64_t integer;  /* bool, int, axis, dtype, position of the word, integer scalar */
        double number;    /* float, float scalar */
        const char *text; /* text: borrowed, for the call alone */
        int64_t list[FL_MAX_NDIM];
    };
} fl_attr;

typedef struct fl_attrs {
    int count;                     /* in the order of the signature */
    bool requires_grad;            /* of `options` */
    bool has_dtype;                /* of `options`: option_dtype is set */
    fl_dtype option_dtype;         /* of `options` */
    bool is_local;                 /* of `options`: a local result */
    bool has_placement;            /* of `options`: placement and nd_sbp are set */
    fl_nd_sbp nd_sbp;              /* of `options` */
    const fl_placement *placement; /* of `options` */
    fl_attr at[FL_MAX_ATTRS];
} fl_attrs;

/* Value of a scalar attribute as a double. */
static inline double fl_attr_number(const fl_attr *attr)
{
    return attr->kind == FL_NUM_FLOAT ? attr->number : (double)attr->integer;
}

/* Attribute setters for C callers: a is an initialised fl_attrs. */
static inline void fl_attr_set(fl_attrs *attrs, int slot, int64_t value)
{
    attrs->at[slot].given = true;
    attrs->at[slot].kind = FL_NUM_INT;
    attrs->at[slot].count = 1;
    attrs->at[slot].integer = value;
}
static inline void fl_attr_set_number(fl_attrs *attrs, int slot, double value)
{
    attrs->at[slot].given = true;
    attrs->at[slot].kind = FL_NUM_FLOAT;
    attrs->at[slot].count = 1;
    attrs->at[slot].number = value;
}
FL_EXPORT void fl_attr_set_list(fl_attrs *attrs, int slot, const int64_t *values, int count);

/* ---- operands ---- */

/* One operand of a kernel: this rank's part. */
typedef struct fl_view {
    void *data; /* first local element; NULL: absent operand */
    fl_dtype dtype;
    int ndim;
    bool contiguous;
    const int64_t *size;    /* local shape */
    const int64_t *stride;  /* in elements */
    const int64_t *start;   /* window: where the part begins in the logical tensor */
    const int64_t *logical; /* logical shape */
    int64_t numel;          /* local */
    int64_t scalar[1];      /* holds the bytes of a Lua number: data points here */
} fl_view;

/* A row-major array of `dtype` at data, of the view's shape; strides: room for the view's axes. */
static inline fl_view fl_view_array(const fl_view *view, void *data, fl_dtype dtype, int64_t *strides)
{
    fl_view array = *view;
    fl_shape_strides(strides, view->size, view->ndim);
    array.data = data;
    array.dtype = dtype;
    array.contiguous = true;
    array.stride = strides;
    return array;
}

/* This rank's elements of the diagonal of a matrix; numel 0: none. size, stride: room for its only axis. */
static inline fl_view fl_view_diagonal(const fl_view *matrix, int64_t *size, int64_t *stride)
{
    int64_t past = matrix->start[1] - matrix->start[0], row = past > 0 ? past : 0, column = row - past;
    int64_t rows = matrix->size[0] - row, columns = matrix->size[1] - column;
    int64_t from = row * matrix->stride[0] + column * matrix->stride[1];
    fl_view diagonal = *matrix;
    *size = rows < columns ? rows : columns;
    if (*size < 0) *size = 0;
    *stride = matrix->stride[0] + matrix->stride[1];
    if (*size) diagonal.data = (char *)matrix->data + from * (int64_t)fl_dtype_size(matrix->dtype);
    diagonal.ndim = 1;
    diagonal.size = size;
    diagonal.stride = stride;
    diagonal.numel = *size;
    diagonal.contiguous = false;
    return diagonal;
}

/* The elements of operand 0 where they are not computed yet: kernels of ops with FL_OP_FOLDS call one of both. */
struct fl_tiles;
typedef struct fl_source fl_source;
struct fl_source {
    /* The steps that give them, as tiles (cpu/tiles.h), which the kernel then runs; false: there is no memory. */
    bool (*tiles)(fl_source *source, struct fl_tiles *tiles, int *slot);
    /* Computes them; their place, NULL: there is no memory. */
    void *(*data)(fl_source *source);
};

typedef struct fl_kernel {
    const fl_op *op;  /* for code above this layer: no kernel of cpu/ or of a device looks into it */
    const char *name; /* op->name, for messages */
    int row;          /* op->row: fl_ew_id of an elementwise row, else 0 */
    int variant;      /* op->variant: which op of its family */
    const fl_attrs *attrs;
    fl_view *in, *out;
    int nin, nout;
    uint64_t seed, counter; /* random ops */
    fl_source *source;      /* NULL: operand 0 is in memory, as all others are */
} fl_kernel;

typedef fl_status (*fl_kernel_fn)(fl_kernel *kernel);

/* The bare loop of an elementwise op over contiguous operands of one dtype, where it cannot fail: out[i] from in[0][i],
** ... It is the shortest way for small tensors. attributes: of ops that have any (elementwise.h). */
struct fl_ew_attr;
typedef int (*fl_flat_fn)(void *out, const void *const *in, int64_t n, const struct fl_ew_attr *attributes);

#endif
