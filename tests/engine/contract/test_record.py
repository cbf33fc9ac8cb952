"""What makes a value no record is told with its place and nothing of the value."""

from typing import Self

import pytest
from pydantic import Field, ValidationError, model_validator

from engine.contract.record import Fault, Record, first_fault


class _Part(Record):
    size: int = Field(gt=0)


class _Whole(Record):
    parts: tuple[_Part, ...]

    @model_validator(mode="after")
    def _enough(self) -> Self:
        if not self.parts:
            raise ValueError("no parts")
        return self


def _fault(value: object) -> Fault:
    with pytest.raises(ValidationError) as refused:
        _Whole.model_validate(value)
    return first_fault(refused.value)


def test_a_field_inside_is_named_by_its_path() -> None:
    fault = _fault({"parts": [{"size": 3}, {"size": -7}]})
    assert fault == ("parts.1.size", "Input should be greater than 0")
    assert fault.told == "parts.1.size: Input should be greater than 0"


def test_what_is_wrong_as_a_whole_has_our_own_words_and_no_place() -> None:
    assert _fault({"parts": []}).told == "no parts"


def test_the_value_is_not_repeated() -> None:
    assert "secret" not in _fault({"parts": "secret"}).told
