"""Peers' tests on our code: ``python -P -m tests.campaigns.peers`` runs ``tests/peers`` and keeps what passed.

What a peer tests and we do not have is left out, and said.
"""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import version

from tests.campaigns.rows import ROOT, write

# file -> peer, package, what was run and what it took, what was left out and why
PEERS = {
    "test_dp_accounting": (
        "dp-accounting",
        "dp-accounting",
        "its own test classes as installed, on our losses, conversions and trees behind its interface",
        "sampling, randomized response, selection by repetition, Renyi curves that are no zCDP: nothing of ours claims "
        "them; the tests of its numerical privacy-loss distributions, which we call and do not have",
    ),
    "test_opendp": (
        "OpenDP",
        "opendp",
        "cases of its kind, judged by its maps and samplers: its package ships no tests",
        "its domains, chaining, queries and float noise: ours is integers only",
    ),
    "test_minari": (
        "Minari",
        "minari",
        "what its tests hold every data set to, said anew, on `store export`, read by Minari",
        "collecting from an environment, and recovering one: an exported log has none",
    ),
    "test_prefect": (
        "Prefect",
        "prefect",
        "what its guides show of deployments, done with our flows and its own functions",
        "Docker, Kubernetes and pulled code: a worker runs what is installed beside it",
    ),
}


def main() -> int:
    """Run every file and write a row each; 1 where a test failed."""
    rows: list[dict[str, object]] = []
    for file, (peer, package, what, left_out) in PEERS.items():
        asked = [sys.executable, "-P", "-m", "pytest", "-q", "--tb=no", f"tests/peers/{file}.py"]
        said = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=False).stdout
        passed, failed = (sum(map(int, re.findall(rf"(\d+) (?:{word})", said))) for word in ("passed", "failed|error"))
        tests = {"tests": passed + failed, "passed": passed}
        rows.append({"peer": f"{peer} {version(package)}", "what": what, **tests, "not run, and why": left_out})
        print(rows[-1], flush=True)
    write("peers", rows, "the operating system's")
    return int(any(r["tests"] != r["passed"] for r in rows))


if __name__ == "__main__":
    sys.exit(main())
