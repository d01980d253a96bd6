/*
** binding.h -- what the files of the Lua layer share.
**
** A binding reads its arguments, calls one core function, checks the status and returns. Tensors are
** boxes: 16-byte userdata that own one reference. The box is pushed first and filled after, so that a
** Lua error in between loses nothing. Only fl_lua_error raises, at the line of the user's script.
*/
#ifndef FL_BINDING_H
#define FL_BINDING_H

#include "core/flow.h"

#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>

#define FL_VERSION "0.1.0"

/* ---- errors (error.c) ---- */

/* Raises the core's last message at the nearest line of the user's script. */
__attribute__((noreturn)) int fl_lua_error(lua_State *L, fl_status status);

/* Words an error and raises it; nothing may be held. */
#define FL_RAISE(L, ...) fl_lua_error((L), fl_fail(FL_ERR_VALUE, __VA_ARGS__))
/* Raises when a core call failed. */
#define FL_CHECK(L, expression)                                        \
    do {                                                               \
        fl_status status_ = (expression);                              \
        if (FL_UNLIKELY(status_ != FL_OK)) fl_lua_error((L), status_); \
    } while (0)

/* Writes "train.lua:41" of the nearest user's line into buffer, "" when there is none. */
void fl_lua_where(lua_State *L, char *buffer, size_t size);
/* Is that (its "S" known) a function of one of our modules? */
bool fl_lua_is_own(const lua_Debug *ar);
/* Does a line of the user's run, or is it the session that prints a value? */
bool fl_lua_in_script(lua_State *L);

/* Pushes "; a method is called with a colon: x:item()" when the running function was called as a field (x.item()), else
** "". */
const char *fl_lua_push_colon(lua_State *L, const char *object, const char *method);

/* An error when the running function, one of the flow table, was called as flow:print(x). For functions that take any
** value, or call others; the errors of all others say so of themselves. */
void fl_lua_refuse_colon(lua_State *L);

/* Makes unknown names of the table whose metatable is on top of the stack an error: "engine has no 'x'". */
void fl_lua_set_strict(lua_State *L, const char *name);
/* Makes assigning to fields of the userdata whose metatable is on top an error: "a placement has no fields that
** ...". */
void fl_lua_set_constant(lua_State *L, const char *what);
/* Both for a userdata: its methods are those of the table at __index, or none. */
void fl_lua_set_object(lua_State *L, const char *what);

/* What a value is called in messages: "nil", "a tensor" is "tensor", tables are "table". */
const char *fl_lua_type_name(lua_State *L, int index);

/* The known name nearest to an unknown one. place: where it was looked for ("tensor", "flow", "nn", ...), for advice to
** scripts ported from PyTorch; NULL: elsewhere. */
typedef struct fl_suggestion {
    const char *word, *place, *best;
    int distance;
} fl_suggestion;
void fl_suggest_offer(fl_suggestion *s, const char *name);
/* "; did you mean 'matmul'?", "; write x:to(\"float32\")" or "". */
enum { FL_SUGGEST_TEXT = 192 };
const char *fl_suggest_text(char *buffer, const fl_suggestion *s);

/* ---- names that scripts bring along (ported.c) ---- */

/* Is `name` what PyTorch or NumPy call `word`? */
bool fl_lua_is_renamed(const char *word, const char *name);
/* What to write in place of a word that `place` does not have; "": there is nothing like it; NULL: not known. */
const char *fl_lua_advice(const char *place, const char *word);
/* Pushes both tables for the tests. */
int fl_lua_push_ported(lua_State *L);

/* ---- tensors (box.c) ---- */

#define FL_BOX_MAGIC 0x7e4501ab5f10a7edu
typedef struct fl_box {
    uint64_t magic;
    fl_tensor *tensor; /* owned; NULL until filled */
} fl_box;

/* The thread that called into the core last: hooks of the core look at its stack. */
extern lua_State *fl_lua_current;

/* The box at index, NULL when the value is no tensor. */
static inline fl_box *fl_lua_box(lua_State *L, int index)
{
    fl_box *box = lua_touserdata(L, index);
    if (FL_UNLIKELY(!box || lua_rawlen(L, index) != sizeof *box || box->magic != FL_BOX_MAGIC || !box->tensor))
        return NULL;
    return box;
}

/* The tensor at index (borrowed), NULL when it is none. */
static inline fl_tensor *fl_lua_to_tensor(lua_State *L, int index)
{
    fl_box *box = fl_lua_box(L, index);
    fl_lua_current = L;
    return box ? box->tensor : NULL;
}

