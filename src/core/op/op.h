/*
** op.h -- what an op is: everything about it in one constant descriptor.
**
** An op file defines its descriptors with FL_OP(name) = { ... }; the linker collects them, so there is no
** other list. Lua functions and methods, help, completion, dispatch and the generic tests come from the
** descriptor. Signature strings are parsed once, at first use:
**
**     "sum(x, axis: axes = nil, keepdim: bool = false)"
**
** parameters   x          a tensor                     x|n        a tensor or a Lua number
**              x?         a tensor or nil              xs...      a list of tensors (last tensor parameter)
**              name: type [= default]                  an attribute; without default it is required
** types        bool int float scalar (number or boolean, remembers which) axis axes ints sizes dtype
**              text (of ops that are bodies)
**              a|b|c (one of these words) ints|a|b (ints, or one of these words)
**              options (dtype, device, placement, sbp, requires_grad)
** marks        ~name: type    a value attribute: handed to the kernel, never part of the plan's key
** defaults     nil: absent (attr.given is false)
*/
#ifndef FL_OP_H
#define FL_OP_H

#include "value/meta.h"
#include "view.h"

enum { FL_MAX_PARAMS = 16 };

typedef struct fl_tensor fl_tensor; /* memory/tensor.h; nothing here looks into one */

/* ---- operands: the arguments of an op ---- */

typedef struct fl_operand {
    fl_kind kind;
    union {
        fl_tensor *tensor; /* borrowed */
        int64_t integer;   /* FL_NUM_INT, FL_NUM_BOOL */
        double number;     /* FL_NUM_FLOAT */
    };
} fl_operand;

static inline fl_operand fl_of(fl_tensor *tensor)
{
    fl_operand o = {FL_TENSOR, {0}};
    o.tensor = tensor;
    if (!tensor) o.kind = FL_NONE;
    return o;
}
static inline fl_operand fl_of_number(double value)
{
    fl_operand o = {FL_NUM_FLOAT, {0}};
    o.number = value;
    return o;
}
static inline fl_operand fl_of_integer(int64_t value)
{
    fl_operand o = {FL_NUM_INT, {0}};
    o.integer = value;
    return o;
}

/* ---- signatures, parsed ---- */

typedef enum fl_attr_type {
    FL_ATTR_BOOL,
    FL_ATTR_INT,
    FL_ATTR_FLOAT,
    FL_ATTR_SCALAR,
    FL_ATTR_AXIS,
    FL_ATTR_AXES,
    FL_ATTR_INTS,
    FL_ATTR_SIZES,
    FL_ATTR_DTYPE,
    FL_ATTR_WORD,
    FL_ATTR_TEXT,
    FL_ATTR_OPTIONS
} fl_attr_type;

typedef struct fl_param {
    char name[24];
    bool is_tensor, optional, number_allowed, is_list; /* tensors */
    bool is_value;                                     /* ~ */
    bool required;                                     /* attribute without default */
    fl_attr_type type;
    int slot;        /* tensors: position among the operands; attributes: in attrs.at; options: -1 */
    fl_attr initial; /* default */
    char words[96];  /* FL_ATTR_WORD: "mean|sum|none"; of FL_ATTR_INTS those that may stand for numbers, mostly "" */
} fl_param;

typedef struct fl_signature {
    int param_count, tensor_count, attr_count;
    bool variadic, has_options;
    uint32_t shape_mask; /* attributes that are part of the key */
    fl_param params[FL_MAX_PARAMS];
} fl_signature;

/* ---- arguments of an op's hooks ---- */

/* Shape and dtype of one operand or result while inferring. */
typedef struct fl_spec {
    fl_kind kind;   /* FL_NONE: absent; FL_NUM_*: a Lua number (0-d, weakest dtype) */
    fl_dtype dtype; /* of a number: bool, int64 or float32 */
    fl_shape shape;
} fl_spec;

typedef struct fl_infer {
    const fl_op *op;
    const char *name; /* for messages */
    const fl_attrs *attrs;
    const fl_spec *in;
    int nin;
    fl_spec out[FL_MAX_OUT]; /* to be filled; kind is preset to FL_TENSOR */
    int nout;                /* preset to op->nout */
    bool as_ops;             /* to be set: fl_op.compute runs it, no kernel */
} fl_infer;

/* Collects the legal signatures of one hierarchy axis. `parts` ranks share this axis; shapes are those left
** after the axes before it (of the largest part). */
typedef struct fl_sigs {
    const fl_op *op;
    const fl_attrs *attrs;
    const fl_spec *in;
    const fl_spec *out;
    int nin, nout, parts;
    const fl_shape *in_logical, *out_logical; /* whole shapes (arrays) */
    struct fl_sig_list *list;                 /* infer.c's own */
    int axis;                                 /* the hierarchy axis */
} fl_sigs;

/* An op written in other ops; dispatched instead of the kernel when its signature is chosen. The whole op (fl_op.body)
** may leave results NULL that were not asked for, where it has no gradient of its own. */
typedef fl_status (*fl_body)(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs);

