#!/bin/sh
# Writes a C file with every Lua module given as a byte array and a table of them (see src/lua/bind/modules.h).
set -eu
printf '#include "modules.h"\n'
for path in "$@"; do
    name=$(basename "$path" .lua)
    printf 'static const unsigned char source_%s[] = {\n' "$name"
    od -An -v -tx1 "$path" | sed 's/ *\([0-9a-f][0-9a-f]\)/0x\1,/g'
    printf '};\n'
done
printf 'const fl_lua_module fl_lua_modules[] = {\n'
for path in "$@"; do
    name=$(basename "$path" .lua)
    printf '    {"%s", (const char *)source_%s, sizeof source_%s},\n' "$name" "$name" "$name"
done
printf '    {0, 0, 0}\n};\n'
