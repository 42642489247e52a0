# Short commands for the project. CONTRIBUTING.md describes the commands that they call.
.DEFAULT_GOAL := build
.PHONY: build build-arm build-cuda build-cuda-arm build-hip dist wheel deb demo test test-more test-all test-slow test-sanitizers test-fast test-deploy test-dist test-distributed test-clients test-web test-arm test-races test-machine-code test-ptx test-hip test-hip-build test-robustness test-soak fuzz lint format bench bench-recipe regressions clean docs

BUILD := build/release
BIN := $(BUILD)/bin
CCACHE := $(shell command -v ccache 2>/dev/null)
export CMAKE_CXX_COMPILER_LAUNCHER ?= $(CCACHE)

# Builds the program, and links to it under the names of the programs that it replaces.
build: $(BUILD)/build.ninja
	@cmake --build $(BUILD) --target sluice

$(BUILD)/build.ninja: CMakePresets.json packages.txt
	@tools/install_packages.sh build
	@cmake --preset release --log-level=WARNING
	@touch $@

# The same program with CUDA kernels, in build/cuda; it also runs on machines without a GPU. If there is no nvcc, the toolkit
# is installed from PyPI into a virtual environment. CUDA_ARCHITECTURES=90 compiles for only one kind of GPU. The setting is
# kept until other architectures are named.
build-cuda: build/cuda/build.ninja
	@$(if $(CUDA_ARCHITECTURES),cmake -B build/cuda --log-level=WARNING "-DSLUICE_CUDA_ARCHITECTURES=$(CUDA_ARCHITECTURES)" >/dev/null)
	@cmake --build build/cuda --target sluice
	@sed -n 's/^SLUICE_CUDA_ARCHITECTURES:[A-Z]*=/build\/cuda\/bin\/sluice has kernels for /p' build/cuda/CMakeCache.txt

# The same program with kernels for AMD's gfx942 and gfx950, compiled by Debian's Clang 22, in build/hip. It also starts on
# machines without a GPU and without ROCm (docs/hip.md). HIP_ARCHITECTURES=gfx950 compiles for only one kind of GPU; the
# setting is kept.
build-hip: build/hip/build.ninja
	@$(if $(HIP_ARCHITECTURES),cmake -B build/hip --log-level=WARNING "-DSLUICE_HIP_ARCHITECTURES=$(HIP_ARCHITECTURES)" >/dev/null)
	@cmake --build build/hip --target sluice
	@sed -n 's/^SLUICE_HIP_ARCHITECTURES:[A-Z]*=/build\/hip\/bin\/sluice has kernels for /p' build/hip/CMakeCache.txt

build/hip/build.ninja: CMakePresets.json packages.txt
	@tools/install_packages.sh build hip
	@cmake --preset hip --log-level=WARNING
	@touch $@

build/cuda/build.ninja: CMakePresets.json packages.txt
	@tools/install_packages.sh build
	@tools/cuda_toolkit.sh
	@cmake --preset cuda --log-level=WARNING
	@touch $@

# The program for aarch64, cross-compiled on this machine.
build-arm: build/arm/build.ninja
	@cmake --build build/arm --target sluice

build/arm/build.ninja: CMakePresets.json packages.txt
	@tools/install_packages.sh build arm
	@cmake --preset arm --log-level=WARNING
	@touch $@

# The program with CUDA kernels for machines with an Arm processor (DGX Spark, GH200, GB200, Thor), cross-compiled on this machine.
build-cuda-arm: build/cuda-arm/build.ninja
	@$(if $(CUDA_ARCHITECTURES),cmake -B build/cuda-arm --log-level=WARNING "-DSLUICE_CUDA_ARCHITECTURES=$(CUDA_ARCHITECTURES)" >/dev/null)
	@cmake --build build/cuda-arm --target sluice

build/cuda-arm/build.ninja: CMakePresets.json packages.txt
	@tools/install_packages.sh build arm
	@tools/cuda_toolkit.sh
	@cmake --preset cuda-arm --log-level=WARNING
	@touch $@

