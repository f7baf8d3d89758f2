"""The inventory of the present code: sections of entries, each with what is known of it."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import typing
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

# Everything that is imported from inside the package is here, so that moves and renames touch these lines only.
import raychains
from raychains import callbacks, cli, measures, priors, samplers, schedules, tasks
from raychains.core import config, errors
from raychains.core.options import options_of
from raychains.measures.weights import WEIGHTINGS
from raychains.papers import SCALES, contents
from raychains.planning.presets.named import PRESETS as NAMED
from raychains.planning.views import KINDS as VIEWS
from raychains.report.figures import FIGURES as RUN_FIGURES
from raychains.report.figures import overlay
from raychains.report.sweep import sweep_page
from raychains.samplers import METHODS

EVENTS = typing.get_args(callbacks.RunEvent)
FIGURES = {"run": RUN_FIGURES, "compare": overlay.FIGURES, "sweep": sweep_page.FIGURES}
PRESETS = list(NAMED.values())
METHOD, PRESET, ARM = (
    "kind schedule label settings fixed",
    "task schedule options",
    "sampler options variables schedule",
)
TABLE_CALL, TABLES, METRIC = re.compile(r"(read|write)_(rows|table|arrow)|table|drawn_from"), "Tables", "Metric"
"""What a table's name is handed to, the type of what returns several tables, the type of a metric."""
MESSAGE_MAKERS: Mapping[str, Callable[..., str]] = {
    "at_least_0": lambda field, value: f"{field} must be a finite number of at least 0, got {value}",
    "one_of": lambda field, value, known: f"{field} must be one of {known}, got {value}",
    "fraction": lambda field, value, why="": f"{field} must lie in [0, 1){why}, got {value}",
    "integer": lambda field, value, least="0", most="", why="": (
        f"{field} must be an integer {f'in [{least}, {most}]' if most else f'of at least {least}'}{why}, got {value}"
    ),
    "positive_int": lambda field, value, why="": f"{field} must be an integer of at least 1{why}, got {value}",
    "path_of": lambda field, value: f"{field} must be a path, got {value}",
    "require": lambda _, field, value, allowed: f"{field} must {allowed}, got {value}",
    "true_or_false": lambda field, value: f"{field} must be true or false, got {value}",
    "unknown_name": lambda field, value, known: f"{field} must be one of {known}, got {value}",
}
"""Helpers that make errors: the message that each makes of its arguments."""

ROOT = Path(__file__).parents[2]
FACETS = {
    "unit": r"\b(?:seconds|minutes|hours|days|bytes|[kmg]i?b|nats|bits|inches|pixels|per step|mean-loss "
    r"scale|utc|logits"
    r"|log-probabilities)\b|(?:^|(?<=\bin )|(?<=\())(?:epochs|steps|examples)\b",
    "range": r"[\[(]-?[\d.∞]+, -?[\d.∞]+[\])]",
    "shape": r"(?<![\w\])}])\[[a-z…]\w*(?:(?:, | × )[\w…*+ ]+)*\]",
}
Entries = dict[str, str]
SAMPLERS = {kind.__name__: kind for kind in samplers.KINDS.values()}


