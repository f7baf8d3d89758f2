"""Options as data: the fields of the dataclasses of `raychains.core.config`, with their types, texts and checks.

The command line, its help, the signatures and docstrings of `rc.run` and the like, and docs/reference/options.md are
made from this one declaration. Nothing here loads torch or ray.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import inspect
import os
import re
import shlex
import sys
import types
import typing
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

from raychains.core import settings_parser
from raychains.core.errors import UserError, near_miss, require, shown, unknown_name
from raychains.core.registry import check_name
from raychains.core.validation import as_number

METAVARS = {str: "TEXT", int: "INT", float: "NUMBER", bool: "", tuple: "NAME …"}
KINDS = {int: "an integer", float: "a number", str: "a text", bool: "true or false", tuple: "a text or several"}
"""Types of values in words, in the order in which they are named."""
MOST_TEXTS = 10_000
"""Texts that an option takes; an iterator may have no end."""


@dataclass(frozen=True, kw_only=True)
class Form:
    """The form of an option on the command line and its checks, where its name and type do not give them."""

    metavar: str = ""
    """The value in help texts; ``{a,b}`` allows these alone."""
    flag: str = ""
    """Another name: ``--from`` of the field ``source``."""
    aliases: tuple[str, ...] = ()
    """Further names, such as ``--beta`` and ``-M``."""
    positional: bool = False
    help: str = ""
    """The help text, where it is made and not written below the field."""
    check: Callable[[str, Any], object] | None = None
    """Raises for a value out of range, given the option's name and the value."""
    convert: Callable[[str, Any], Any] | None = None
    """Returns what the field holds of a value, given the option's name and the value, or raises."""
    lists: bool = False
    """True if the values of a mapping are lists, written A,B,C."""
    objects: bool = False
    """True if Python takes objects or classes too, which are checked where they are used."""
    per_sampler: bool = False
    """True if the samplers of a comparison may differ: a mapping from samplers to values, written A=VALUE,B=VALUE."""