# A folder that runs on any Linux with glibc 2.36 or later, and its archive, in build/dist. By default it contains the program for
# this kind of machine; DIST_PRESET=cuda, arm or cuda-arm selects the program of build-cuda, build-arm or build-cuda-arm.
DIST_PRESET ?= release
DIST_MACHINE = $(if $(filter arm cuda-arm,$(DIST_PRESET)),aarch64,$(shell uname -m))
dist: $(if $(filter cuda arm cuda-arm,$(DIST_PRESET)),build-$(DIST_PRESET),build)
	@tools/install_packages.sh dist
	@tools/dist.sh $(DIST_PRESET)

# Packs the program as a Python wheel, and makes a second wheel that adds the names of other programs; both in build/dist.
wheel: dist
	@tools/wheel.py $(DIST_MACHINE)

# Makes a package for Debian 12, which uses the system's libraries; in build/dist.
deb: dist
	@tools/deb.sh $(DIST_PRESET)

demo: build
	@tools/install_packages.sh demo
	@tools/demo.sh

# Unit tests and end-to-end tests in the release build, except those that take long. The last line is `N passed, N failed`.
TEST_FLAGS ?=
test:
	@tools/install_packages.sh build test
	@python3 tests/run.py $(TEST_FLAGS) test

# The other tests that a change must pass: lint, sanitizers for code that reads untrusted bytes, the CUDA build, and code specific
# to Arm.
test-more:
	@tools/install_packages.sh build test lint arm hip
	@python3 tests/run.py more

# Runs the checks of `make test` and `make test-more`. Sanitizer builds run while end-to-end tests leave CPU cores idle.
test-all:
	@$(MAKE) --no-print-directory test TEST_FLAGS="--ahead=asan-core --ahead=tsan-core"
	@$(MAKE) --no-print-directory test-more

# Unit tests and end-to-end tests that take long, in the release build.
test-slow:
	@tools/install_packages.sh build test
	@python3 tests/run.py slow

# Most test programs with AddressSanitizer and UBSan, and tests of threads with ThreadSanitizer; takes more than half an hour.
test-sanitizers:
	@tools/install_packages.sh build test
	@python3 tests/run.py sanitizers

# For use after each change: the unit test programs that changed since they last passed, and lint of the changed files.
test-fast:
	@tools/install_packages.sh build test lint
	@python3 tests/run.py fast

# Runs the steps of deploy/Dockerfile in separate Debian root folders, without a container engine; slow, needs root.
test-deploy:
	@python3 tests/deploy/test_dockerfile.py

# Runs the program of `make dist` in a folder that contains only glibc. Then installs each package in a Debian root folder without a
# compiler, and sends the program a request. Needs root and a Debian mirror. DIST_PRESET=arm tests the packages for aarch64 under qemu,
# without root folders. DIST_PRESET=cuda and cuda-arm test only the archive, since other packages contain no CUDA kernels.
ARCHIVE_ALONE = $(filter cuda cuda-arm,$(DIST_PRESET))
test-dist: dist $(if $(ARCHIVE_ALONE),,wheel deb)
	@tools/install_packages.sh test-dist
	@python3 tests/deploy/test_dist.py build/dist $(DIST_MACHINE)
	@$(if $(ARCHIVE_ALONE),true,python3 tests/deploy/test_packages.py build/dist $(DIST_MACHINE))

# Runs real client programs against the server, each in a separate virtual environment; the first run is slow. Needs the network.
test-clients: $(if $(SLUICE_BIN),,build)
	@python3 tests/clients/run_clients.py

# Tests the pages at / and /docs in headless Chromium.
test-web:
	@tools/install_packages.sh build test web
	@python3 tests/run.py web

# Tests ranks that run in separate processes: equal answers, every way to lose a rank, and several machines. Network namespaces stand in
# for the machines and need root. Takes minutes.
test-distributed:
	@tools/install_packages.sh build test test-distributed
	@python3 tests/run.py distributed

# Tests the program for aarch64 under qemu: kernels and models, the bundled model's answers, and the promise that answers do not
# depend on the batch, on CPUs with and without the newer instructions. Takes tens of minutes.
test-arm:
	@tools/install_packages.sh build test arm
	@python3 tests/run.py arm