def collect() -> dict[str, Entries]:
    trees = [ast.parse(file.read_text(encoding="utf-8")) for file in sorted((ROOT / "raychains").rglob("*.py"))]
    kinds: dict[str, dict[str, Any]] = {
        "samplers": {**samplers.KINDS},
        "schedules": {**schedules.KINDS},
        "priors": {**priors.KINDS},
    }
    sections: Mapping[str, Entries] = {
        **_options(),
        **_read(trees),
        **{section: _joined(_parameters(*one) for one in found.items()) for section, found in kinds.items()},
        "revisions": {n: _values(kind, "revision") for found in kinds.values() for n, kind in found.items()},
        "exit statuses": {n: str(c.exit_status) for n, c in vars(errors).items() if hasattr(c, "exit_status")},
        "methods": {name: _values(method, METHOD) for name, method in METHODS.items()},
        "tasks": _joined(_parameters(n, tasks.kind_of(n)) | {n: path} for n, path in tasks.NAMES.items()),
        "measures": dict.fromkeys(measures.NAMES, ""),
        "views": dict.fromkeys((*VIEWS, *WEIGHTINGS), ""),
        "figures": {f"{page} {name}": "" for page, makers in FIGURES.items() for name in makers},
        "listeners": dict.fromkeys(callbacks.NAMES, ""),
        "events": {
            f"{kind.event} {f}".strip(): ""
            for kind in EVENTS
            for f in ("", *(field.name for field in dataclasses.fields(kind)))
        },
        "experiments": {e.name: e.paper for e in contents.published()} | dict.fromkeys(SCALES, ""),
        "presets": {preset.name: _values(preset, PRESET) for preset in PRESETS},
        "preset arms": {
            f"{preset.name} {arm.name}": _values(arm, ARM) for preset in PRESETS for arm in preset.variants
        },
        "api": _joined(_public(name, getattr(raychains, name)) for name in raychains.__all__),
        "messages": _messages(trees),
        "docstrings": _docstrings(trees),
    }
    return {section: dict(sorted(entries.items())) for section, entries in sections.items()}


def facets(text: str) -> set[str]:
    """What a text says beyond its words: units, ranges, shapes, and the names under Args, Raises, Returns and
    Yields."""
    flat = " ".join(text.lower().split())
    found = {f"{kind} {m}" for kind, pattern in FACETS.items() for m in re.findall(pattern, flat)}
    for heading, body in re.findall(r"^(Args|Raises|Returns|Yields):\n((?:    .*\n?|\n)+)", text, flags=re.M):
        names = re.findall(r"^    ([\w.*]+(?:, [\w.*]+)*)(?: \([^)]*\))?:", body, flags=re.M)
        found |= {f"{heading} {name}" for listed in names for name in listed.split(", ")} or {heading}
    return found


def _options() -> dict[str, Entries]:
    """Every command's options with their forms and defaults, and their texts, from which ``--help`` is made."""
    forms: Entries = {}
    texts: Entries = {}
    for command, (_, about) in cli.COMMANDS.items():
        kind = getattr(config, cli.COMMANDS[command][0])
        forms[command], texts[command] = "", f"{about}. {' '.join((inspect.getdoc(kind) or '').split())}"
        forms |= {f"{command} --options": "--options FILE"} if command in cli.TAKE_FILES else {}
        forms[f"{command} -h"] = "-h, --help"
        for option in options_of(kind).values():
            key = f"{command} argument" if option.form.positional else f"{command} {option.flag}"
            default = f" (default: {option.shown_default})" if option.shown_default else ""
            default = " (required)" if option.default is dataclasses.MISSING else default
            switch = f"{option.flag}, --no-{option.flag[2:]} (default: {option.default})"
            forms[key] = switch if option.types == (bool,) else f"{option.flag} {option.metavar}{default}"
            texts[key] = option.help
    return {"options": forms, "help": texts}


def _parameters(name: str, called: Callable[..., Any]) -> Entries:
    """``name`` itself, and every parameter that it takes with its default."""
    found = {name: ""}
    for p in inspect.signature(called).parameters.values():
        many = {"VAR_KEYWORD": "**", "VAR_POSITIONAL": "*"}.get(p.kind.name)
        default = "required" if p.default is p.empty else re.sub(r" at 0x\w+", "", f"default {p.default!r}")
        if p.name not in ("self", "cls"):
            found[f"{name} {p.name}"] = many or "keyword, " * (p.kind is p.KEYWORD_ONLY) + default
    return found


def _joined(parts: Iterable[Entries]) -> Entries:
    return {key: value for part in parts for key, value in part.items()}


def _values(value: Any, names: str) -> str:
    return ", ".join(repr(getattr(value, name)) for name in names.split())


