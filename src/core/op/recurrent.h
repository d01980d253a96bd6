/*
** recurrent.h -- operands, results and attributes of the ops of recurrent layers: shared by kernels and by the ops that
** are written in other ops.
*/
#ifndef FL_OP_RECURRENT_H
#define FL_OP_RECURRENT_H

/* The attribute `kind`: an LSTM, a GRU, a network of tanh or of relu. */
typedef enum fl_recurrent_kind { FL_LSTM, FL_GRU, FL_RNN_TANH, FL_RNN_RELU } fl_recurrent_kind;

/* Gates per hidden unit. */
static inline int fl_recurrent_gates(fl_recurrent_kind kind) { return kind == FL_LSTM ? 4 : kind == FL_GRU ? 3 : 1; }

/* recurrent, recurrent_rows: x holds the products of the inputs, [steps, batch, gates * width] */
enum {
    FL_RECURRENT_X,
    FL_RECURRENT_WEIGHT,  /* [gates * width, width] */
    FL_RECURRENT_BIAS,    /* [width], of a GRU's new gate; or none */
    FL_RECURRENT_H0,      /* [batch, width]; none: zeros */
    FL_RECURRENT_C0,      /* of an LSTM */
    FL_RECURRENT_LENGTHS, /* [batch]: steps of each row; behind them its state stays; none: all */
    FL_RECURRENT_OPERANDS
};
/* cells [steps, batch, width]: c of an LSTM, the new gate's hidden product of a GRU; gates: after their activations.
** Results that a kind does not have are [0]. `recurrent` gives the first two. */
enum { FL_RECURRENT_Y, FL_RECURRENT_CELLS, FL_RECURRENT_GATES };

enum { FL_RECURRENT_KIND, FL_RECURRENT_REVERSE }; /* attributes, of all */

/* recurrent_backward. FIRST: c0 of an LSTM, h0 of a GRU. */
enum {
    FL_RECURRENT_BACK_DY,
    FL_RECURRENT_BACK_DCELLS,
    FL_RECURRENT_BACK_DGATES,
    FL_RECURRENT_BACK_Y,
    FL_RECURRENT_BACK_CELLS,
    FL_RECURRENT_BACK_GATES,
    FL_RECURRENT_BACK_WEIGHT,
    FL_RECURRENT_BACK_FIRST,
    FL_RECURRENT_BACK_LENGTHS,
    FL_RECURRENT_BACK_OPERANDS
};
/* MORE: dc0 [batch, width] of an LSTM; the gradient of cells, [steps, batch, width], of a GRU */
enum { FL_RECURRENT_BACK_DX, FL_RECURRENT_BACK_DH0, FL_RECURRENT_BACK_MORE };

#endif
