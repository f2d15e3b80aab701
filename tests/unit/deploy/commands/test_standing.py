from __future__ import annotations

from typing import Any

from rich.console import Console

from deploy.commands.standing import drawn, printed, standing

METRICS = """# TYPE roost_open_jobs gauge
roost_open_jobs{state="queued",lane="bulk"} 3.0
roost_open_jobs{state="queued",lane="interactive"} 1.0
roost_open_jobs{state="running",lane="bulk"} 0.0
# TYPE roost_queue_messages gauge
roost_queue_messages{queue="bulk.s"} 4.0
roost_queue_messages{queue="interactive.xs"} 0.0
# TYPE roost_model_messages gauge
roost_model_messages{queue="bulk.s",model="acme/owl"} 2.0
roost_model_messages{queue="bulk.xs",model="acme/owl"} 1.0
roost_model_messages{queue="bulk.s",model="acme/new"} 1.0
"""
MEMORY = {"budget": 2**30, "weights": 2**20, "free": None}


def model(name: str, state: str, waiting: int = 0) -> dict[str, Any]:
    return {
        "model": name,
        "state": state,
        "bytes": {"weights": 2**20, "activations": 0, "host": 0},
        "waiting": waiting,
        "loads": {"count": 2},
        "evictions": {"count": 1},
    }


WORKER: dict[str, Any] = {
    "name": "cpu@vm",
    "device": "cpu",
    "beat_age_s": 1.2,
    "lost": False,
    "held": 4,
    "waiting": 5,
    "running": 1,
    "sequences": 0,
    "memory": MEMORY,
    "models": [model("acme/owl", "resident", 5), model("acme/gone", "absent")],
}


def test_workers_models_and_what_waits_are_put_together() -> None:
    found = standing([WORKER], METRICS)
    assert found["open_jobs"] == {"queued": 4, "running": 0}
    assert found["queues"] == {"bulk.s": 4, "interactive.xs": 0}
    assert [(one["model"], one["queued"], one["waiting"]) for one in found["models"]] == [
        ("acme/owl", 3, 5),
        ("acme/gone", 0, 0),
        ("acme/new", 1, 0),
    ]
    assert "models" not in found["workers"][0]


def test_models_that_are_nowhere_and_that_nobody_waits_for_are_not_shown() -> None:
    shown = printed(standing([WORKER], METRICS))
    assert shown[0] == "jobs: 4 queued   queues: bulk.s 4"
    assert shown[2].split() == ["cpu@vm", "cpu", "1s", "4", "5", "1", "1", "MiB", "1.0", "GiB", "-"]
    assert [line.split()[0] for line in shown[4:]] == ["acme/owl", "acme/new"]


def test_a_server_in_which_nothing_is_has_a_view_too() -> None:
    found = standing([], "")
    assert printed(found)[0] == "jobs: none open   queues: empty"
    console = Console(width=100)
    with console.capture() as captured:
        console.print(drawn(found, "as it was"))
    assert "as it was" in captured.get()
