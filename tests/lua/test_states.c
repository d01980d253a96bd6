/*
** test_states.c -- the module flow in a C program's lua_States: one after the other, several at once, threads that the
** program resumes, threads of the system, and what is left when a state is closed.
*/
#define _GNU_SOURCE
#include "../c/check.h"
#include "../c/threads.h"
#include "lua/bind/instance.h"
#include "lua/bind/modules.h"
#include "lua/bind/state.h"

#include <lauxlib.h>
#include <lualib.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- states ---- */

static lua_State *other; /* the state of call_other(code) */

/* call_other(code) -> what the code gives, as a text, or its error message */
static int call_other(lua_State *L)
{
    int top = lua_gettop(other);
    if (luaL_dostring(other, luaL_checkstring(L, 1)) != LUA_OK)
        lua_pushfstring(L, "error: %s", lua_tostring(other, -1));
    else lua_pushstring(L, luaL_tolstring(other, top + 1, NULL));
    lua_settop(other, top);
    return 1;
}

static lua_State *opened(lua_State *L)
{
    luaL_openlibs(L);
    luaL_requiref(L, "flow", luaopen_flow, 1);
    lua_register(L, "call_other", call_other);
    lua_settop(L, 0);
    return L;
}

static lua_State *state_new(void) { return opened(luaL_newstate()); }

/* The result of the code, as a text; its error message. */
static const char *run(lua_State *L, const char *code)
{
    lua_settop(L, 0);
    if (luaL_dostring(L, code) != LUA_OK || lua_gettop(L) == 0) return lua_gettop(L) ? lua_tostring(L, -1) : "";
    return luaL_tolstring(L, 1, NULL);
}

static const char *tensors(lua_State *L)
{
    return run(L, "collectgarbage() collectgarbage() return flow.memory().tensors");
}

static const char trains[] = "local nn = flow.nn\n"
                             "local net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))\n"
                             "local opt = flow.optim.Adam(net:parameters(), {lr = 0.01})\n"
                             "local step = flow.capture(function(x, t)\n"
                             "    local loss = flow.cross_entropy(net(x), t)\n"
                             "    opt:zero_grad() loss:backward() opt:step()\n"
                             "    return loss\n"
                             "end)\n"
                             "local x, t, last = flow.randn(16, 4), flow.randint(0, 2, {16})\n"
                             "for i = 1, 10 do last = step(x, t) end\n"
                             "weight = net:parameters()[1]\n"
                             "return last:item() > 0";

static void test_one_after_the_other(void)
{
    for (int i = 0; i < 12; i++) {
        lua_State *L = state_new();
        CHECK_TEXT(run(L, trains), "true");
        lua_close(L);
    }
    lua_State *L = state_new();
    CHECK_TEXT(tensors(L), "0");
    lua_close(L);
}

static void test_several_at_once(void)
{
    enum { STATES = 6 };
    lua_State *list[STATES];
    for (int i = 0; i < STATES; i++) list[i] = state_new();
    for (int turn = 0; turn < 2; turn++)
        for (int i = 0; i < STATES; i++) CHECK_TEXT(run(list[i], trains), "true");
    for (int i = 0; i < STATES; i += 2) lua_close(list[i]);
    for (int i = 1; i < STATES; i += 2) CHECK_TEXT(run(list[i], trains), "true");
    for (int i = 1; i < STATES; i += 2) lua_close(list[i]);
}

/* The first read of a name makes the op's function, also when another state has run last. */
static void test_functions_are_the_states_own(void)
{
    lua_State *a = state_new(), *b = state_new();
    run(b, "return flow.ones(2):sum():item()");
    run(a, "f, g = flow.cosh, flow._methods.sinh_");
    lua_close(b);
    CHECK_TEXT(run(a, "return g(f(flow.zeros(2)) - 1):sum():item()"), "0.0");
    lua_close(a);
}

/* Boxes in flowlua's own heap have no finalizers, those of other states do. */
static void test_own_heap_and_another(void)
{
    for (int own_first = 0; own_first < 2; own_first++) {
        lua_State *a = own_first ? opened(fl_lua_new_state()) : state_new();
        lua_State *b = own_first ? state_new() : opened(fl_lua_new_state());
        const char *code = "for i = 1, 100 do local x = flow.ones(4) + i end return 'done'";
        CHECK_TEXT(run(a, code), "done");
        CHECK_TEXT(run(b, code), "done");
        CHECK_TEXT(run(a, code), "done");
        tensors(a);
        CHECK_TEXT(tensors(b), "0");
        CHECK_TEXT(tensors(a), "0");
        lua_close(b);
        CHECK_TEXT(run(a, code), "done");
        CHECK_TEXT(tensors(a), "0");
        lua_close(a);
    }
    fl_lua_own_process = false; /* fl_lua_new_state takes it for flowlua's */
}

