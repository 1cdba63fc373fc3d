# make demo    grade the shipped rollouts with rules and the embedded vLLM judge; prints a table, writes a ledger and a report
# make demo-training    SkyRL's real trainers on CPU: rule or judge, sync or async; tables and curves
# make test    every test, each environment made from nothing
# make unit    the core's quick tests, on all processors, in any order; make test-core runs them all
# make check   formatting, lint, types
# make bench   the benchmarks whose figures docs/benchmarks.md shows
# make docs    the documentation as a site
# make claims    what README and docs claim, and whether a test or a benchmark holds it
# make mutation    small changes of the source: do the tests notice? 1,500 of them; also ROOMS="run reward" MUTANTS=100

PY := python3
CORE := .venv/core/bin/python
VLLM := .venv/vllm/bin/python
BENCH := .venv/bench/bin/python
VERL := .venv/verl/bin/python
SKYRL := .venv/skyrl/bin/python
TRL := .venv/trl/bin/python
DATA ?= ../shared/data/gsm8k_solutions_dev.jsonl
PYTEST := -m pytest -q -p no:cacheprovider
# a checkout keeps its bytecode, as an installed package does: else each process compiles judgekit again
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo demo-training test unit check mutation bench format env-core env-vllm env-bench env-verl env-skyrl env-trl test-vllm test-verl test-skyrl test-trl bench-gsm8k bench-runner bench-faults bench-judge bench-determinism bench-fleet bench-injection bench-crash bench-ledger bench-step bench-verl clean

help:
	@sed -n 's/^# //p' Makefile

demo: env-vllm
	$(VLLM) -m judgekit grade examples/demo/reward.yaml examples/data/rollouts.jsonl --out demo-out/graded.jsonl --ledger demo-out/ledger.jsonl --report demo-out/report.html --force
	@echo
	@echo "graded: it gave a score; abstained: it had no opinion; skipped: behind a gate that was not passed; failed: it could not form one."
	@echo "mean, std: of its scores. p50, p95: time of half and of 95 % of its evaluations, with their wait for the judge."
	@echo
	@echo "next: open demo-out/report.html (or: .venv/vllm/bin/judgekit view demo-out/ledger.jsonl); change a weight in examples/demo/reward.yaml and see what it would have been:"
	@echo "  .venv/vllm/bin/judgekit replay demo-out/ledger.jsonl --reward examples/demo/reward.yaml --out demo-out/replayed.jsonl"
	@echo "  or put a real judge in: judges: {local: {engine: vllm, model: Qwen/Qwen2.5-1.5B-Instruct}}"

demo-training: env-skyrl env-vllm
	$(SKYRL) adapters/skyrl/benchmarks/demo_training.py

# two lanes side by side, one process each: verl's and SkyRL's suites start Ray, and are never run at once, for one is the
# first of its lane and the other the last
test:
	$(MAKE) --jobs=2 --output-sync=line --keep-going test-rules-and-callers test-engines-and-clusters

.PHONY: test-rules-and-callers test-engines-and-clusters
test-rules-and-callers:
	$(MAKE) --jobs=1 --keep-going test-skyrl test-core test-vllm-texts test-trl

test-engines-and-clusters:
	$(MAKE) --jobs=1 --keep-going test-ray test-vllm-engines test-verl

# everything but what tests/slow.txt names; a failure's header has the seed of its order: SEED=… gives it again
ORDER = $(or $(SEED),$(shell od -An -N3 -tu4 /dev/urandom | tr -d ' '))
unit: env-core
	$(CORE) $(PYTEST) tests -m "not slow" -n auto --dist loadfile --random-order-bucket=module --random-order-seed=$(ORDER)

.PHONY: test-core
test-core: env-core
	$(CORE) $(PYTEST) tests

test-vllm: test-vllm-texts test-vllm-engines

.PHONY: test-vllm-texts test-vllm-engines
TEXTS := tests/vllm/test_real_tokenizers.py tests/vllm/test_chat_templates.py tests/vllm/test_tokens.py
test-vllm-texts: env-vllm
	$(VLLM) $(PYTEST) $(TEXTS)
	$(VLLM) $(PYTEST) tests/judges/test_openai_faults.py tests/judges/test_sglang.py

test-vllm-engines: env-vllm
	$(VLLM) $(PYTEST) tests/vllm $(TEXTS:%=--ignore=%)

.PHONY: test-ray
test-ray: env-verl
	$(VERL) $(PYTEST) tests/data

test-skyrl: env-skyrl env-vllm
	$(SKYRL) $(PYTEST) adapters/skyrl/tests

# as users have them, on Python 3.12: skyrl-train 0.3.1, and a few of the tests on skyrl 0.4.0
.PHONY: test-skyrl-train env-skyrl-train
S := adapters/skyrl/tests
test-skyrl-train: env-skyrl-train
	.venv/skyrl-train/bin/python $(PYTEST) $(addprefix $(S)/,test_env.py test_groups.py test_main_train.py test_trainer.py test_turns.py \
	  test_training.py::test_it_learns test_training.py::test_too_many_failures_end_it)
	PYTHONPATH=.venv/skyrl-train/beside/0.4.0 .venv/skyrl-train/bin/python $(PYTEST) $(addprefix $(S)/,test_env.py test_groups.py test_main.py \
	  test_trainer.py test_training.py::test_it_learns)

