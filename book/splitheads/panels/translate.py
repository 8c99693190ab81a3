"""The rules' Python, translated to JavaScript, so that a static page gives the answers that Python gives.

A view must decide nothing that Python decided, and a report on any configuration is too much for a table. So the
functions themselves are handed over: `javascript` takes the functions that a page calls, follows every name in them
through this package, and writes the same functions in JavaScript. `pyrt.js` beside this file holds what they
need of Python: dictionaries, whole numbers of any size, formats. Whoever changes a rule changes it in Python only.

A part of Python is translated, which the rules keep to: functions, frozen dataclasses, exceptions with attributes,
numbers, text, lists and dictionaries. Anything else is refused with its file and line. No library for this is
kept up any more (Transcrypt stopped at Python 3.9), and a whole interpreter would weigh more than the book.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import json
import re
import types
from collections.abc import Callable
from dataclasses import is_dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

RUNTIME = Path(__file__).with_name("pyrt.js")

KEYWORDS = """
arguments await break case catch class const continue debugger default delete do else enum eval export extends false
finally for function if implements import in instanceof interface let new null package private protected public return
static super switch this throw true try typeof undefined var void while with yield
"""
TAKEN = """
PyError Exception ValueError TypeError_ LookupError KeyError IndexError AssertionError FileNotFoundError Dict Range
RecursionError RangeError Error TypeError Object Array Map Set String Number Boolean BigInt JSON Math Symbol RegExp Infinity NaN
"""
RESERVED = frozenset((KEYWORDS + TAKEN).split())
"""Names that translated code cannot have: JavaScript's own, and those of pyrt.js."""

