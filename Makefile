# flowlua -- `make help` lists the targets.

CONFIG ?= release
OUT ?= $(if $(filter release,$(CONFIG)),build,build/$(CONFIG))
CC ?= gcc
AR ?= ar

# What a Debian or Ubuntu machine needs (`make install-deps` installs it, `make deps` prints it).
PACKAGES_BUILD = gcc libc6-dev make pkg-config liblua5.4-dev zlib1g-dev libjansson-dev libopenmpi-dev libedit-dev libjpeg-dev libpng-dev
PACKAGES_RUN = libdnnl-dev libopenblas0-pthread libedit2 openmpi-bin libpcre2-8-0 libutf8proc-dev
PACKAGES_TEST = lua-busted lua-check lua5.4
PEER ?= python3

LUA_CFLAGS := $(shell pkg-config --cflags lua5.4 2>/dev/null || echo -I/usr/include/lua5.4)
LUA_LIB := $(shell ls /usr/lib/$$($(CC) -dumpmachine)/liblua5.4.a /usr/lib/liblua5.4.a 2>/dev/null | head -n 1)
LUA_PLACED := $(if $(LUA_LIB),$(OUT)/lua/lua.o)
JANSSON_LIB := $(or $(shell ls /usr/lib/$$($(CC) -dumpmachine)/libjansson.a /usr/lib/libjansson.a 2>/dev/null | head -n 1),-ljansson)

WARNINGS = -Wall -Wextra -Wshadow -Wno-unused-parameter $(WARNINGS_C)
WARNINGS_C = -Wstrict-prototypes -Werror=implicit-function-declaration -Werror=int-conversion
# What a release is hardened with. _FORTIFY_SOURCE=3 is asked for where compiler and libc know it (they warn where they do not).
# Linux guards returns by shadow stacks; it does not check branches, for which every function would begin with an instruction more.
FORTIFY := $(shell echo '\#include <string.h>' | $(CC) -O2 -Werror -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3 -E -x c - >/dev/null 2>&1 && echo 3 || echo 2)
HARDEN_release = -fstack-protector-strong -fstack-clash-protection $(if $(filter x86_64 i%86,$(ARCH)),-fcf-protection=return) -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=$(FORTIFY)
# Small ops spend their time in these files, and none of them holds bytes from outside. There, level 3 computes sizes of blocks at run
# time and the stack protector guards arrays of operands: 9 % more instructions in a chain of backward, 4 % in a + b.
# Aligned, their time does not depend on what the linker puts before them: flow.empty(16) took up to 20 % longer in one build than in another.
HOT_FILES = $(addprefix core/,infer/plan_cache dispatch/dispatch dispatch/inplace dispatch/run dispatch/body dispatch/to_global boxing/carry \
            boxing/move_host memory/storage memory/tensor autograd/tape autograd/vjp \
            autograd/backward cpu/elementwise cpu/stage cpu/gemm cpu/gemm_axes ops/matmul) $(addprefix lua/bind/,op_arguments op_attr op_call)
HOT_release = -fno-stack-protector -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2 -falign-functions=64 -falign-jumps=16 -falign-loops=32
# One set of objects serves the program, which links them as its own (-pie), and the shared libraries. Thread-local
# variables lie at fixed offsets there too: they are few, and a library that is opened late finds room for them.
SHARED_FLAGS = -fPIC -fno-semantic-interposition -ftls-model=initial-exec
# A shared library calls its own functions directly, and stays when it was opened: its threads may still run.
LINK_SHARED = -Wl,-Bsymbolic -Wl,-z,nodelete
LINK_release = -Wl,-z,relro -Wl,-z,now -Wl,-z,noexecstack $(PACKED)
# Pointers in tables are 330 KB of relocations, or 10 KB packed, where linker and libc (glibc 2.36) know that.
PACKED := $(shell try=$$(mktemp) && echo 'int main(void) { return 0; }' | $(CC) -fPIE -pie -Wl,-z,pack-relative-relocs -x c -o $$try - 2>/dev/null && $$try && echo -Wl,-z,pack-relative-relocs; rm -f $$try)
FLAGS_release = -O2 -DNDEBUG $(STRAIGHT)
# gcc sets and copies structs of 128 bytes and more by rep stos and rep movs, which begin slowly: x:select(0, i) took 3 to 10 %
# longer by them, a chain of ten ops too.
STRAIGHT := $(shell echo | $(CC) -mmemset-strategy=vector_loop:256:noalign,libcall:-1:noalign -E -x c - >/dev/null 2>&1 && \
              echo -mmemset-strategy=vector_loop:256:noalign,libcall:-1:noalign -mmemcpy-strategy=unrolled_loop:512:noalign,libcall:-1:noalign)
