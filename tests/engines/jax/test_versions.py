import tomllib
from pathlib import Path

import pytest

from nibbler.engines.jax.versions import FAULTY, check_version, require_jax


@pytest.mark.parametrize("version", FAULTY)
def test_a_faulty_release_is_refused_with_a_clear_message(version):
    with pytest.raises(ImportError, match=rf"jax {version} is faulty; install another release"):
        check_version(version)


@pytest.mark.parametrize("version", ["0.10.1", "0.11.2", "0.12.0", "1.0", "0.11.2.dev20260101"])
def test_other_releases_are_accepted(version):
    check_version(version)


def test_an_old_release_is_refused():
    with pytest.raises(ImportError, match=r"0\.4\.30 is older than 0\.10\.1"):
        check_version("0.4.30")


def test_a_missing_jax_names_the_extra(monkeypatch):
    from importlib import metadata

    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", missing)
    with pytest.raises(ImportError, match=r"pip install 'nibbler\[jax\]'"):
        require_jax()


def test_metadata_leaves_out_the_same_releases():
    for folder in Path(__file__).resolve().parents:
        if (folder / "pyproject.toml").exists():
            project = tomllib.loads((folder / "pyproject.toml").read_text())
            break
    (requirement,) = project["project"]["optional-dependencies"]["jax"]
    assert all(f"!={version}" in requirement for version in FAULTY)
