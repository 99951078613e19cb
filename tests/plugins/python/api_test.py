"""Holds the package `ina` to libina's header: calls, numbers, counters and settings.

    api_test.py BUILD_FOLDER
"""

import pathlib
import re
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent.parent
BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
sys.path.insert(0, str(BUILD / "plugins/python"))

import ina  # noqa: E402

HEADER = re.sub(r"/\*.*?\*/", "", (ROOT / "include/ina/ina.h").read_text("utf-8"), flags=re.DOTALL)
BINDING = {path.name: re.sub(r"//.*", "", path.read_text("utf-8"))
           for path in sorted((ROOT / "plugins/python/binding").iterdir()) if path.suffix in (".h", ".cc")}

# Functions that the extension does not call, though the package offers what they do. A function for
# whose _async form the extension calls is no exception: Python waits for that.
REPLACED = {
    "ina_all_gather_async": "ina_all_gatherv_async, with equal counts",
    "ina_gather_async": "ina_gatherv_async, with equal counts",
    "ina_scatter_async": "ina_scatterv_async, with equal counts",
    "ina_all_to_all_async": "ina_all_to_allv_async, with equal counts",
    "ina_reduce_scatter_block_async": "ina_reduce_scatter_async, with equal counts",
    "ina_alloc": "ina_register of memory that outlives its context (Context.alloc)",
    "ina_wait": "Handle.wait, by ina_request_set_callback",
    "ina_test": "Handle.done, by ina_request_set_callback",
    "ina_request_free": "a handle may be dropped, by ina_request_set_callback",
    "ina_completion_fd": "`await handle`, with a descriptor that is read after callbacks",
    "ina_config_init_sized": "ina_config_init, which is inline",
}
# And those that it does not offer.
MISSING = {
    "ina_group_start": "ina_request_set_callback starts collected operations at once",
    "ina_group_end": "as ina_group_start",
}
# Fields of ina_config that Context does not have.
MISSING_SETTINGS = {
    "copy_threads": "the variable INA_COPY_THREADS",
    "rejoin_timeout_us": "the variable INA_REJOIN_TIMEOUT_US",
    "coalesce_bytes": "as ina_group_start",
}


def functions():
    return set(re.findall(r"INA_API [^;(]*?\b(ina_\w+)\(", HEADER))


def called():
    """Returns the functions that the extension calls or hands on."""
    return set(re.findall(r"\b(ina_\w+)\b", "\n".join(BINDING.values()))) & functions()


def fields(struct):
    body = re.search(rf"typedef struct {struct} \{{(.*?)\}} {struct};", HEADER, re.DOTALL).group(1)
    return set(re.findall(r"(\w+);", body)) - {"struct_size"}


def numbers(enum, prefix):
    body = re.search(rf"typedef enum {enum}\b[^{{]*\{{(.*?)\}} {enum};", HEADER, re.DOTALL).group(1)
    return {name: int(value) for name, value in re.findall(rf"{prefix}(\w+)\s*=\s*(-?\d+)\b", body)
            if not name.endswith("MAX_ENUM")}


class ApiTest(unittest.TestCase):
    def test_functions(self):
        self.assertGreater(len(functions()), 70)
        offered = called() | set(REPLACED)
        for name in sorted(functions()):
            with self.subTest(name):
                self.assertTrue(name in offered or name in MISSING or name + "_async" in offered,
                                "is neither called nor listed here")

    def test_lists(self):
        for name in {**REPLACED, **MISSING}:
            with self.subTest(name):
                self.assertIn(name, functions(), "is no function any more")
                self.assertNotIn(name, called(), "is called")
        for name in MISSING:
            with self.subTest(name):
                self.assertIn(name.removesuffix("_start").removesuffix("_end"),
                              (ROOT / "docs/python.md").read_text("utf-8"))

    def test_counters(self):
        found = re.findall(r'\{"(\w+)", &ina_stats::(\w+)\}', BINDING["stats.h"])
        self.assertEqual({name for name, _ in found}, fields("ina_stats"))
        self.assertEqual([name for name, field in found if name != field], [])
        self.assertEqual(set(re.findall(r'"(\w+)"_a', BINDING["module.cc"])), fields("ina_plan_facts"))

    def test_settings(self):
        found = set(re.findall(r"\bconfig\.(\w+) =", BINDING["context.cc"]))
        self.assertEqual(found | set(MISSING_SETTINGS), fields("ina_config"))
        self.assertFalse(found & set(MISSING_SETTINGS))

    def test_numbers(self):
        for enum, prefix, cls in (("ina_op", "INA_", ina.Op), ("ina_dtype", "INA_", ina.DType),
                                  ("ina_status", "INA_ERR_", ina.Status)):
            with self.subTest(enum):
                self.assertEqual(numbers(enum, prefix), {member.name: member.value for member in cls})
        constants = dict(re.findall(r"#define INA_(NOBODY|RESULT_ALIGNMENT) \(?(-?\d+)", HEADER))
        self.assertEqual({name: int(value) for name, value in constants.items()},
                         {"NOBODY": ina.NOBODY, "RESULT_ALIGNMENT": ina.RESULT_ALIGNMENT})


if __name__ == "__main__":
    unittest.main()
