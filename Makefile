# shardplan: a simulator and memory/communication planner for fully sharded training.
#
## make            build build/shardplan and build/shardrun, and the cuda backend where nvcc and
##                 NCCL are found (CUDA=0 leaves it out, CUDA=1 insists)
## make deps       install the Debian packages that are missing (needs root or sudo)
## make demo       install, build, plan Llama-3.1-8B on 8 H100s and show the result
## make check      install, build, run every test; ends with "N passed, N failed, N skipped"
## make lint       clang-format, clang-tidy, cppcheck
## make format     lay the sources out as .clang-format says
## make asan       every test under AddressSanitizer and UBSan
## make tsan       every test under ThreadSanitizer
## make checked    every test with structures that check themselves after each operation
## make fuzz       each parser for FUZZ_SECONDS (default 20) under libFuzzer (FUZZ=fuzz_plan: that one)
## make soak       100,000 random jobs (SOAK_JOBS): more of anything never takes less (tests/soak), sums
##                 hold (tests/lower/test_properties.c); 5,000 random command lines (SOAK_LINES) and as many
##                 jobs that all commands must judge alike; all of what make check takes some of (tests/support/soak.h):
##                 families, faults, strategies
## make bench      the timed claims: cold start, program and memory, one more configuration
## make validation remake reports/validation/ from the recordings in tests/data, and reports/systems.md
## make questions  remake docs/questions.md
## make check-gpu  tests that need a GPU
## make gpu-kit    all that gpu-truth needs, built, in BUILD/gpu-kit(.tar.gz): nothing is compiled there
## make gpu-truth  what an hour with a GPU tells, in stages (STAGES: only these), into gpu-results
## make gpu-report reports/validation/gpu.md of that
## make install    copy the programs, the manual page and bash's completion to PREFIX (default /usr/local)
## make clean      remove the build folder

VERSION := 0.1.0
BUILD   ?= build
PREFIX  ?= /usr/local
CFLAGS  ?= -O2 -g
CC      ?= gcc
WARN    := -Wall -Wextra -Wshadow -Wconversion -Wmissing-prototypes -Wstrict-prototypes -Wvla
CPPFLAGS += -D_GNU_SOURCE -DSHARDPLAN_VERSION=\"$(VERSION)\" -Iplanner -I. -I$(BUILD)/generated
# GSL is linked statically: loading it would cost every command a millisecond. Programs of the
# runtime take their cblas from OpenBLAS and must not see GSL's, which is a reference.
LIBS    := -ljansson -lz -l:libyaml.a -l:libpcre2-8.a -l:libgsl.a -l:libgslcblas.a -lm
TEST_LIBS := -lcmocka
FUZZ_SECONDS ?= 20

# Programs lie where they are linked for: moving one as it starts takes half of its start. Sanitizers
# want to place it.
PLACED := $(if $(findstring sanitize,$(CFLAGS)),,-no-pie)

# One line a file; V=1 shows the commands.
Q := $(if $(filter 1,$(V)),,@)
SAY = $(if $(Q),@echo "  $(1) $(2)",@:)
# As many jobs as cores, unless the command line says otherwise; a make that this one starts shares
# them, and would give them up if told a number again.
ifeq ($(MAKELEVEL),0)
MAKEFLAGS += -j$(shell nproc)
endif

MPI_CFLAGS = $(shell mpicc --showme:compile 2>/dev/null)
RUN_LIBS = -ljansson -lz -l:libpcre2-8.a -l:libgsl.a -lopenblas -lpthread $(shell mpicc --showme:link 2>/dev/null) -lm

PACKAGES := libjansson-dev zlib1g-dev libyaml-dev libpcre2-dev libcmocka-dev libgsl-dev libopenblas-dev libopenmpi-dev openmpi-bin \
            gnuplot-nox procps gcc make libc6-dev
LINT_PACKAGES := clang-format clang-tidy cppcheck

# The cuda backend is a shared object of its own, so that nothing else needs CUDA to build or start.
NVCC ?= $(shell command -v nvcc 2>/dev/null)
CUDA_HOME ?= $(if $(NVCC),$(realpath $(dir $(realpath $(NVCC)))..))
CUDA ?= $(if $(wildcard $(addsuffix /nccl.h,$(CUDA_HOME)/include /usr/include)),1,0)
CUDA_CFLAGS = -isystem $(CUDA_HOME)/include
CUDA_LIBS = -L$(CUDA_HOME)/lib64 -L$(CUDA_HOME)/lib -Wl,-rpath,$(CUDA_HOME)/lib64 -lcublasLt -lnccl \
            -lcudart_static -ljansson -lstdc++ -ldl -lrt -lpthread -lm
