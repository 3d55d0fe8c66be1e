"""Every verb has its step."""

from __future__ import annotations

import inspect

import pytest

from sparktui.errors import UsageError
from sparktui.steps import catalog
from sparktui.verbs import ABSENT, CHAIN, CHANGING, PRESENT, READING


@pytest.mark.parametrize("verb", catalog.STEPS)
def test_a_verb_has_a_step_of_its_name(verb: str) -> None:
    step = catalog.step(verb)
    assert step.name == verb
    assert step.title
    assert inspect.iscoroutinefunction(step.inspect) and inspect.iscoroutinefunction(step.plan)
    assert inspect.isasyncgenfunction(step.run)


def test_the_verbs_of_the_command_line_are_the_steps() -> None:
    assert set(catalog.STEPS) == {*CHANGING, *READING}
    assert set(catalog.UP) <= set(catalog.STEPS)
    assert not set(ABSENT) & set(PRESENT)
    assert CHAIN not in catalog.STEPS


def test_an_unknown_step() -> None:
    with pytest.raises(UsageError, match="there is no step 'dance'"):
        catalog.step("dance")
