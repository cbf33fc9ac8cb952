"""What methods, filters and operators of a chat template would make, told before they do.

What is not named here makes no more than it is given. Methods and filters that are neither named nor known to be of
that kind are not offered.
"""

import re
from collections.abc import Collection
from typing import Any, Final

from engine.serve.template_meter import Meter, TemplateLimitError


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Methods of values whose results are no larger than what they are given.
PLAIN_METHODS: Final = {
    str: _words(
        """capitalize casefold count encode endswith find index isalnum isalpha isascii isdecimal isdigit isidentifier
        islower isnumeric isprintable isspace istitle isupper lower lstrip partition removeprefix removesuffix rfind
        rindex rpartition rsplit rstrip split splitlines startswith strip swapcase title unescape upper"""
    ),
    bytes: _words("decode"),
    list: _words("copy count index"),
    tuple: _words("count index"),
    range: _words("count index"),
    dict: _words("copy get items keys values"),
    set: _words("copy"),
    frozenset: _words("copy"),
    int: _words("bit_length"),
    float: _words("is_integer"),
}
NOT_OFFERED: Final = _words("pprint striptags urlize wordwrap xmlattr")  # slow or large on odd text
# Filters that take a list or a mapping as such; all others write their value out first.
STRUCTURAL: Final = _words(
    """abs attr batch count d default dictsort first float groupby int items join last length list map max min random
    reject rejectattr reverse round safe select selectattr slice sort sum unique"""
)
_NESTED_WIDTH = re.compile(r"\{[^{}]*:[^{}]*\{|%[^a-zA-Z%]*\*")
_NUMBERS = re.compile(r"\d+")


def method_guard(
    meter: Meter, owner: object, name: str, args: tuple[Any, ...], named: Collection[str]
) -> tuple[Any, ...]:
    """Count what a method of a plain value will make; its arguments, to be called with.

    Raises:
        TemplateLimitError: too much, or not offered.
    """
    offered = next((names for plain, names in PLAIN_METHODS.items() if isinstance(owner, plain)), None)
    if offered is None or name in offered:
        return args
    if isinstance(owner, str) and not named:
        return _text_guard(meter, owner, name, args)
    raise _not_offered(f"{type(owner).__name__}.{name}")


def _text_guard(meter: Meter, text: str, name: str, args: tuple[Any, ...]) -> tuple[Any, ...]:
    match name:
        case "center" | "ljust" | "rjust" | "zfill":
            meter.make(len(text) + (meter.count(args[0]) if args else 0))
        case "expandtabs":
            meter.make(len(text) + text.count("\t") * (meter.count(args[0]) if args else 8))
        case "replace":
            _replaced(meter, text, *args[:2])
        case "join":
            args = (_joined(meter, text, args[0]), *args[1:]) if args else args
        case _:
            raise _not_offered(f"str.{name}")
    return args


def filter_guard(meter: Meter, name: str, value: Any, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """Count what a filter will make; its value, to be called with.

    Raises:
        TemplateLimitError: too much.
    """
    if name not in STRUCTURAL:
        meter.print(value)
    match name:
        case "replace":
            given = _named(args, named, "old", "new")
            _replaced(meter, str(value), given.get("old"), given.get("new"))
        case "indent":
            width = _named(args, named, "width").get("width", 4)
            text = str(value)
            meter.make(
                len(text) + (text.count("\n") + 2) * (len(width) if isinstance(width, str) else meter.count(width))
            )
        case "center":
            meter.make(meter.count(_named(args, named, "width").get("width", 80)))
        case "batch" | "slice":
            given = _named(args, named, "linecount" if name == "batch" else "slices")
            meter.make(sum(meter.count(number) for number in given.values()))
        case "join":
            return _joined(meter, _named(args, named, "d").get("d", ""), value)
        case "format":
            text = str(value)
            _formatted(meter, text, (*args, *named.values()), text.count("%"))
        case "tojson":
            _as_json(meter, value, args, named)
        case "sum":
            start = _named(args, named, "attribute", "start").get("start", 0)
            if not isinstance(start, int | float):
                raise _not_offered("sum of texts or lists")
        case _:
            pass
    return value


def format_guard(meter: Meter, text: str, args: tuple[Any, ...]) -> None:
    """Count what `text.format(...)` will make.

    Raises:
        TemplateLimitError: too much.
    """
    _formatted(meter, text, args, text.count("{"))


def operator_guard(meter: Meter, operator: str, left: Any, right: Any) -> None:
    """Count what `left operator right` will make.

    Raises:
        TemplateLimitError: too much.
    """
    if isinstance(left, int) and isinstance(right, int):
        if operator == "*":
            meter.number(left.bit_length() + right.bit_length())
        elif operator == "**":
            meter.number(left.bit_length() * max(right, 1) if abs(left) > 1 else 1)
    elif operator == "*":
        for text, times in ((left, right), (right, left)):
            if isinstance(times, int):
                meter.make(_size(meter, text) * max(times, 0))
    elif operator == "+":
        meter.make(_size(meter, left) + _size(meter, right))
    elif operator == "%" and isinstance(left, str):
        _formatted(meter, left, right if isinstance(right, tuple) else (right,), left.count("%"))


def concatenated(meter: Meter, values: tuple[Any, ...]) -> str:
    """`a ~ b`: the values written out, one behind the other."""
    for value in values:
        meter.print(value)
    texts = [str(value) for value in values]
    meter.make(sum(map(len, texts)))
    return "".join(texts)


def _size(meter: Meter, value: Any) -> int:
    if isinstance(value, str | bytes):
        return len(value)
    return meter.tree(value).chars if isinstance(value, list | tuple) else 0


def _replaced(meter: Meter, text: str, old: object = "", new: object = "") -> None:
    meter.make(len(text) + text.count(str(old)) * len(str(new)))


def _joined(meter: Meter, between: object, values: Any) -> list[Any]:
    """The values as a list: they may be made one by one."""
    found: list[Any] = []
    chars = 0
    for value in values:
        meter.step()
        chars += meter.tree(value).chars + len(str(between))
        meter.count(chars)
        found.append(value)
    meter.make(2 * chars)
    return found


def _formatted(meter: Meter, text: str, args: tuple[Any, ...], places: int) -> None:
    """Any number in a format may be a width."""
    widths = sum(min(int(number[:18]), meter.most_chars + 1) for number in _NUMBERS.findall(text))
    if _NESTED_WIDTH.search(text):
        widths += sum(abs(number) for number in args if isinstance(number, int)) * places
    size = meter.tree(args)
    meter.make(len(text) + widths + places * (2 * size.chars + 4 * size.nodes))


def _as_json(meter: Meter, value: Any, args: tuple[Any, ...], named: dict[str, Any]) -> None:
    indent = _named(args, named, "ensure_ascii", "indent").get("indent")
    wide = len(indent) if isinstance(indent, str) else meter.count(indent)
    size = meter.tree(value)
    meter.make(6 * size.chars + size.nodes * (8 + wide * size.depth))


def _named(args: tuple[Any, ...], named: dict[str, Any], *names: str) -> dict[str, Any]:
    return {**dict(zip(names, args, strict=False)), **named}


def _not_offered(what: str) -> TemplateLimitError:
    return TemplateLimitError(
        f"The model's chat template uses {what}, which is not offered because its size cannot be told.",
        "Use another copy of this model, or mend its chat_template.",
    )