/* Adds a signature: nin SBPs of the inputs, then nout of the outputs. body NULL: the kernel. The tensor axes that it
** splits are parts of one logical axis: it is taken only where the hierarchy axes before have left the same interval of
** each. */
FL_EXPORT void fl_sig_add(fl_sigs *sigs, fl_body body, const fl_sbp *in_out);
/* The same written out: FL_SIG(s, NULL, FL_S(0), FL_B, FL_S(0)) */
#define FL_SIG(s, body, ...) fl_sig_add((s), (body), (const fl_sbp[]){__VA_ARGS__})

/* A view: given the input's local part, fill strides and offset of the output (both in elements of the local
** part; the local shape of the output is known). *possible = false when this tensor cannot be viewed so. */
typedef struct fl_view_request {
    const fl_attrs *attrs;
    const fl_tensor *in;
    const fl_meta *out_meta;
    int64_t strides[FL_MAX_NDIM];
    int64_t offset;
    bool possible;
} fl_view_request;

/* Gradient of one call. */
typedef struct fl_grad {
    const fl_op *op;
    const fl_attrs *attrs; /* only as long as its count: not to be copied whole */
    int nin, nout;
    fl_operand *in;                /* saved inputs (FL_NONE when not saved) */
    fl_tensor **out;               /* saved outputs (NULL when not saved) */
    const fl_meta *const *in_meta; /* metas of all tensor inputs, saved or not */
    const fl_meta *const *out_meta;
    fl_tensor **gout; /* gradients of the outputs; NULL: zero */
    const bool *need; /* true: the gradient of this input is needed */
    fl_tensor **gin;  /* results, owned by the caller; NULL: zero */
    /* The tensor that the gradient of operand i may be added into in place if it has the same meta, borrowed; NULL:
    ** none. It has the operand's shape and dtype; of a global operand it may be partial. sum_of itself may be NULL.
    ** Once the gradient has been added, its bit is set in `added`, and gin[i] stays NULL. */
    fl_tensor *(*sum_of)(const struct fl_grad *g, int i);
    void *sums; /* of sum_of */
    uint32_t added;
} fl_grad;

/* op->flags */
enum {
    /* result element i depends on elements i alone: in place allowed, x:name_() exists unless NEW_KIND */
    FL_OP_ELEMENTWISE = 1,
    /* result shares the input's storage when `view` says so, else the kernel copies; of a body: when it may do so */
    FL_OP_VIEW = 2,
    FL_OP_VIEW_ONLY = 4,      /* a view that cannot be made is an error (view, not reshape) */
    FL_OP_RANDOM = 8,         /* takes a seed and a counter */
    FL_OP_HIDDEN = 16,        /* no Lua name: gradients and bodies use it */
    FL_OP_METHOD_ONLY = 32,   /* x:name(), no flow.name() */
    FL_OP_FUNCTION_ONLY = 64, /* flow.name(), no x:name() */
    FL_OP_NO_GRAD = 128,      /* result never requires grad (comparisons, argmax) */
    FL_OP_SOURCE = 256,       /* no tensor input: placement and SBP come from the options */
    FL_OP_LOCAL_ONLY = 512,   /* result shape depends on data: local or all-B only */
    FL_OP_OVERWRITES = 1024,  /* writes operand 0 without reading it: its old value is not used */
    FL_OP_FETCHES = 2048,     /* local operands may be on other devices than the first: they are copied there */
    /* the elements of x in the same row-major order under other axes (reshape): which of its parts are parts of the
    ** result is for the op's own signatures to say */
    FL_OP_REGROUPS = 4096,
    /* elementwise, but the result is no new value of operand 0: bool of numbers, or a choice by it */
    FL_OP_NEW_KIND = 8192,
    FL_OP_PER_PART = 131072, /* an operand has a row for each part of others: splits are not in proportion */
    FL_OP_CASTS = 65536,     /* the elements of operand 0 in another dtype */
    FL_OP_FOLDS = 32768,     /* its CPU kernel takes operand 0 also as a fl_source */
    /* no kernel for devices: LAPACK computes it, or it adds to a sum. An op that writes no operand is computed on the
    ** CPU for tensors of a device too (dispatch/on_host.c) */
    FL_OP_HOST_ONLY = 262144,
    FL_OP_LOW = 524288,      /* under flow.autocast its operands are cast to the lower dtype: products */
    FL_OP_WIDE = 1048576,    /* they are cast to float32: sums, norms, losses, exponentials */
    FL_OP_UNSET = 2097152,   /* the result has no values yet */
    FL_OP_BY_NAME = 4194304, /* hidden, but checks what it gets: hosts, which call ops by names, may call it */
    FL_OP_BY_STEP = 8388608, /* hidden, but a step of a program may call it */
    FL_OP_ZEROS = 16384      /* the result is zeros, which a script may ask for as a partial sum */
};

struct fl_draw;
struct fl_formula;