/* The tensor at index, or an error "who: name must be a tensor, got nil". */
fl_tensor *fl_lua_check_tensor(lua_State *L, int index, const char *who, const char *name);

/* Pushes an empty box; the caller fills box->tensor with a reference of its own. */
fl_box *fl_lua_new_box(lua_State *L);
/* The same when the running C function's first upvalue is the boxes' metatable. */
fl_box *fl_lua_new_box_fast(lua_State *L);

/* Pushes a tensor with one more reference; nil for NULL. */
void fl_lua_push_tensor(lua_State *L, fl_tensor *t);

/* Pushes the metatable of boxes. */
void fl_lua_push_metatable(lua_State *L);

/* Makes the metatable and leaves it on the stack. */
void fl_lua_open_box(lua_State *L);

/* ---- the collector (state.c) ---- */

/* Call after anything that allocated tensors: lets tensor bytes drive Lua's collector. */
enum { FL_DEBT_STEP = 4 << 20 }; /* small, so that a loop's results come back to memory that is still in the caches */
void fl_lua_collect_step(lua_State *L);
/* Unrefs a registry value later, at a moment when Lua may be called (inside a collection it may not). */
void fl_lua_unref_later(int ref);
void fl_lua_drop_late(lua_State *L);
extern int fl_lua_late; /* values waiting for that */
static inline void fl_lua_account(lua_State *L)
{
    if (FL_UNLIKELY(fl_storage_unaccounted > FL_DEBT_STEP)) fl_lua_collect_step(L);
    if (FL_UNLIKELY(fl_lua_late > 0)) fl_lua_drop_late(L);
}

/* A state with the hooks of the core set; NULL when out of memory. */
lua_State *fl_lua_new_state(void);
void fl_lua_close_state(lua_State *L);

/* Ctrl-C: from now on stops the running Lua code with "interrupted!". */
void fl_lua_interrupt_arm(lua_State *L);
void fl_lua_interrupt_disarm(void);
bool fl_lua_interrupted(void);
/* Has Ctrl-C been pressed? Among several ranks collectives stop then, all at the same point; what does not come to a
** collective is interrupted some time later. */
bool fl_lua_interrupt_asked(void);
/* Set in a session over several ranks: tells the others of Ctrl-C. A signal handler calls it. */
extern void (*fl_lua_pass_interrupt)(void);
/* Did Ctrl-C end the last protected call, or an error after it? */
bool fl_lua_was_interrupted(void);

/* From now on SIGUSR2 makes the script write the line it is at into this rank's journal: ranks that wait for it in vain
** ask. */
void fl_lua_answer_questions(void);
/* Ctrl-C has become an error. A script may catch the first of a call, as under lua; what comes after it, and in the
** session already the first, is raised again at every instruction of Lua until the call ends, whatever pcall
** catches. */
void fl_lua_interrupt_raised(void);
extern bool fl_lua_in_session;

/* Calls the function below `nargs` arguments as the interpreter calls user code: errors come with a traceback, Ctrl-C
** stops it. Returns Lua's status. */
int fl_lua_protected_call(lua_State *L, int nargs, int nresults);

/* ---- Lua's heap (heap.c) ---- */

/* lua_Alloc with size classes. Knows which blocks are boxes and drops their tensors when Lua frees them,
** so boxes need no finalizer. */
void *fl_heap_alloc(void *context, void *block, size_t old_size, size_t new_size);
void fl_heap_learn_box(lua_State *L);
/* True when the heap releases the boxes of the state it learnt from; else they need __gc. */
extern bool fl_heap_frees_boxes;
void fl_heap_mark_box(fl_box *box);

/* ---- reading values (options.c) ---- */

/* The path at index: text that is not empty and has no NUL, at which the system would cut it. */
const char *fl_lua_check_path(lua_State *L, int index, const char *who);
/* A whole number (a float with an integral value will do), or an error naming who and what. */
int64_t fl_lua_check_integer(lua_State *L, int index, const char *who, const char *name);
fl_dtype fl_lua_check_dtype(lua_State *L, int index, const char *who);
/* "cpu", "cuda", "cuda:1" as the placement of a local tensor. */
const fl_placement *fl_lua_check_device(lua_State *L, int index, const char *who);
/* List of at most `limit` whole numbers; returns their count. */
int fl_lua_check_list(lua_State *L, int index, int64_t *out, int limit, const char *who, const char *name);

/* A string among the keys of the list at index, such as an option that was put into it; NULL: there is none. */
const char *fl_lua_stray_key(lua_State *L, int index);
#define FL_STRAY_KEY "is a list, but has a key '%s'; options go in a table of their own"

