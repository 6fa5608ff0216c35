"""(c) The ``--json`` object of every verb: structure and values."""

from typing import Any

import pytest

from tests.goldens import answers
from tests.goldens.content import same
from tests.goldens.places import expected


@pytest.fixture(scope="module")
def found(alone: None, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return answers.all_answers(tmp_path_factory.mktemp("answers"))


@pytest.mark.parametrize("question", expected("answers"))
def test_the_same_answer(found, question):
    same(expected("answers")[question], found[question])


def test_nothing_else_was_asked(found):
    assert list(found) == list(expected("answers"))


@pytest.mark.slow
def test_answers_that_take_longer(tmp_path):
    same(expected("slow"), answers.slow_answers(tmp_path))
