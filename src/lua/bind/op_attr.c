/*
** op_attr.c -- attributes of a call of an op: numbers, lists, words.
*/
#include "op_binding.h"

#include <math.h>
#include <stdio.h>

bool fl_lua_is_list_type(fl_attr_type type)
{
    return type == FL_ATTR_AXES || type == FL_ATTR_INTS || type == FL_ATTR_SIZES;
}

bool fl_lua_takes_numbers(fl_attr_type type)
{
    return fl_lua_is_list_type(type) || type == FL_ATTR_INT || type == FL_ATTR_FLOAT || type == FL_ATTR_SCALAR
        || type == FL_ATTR_AXIS;
}

/* A word, which another function may take: norm(x, "fro"). */
static _Noreturn void raise_no_number(lua_State *L, const char *who, const fl_param *param, int index)
{
    const char *advice = lua_type(L, index) == LUA_TSTRING ? fl_lua_advice(who, lua_tostring(L, index)) : NULL;
    FL_RAISE(L, "%s: %s must be a number, got %s%s%s", who, param->name, fl_lua_type_name(L, index), advice ? "; " : "",
             advice ? advice : "");
}

static void read_scalar(lua_State *L, fl_attr *attr, const char *who, const fl_param *param, int index)
{
    bool boolean = lua_isboolean(L, index) && param->type == FL_ATTR_SCALAR;
    if (!boolean && lua_type(L, index) != LUA_TNUMBER) raise_no_number(L, who, param, index);
    if (boolean) {
        attr->kind = FL_NUM_BOOL;
        attr->integer = lua_toboolean(L, index);
    } else if (param->type == FL_ATTR_SCALAR && lua_isinteger(L, index)) {
        attr->kind = FL_NUM_INT;
        attr->integer = lua_tointeger(L, index);
    } else {
        attr->kind = FL_NUM_FLOAT;
        attr->number = lua_tonumber(L, index);
        if (attr->number != attr->number) attr->number = NAN; /* 0 / 0 has a sign that messages would show */
    }
}

/* Position of `word` among words, "mean|sum|none", or -1. */
static int word_position(const char *words, const char *word)
{
    size_t length = strlen(word);
    for (int i = 0;; i++, words++) {
        size_t one = strcspn(words, "|");
        if (one == length && memcmp(words, word, length) == 0) return i;
        words += one;
        if (!*words) return -1;
    }
}

static _Noreturn void raise_word(lua_State *L, const char *who, const fl_param *param, const char *word)
{
    char words[sizeof param->words], *rest = words, best[sizeof param->words] = "";
    memcpy(words, param->words, sizeof words);
    fl_suggestion s = {.word = word};
    while (rest) fl_suggest_offer(&s, strsep(&rest, "|"));
    if (s.best) snprintf(best, sizeof best, "; did you mean '%s'?", s.best);
    FL_RAISE(L, "%s: %s must be one of %s, got '%s'%s", who, param->name, param->words, word, best);
}

/* Position of the string at index among the words. */
static int read_word(lua_State *L, const char *who, const fl_param *param, int index)
{
    if (lua_type(L, index) != LUA_TSTRING)
        FL_RAISE(L, "%s: %s must be one of %s, got %s", who, param->name, param->words, fl_lua_type_name(L, index));
    const char *word = lua_tostring(L, index);
    int position = word_position(param->words, word);
    if (position < 0) raise_word(L, who, param, word);
    return position;
}

void fl_lua_read_attr(lua_State *L, fl_lua_binding *binding, const fl_param *param, int index, int numbers)
{
    fl_attr *a = &binding->attrs.at[param->slot];
    const char *who = binding->call->name;
    a->given = true;
    a->count = 1;
    a->kind = FL_NUM_INT;
    switch (param->type) {
    case FL_ATTR_BOOL:
        if (!lua_isboolean(L, index))
            FL_RAISE(L, "%s: %s must be true or false, got %s", who, param->name, fl_lua_type_name(L, index));
        a->integer = lua_toboolean(L, index);
        break;
    case FL_ATTR_INT:
    case FL_ATTR_AXIS: a->integer = fl_lua_check_integer(L, index, who, param->name); break;
    case FL_ATTR_FLOAT:
    case FL_ATTR_SCALAR: read_scalar(L, a, who, param, index); break;
    case FL_ATTR_DTYPE: a->integer = fl_lua_check_dtype(L, index, who); break;
    case FL_ATTR_WORD: a->integer = read_word(L, who, param, index); break;
    case FL_ATTR_TEXT:
        if (lua_type(L, index) != LUA_TSTRING)
            FL_RAISE(L, "%s: %s must be a string, got %s", who, param->name, fl_lua_type_name(L, index));
        a->text = lua_tostring(L, index);
        break;
    case FL_ATTR_OPTIONS: break;
    case FL_ATTR_AXES:
    case FL_ATTR_INTS:
    case FL_ATTR_SIZES:
        memset(a->list, 0, sizeof a->list);
        if (*param->words && lua_type(L, index) == LUA_TSTRING) {
            a->kind = FL_WORD;
            a->integer = read_word(L, who, param, index);
        } else if (lua_istable(L, index))
            a->count = fl_lua_check_list(L, index, a->list, FL_MAX_NDIM, who, param->name);
        else {
            if (numbers > FL_MAX_NDIM)
                FL_RAISE(L, "%s: %s holds at most %d numbers, got %d", who, param->name, FL_MAX_NDIM, numbers);
            if (lua_type(L, index) != LUA_TNUMBER)
                FL_RAISE(L, "%s: %s must be a whole number or a list of them, got %s", who, param->name,
                         fl_lua_type_name(L, index));
            for (int i = 0; i < numbers; i++) a->list[i] = fl_lua_check_integer(L, index + i, who, param->name);
            a->count = numbers;
        }
    }
}
