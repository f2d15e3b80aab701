from __future__ import annotations

import pytest
from click.testing import CliRunner

from deploy.commands.dead import redrive


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "or --all"),
        (["--killers"], "or --all"),
        (["--all", "--code", "time_limit"], "one of the three"),
        (["0199c0de", "--model", "m"], "one of the three"),
        (["0199c0de", "--all"], "one of the three"),
        (["0199c0de", "--killers"], "named by its id"),
    ],
)
def test_a_redrive_that_does_not_say_which_is_refused_before_anything_is_asked(arguments: list[str], said: str) -> None:
    ran = CliRunner().invoke(redrive, [*arguments, "--url", "http://127.0.0.1:9"])
    assert (ran.exit_code, said in ran.output) == (2, True), ran.output
