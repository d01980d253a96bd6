/*
** scope.c -- what is set for a while: recording gradients, synchronising and watching them, the generator that ops draw
** from, the device on which tensors are made, the dtype of new floats.
**
** A scope belongs to the coroutine that opens it. While that one is suspended, or when it is dropped, all other code
** has the settings of before; when it is resumed, it has its own again. Outside scopes of its own a coroutine has the
** settings of the code that resumes it, as a function has those of its caller.
**
** Ops read plain variables of the core: coroutine.resume, wrap and close are replaced by functions that exchange these
** when a coroutine is entered and left, so that an op costs nothing more. A program that embeds Lua resumes threads
** without them: such a thread visits, from its first call of ours until another thread calls.
*/
#include "arguments.h"
#include "scope.h"
#include "tensors.h"

#include <lualib.h>

static const char scope_name[] = "flow.scope";
static const char settings_key; /* registry: settings of every coroutine that opened a scope, its key; weak */

/* ---- the settings of the core ---- */

uintptr_t fl_lua_setting(int which)
{
    switch (which) {
    case FL_SETTING_RECORDING: return fl_grad_enabled;
    case FL_SETTING_SYNCING: return fl_grad_sync;
    case FL_SETTING_DEVICE: return (uintptr_t)fl_lua_device;
    case FL_SETTING_ANOMALY: return fl_anomaly_watched;
    case FL_SETTING_AUTOCAST: return fl_autocast_now;
    case FL_SETTING_DTYPE: return (uintptr_t)fl_dtype_default;
    default: return (uintptr_t)fl_generator_current();
    }
}

void fl_lua_setting_set(int which, uintptr_t value)
{
    switch (which) {
    case FL_SETTING_RECORDING: fl_grad_enabled = value != 0; break;
    case FL_SETTING_SYNCING: fl_grad_sync = value != 0; break;
    case FL_SETTING_DEVICE: fl_lua_device = (const fl_placement *)value; break;
    case FL_SETTING_ANOMALY: fl_anomaly_watched = value != 0; break;
    case FL_SETTING_AUTOCAST: fl_autocast_set(value); break;
    case FL_SETTING_DTYPE: fl_infer_set_default_dtype((fl_dtype)value); break;
    default:
        fl_answer_read(); /* deferred draws use the generator before; a failure is raised at the next read */
        fl_generator_use((fl_generator *)value);
    }
}

/* ---- the settings of a coroutine ---- */

/* Pushes the settings of the running coroutine, made when there are none. */
static fl_lua_settings *push_settings(lua_State *L)
{
    fl_lua_instance *in = fl_lua_running;
    lua_State *thread = in->now.coroutine;
    lua_rawgetp(L, LUA_REGISTRYINDEX, &settings_key);
    if (!thread) lua_rawgeti(L, LUA_REGISTRYINDEX, LUA_RIDX_MAINTHREAD);
    else {
        luaL_checkstack(thread, 1, "scope");
        lua_pushthread(thread);
        if (thread != L) lua_xmove(thread, L, 1);
    }
    lua_pushvalue(L, -1);
    if (lua_rawget(L, -3) == LUA_TNIL) {
        lua_pop(L, 1);
        fl_lua_settings *s = lua_newuserdatauv(L, sizeof *s, 1);
        *s = (fl_lua_settings){0};
        lua_pushvalue(L, -2);
        lua_pushvalue(L, -2);
        lua_rawset(L, -5);
        in->now.settings = s;
        in->any_coroutine |= thread != NULL;
    }
    lua_replace(L, -3);
    lua_pop(L, 1);
    return lua_touserdata(L, -1);
}

/* ---- scopes ---- */

/* Its user values: the settings, unless they are the main program's, which stay; the object that keeps the value alive;
** the scope with such a value around this one. */
enum { OF = 1, ANCHOR, AROUND };

struct scope {
    fl_lua_settings *of; /* NULL when it is closed */
    int which;
    bool anchored;
    bool owned;      /* the coroutine had set it before, */
    uintptr_t value; /* to this */
    uint64_t turn;
    uintptr_t before; /* in force when the scope was opened, in that turn */
};

/* The scope on top belongs to the running coroutine, whose settings these become. */
static fl_lua_settings *attach(lua_State *L, bool anchored)
{
    const fl_lua_turn *now = &fl_lua_running->now;
    if (now->settings && !now->coroutine && !anchored) return now->settings;
    fl_lua_settings *of = push_settings(L);
    if (anchored) {
        lua_getiuservalue(L, -1, 1);
        lua_setiuservalue(L, -3, AROUND);
        lua_pushvalue(L, -2);
        lua_setiuservalue(L, -2, 1);
    }
    lua_setiuservalue(L, -2, OF);
    return of;
}

