"""The shipped recipes' forecasts: ``python -P -m tests.campaigns.forecasts`` writes ``flows/recipes/forecasts.json``.

Each is simulated as ``plan`` would for somebody who has no home yet.  Beside them stands every module of the product
of which a function ran: ``plan`` shows a forecast only while these do what they did.
"""

import json
import sys
import tempfile
from pathlib import Path

from flows.config.home import Home
from flows.jobs.plan import SHIPPED, code_of, forecast_quality
from pipeline.declaration.card import CardError
from tests.house.journey import Watch


def main() -> None:
    SHIPPED.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory() as place:
        watch = Watch()
        for recipe in sorted(SHIPPED.parent.glob("*.toml")):
            sys.setprofile(watch)
            try:
                forecast_quality(recipe.stem, Home(Path(place)))
            except CardError as e:
                # of an agent that learns online there is no plan
                print(f"{recipe.stem}: {e}")
            finally:
                sys.setprofile(None)
        kept = {p.name.partition("-")[0]: json.loads(p.read_text()) for p in sorted(Path(place, "foresight").iterdir())}
    # a package's own file holds no code
    code = {module: told for module in sorted(watch.modules) if (told := code_of(module))}
    SHIPPED.write_text(json.dumps({"code": code, "forecasts": kept}, indent=1) + "\n", encoding="utf-8")
    print(f"{len(kept)} forecasts, of {len(code)} modules: {SHIPPED}")


if __name__ == "__main__":
    main()