/* The keys dtype, device, placement, sbp, requires_grad, one at a time. */
typedef struct fl_lua_options {
    bool has_dtype, has_sbp, requires_grad;
    fl_dtype dtype;
    const fl_placement *device, *placement;
    fl_nd_sbp sbp;
} fl_lua_options;
/* Takes the value at index for `key`; false when the key is none of the five. ndim: of the tensor, for "S(-1)"; 0:
** unknown. */
bool fl_lua_option(lua_State *L, fl_lua_options *o, const char *key, int index, int ndim, const char *who);
/* An error when a dtype or a device stands where a table of options is expected. */
void fl_lua_refuse_bare_option(lua_State *L, int index, const char *who);
/* All keys of the table at index (nil: none); an unknown one is an error. */
void fl_lua_read_options(lua_State *L, fl_lua_options *o, int index, int ndim, const char *who);
/* Checks that they fit together and puts them into attrs. */
void fl_lua_apply_options(lua_State *L, fl_attrs *attrs, const fl_lua_options *o, const char *who);
void fl_lua_suggest_options(fl_suggestion *s);

/* An error when more than `most` arguments are given (nil at the end is none). usage: how the function is called. */
void fl_lua_check_count(lua_State *L, int most, const char *who, const char *usage);

/* An error unless the value at index is a table and each of its keys is one of `names` (NULL-terminated). */
void fl_lua_check_keys(lua_State *L, int index, const char *who, const char *const *names);

/* ---- placements and SBPs (placement.c) ---- */

const fl_placement *fl_lua_check_placement(lua_State *L, int index, const char *who);
void fl_lua_push_placement(lua_State *L, const fl_placement *p);
/* One SBP, a word, or a list of them. ndim: of the tensor, for "S(-1)"; 0: unknown. */
fl_nd_sbp fl_lua_check_sbp(lua_State *L, int index, int ndim, const char *who);
/* An error unless sbp has one entry for each hierarchy axis of p. */
void fl_lua_check_fit(lua_State *L, fl_nd_sbp sbp, const fl_placement *p, const char *who);
void fl_lua_push_sbp(lua_State *L, fl_nd_sbp sbp);
void fl_lua_open_placement(lua_State *L, int flow); /* flow.placement, flow.sbp */

/* ---- calls (op_call.c) ---- */

/* An op as Lua calls it. */
typedef struct fl_lua_call {
    const fl_op *op;
    const char *name;              /* "add", "add_" */
    bool in_place;                 /* x:add_(y) */
    uint32_t greedy;               /* parameters that take all the numbers that follow */
    const fl_signature *signature; /* NULL until the first call */
    fl_attrs *defaults;
} fl_lua_call;

/* Fills the flow table (index flow), flow._op and the method table with all registered ops. */
void fl_lua_open_ops(lua_State *L, int flow, int methods);
/* Operators of the metatable at index. */
void fl_lua_open_operators(lua_State *L, int metatable);
/* What a function on the stack calls; NULL when it is no op. */
const fl_lua_call *fl_lua_call_of(lua_State *L, int index);
/* Pushes the op's signature as users read it: "where(cond, x|number, y|number)", without the marks of attributes. */
const char *fl_lua_push_usage(lua_State *L, const fl_lua_call *call);
/* Messages of the op's function at index call it `name` (a literal) from now on. */
void fl_lua_call_rename(lua_State *L, int index, const char *name);

/* Reads the arguments on the stack as a call of c and reports the op's signatures over a hierarchy. */
fl_status fl_lua_signatures(lua_State *L, const fl_lua_call *c, const int *hierarchy, int ndim, fl_signature_fn report,
                            void *context);

/* ---- fields and methods ---- */

int fl_lua_index(lua_State *L); /* index.c: x[key]; upvalues: metatable, methods */
int fl_lua_newindex(lua_State *L);
/* How messages say to go through a tensor. */
#define FL_ITERATION "for i = 0, #x - 1 do local row = x[i] ... end"

/* A field lies in the method table as a light userdata that points here. */
typedef struct fl_lua_field {
    const char *name;
    void (*get)(lua_State *L, fl_tensor *t); /* pushes the value */
} fl_lua_field;
/* The list on top of the stack prints as "[2, 3]", compares by its entries, and says at position 0 that Lua counts from
** 1. */
typedef enum fl_lua_list { FL_LIST_SHAPE, FL_LIST_STRIDE, FL_LIST_RANKS, FL_LIST_HIERARCHY, FL_LIST_COUNT } fl_lua_list;
void fl_lua_set_list(lua_State *L, fl_lua_list kind);
void fl_lua_open_fields(lua_State *L, int methods); /* fields.c */
bool fl_lua_is_field(const char *name);
/* t.name = the value at index 3, for a field that can be assigned; else an error. */
void fl_lua_set_field(lua_State *L, fl_tensor *t, const char *name);

