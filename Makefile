# Two commands, and more tests or fewer. All but test-gpu first set up .venv from requirements.lock, once.
#   make reproduce              all figures, tables and the audit at smoke scale (SCALE=mini for real data): resync run
#   make report-reference       draws the figures, tables, audits and pages of results/reference again, without training,
#                               in .reference/, says where, and fails if they are not those committed
#   make reference SCALE=mini   adds the runs of results/mini to results/reference, and renews what is drawn from it
#   make test                   style, types, and the tests but for those that take long for what they guard
#   make test-all               all tests
#   make chaos                  kills processes of runs, compares what they end with, and reports what it cost, also
#                               after Ctrl-C (KILLS=200 SEED=0); `make test-all` does it with 20 kills
#   make bench                  measures the project beside its peers (ONLY=synchronisation,loading)
#   make docs                   the pages of docs/ as a site with search, and a reference: dist/docs/index.html
#   make trainers               installs Hugging Face's and Lightning's trainers and torchft, for the tests beside these
#   make test-gpu               the tests that need a GPU, with any Python that has torch and pytest (PYTHON=...)
#   make reproduce TORCH=cpu    the same, installed without CUDA, on a laptop or in a container

PYTHON ?= python3
SCALE ?= smoke
# cpu: installs torch without CUDA libraries, which need most of the 6 GB of .venv; takes effect on first use.
TORCH ?= cuda
# Number of processes that run tests; some tests start four more.
TEST_PROCESSES ?= 2
# Installed by pip where there is no uv.
UV_VERSION := 0.13.9
# How many processes `make chaos` kills, and what its choices follow from.
KILLS ?= 20
SEED ?= 0
# The benchmarks that `make bench` runs, separated by commas; empty: all.
ONLY ?=
BIN := .venv/bin
# A process has all tests of a file, in the order of tests/conftest.py.
PYTEST = $(BIN)/pytest -n $(TEST_PROCESSES) --dist loadfile --no-loadscope-reorder
# Python must keep its bytecode: otherwise every job would compile torch again.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: reproduce report-reference reference test test-all test-gpu trainers chaos bench docs

reproduce: .venv/installed
	@$(BIN)/resync run --scale $(SCALE)

report-reference: .venv/installed
	@rm -rf .reference
	@$(BIN)/resync reference check --into .reference

reference: .venv/installed
	@$(BIN)/resync reference renew --scale $(SCALE)

test: .venv/installed
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(PYTEST) -m "not slow"

test-all: .venv/installed
	$(PYTEST)

chaos: .venv/installed
	$(BIN)/python tests/chaos --kills $(KILLS) --seed $(SEED)

bench: .venv/installed
	$(BIN)/python -m benchmarks --only "$(ONLY)"

docs: .venv/installed
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo dist/docs/index.html

trainers: .venv/installed
	PATH="$$PWD/$(BIN):$$PATH" uv pip install --python $(BIN)/python --require-hashes -r requirements-trainers.lock

# Installs nothing and needs few packages; fails without a GPU.
test-gpu:
	@"$(PYTHON)" tests/gpu/ready.py
	"$(PYTHON)" -m pytest -c tests/gpu/pytest.ini --rootdir . -p no:cacheprovider tests/gpu

# Uses uv if it is installed; otherwise pip installs it into .venv. Every archive that is installed must have a hash that
# requirements.lock lists, or requirements-ffcv.lock for FFCV, and requirements-slurm.lock for Snakemake's Slurm executor,
# which Snakemake loads at every start, and which fails where the machine has no program `which`. With TORCH=cpu, torch and torchvision have
# the versions of the lock, but come from PyTorch's own index, whose archives have other hashes: these are not compared.
.venv/installed: requirements.lock requirements-ffcv.lock requirements-slurm.lock pyproject.toml
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11) and "resync needs Python 3.11 or newer: make PYTHON=python3.12 ...")'
	@echo 'setting up .venv, once: with CUDA libraries a download of about 3 GB (TORCH=cpu leaves them out)'
	@if uv --version >/dev/null 2>&1; then \
		uv venv --quiet --allow-existing --python "$(PYTHON)" .venv; \
	else \
		"$(PYTHON)" -m venv .venv && $(BIN)/python -m pip install --quiet uv==$(UV_VERSION); \
	fi
	@export PATH="$(BIN):$$PATH"; \
	if [ "$(TORCH)" = cpu ]; then \
		uv pip install --python $(BIN)/python --torch-backend cpu $$(sed -n 's/^\(torch\(vision\)\{0,1\}==[^ ]*\) .*/\1/p' requirements.lock) && \
		awk '/^[a-z]/ {kept = !/^(torch|torchvision|triton|nvidia-[a-z0-9-]+|cuda-[a-z]+)==/} kept' requirements.lock > .venv/without-cuda.lock && \
		uv pip install --python $(BIN)/python --no-deps --require-hashes -r .venv/without-cuda.lock; \
	else \
		uv pip install --python $(BIN)/python --require-hashes -r requirements.lock; \
	fi && \
	uv pip install --python $(BIN)/python --no-deps -e . && \
	if command -v sbatch >/dev/null 2>&1; then \
		uv pip install --python $(BIN)/python --require-hashes -r requirements-slurm.lock; \
	else \
		echo 'installing without the Slurm executor, which needs sbatch (docs/cluster.md)'; \
	fi && \
	if pkg-config --exists opencv4 libturbojpeg 2>/dev/null; then \
		uv pip install --python $(BIN)/python --require-hashes -r requirements-ffcv.lock; \
	else \
		echo 'installing without FFCV, which needs libopencv-dev, libturbojpeg0-dev and pkg-config (docs/data.md)'; \
	fi
	@$(BIN)/resync schema
	@touch $@
