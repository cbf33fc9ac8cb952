"""A model's own chat template, rendered within limits: transformers' environment, where everything made is counted.

A template is compiled by jinja to Python that runs in this thread and cannot be interrupted from outside. So its tree
is changed before it is compiled: each turn of a loop is counted, and so is what slices, lists and `~` make; calls,
operators, filters and tests pass the environment anyway.
"""

import functools
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any

from jinja2 import nodes
from jinja2.environment import Template
from jinja2.exceptions import TemplateError
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import pass_context
from jinja2.visitor import NodeTransformer
from typing_extensions import override

from engine.serve.template_guards import (
    NOT_OFFERED,
    concatenated,
    filter_guard,
    format_guard,
    method_guard,
    operator_guard,
)
from engine.serve.template_meter import Meter

MOST_SOURCE_CHARS = 1 << 18  # the longest published ones have some 30,000
# What a template can raise: its own refusals, and slips of its author in a corner we are the first to reach.
TEMPLATE_ERRORS = (
    TemplateError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError, SyntaxError
)  # fmt: skip
_JINJAS_OWN = frozenset({"_loop_vars", "_block_vars"})  # arguments that calls carry for the context
_METER: ContextVar[Meter] = ContextVar("meter of the rendering in this thread")


class ChatTemplate:
    """One template; safe to use from several threads at once."""

    def __init__(self, source: str, variables: Mapping[str, Any]) -> None:
        """`variables`: what the template knows beside the messages, such as special tokens."""
        self._source = source
        self._variables = dict(variables)
        self._compiled: Template | None = None
        self._compiling = threading.Lock()

    def render(self, messages: Sequence[Mapping[str, str]], meter: Meter) -> str:
        """The prompt that asks for the next turn of the assistant.

        Raises:
            TemplateLimitError, TemplateCancelledError: as the meter says.
            TEMPLATE_ERRORS: the template refuses these messages, or is none.
        """
        set_before = _METER.set(meter)
        try:
            plain = [dict(message) for message in messages]
            pieces = self._template().generate(
                **self._variables, messages=plain, tools=None, documents=None, add_generation_prompt=True
            )
            found: list[str] = []
            for piece in pieces:
                meter.step()
                meter.make(len(piece))
                found.append(piece)
            meter.make(sum(map(len, found)))
            return "".join(found)
        finally:
            _METER.reset(set_before)

    def _template(self) -> Template:
        with self._compiling:
            if self._compiled is None:
                if len(self._source) > MOST_SOURCE_CHARS:
                    raise TemplateError(f"it has {len(self._source):,} characters; {MOST_SOURCE_CHARS:,} are the most")
                try:
                    self._compiled = _environment().from_string(self._source)
                except MemoryError as cause:  # what Python's compiler says of code that is nested too deeply
                    raise TemplateError("it is nested too deeply") from cause
            return self._compiled


@functools.cache
def _environment() -> "_Metered":
    """With everything that transformers gives to chat templates."""
    from transformers.utils.chat_template_utils import _compile_jinja_template

    theirs = _compile_jinja_template("").environment
    return _Metered(theirs)


class _Metered(ImmutableSandboxedEnvironment):
    """Counts by the meter of the rendering that is under way in this thread."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self, theirs: Any) -> None:
        super().__init__(
            trim_blocks=theirs.trim_blocks,
            lstrip_blocks=theirs.lstrip_blocks,
            extensions=[type(extension) for extension in theirs.extensions.values()],
            optimized=False,  # nothing is computed while compiling
            finalize=_written,
        )
        self.globals = {name: value for name, value in theirs.globals.items() if name != "lipsum"}
        self.tests = {name: self._stepping(function) for name, function in theirs.tests.items()}
        self.filters = {
            name: self._counted(name, function) for name, function in theirs.filters.items() if name not in NOT_OFFERED
        }

    @override
    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree: nodes.Template = _Counting().visit(super()._parse(source, name, filename))
        return tree

    @override
    def call(self, context: Context, function: Any, /, *args: Any, **named: Any) -> Any:
        meter = _METER.get()
        meter.step()
        owner, name = getattr(function, "__self__", None), getattr(function, "__name__", "")
        args = method_guard(meter, owner, name, args, named.keys() - _JINJAS_OWN)
        return meter.made(super().call(context, function, *args, **named))

    @override
    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        meter = _METER.get()
        meter.step()
        operator_guard(meter, operator, left, right)
        return super().call_binop(context, operator, left, right)

    @override
    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        wrapped = super().wrap_str_format(value)
        if wrapped is None:
            return None

        def counted(*args: Any, **named: Any) -> str:
            format_guard(_METER.get(), value.__self__, (*args, *named.values()))
            return wrapped(*args, **named)

        return functools.update_wrapper(counted, value)

    @override
    def concat(self, pieces: Iterable[str]) -> str:
        """What macros and blocks hand back."""
        found = list(pieces)
        _METER.get().make(sum(map(len, found)))
        return "".join(found)

    def turn(self) -> str:
        """One turn of a loop; counted by the call itself."""
        return ""

    def made(self, value: Any) -> Any:
        """A list or slice that was made; counted by the call itself."""
        return value

    def joined(self, *values: Any) -> str:
        """`a ~ b`."""
        return concatenated(_METER.get(), values)

    @staticmethod
    def _counted(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        behind = 1 if hasattr(function, "jinja_pass_arg") else 0  # a context or the like comes first

        @functools.wraps(function)
        def counted(*args: Any, **named: Any) -> Any:
            meter = _METER.get()
            meter.step()
            first, value, others = args[:behind], args[behind], args[behind + 1 :]
            value = filter_guard(meter, name, value, others, named)
            return meter.made(function(*first, value, *others, **named))

        return counted

    @staticmethod
    def _stepping(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def counted(*args: Any, **named: Any) -> Any:
            _METER.get().step()
            return function(*args, **named)

        return counted


@pass_context
def _written(context: Context, value: Any) -> Any:
    """Every value on its way out."""
    meter = _METER.get()
    meter.step()
    meter.print(value)
    return value


class _Counting(NodeTransformer):
    """Puts the counting into a tree that was parsed."""

    def visit_For(self, node: nodes.For) -> nodes.For:
        self.generic_visit(node)
        node.body.insert(0, nodes.ExprStmt(_call("turn", []), lineno=node.lineno))
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        return _call("joined", node.nodes)

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:
        self.generic_visit(node)
        return _call("made", [node]) if isinstance(node.arg, nodes.Slice) else node

    def visit_List(self, node: nodes.List) -> nodes.Node:
        self.generic_visit(node)
        return _call("made", [node])

    def visit_Dict(self, node: nodes.Dict) -> nodes.Node:
        self.generic_visit(node)
        return _call("made", [node])

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Node:
        self.generic_visit(node)
        return _call("made", [node]) if node.ctx == "load" else node


def _call(name: str, args: list[nodes.Expr]) -> nodes.Call:
    return nodes.Call(nodes.EnvironmentAttribute(name), args, [], None, None)