OPERATORS = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div", ast.FloorDiv: "floordiv", ast.Mod: "mod",
    ast.Pow: "pow", ast.LShift: "lshift", ast.RShift: "rshift",
}  # fmt: skip
ORDER = {ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge"}

SAME = """
len min max sum abs round sorted reversed range enumerate zip any all int float str repr list dict isinstance next map
divmod bool getattr vars filter
"""
BUILTINS = frozenset(SAME.split())
"""Python's own functions that pyrt.js has under the same name."""
KINDS = {int: "int", float: "float", str: "str", bool: "bool", list: "list", tuple: "list", dict: "dict"}
"""How a type is named where it stands as a value: isinstance(x, int)."""

LIBRARY = {
    ("math", "isqrt"): "$.isqrt", ("math", "gcd"): "$.gcd", ("math", "sqrt"): "$.sqrt", ("math", "log2"): "$.log2",
    ("math", "ceil"): "$.ceil", ("math", "floor"): "$.floor", ("math", "isfinite"): "$.isfinite", ("math", "prod"): "$.prod",
    ("math", "log"): "$.log", ("math", "exp"): "$.exp", ("math", "hypot"): "$.hypot", ("math", "lgamma"): "$.lgamma",
    ("statistics", "inv_cdf"): "$.inv_cdf",  # of the standard normal distribution
    ("itertools", "pairwise"): "$.pairwise",
    ("re", "match"): "$.re_match", ("re", "search"): "$.re_search", ("re", "fullmatch"): "$.re_fullmatch",
    ("re", "sub"): "$.re_sub", ("dataclasses", "replace"): "$.replace", ("_operator", "index"): "$.index",
}  # fmt: skip

REPLACED = {
    # The doctor has looked at every number before; these look at NumPy's and torch's numbers, too.
    ("splitheads.partition", "_count"): "(name, value) => value",
    ("splitheads.partition", "_show"): "$.show",
    # The table and the rules agree on every row of it (a test), and the rules reach further.
    ("splitheads.backends", "from_table"): "() => null",
    # reprlib, with the limits that record.py sets.
    ("splitheads.timing.record", "_short"): "(value) => $.brief(value, 60)",
}
"""Functions that are not translated, and what stands in their place."""


class Untranslatable(ValueError):
    """This code is outside the part of Python that is translated. The message has file and line."""


def javascript(
    name: str,
    functions: list[Callable],
    replaced: dict[tuple[str, str], str] | None = None,
    helpers: tuple[str, ...] = ("parse", "dumps"),
) -> str:
    """An ES text that declares `const <name>`: an object with these functions under their names.

    They take and return plain JSON values, whole numbers beyond 2 ** 53 as BigInts; an exception of theirs is an
    `Error`. The object also has the `helpers`: `parse` (JSON text to values, whole numbers exact) and `dumps` (Python's
    json.dumps with indent=2). A function named `_read` is called here, now, and its result put in its place.
    `replaced` is what stands in place of functions by (module, name), beside `REPLACED`.

    Raises:
        Untranslatable: something that the functions use is outside the part of Python that is translated.
    """
    book = _Book({"splitheads", *(function.__module__.partition(".")[0] for function in functions)}, replaced)
    names = [book.name_of(function) for function in functions]
    body = book.text()
    exported = [f"{function.__name__}: $.function({js})" for function, js in zip(functions, names, strict=True)]
    last = f"return {{ {', '.join([*exported, *(f'{helper}: $.{helper}' for helper in helpers)])} }};"
    runtime = _needed(RUNTIME.read_text("utf8"), f"{body}\n{last}")
    return f"const {name} = (() => {{\n{runtime}\n{body}\n{last}\n}})();\n"


class _Book:
    """Everything translated so far: one JavaScript name for each object, definitions in the order of need."""

    def __init__(self, packages: set[str], replaced: dict[tuple[str, str], str] | None = None) -> None:
        self.packages = packages  # whose functions are translated
        self.replaced = REPLACED | (replaced or {})
        self.names: dict[tuple[str, str], str] = {}
        self.taken: set[str] = set()
        self.functions: list[str] = []  # hoisted: their order does not matter
        self.values: list[str] = []  # classes and constants: each after what it needs
        self.waiting: list[tuple[str, str]] = []

    def text(self) -> str:
        while self.waiting:
            self._define_function(*self.waiting.pop())
        return "\n".join([*self.values, *self.functions])

    def name_of(self, function: Callable) -> str:
        function = inspect.unwrap(function)
        return self.refer(function.__module__, function.__qualname__)

    def refer(self, module: str, name: str) -> str:
        """The JavaScript name of a module's global, which is defined if it was not."""
        module, name = _home(module, name)
        if (module, name) in self.names:
            return self.names[module, name]
        own = f"{name}$"  # which no name of Python's can be, so no local variable hides it
        if own in self.taken:
            own = f"{module.replace('.', '$')}${own}"
        self.taken.add(own)
        self.names[module, name] = own
        if (module, name) in self.replaced:
            self.values.insert(0, f"const {own} = {self.replaced[module, name]};")
            return own
        value = getattr(import_module(module), name)
        if inspect.isclass(value):
            self._define_class(module, name, value)
        elif callable(value) and not is_dataclass(value) and isinstance(_definition(module, name), ast.FunctionDef):
            if name == "_read":
                self.values.append(f"const {own}_data = {_literal(value(), f'{module}.{name}()')};")
                self.functions.append(f"function {own}() {{ return {own}_data; }}")
            else:
                self.waiting.append((module, name))
        else:
            self._define_constant(module, name, value)
        return own

    def _define_function(self, module: str, name: str) -> None:
        node, own = _definition(module, name), self.names[module, name]
        if _cached(node):
            self.functions.append(f"function {own}(...values) {{ return $.cached({own}, {own}_made, values); }}")
            own += "_made"
        self.functions.append(_Function(self, module, node).declaration(own))

    def _define_constant(self, module: str, name: str, value: Any) -> None:
        own = self.names[module, name]
        try:
            text = _literal(value, f"{module}.{name}")
        except Untranslatable:
            node = _definition(module, name)
            if not isinstance(node, ast.Assign | ast.AnnAssign) or (
                isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple)
            ):
                raise
            text = _Function(self, module, None).value(node.value)
        self.values.append(f"const {own} = {text};")

    def _define_class(self, module: str, name: str, value: type) -> None:
        own, node = self.names[module, name], _definition(module, name)
        if not isinstance(node, ast.ClassDef):
            raise Untranslatable(f"{module}.{name} is not a class statement")
        if issubclass(value, Exception):
            base = next(one for one in value.__bases__ if issubclass(one, Exception))
            parent = base.__name__ if base.__module__ == "builtins" else self.refer(base.__module__, base.__name__)
            fields = "".join(
                f" {key} = {_literal(default, f'{module}.{name}.{key}')};"
                for key, default in vars(value).items()
                if not key.startswith("__") and not callable(default)
            )
            self.values.append(
                f"class {own} extends {parent if parent != 'TypeError' else 'TypeError_'} {{{fields} constructor(m, f = {{}}) {{ super(m); Object.assign(this, f); }} }}"
            )
            return
        methods = [part for part in node.body if isinstance(part, ast.FunctionDef)]
        parts = []
        if "__init__" not in [method.name for method in methods]:
            fields = [part for part in node.body if isinstance(part, ast.AnnAssign)]
            scope = _Function(self, module, None)
            given = ", ".join(
                f"{_safe(part.target.id)}{f' = {scope.value(part.value)}' if part.value else ''}" for part in fields
            )
            stored = " ".join(f"this.{part.target.id} = {_safe(part.target.id)};" for part in fields)
            parts.append(f"constructor({given}) {{ {stored} this.__post_init__?.(); }}")
        parts += [_Function(self, module, method).method() for method in methods]
        if named := {method.name: _keywords(method) for method in methods if _keywords(method)}:
            parts.append(f"static named = {json.dumps(named)};")
        self.values.append(f"class {own} {{\n" + "\n".join(parts) + "\n}")


