/*
** data_loader.c -- flow._io: what the loader needs of the engine.
*/
#include "members.h"
#include "tensors.h"

/* _io.ready(tensor) -> is its value there, or an error in its place? Deferred values are: somebody computes them. */
static int io_ready(lua_State *L)
{
    fl_tensor *t = fl_lua_check_tensor(L, 1, "ready", "x");
    lua_pushboolean(L, fl_var_is_deferred(&t->storage->var) || fl_var_settle(&t->storage->var));
    return 1;
}

void fl_lua_open_loader(lua_State *L, int io)
{
    lua_pushcfunction(L, io_ready);
    lua_setfield(L, io, "ready");
}
