"""run.py SUITE [arguments of pytest]: the conformance suite of the array API (array-api-tests) on flow_array.

xfails.txt has the tests that fail, each with its reason. Tests of what is not there, complex dtypes above all, are
skipped: by the suite where it does so by itself, else here.
"""
import builtins
import importlib.util
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
NEEDS = "pytest", "hypothesis", "ndindex", "pytest_jsonreport", "numpy"
LACKING = "int16,uint16,uint32,uint64,complex64,complex128"


def missing(suite):
    if not suite or not os.path.isdir(os.path.join(suite, "array_api_tests")):
        return "SUITE=folder of array-api-tests (with its submodule array-api)"
    return " ".join(name for name in NEEDS if not importlib.util.find_spec(name))


def read_dtype_helpers():
    """The suite's table of dtypes takes the widest complex one, which is none here."""
    spec = importlib.util.find_spec("array_api_tests.dtype_helpers")
    helpers = importlib.util.module_from_spec(spec)
    helpers.max = lambda *args, **named: builtins.max(*args, **named) if args[0] or len(args) > 1 else (None, 0)
    sys.modules[spec.name] = helpers
    spec.loader.exec_module(helpers)
    helpers.widest_complex_dtype = helpers.widest_real_dtype


COMPLEX = set("""test_fft test_ifft test_fftn test_ifftn test_rfft test_irfft test_rfftn test_irfftn test_hfft test_ihfft
    test_eig test_eigvals test_vecdot_conj""".split())
LACKING_NAMES = set("fft ifft fftn ifftn rfft irfft rfftn irfftn hfft ihfft eig eigvals".split())


def reason_to_skip(name):
    function, _, case = name.partition("[")
    name = case.replace("-", ".").rpartition(".")[2].rstrip("]")
    if function in COMPLEX or "real(x" in case or case.startswith(("fft", "linalg")) and name in LACKING_NAMES:
        return "flow has no complex dtypes"
    return None


class Skips:
    @staticmethod
    def pytest_collection_modifyitems(items):
        import pytest
        for item in items:
            reason = reason_to_skip(item.name)
            if reason:
                item.add_marker(pytest.mark.skip(reason=reason))


def main(suite="", *arguments):
    lacks = missing(suite)
    if lacks:
        print("skipped: the array API's suite needs", lacks)
        return 0
    import pytest
    os.environ["ARRAY_API_TESTS_MODULE"] = "flow_array"
    os.environ["ARRAY_API_TESTS_SKIP_DTYPES"] = LACKING
    sys.path[:0] = [HERE, suite]
    read_dtype_helpers()
    os.chdir(suite)
    arguments = arguments or ("--max-examples=20",)
    named = [a for a in arguments if "array_api_tests" in a]
    return pytest.main(["-q", "-p", "no:cacheprovider", "--disable-deadline", "--xfails-file", HERE + "/xfails.txt",
                        *([] if named else ["array_api_tests"]), *arguments], plugins=[Skips])


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
