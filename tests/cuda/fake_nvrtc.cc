/*
** fake_nvrtc.cc -- NVRTC and the driver's loading of kernels for the emulation (FLOW_NVRTC): a source is compiled by
** the host's compiler against emulate.h, an "image" is a shared object, a launch runs its blocks in the order of the
** stream.
**
** FLOW_FAKE_NVRTC_REAL: NVRTC itself, which then has to compile every third source too, for the oldest and the newest
** GPU that it knows in turn: so texts are known to be good for both compilers. Of one of these in four it makes code
** for the GPU, of the others PTX: code takes up to ten times as long (30 s for a chain of 28 rows) and says no more of
** a text.
** FLOW_FAKE_NVRTC_LOG: a file that gets a line per source.
*/
#include "../emulator/emulate.h"

#include <cuda.h>
#include <dlfcn.h>
#include <nvrtc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string>
#include <unistd.h>
#include <vector>

#define API extern "C" __attribute__((visibility("default")))

namespace
{

struct program {
    std::string source, log;
    std::vector<std::string> headers, names;
    std::vector<char> image;
};

/* The code that a source needs besides its own text to run blocks of threads that never wait for one another. */
const char *const tail = R"(
uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;
extern "C" __attribute__((visibility("default"))) unsigned long fl_arguments_bytes(void) { return sizeof(job); }
extern "C" __attribute__((visibility("default"))) void fl_run(unsigned grid, unsigned block, const void *arguments)
{
    job j;
    memcpy(&j, arguments, sizeof j);
    gridDim = dim3(grid);
    blockDim = dim3(block);
    for (blockIdx.x = 0; blockIdx.x < grid; blockIdx.x++)
        for (threadIdx.x = 0; threadIdx.x < block; threadIdx.x++) fl_fused(j);
}
)";

std::string in_folder(const char *name)
{
    static std::string folder;
    if (folder.empty()) {
        char pattern[] = "/tmp/fake_nvrtc_XXXXXX";
        folder = mkdtemp(pattern);
    }
    return folder + "/" + name;
}

bool write_file(const std::string &path, const char *data, size_t bytes)
{
    FILE *file = fopen(path.c_str(), "wb");
    if (!file) return false;
    bool done = fwrite(data, 1, bytes, file) == bytes;
    return fclose(file) == 0 && done;
}

std::vector<char> read_file(const std::string &path)
{
    std::vector<char> data;
    char piece[65536];
    FILE *file = fopen(path.c_str(), "rb");
    if (!file) return data;
    for (size_t n = fread(piece, 1, sizeof piece, file); n; n = fread(piece, 1, sizeof piece, file))
        data.insert(data.end(), piece, piece + n);
    fclose(file);
    return data;
}

bool compile_here(program *p)
{
    std::string source = in_folder("kernel.cc"), object = in_folder("kernel.so"), log = in_folder("log");
    std::string text = p->source + tail;
    if (!write_file(source, text.data(), text.size())) return false;
    std::string command = std::string(FL_COMPILE) + " -w -shared -o " + object + " " + source + " >" + log + " 2>&1";
    bool done = system(command.c_str()) == 0;
    if (done) p->image = read_file(object);
    else {
        std::vector<char> said = read_file(log);
        p->log.assign(said.begin(), said.end());
    }
    unlink(source.c_str());
    unlink(object.c_str());
    unlink(log.c_str());
    return done;
}

template<typename F>
F *function_of(void *library, F *, const char *name)
{
    return (F *)dlsym(library, name);
}
#define CALL(name) function_of(real, &name, #name)

/* By NVRTC itself, for one architecture: to code for the GPU, or to PTX. */
bool compile_for(program *p, void *real, int arch, bool to_code, int count, const char *const *options)
{
    std::string own = std::string("--gpu-architecture=") + (to_code ? "sm_" : "compute_") + std::to_string(arch);
    std::vector<const char *> all(options, options + count), texts, names;
    for (const char *&option : all)
        if (strncmp(option, "--gpu", 5) == 0) option = own.c_str();
    for (size_t i = 0; i < p->headers.size(); i++) {
        texts.push_back(p->headers[i].c_str());
        names.push_back(p->names[i].c_str());
    }
    nvrtcProgram made;
    size_t bytes = 0;
    if (CALL(nvrtcCreateProgram)(&made, p->source.c_str(), "fused.cu", (int)texts.size(), texts.data(), names.data()))
        return false;
    bool done = CALL(nvrtcCompileProgram)(made, count, all.data()) == NVRTC_SUCCESS
        && (to_code ? CALL(nvrtcGetCUBINSize)(made, &bytes) : CALL(nvrtcGetPTXSize)(made, &bytes)) == NVRTC_SUCCESS
        && bytes > 0;
    if (!done && CALL(nvrtcGetProgramLogSize)(made, &bytes) == NVRTC_SUCCESS && bytes) {
        p->log.resize(bytes);
        CALL(nvrtcGetProgramLog)(made, &p->log[0]);
    }
    CALL(nvrtcDestroyProgram)(&made);
    return done;
}