/* ---- settings ---- */

static void test_settings_are_the_states_own(void)
{
    lua_State *L = state_new();
    other = state_new();
    CHECK_TEXT(run(L, "return flow.no_grad(function() return call_other 'return flow.is_grad_enabled()' end)"), "true");
    CHECK_TEXT(
        run(L, "return flow.no_grad(function() call_other 'local x = flow.ones(1)' return flow.is_grad_enabled() end)"),
        "false");
    CHECK_TEXT(run(L, "return flow.is_grad_enabled()"), "true");
    CHECK_TEXT(run(L, "return flow.with_device('meta', function() return call_other 'return flow.ones(1).device' end)"),
               "cpu");
    CHECK_TEXT(run(L,
                   "return flow.with_device('meta', function() call_other 'return flow.ones(1)' return "
                   "flow.ones(1).device end)"),
               "meta");
    CHECK_TEXT(run(L,
                   "local g = flow.generator(7)\n"
                   "return flow.with_generator(g, function() call_other 'flow.rand(3)' return g:state().counter end)"),
               "0");
    run(other, "kept = flow.no_grad()");
    CHECK_TEXT(run(L, "return flow.is_grad_enabled()"), "true");
    lua_close(other); /* with its scope open */
    CHECK_TEXT(run(L, "return flow.is_grad_enabled()"), "true");
    lua_close(L);
}

static void test_own_ops_are_the_states_own(void)
{
    static const char defines[] = "flow.op{name = 'own_scale', forward = function(x) return x * factor end,\n"
                                  "    backward = function(ctx, g) return g * factor end}\n"
                                  "flow.op{name = 'own_line', formula = 'x * 2 + 1'}\n"
                                  "local x = flow.ones(1, {requires_grad = true})\n"
                                  "local y = x:own_scale():own_line()\n"
                                  "y:backward()\n"
                                  "return ('%g %g'):format(y:item(), x.grad:item())";
    lua_State *L = state_new();
    other = state_new();
    run(L, "factor = 3");
    CHECK_TEXT(run(L, defines), "7 6");
    CHECK_TEXT(run(other, "return flow.has 'own_scale'"), "false");
    run(other, "factor = 5");
    CHECK_TEXT(run(other, defines), "11 10"); /* the same names */
    CHECK_TEXT(run(L, "return flow.own_scale(flow.ones(1)):item()"), "3.0");
    CHECK_TEXT(run(other, "return flow.own_scale(flow.ones(1)):item()"), "5.0");
    lua_close(L);
    CHECK_TEXT(run(other, "return flow.own_scale(flow.ones(1)):item()"), "5.0");
    lua_close(other);
    for (int i = 0; i < 3; i++) { /* plans of closed states are no other op's */
        L = state_new();
        run(L, "factor = 2");
        CHECK_TEXT(run(L, defines), "5 4");
        lua_close(L);
    }
}

/* A formula and its gradient in one state after the other: more of them than there once was room for. */
static void test_own_ops_have_no_limit(void)
{
    for (int i = 0; i < 180; i++) {
        lua_State *L = state_new();
        CHECK_TEXT(run(L,
                       "local f = flow.op{name = 'swish', formula = 'x * sigmoid(x) * y'} "
                       "local x = flow.zeros(1, {requires_grad = true}) "
                       "f(x, flow.ones(1) * 4):backward() return x.grad:item()"),
                   "2.0");
        lua_close(L);
    }
}

static void test_gradients_in_both(void)
{
    lua_State *L = state_new();
    other = state_new();
    CHECK_TEXT(run(L,
                   "local seen\n"
                   "local x = flow.ones(2, {requires_grad = true})\n"
                   "local y = x * 2\n"
                   "y:register_hook(function(g)\n"
                   "    seen = call_other [[local a = flow.ones(3, {requires_grad = true}); (a * a):sum():backward()\n"
                   "        return a.grad:sum():item()]]\n"
                   "end)\n"
                   "y:sum():backward()\n"
                   "return seen .. ' ' .. x.grad:sum():item()"),
               "6.0 4.0");
    lua_close(other);
    lua_close(L);
}

