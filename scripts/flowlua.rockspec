-- flowlua.rockspec -- how LuaRocks builds the module flow from a release; `make rock` fills in version and address.
rockspec_format = "3.0"
package = "flowlua"
version = "@VERSION@-1"
source = {url = "@URL@"}
description = {
    summary = "Tensors with gradients, on one rank or many",
    detailed = [[
        A module for deep learning: dense tensors with automatic gradients, neural network layers and optimizers, on
        CPUs, on NVIDIA GPUs, and spread over the ranks of an MPI job.]],
    labels = {"math", "tensor", "deeplearning", "mpi"},
}
supported_platforms = {"linux"}
dependencies = {"lua >= 5.4, < 5.5"}
external_dependencies = {
    ZLIB = {header = "zlib.h"},
    JANSSON = {header = "jansson.h"},
}
build = {
    type = "make",
    build_target = "module",
    build_variables = {CC = "$(CC)", LUA_CFLAGS = "-I$(LUA_INCDIR)"},
    install_target = "install-module",
    install_variables = {CC = "$(CC)", LUA_CFLAGS = "-I$(LUA_INCDIR)", LUA_LIBDIR = "$(LIBDIR)"},
}
