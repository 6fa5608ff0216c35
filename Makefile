# Day-to-day commands.  PYTHON is the interpreter of the environment that README's first command makes.
PYTHON ?= .venv/bin/python
CPM = cpm-toolbox==0.26.0
CSV = model_based_model_free.csv
REAL = datasets/two_step_game/data

.PHONY: help real-data datasets check campaigns

help:
	@echo "real-data   fetch the log of real people into $(REAL) (AGPL: never vendored)"
	@echo "datasets    write the shipped simulated logs anew, byte for byte"
	@echo "check       lint, types and all tests but the campaigns"
	@echo "campaigns   the long studies; they print their tables and rewrite their committed results"

real-data: $(REAL)/$(CSV)

$(REAL)/$(CSV):
	mkdir -p $(REAL)/wheel
	$(PYTHON) -m pip download --quiet --no-deps --dest $(REAL)/wheel '$(CPM)'
	$(PYTHON) -m zipfile --extract $(REAL)/wheel/cpm_toolbox-*.whl $(REAL)/wheel/unpacked
	cp $(REAL)/wheel/unpacked/cpm/datasets/data/$(CSV) $@
	rm -rf $(REAL)/wheel

datasets:
	$(PYTHON) -m flows.cli simulate icu_sepsis --logs
	$(PYTHON) -m flows.cli simulate riverswim --logs

check:
	$(PYTHON) -m ruff check pipeline flows reports tests
	$(PYTHON) -P -m pytest -m 'not campaign'

campaigns:
	$(PYTHON) -P -m tests.campaigns.icu_sepsis_study
	$(PYTHON) -P -m tests.campaigns.tune_practical
	$(PYTHON) -P -m tests.campaigns.containment
	$(PYTHON) -P -m tests.benchmarks.consistency_speed