void fl_lua_scope_open(lua_State *L, int which, uintptr_t value, int anchor)
{
    anchor = anchor ? lua_absindex(L, anchor) : 0;
    fl_lua_enter(L);
    uint64_t turn = fl_lua_running->now.number;
    struct scope *s = lua_newuserdatauv(L, sizeof *s, anchor ? AROUND : OF);
    *s = (struct scope){.which = which, .anchored = anchor != 0, .turn = turn, .before = fl_lua_setting(which)};
    lua_rawgetp(L, LUA_REGISTRYINDEX, scope_name);
    lua_setmetatable(L, -2);
    if (anchor) {
        lua_pushvalue(L, anchor);
        lua_setiuservalue(L, -2, ANCHOR);
    }
    fl_lua_settings *of = attach(L, s->anchored);
    s->of = of;
    s->owned = of->own >> which & 1u;
    s->value = of->value[which];
    of->own |= 1u << which;
    of->value[which] = value;
    fl_lua_setting_set(which, value);
}

static int scope_close(lua_State *L)
{
    struct scope *s = luaL_checkudata(L, 1, scope_name);
    fl_lua_settings *of = s->of;
    if (!of) return 0;
    fl_lua_enter(L);
    const fl_lua_turn *now = &fl_lua_running->now;
    if (s->anchored) {
        lua_getiuservalue(L, 1, OF);
        lua_getiuservalue(L, 1, AROUND);
        lua_setiuservalue(L, -2, 1);
    }
    s->of = NULL;
    if (!s->owned) of->own &= ~(1u << s->which);
    of->value[s->which] = s->value;
    if (of != now->settings) return 0;
    if (s->turn == now->number) fl_lua_setting_set(s->which, s->before);
    else fl_lua_setting_set(s->which, s->owned ? s->value : now->outer[s->which]);
    return 0;
}

static int scope_end(lua_State *L, int status, lua_KContext context) { return lua_gettop(L) - 1; }

int fl_lua_scope_call(lua_State *L)
{
    lua_toclose(L, 1);
    lua_callk(L, lua_gettop(L) - 2, LUA_MULTRET, 0, scope_end);
    return scope_end(L, LUA_OK, 0);
}

/* ---- coroutines ---- */

/* This thread, at index, runs from here on; the one before waits. */
static void begin(lua_State *L, fl_lua_waiting *waiting, lua_State *thread, int index)
{
    fl_lua_instance *in = fl_lua_running;
    fl_lua_turn *now = &in->now;
    waiting->turn = *now;
    if (now->settings) waiting->settings = *now->settings;
    now->settings = NULL;
    if (in->any_coroutine) {
        index = lua_absindex(L, index);
        lua_rawgetp(L, LUA_REGISTRYINDEX, &settings_key);
        lua_pushvalue(L, index);
        lua_rawget(L, -2);
        now->settings = lua_touserdata(L, -1);
        lua_pop(L, 2);
    }
    now->number = ++in->turns;
    now->coroutine = thread;
    for (int i = 0; i < FL_SETTINGS; i++) {
        waiting->value[i] = now->outer[i] = fl_lua_setting(i);
        if (now->settings && now->settings->own >> i & 1u) fl_lua_setting_set(i, now->settings->value[i]);
    }
}

/* The one that waited goes on. A scope of its own may have been closed meanwhile. */
static void end(const fl_lua_waiting *waiting)
{
    fl_lua_turn *now = &fl_lua_running->now;
    *now = waiting->turn;
    const fl_lua_settings *s = now->settings, *old = &waiting->settings;
    for (int i = 0; i < FL_SETTINGS; i++) {
        unsigned own = s ? s->own >> i & 1u : 0;
        bool same = !s || ((old->own >> i & 1u) == own && old->value[i] == s->value[i]);
        fl_lua_setting_set(i, same ? waiting->value[i] : own ? s->value[i] : now->outer[i]);
    }
}

/* True if the thread runs, or waits for a function that it called. */
static bool is_active(lua_State *thread)
{
    lua_Debug ar;
    return lua_status(thread) == LUA_OK && lua_getstack(thread, 0, &ar);
}

void fl_lua_turn_to(lua_State *L)
{
    fl_lua_instance *in = fl_lua_running;
    if (in->visited) {
        lua_State *visitor = in->now.coroutine;
        if (L == visitor || is_active(visitor)) return; /* it called into L: its settings hold there too */
        in->visited = false;
        end(&in->below);
    }
    if (L == (in->now.coroutine ? in->now.coroutine : in->main)) return;
    luaL_checkstack(L, 4, "flow");
    lua_pushthread(L);
    begin(L, &in->below, L, -1);
    lua_pop(L, 1);
    in->visited = true;
}

/* On the C stack while a coroutine runs. */
struct resumer {
    fl_lua_instance *instance;
    fl_lua_waiting waiting, below;
    bool visited;
};

/* The coroutine, at index, runs from here on. */
static void enter(lua_State *L, struct resumer *resumer, lua_State *co, int index)
{
    fl_lua_enter(L);
    fl_lua_instance *in = fl_lua_running;
    resumer->instance = in;
    resumer->visited = in->visited;
    if (in->visited) resumer->below = in->below;
    in->visited = false;
    begin(L, &resumer->waiting, co, index);
    fl_lua_current = co;
}