env-skyrl-train:
	@$(PY) tools/envs.py skyrl-train

test-verl: env-verl env-vllm
	$(VERL) $(PYTEST) adapters/verl/tests

test-trl: env-trl
	$(TRL) $(PYTEST) adapters/trl/tests
	$(TRL) $(PYTEST) tests/bridges

check: env-core
	.venv/core/bin/ruff format --check .
	.venv/core/bin/ruff check .
	.venv/core/bin/mypy

.PHONY: claims
claims: env-core
	$(CORE) tools/claims.py

.PHONY: docs
docs: env-core
	.venv/core/bin/mkdocs build --strict --quiet
	@echo "open .work/site/index.html"

format: env-core
	.venv/core/bin/ruff format .
	.venv/core/bin/ruff check --fix .

bench: bench-runner bench-faults bench-threads bench-gsm8k bench-judge bench-determinism bench-fleet bench-injection bench-crash bench-graders bench-code bench-advantages bench-ledger bench-resume bench-scale bench-service bench-everywhere bench-first-hour bench-attack bench-evidence bench-credit bench-groups bench-report

bench-runner: env-bench
	$(BENCH) benchmarks/bench_runner.py

.PHONY: bench-threads
bench-threads: env-core
	$(CORE) benchmarks/bench_threads.py

mutation: env-core
	$(CORE) tools/mutation $(ROOMS) $(if $(MUTANTS),--mutants $(MUTANTS)) $(if $(SEED),--seed $(SEED)) $(if $(SINCE),--since $(SINCE)) $(if $(WHOLE),--whole)

bench-faults: env-bench
	$(BENCH) benchmarks/bench_faults.py

.PHONY: bench-report screenshots
bench-report: env-core
	$(CORE) benchmarks/bench_report.py

screenshots: env-core
	$(CORE) tools/screenshots.py

.PHONY: bench-graders
bench-graders: env-core
	$(CORE) benchmarks/bench_graders.py

.PHONY: bench-code
bench-code: env-core
	$(CORE) benchmarks/bench_code.py

bench-gsm8k: env-vllm
	$(VLLM) benchmarks/bench_gsm8k.py $(DATA)

.PHONY: bench-scale
bench-scale: env-bench
	$(BENCH) benchmarks/bench_scale.py

.PHONY: bench-service
bench-service: env-bench
	$(BENCH) benchmarks/bench_service.py

.PHONY: bench-advantages
bench-advantages: env-verl env-skyrl env-trl
	python3 benchmarks/bench_advantages.py

.PHONY: bench-attack
bench-attack: env-core env-vllm env-verl env-skyrl env-trl
	$(CORE) benchmarks/bench_attack.py

.PHONY: bench-evidence
bench-evidence: env-core env-vllm env-trl env-skyrl
	$(CORE) benchmarks/bench_evidence.py

.PHONY: bench-groups
bench-groups: env-core
	$(CORE) benchmarks/bench_groups.py

.PHONY: bench-credit
bench-credit: env-core env-skyrl env-verl env-vllm
	$(CORE) benchmarks/bench_credit.py

.PHONY: bench-first-hour
bench-first-hour: env-core env-trl env-verl
	$(CORE) benchmarks/bench_first_hour.py

.PHONY: bench-everywhere
bench-everywhere: env-core env-verl env-skyrl env-trl
	$(CORE) benchmarks/bench_everywhere.py

bench-verl: env-verl
	$(VERL) adapters/verl/benchmarks/bench_verl.py

bench-step: env-skyrl
	$(SKYRL) adapters/skyrl/benchmarks/bench_step.py

bench-judge: env-vllm
	$(VLLM) benchmarks/bench_judge.py

.PHONY: bench-determinism
bench-determinism: env-vllm
	$(VLLM) benchmarks/bench_determinism.py

.PHONY: bench-fleet
bench-fleet: env-vllm
	$(VLLM) benchmarks/bench_fleet.py

bench-injection: env-vllm
	$(VLLM) benchmarks/bench_injection.py

.PHONY: bench-resume
bench-resume: env-bench
	$(BENCH) benchmarks/bench_resume.py

bench-ledger: env-bench
	$(BENCH) benchmarks/bench_ledger.py

bench-crash: env-vllm
	$(VLLM) benchmarks/bench_crash.py

env-core:
	@$(PY) tools/envs.py core

env-bench:
	@$(PY) tools/envs.py bench

env-vllm:
	@$(PY) tools/envs.py vllm

env-verl:
	@$(PY) tools/envs.py verl

env-skyrl:
	@$(PY) tools/envs.py skyrl

env-trl:
	@$(PY) tools/envs.py trl

clean:
	rm -rf .venv demo-out .mypy_cache .ruff_cache .hypothesis
