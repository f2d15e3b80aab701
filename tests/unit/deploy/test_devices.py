from __future__ import annotations

import pytest

from deploy.devices import CPU, assigned, chosen_gpus

LISTING = "0, GPU-aaa\n1, GPU-bbb\n2, GPU-ccc\n"


@pytest.mark.parametrize(
    ("visible", "found"),
    [
        (None, ["GPU-aaa", "GPU-bbb", "GPU-ccc"]),
        ("2,0", ["GPU-ccc", "GPU-aaa"]),
        ("GPU-bbb", ["GPU-bbb"]),
        ("GPU-b", ["GPU-bbb"]),
        ("0,7,1", ["GPU-aaa"]),
        ("", []),
        ("-1", []),
    ],
)
def test_gpus_are_those_that_cuda_would_show(visible: str | None, found: list[str]) -> None:
    assert chosen_gpus(LISTING, visible) == found


def test_no_gpus_in_a_driver_s_complaint() -> None:
    assert chosen_gpus("No devices were found\n", None) == []


def test_auto_takes_the_cpu_where_there_is_no_gpu() -> None:
    assert assigned("auto", []) == [CPU]


def test_the_cpu_worker_sees_no_gpu() -> None:
    assert assigned("cpu", ["GPU-aaa"])[0].environment["CUDA_VISIBLE_DEVICES"] == ""


@pytest.mark.parametrize("setting", ["auto", "cuda"])
def test_every_gpu_gets_a_worker_that_sees_only_it(setting: str) -> None:
    devices = assigned(setting, ["GPU-aaa", "GPU-bbb"])

    assert [device.name for device in devices] == ["gpu0", "gpu1"]
    assert [device.environment["CUDA_VISIBLE_DEVICES"] for device in devices] == ["GPU-aaa", "GPU-bbb"]
    assert {device.environment["ROOST_DEVICE"] for device in devices} == {"cuda:0"}


def test_one_gpu_by_number() -> None:
    (device,) = assigned("cuda:1", ["GPU-aaa", "GPU-bbb"])

    assert (device.name, device.environment["CUDA_VISIBLE_DEVICES"]) == ("gpu1", "GPU-bbb")


def test_a_gpu_that_is_not_there_is_left_to_the_worker_to_report() -> None:
    (device,) = assigned("cuda:5", ["GPU-aaa"])

    assert device.environment == {"ROOST_DEVICE": "cuda:5"}