class _Function:
    """One function, method or constant: its statements and expressions, written in JavaScript."""

    def __init__(
        self, book: _Book, module: str, node: ast.FunctionDef | None, outer: frozenset[str] = frozenset()
    ) -> None:
        self.book, self.module, self.node = book, module, node
        self.scope = vars(import_module(module))
        self.locals: set[str] = set(outer)
        self.own: set[str] = set()
        self.count = 0
        if node:
            self.parameters = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            self.own = {one.arg for one in self.parameters}
            assigned = _assigned(node.body)
            self.declared = sorted(assigned - self.own)
            self.own |= assigned
            self.locals |= self.own

    def refuse(self, node: ast.AST, what: str) -> Untranslatable:
        where = f"{self.module}, line {getattr(node, 'lineno', '?')}"
        return Untranslatable(f"{where}: {what} is outside the part of Python that is translated")

    # Functions.

    def declaration(self, name: str) -> str:
        star = "*" if _yields(self.node) else ""
        return f"function{star} {name}({self.given()}) {{\n{self.body()}}}"

    def method(self) -> str:
        name, node = self.node.name, self.node
        if name == "__init__":
            return f"constructor({self.given(1)}) {{\nconst self = this;\n{self.body()}}}"
        decorators = [one.id for one in node.decorator_list if isinstance(one, ast.Name)]
        kind = "get " if "property" in decorators else "*" if _yields(node) else ""
        return f"{kind}{name}({self.given(1)}) {{\nconst self = this;\n{self.body()}}}"

    def given(self, skip: int = 0) -> str:
        args = self.node.args
        if args.vararg or args.kwarg:
            raise self.refuse(self.node, f"*args or **kwargs of {self.node.name}")
        names = [*args.posonlyargs, *args.args]
        defaults = [None] * (len(names) - len(args.defaults)) + args.defaults
        pairs = [*zip(names, defaults, strict=True), *zip(args.kwonlyargs, args.kw_defaults, strict=True)][skip:]
        return ", ".join(_safe(one.arg) + (f" = {self.value(default)}" if default else "") for one, default in pairs)

    def body(self) -> str:
        head = f"let {', '.join(map(_safe, self.declared))};\n" if self.declared else ""
        return head + self.block(self.node.body)

    def block(self, statements: list[ast.stmt]) -> str:
        return "".join(self.statement(one) for one in statements)

    # Statements.

    def statement(self, node: ast.stmt) -> str:
        match node:
            case ast.Expr(value=ast.Constant()) | ast.Pass():
                return ""
            case ast.Expr(value=ast.Yield(value=value)):
                return f"yield {self.value(value)};\n"
            case ast.Expr(value=ast.YieldFrom(value=value)):
                return f"yield* $.iter({self.value(value)});\n"
            case ast.Expr():
                return f"{self.value(node.value)};\n"
            case ast.Return():
                return f"return {self.value(node.value) if node.value else 'null'};\n"
            case ast.Assign():
                if len(node.targets) > 1 and not all(isinstance(one, ast.Name) for one in node.targets):
                    raise self.refuse(node, "a chain of targets")
                if len(node.targets) > 1:
                    return f"{' = '.join(self.target(one) for one in node.targets)} = {self.value(node.value)};\n"
                return self.assign(node.targets[0], self.value(node.value))
            case ast.AnnAssign():
                return self.assign(node.target, self.value(node.value)) if node.value else ""
            case ast.AugAssign():
                changed = (
                    f"$.{self.operator(node.op, node)}({self.value(_loaded(node.target))}, {self.value(node.value)})"
                )
                return self.assign(node.target, changed)
            case ast.If():
                text = f"if ({self.test(node.test)}) {{\n{self.block(node.body)}}}"
                return text + (f" else {{\n{self.block(node.orelse)}}}\n" if node.orelse else "\n")
            case ast.For(orelse=[]):
                head = f"for ({self.target(node.target)} of $.iter({self.value(node.iter)}))"
                return f"{head} {{\n{self.block(node.body)}}}\n"
            case ast.While(orelse=[]):
                return f"while ({self.test(node.test)}) {{\n{self.block(node.body)}}}\n"
            case ast.Break():
                return "break;\n"
            case ast.Continue():
                return "continue;\n"
            case ast.Raise(exc=None):
                return "throw error_;\n"
            case ast.Raise():
                return f"throw {self.value(node.exc)};\n"
            case ast.Try(orelse=[], finalbody=[]):
                text = f"try {{\n{self.block(node.body)}}} catch (error_) {{\n"
                for handler in node.handlers:
                    if handler.type is None:
                        raise self.refuse(handler, "a bare except")
                    named = f"{_safe(handler.name)} = error_;\n" if handler.name else ""
                    text += f"if ($.isinstance(error_, {self.value(handler.type)})) {{\n{named}{self.block(handler.body)}}} else "
                return f"{text}throw error_;\n}}\n"
            case ast.FunctionDef():
                inner = _Function(self.book, self.module, node, frozenset(self.locals))
                return f"{_safe(node.name)} = {'function*' if _yields(node) else ''} ({inner.given()}) {'' if _yields(node) else '=>'} {{\n{inner.body()}}};\n"
            case _:
                raise self.refuse(node, f"the statement {type(node).__name__}")

    def assign(self, target: ast.expr, value: str) -> str:
        match target:
            case ast.Subscript():
                return f"$.set({self.value(target.value)}, {self.value(target.slice)}, {value});\n"
            case ast.Attribute():
                return f"{self.value(target.value)}.{target.attr} = {value};\n"
            case ast.Tuple() | ast.List() if any(isinstance(one, ast.Subscript) for one in target.elts):
                self.count += 1
                parts = f"parts{self.count}_"
                each = "".join(self.assign(one, f"{parts}[{i}]") for i, one in enumerate(target.elts))
                return f"{{ const {parts} = $.list({value});\n{each}}}\n"
            case ast.Tuple() | ast.List():
                return f"{self.target(target)} = $.list({value});\n"
            case _:
                return f"{self.target(target)} = {value};\n"

    def target(self, node: ast.expr) -> str:
        match node:
            case ast.Name():
                return _safe(node.id)
            case ast.Attribute():
                return f"{self.value(node.value)}.{node.attr}"
            case ast.Tuple() | ast.List():
                # JavaScript has no name twice in one pattern; what is called _ is left out.
                names = ["" if isinstance(one, ast.Name) and one.id == "_" else self.target(one) for one in node.elts]
                return f"[{', '.join(names)}{', ' if names[-1] == '' else ''}]"
            case ast.Starred():
                return f"...{self.target(node.value)}"
            case _:
                raise self.refuse(node, "this target")

    def operator(self, operator: ast.operator, node: ast.AST) -> str:
        if type(operator) not in OPERATORS:
            raise self.refuse(node, f"the operator {type(operator).__name__}")
        return OPERATORS[type(operator)]

    # Expressions.

    def test(self, node: ast.expr) -> str:
        """An expression that is only asked whether it is true."""
        match node:
            case ast.BoolOp():
                sign = " && " if isinstance(node.op, ast.And) else " || "
                return f"({sign.join(self.test(one) for one in node.values)})"
            case ast.UnaryOp(op=ast.Not()):
                return f"!{self.test(node.operand)}"
            case ast.Compare():
                return self.value(node)
            case _:
                return f"$.t({self.value(node)})"

    def value(self, node: ast.expr) -> str:
        match node:
            case ast.Constant():
                return _literal(node.value, f"{self.module}, line {node.lineno}")
            case ast.Name():
                return self.name(node)
            case ast.JoinedStr():
                # No template: one inside another is more than every minifier can read.
                return f"({' + '.join(self.piece(one) for one in node.values)})" if node.values else '""'
            case ast.BinOp():
                return f"$.{self.operator(node.op, node)}({self.value(node.left)}, {self.value(node.right)})"
            case ast.UnaryOp(op=ast.Not()):
                return f"!{self.test(node.operand)}"
            case ast.UnaryOp(op=ast.USub()):
                return f"$.neg({self.value(node.operand)})"
            case ast.BoolOp():
                joined = "and" if isinstance(node.op, ast.And) else "or"
                *first, last = node.values
                text = self.value(last)
                for one in reversed(first):
                    text = f"$.{joined}({self.value(one)}, () => {text})"
                return text
            case ast.Compare():
                return self.comparison(node)
            case ast.IfExp():
                return f"({self.test(node.test)} ? {self.value(node.body)} : {self.value(node.orelse)})"
            case ast.NamedExpr():
                return f"({_safe(node.target.id)} = {self.value(node.value)})"
            case ast.List() | ast.Tuple():
                return f"[{', '.join(self.entry(one) for one in node.elts)}]"
            case ast.Dict():
                pairs = [
                    f"...$.dict({self.value(value)}).pairs()"
                    if key is None
                    else f"[{self.value(key)}, {self.value(value)}]"
                    for key, value in zip(node.keys, node.values, strict=True)
                ]
                return f"$.dict([{', '.join(pairs)}])"
            case ast.Subscript(slice=ast.Slice(step=None)):
                ends = [self.value(one) if one else "null" for one in (node.slice.lower, node.slice.upper)]
                return f"$.slice({self.value(node.value)}, {', '.join(ends)})"
            case ast.Subscript() if not isinstance(node.slice, ast.Slice):
                return f"$.item({self.value(node.value)}, {self.value(node.slice)})"
            case ast.Attribute():
                return self.attribute(node)
            case ast.Call():
                return self.call(node)
            case ast.Lambda():
                return self.function(node)
            case ast.ListComp() | ast.GeneratorExp():
                return self.comprehension(node.generators, node.elt)
            case ast.DictComp():
                pair = ast.copy_location(ast.Tuple(elts=[node.key, node.value], ctx=ast.Load()), node)
                return f"$.dict({self.comprehension(node.generators, pair)})"
            case _:
                raise self.refuse(node, f"the expression {type(node).__name__}")

    def entry(self, node: ast.expr) -> str:
        return f"...$.iter({self.value(node.value)})" if isinstance(node, ast.Starred) else self.value(node)

    def piece(self, node: ast.expr) -> str:
        if isinstance(node, ast.Constant):
            return _literal(node.value, "")
        value = self.value(node.value)
        if node.conversion == ord("r") and node.format_spec is None:
            return f"$.repr({value})"
        if node.conversion == ord("r"):
            value = f"$.repr({value})"
        return f"$.str({value})" if node.format_spec is None else f"$.format({value}, {self.value(node.format_spec)})"

    def name(self, node: ast.Name) -> str:
        if node.id in self.locals:
            return _safe(node.id)
        if node.id in self.scope:
            return self.outside(self.scope[node.id], node.id, node)
        if hasattr(builtins, node.id):
            return self.outside(getattr(builtins, node.id), node.id, node)
        raise self.refuse(node, f"the name {node.id}")

    def outside(self, value: Any, name: str, node: ast.AST) -> str:
        """A global of this module, of a library or of Python itself."""
        if isinstance(value, type) and value in KINDS:
            return json.dumps(KINDS[value])
        home, own = getattr(value, "__module__", None), getattr(value, "__name__", None)
        if (home, own) in LIBRARY:
            return LIBRARY[home, own]
        if home == "builtins" and own in BUILTINS:
            return f"$.{own}"
        if inspect.isclass(value) and issubclass(value, Exception) and home == "builtins":
            return "TypeError_" if own == "TypeError" else own
        if inspect.isclass(value) or isinstance(value, types.FunctionType) or hasattr(value, "__wrapped__"):
            home, own = inspect.unwrap(value).__module__, inspect.unwrap(value).__qualname__
            if home.partition(".")[0] not in self.book.packages:
                raise self.refuse(node, f"{home}.{own}")
            if "<lambda>" not in own:
                return self.book.refer(home, own)
        return self.book.refer(self.module, name)

    def attribute(self, node: ast.Attribute) -> str:
        if isinstance(node.value, ast.Name) and node.value.id not in self.locals:
            module = self.scope.get(node.value.id)
            if isinstance(module, types.ModuleType):
                value = getattr(module, node.attr)
                if module.__name__.partition(".")[0] in self.book.packages:
                    return self.book.refer(module.__name__, node.attr)
                return self.outside(value, node.attr, node)
        if node.attr == "__name__":
            return self.value(node.value)  # of a type, which is its name here
        return f"{self.value(node.value)}.{node.attr}"

    def callee(self, node: ast.expr) -> Any:
        """The Python object that is called, where it is a global; else None."""
        if isinstance(node, ast.Name) and node.id not in self.locals:
            return self.scope.get(node.id, getattr(builtins, node.id, None))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id not in self.locals:
            module = self.scope.get(node.value.id)
            if node.value.id not in self.scope and node.value.id == "dict":
                return getattr(dict, node.attr)  # dict.fromkeys
            return getattr(module, node.attr) if isinstance(module, types.ModuleType) else None
        return None

    def call(self, node: ast.Call) -> str:
        called = self.callee(node.func)
        values = [self.entry(one) for one in node.args]
        if called is type:
            return f"$.name({values[0]})"
        if called is super:
            raise self.refuse(node, "super()")
        if called in (str, int, float, bool, list, tuple, dict):
            if called is dict and node.keywords:
                raise self.refuse(node, "dict with keywords")
            return f"$.{'list' if called is tuple else called.__name__}({', '.join(values)})"
        if getattr(called, "__self__", None) is dict and called.__name__ == "fromkeys":
            return f"$.fromkeys({', '.join(values)})"
        if called is None:
            if isinstance(node.func, ast.Attribute):
                if node.keywords and node.func.attr == "update":
                    values.append(f"$.dict([{', '.join(self.keyword(one) for one in node.keywords)}])")
                elif node.keywords:
                    return self.keyed(node, values)
                return f"$.call({', '.join([self.value(node.func.value), json.dumps(node.func.attr), *values])})"
            if node.keywords:
                raise self.refuse(node, "keywords for a function that is not known here")
            return f"{self.value(node.func)}({', '.join(values)})"
        text = self.value(node.func)
        if inspect.isclass(called) and issubclass(called, Exception):
            return f"new {text}({self.exception(called, node, values)})"
        if (called.__module__, called.__name__) == ("dataclasses", "replace"):
            return f"$.replace({values[0]}, {self.options(node)})"
        if called is map and (kind := self.callee(node.args[0])) in KINDS:
            values[0] = f"$.{kind.__name__}"  # a type that is called, not named
        if called in (min, max) and len(values) > 1:
            values = [f"[{', '.join(values)}]"]
        if called is zip:
            node.keywords = []  # strict=: a check only
        if called is enumerate and node.keywords:
            return f"$.enumerate({values[0]}, {self.value(node.keywords[0].value)})"
        if text.startswith("$."):
            return f"{text}({', '.join([*values, *([self.options(node)] if node.keywords else [])])})"
        if node.keywords:
            values = self.placed(called, node, values)
        return f"{'new ' if inspect.isclass(called) else ''}{text}({', '.join(values)})"

    def keyed(self, node: ast.Call, values: list[str]) -> str:
        """A method with keywords: of a class in this module, which is asked for the order when it is called."""
        method, named = node.func.attr, {one.arg for one in node.keywords}
        classes = [one for one in self.scope.values() if inspect.isclass(one)]
        methods = [vars(one)[method] for one in classes if isinstance(vars(one).get(method), types.FunctionType)]
        if not any(named <= set(inspect.signature(one).parameters) for one in methods):
            raise self.refuse(node, f"a method {method} with these keywords")
        if any(isinstance(one, ast.Starred) for one in node.args):
            raise self.refuse(node, "* beside keywords")
        return (
            f"$.keyed({self.value(node.func.value)}, {json.dumps(method)}, [{', '.join(values)}], {self.options(node)})"
        )

    def keyword(self, node: ast.keyword) -> str:
        if node.arg is None:
            return f"...$.dict({self.value(node.value)}).pairs()"
        return f"[{json.dumps(node.arg)}, {self.value(node.value)}]"

    def options(self, node: ast.Call) -> str:
        """Keywords as an object."""
        parts = [
            f"{one.arg}: {self.value(one.value)}" if one.arg else f"...$.object({self.value(one.value)})"
            for one in node.keywords
        ]
        return f"{{ {', '.join(parts)} }}"

    def exception(self, called: type, node: ast.Call, values: list[str]) -> str:
        """The message, and the rest as attributes under the names of the constructor's parameters."""
        if "__init__" not in vars(called) or called.__module__ == "builtins":
            return ", ".join([*(values[:1] or ['""']), *([self.options(node)] if node.keywords else [])])
        known = [one for one in inspect.signature(called).parameters.values() if one.kind != one.VAR_KEYWORD]
        facts = [f"{one.name}: {_literal(one.default, one.name)}" for one in known[1:] if one.default is not one.empty]
        facts += [f"{one.name}: {text}" for one, text in zip(known[1:], values[1:], strict=False)]
        return f"{values[0]}, {{ ...{{ {', '.join(facts)} }}, ...{self.options(node)} }}"

    def placed(self, called: Callable, node: ast.Call, values: list[str]) -> list[str]:
        """All arguments by position, keywords put where they belong."""
        if any(one.arg is None for one in node.keywords) or any(isinstance(one, ast.Starred) for one in node.args):
            raise self.refuse(node, "** or * beside keywords")
        names = list(inspect.signature(called).parameters)
        given = dict(zip(names, values, strict=False)) | {one.arg: self.value(one.value) for one in node.keywords}
        if unknown := set(given) - set(names):
            raise self.refuse(node, f"the keyword {min(unknown)}")
        last = max(names.index(name) for name in given)
        return [given.get(name, "undefined") for name in names[: last + 1]]

    def function(self, node: ast.Lambda) -> str:
        named = {one.arg for one in node.args.args}
        walrus = {one.target.id for one in ast.walk(node.body) if isinstance(one, ast.NamedExpr)} - self.own
        kept, self.locals = self.locals, self.locals | named | walrus
        body = self.value(node.body)
        self.locals = kept
        names = ", ".join(_safe(one.arg) for one in node.args.args)
        if walrus:
            return f"(({names}) => {{ let {', '.join(map(_safe, sorted(walrus)))}; return {body}; }})"
        return f"(({names}) => ({body}))"

    def comprehension(self, generators: list[ast.comprehension], element: ast.expr) -> str:
        first, *rest = generators
        source = self.value(first.iter)
        kept = self.locals
        self.locals = self.locals | _names(first.target)
        target = self.target(first.target)
        text = f"$.list({source})"
        asked = " && ".join(self.test(one) for one in first.ifs)
        if any(isinstance(one, ast.NamedExpr) for test in first.ifs for one in ast.walk(test)):
            # What := binds is for this element, so each is made right after its test.
            made = self.comprehension(rest, element) if rest else f"[{self.value(element)}]"
            text += f".flatMap(({target}) => ({asked} ? {made} : []))"
        else:
            text += f".filter(({target}) => {asked})" if asked else ""
            text += (
                f".flatMap(({target}) => {self.comprehension(rest, element)})"
                if rest
                else f".map(({target}) => {self.value(element)})"
            )
        self.locals = kept
        return text

    def comparison(self, node: ast.Compare) -> str:
        parts, left = [], node.left
        for operator, right in zip(node.ops, node.comparators, strict=True):
            parts.append(self.compare(left, operator, right))
            left = right
        return parts[0] if len(parts) == 1 else f"({' && '.join(parts)})"

    def compare(self, left: ast.expr, operator: ast.cmpop, right: ast.expr) -> str:
        a, b = self.value(left), self.value(right)
        match operator:
            case ast.Is() | ast.IsNot():
                if isinstance(right, ast.Constant) and right.value is None:
                    return f"({a} {'==' if isinstance(operator, ast.Is) else '!='} null)"
                return f"({a} {'===' if isinstance(operator, ast.Is) else '!=='} {b})"
            case ast.Eq():
                return f"$.eq({a}, {b})"
            case ast.NotEq():
                return f"!$.eq({a}, {b})"
            case ast.In():
                return f"$.has({b}, {a})"
            case ast.NotIn():
                return f"!$.has({b}, {a})"
            case _:
                return f"$.{ORDER[type(operator)]}({a}, {b})"


