"""Every mechanism with its attack, and broken twins of it: what audits must tell apart (docs/operate.md lists them)."""

from __future__ import annotations

from tests.audits.broken import Make, Twin
from tests.audits.offline_twins import OFFLINE
from tests.audits.online_twins import ONLINE

# mechanism -> (as shipped, {mutant: broken})
MECHANISMS: dict[str, tuple[Make, dict[str, Twin]]] = {**OFFLINE, **ONLINE}
