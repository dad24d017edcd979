# Every target sets up its own .venv first; the second time that costs nothing.
VENV := .venv
BIN := $(VENV)/bin
PYTHON ?= python3
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet -c constraints.txt

.PHONY: demo test test-long test-soak fuzz newest-flower pins lint docs rooms bench pictures results release-check clean

demo: $(VENV)/.core
	$(BIN)/fedprognos demo --out runs/demo

# Three tiers, and every test is in one of them. The first takes three minutes on two cores; it says what it leaves out.
# LIMITS="--cpu-each S --cpu-total S" fails if tests take more processor seconds, as .ci/run asks for.
# One thread each: two processes of tests, and what they start, share the cores, and idle threads of BLAS wait busily.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal
test: $(VENV)/.dev
	$(PYTEST) -m "not long and not soak" $(LIMITS)

# Browsers, a broker, training, many random examples; needs chromium and mosquitto.
test-long: $(VENV)/.dev
	$(PYTEST) -m "(long or hypothesis) and not soak" --hypothesis-profile=thorough

# Kills, pauses and attacks over TLS with real processes; most of them wait on the clock, so nothing else should run.
# KILLS is how often the service dies while alerts are raised.
KILLS ?= 12
test-soak: $(VENV)/.dev
	KILLS=$(KILLS) $(BIN)/python -m pytest -m soak

# Damaged messages, files and requests: no traceback, no hang, no memory blow-up.
CASES ?= 2000
fuzz: $(VENV)/.dev
	$(BIN)/python tests/fuzz --cases $(CASES)

# The tests of deployments on the newest release of Flower, in an environment of its own; what it breaks is for the next pin.
newest-flower:
	$(PYTHON) -m venv build/newest-flower
	grep -v '^flwr==' constraints.txt > build/newest-flower/constraints.txt
	build/newest-flower/bin/python -m pip --disable-pip-version-check install --quiet -c build/newest-flower/constraints.txt -e '.[dev]'
	build/newest-flower/bin/python -m pip --disable-pip-version-check install --quiet --upgrade flwr
	OMP_NUM_THREADS=1 build/newest-flower/bin/python -m pytest -n 2 tests/deployment -m "not soak"

# When each dependency was pinned: no database of vulnerabilities is asked, so look at what has stood for long.
pins:
	@git blame --date=short constraints.txt | sed -E 's/^.*([0-9]{4}-[0-9]{2}-[0-9]{2}) +[0-9]+\) /\1  /' | grep '==' | sort

lint: $(VENV)/.dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

# Files and lines of every room, counted into the table of CONTRIBUTING.md.
rooms:
	$(PYTHON) docs/count_rooms.py

# The documentation as a site that works offline: build/site/index.html.
docs: $(VENV)/.dev
	$(BIN)/mkdocs build --strict --quiet

bench: $(VENV)/.dev
	for file in benchmarks/*.py; do $(BIN)/python $$file || exit 1; done

# The picture of a report in README: runs the demo and photographs its first screen; needs chromium.
pictures: $(VENV)/.dev
	$(BIN)/python docs/make_report_picture.py

# The paper's experiments again: runs (hours, they go on where they were), docs/results/*.json, docs/results.md and docs/results/tables.md.
results: $(VENV)/.dev
	$(BIN)/python -m studies results

# What a release must pass: the wheel is built, installed in an environment of its own, and runs the demo from there.
release-check: $(VENV)/.dev
	rm -rf build/release
	$(BIN)/python -m build --outdir build/release
	$(PYTHON) -m venv build/release/venv
	build/release/venv/bin/python -m pip --disable-pip-version-check install --quiet -c constraints.txt build/release/*.whl
	cd build/release && venv/bin/fedprognos demo --out demo && test -s demo/report.html && venv/bin/python -c 'import fedprognos as fp; fp.Predictor.load("demo/bundle")'

clean:
	rm -rf $(VENV) build runs

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit("fedprognos needs Python 3.11 or newer" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.core: pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "Installing fedprognos into $(VENV) (a few minutes the first time)"
	$(PIP) -e .
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "Installing fedprognos and its tools into $(VENV) (a few minutes the first time)"
	$(PIP) -e '.[dev]'
	@touch $@ $(VENV)/.core
