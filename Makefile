# Day-to-day commands.  PYTHON is the interpreter of the environment that README's first command makes.
PYTHON ?= .venv/bin/python

.PHONY: help real-data datasets forecasts check house schema figures site campaigns

help:
	@echo "real-data   fetch the logs of real people into datasets/*/data (AGPL, GPL: never vendored; Open Bandit's sample too)"
	@echo "datasets    write the shipped simulated logs anew, byte for byte"
	@echo "forecasts   simulate what \`plan\` says of the shipped recipes, after a change of what such a simulation runs"
	@echo "check       lint, types and all tests but the campaigns"
	@echo "house       print how large the house is, and draw docs/architecture.svg from its imports"
	@echo "schema      write anew what is made of code: the JSON Schema of report.json, and the figures"
	@echo "figures     write the figures of all pages anew from the rows in tests/campaigns/results"
	@echo "site        build the documentation into build/site, with three report pages made anew; open its index.html"
	@echo "campaigns   the long studies; they print their tables and rewrite their committed results"

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
	$(PYTHON) -P -m pytest -m 'not campaign'

house:
	$(PYTHON) -P -m tests.house.figures
	$(PYTHON) -P -m tests.house.journey
	$(PYTHON) -P -m tests.house.draw
	$(PYTHON) -P -m tests.house.notebook

figures:
	$(PYTHON) -P -m tests.campaigns.rows

schema: figures
	$(PYTHON) -P -m reports.facts.report

campaigns:
	$(PYTHON) -P -m tests.campaigns.icu_sepsis_study
	$(PYTHON) -P -m tests.campaigns.tune_practical
	$(PYTHON) -P -m tests.campaigns.containment
	$(PYTHON) -P -m tests.campaigns.constants_study
	$(PYTHON) -P -m tests.campaigns.linear_tuning
	$(PYTHON) -P -m tests.campaigns.linear_on_riverswim
	$(PYTHON) -P -m tests.campaigns.lq_offline
	$(PYTHON) -P -m tests.campaigns.real_people
	$(PYTHON) -P -m tests.campaigns.crashes
	$(PYTHON) -P -m tests.campaigns.faults
	$(PYTHON) -P -m tests.campaigns.power_cuts
	$(PYTHON) -P -m tests.campaigns.races
	$(PYTHON) -P -m tests.campaigns.tune_online
	$(PYTHON) -P -m tests.campaigns.online_tables
	$(PYTHON) -P -m tests.campaigns.shuffle_study bits
	$(PYTHON) -P -m tests.campaigns.lq_online
	$(PYTHON) -P -m tests.campaigns.year
	$(PYTHON) -P -m tests.campaigns.night_crashes
	$(PYTHON) -P -m tests.campaigns.worker_kills
	$(PYTHON) -P -m tests.campaigns.audits
	$(PYTHON) -P -m tests.campaigns.paper_noise
	$(PYTHON) -P -m tests.campaigns.rows adaptive_plants tests.campaigns.adaptive_plants
	$(PYTHON) -P -m tests.campaigns.bad_input 1000
	$(PYTHON) -P -m tests.campaigns.mutations
	$(PYTHON) -P -m tests.campaigns.peers
	-$(PYTHON) -P -m tests.campaigns.seeds
	-$(PYTHON) -P -m tests.mutants.run
	$(PYTHON) -P -m tests.benchmarks.consistency_speed
	$(PYTHON) -P -m tests.benchmarks.count_speed
	$(PYTHON) -P -m tests.benchmarks.gram_speed
	$(PYTHON) -P -m tests.benchmarks.sampler_speed
	$(PYTHON) -P -m tests.benchmarks.online_speed
	$(PYTHON) -P -m tests.benchmarks.occupancy_speed
	$(PYTHON) -P -m tests.benchmarks.format_speed 2000
	$(PYTHON) -P -m tests.benchmarks.report_speed
	$(PYTHON) -P -m tests.benchmarks.scale_speed
	$(PYTHON) -P -m tests.benchmarks.flat_memory
	$(PYTHON) -P -m tests.benchmarks.dask_speed --rounds 3
	$(PYTHON) -P -m flows.cli compare trust_riverswim trust_mixture trust_icu_sepsis
