/*
** worker.h -- Lua states beside the script's, in which functions run on other threads: the values passed to them and
** back.
**
** Numbers, strings and booleans are copied as a pack, a function as its bytecode, tensors are seen as arrays (array.h).
*/
#ifndef FL_LUA_WORKER_H
#define FL_LUA_WORKER_H

#include <lua.h>
#include <stdbool.h>
#include <stddef.h>

enum { FL_MOST_VALUES = 250 };

typedef struct fl_plain {
    int type; /* of Lua */
    bool whole;
    union {
        lua_Integer integer; /* also of a boolean */
        lua_Number number;
        struct {
            size_t at, size; /* in bytes */
        } text;
    };
} fl_plain;

typedef struct fl_pack {
    int count;
    size_t bytes; /* of the texts, which follow the values */
    fl_plain values[];
} fl_pack;

static inline char *fl_pack_texts(const fl_pack *pack) { return (char *)&pack->values[pack->count]; }

/* True for nil, booleans, numbers and strings. */
bool fl_lua_is_plain(lua_State *L, int index);

/* Size of a pack of the plain values from `first` on; fills one of this size; pushes its values. */
size_t fl_pack_size(lua_State *L, int first, int count);
void fl_pack_fill(fl_pack *pack, lua_State *L, int first, int count);
void fl_pack_push(lua_State *L, const fl_pack *pack);

/* Pushes the bytecode of the function at index, or the text of the chunk that is there. The argument is called `name`
** in messages, `advice`: for a local variable of the code around the function. */
void fl_lua_push_code(lua_State *L, int index, const char *who, const char *name, const char *advice);

/* Pushes package.path and the plain values of the list at index (nil: none); returns their number. `advice` ends the
** message about another value. */
int fl_lua_push_arguments(lua_State *L, int index, const char *who, const char *advice);

/* Opens a new state: libraries, arrays, refusals. The light userdata at 1 is the owner's name ("engine.push") for
** messages, a constant. */
int fl_lua_open_worker(lua_State *L);

/* Pushes the function whose code this is. */
void fl_lua_load_code(lua_State *L, const char *code, size_t size, const char *chunk);

#endif
