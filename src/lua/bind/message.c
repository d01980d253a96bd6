/*
** message.c -- flow._messages: messages between two ranks, for stores with servers (lib/kvstore_async.lua).
*/
#include "core/process.h"
#include "arguments.h"
#include "members.h"
#include "state.h"
#include "tensors.h"

/* Names of messages, for errors. */
static const char *const names[] = {"kvstore init",        "kvstore push",          "kvstore pull",   "kvstore barrier",
                                    "kvstore set_updater", "kvstore set_optimizer", "kvstore set_lr", "kvstore save",
                                    "kvstore load",        "kvstore close",         "answer",         NULL};

/* name, to, head at 1 to 3; the body, a tensor or nil, at `body`. */
static fl_outgoing read_message(lua_State *L, int body)
{
    fl_outgoing m = {.name = names[luaL_checkoption(L, 1, NULL, names)], .to = (int)luaL_checkinteger(L, 2)};
    m.head = luaL_checklstring(L, 3, &m.head_bytes);
    if (!lua_isnoneornil(L, body)) m.body = fl_lua_check_tensor(L, body, m.name, "body");
    fl_lua_enter(L);
    FL_CHECK(L, fl_program_refuse("a message is sent to another rank"));
    return m;
}

/* _messages.send(name, to, head, body) */
static int message_send(lua_State *L)
{
    fl_outgoing m = read_message(L, 4);
    FL_CHECK(L, fl_message_send(&m));
    return 0;
}

/* _messages.fetch(name, to, head, out, body): the answer's body is written to out; nil: it has none */
static int message_fetch(lua_State *L)
{
    fl_outgoing m = read_message(L, 5);
    fl_tensor *out = lua_isnil(L, 4) ? NULL : fl_lua_check_tensor(L, 4, m.name, "out");
    FL_CHECK(L, fl_message_fetch(&m, out));
    return 0;
}

/* _messages.ask(name, to, head, body) -> the head of the answer */
static int message_ask(lua_State *L)
{
    size_t bytes;
    fl_outgoing m = read_message(L, 4);
    char **answer = fl_lua_new_text(L);
    FL_CHECK(L, fl_message_ask(answer, &bytes, &m));
    lua_pushlstring(L, *answer, bytes);
    return 1;
}

/* _messages.next(seconds) -> from, head, bytes of the body; nothing when none has come */
static int message_next(lua_State *L)
{
    fl_incoming m;
    fl_lua_enter(L);
    FL_CHECK(L, fl_message_next(&m, luaL_checknumber(L, 1)));
    if (m.from < 0) return 0;
    lua_pushinteger(L, m.from);
    lua_pushlstring(L, m.head, m.head_bytes);
    lua_pushinteger(L, (lua_Integer)m.body_bytes);
    return 3;
}

/* _messages.read(from, out) */
static int message_read(lua_State *L)
{
    fl_lua_enter(L);
    FL_CHECK(L, fl_message_read((int)luaL_checkinteger(L, 1), fl_lua_check_tensor(L, 2, "read", "out")));
    return 0;
}

/* _messages.answer(to, head, body, failed) */
static int message_answer(lua_State *L)
{
    fl_outgoing m = {.name = "answer", .to = (int)luaL_checkinteger(L, 1)};
    m.head = luaL_checklstring(L, 2, &m.head_bytes);
    if (!lua_isnoneornil(L, 3)) m.body = fl_lua_check_tensor(L, 3, m.name, "body");
    fl_lua_enter(L);
    FL_CHECK(L, fl_message_answer(&m, lua_toboolean(L, 4)));
    return 0;
}

/* _messages.peer(rank) -> "runs", "ended" or "died" */
static int message_peer(lua_State *L)
{
    static const char *const states[] = {[FL_PEER_RUNS] = "runs", [FL_PEER_ENDED] = "ended", [FL_PEER_DIED] = "died"};
    lua_pushstring(L, states[fl_message_peer((int)luaL_checkinteger(L, 1))]);
    return 1;
}

/* _messages.set_aside(count): the last ranks leave the world */
static int message_set_aside(lua_State *L)
{
    if (fl_lua_in_session) FL_RAISE(L, "create: ranks of a session cannot serve: all of them evaluate its lines");
    FL_CHECK(L, fl_world_set_aside((int)luaL_checkinteger(L, 1)));
    return 0;
}

void fl_lua_open_messages(lua_State *L, int flow)
{
    static const luaL_Reg functions[] = {
        {"send", message_send}, {"fetch", message_fetch},         {"ask", message_ask},
        {"next", message_next}, {"read", message_read},           {"answer", message_answer},
        {"peer", message_peer}, {"set_aside", message_set_aside}, {NULL, NULL}};
    luaL_newlib(L, functions);
    lua_setfield(L, flow, "_messages");
}
