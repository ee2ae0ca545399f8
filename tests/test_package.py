"""The package as a user meets it: its names, its quick import, its registration."""

from __future__ import annotations

import ast
import importlib.metadata
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import nibbler


@pytest.mark.parametrize("name", [name for name in nibbler.__all__ if name != "__version__"])
def test_every_public_name_can_be_imported_and_is_documented(name):
    assert inspect.getdoc(getattr(nibbler, name))
    assert name in dir(nibbler)


def test_type_checkers_see_the_names_that_users_see():
    tree = ast.parse(inspect.getsource(nibbler))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    seen = {
        alias.asname: node.module
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert seen == nibbler._HOME


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'nibble'"):
        _ = nibbler.nibble


def test_the_version_is_the_installed_one():
    assert nibbler.__version__ == importlib.metadata.version("nibbler")


def run_python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_importing_the_package_loads_no_compiler_and_no_framework():
    code = "import sys, nibbler; print([m for m in ('numba', 'scipy', 'jax', 'torch') if m in sys.modules])"
    assert run_python(code) == "[]"


def test_importing_the_package_makes_its_environments_known_to_gymnasium():
    code = (
        "import gymnasium, nibbler\n"
        "print(gymnasium.make('nibbler/MultiCatch-v0', num_boards=2).observation_space)"
    )
    assert run_python(code) == "MultiBinary(112)"


def test_gymnasium_imports_the_package_when_the_id_names_it():
    code = (
        "import gymnasium; print(gymnasium.make('nibbler:nibbler/MultiCatch-v0', num_boards=1).action_space)"
    )
    assert run_python(code) == "Discrete(3)"


def test_the_citation_is_of_this_version():
    citation = Path(__file__).parents[1] / "CITATION.cff"
    assert f"\nversion: {nibbler.__version__}\n" in citation.read_text()
