# Short names for common commands.
python := .venv/bin/python

.PHONY: demo test bench lint format docs

demo:  ## train a small voice and speak with it
	bash scripts/quickstart.sh

test:  ## run the tests
	bash scripts/test.sh

bench:  ## measure the speed of training and synthesis against the plain models and the machine's limit
	$(python) -m benchmarks.speed

lint:  ## run the linter, the formatter and the type checker, as CI does
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy

format:  ## rewrite the code with the linter and the formatter
	.venv/bin/ruff check --fix .
	.venv/bin/ruff format .

docs:  ## write docs/cli.md from the parsers
	$(python) -m scripts.write_cli_docs