/* The program resumes its threads itself, as one that schedules scripts does. */
static void test_threads_that_the_program_resumes(void)
{
    lua_State *L = state_new();
    int count;
    run(L, "function sleepy() local _ <close> = flow.no_grad() coroutine.yield() return flow.is_grad_enabled() end");
    lua_State *a = lua_newthread(L), *b = lua_newthread(L);
    lua_getglobal(a, "sleepy");
    CHECK(lua_resume(a, NULL, 0, &count) == LUA_YIELD);
    CHECK(luaL_loadstring(b, "local on = flow.is_grad_enabled() coroutine.yield(on) return flow.is_grad_enabled()")
          == LUA_OK);
    CHECK(lua_resume(b, NULL, 0, &count) == LUA_YIELD && lua_toboolean(b, -1));
    lua_settop(b, 0);
    CHECK(luaL_dostring(L, "return flow.is_grad_enabled()") == LUA_OK && lua_toboolean(L, -1));
    CHECK(lua_resume(a, NULL, 0, &count) == LUA_OK && !lua_toboolean(a, -1));
    CHECK(lua_resume(b, NULL, 0, &count) == LUA_OK && lua_toboolean(b, -1));
    CHECK(luaL_dostring(L, "return flow.is_grad_enabled()") == LUA_OK && lua_toboolean(L, -1));
    lua_close(L);
}

/* resume_there(f) -> what f gives, run by lua_resume in a new thread */
static int resume_there(lua_State *L)
{
    lua_State *thread = lua_newthread(L);
    int count;
    lua_pushvalue(L, 1);
    lua_xmove(L, thread, 1);
    CHECK(lua_resume(thread, L, 0, &count) == LUA_OK);
    lua_xmove(thread, L, 1);
    return 1;
}

static void test_threads_under_a_script(void)
{
    lua_State *L = state_new();
    lua_register(L, "resume_there", resume_there);
    CHECK_TEXT(run(L, "return flow.no_grad(function() return resume_there(flow.is_grad_enabled) end)"), "false");
    CHECK_TEXT(
        run(L,
            "return resume_there(function() local _ <close> = flow.no_grad()\n"
            "    return tostring(flow.is_grad_enabled()) .. tostring(coroutine.wrap(flow.is_grad_enabled)()) end)"),
        "falsefalse");
    CHECK_TEXT(run(L, "resume_there(function() kept = flow.no_grad() return 1 end) return flow.is_grad_enabled()"),
               "true");
    CHECK_TEXT(run(L,
                   "return coroutine.wrap(function() local _ <close> = flow.no_grad()\n"
                   "    return resume_there(flow.is_grad_enabled) end)()"),
               "false");
    CHECK_TEXT(run(L, "return flow.is_grad_enabled()"), "true");
    lua_close(L);
}

/* ---- recordings ---- */

static void test_recording_is_not_disturbed(void)
{
    lua_State *L = state_new();
    other = state_new();
    run(L, "function f(x) said = call_other 'return flow.ones(2) + 1' return x * 2 end");
    const char *want = "error: [string \"return flow.ones(2) + 1\"]:1: flow: another lua_State is inside flow.capture, "
                       "which would record what this one computes; call it before or after";
    CHECK_TEXT(run(L, "local c = flow.capture(f) c(flow.ones(2)) return said"), want);
    CHECK_TEXT(run(L, "return flow.capture(f)(flow.ones(2)):sum():item()"), "4.0");
    CHECK(strstr(run(L, "flow.trace(f, {flow.spec {2}}) return said"), "inside flow.trace") != NULL);
    CHECK(strstr(run(L, "flow.explain(function() f(flow.ones(2)) end) return said"), "inside flow.explain") != NULL);
    CHECK(strstr(run(L, "local x = flow.ones(2, {requires_grad = true}) flow.checkpoint(f, x) return said"),
                 "inside flow.checkpoint")
          != NULL);
    CHECK_TEXT(run(other, "return (flow.ones(2) + 1):sum():item()"), "4.0");
    lua_close(other);
    lua_close(L);
}

/* ---- the end of a state ---- */

static void test_hooks_end_with_their_state(void)
{
    lua_State *L = state_new();
    other = state_new();
    run(other,
        "x = flow.ones(2, {requires_grad = true}) y = x * 2 y:register_hook(function() end)\n"
        "z = flow.checkpoint(function(a) return a * a end, x)");
    lua_close(other);
    CHECK_TEXT(run(L, "kept = {} for i = 1, 50 do kept[i] = flow.ones(2) * i end return #kept"), "50");
    lua_close(L);
}

static void test_finalizers_at_the_end(void)
{
    lua_State *L = luaL_newstate();
    luaL_openlibs(L);
    run(L, "setmetatable({}, {__gc = function() good = pcall(function() return flow.ones(2) + 1 end) end})");
    opened(L);
    run(L, "setmetatable({}, {__gc = function() return x:numel() end}) x = flow.ones(3)");
    lua_close(L);
    L = state_new();
    CHECK_TEXT(tensors(L), "0");
    lua_close(L);
}

static void test_jobs_at_the_end(void)
{
    static const char code[] =
        "local x = flow.zeros(1000)\n"
        "for i = 1, 100 do\n"
        "    local y = x + i\n"
        "    flow.engine.push {run = function(reads, writes) writes[1][0] = writes[1][0] + reads[1][0]\n"
        "        return ('x'):rep(50) end, reads = {y}, writes = {x}}\n"
        "end\n"
        "collectgarbage()\n";
    for (int i = 0; i < 4; i++) {
        lua_State *L = state_new();
        run(L, code);
        if (i % 2) CHECK_TEXT(run(L, "return flow.engine.push {run = 'return 5'}:wait()"), "5");
        lua_close(L); /* with jobs that nobody has waited for */
    }
}

/* ---- threads of the system ---- */

static char thread_text[512];

static void *run_in_thread(void *L)
{
    snprintf(thread_text, sizeof thread_text, "%s", run(L, "return flow.ones(2):sum():item()"));
    return NULL;
}

static void *close_in_thread(void *L)
{
    lua_close(L);
    return NULL;
}

static void *live_in_thread(void *context)
{
    lua_State *L = state_new();
    snprintf(thread_text, sizeof thread_text, "%s", run(L, trains));
    lua_close(L);
    return NULL;
}

static void in_thread(void *(*function)(void *), void *context)
{
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, function, context) == 0 && pthread_join(thread, NULL) == 0);
}

static void test_one_thread_calls(void)
{
    static const char want[] =
        "[string \"return flow.ones(2):sum():item()\"]:1: flow: called on another thread than the "
        "one that required it first; all lua_States of a process that use flow run on one thread";
    lua_State *L = state_new();
    in_thread(run_in_thread, L);
    CHECK_TEXT(thread_text, want);
    CHECK_TEXT(run(L, "return flow.ones(2):sum():item()"), "2.0");
    other = state_new();
    run(other, "x = flow.ones(5) + 1");
    in_thread(close_in_thread, other);
    CHECK_TEXT(run(L,
                   "local x = flow.ones(1) for i = 1, 3 do x = x + flow.ones(1 << 20) end collectgarbage() return "
                   "flow.memory().tensors"),
               "1");
    lua_close(L);
    in_thread(live_in_thread, NULL);
    CHECK_TEXT(thread_text, "true");
    L = state_new();
    CHECK_TEXT(run(L, trains), "true");
    lua_close(L);
}

/* Those of loops, of jobs and of batches. */
static void test_threads_end_with_the_last_state(void)
{
    for (int turn = 0; turn < 2; turn++) {
        lua_State *L = state_new(), *second = state_new();
        CHECK_TEXT(
            run(L,
                "flow.set_num_threads(3)\n"
                "local x, batches = flow.ones(1000, 1000):exp(), 0\n"
                "for batch in flow.data.loader(flow.data.tensors(flow.ones(64, 4)), {batch_size = 8, workers = 3}) do\n"
                "    batches = batches + 1\n"
                "end\n"
                "return flow.engine.push{run = function() return 7 end}:wait() + batches"),
            "15");
        CHECK(count_threads() > 3);
        lua_close(L);
        CHECK_TEXT(run(second, "return flow.ones(3):sum():item()"), "3.0");
        lua_close(second);
        for (int k = 0; k < 2000 && count_threads() > 1; k++) usleep(1000); /* a thread is listed a moment longer */
        CHECK(count_threads() == 1);
    }
}

int main(void)
{
    RUN(test_one_after_the_other);
    RUN(test_several_at_once);
    RUN(test_functions_are_the_states_own);
    RUN(test_own_heap_and_another);
    RUN(test_settings_are_the_states_own);
    RUN(test_own_ops_are_the_states_own);
    RUN(test_own_ops_have_no_limit);
    RUN(test_gradients_in_both);
    RUN(test_threads_that_the_program_resumes);
    RUN(test_threads_under_a_script);
    RUN(test_recording_is_not_disturbed);
    RUN(test_hooks_end_with_their_state);
    RUN(test_finalizers_at_the_end);
    RUN(test_jobs_at_the_end);
    RUN(test_one_thread_calls);
    RUN(test_threads_end_with_the_last_state);
    return finish();
}
