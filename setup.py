"""Puts the library of engine/native into a wheel where it can be built; everything else is in pyproject.toml."""

import sys
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel

BUILD = Path(__file__).resolve().parent / "engine" / "native" / "build.py"


@cache
def build_library() -> bool:
    """Whether there is a library for this machine; why not goes to standard error."""
    spec = spec_from_file_location("splitpin_native_build", BUILD)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return int(module.main([])) == 0


class WithLibrary(Distribution):
    """A wheel for one system if it has the library, for all if not."""

    def has_ext_modules(self) -> bool:
        """Whether the wheel fits no other system."""
        return build_library()


class AnyPython(bdist_wheel):
    """The library is loaded by ctypes: every Python 3 can."""

    def get_tag(self) -> tuple[str, str, str]:
        """Python, ABI and system of the wheel."""
        return ("py3", "none", super().get_tag()[2])


setup(distclass=WithLibrary, cmdclass={"bdist_wheel": AnyPython})