bool compile_there(program *p, int count, const char *const *options)
{
    const char *name = getenv("FLOW_FAKE_NVRTC_REAL");
    int archs[64], known = 0;
    if (!name || !*name) return true;
    void *real = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!real) {
        p->log = dlerror();
        return false;
    }
    CALL(nvrtcGetNumSupportedArchs)(&known);
    CALL(nvrtcGetSupportedArchs)(archs);
    static int sources;
    if (sources++ % 3) return true;
    int source = sources / 3;
    return compile_for(p, real, archs[source % 2 ? known - 1 : 0], source % 8 > 5, count, options);
}

struct module {
    void *library;
    void (*run)(unsigned grid, unsigned block, const void *arguments);
    unsigned long bytes;
};

} // namespace

/* ---- NVRTC ---- */

API nvrtcResult nvrtcVersion(int *major, int *minor) { return *major = 13, *minor = 0, NVRTC_SUCCESS; }
API nvrtcResult nvrtcGetNumSupportedArchs(int *count) { return *count = 2, NVRTC_SUCCESS; }
API nvrtcResult nvrtcGetSupportedArchs(int *archs) { return archs[0] = 75, archs[1] = 80, NVRTC_SUCCESS; }

API nvrtcResult nvrtcCreateProgram(nvrtcProgram *out, const char *source, const char *, int count,
                                   const char *const *headers, const char *const *names)
{
    program *p = new program;
    p->source = source;
    p->headers.assign(headers, headers + count);
    p->names.assign(names, names + count);
    *out = (nvrtcProgram)p;
    return NVRTC_SUCCESS;
}

API nvrtcResult nvrtcCompileProgram(nvrtcProgram made, int count, const char *const *options)
{
    program *p = (program *)made;
    bool done = compile_there(p, count, options) && compile_here(p);
    if (const char *path = getenv("FLOW_FAKE_NVRTC_LOG")) {
        FILE *log = fopen(path, "a");
        if (log) fprintf(log, "%s\n%s", done ? "compiled" : "refused", done ? "" : (p->source + p->log + "\n").c_str());
        if (log) fclose(log);
    }
    return done ? NVRTC_SUCCESS : NVRTC_ERROR_COMPILATION;
}

API nvrtcResult nvrtcDestroyProgram(nvrtcProgram *made)
{
    delete (program *)*made;
    *made = NULL;
    return NVRTC_SUCCESS;
}

API nvrtcResult nvrtcGetProgramLogSize(nvrtcProgram made, size_t *bytes)
{
    return *bytes = ((program *)made)->log.size() + 1, NVRTC_SUCCESS;
}

API nvrtcResult nvrtcGetProgramLog(nvrtcProgram made, char *log)
{
    return strcpy(log, ((program *)made)->log.c_str()), NVRTC_SUCCESS;
}

API nvrtcResult nvrtcGetCUBINSize(nvrtcProgram made, size_t *bytes)
{
    return *bytes = ((program *)made)->image.size(), NVRTC_SUCCESS;
}

API nvrtcResult nvrtcGetCUBIN(nvrtcProgram made, char *data)
{
    program *p = (program *)made;
    return memcpy(data, p->image.data(), p->image.size()), NVRTC_SUCCESS;
}

API nvrtcResult nvrtcGetPTXSize(nvrtcProgram made, size_t *bytes) { return nvrtcGetCUBINSize(made, bytes); }
API nvrtcResult nvrtcGetPTX(nvrtcProgram made, char *data) { return nvrtcGetCUBIN(made, data); }

/* ---- the driver ---- */

#undef cuModuleLoadData
#undef cuModuleGetFunction
#undef cuLaunchKernel

/* The size of an image is in its own tables, which the loader reads: the bytes end where a page ends at the latest. */
static size_t image_bytes(const void *image)
{
    uint64_t sections;
    uint16_t size, count;
    memcpy(&sections, (const char *)image + 40, sizeof sections);
    memcpy(&size, (const char *)image + 58, sizeof size);
    memcpy(&count, (const char *)image + 60, sizeof count);
    return sections + (size_t)size * count;
}

API CUresult cuModuleLoadData(CUmodule *out, const void *image)
{
    static int number;
    std::string path = in_folder(("image" + std::to_string(number++) + ".so").c_str());
    if (memcmp(image, "\177ELF", 4) || !write_file(path, (const char *)image, image_bytes(image)))
        return CUDA_ERROR_INVALID_IMAGE;
    module *m = new module;
    m->library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    unlink(path.c_str());
    if (!m->library) return CUDA_ERROR_INVALID_IMAGE;
    m->run = (decltype(m->run))dlsym(m->library, "fl_run");
    m->bytes = ((unsigned long (*)(void))dlsym(m->library, "fl_arguments_bytes"))();
    *out = (CUmodule)m;
    return CUDA_SUCCESS;
}

/* A source has one kernel. */
API CUresult cuModuleGetFunction(CUfunction *out, CUmodule made, const char *)
{
    *out = (CUfunction)made;
    return ((module *)made)->run ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

API CUresult cuLaunchKernel(CUfunction made, unsigned grid, unsigned, unsigned, unsigned block, unsigned, unsigned,
                            unsigned, CUstream stream, void **arguments, void **)
{
    const module *m = (const module *)made;
    std::vector<char> own((const char *)arguments[0], (const char *)arguments[0] + m->bytes);
    ((const fl_emulated_stream *)stream)->issue((cudaStream_t)stream, [=] { m->run(grid, block, own.data()); });
    return CUDA_SUCCESS;
}