def _needed(runtime: str, body: str) -> str:
    """Of pyrt.js, what this body uses, and what that uses.

    Its lines are cut into parts by their indentation: declarations (none, or 2 spaces), and the entries of its tables
    (4). A part stays if its name is a word anywhere in what stays, so too much can stay, and never too little.
    """
    parts: list[tuple[str, str]] = []  # each with the word that calls for it; "" for what always stays
    table = ""
    for line in runtime.splitlines(keepends=True):
        if begins := _TABLE.match(line):
            table = begins[1] or "$"
            parts.append(("", line))
        elif line.rstrip() in ("  };", "const $ = (() => {", "})();"):
            table = ""
            parts.append(("", line))
        elif begins := (_ENTRY if table else _DECLARED).match(line):
            parts.append((f"$.{begins[1]}" if table == "$" else begins[1], line))
        elif not line.lstrip().startswith(("//", "/**")):
            name, text = parts.pop() if parts else ("", "")
            parts.append((name, text + line))
    stays, more = [name == "" for name, _ in parts], body + "".join(text for name, text in parts if name == "")
    while more:
        words, more = set(_WORD.findall(more)), ""
        for i, (name, text) in enumerate(parts):
            if not stays[i] and name in words:
                stays[i], more = True, more + text
    return "".join(text for stay, (_, text) in zip(stays, parts, strict=True) if stay)


