# One recipe a habit. `make run` and `make test` do all their own set-up in .venv.
PYTHON ?= python3
PORT ?= 8501
BIN := .venv/bin

.PHONY: run test test-engine check format bench score browser engine messages screenshots clean

.venv/.run-ready: requirements.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "KVScope needs Python 3.11 or newer: make $(MAKECMDGOALS) PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.txt
	@touch $@

.venv/.test-ready: .venv/.run-ready requirements-dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-dev.txt
	@touch $@

run: .venv/.run-ready
	@echo "KVScope: http://127.0.0.1:$(PORT)"
	$(BIN)/python -m streamlit run app.py --server.port $(PORT) --server.headless true

test: .venv/.test-ready
	$(BIN)/python -m pytest

check: .venv/.test-ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/codespell

browser: .venv/.test-ready
	$(BIN)/python -m pytest tests/browser

format: .venv/.test-ready
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

test-engine: .venv/.test-ready engine
	KVSCOPE_LIVE_ENGINE=1 $(BIN)/python -m pytest tests/engine

bench: .venv/.test-ready
	PYTHONPATH=. $(BIN)/python tests/bench.py

engine: .venv/.run-ready
	$(BIN)/python -m live.engine.environment

# Collect what pages, planner and watchers say; bring the catalogues up to date; compile them.
messages: .venv/.test-ready
	PYTHONPATH=. $(BIN)/python tests/messages.py

score: .venv/.run-ready
	$(BIN)/python -m planner score --markdown > docs/accuracy.md
	$(BIN)/python -m planner score --record > planner/data/accuracy.json
	$(BIN)/python -m planner score

screenshots: .venv/.test-ready
	PYTHONPATH=. $(BIN)/python tests/take_screenshots.py

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis
