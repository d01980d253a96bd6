/*
** nvrtc.cu -- sources to kernels: NVRTC, the headers that sources include, and the driver that loads what was compiled.
**
** NVRTC and the driver's own interface are opened by name, never linked. Products are rounded before they are added
** (-fmad=false), as in the kernels that do one op at a time, so both give the same bits.
**
** FLOW_NVRTC: the library to open instead of those that are looked for. In the emulation there is only that one, and it
** stands for the driver too.
*/
#include "nvrtc.h"
#include "nvrtc_abi.h"
#include "runtime.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern "C" {
#include "core/base/hash.h"
}

/* ---- headers that sources include ---- */

/* Embedded by texts.c. */
extern "C" const char fl_text_values[], fl_text_divide[], fl_text_special[], fl_text_math[], fl_text_formulas[],
    fl_text_fused[];
static const char *const header_names[] = {"cuda/parts/values.h",
                                           "cuda/parts/divide.h",
                                           "core/op/special.h",
                                           "cuda/kernels/elementwise_math.h",
                                           "core/op/elementwise_formulas.inc",
                                           "cuda/kernels/fused.cuh"};
static const char *const headers[] = {fl_text_values, fl_text_divide,   fl_text_special,
                                      fl_text_math,   fl_text_formulas, fl_text_fused};
enum { HEADERS = sizeof headers / sizeof *headers, MOST_ARCHS = 64 };

/* ---- the libraries ---- */

/* clang-format off */
#define FL_NVRTC_FUNCTIONS(X)                                                                                     \
    X(Version) X(GetNumSupportedArchs) X(GetSupportedArchs) X(CreateProgram) X(CompileProgram) X(DestroyProgram)  \
    X(GetProgramLogSize) X(GetProgramLog) X(GetCUBINSize) X(GetCUBIN) X(GetPTXSize) X(GetPTX)
#define FL_DRIVER_FUNCTIONS(X) X(ModuleLoadData) X(ModuleGetFunction) X(LaunchKernel)
/* clang-format on */

static struct {
#define FL_NVRTC_FIELD(name) decltype(&nvrtc##name) name;
    FL_NVRTC_FUNCTIONS(FL_NVRTC_FIELD)
#define FL_DRIVER_FIELD(name) decltype(&cu##name) name;
    FL_DRIVER_FUNCTIONS(FL_DRIVER_FIELD)
    bool tried, found;
    int major, minor;
    int arch_count, archs[MOST_ARCHS];
} rtc;

/* Once in a process. */
static void warn(const char *what, const char *why)
{
    static bool warned;
    if (!warned)
        fprintf(stderr, "flowlua: %s: elementwise ops on the GPU run one by one%s%s\n", what, *why ? ": " : "", why);
    warned = true;
}

static void *open_library(void)
{
    static const int majors[] = FL_CUDA_MAJORS;
    void *library = fl_cuda_library("FLOW_NVRTC", "nvrtc", majors, 2);
#ifndef FL_EMULATED
    const char *own = getenv("FLOW_NVRTC");
    if (!library && !(own && *own))
        warn("libnvrtc.so.13 and .12 were not found", "install NVRTC or set LD_LIBRARY_PATH");
#endif
    return library;
}

static void *open_driver(void *library)
{
#ifdef FL_EMULATED
    return library;
#else
    (void)library;
    return dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
#endif
}