# Runs all checks of the CUDA kernels in the emulator with ThreadSanitizer, which reports data races. Takes tens of minutes.
test-races:
	@tools/install_packages.sh build test
	@python3 tests/run.py races

# Checks the machine code of the CUDA kernels for all architectures (registers, stack, spills, instructions), and the page that
# describes it. Takes minutes, needs nvcc.
test-machine-code:
	@tools/install_packages.sh build test
	@python3 tests/run.py machine-code

# Runs all checks of the CUDA kernels in an interpreter of the PTX that nvcc generates. Takes minutes, needs nvcc.
test-ptx:
	@tools/install_packages.sh build test
	@python3 tests/run.py ptx

# Checks the machine code of the kernels for AMD GPUs, and runs recipe 003 on a fake HIP runtime. Takes tens of minutes, mostly for the
# first build.
test-hip:
	@tools/install_packages.sh build test hip
	@python3 tests/run.py hip

# Runs `make build-hip` in a Debian root folder that has only the packages of packages.txt, and starts the program there. Takes as long
# as a full build; needs root and a Debian mirror. HIP_ARCHITECTURES=gfx950 compiles for only one kind of GPU.
test-hip-build:
	@tools/install_packages.sh test-dist
	@HIP_ARCHITECTURES="$(HIP_ARCHITECTURES)" python3 tests/deploy/test_hip_build.py

# The tests of the cases in docs/security.md, in at most 20 minutes: load, slow peers, full disks, clocks, limits, signals, damaged
# files. Keeps the results and writes the page's tables.
test-robustness:
	@tools/install_packages.sh build test test-distributed
	@python3 tests/run.py robustness

# Runs an hour of mixed load on the program with AddressSanitizer; SOAK_SECONDS sets another duration. Writes the figures to
# docs/security.md.
SOAK_SECONDS ?= 3600
test-soak: build/asan/build.ninja
	@cmake --build build/asan --target sluice
	@SOAK_SECONDS=$(SOAK_SECONDS) tests/robustness/soak.py --write
	@tools/security_cases.py page

build/asan/build.ninja: CMakePresets.json packages.txt
	@tools/install_packages.sh build
	@cmake --preset asan --log-level=WARNING
	@touch $@

# Runs libFuzzer with sanitizers on all parsers of untrusted input, for FUZZ_SECONDS each.
FUZZ_SECONDS ?= 60
fuzz: build/fuzz/build.ninja
	@cmake --build build/fuzz --target fuzzers
	@tools/fuzz.py --seconds $(FUZZ_SECONDS)

build/fuzz/build.ninja: CMakePresets.json packages.txt
	@tools/install_packages.sh build fuzz
	@cmake --preset fuzz --log-level=WARNING
	@touch $@

# Checks format, ruff, includes between folders, generated pages, thread-safety annotations, clang-tidy.
lint:
	@tools/install_packages.sh build test lint
	@python3 tests/run.py lint

format:
	@tools/install_packages.sh lint
	@git ls-files 'src/*.h' 'src/*.cc' 'src/*.cu' | xargs clang-format -i

# Writes the generated pages of docs/.
docs: build
	@tools/generate_docs.sh

# Measures the figures that README.md and the folder benchmarks/ mention, and compares them with this machine's limits.
bench: build
	@tools/bench.sh

# Run before a release: compares the instruction counts of hot paths on the host, and the relative times of kernels, with stored
# figures. Needs idle cores.
regressions: $(BUILD)/build.ninja
	@tools/install_packages.sh build regressions
	@cmake --build $(BUILD) --target host_paths kernels_benchmark
	@tools/regressions.py

# Runs the recipes' benchmark for large models on the bundled model, and checks the server's memory. Takes tens of minutes.
bench-recipe: build
	@python3 tools/bench_recipe.py

clean:
	rm -rf build .venv .venv-cuda .venv-cuobjdump .venv-lm-eval .venv-schemathesis .venv-clients .venv-lint