FLAGS_debug = -O0 -g
FLAGS_asan = -O1 -g -fsanitize=address,undefined -fno-omit-frame-pointer
# Threads meet in the same places at every level of the CPU: one is enough.
FLAGS_tsan = -O1 -g -fsanitize=thread -DFL_ONE_LEVEL
FLAGS_checked = $(FLAGS_release)
# Half the size, for programs that compute little: code of one level of the CPU, any that the architecture has.
FLAGS_small = -Os -DNDEBUG -DFL_ONE_LEVEL
HARDEN_small = $(HARDEN_release)
HOT_small = $(HOT_release)
LINK_small = $(LINK_release)
CFLAGS_ALL = -std=gnu11 $(WARNINGS) $(FLAGS_$(CONFIG)) $(HARDEN_$(CONFIG)) $(SHARED_FLAGS) -fno-math-errno -fno-trapping-math -ffp-contract=off -fvisibility=hidden -fopenmp-simd -MMD -MP -Isrc -Isrc/core $(LUA_CFLAGS) $(CFLAGS)
LDLIBS_ALL = $(JANSSON_LIB) -Wl,--exclude-libs,libjansson.a -lz -lm -ldl -lpthread

ARCH := $(shell $(CC) -dumpmachine | cut -d- -f1)
LEVELS := base $(if $(filter x86_64,$(ARCH)),$(if $(filter tsan small,$(CONFIG)),,avx2 avx512))
FLAGS_base =
FLAGS_avx2 = -mavx2 -mfma -mf16c
FLAGS_avx512 = -mavx512f -mavx512bw -mavx512dq -mavx512vl -mfma -mf16c -mprefer-vector-width=512