static bool load_functions(void *library, void *driver)
{
#define FL_NVRTC_LOAD(name) \
    if (!(rtc.name = (decltype(rtc.name))dlsym(library, "nvrtc" #name))) return false;
    FL_NVRTC_FUNCTIONS(FL_NVRTC_LOAD)
#define FL_DRIVER_LOAD(name) \
    if (!(rtc.name = (decltype(rtc.name))dlsym(driver, "cu" #name))) return false;
    FL_DRIVER_FUNCTIONS(FL_DRIVER_LOAD)
    return true;
}

static bool ask_library(void)
{
    if (rtc.Version(&rtc.major, &rtc.minor) != 0) return false;
    if (rtc.GetNumSupportedArchs(&rtc.arch_count) != 0 || rtc.arch_count > MOST_ARCHS) return false;
    return rtc.GetSupportedArchs(rtc.archs) == 0;
}

static bool is_open(void)
{
    if (rtc.tried) return rtc.found;
    rtc.tried = true;
    void *library = open_library(), *driver = library ? open_driver(library) : NULL;
    rtc.found = driver && load_functions(library, driver) && ask_library();
    if (library && !rtc.found) warn("NVRTC cannot be used", "");
    return rtc.found;
}

/* ---- compiling ---- */

struct image {
    void *data; /* malloc'd */
    size_t bytes;
};

/* Code for the device where NVRTC knows it, else what the driver compiles; false: it is too old for this NVRTC. */
static bool choose_arch(char *option, size_t size, int capability)
{
    int best = 0;
    for (int i = 0; i < rtc.arch_count; i++)
        if (rtc.archs[i] <= capability && rtc.archs[i] > best) best = rtc.archs[i];
    snprintf(option, size, "--gpu-architecture=%s_%d", best == capability ? "sm" : "compute", best);
    return best > 0;
}

static bool take_image(image *out, nvrtcProgram program, bool is_ptx)
{
    nvrtcResult result = is_ptx ? rtc.GetPTXSize(program, &out->bytes) : rtc.GetCUBINSize(program, &out->bytes);
    if (result != 0 || out->bytes == 0) return false;
    out->data = malloc(out->bytes);
    if (!out->data) return false;
    result = is_ptx ? rtc.GetPTX(program, (char *)out->data) : rtc.GetCUBIN(program, (char *)out->data);
    if (result == 0) return true;
    free(out->data);
    out->data = NULL;
    return false;
}

/* The first line says enough. */
static void warn_of_log(nvrtcProgram program)
{
    size_t bytes = 0;
    char *log = NULL;
    if (rtc.GetProgramLogSize(program, &bytes) == 0 && bytes) log = (char *)calloc(1, bytes + 1);
    if (log && rtc.GetProgramLog(program, log) != 0) log[0] = '\0';
    if (log) log[strcspn(log, "\n")] = '\0';
    warn("NVRTC cannot compile a kernel", log ? log : "");
    free(log);
}

static bool compile(image *out, const char *source, const char *arch)
{
    const char *const options[] = {arch, "--std=c++17", "--fmad=false", "--disable-warnings"};
    nvrtcProgram program;
    if (rtc.CreateProgram(&program, source, "fused.cu", HEADERS, headers, header_names) != 0) return false;
    bool done = rtc.CompileProgram(program, sizeof options / sizeof *options, options) == 0;
    if (!done) warn_of_log(program);
    else done = take_image(out, program, strstr(arch, "compute") != NULL);
    rtc.DestroyProgram(&program);
    return done;
}

/* All that the image depends on; malloc'd. */
static char *describe(const char *source, const char *arch)
{
    uint64_t hash = FL_HASH_START;
    for (const char *header : headers) hash = fl_hash_words(hash, header, strlen(header));
    size_t room = strlen(source) + 128;
    char *text = (char *)malloc(room);
    if (text)
        snprintf(text, room, "// NVRTC %d.%d %s headers %016llx\n%s", rtc.major, rtc.minor, arch,
                 (unsigned long long)hash, source);
    return text;
}

static bool find_image(image *out, const char *source, bool compiles)
{
    char arch[48];
    if (!choose_arch(arch, sizeof arch, fl_cuda_current()->capability)) {
        warn("NVRTC does not know this GPU", "");
        return false;
    }
    char *text = describe(source, arch);
    if (!text) return false;
    out->data = fl_kernel_cache_read(&out->bytes, text);
    if (!out->data && compiles && compile(out, source, arch)) fl_kernel_cache_write(text, out->data, out->bytes);
    free(text);
    return out->data != NULL;
}

/* ---- kernels ---- */

struct fl_nvrtc_kernel {
    CUfunction function;
};

fl_nvrtc_kernel *fl_nvrtc_make(const char *source, const char *name, bool compile)
{
    image code = {};
    CUmodule module;
    CUfunction function;
    if (!is_open() || !find_image(&code, source, compile)) return NULL;
    bool loaded = rtc.ModuleLoadData(&module, code.data) == 0 && rtc.ModuleGetFunction(&function, module, name) == 0;
    free(code.data);
    fl_nvrtc_kernel *kernel = loaded ? (fl_nvrtc_kernel *)malloc(sizeof *kernel) : NULL;
    if (!loaded) warn("the driver cannot load a kernel", "");
    if (kernel) kernel->function = function;
    return kernel;
}

fl_status fl_nvrtc_launch(fl_nvrtc_kernel *kernel, unsigned blocks, unsigned threads, void *arguments)
{
    void *list[] = {arguments};
    CUresult result = rtc.LaunchKernel(kernel->function, blocks, 1, 1, threads, 1, 1, 0, fl_cuda_stream(), list, NULL);
    return result == 0 ? FL_OK : fl_cuda_fail((cudaError_t)result, "cuda");
}