struct fl_op {
    const char *name;
    const char *sig;
    const char *doc; /* one sentence */
    int nout;
    unsigned flags;
    /* bit i: operand i is updated in place (copy_, fill_, adamw_step); with nout 1 the result is operand 0 itself,
    ** and the kernel sees it as out[0] too */
    uint32_t mutates;
    /* variadic ops: the list is this many groups of equal length one after the other (params, grads, ...); `mutates`
    ** then counts groups. 0: no groups */
    int groups;
    uint32_t saves_in, saves_out; /* inputs and outputs that a `grad` function needs; derived for `vjp` strings */
    fl_status (*infer)(fl_infer *infer);
    /* at every call: checks attributes and data (index ranges); may be NULL */
    fl_status (*check)(const fl_operand *in, int nin, const fl_attrs *attrs);
    void (*sbp)(fl_sigs *sigs); /* NULL: all-B only */
    fl_kernel_fn cpu;
    void (*draw)(struct fl_draw *draw, const fl_kernel *kernel); /* draw.h; NULL: not elementwise and random */
    fl_flat_fn (*flat)(int row, fl_dtype dtype);                 /* the loop of `row`; NULL where there is none */
    fl_body body;                                                /* the whole op in other ops (no kernel) */
    const struct fl_formula *formula;                            /* of fl_formula_kernel (formula.h) */
    fl_kernel_fn on_device; /* the kernel of every device, in place of one that the device has; or NULL */
    /* The op written by the host in other ops: its results on operands that are this rank's parts, local tensors. While
    ** it has no gradient of its own and one is recorded, also on global operands. No body, no kernel. */
    fl_status (*compute)(const fl_op *op, fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs);
    void (*view)(fl_view_request *request);
    /* makes a view again, where fl_dispatch cannot (to_global.c, from_local.c); else NULL */
    fl_status (*replay)(fl_tensor **out, fl_tensor *x, const fl_attrs *attrs);
    fl_status (*grad)(fl_grad *g);
    const char *const *vjp;     /* gradient per operand as an expression in ops: "g * y" (vjp.c); NULL entry: none */
    const char *const *samples; /* Lua expressions giving argument lists for the generic tests, NULL-terminated */
    int row;                    /* elementwise rows: fl_ew_id of the .def table, 0 otherwise */
    int variant;                /* the op within its family, if hooks or kernels serve several: an enum of the family */
    int seed_slot; /* the attribute with the seed of what the op draws again, its counter in the next; 0: none */
    /* the hidden op that a call with further arguments means, or with tensors in place of this one's numbers */
    const char *wider;
    /* Floating-point operations of the kernel on these parts, which may have no data; a product and a sum are two.
    ** NULL: one per element written, of FL_OP_FOLDS one per element of operand 0. */
    int64_t (*flops)(const fl_kernel *kernel);
    uint32_t picks; /* operands of which no more elements are read than the result has: tables of rows */
};

/* The kernel runs as that of `op`. */
static inline void fl_kernel_set_op(fl_kernel *kernel, const fl_op *op)
{
    kernel->op = op;
    kernel->name = op->name;
    kernel->row = op->row;
    kernel->variant = op->variant;
}

/* Defines and registers a descriptor: FL_OP(softmax) = { .name = "softmax", ... }; */
#define FL_OP(ident)                                                                                         \
    extern const fl_op fl_op_##ident;                                                                        \
    static const fl_op *const fl_op_entry_##ident __attribute__((section("fl_ops"), used)) = &fl_op_##ident; \
    const fl_op fl_op_##ident

/* All descriptors, in link order. */
FL_OWN extern const fl_op *const __start_fl_ops[];
FL_OWN extern const fl_op *const __stop_fl_ops[];
#define FL_FOR_EACH_OP(var) for (const fl_op *const *var = __start_fl_ops; var < __stop_fl_ops; var++)

/* True if x:name_() exists. */
static inline bool fl_op_in_place(const fl_op *op)
{
    return (op->flags & (FL_OP_ELEMENTWISE | FL_OP_NEW_KIND)) == FL_OP_ELEMENTWISE;
}

/* NULL when there is none. */
FL_EXPORT const fl_op *fl_op_find(const char *name);

/* An op from elsewhere is found by its name from now on; its descriptor stays. Checks nothing. */
fl_status fl_op_register(const fl_op *op);
/* The last `count` of them are not. */
void fl_op_forget(int count);

/* The descriptor of a registered op, from C: FL_OP_REF(add). */
#define FL_OP_REF(ident)                  \
    ({                                    \
        extern const fl_op fl_op_##ident; \
        &fl_op_##ident;                   \
    })

/* Parsed once; a signature that does not parse is a programmer's mistake (assert). */
FL_EXPORT const fl_signature *fl_op_signature(const fl_op *op);

/* The parameter that operand i belongs to, for messages. */
const char *fl_op_operand_name(const fl_op *op, int i);

/* Reads a signature: "swish(x, ~beta: float = 1)". An error names the place. */
fl_status fl_signature_parse(fl_signature *out, const char *text);

/* Attribute defaults of an op filled in. */
FL_EXPORT void fl_attrs_init(fl_attrs *attrs, const fl_op *op);

#endif
