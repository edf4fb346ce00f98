# `make help` lists what there is. Two commands set everything up by themselves: make demo, make test.
.PHONY: help setup demo test check test-cluster bench lock clean
.DEFAULT_GOAL := help

help:  ## this list
	@sed -n 's/^\([a-z-]*\):.*## /  make \1 \t/p' Makefile | expand -t 22

setup:  ## make .venv from requirements.lock (the other targets do it when it is needed)
	@scripts/setup

demo: setup  ## catch a NaN in a two-rank training on this machine
	@.venv/bin/stepwarden run -f examples/nan/job.yaml

test: setup  ## all tests: fast ones, then those on a real cluster where one can run
	@scripts/test

test-cluster: setup  ## the tests on a real cluster alone; ARGS="-k hold" chooses
	@scripts/test-cluster $(ARGS)

check: setup  ## ruff, mypy, import-linter, the locks, the chart
	@scripts/check

bench: setup  ## measure what docs/benchmarks.md says
	@.venv/bin/python bench $(ARGS)

lock: setup  ## resolve requirements.lock and requirements-image.lock anew
	@scripts/lock --upgrade

clean:  ## remove what these commands made in this folder
	@rm -rf .venv .venv-oldest .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache stepwarden-report*
