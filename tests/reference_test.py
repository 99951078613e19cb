#!/usr/bin/env python3
"""docs/reference agrees with the headers, the tables of counters and the Python package, and has all declarations."""

import ast
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))

import make_reference  # noqa: E402


def headings(page):
    text = (ROOT / "docs/reference" / page).read_text("utf-8")
    return [name for line in re.findall(r"^## (.*)$", text, re.MULTILINE) for name in re.findall(r"`([\w.]+)`", line)]


class ReferenceTest(unittest.TestCase):
    def test_fresh(self):
        self.assertEqual(subprocess.run([sys.executable, ROOT / make_reference.COMMAND, "--check"], check=False).returncode, 0)

    def test_stale(self):
        with tempfile.TemporaryDirectory(prefix="ina-reference-") as folder:
            path = pathlib.Path(folder)
            for name, text in make_reference.pages().items():
                (path / name).write_text(text + ("." if name == "cpp.md" else ""), encoding="utf-8")
            done = subprocess.run([sys.executable, ROOT / make_reference.COMMAND, "--check", path], check=False,
                                  capture_output=True, text=True)
        self.assertEqual(done.returncode, 1)
        self.assertIn("cpp.md: not what", done.stderr)
        self.assertNotIn("python.md", done.stderr)

    def test_every_function_of_c(self):
        exported = set(re.findall(r"^INA_API [^(]*?(\w+)\(", make_reference.C_HEADER.read_text("utf-8"), re.MULTILINE))
        self.assertGreater(len(exported), 60)
        self.assertLessEqual(exported, set(headings("c.md")))

    def test_every_class_of_cpp(self):
        text = make_reference.CPP_HEADER.read_text("utf-8")
        declared = set(re.findall(r"^(?:class|struct|enum class) (\w+)", text, re.MULTILINE))
        self.assertIn("Hierarchy", declared)
        self.assertEqual(declared - set(headings("cpp.md")), set())

    def test_every_name_of_python(self):
        tree = ast.parse((ROOT / "plugins/python/ina/__init__.py").read_text("utf-8"))
        names = next(ast.literal_eval(node.value) for node in tree.body if isinstance(node, ast.Assign))
        self.assertEqual(set(names) - set(headings("python.md")) - {"NOBODY", "RESULT_ALIGNMENT", "version"}, set())

    def test_every_table_of_counters(self):
        there = {name for path in ROOT.rglob("*.h") if "build" not in path.relative_to(ROOT).parts[0]
                 for name in re.findall(r"^inline constexpr CounterField<[^>]*> (k\w+)", path.read_text("utf-8"), re.MULTILINE)}
        read = {table for tables in make_reference.COUNTER_TABLES.values() for _, table, _ in tables}
        self.assertGreater(len(there), 8)
        self.assertEqual(there, read)

    def test_rows_of_counters(self):
        text = ('constexpr CounterMetric kBoth{"ina_both_total", "of", "Both "\n"kinds."};\n'
                'inline constexpr CounterField<A> kFields[] = {\n    {&A::a, {"a", "whole bytes", "What it "\n "is."}},\n'
                '    {&A::b, {"b", "bytes", "B.", {"ina_b"}, CounterKind::kLevel}},\n'
                '    {&A::c, {"c", "bytes", "C.", {}, CounterKind::kLevel}},\n    {&A::d, {"d", "bytes", "D.", kBoth.of("d")}},\n};\n')
        self.assertEqual(list(make_reference.counter_rows(text, "kFields")),
                         [("a", "whole bytes", "What it is.", "", "", "kTotal"), ("b", "bytes", "B.", "ina_b", "", "kLevel"),
                          ("c", "bytes", "C.", "", "", "kLevel"), ("d", "bytes", "D.", "ina_both_total", 'of="d"', "kTotal")])
        for stranger in ("{&A::e, Row()},", '{&A::e, {"e", kBytes, "E."}},'):
            with self.assertRaises(make_reference.Undocumented):
                list(make_reference.counter_rows(text.replace("\n};\n", f"\n    {stranger}\n}};\n"), "kFields"))
        with self.assertRaises(make_reference.Undocumented):
            list(make_reference.counter_rows(text, "kOthers"))

    def test_pieces_of_c(self):
        text = "/* What\n * it is. */\n\n/* Adds `n`. */\nINA_API int ina_add(int n);\nINA_API int ina_more(int n);\n\nenum e {\n\n  kA };\n"
        self.assertEqual(list(make_reference.c_pieces(text)),
                         [("What\nit is.", ""), ("Adds `n`.", "INA_API int ina_add(int n);\nINA_API int ina_more(int n);"),
                          ("", "enum e {\n\n  kA };")])

    def test_bodies_of_cpp(self):
        text = ("class A : public B {\n public:\n  A(int b) : B(std::string(c(b)) + \"x\"), b_(b) {}\n"
                "  int b() const { return b_ ? f({1}) : 2; }\n  enum class E { kOne };\n\n private:\n  int b_;\n};")
        self.assertEqual(make_reference.without_bodies(make_reference.public_part(text)),
                         "class A : public B {\n public:\n  A(int b);\n  int b() const;\n  enum class E { kOne };\n};")

    def test_markup(self):
        self.assertEqual(make_reference.paragraphs("*a is `*b`:\n  - <x>\n  two;\n  three\nEnd"),
                         "\\*a is `*b`:\n\n- \\<x>\n  two;\n- three\n\nEnd")


if __name__ == "__main__":
    unittest.main()