static void leave(lua_State *L, const struct resumer *resumer)
{
    fl_lua_instance *in = resumer->instance;
    if (in != fl_lua_running) fl_lua_change(in);
    if (in->visited) end(&in->below);
    end(&resumer->waiting);
    in->visited = resumer->visited;
    if (in->visited) in->below = resumer->below;
    if (L == in->main) fl_lua_current = L;
    else fl_lua_hold(L);
}

static lua_State *check_coroutine(lua_State *L)
{
    lua_State *co = lua_tothread(L, 1);
    if (!co) luaL_typeerror(L, 1, "thread");
    return co;
}

/* Resumes the coroutine at index with the `given` values on top; returns the number of its values, on top instead; -1:
** an error message. */
static int resume(lua_State *L, int index, int given)
{
    lua_State *co = lua_tothread(L, index);
    struct resumer w;
    int count = 0;
    if (!lua_checkstack(co, given)) {
        lua_pushliteral(L, "too many arguments to resume");
        return -1;
    }
    enter(L, &w, co, index);
    lua_xmove(L, co, given);
    int status = lua_resume(co, L, given, &count);
    leave(L, &w);
    if (status != LUA_OK && status != LUA_YIELD) {
        lua_xmove(co, L, 1);
        return -1;
    }
    if (!lua_checkstack(L, count + 1)) {
        lua_pop(co, count);
        lua_pushliteral(L, "too many results to resume");
        return -1;
    }
    lua_xmove(co, L, count);
    return count;
}

/* coroutine.resume(co, ...) */
static int coroutine_resume(lua_State *L)
{
    check_coroutine(L);
    int count = resume(L, 1, lua_gettop(L) - 1);
    lua_pushboolean(L, count >= 0);
    if (count < 0) count = 1;
    lua_insert(L, -count - 1);
    return count + 1;
}

/* Closes what the coroutine at index left open; an error of its own or of that is pushed. */
static int reset(lua_State *L, int index)
{
    lua_State *co = lua_tothread(L, index);
    struct resumer w;
    enter(L, &w, co, index);
    int status = lua_resetthread(co);
    leave(L, &w);
    if (status != LUA_OK) lua_xmove(co, L, 1);
    return status;
}

/* The function that coroutine.wrap returns. */
static int wrapped(lua_State *L)
{
    int thread = lua_upvalueindex(1), count = resume(L, thread, lua_gettop(L));
    if (count >= 0) return count;
    int status = lua_status(lua_tothread(L, thread));
    if (status != LUA_OK && status != LUA_YIELD) { /* the error was raised inside: it ends the coroutine */
        lua_pop(L, 1);
        status = reset(L, thread);
    }
    if (status != LUA_ERRMEM && lua_type(L, -1) == LUA_TSTRING) {
        luaL_where(L, 1);
        lua_insert(L, -2);
        lua_concat(L, 2);
    }
    return lua_error(L);
}

/* coroutine.wrap(f) */
static int coroutine_wrap(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TFUNCTION);
    lua_State *co = lua_newthread(L);
    lua_pushvalue(L, 1);
    lua_xmove(L, co, 1);
    lua_pushcclosure(L, wrapped, 1);
    return 1;
}

/* The status of a coroutine that cannot be closed; NULL when it can. */
static const char *busy(lua_State *L, lua_State *co)
{
    lua_Debug ar;
    if (co == L) return "running";
    return lua_status(co) == LUA_OK && lua_getstack(co, 0, &ar) ? "normal" : NULL;
}

/* coroutine.close(co) */
static int coroutine_close(lua_State *L)
{
    const char *what = busy(L, check_coroutine(L));
    if (what) return luaL_error(L, "cannot close a %s coroutine", what);
    bool good = reset(L, 1) == LUA_OK;
    lua_pushboolean(L, good);
    if (good) return 1;
    lua_insert(L, -2);
    return 2;
}

/* ---- opening ---- */

void fl_lua_open_scopes(lua_State *L)
{
    static const luaL_Reg functions[] = {
        {"resume", coroutine_resume}, {"wrap", coroutine_wrap}, {"close", coroutine_close}, {NULL, NULL}};
    fl_lua_instance_open(L);
    if (!luaL_newmetatable(L, scope_name)) {
        lua_pop(L, 1);
        return;
    }
    lua_pushvalue(L, -1);
    lua_rawsetp(L, LUA_REGISTRYINDEX, scope_name); /* is found more quickly */
    lua_pushcfunction(L, scope_close);
    lua_setfield(L, -2, "__close");
    fl_lua_set_object(L, "a scope (for local _ <close> = ...)");
    lua_newtable(L);
    lua_createtable(L, 0, 1);
    lua_pushliteral(L, "k");
    lua_setfield(L, -2, "__mode");
    lua_setmetatable(L, -2);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &settings_key);
    if (lua_getglobal(L, LUA_COLIBNAME) == LUA_TTABLE) luaL_setfuncs(L, functions, 0);
    lua_pop(L, 2);
}
