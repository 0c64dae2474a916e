# What the chain's words mean for PROFILE=minigpt, a lab of its own; included by the Makefile.
# Each stage works on every seed of SEEDS, as many at a time as there are cores.

.PHONY: all env base train eval
all: ablation report

env: $(ENV)

base: $(ENV)
	$(PY) -m trainer.minigpt.base $(call args,$(ABLATION_SETTINGS))

train: base
	$(PY) -m trainer.minigpt.train $(call args,$(ABLATION_SETTINGS))

eval: train
	$(PY) -m trainer.minigpt.evaluate $(call args,$(ABLATION_SETTINGS))

.DEFAULT:
	@echo "error: PROFILE=minigpt has no '$@': the lab is make base train eval ablation report" >&2; exit 2
