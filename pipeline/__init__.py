import os
import sys

# what exceeds polars' budget of memory is written to /var/tmp: a kill leaves it there, out of reach of `store purge`
os.environ["POLARS_OOC_MEMORY_BUDGET_MB"] = "1000000000"
os.environ["POLARS_OOC_MEMORY_BUDGET_FRACTION"] = "1000"
if "polars" in sys.modules:
    # it reads these when it is imported
    sys.modules["polars"].Config.reload_env_vars()
