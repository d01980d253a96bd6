/*
** vjp_code.h -- the trees that the texts of gradients and bodies are read into: vjp_parse.c makes them, vjp.c evaluates
** them. vjp.c describes the texts.
*/
#ifndef FL_VJP_CODE_H
#define FL_VJP_CODE_H

#include "autograd.h"

typedef enum fl_term_kind {
    FL_TERM_NUMBER,
    FL_TERM_INTEGER,
    FL_TERM_IN,
    FL_TERM_OUT,
    FL_TERM_GRAD,
    FL_TERM_ATTR,
    FL_TERM_CALL,
    FL_TERM_LIKE,
    FL_TERM_LOCAL, /* a line of a body */
    FL_TERM_CHOOSE,
    FL_TERM_NDIM,
    FL_TERM_SIZE
} fl_term_kind;
typedef enum fl_like_kind {
    FL_LIKE_EXPAND,
    FL_LIKE_RESHAPE,
    FL_LIKE_SUM,
    FL_LIKE_UNREDUCE,
    FL_LIKE_COUNT
} fl_like_kind;

enum { FL_TERM_ARGS = 8, FL_TERM_LOCALS = 16 };

typedef struct fl_term {
    fl_term_kind kind;
    int index; /* operand, output, attribute, line; fl_like_kind of FL_TERM_LIKE */
    double number;
    int64_t integer;
    const fl_op *call;
    int count;
    struct fl_term *args[FL_TERM_ARGS];
    struct fl_term *next; /* of the same code, made before */
} fl_term;

typedef struct fl_vjp_code {
    const fl_op *op;
    fl_term *terms;                                             /* all there are; owned */
    fl_term *inputs[FL_MAX_PARAMS];                             /* gradient of each operand; NULL: none */
    fl_term *locals[FL_TERM_LOCALS], *result;                   /* of a body */
    uint32_t saves_in[FL_MAX_PARAMS], saves_out[FL_MAX_PARAMS]; /* operands and results that each of them mentions */
} fl_vjp_code;

/* The vjp strings of an op, the text of a body. The caller frees *out. Error: the part that cannot be read, with its
** place. */
fl_status fl_vjp_parse(fl_vjp_code **out, const fl_op *op);
fl_status fl_vjp_parse_body(fl_vjp_code **out, const fl_body_text *body);

void fl_vjp_code_free(fl_vjp_code *code);

#endif