def _public(name: str, value: Any) -> Entries:
    """A public function or class with its parameters, and the class's public members that this package defines."""
    if inspect.ismodule(value):
        return _joined(_public(f"{name}.{member}", getattr(value, member)) for member in value.__all__)
    if not inspect.isclass(value):
        return _parameters(name, value)
    ours = getattr(value.__init__, "__module__", "").startswith("raychains")
    found = _parameters(name, value) if ours else {name: ""}
    members = {m for c in inspect.getmro(value) if c.__module__.startswith("raychains") for m in vars(c)}
    for member in members - set(getattr(value, "__dataclass_fields__", ())):
        if not member.startswith("_"):
            one = inspect.getattr_static(value, member)
            called = inspect.unwrap(getattr(one, "__func__", one))
            found |= _parameters(f"{name}.{member}", called) if inspect.isfunction(called) else {f"{name}.{member}": ""}
    return found


def _strings(nodes: Iterable[ast.AST | None]) -> list[str]:
    return [n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str)]


def _called(node: ast.AST) -> str:
    return ast.unparse(node.func).rpartition(".")[2] if isinstance(node, ast.Call) else ""


def _returned(node: ast.FunctionDef) -> list[ast.expr]:
    return [one.value for one in ast.walk(node) if isinstance(one, ast.Return) and one.value is not None]


def _read(trees: Iterable[ast.Module]) -> dict[str, Entries]:
    """Parquet files' names, metrics and environment variables, which only the source text has."""
    tables: list[str] = []
    variables: list[str] = []
    metrics: dict[str, set[str]] = defaultdict(set)
    for node in (node for tree in trees for node in ast.walk(tree)):
        tables += [name for text in _strings([node]) for name in re.findall(r"\b(\w+)\.parquet", text)]
        variables += [name for text in _strings([node]) for name in re.findall(r"\bRAYCHAINS_[A-Z_]+", text)]
        if isinstance(node, ast.Call) and TABLE_CALL.fullmatch(_called(node)):
            tables += _strings(node.args[:2])
        elif isinstance(node, ast.Call) and _called(node) == METRIC:
            given = {k.arg: k.value for k in node.keywords}
            facts = ", ".join(f"{k}={ast.unparse(v)}" for k, v in given.items() if k not in ("name", "label"))
            for name in _strings([given.get("name")]):
                metrics[name].add(facts)
        elif isinstance(node, ast.FunctionDef) and node.returns and ast.unparse(node.returns).endswith(TABLES):
            tables += [key for one in _returned(node) if isinstance(one, ast.Dict) for key in _strings(one.keys)]
        if isinstance(node, ast.Subscript | ast.Call | ast.Compare) and re.search(r"\benviron\b", ast.unparse(node)):
            variables += [s for s in _strings(ast.iter_child_nodes(node)) if re.fullmatch(r"[A-Z]+\w*", s)]
    judged = {name: " or ".join(sorted(facts)) for name, facts in metrics.items()}
    return {"tables": dict.fromkeys(tables, ""), "metrics": judged, "environment": dict.fromkeys(variables, "")}