CUDA_ARCHITECTURES := -gencode arch=compute_80,code=sm_80 -gencode arch=compute_90,code=sm_90 \
                      -gencode arch=compute_100,code=[sm_100,compute_100]
# Spilled registers and local memory are errors, but for our own attention, which is not for speed.
CUDA_STRICT = -Xptxas -warn-spills,-warn-lmem-usage,-Werror
$(BUILD)/runtime/cuda/kernel_attention%.o: CUDA_STRICT =
# The same backend over tests/emulate instead of a GPU: its sources, kernels included, on the CPU.
EMULATED_OBJECTS = $(filter-out $(BUILD)/emulated/runtime/cuda/kernel_wait.o,$(CUDA_KERNELS:%.cu=$(BUILD)/emulated/%.o)) \
                   $(CUDA_SOURCES:%.c=$(BUILD)/pic/%.o) \
                   $(patsubst %.c,$(BUILD)/pic/%.o,$(wildcard tests/emulate/*.c))
EMULATED_BACKEND = $(if $(filter 1,$(CUDA)),$(BUILD)/emulated_cuda.so)
CUDA_BACKEND = $(if $(filter 1,$(CUDA)),$(BUILD)/shardrun_cuda.so)

LIB_SOURCES := $(filter-out planner/cli/%,$(wildcard planner/*/*.c)) $(wildcard traces/*.c)
CLI_SOURCES := $(wildcard planner/cli/*.c)
RUN_SOURCES := $(filter-out runtime/program/main.c runtime/cuda/%,$(wildcard runtime/*/*.c))
# Patterns need a library that a backend has no use for.
CUDA_SOURCES := $(filter-out planner/base/pattern.c,$(wildcard runtime/cuda/*.c runtime/work/*.c planner/base/*.c))
CUDA_KERNELS := $(wildcard runtime/cuda/*.cu)
TEST_SOURCES := $(wildcard tests/*/test_*.c)
TEST_SHARED := $(wildcard tests/support/*.c)
SCRIPTS := $(wildcard reports/*.gp)
PROFILES := $(wildcard planner/machine/profiles/*.json planner/machine/nodes/*.json)

LIB_OBJECTS := $(LIB_SOURCES:%.c=$(BUILD)/%.o)
CLI_OBJECTS := $(CLI_SOURCES:%.c=$(BUILD)/%.o)
RUN_OBJECTS := $(RUN_SOURCES:%.c=$(BUILD)/%.o)
RUNNABLE_OBJECTS := $(patsubst %.c,$(BUILD)/%.o,$(wildcard runtime/work/*.c)) \
  $(addprefix $(BUILD)/runtime/execution/,plan_work.o plan_runnable.o data.o) \
  $(BUILD)/runtime/program/rehearsal.o
CUDA_OBJECTS := $(CUDA_SOURCES:%.c=$(BUILD)/pic/%.o) $(CUDA_KERNELS:%.cu=$(BUILD)/%.cu.o)
TEST_OBJECTS := $(TEST_SHARED:%.c=$(BUILD)/%.o)
TESTS := $(TEST_SOURCES:tests/%.c=$(BUILD)/tests/%)
FUZZ_TESTS := $(patsubst tests/fuzz/%.c,$(BUILD)/tests/fuzz/test_%,$(wildcard tests/fuzz/fuzz_*.c))
MADE := $(BUILD)/shardplan.1 $(BUILD)/shardplan.bash
GENERATED := $(SCRIPTS:reports/%.gp=$(BUILD)/generated/%_gp.h) $(BUILD)/generated/profiles_json.h

all: $(BUILD)/shardplan $(BUILD)/shardrun $(MADE) $(CUDA_BACKEND)

# With what says whether a plan can be run: no device, no MPI.
$(BUILD)/shardplan: $(CLI_OBJECTS) $(RUNNABLE_OBJECTS) $(BUILD)/libplanner.a
	$(call SAY,link,$@)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) $(PLACED) -o $@ $(CLI_OBJECTS) $(RUNNABLE_OBJECTS) $(BUILD)/libplanner.a \
	  $(LIBS)

$(BUILD)/libplanner.a: $(LIB_OBJECTS)
	@rm -f $@
	@$(AR) rcs $@ $(LIB_OBJECTS)

# One rank of a run: the only program that needs MPI and OpenBLAS.
$(BUILD)/shardrun: $(BUILD)/runtime/program/main.o $(BUILD)/libruntime.a $(BUILD)/libplanner.a
	$(call SAY,link,$@)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) $(PLACED) -o $@ $^ $(RUN_LIBS)

$(BUILD)/libruntime.a: $(RUN_OBJECTS)
	@rm -f $@
	@$(AR) rcs $@ $(RUN_OBJECTS)

$(BUILD)/shardrun_cuda.so: $(CUDA_OBJECTS)
	$(call SAY,link,$@)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -shared -Wl,--no-undefined -o $@ $^ $(CUDA_LIBS)

$(BUILD)/emulated_cuda.so: $(EMULATED_OBJECTS)
	@$(CC) $(CFLAGS) $(LDFLAGS) -shared -Wl,--no-undefined -o $@ $^ \
	  $(filter-out -lcublasLt -lcudart_static -lnccl,$(CUDA_LIBS)) -lopenblas

$(BUILD)/emulated/%.o: %.cu
	@mkdir -p $(@D)
	$(call SAY,c++ ,$<)
	$(Q)$(CXX) -x c++ -std=c++17 -Wall -Wextra -Wno-unknown-pragmas $(CFLAGS) -fPIC -I. $(CUDA_CFLAGS) \
	  -include tests/emulate/emulate.cuh -MMD -MP -c $< -o $@

$(BUILD)/pic/%.o: %.c
	@mkdir -p $(@D)
	$(call SAY,cc  ,$< (pic))
	$(Q)$(CC) -std=c11 $(WARN) $(CFLAGS) -fPIC -fvisibility=hidden $(CPPFLAGS) $(CUDA_CFLAGS) -MMD -MP \
	  -c $< -o $@

$(BUILD)/%.cu.o: %.cu
	@mkdir -p $(@D)
	$(call SAY,nvcc,$<)
	$(Q)$(NVCC) -std=c++17 -O3 -lineinfo -I. $(CUDA_ARCHITECTURES) $(CUDA_STRICT) \
	  -Xcompiler -fPIC,-fvisibility=hidden,-Wall,-Wextra,-Wshadow -MMD -MP -c $< -o $@

$(BUILD)/runtime/comm/%.o: CPPFLAGS += $(MPI_CFLAGS)

# Kernels of the host backend, and the mathematics that a test holds kernels to, are loops over
# elements, which -O2 leaves as they are; these turn them into vectors and change no result: sums stay in their order, nobody reads what mathematics leave in errno, or traps.
$(BUILD)/runtime/host/%.o $(BUILD)/runtime/comm/comm_sum.o $(BUILD)/tests/runtime/test_work_gradients.o: \
  LOOPS = $(if $(filter -O2,$(CFLAGS)),-O3 -fno-math-errno -fno-trapping-math)

RUN_TESTS := $(filter $(BUILD)/tests/runtime/%,$(TESTS))
$(RUN_TESTS): $(BUILD)/tests/runtime/%: $(BUILD)/tests/runtime/%.o $(TEST_OBJECTS) \
    $(BUILD)/libruntime.a $(BUILD)/libplanner.a
	@$(CC) $(CFLAGS) $(LDFLAGS) $(PLACED) -o $@ $^ $(TEST_LIBS) $(RUN_LIBS)

$(BUILD)/tests/%: $(BUILD)/tests/%.o $(TEST_OBJECTS) $(BUILD)/libplanner.a
	@$(CC) $(CFLAGS) $(LDFLAGS) $(PLACED) -o $@ $< $(TEST_OBJECTS) $(BUILD)/libplanner.a $(TEST_LIBS) $(LIBS)

# A fuzz target as a test: its saved inputs, and what is close to them.
$(FUZZ_TESTS): $(BUILD)/tests/fuzz/test_%: $(BUILD)/tests/fuzz/%.o $(BUILD)/tests/fuzz/replay.o \
    $(BUILD)/tests/support/mutation.o $(BUILD)/libruntime.a $(BUILD)/libplanner.a
	@$(CC) $(CFLAGS) $(LDFLAGS) $(PLACED) -o $@ $^ $(TEST_LIBS) $(RUN_LIBS) -l:libyaml.a

# What tests/cli/test_faults.c preloads; sanitizers would want to be loaded before it.
$(BUILD)/fault.so: tests/faults/fault.c
	@mkdir -p $(@D)
	$(call SAY,cc  ,$<)
	$(Q)$(CC) -std=c11 -Wall -Wextra -O1 -g -D_GNU_SOURCE -fPIC -shared -o $@ $< -ldl

# A driver that runs nothing, for cuDNN's plans of GPUs that are not here.
DRIVER := $(BUILD)/driver/libcuda.so.1
$(DRIVER): tests/driver/driver.c
	@mkdir -p $(@D)
	$(call SAY,cc  ,$<)
	$(Q)$(CC) -std=c11 $(WARN) -O1 -fPIC -shared -Wl,-soname,libcuda.so.1 -o $@ $<

VALIDATIONS := $(patsubst tests/validation/%.c,$(BUILD)/%,$(wildcard tests/validation/validate*.c))
$(BUILD)/validate_verdicts $(BUILD)/validate_vram: $(BUILD)/tests/validation/published_verdicts.o
$(VALIDATIONS): $(BUILD)/validate%: $(BUILD)/tests/validation/validate%.o $(TEST_OBJECTS) $(BUILD)/libplanner.a
	@$(CC) $(CFLAGS) $(LDFLAGS) $(PLACED) -o $@ $(filter %.o,$^) $(BUILD)/libplanner.a $(TEST_LIBS) $(LIBS)

$(BUILD)/bench: $(BUILD)/tests/bench/bench.o $(BUILD)/libplanner.a
	@$(CC) $(CFLAGS) $(LDFLAGS) $(PLACED) -o $@ $^ $(LIBS)

$(BUILD)/bench_device: $(BUILD)/tests/bench/bench_device.o $(BUILD)/libruntime.a $(BUILD)/libplanner.a
	@$(CC) $(CFLAGS) $(LDFLAGS) $(PLACED) -o $@ $^ $(RUN_LIBS)

$(BUILD)/%.o: %.c | $(GENERATED)
	@mkdir -p $(@D)
	$(call SAY,cc  ,$<)
	$(Q)$(CC) -std=c11 $(WARN) $(CFLAGS) $(LOOPS) $(CPPFLAGS) -MMD -MP -c $< -o $@

# The manual page and the completion come from the table of settings, which the program has.
$(BUILD)/shardplan.1: $(BUILD)/shardplan
	@$< --man > $@

$(BUILD)/shardplan.bash: $(BUILD)/shardplan
	@$< --completion > $@

# Gnuplot scripts travel inside the program, so that it needs no files of its own at run time.
$(BUILD)/generated/%_gp.h: reports/%.gp
	@mkdir -p $(@D)
	@{ echo "static const char $*_gp[] ="; \
	   sed -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e 's/^/    "/' -e 's/$$/\\n"/' $<; echo "    ;"; } > $@

# So do the hardware profiles and node types.
$(BUILD)/generated/profiles_json.h: $(PROFILES) tools/embed
	@mkdir -p $(@D)
	@tools/embed gpu planner/machine/profiles node planner/machine/nodes > $@

tests: $(TESTS) $(FUZZ_TESTS) $(EMULATED_BACKEND) $(BUILD)/bench_device $(BUILD)/fault.so \
       $(if $(filter 1,$(CUDA)),$(DRIVER))

deps:
	@tools/deps $(PACKAGES)

demo: deps
	@$(MAKE) --no-print-directory all
	@tools/demo $(BUILD)

check: deps
	@$(MAKE) --no-print-directory all tests
	@tests/run $(BUILD)

lint:
	@tools/deps $(LINT_PACKAGES)
	@$(MAKE) --no-print-directory $(GENERATED)
	@tools/lint '$(CPPFLAGS) $(MPI_CFLAGS) $(if $(filter 1,$(CUDA)),$(CUDA_CFLAGS))' $(BUILD)

format:
	clang-format -i $$(git ls-files '*.c' '*.h' '*.cu' '*.cuh')

asan:
	$(MAKE) check CUDA=0 BUILD=$(BUILD)/asan \
	  CFLAGS='-O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all'

tsan:
	$(MAKE) check CUDA=0 BUILD=$(BUILD)/tsan CFLAGS='-O1 -g -fsanitize=thread'

# planner/base/checked.h; a check looks at all of a structure, so tests take several times as long.
checked:
	TEST_SECONDS=900 $(MAKE) check CUDA=0 BUILD=$(BUILD)/checked CFLAGS='-O2 -g -DSHARDPLAN_CHECKED'

fuzz: deps
	@tools/fuzz $(BUILD) $(FUZZ_SECONDS) '$(CPPFLAGS)' '$(LIBS)' $(FUZZ)

SOAK_JOBS ?= 100000
SOAK_LINES ?= 5000
# As many jobs or lines as they are told.
SOAKS := $(addprefix $(BUILD)/tests/,soak/test_soak soak/test_odd_lines soak/test_agree lower/test_properties search/test_kept_sets)
# Of cases that are alike these take some in make check, and all here.
SOAKED = $(filter-out $(SOAKS),$(patsubst %.c,$(BUILD)/%,$(shell grep -El '^.include "tests/support/(soak|trajectory|reference).h"' $(TEST_SOURCES))))
soak: all $(SOAKS) $(SOAKED) $(BUILD)/fault.so $(EMULATED_BACKEND) $(if $(filter 1,$(CUDA)),$(DRIVER))
	SOAK_JOBS=$(SOAK_JOBS) $(BUILD)/tests/soak/test_soak
	SOAK_JOBS=$(SOAK_LINES) SHARDPLAN=$(BUILD)/shardplan $(BUILD)/tests/soak/test_odd_lines
	SOAK_JOBS=$(SOAK_LINES) SHARDPLAN=$(BUILD)/shardplan $(BUILD)/tests/soak/test_agree
	SOAK_JOBS=$(SOAK_JOBS) $(BUILD)/tests/lower/test_properties
	KEPT_SOAK=$$(($(SOAK_JOBS) / 500)) $(BUILD)/tests/search/test_kept_sets
	for test in $(SOAKED); do \
	  SOAK_JOBS=$(SOAK_JOBS) SHARDPLAN=$(BUILD)/shardplan SHARDRUN_EMULATED=$(BUILD)/emulated_cuda.so \
	  SHARDRUN_CUDA=$(BUILD)/shardrun_cuda.so OPENBLAS_NUM_THREADS=1 \
	    $$test || exit; \
	done

bench: all
	@$(MAKE) --no-print-directory $(BUILD)/bench
	@tools/bench $(BUILD)
	@tools/bench-step $(BUILD)

validation: all $(VALIDATIONS)
	@tools/validation $(BUILD)
	@tools/systems $(BUILD)

questions: all
	@tools/questions $(BUILD)

check-gpu: all tests
	@tools/check-gpu $(BUILD)

gpu-kit: all tests $(BUILD)/bench_device
	@tools/gpu-kit $(BUILD) $(BUILD)/gpu-kit

gpu-truth:
	@[ -d $(BUILD)/gpu-kit ] || $(MAKE) --no-print-directory gpu-kit
	@RESULTS=$(CURDIR)/gpu-results $(BUILD)/gpu-kit/tools/gpu-truth $(STAGES)

gpu-report:
	@tools/gpu-report gpu-results >reports/validation/gpu.md

install: all
	install -D -m 755 $(BUILD)/shardplan $(DESTDIR)$(PREFIX)/bin/shardplan
	install -D -m 755 $(BUILD)/shardrun $(DESTDIR)$(PREFIX)/bin/shardrun
	install -D -m 755 tools/record.py $(DESTDIR)$(PREFIX)/bin/shardplan-record
	install -D -m 644 $(BUILD)/shardplan.1 $(DESTDIR)$(PREFIX)/share/man/man1/shardplan.1
	install -D -m 644 $(BUILD)/shardplan.bash \
	  $(DESTDIR)$(PREFIX)/share/bash-completion/completions/shardplan
	ln -sf shardplan $(DESTDIR)$(PREFIX)/share/bash-completion/completions/shardrun
	$(if $(CUDA_BACKEND),install -D -m 755 $(CUDA_BACKEND) \
	  $(DESTDIR)$(PREFIX)/lib/shardplan/shardrun_cuda.so)

clean:
	rm -rf $(BUILD)

help:
	@sed -n 's/^## //p' Makefile

-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)
.PHONY: all tests deps demo check lint format asan tsan checked fuzz soak bench validation questions check-gpu gpu-kit gpu-truth \
        gpu-report install \
        clean help
.SECONDARY:
