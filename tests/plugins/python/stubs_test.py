"""Compares the type stubs of the package `ina` with the package: names, parameters and their defaults.

    stubs_test.py BUILD_FOLDER
"""

import ast
import inspect
import pathlib
import sys
import unittest

BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
sys.path.insert(0, str(BUILD / "plugins/python"))

import ina  # noqa: E402

STUB = ast.parse((BUILD / "plugins/python/ina/__init__.pyi").read_text("utf-8"))
# Names of the stub alone, for its annotations.
OF_ANNOTATIONS = {"T", "Array", "Counts"}
# The calls that syntax makes; other names with two underscores are Python's own.
SPECIAL = {"__init__", "__enter__", "__exit__", "__await__"}
# Users make no objects of these classes by their constructors.
MADE_BY_CALLS = {"Handle", "HierarchicalCall", "Registration"}


def names_of(node):
    """Returns the names that a statement of the stub makes."""
    if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
        return [node.name]
    if isinstance(node, ast.AnnAssign):
        return [node.target.id]
    if isinstance(node, ast.Assign):
        return [target.id for target in node.targets]
    if isinstance(node, ast.ImportFrom):  # "import X as X" makes X public
        return [alias.asname for alias in node.names if alias.asname]
    return []


def declared(nodes):
    """Returns the statements by the name that they make."""
    return {name: node for node in nodes for name in names_of(node)}


def members_of(cls):
    """Returns the public members that the class itself has, by name."""
    return {name: member for name, member in vars(cls).items()
            if name in SPECIAL or not name.startswith("_")}


def kind_of(member):
    for kind in (property, classmethod, staticmethod):
        if isinstance(member, kind):
            return kind.__name__
    return "method"


def declared_kind(node):
    decorators = {decorator.id for decorator in node.decorator_list}
    return (decorators & {"property", "classmethod", "staticmethod"} or {"method"}).pop()


def declared_parameters(function):
    """Returns [(name, whether by keyword only, default or "required")]."""
    arguments = function.args
    missing = [None] * (len(arguments.args) - len(arguments.defaults))
    found = [(argument.arg, False, default) for argument, default in zip(arguments.args, missing + arguments.defaults)]
    found += [(argument.arg, True, default) for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults)]
    return [(name, keyword, "required" if default is None else eval(ast.unparse(default), vars(ina)))  # noqa: S307
            for name, keyword, default in found]


def parameters_of(function):
    return [(p.name, p.kind == p.KEYWORD_ONLY, "required" if p.default is p.empty else p.default)
            for p in inspect.signature(function).parameters.values()]


class StubsTest(unittest.TestCase):
    def test_names_of_the_package(self):
        self.assertEqual(set(declared(STUB.body)) - OF_ANNOTATIONS, set(ina.__all__))

    def test_classes(self):
        for node in (node for node in STUB.body if isinstance(node, ast.ClassDef)):
            cls, stub = getattr(ina, node.name), declared(node.body)
            attributes = {name for name, member in stub.items() if isinstance(member, ast.AnnAssign)}
            members = members_of(cls)
            if node.name in MADE_BY_CALLS:
                members.pop("__init__")
            with self.subTest(node.name):
                self.assertEqual(set(stub) - attributes, set(members))
            for name in attributes:
                with self.subTest(f"{node.name}.{name}"):
                    self.assertRegex(inspect.getsource(cls), rf"self\.{name}\b.* = ")
            for name in set(members) & set(stub):
                with self.subTest(f"{node.name}.{name}"):
                    self.compare(stub[name], members[name])

    def compare(self, node, member):
        kind = kind_of(member)
        self.assertEqual(declared_kind(node), kind)
        function = {"property": lambda: member.fget, "method": lambda: member}.get(kind, lambda: member.__func__)()
        self.assertEqual(declared_parameters(node), parameters_of(function))


if __name__ == "__main__":
    unittest.main()