CORE_C := $(sort $(filter-out %.lv.c,$(wildcard src/core/*/*.c)))
CORE_LV := $(sort $(wildcard src/core/cpu/*.lv.c))
CORE_O := $(CORE_C:%.c=$(OUT)/%.o) $(foreach l,$(LEVELS),$(CORE_LV:%.lv.c=$(OUT)/%.$(l).o))
LUA_C := $(sort $(wildcard src/lua/*/*.c))
LUA_MODULES := $(sort $(wildcard src/lua/lib/*.lua))
LUA_O := $(LUA_C:%.c=$(OUT)/%.o) $(OUT)/src/lua/modules.o
# The module for other Lua programs: all but the shell.
MODULE_O := $(filter-out $(OUT)/src/lua/shell/%,$(LUA_O))
# The transport between ranks: a plug-in, built where pkg-config knows Open MPI.
MPI_CFLAGS := $(shell pkg-config --cflags ompi-c 2>/dev/null)
MPI_LIBS := $(shell pkg-config --libs ompi-c 2>/dev/null)
MPI_O := $(patsubst %.c,$(OUT)/%.o,$(sort $(wildcard src/core/ranks/mpi/*.c)))
# The CUDA device: a plug-in, built where nvcc is found. CUDA_ARCHS: present (code for the GPU that is here, and PTX that any
# GPU from compute 8.0 on can load; the default), all (what a release carries: code for 7.5, 8.0, 8.6 and 8.9, 9.0, that PTX,
# all of it compressed and without the lines it comes from) or hasty (that PTX without most optimizations, in less than half
# of the time: for tests without a GPU).
NVCC ?= $(or $(shell command -v nvcc 2>/dev/null),$(wildcard /usr/local/cuda/bin/nvcc))
NVCC := $(NVCC)
CUDA_HOME := $(if $(NVCC),$(patsubst %/bin/nvcc,%,$(realpath $(NVCC))))
CUDA_ARCHS ?= present
# The kernels ask for nothing beyond 8.0, so one pass of the compiler proper serves all GPUs from there on.
CUDA_CODE_FOR = -gencode arch=compute_$(if $(filter 5% 6% 7%,$(1)),$(1),80),code=sm_$(1)
CUDA_PTX = -gencode arch=compute_80,code=compute_80
CUDA_CODE_all = $(foreach a,75 80 86 90,$(call CUDA_CODE_FOR,$(a))) $(CUDA_PTX)
CUDA_FLAGS_all = $(eval CUDA_FLAGS_all := $(shell $(NVCC) --help 2>/dev/null | grep -q compress-mode && echo --compress-mode=size || echo -Xfatbin=-compress-all))$(CUDA_FLAGS_all)
CUDA_PRESENT = $(eval CUDA_PRESENT := $(shell nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | tr -d . | sort -u))$(CUDA_PRESENT)
CUDA_CODE_present = $(foreach a,$(CUDA_PRESENT),$(call CUDA_CODE_FOR,$(a))) $(CUDA_PTX)
CUDA_FLAGS_present = -lineinfo
CUDA_CODE_hasty = $(CUDA_PTX)
CUDA_FLAGS_hasty = $(eval CUDA_FLAGS_hasty := $(shell $(NVCC) --help 2>/dev/null | grep -q Ofast-compile && echo --Ofast-compile=max))$(CUDA_FLAGS_hasty)
CUDA_CU := $(sort $(wildcard src/cuda/*.cu src/cuda/*/*.cu))
# Headers that kernels compiled at run time include, as text.
CUDA_TEXTS := $(addprefix src/,cuda/parts/values.h cuda/parts/divide.h core/op/special.h cuda/kernels/elementwise_math.h core/op/elementwise_formulas.inc cuda/kernels/fused.cuh)
CUDA_TEXTS_O := $(OUT)/src/cuda/runtime/texts.o
CUDA_O := $(CUDA_CU:%.cu=$(OUT)/%.o) $(CUDA_TEXTS_O)
NVCC_FLAGS = -Isrc -Isrc/core -std=c++17 -O3 --expt-relaxed-constexpr --expt-extended-lambda -Xcompiler -fPIC,-fvisibility=hidden,-Wall $(addprefix -Xcompiler ,$(HARDEN_$(CONFIG))) -MMD -MP
# The same sources compiled for the CPU, for tests where there is no GPU; in haste, because there are many templates.
EMULATED_CC := $(sort $(wildcard tests/emulator/*.cc))
EMULATED_O := $(CUDA_CU:%.cu=$(OUT)/emulated/%.o) $(EMULATED_CC:%.cc=$(OUT)/emulated/%.o) $(CUDA_TEXTS_O)
EMULATED_FLAGS = -Isrc -Isrc/core -Itests/emulator -std=gnu++17 $(filter-out $(WARNINGS_C),$(WARNINGS)) -Wno-unknown-pragmas -Wno-maybe-uninitialized $(FLAGS_$(CONFIG):-O2=-O1) -DFL_EMULATED -fPIC \
	-fvisibility=hidden -fno-math-errno -fno-trapping-math -ffp-contract=off -MMD -MP $(addprefix -isystem ,$(filter-out /usr/include,$(CUDA_HOME)/include $(wildcard $(CUDA_HOME)/include/cccl)))
# CONFIG=asan: a kernel may compute an address that it does not use. CONFIG=checked: each access of a kernel is looked at
# (tests/emulator/emulate_check.cc).
EMULATED_LOOKS_asan = -fno-sanitize=pointer-overflow
EMULATED_LOOKS_checked = -fsanitize=thread,alignment,bounds --param tsan-instrument-func-entry-exit=0
EMULATED := $(if $(CUDA_HOME),$(OUT)/emulated/flowlua-cuda.so $(OUT)/emulated/fake_cublaslt.so $(OUT)/emulated/fake_cudnn.so $(OUT)/emulated/fake_cufft.so $(OUT)/emulated/fake_cusolver.so $(OUT)/emulated/fake_nccl.so $(OUT)/emulated/fake_nvrtc.so $(OUT)/tests/emulate)
PLUGINS := $(if $(MPI_LIBS),$(OUT)/flowlua-mpi.so) $(if $(CUDA_HOME),$(if $(filter release debug,$(CONFIG)),$(OUT)/flowlua-cuda.so))
# libflow: the core and its C interface, for other programs. The soname changes when flow.h takes something away.
VERSION := $(shell sed -n 's/^\#define FL_VERSION "\(.*\)"/\1/p' src/core/base/version.h)
SONAME = libflow.so.1
LIBRARIES = $(OUT)/libflow.so $(OUT)/libflow.a $(OUT)/flow.so
LDLIBS_SHARED = -ljansson -lz -lm -ldl -lpthread
TESTS_C := $(sort $(wildcard tests/c/*.c))
TEST_BIN := $(TESTS_C:tests/c/%.c=$(OUT)/tests/%) $(OUT)/tests/test_states
# The tests of threads and of shared memory, which is what ThreadSanitizer is for (run-san.sh).
ifeq ($(CONFIG),tsan)
TEST_BIN := $(addprefix $(OUT)/tests/test_,engine poison storage shared channel api api_calls pool)
endif

all: $(OUT)/flowlua $(LIBRARIES) $(PLUGINS) ## build the interpreter and libflow (the default)

$(OUT)/flowlua: $(LUA_O) $(CORE_O) $(LUA_PLACED)
	$(CC) $(FLAGS_$(CONFIG)) -pie $(LINK_$(CONFIG)) -Wl,-E -o $@ $(LUA_O) $(CORE_O) $(LUA_PLACED) $(LDLIBS_ALL)
# Lua's library as one object, with its interpreter, luaV_execute, VM_AT bytes after a multiple of 64. The library asks for no
# place in a cache line, and Debian's is fast at 48: elsewhere a loop over numbers takes up to 28 % longer, calls of C functions 8 %.
VM_AT = 48
$(LUA_PLACED): $(LUA_LIB)
	@mkdir -p $(dir $@)
	$(CC) -r -nostdlib -o $(OUT)/lua/all.o -Wl,--whole-archive $<
	at=$$(nm $(OUT)/lua/all.o | sed -n 's/ T luaV_execute$$//p') && gap=$$((($(VM_AT) - 0x$$at) & 63)) && \
	printf '.text\n.balign 64\n.skip %d\n.section .note.GNU-stack,"",%%progbits\n' $$gap | $(CC) -c -x assembler -o $(OUT)/lua/gap.o -
	$(CC) -r -nostdlib -o $@ $(OUT)/lua/gap.o $(OUT)/lua/all.o

$(OUT)/libflow.so: $(CORE_O)
	$(CC) $(FLAGS_$(CONFIG)) -shared $(LINK_$(CONFIG)) $(LINK_SHARED) -Wl,-soname,$(SONAME) -o $@ $(CORE_O) $(LDLIBS_SHARED)
	ln -sf libflow.so $(OUT)/$(SONAME)
# The core and the module flow, for require "flow" in any Lua 5.4: the program that opens it brings Lua.
$(OUT)/flow.so: $(MODULE_O) $(CORE_O)
	$(CC) $(FLAGS_$(CONFIG)) -shared $(LINK_$(CONFIG)) $(LINK_SHARED) -o $@ $(MODULE_O) $(CORE_O) $(LDLIBS_SHARED)
# One object, because nothing refers to most of them: the linker collects the ops. Of its names a program sees those of
# the C interface, and what plug-ins need. It may become part of a shared object, as Debian's libjansson.a may not.
$(OUT)/libflow.a: $(CORE_O)
	rm -f $@
	$(CC) -r -nostdlib -o $(OUT)/libflow.o $(CORE_O)
	objcopy -w --localize-hidden --keep-global-symbol='fl_*' --keep-global-symbol='flow_*' $(OUT)/libflow.o
	$(AR) rcs $@ $(OUT)/libflow.o

$(OUT)/flowlua-mpi.so: $(MPI_O)
	$(CC) $(FLAGS_$(CONFIG)) -shared $(LINK_$(CONFIG)) -o $@ $(MPI_O) $(MPI_LIBS)
$(MPI_O): CFLAGS_ALL += $(MPI_CFLAGS)
$(patsubst %,$(OUT)/src/%.o,$(HOT_FILES)): CFLAGS_ALL += $(HOT_$(CONFIG))

$(OUT)/flowlua-cuda.so: $(CUDA_O)
	$(NVCC) -shared --cudart static -Xcompiler -static-libgcc,-static-libstdc++ -Xlinker --exclude-libs,ALL $(LINK_$(CONFIG):-Wl,%=-Xlinker %) -o $@ $(CUDA_O) -ldl
$(OUT)/%.o: %.cu
	@mkdir -p $(dir $@)
	$(NVCC) $(NVCC_FLAGS) $(CUDA_FLAGS_$(CUDA_ARCHS)) $(CUDA_CODE_$(CUDA_ARCHS)) -c $< -o $@

# Elementwise arithmetic is bound by memory: rounded as on the CPU, operation by operation.
$(OUT)/src/cuda/kernels/elementwise.o: NVCC_FLAGS += -fmad=false

$(CUDA_TEXTS_O): $(CUDA_TEXTS)

$(OUT)/emulated/flowlua-cuda.so: $(EMULATED_O)
	$(CXX) $(FLAGS_$(CONFIG)) -shared -o $@ $(EMULATED_O)
$(OUT)/emulated/%.o: %.cu
	@mkdir -p $(dir $@)
	$(CXX) $(EMULATED_FLAGS) $(EMULATED_LOOKS_$(CONFIG)) -x c++ -c $< -o $@
$(OUT)/emulated/%.o: %.cc
	@mkdir -p $(dir $@)
	$(CXX) $(EMULATED_FLAGS) -c $< -o $@
$(OUT)/emulated/fake_%.so: tests/cuda/fake_%.cc
	@mkdir -p $(dir $@)
	$(CXX) $(EMULATED_FLAGS) $(FAKE_FLAGS) -shared -o $@ $<
# It compiles sources as the emulation's own.
$(OUT)/emulated/fake_nvrtc.so: FAKE_FLAGS = -DFL_COMPILE='"$(CXX) $(filter-out -MMD -MP,$(EMULATED_FLAGS))"'
$(OUT)/tests/emulate: $(OUT)/emulated/tests/cuda/test_emulate.o $(EMULATED_CC:%.cc=$(OUT)/emulated/%.o)
	@mkdir -p $(dir $@)
	$(CXX) $(FLAGS_$(CONFIG)) -o $@ $(filter %.o,$^)
$(OUT)/emulated/tests/cuda/test_emulate.o: EMULATED_FLAGS += $(EMULATED_LOOKS_$(CONFIG)) -Wno-unused-function

$(OUT)/%.o: %.c
	@mkdir -p $(dir $@)
	$(CC) $(CFLAGS_ALL) -c $< -o $@

# How fast a short loop is must not depend on where the linker puts it.
ALIGNED = -falign-functions=64 -falign-loops=32
# Two clamps in a row must stay two minima: threaded into one decision, they become masks when the loop is vectorised.
$(foreach l,$(LEVELS),$(OUT)/src/core/cpu/elementwise.$(l).o): VECTORISED = -fno-thread-jumps
# Butterflies are products and sums of vectors: fused where the machine can.
$(foreach l,$(LEVELS),$(OUT)/src/core/cpu/fft.$(l).o): CFLAGS_ALL += -ffp-contract=fast

# Loops of kernels are faster with gcc's own choice of copies: sums of several ranks' parts by 9 %.
define LEVEL_RULE
$(OUT)/%.$(1).o: %.lv.c
	@mkdir -p $$(dir $$@)
	$$(CC) $$(filter-out $$(STRAIGHT),$$(CFLAGS_ALL)) $$(if $$(filter -O2,$$(FLAGS_$$(CONFIG))),-O3 $$(ALIGNED) $$(VECTORISED)) $$(FLAGS_$(1)) -DFL_LEVEL=$(1) -DFL_LEVEL_$(1) -c $$< -o $$@
endef
$(foreach l,$(LEVELS),$(eval $(call LEVEL_RULE,$(l))))

# Lua modules, embedded: source and code of each, and a table of them. Without Lua's library to compile them the source.
$(OUT)/embed: scripts/embed.c
	@mkdir -p $(dir $@)
	$(CC) -std=gnu11 -O1 $(LUA_CFLAGS) $(if $(LUA_LIB),,-DFL_EMBED_SOURCE_ONLY) -o $@ $< $(LUA_LIB) -lz -lm -ldl
$(OUT)/src/lua/modules.c: $(LUA_MODULES) $(OUT)/embed
	@mkdir -p $(dir $@)
	$(OUT)/embed $(LUA_MODULES) > $@ || { rm -f $@; exit 1; }
$(OUT)/src/lua/modules.o: $(OUT)/src/lua/modules.c
	$(CC) $(CFLAGS_ALL) -Isrc/lua/bind -c $< -o $@

# Other flags make all objects anew.
$(LUA_O) $(CORE_O) $(MPI_O): $(OUT)/flags
$(OUT)/flags: FORCE
	@mkdir -p $(dir $@)
	@echo '$(CFLAGS_ALL) $(HOT_FILES) $(HOT_$(CONFIG)) $(LINK_$(CONFIG))' | cmp -s - $@ || echo '$(CFLAGS_ALL) $(HOT_FILES) $(HOT_$(CONFIG)) $(LINK_$(CONFIG))' > $@
FORCE:

# Of lua_States that a C program opens.
$(OUT)/tests/test_states: tests/lua/test_states.c $(MODULE_O) $(CORE_O)
	@mkdir -p $(dir $@)
	$(CC) $(CFLAGS_ALL) -o $@ $< $(MODULE_O) $(CORE_O) $(LUA_LIB) $(LDLIBS_ALL)
# C tests: each links the core alone.
$(OUT)/tests/%: tests/c/%.c $(CORE_O)
	@mkdir -p $(dir $@)
	$(CC) $(CFLAGS_ALL) -o $@ $< $(CORE_O) $(LDLIBS_ALL)

install-deps: ## install the packages that are missing, through the system's package manager
	sh scripts/install.sh $(PACKAGES_BUILD) $(PACKAGES_RUN)

run: install-deps ## install what is missing, build, train a small GPT on this project's own text
	$(MAKE) all
	$(OUT)/flowlua scripts/train.lua $(ARGS)

test: ## every test of the release build (SPECS="tests/nn_spec.lua" for some)
	sh scripts/install.sh $(PACKAGES_BUILD) $(PACKAGES_RUN) $(PACKAGES_TEST)
	$(MAKE) all $(TEST_BIN)
	sh tests/run.sh $(OUT) $(SPECS)

test-san: ## the C tests under ThreadSanitizer, everything under AddressSanitizer and UBSan
	sh scripts/install.sh $(PACKAGES_BUILD) $(PACKAGES_RUN) $(PACKAGES_TEST)
	$(MAKE) CONFIG=tsan tests-c
	$(MAKE) CONFIG=asan all tests-c
	sh tests/run-san.sh build/tsan build/asan $(SPECS)

test-ranks: ## the multi-rank specs, with 1, 2, 3 and 4 ranks under mpirun
	sh scripts/install.sh $(PACKAGES_BUILD) $(PACKAGES_RUN) $(PACKAGES_TEST)
	$(MAKE) all
	sh tests/run-ranks.sh $(OUT) $(SPECS)

test-hosts: ## the multi-rank specs with 2, 3 and 4 ranks on two hosts (network namespaces; wants root)
	sh scripts/install.sh $(PACKAGES_BUILD) $(PACKAGES_RUN) $(PACKAGES_TEST)
	$(MAKE) all
	sh tests/run-hosts.sh $(OUT) $(SPECS)

test-peer: $(OUT)/flowlua ## ops beside PyTorch, with gradients of two orders (PEER=python that has it; FAMILIES="linalg" for some)
	$(PEER) -W ignore tests/peer/peer.py $(OUT)/flowlua $(FAMILIES)

PYTHON = python3
test-array-api: $(OUT)/libflow.so ## the array API's conformance suite on libflow (PYTHON with pytest, hypothesis, ndindex; SUITE=folder of array-api-tests)
	FLOW_LIBRARY=$(abspath $(OUT)/libflow.so) $(PYTHON) tests/array_api/run.py "$(SUITE)" $(SUITE_ARGUMENTS)

test-emulated: ## the CUDA device without a GPU: its kernels run on the CPU (CONFIG=checked: each access is looked at)
	sh scripts/install.sh $(PACKAGES_BUILD) $(PACKAGES_RUN) $(PACKAGES_TEST)
	$(MAKE) all emulated
	sh tests/run-emulated.sh $(OUT) $(SPECS)

test-gpu: ## what only a GPU can check: the CUDA device, the suite on it, ranks that share it, compute-sanitizer
	sh scripts/install.sh $(PACKAGES_BUILD) $(PACKAGES_RUN) $(PACKAGES_TEST)
	$(MAKE) all $(GPU_DRY:1=emulated)
	sh tests/run-gpu.sh $(OUT)

tests-c: $(TEST_BIN)

emulated: $(EMULATED) ## build the CUDA kernels for the CPU, for tests without a GPU (FLOW_CUDA_EMULATED=1)

FORMATTER = clang-format-14
FORMATTED := $(shell find src tests examples -regex '.*\.\(c\|h\|inc\|cu\|cuh\|cc\)' 2>/dev/null)
TABLES := $(shell find src tests examples -name '*.def' 2>/dev/null)
SCRIPTS := $(shell find src scripts tests examples -name '*.lua' 2>/dev/null)

lint: layers ## the layers, luacheck over every Lua file, C and CUDA as .clang-format has it (clang-format 14), no tabs, no comment that is a question or begins like one
	luacheck -q src/lua scripts tests examples/lua
	@! grep -rnE --include='*.lua' --include='*.sh' --include='*.def' "$$(printf '\t')| $$" src scripts tests
	command -v $(FORMATTER) >/dev/null || sh scripts/install.sh $(FORMATTER)
	@$(FORMATTER) --dry-run -Werror $(FORMATTED)
	@! awk 'length > 120 {print FILENAME ":" FNR ": longer than 120 columns"}' $(FORMATTED) $(TABLES) | grep .
	@awk -f scripts/questions.awk $(FORMATTED) $(TABLES) $(SCRIPTS) $(shell find scripts tests -name '*.sh')

format: ## apply .clang-format
	@$(FORMATTER) -i $(FORMATTED)

layers: $(OUT)/flowlua ## print the layers of src; fails where one includes or calls a higher one
	$(OUT)/flowlua scripts/layers.lua $(OUT)

bench: all ## the benchmarks, beside their peers where those are installed
	sh scripts/bench/run.sh $(OUT)

bench-gpu: all $(GPU_DRY:1=emulated) ## the benchmarks on the GPU, beside PyTorch; appended to scripts/bench/results (GPU_DRY=1: see there)
	sh scripts/bench/gpu.sh $(OUT)

PREFIX ?= /usr/local
LIBDIR = $(DESTDIR)$(PREFIX)/lib
define FLOW_PC
prefix=$(PREFIX)
libdir=$${prefix}/lib
includedir=$${prefix}/include
opsdir=$${includedir}/flowlua

Name: flow
Description: tensors with gradients, on one rank or many
Version: $(VERSION)
Cflags: -I$${includedir}
Libs: -L$${libdir} -lflow
endef
define FLOW_STATIC_PC
prefix=$(PREFIX)
libdir=$${prefix}/lib
includedir=$${prefix}/include

Name: flow-static
Description: flow, as a part of the program
Version: $(VERSION)
Cflags: -I$${includedir}
Libs: $${libdir}/libflow.a -rdynamic $(LDLIBS_SHARED)
endef
export FLOW_PC FLOW_STATIC_PC
# What ops in shared objects include (src/core/ops/own_ops.h): into include/flowlua.
OPS_HEADERS = $(eval OPS_HEADERS := $(shell $(CC) -MM -Isrc/core src/core/ops/own_ops.h | tr ' \\' '\n\n' | grep '^src/core' | sort -u))$(OPS_HEADERS)
install: all ## install program, libflow, headers, files for pkg-config and plug-ins into PREFIX (default /usr/local)
	install -d "$(DESTDIR)$(PREFIX)/bin" "$(DESTDIR)$(PREFIX)/include" "$(LIBDIR)/pkgconfig"
	install -m 755 $(OUT)/flowlua "$(DESTDIR)$(PREFIX)/bin/flowlua"
	install -m 644 src/core/api/flow.h "$(DESTDIR)$(PREFIX)/include/flow.h"
	for h in $(OPS_HEADERS); do install -D -m 644 $$h "$(DESTDIR)$(PREFIX)/include/flowlua/$${h#src/core/}"; done
	install -m 644 $(OUT)/libflow.so "$(LIBDIR)/libflow.so.$(VERSION)"
	ln -sf libflow.so.$(VERSION) "$(LIBDIR)/$(SONAME)"
	ln -sf $(SONAME) "$(LIBDIR)/libflow.so"
	install -m 644 $(OUT)/libflow.a "$(LIBDIR)/libflow.a"
	printf '%s\n' "$$FLOW_PC" > "$(LIBDIR)/pkgconfig/flow.pc"
	printf '%s\n' "$$FLOW_STATIC_PC" > "$(LIBDIR)/pkgconfig/flow-static.pc"
	install -d "$(LIBDIR)/lua/5.4"
	install -m 644 $(OUT)/flow.so "$(LIBDIR)/lua/5.4/flow.so"
	$(if $(PLUGINS),install -d "$(LIBDIR)/flowlua")
	$(if $(PLUGINS),install -m 644 $(PLUGINS) "$(LIBDIR)/flowlua")

# What the rockspec calls.
module: $(OUT)/flow.so $(PLUGINS) ## build flow.so and its plug-ins alone
LUA_LIBDIR = $(LIBDIR)/lua/5.4
install-module: module ## install them into LUA_LIBDIR
	install -d "$(LUA_LIBDIR)"
	install -m 755 $(OUT)/flow.so "$(LUA_LIBDIR)/flow.so"
	$(if $(PLUGINS),install -d "$(LUA_LIBDIR)/flowlua")
	$(if $(PLUGINS),install -m 644 $(PLUGINS) "$(LUA_LIBDIR)/flowlua")

RELEASE = flowlua-$(VERSION)
dist: ## pack the source of the last commit: build/flowlua-VERSION.tar.gz
	mkdir -p build
	git archive --prefix=$(RELEASE)/ -o build/$(RELEASE).tar.gz HEAD

# Where the tarball will be found.
ROCK_URL = file://$(CURDIR)/build/$(RELEASE).tar.gz
rock: dist ## write build/flowlua-VERSION-1.rockspec, which builds flow.so from the tarball at ROCK_URL; pack both with LuaRocks
	sed 's|@VERSION@|$(VERSION)|; s|@URL@|$(ROCK_URL)|' scripts/flowlua.rockspec > build/$(RELEASE)-1.rockspec
	if command -v luarocks >/dev/null; then cd build && luarocks pack $(RELEASE)-1.rockspec; fi

deps: ## print the packages a Debian or Ubuntu system needs
	@echo $(PACKAGES_BUILD) $(PACKAGES_RUN) $(PACKAGES_TEST)

clean: ## remove everything built
	rm -rf build

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1 -- \2/p' Makefile

-include $(shell find $(OUT)/src $(OUT)/emulated $(OUT)/tests -name '*.d' 2>/dev/null)

.PHONY: all install-deps run test test-san test-ranks test-hosts test-peer test-array-api test-emulated test-gpu tests-c emulated lint format layers bench bench-gpu install module install-module dist rock deps clean help FORCE
