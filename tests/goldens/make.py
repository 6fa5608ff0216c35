"""Makes the goldens.  The homes were made once, at commits 142d930 and db8ae630, and are never made again.

``python -m tests.goldens.make keys`` makes the keys of (d), ``numbers`` those of (b), ``answers`` those of (c);
README.md says which of them may ever be made anew, and how.
"""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.goldens import answers, keys, numbers, shelf
from tests.goldens.places import write_expected


def make_numbers(at: Path) -> None:
    shipped = {card: numbers.shipped(card, at / card) for card in numbers.SHIPPED}
    shipped |= {"version 0.1": numbers.before(at / "before")}
    write_expected("shipped", shipped | {name: numbers.people(name, at / name) for name in numbers.PEOPLE})
    write_expected("tiny", {card: numbers.tiny(card, at / "tiny" / card) for card in numbers.TINY})
    write_expected("nights", {kind: numbers.nights(kind, at / "nights" / kind) for kind in shelf.NIGHTS})
    online = {agent: numbers.online(agent, at / "online" / agent) for agent in numbers.ONLINE}
    write_expected("online", online | {"riverswim_joint": numbers.joint(at / "joint")})


MAKERS: dict[str, Callable[[Path], None]] = {
    "keys": lambda at: write_expected("keys", keys.all_keys(at)),
    "numbers": make_numbers,
    "answers": lambda at: write_expected("answers", answers.all_answers(at)),
    # what takes longer
    "slow": lambda at: write_expected("slow", answers.slow_answers(at)),
}

if __name__ == "__main__":
    # as in the tests: what is played is played in this process
    os.sched_getaffinity = lambda _: {0}
    for word in sys.argv[1:]:
        with TemporaryDirectory() as place:
            MAKERS[word](Path(place))
