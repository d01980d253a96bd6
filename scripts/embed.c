/*
** embed.c -- writes a C file with every Lua module named on the command line, and a table of them (src/lua/bind/modules.h):
** the source, packed, which help reads, and what the Lua that this program is linked with compiled it to. Without one
** (FL_EMBED_SOURCE_ONLY) modules are compiled when they are loaded.
*/
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

typedef struct bytes {
    unsigned char *data;
    size_t size;
} bytes;

static void die(const char *what, const char *why)
{
    fprintf(stderr, "embed: %s: %s\n", what, why);
    exit(1);
}

static void *room(void *old, size_t size)
{
    void *p = realloc(old, size);
    if (!p) die("room", "out of memory");
    return p;
}

static bytes read_file(const char *path)
{
    bytes b = {NULL, 0};
    FILE *file = fopen(path, "rb");
    if (!file) die(path, "cannot be opened");
    for (size_t got = 1; got;) {
        b.data = room(b.data, b.size + 65536);
        b.size += got = fread(b.data + b.size, 1, 65536, file);
    }
    fclose(file);
    return b;
}

static bytes pack(bytes from, const char *path)
{
    uLongf size = compressBound((uLong)from.size);
    bytes to = {room(NULL, size), 0};
    if (compress2(to.data, &size, from.data, (uLong)from.size, Z_BEST_COMPRESSION) != Z_OK) die(path, "cannot be packed");
    to.size = size;
    return to;
}

#ifdef FL_EMBED_SOURCE_ONLY
static bytes compile(bytes source, const char *name) { return (bytes){NULL, 0}; }
#else
#include <lauxlib.h>

static int add(lua_State *L, const void *piece, size_t size, void *to)
{
    bytes *b = to;
    b->data = room(b->data, b->size + size + 1);
    memcpy(b->data + b->size, piece, size);
    b->size += size;
    return 0;
}

/* With names and lines, for messages. */
static bytes compile(bytes source, const char *name)
{
    char chunk[128];
    bytes code = {NULL, 0};
    lua_State *L = luaL_newstate();
    if (!L) die(name, "out of memory");
    snprintf(chunk, sizeof chunk, "=flow.%s", name);
    if (luaL_loadbufferx(L, (char *)source.data, source.size, chunk, "t") != LUA_OK) die(name, lua_tostring(L, -1));
    lua_dump(L, add, &code, 0);
    lua_close(L);
    return code;
}
#endif

/* The size of a byte in text counts: the compiler reads megabytes of it. */
static void write_array(const char *kind, const char *name, bytes b)
{
    printf("static const unsigned char %s_%s[] = {", kind, name);
    for (size_t i = 0; i < b.size; i++) printf("%s%d,", i % 32 ? "" : "\n", b.data[i]);
    printf("0};\n");
}

static char *name_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *name = strdup(slash ? slash + 1 : path), *dot = name ? strrchr(name, '.') : NULL;
    if (!dot) die(path, "is no Lua file");
    *dot = '\0';
    return name;
}

int main(int argc, char **argv)
{
    printf("#include \"modules.h\"\n");
    char *table = room(NULL, (size_t)argc * 512), *at = table;
    for (int i = 1; i < argc; i++) {
        char *name = name_of(argv[i]);
        bytes source = read_file(argv[i]), packed = pack(source, argv[i]), code = compile(source, name);
        write_array("source", name, packed);
        write_array("code", name, code);
        at += snprintf(at, 512, "    {\"%s\", source_%s, %zu, %zu, code_%s, %zu},\n", name, name, packed.size, source.size,
                       name, code.size);
        free(source.data);
        free(packed.data);
        free(code.data);
        free(name);
    }
    *at = '\0';
    printf("const fl_lua_module fl_lua_modules[] = {\n%s    {0, 0, 0, 0, 0, 0}\n};\n", table);
    free(table);
    return 0;
}