_TABLE = re.compile(r"  (?:const ([A-Z]+) = |return )\{$")
_ENTRY = re.compile(r"    (\w+)(?:: |,$)")
_DECLARED = re.compile(r"(?:  )?(?:class|const|function\*?) (\w+)\b")
_WORD = re.compile(r"\$\.\w+|\w+")


def _literal(value: Any, where: str) -> str:
    """A value of JSON's kinds as a JavaScript expression."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, int):
        return str(value) if abs(value) < 2**53 else f"{value}n"
    if isinstance(value, float):
        return {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}.get(repr(value), repr(value))
    if isinstance(value, list | tuple):
        return f"[{', '.join(_literal(one, where) for one in value)}]"
    if isinstance(value, dict):
        pairs = ", ".join(f"[{_literal(key, where)}, {_literal(one, where)}]" for key, one in value.items())
        return f"$.dict([{pairs}])"
    raise Untranslatable(
        f"{where}: a value of type {type(value).__name__} is outside the part of Python that is translated"
    )


def _safe(name: str) -> str:
    return f"{name}_" if name in RESERVED or name == "$" else name


@cache
def _body(module: str) -> list[ast.stmt]:
    return ast.parse(inspect.getsource(import_module(module))).body


@cache
def _tree(module: str) -> dict[str, ast.stmt]:
    """The statements of a module that define its names."""
    found: dict[str, ast.stmt] = {}
    for node in _body(module):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found[node.name] = node
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value:
            found[node.target.id] = node
        elif isinstance(node, ast.Assign):
            found |= {
                name: node for one in node.targets if isinstance(one, ast.Name | ast.Tuple) for name in _names(one)
            }
    return found


def _definition(module: str, name: str) -> ast.stmt | None:
    return _tree(module).get(name)


@cache
def _imports(module: str) -> dict[str, tuple[str, str]]:
    """What a module imports by name: its name there -> the module it comes from, its name in that."""
    found: dict[str, tuple[str, str]] = {}
    for node in _body(module):
        if isinstance(node, ast.ImportFrom):
            package = import_module(module).__package__
            source = "." * node.level + (node.module or "")
            home = import_module(source, package).__name__ if node.level else source
            found |= {alias.asname or alias.name: (home, alias.name) for alias in node.names}
    return found


def _home(module: str, name: str) -> tuple[str, str]:
    """The module of this package that defines a name which `module` may have imported."""
    if name in _tree(module):
        return module, name
    if name in _imports(module):
        return _home(*_imports(module)[name])
    raise Untranslatable(f"{module} does not define {name}")


def _assigned(body: list[ast.stmt]) -> set[str]:
    """Names that these statements bind in their own function."""
    found: set[str] = set()

    def look(node: ast.AST) -> None:
        match node:
            case ast.FunctionDef():
                found.add(node.name)
                return
            case ast.Lambda():
                return
            case ast.ListComp() | ast.GeneratorExp() | ast.DictComp():
                # Its own variables stay inside; what := binds does not.
                found.update(one.target.id for one in ast.walk(node) if isinstance(one, ast.NamedExpr))
                return
            case ast.Name(ctx=ast.Store()):
                found.add(node.id)
            case ast.ExceptHandler(name=str(name)):
                found.add(name)
        for child in ast.iter_child_nodes(node):
            look(child)

    for statement in body:
        look(statement)
    return found


def _names(target: ast.expr) -> set[str]:
    return {one.id for one in ast.walk(target) if isinstance(one, ast.Name)}


def _cached(node: ast.FunctionDef) -> bool:
    """Whether functools keeps the answers of this function: it is decorated with cache or lru_cache."""
    called = [one.func if isinstance(one, ast.Call) else one for one in node.decorator_list]
    return any(isinstance(one, ast.Name) and one.id in ("cache", "lru_cache") for one in called)


def _keywords(method: ast.FunctionDef) -> list[str]:
    """The parameters of a method, in their order, if one of them has a default."""
    args = method.args
    names = [one.arg for one in (*args.posonlyargs, *args.args, *args.kwonlyargs)][1:]
    return names if args.defaults or args.kw_defaults else []


def _yields(node: ast.FunctionDef) -> bool:
    return any(isinstance(one, ast.Yield | ast.YieldFrom) for one in ast.walk(node))


def _loaded(target: ast.expr) -> ast.expr:
    """The target of an augmented assignment, to be read."""
    return ast.copy_location(ast.parse(ast.unparse(target), mode="eval").body, target)