def _messages(trees: Iterable[ast.Module]) -> Entries:
    """Templates of all messages of the project's errors with the errors' kinds, and of sentences that functions
    return."""
    classes = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    kinds = {"RaychainsError"}
    for _ in range(5):  # no chain of subclasses is longer
        kinds |= {c.name for c in classes if any(ast.unparse(base).rpartition(".")[2] in kinds for base in c.bases)}
    found: dict[str, set[str]] = defaultdict(set)
    for nodes in (list(ast.walk(tree)) for tree in trees):
        said = {t.id: n.value for n in nodes if isinstance(n, ast.Assign) for t in n.targets if isinstance(t, ast.Name)}
        for node in nodes:
            if isinstance(node, ast.Call) and len(node.args) >= 2 and (make := MESSAGE_MAKERS.get(_called(node))):
                found[make(*(_template(a, said) for a in node.args))].add("UserError")
            elif isinstance(node, ast.Call) and node.args and _called(node) in kinds:
                found[_template(node.args[0], said)].add(_called(node))
            elif isinstance(node, ast.FunctionDef) and node.returns and "Iterator[Rule]" in ast.unparse(node.returns):
                for rule in (one.value for one in ast.walk(node) if isinstance(one, ast.Yield)):
                    if isinstance(rule, ast.Tuple):
                        found[MESSAGE_MAKERS["require"](*(_template(a, said) for a in rule.elts))].add("UserError")
            elif (
                isinstance(node, ast.AnnAssign)
                and isinstance(node.value, ast.Call)
                and _called(node.value) == "setting"
            ):
                found |= {text: {"UserError"} for text in _of_check(ast.unparse(node.target), node.value)}
            elif isinstance(node, ast.FunctionDef) and node.returns and re.match(r"str\b", ast.unparse(node.returns)):
                for text in (_template(one, {}) for one in _returned(node)):
                    if len(re.findall(r"[A-Za-z]{2,}(?![^{}]*\})", text)) >= 4:
                        found[text].add("returned")
    return {text: ", ".join(sorted(names)) for text, names in found.items()}


def _of_check(name: str, declared: ast.Call) -> list[str]:
    """The message of the check that a setting is declared with, if it is one of the helpers'."""
    check = next((k.value for k in declared.keywords if k.arg == "check"), None)
    more: Mapping[str, str] = {}
    while isinstance(check, ast.Call):  # unless_none(…), partial(…, why=…)
        more = {k.arg: _template(k.value, {}) for k in check.keywords if k.arg} or more
        check = check.args[0]
    make = MESSAGE_MAKERS.get(ast.unparse(check)) if check is not None else None
    return [make(name, f"{{group['{name}']}}", **more)] if make else []


def _template(node: ast.AST, said: Mapping[str, ast.AST]) -> str:
    """A message with its placeholders by their expressions; ``said`` has what is assigned to names."""
    match node:
        case ast.Constant():
            return str(node.value)
        case ast.JoinedStr():
            return "".join(_template(value, said) for value in node.values)
        case ast.FormattedValue():
            return f"{{{ast.unparse(node.value)}}}"
        case ast.BinOp(op=ast.Add()):
            return _template(node.left, said) + _template(node.right, said)
        case ast.IfExp():
            return f"{_template(node.body, said)} / {_template(node.orelse, said)}"
        case ast.Name() if isinstance(said.get(node.id), ast.JoinedStr | ast.Constant):
            return _template(said[node.id], {})
    return f"{{{ast.unparse(node)}}}"


def _docstrings(trees: Iterable[ast.Module]) -> Entries:
    """How many public things have a name, module aside, and the facets of all their docstrings."""
    found: dict[str, list[set[str]]] = defaultdict(list)
    for name, text in (one for tree in trees for one in _documented(tree, "")):
        found[name].append(facets(text))
    return {name: "; ".join([str(len(all_)), *sorted(chain(*all_))]) for name, all_ in found.items() if any(all_)}


def _documented(inside: ast.Module | ast.ClassDef, prefix: str) -> Iterator[tuple[str, str]]:
    """Public classes, functions and attributes of a module or class, with their docstrings."""
    for one, after in zip(inside.body, [*inside.body[1:], None], strict=True):
        if isinstance(one, ast.ClassDef | ast.FunctionDef):
            name, text = one.name, ast.get_docstring(one) or ""
            if not prefix and name in SAMPLERS:  # with the settings' lines
                text = inspect.getdoc(SAMPLERS[name]) or ""
        elif isinstance(one, ast.Assign | ast.AnnAssign) and isinstance(after, ast.Expr):
            name, text = (
                ast.unparse(one.target if isinstance(one, ast.AnnAssign) else one.targets[0]),
                "".join(_strings([after.value])),
            )
        else:
            continue
        if not name.startswith("_"):
            yield prefix + name, text
        if isinstance(one, ast.ClassDef) and not name.startswith("_"):
            yield from _documented(one, f"{prefix}{name}.")
