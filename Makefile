# Day-to-day commands.  PYTHON is the interpreter of the environment that README's first command makes.
PYTHON ?= .venv/bin/python
CPM = cpm-toolbox==0.26.0
HBAYESDM = hbayesdm==1.1.1
OBP = obp==0.4.1
GAME = datasets/two_step_game/data
ADULTS = datasets/two_step_adults/data
CHANCE = datasets/two_step_chance/data
BANDIT = datasets/open_bandit/data
REAL = $(GAME)/model_based_model_free.csv $(ADULTS)/two_step_adults.csv $(CHANCE)/ts_exampleData.csv $(BANDIT)/all.csv

.PHONY: help real-data datasets check house schema site campaigns

help:
	@echo "real-data   fetch the logs of real people into datasets/*/data (AGPL, GPL: never vendored; Open Bandit's sample too)"
	@echo "datasets    write the shipped simulated logs anew, byte for byte"
	@echo "check       lint, types and all tests but the campaigns"
	@echo "house       print how large the house is, and draw docs/architecture.svg from its imports"
	@echo "schema      write the JSON Schema of report.json anew from its model"
	@echo "site        build the documentation into build/site, with three report pages made anew; open its index.html"
	@echo "campaigns   the long studies; they print their tables and rewrite their committed results"

real-data: $(REAL)

$(GAME)/model_based_model_free.csv $(ADULTS)/two_step_adults.csv &:
	mkdir -p $(GAME)/wheel $(ADULTS)
	$(PYTHON) -m pip download --quiet --no-deps --dest $(GAME)/wheel '$(CPM)'
	$(PYTHON) -m zipfile --extract $(GAME)/wheel/cpm_toolbox-*.whl $(GAME)/wheel/unpacked
	cp $(GAME)/wheel/unpacked/cpm/datasets/data/model_based_model_free.csv $(GAME)/
	cp $(GAME)/wheel/unpacked/cpm/datasets/data/two_step_adults.csv $(ADULTS)/
	rm -rf $(GAME)/wheel
	cd $(GAME) && echo '5420713f0143fb27ff3dfcd5d836b66e6024a34777dc6dd2afe5462375985ae1  model_based_model_free.csv' | sha256sum --check --quiet
	cd $(ADULTS) && echo '7ee3eab270230da2fb1d2d1ff02c1fe7b28e6cefb9745a87cf2e43d598b954a3  two_step_adults.csv' | sha256sum --check --quiet

# pip asks a source archive's build tool for its name before it hands the archive over; a stand-in of four lines answers,
# so that neither that tool nor any code of the package is installed or run.  The log is tab-separated: tabs become commas.
define STAND_IN
import pathlib
def prepare_metadata_for_build_wheel(folder, settings=None):
    path = pathlib.Path(folder, "hbayesdm-1.1.1.dist-info"); path.mkdir()
    (path / "METADATA").write_text("Metadata-Version: 2.1\nName: hbayesdm\nVersion: 1.1.1\n"); return path.name
endef
export STAND_IN

$(CHANCE)/ts_exampleData.csv:
	mkdir -p $(CHANCE)/source/poetry/core/masonry
	printf '%s\n' "$$STAND_IN" > $(CHANCE)/source/poetry/core/masonry/api.py
	PYTHONPATH=$(CURDIR)/$(CHANCE)/source $(PYTHON) -m pip download --quiet --no-deps --no-build-isolation \
		--no-binary hbayesdm --dest $(CHANCE)/source '$(HBAYESDM)'
	tar -xzf $(CHANCE)/source/hbayesdm-1.1.1.tar.gz -C $(CHANCE)/source
	tr '\t' ',' < $(CHANCE)/source/hbayesdm-1.1.1/hbayesdm/common/extdata/ts_exampleData.txt > $@
	rm -rf $(CHANCE)/source
	cd $(CHANCE) && echo '20c018141ac0031d88577fea8637c29d3af79ed3fcd90a80ee722f7628ac9b64  ts_exampleData.csv' | sha256sum --check --quiet

# Apache-2.0; the archive is opened, the package is not installed
$(BANDIT)/all.csv:
	mkdir -p $(BANDIT)/wheel
	$(PYTHON) -m pip download --quiet --no-deps --dest $(BANDIT)/wheel '$(OBP)'
	$(PYTHON) -m zipfile --extract $(BANDIT)/wheel/obp-*.whl $(BANDIT)/wheel/unpacked
	cp $(BANDIT)/wheel/unpacked/obp/dataset/obd/random/all/all.csv $@
	rm -rf $(BANDIT)/wheel
	cd $(BANDIT) && echo '7168295b6e0a9eabcf3392320a5dd434e542b68e705d5cd9491499af589812f1  all.csv' | sha256sum --check --quiet

datasets:
	$(PYTHON) -m flows.cli simulate icu_sepsis --logs
	$(PYTHON) -m flows.cli simulate riverswim --logs
	$(PYTHON) -m flows.cli simulate double_integrator --logs

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

schema:
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
	$(PYTHON) -P -m tests.campaigns.races
	$(PYTHON) -P -m tests.campaigns.tune_online
	$(PYTHON) -P -m tests.campaigns.online_sizes
	$(PYTHON) -P -m tests.campaigns.tune_ucbvi 16 all
	$(PYTHON) -P -m tests.campaigns.tabular_figures 20
	$(PYTHON) -P -m tests.campaigns.shuffle_study bits
	$(PYTHON) -P -m tests.campaigns.lq_online leave 1 5
	$(PYTHON) -P -m tests.campaigns.year
	$(PYTHON) -P -m tests.campaigns.night_crashes
	$(PYTHON) -P -m tests.campaigns.worker_kills
	$(PYTHON) -P -m tests.campaigns.audits
	$(PYTHON) -P -m tests.campaigns.paper_noise
	$(PYTHON) -P -m tests.campaigns.bad_input 1000
	$(PYTHON) -P -m tests.campaigns.mutations
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
	$(PYTHON) -P -m tests.benchmarks.minari_speed
	$(PYTHON) -P -m flows.cli compare trust_riverswim trust_mixture trust_icu_sepsis
