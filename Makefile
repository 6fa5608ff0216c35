# Day-to-day commands.  PYTHON is the interpreter of the environment that README's first command makes.
PYTHON ?= .venv/bin/python

.PHONY: help real-data datasets forecasts check house schema figures site evidence

help:
	@echo "real-data   fetch the logs of real people into datasets/*/data (AGPL, GPL: never vendored; Open Bandit's sample too)"
	@echo "datasets    write the shipped simulated logs anew, byte for byte"
	@echo "forecasts   simulate what \`plan\` says of the shipped recipes, after a change of what such a simulation runs"
	@echo "check       lint and all tests, slow ones too"
	@echo "house       print how large the house is, and draw docs/architecture.svg from its imports"
	@echo "schema      write anew what is made of code: the JSON Schema of report.json, and the figures"
	@echo "figures     write the figures of all pages anew from their rows"
	@echo "site        build the documentation into build/site, with three report pages made anew; open its index.html"
	@echo "evidence    make the tables of docs/lab/evidence.toml anew, the oldest first (BUDGET=2h, TABLES='races year')"

real-data:
	$(PYTHON) -P -m flows.cli datasets fetch two_step_game two_step_adults two_step_chance open_bandit

datasets:
	$(PYTHON) -m flows.cli simulate icu_sepsis --logs
	$(PYTHON) -m flows.cli simulate riverswim --logs
	$(PYTHON) -m flows.cli simulate double_integrator --logs

forecasts:
	$(PYTHON) -P -m tests.campaigns.forecasts

GALLERY = demo riverswim double_integrator
site:
	rm -rf build/site build/gallery docs/gallery && mkdir -p docs/gallery
	$(PYTHON) -P -m flows.cli --home build/gallery demo
	for name in riverswim double_integrator; do \
		$(PYTHON) -P -m flows.cli --home build/gallery ingest $$name && $(PYTHON) -P -m flows.cli --home build/gallery run $$name || exit 1; done
	for name in $(GALLERY); do cp build/gallery/runs/$$name-*/report.html docs/gallery/$$name.html; done
	$(PYTHON) -m mkdocs build --strict

check:
	$(PYTHON) -m ruff check pipeline flows reports tests
	$(PYTHON) -P -m pytest -m ''

house:
	$(PYTHON) -P -m tests.house.figures
	$(PYTHON) -P -m tests.house.journey
	$(PYTHON) -P -m tests.house.draw
	$(PYTHON) -P -m tests.house.notebook

figures:
	$(PYTHON) -P -m tests.campaigns.rows

schema: figures
	$(PYTHON) -P -m pipeline.facts.report

BUDGET ?= 3h
evidence:
	$(PYTHON) -P -m tests.campaigns.evidence --budget $(BUDGET) $(TABLES)