@dataclass(frozen=True, kw_only=True)
class Option:
    """One option of one command."""

    name: str
    """The field's, and the keyword in Python."""
    types: tuple[type, ...]
    """Types of its values, in the order of `KINDS`; ``tuple`` is several texts."""
    optional: bool
    """True if None is allowed."""
    default: Any
    """`dataclasses.MISSING` where it must be given."""
    form: Form
    help: str

    @property
    def flag(self) -> str:
        """``--samples-per-cycle``, or ``RUN`` of a positional one."""
        name = (self.form.flag or self.name).replace("_", "-")
        return name.upper() if self.form.positional else f"--{name}"

    @property
    def several(self) -> bool:
        """Return whether it takes several values."""
        return tuple in self.types

    @property
    def metavar(self) -> str:
        """Its value in help texts; empty of a flag."""
        own = self.form.metavar or METAVARS[self.types[0]]
        return f"{own} | SAMPLER={own},…" if self.form.per_sampler else own

    @property
    def choices(self) -> Sequence[str]:
        """The allowed texts; none where any text is."""
        return self.form.metavar[1:-1].split(",") if self.form.metavar.startswith("{") else ()

    @property
    def shown_default(self) -> str:
        """The default in help texts; empty where the help text says it or there is none."""
        unsaid = self.default in (None, ()) or self.default is False or self.default is dataclasses.MISSING
        return "" if unsaid else " ".join(self.default) if self.several else f"{self.default}"

    @property
    def _kinds(self) -> tuple[type, ...]:
        """Types of a value by itself: a text only gives values by sampler where those may differ."""
        return tuple(kind for kind in self.types if not (self.form.per_sampler and kind is str))

    def checked(self, value: Any) -> Any:
        """Return a value as its field holds it: NumPy's scalars as numbers, a lone text as a tuple, a path as a text.

        Raises:
            UserError: another type or choice, or a value out of range.
        """
        found = self._converted(value)
        if isinstance(found, str) and not found and self.default != "":
            raise UserError(f"{self.name} must not be empty")
        if self.choices and isinstance(found, str) and found not in self.choices:
            raise unknown_name(self.name, found, self.choices)
        if self.form.check is not None:
            for one in self._each(found):
                if isinstance(one, str) or (isinstance(one, int | float) and not self.form.objects):
                    self.form.check(self.name, one)
        return self.form.convert(self.name, found) if self.form.convert is not None and found is not None else found

    def _each(self, value: Any) -> Collection[Any]:
        """Return the values that a field's value holds: of a text by sampler its numbers."""
        if self.form.per_sampler and isinstance(value, str):
            return settings_parser.by_sampler(self.name, value, KINDS[self._kinds[0]]).values()
        return value if isinstance(value, tuple) else (value,)

    def _converted(self, value: Any) -> Any:
        if value is None and self.optional:
            return None
        if self.form.objects and not isinstance(value, str):
            several = tuple(value) if self.several and isinstance(value, list | tuple) else (value,)
            plain = tuple(map(_path_as_text, several))
            return plain if self.several else plain[0]
        if self.form.per_sampler and _by_sampler(value):
            return value
        if self.several:
            return self._texts(value)
        value = as_number(value)
        try:
            value = _path_as_text(value) if str in self.types else value
        except Exception:  # of a user's class
            raise self._refused(value) from None
        for kind in self._kinds:
            if _is(value, kind):
                return value
        raise self._refused(value)

    def _texts(self, value: Any) -> tuple[str, ...]:
        if isinstance(value, str):
            return (value,)
        if isinstance(value, Mapping):
            return tuple(f"{name}={self._text(entry)}" for name, entry in value.items())
        texts: list[str] = []
        with contextlib.suppress(Exception):  # no iterable, or one of a user's class
            for text in value:
                if not isinstance(text, str) or len(texts) == MOST_TEXTS:
                    break
                texts.append(text)
            else:
                return tuple(texts)
        raise self._refused(value)

    def _text(self, entry: Any) -> str:
        """Return a value of a mapping as the command line writes it."""
        entry = entry.tolist() if hasattr(entry, "tolist") else entry
        if self.form.lists and not isinstance(entry, str):
            if not isinstance(entry, Sequence):
                raise UserError(f"{self.name} must give each name a list of values or a text, got {shown(entry)}")
            return ",".join(
                one if isinstance(one, str) else getattr(one, "kind", repr(as_number(one))) for one in entry
            )
        entry = [as_number(one) for one in entry] if isinstance(entry, list | tuple) else entry
        return entry if isinstance(entry, str) else repr(entry)

    def parsed(self, words: Sequence[str]) -> Any:
        """Return the value that the words of a command line stand for.

        Raises:
            UserError: they stand for none.
        """
        if self.several:
            return tuple(words)
        (word,) = words
        if self.optional and word == "None":
            return None
        if self.form.per_sampler and _by_sampler(word):
            return word
        for kind in self._kinds:
            try:
                return kind(word)
            except (ValueError, OverflowError):
                continue
        raise self._refused(word)

    def _refused(self, value: Any) -> UserError:
        allowed = " or ".join(KINDS[kind] for kind in self._kinds) + ", or SAMPLER=VALUE,…" * self.form.per_sampler
        return UserError(f"{self.name} must be {allowed}, got {shown(value)}")


def _path_as_text(value: Any) -> Any:
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def _is(value: Any, kind: type) -> bool:
    """Return whether a value is of a type of `KINDS`: an integer is a number as well, true and false are not."""
    return isinstance(value, bool) == (kind is bool) and isinstance(value, (float, int) if kind is float else kind)


def _by_sampler(value: Any) -> bool:
    """Return whether a value is one for each sampler."""
    return isinstance(value, Mapping) or (isinstance(value, str) and "=" in value)


def options_of(kind: Any) -> Mapping[str, Option]:
    """Return the options of a command's dataclass by name, those of its bases first."""
    return _read(kind)  # in two, because mypy takes no class for hashable that a cache is asked for


