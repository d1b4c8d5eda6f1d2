"""What every test gets: markers set by folder, caches and a working directory of its own, and patient property tests."""

from __future__ import annotations

import functools
import os
import shutil
import tempfile
from pathlib import Path

import hypothesis
import hypothesis.configuration
import pytest

ROOT = Path(__file__).parent.parent
SLOW_FOLDERS = ("e2e", "browser")


def pytest_configure(config: pytest.Config) -> None:
    """Point every cache at a folder that this test run owns, before a test or a process it starts imports torch.

    A code cache left by another run would answer for the compiler, and the profile that Dynamo keeps between runs would
    make static shapes dynamic. The workers of pytest-xdist inherit the folder, so that C++ headers are compiled once."""
    hypothesis.configuration.set_hypothesis_home_dir(ROOT / ".hypothesis")
    if "PYTEST_XDIST_WORKER" in os.environ:
        return
    caches = tempfile.mkdtemp(prefix="minify-tests-")
    config.add_cleanup(functools.partial(shutil.rmtree, caches, ignore_errors=True))
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = f"{caches}/inductor"
    os.environ["TRITON_CACHE_DIR"] = f"{caches}/triton"
    os.environ["XDG_CACHE_HOME"] = f"{caches}/xdg"
    os.environ["TORCH_DYNAMO_AUTOMATIC_DYNAMIC_LOCAL_PGO"] = "0"
    # Processes that tests start run this checkout too, not a copy installed earlier.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if any(ROOT / "tests" / folder in item.path.parents for folder in SLOW_FOLDERS):
            item.add_marker(pytest.mark.slow)


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu") and not has_cuda():
        pytest.skip("needs a CUDA device")


@functools.cache
def has_cuda() -> bool:
    import torch

    return torch.cuda.is_available()


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Run each test in an empty folder of its own, so that `minify-out/` never lands in the checkout."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout: `root / "corpus"` is where the corpus is."""
    return ROOT


# A shared machine is slow now and then: no deadline. In CI the same examples every time, so that red means a change.
hypothesis.settings.register_profile("minify", deadline=None, print_blob=True)
hypothesis.settings.register_profile("minify-ci", deadline=None, print_blob=True, derandomize=True)
hypothesis.settings.load_profile("minify-ci" if os.environ.get("CI") else "minify")
