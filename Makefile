# Short names for the commands in README.md.
python := .venv/bin/python

.PHONY: demo test bench lint format corpus-check

demo:  ## train a small voice and hear it
	bash scripts/quickstart.sh

test:  ## run the tests
	bash scripts/test.sh

bench:  ## time training and synthesis against plain references and the machine's limit
	$(python) -m benchmarks.speed --growth

lint:  ## what CI checks beside the tests
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy

format:  ## rewrite the code as the formatter wants it
	.venv/bin/ruff check --fix .
	.venv/bin/ruff format .

corpus-check:  ## make the embedded corpus again and compare it byte for byte (needs festival)
	$(python) scripts/make_corpus.py --check