@cache
def _read(kind: Any) -> Mapping[str, Option]:
    hints, texts = typing.get_type_hints(kind, include_extras=True), _texts_of(kind)
    found = {}
    for field in dataclasses.fields(kind):
        hint: Any = hints[field.name]
        extras: Sequence[Any] = ()
        if typing.get_origin(hint) is typing.Annotated:
            hint, *extras = typing.get_args(hint)
        form = next((extra for extra in extras if isinstance(extra, Form)), Form())
        union = typing.get_origin(hint) in (typing.Union, types.UnionType)
        parts = {typing.get_origin(part) or part for part in (typing.get_args(hint) if union else (hint,))}
        found[field.name] = Option(
            name=field.name,
            types=tuple(known for known in KINDS if known in {tuple if p is Sequence else p for p in parts}),
            optional=type(None) in parts,
            default=field.default,
            form=form,
            help=" ".join((form.help or texts.get(field.name, "")).split()),
        )
    return found


@cache
def _texts_of(kind: Any) -> dict[str, str]:
    """Return the texts below a dataclass's fields, its bases' included."""
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__[:-1]):
        (body,) = [node for node in _tree(base.__module__).body if getattr(node, "name", None) == base.__name__]
        assert isinstance(body, ast.ClassDef)
        for field, text in zip(body.body, body.body[1:], strict=False):
            if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
                found[ast.unparse(field.target)] = str(text.value.value)
    return found


@cache
def _tree(module: str) -> ast.Module:
    return ast.parse(inspect.getsource(sys.modules[module]))


class Options:
    """Base of the commands' dataclasses: values are checked, and held in one form, when one is made."""

    refused: ClassVar[Mapping[str, str]] = {}
    """Options of other commands that this one has no use for, with the reason; its help leaves them out."""
    what: ClassVar[str] = ""
    """What the command makes, in messages: ``a fit``."""

    def __post_init__(self) -> None:
        known = options_of(type(self))
        for option in known.values():
            value = getattr(self, option.name)
            if (found := option.checked(value)) is not value:
                object.__setattr__(self, option.name, found)
        for name, why in self.refused.items():
            value, option = getattr(self, name), known[name]
            unchanged = value == option.checked(option.default)
            require(unchanged, name, value, f"be left out of {self.what}: {why}")


def make(kind: Callable[..., Any], settings: Mapping[str, Any]) -> Any:
    """Return a command's options made of keywords.

    Raises:
        UserError: an unknown keyword, one that is missing, or a value of another type or out of range.
    """
    known = options_of(kind)
    for name in settings:
        if name not in known:
            raise UserError(f"unknown argument {name!r}{near_miss(name, known)}")
    for option in known.values():
        if option.default is dataclasses.MISSING and option.name not in settings:
            raise UserError(f"{option.name} must be given: {option.help.rstrip('.')}")
    made = kind(**settings)
    task = getattr(made, "task", None)
    if isinstance(task, str):  # here and not by its form: a task that is an object may have any name afterwards
        check_name("task", task)
    return made


def command_line(command: str, options: Options) -> str:
    """Return the command whose options are these, without those that have their defaults."""
    words = ["raychains", command]
    for option in options_of(type(options)).values():
        value = getattr(options, option.name)
        if option.form.positional:
            words += [value] if isinstance(value, str) else value
        elif option.types == (bool,):
            words += [option.flag if value else f"--no-{option.flag[2:]}"] if value != option.default else []
        elif value != option.default:
            words += [option.flag, *(value if option.several else [str(value)])]
    return shlex.join(words)


def on_command_line(text: str, kind: type[Any]) -> str:
    """Return a message with its options as they are typed: messages name keywords of Python, some in backquotes.

    ``store must be …, see `resume=True```  becomes ``--store must be …, see --resume``.
    """
    known = options_of(kind)

    def typed(match: re.Match[str]) -> str:
        name, equals, value = match[1].replace("'", "").partition("=")
        if name not in known and not equals:
            return match[0]
        flag = known[name].flag if name in known else f"--{name.replace('_', '-')}"
        if value == "False" and name in known and known[name].types == (bool,):
            return f"--no-{flag[2:]}"
        return f"{flag} {value}" if equals and value != "True" else flag

    text = re.sub(r"`([a-z_]+(?:=[^`]*)?)`", typed, text)
    return re.sub(r"^([a-z_]+)(?= must | needs |: )", typed, text)
