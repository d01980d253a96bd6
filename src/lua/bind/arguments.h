/*
** arguments.h -- reading arguments: each function returns the value at a stack index, or raises an error that names
** the caller, `who`.
*/
#ifndef FL_LUA_ARGUMENTS_H
#define FL_LUA_ARGUMENTS_H

#include "core/script.h"
#include "errors.h"

/* ---- values, lists and keys (read.c) ---- */

/* The path at index: text that is not empty and has no NUL, at which the system would cut it. */
const char *fl_lua_check_path(lua_State *L, int index, const char *who);
/* A whole number (a float with an integral value will do), or an error naming who and what. */
int64_t fl_lua_check_integer(lua_State *L, int index, const char *who, const char *name);
/* 1, 0 or -1; nil: 0. */
int fl_lua_check_priority(lua_State *L, int index, const char *who);
fl_dtype fl_lua_check_dtype(lua_State *L, int index, const char *who);
/* "cpu", "cuda", "cuda:1", "meta" as the placement of a local tensor. */
const fl_placement *fl_lua_check_device(lua_State *L, int index, const char *who);
/* True of a word that begins with the name of a type of devices: it is meant as a device. */
bool fl_lua_names_device(const char *word);
/* List of at most `limit` whole numbers; returns their count. */
int fl_lua_check_list(lua_State *L, int index, int64_t *out, int limit, const char *who, const char *name);

/* The field of the table at index as a condition: nil and false are false. */
bool fl_lua_flag(lua_State *L, int index, const char *name);

/* A function, or what is called like one: a module, a class, a captured function. (The __call of a tensor only words an
** error.) */
bool fl_lua_is_callable(lua_State *L, int index);

/* A string among the keys of the list at index, such as an option that was put into it; NULL: there is none. */
const char *fl_lua_stray_key(lua_State *L, int index);
#define FL_STRAY_KEY "is a list, but has the key '%s'; put options in a separate table"

/* An error when more than `most` arguments are given (nil at the end is none). usage: of the function. */
void fl_lua_check_count(lua_State *L, int most, const char *who, const char *usage);

/* An error unless the value at index is a table and each of its keys is one of `names` (NULL-terminated). */
void fl_lua_check_keys(lua_State *L, int index, const char *who, const char *const *names);
/* The same, and pushes the values in the order of the names, nil for those that are not there. */
void fl_lua_push_options(lua_State *L, int index, const char *who, const char *const *names);

/* ---- options of ops that make tensors (options.c) ---- */

/* The keys dtype, device, placement, sbp, requires_grad, one at a time. */
typedef struct fl_lua_options {
    bool has_dtype, has_sbp, requires_grad;
    fl_dtype dtype;
    const fl_placement *device, *placement;
    fl_nd_sbp sbp;
} fl_lua_options;
/* Takes the value at index for `key`; false when the key is none of the five. ndim: of the tensor, for "S(-1)"; 0:
** unknown. */
bool fl_lua_option(lua_State *L, fl_lua_options *options, const char *key, int index, int ndim, const char *who);
/* An error when a dtype or a device stands where a table of options is expected. */
void fl_lua_refuse_bare_option(lua_State *L, int index, const char *who);
/* All keys of the table at index (nil: none); an unknown one is an error. */
void fl_lua_read_options(lua_State *L, fl_lua_options *options, int index, int ndim, const char *who);
/* Checks that they fit together and puts them into attrs. */
void fl_lua_apply_options(lua_State *L, fl_attrs *attrs, const fl_lua_options *options, const char *who);
/* Options that name neither a device nor a placement and an sbp get the device of flow.with_device. */
void fl_lua_complete_options(fl_lua_options *options);
/* That of flow.with_device, NULL: none, tensors are made on this rank's CPU. */
FL_OWN extern const fl_placement *fl_lua_device;
void fl_lua_suggest_options(fl_suggestion *suggestion);

/* ---- placements and SBPs (placement.c) ---- */

const fl_placement *fl_lua_check_placement(lua_State *L, int index, const char *who);
void fl_lua_push_placement(lua_State *L, const fl_placement *placement);
/* One SBP, a word, or a list of them. ndim: of the tensor, for "S(-1)"; 0: unknown. */
fl_nd_sbp fl_lua_check_sbp(lua_State *L, int index, int ndim, const char *who);
/* An error unless sbp has one entry for each hierarchy axis of p. */
void fl_lua_check_fit(lua_State *L, fl_nd_sbp sbp, const fl_placement *placement, const char *who);
void fl_lua_push_sbp(lua_State *L, fl_nd_sbp sbp);

#endif