/* Each puts its functions into the flow table and the method table (stack indices); the functions' first
** upvalue is the boxes' metatable. */
void fl_lua_open_values(lua_State *L, int flow, int methods);  /* values.c: tensor, item, totable */
void fl_lua_open_methods(lua_State *L, int flow, int methods); /* methods.c: size, to, split, to_global, ... */
void fl_lua_open_grad(lua_State *L, int flow, int methods);    /* grad.c: backward, no_grad, hooks */
void fl_lua_open_runtime(lua_State *L, int flow);              /* runtime.c: sync, memory, stats, ranks */
void fl_lua_open_testing(lua_State *L, int flow);              /* testing.c: flow._testing */
void fl_lua_open_help(lua_State *L, int flow);                 /* help.c: flow._help and what it needs */
void fl_lua_open_io(lua_State *L, int flow);        /* io.c: flow._io, files and the system for the Lua modules */
void fl_lua_open_checkpoint(lua_State *L, int io);  /* checkpoint.c: flow._io's files of tensors */
void fl_lua_open_generator(lua_State *L, int flow); /* generator.c: flow.generator, with_generator */
void fl_lua_open_io(lua_State *L, int flow);        /* io.c: flow._io */
void fl_lua_open_generator(lua_State *L, int flow); /* generator.c: flow.generator */
void fl_lua_open_explain(lua_State *L, int flow);   /* explain.c: what flow.explain records */
int fl_lua_tostring(lua_State *L);                  /* print.c */
void fl_lua_set_functions(lua_State *L, int table, const luaL_Reg *functions);

/* t so that this process can read all its elements: local, on the host, waited for (any strides). One reference. */
fl_status fl_lua_host(fl_tensor **out, fl_tensor *t);
/* The same without gaps. */
fl_status fl_lua_host_copy(fl_tensor **out, fl_tensor *t);
/* Element of a host tensor at p. */
double fl_lua_read_number(fl_dtype dtype, const void *p);
int64_t fl_lua_read_integer(fl_dtype dtype, const void *p);
/* Pushes a new local CPU tensor made from the number, boolean or nested list at index; returns it (borrowed). */
fl_tensor *fl_lua_push_from_value(lua_State *L, int index, bool has_dtype, fl_dtype dtype);

/* flow.c: the module itself (luaopen_flow), left on the stack. */
int luaopen_flow(lua_State *L);
/* Pushes the flow table; false, and nothing pushed: it is not there yet. */
bool fl_lua_push_flow(lua_State *L);
/* Puts "flow" and "flow.*" into package.preload. */
void fl_lua_preload(lua_State *L);
/* Runs the embedded module `name` once and pushes what it returned. */
void fl_lua_push_module(lua_State *L, const char *name);

/* ranks.c: */
/* Becomes mpirun, which starts this program that many times with argv, of which the words [skip, skip + skipped) are
** left out. Returns only when that fails. */
fl_status fl_lua_start_ranks(char **argv, int skip, int skipped, int ranks);
/* Rank 0's standard input, to its end, becomes that of all ranks. Nothing happens when there is one rank. */
fl_status fl_lua_share_stdin(void);
/* io.stderr:write(a, b) becomes one write. Where there are several ranks, after luaL_openlibs. */
void fl_lua_join_errors(lua_State *L);

/* failure.c: */
/* What the program does last: ends the process with the engine stopped, `last` (NULL: nothing) called before. */
extern void (*fl_lua_last)(void);
_Noreturn void fl_lua_exit(int code);
/* For several ranks: */
/* An error that nobody caught, with its traceback: ends the job. */
_Noreturn void fl_lua_fail(const char *text);
/* The script is through: waits for what is queued. Nothing happens when there is one rank. */
void fl_lua_leave_ranks(void);
/* os.exit as the engine and several ranks need it. */
void fl_lua_open_exit(lua_State *L);

/* repl.c, repl_ranks.c, doctor.c */
/* Is there somebody who types: is standard input a terminal? All ranks get the answer of rank 0. */
fl_status fl_lua_on_terminal(bool *there);
/* Reads and evaluates lines until there are none; all ranks evaluate what rank 0 reads. greet: with the version.
** Errors: the terminal cannot be used, another rank is lost. */
fl_status fl_lua_repl(lua_State *L, bool greet);
bool fl_lua_doctor(lua_State *L);

#endif
