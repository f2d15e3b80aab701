from __future__ import annotations

from pathlib import Path

from deploy.embedded.passwords import keep_password


def test_a_password_is_made_once_and_kept_to_its_owner(tmp_path: Path) -> None:
    password = keep_password(tmp_path)

    assert len(password) >= 24
    assert keep_password(tmp_path) == password
    assert (tmp_path / "password").stat().st_mode & 0o077 == 0


def test_a_password_whose_making_was_interrupted_is_made_again(tmp_path: Path) -> None:
    (tmp_path / "password.new").write_text("")

    assert keep_password(tmp_path)
