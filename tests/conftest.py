# SPDX-License-Identifier: BSD-3-Clause
"""What pytest does around every test."""

import pytest

pytest.register_assert_rewrite("programs", "samples")


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    """Every test works in a folder of its own, which goes where the test passes."""
    monkeypatch.chdir(tmp_path)
