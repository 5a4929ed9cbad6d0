# Two commands to start: `make demo` and `make test`. Both set everything up by themselves.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test test-slow lint clean

# torch comes first and by exact version, so that nothing pulls a CUDA build.
$(READY): pyproject.toml CMakeLists.txt $(wildcard csrc/*.* csrc/*/*)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q --disable-pip-version-check torch==2.13.0
	$(BIN)/pip install -q --disable-pip-version-check -e '.[dev]'
	touch $(READY)

demo: $(READY)
	$(BIN)/laconic demo

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: lint
	$(BIN)/python -m pytest

# The long ones: soak, sanitizers, quality.
test-slow: $(READY)
	$(BIN)/python -m pytest -m slow

clean:
	rm -rf $(VENV) build dist .cmake .ninja_* .skbuild-info.json CMakeCache.txt CMakeFiles CMakeInit.txt build.ninja \
		cmake_install.cmake install_manifest*.txt lib*.a src/laconic/kernels/_native*.so
