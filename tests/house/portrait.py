"""README's picture of a page: ``python -P -m tests.house.portrait REPORT.html`` writes docs/assets/report.png."""

import sys
import tempfile
from pathlib import Path

from tests.reports.browser import browser

PICTURE = Path(__file__).parents[2] / "docs" / "assets" / "report.png"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as profile, browser(Path(profile)) as tab:
        tab.open(Path(sys.argv[1]), width=1100, height=960)
        tab.picture(PICTURE)
