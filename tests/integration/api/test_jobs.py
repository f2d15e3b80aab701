from __future__ import annotations

from typing import Any


async def test_a_job_is_taken_in_and_told(api: Any) -> None:
    response = await api.submit("a")
    assert response.status_code == 202, response.text


async def test_a_waiting_call_gets_its_result(api: Any, consumer: Any) -> None:
    response = await api.submit("a", wait=10)
    assert response.status_code == 200, response.text
    print(response.text)
