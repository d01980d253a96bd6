/*
** own_op_parts.h -- what own_op.c, own_call.c, own_sbp.c, own_formula.c and load_ops.c have of each other.
*/
#ifndef FL_LUA_OWN_OP_PARTS_H
#define FL_LUA_OWN_OP_PARTS_H

#include "core/script.h"
#include "instance.h"

#include <lua.h>

enum { FL_OWN_ROWS = 64, FL_OWN_ENTRIES = FL_MAX_PARAMS + FL_MAX_OUT };

/* A signature of one hierarchy axis: an SBP for each tensor parameter, then for each result. */
typedef struct fl_own_row_sbp {
    bool met; /* by tensors that have the axes which it splits, since testing asked */
    fl_sbp at[FL_OWN_ENTRIES];
} fl_own_row_sbp;

typedef struct fl_own_op {
    fl_op op;                  /* first: hooks get its address */
    fl_lua_instance *instance; /* of the state that defined it: a reference */
    fl_formula *formula;       /* or NULL */
    int functions;             /* registry reference: the table of infer, sbp, forward, backward */
    bool broadcasts;           /* it has no infer */
    bool rows_given;           /* a list in the definition, and no function */
    int row_count;             /* of the last inference */
    bool is_shared;            /* a formula that the same definition may take over */
    char **samples;            /* owned; NULL-terminated */
    struct fl_own_op *next;    /* of all */
    fl_own_row_sbp rows[FL_OWN_ROWS];
} fl_own_op;

static inline const fl_own_op *fl_own(const fl_op *op) { return (const fl_own_op *)op; }

/* The plural's ending, for messages. */
static inline const char *fl_own_plural(int n) { return n == 1 ? "" : "s"; }

/* own_sbp.c: the rows of the list on top of the stack, which is popped; the hook that offers them. */
void fl_own_read_rows(lua_State *L, fl_own_op *op, const fl_signature *signature);
void fl_own_sbp(fl_sigs *sigs);

/* The first row of a given list that no tensors have met since the last call, counted from 1; 0: there is none. */
int fl_own_unmet_row(const fl_op *op);

/* own_call.c: the other hooks. */
fl_status fl_own_infer(fl_infer *infer);
fl_status fl_own_compute(const fl_op *op, fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs);
fl_status fl_own_grad(fl_grad *g);

/* own_op.c: a field of the definition at index; zeroed memory, or an error of Lua. */
lua_Integer fl_own_integer(lua_State *L, int index, const char *name);
void *fl_own_allocate(lua_State *L, size_t bytes);
/* "name_", for as long as the process lives. */
const char *fl_own_in_place_name(lua_State *L, const char *name);

/* own_formula.c: the list of nodes at index of the definition at 1; *out is to be freed even where it raises. */
void fl_own_read_formula(lua_State *L, fl_formula **out, const char *name, int index);
void fl_own_free_formula(fl_formula *formula);
void fl_own_drop_gradients(fl_formula *formula);
bool fl_own_same_formula(const fl_formula *x, const fl_formula *y);

/* Functions of flow._own. */
int fl_own_row(lua_State *L);
int fl_own_set_gradients(lua_State *L);
int fl_own_load(lua_State *L);

#endif
