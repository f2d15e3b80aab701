from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from roost.errors import RequestRefused
from roost.inputs import item_of, items_of


@pytest.fixture
def picture() -> Image.Image:
    return Image.new("RGB", (3, 2), (10, 20, 30))


def pixels(data: bytes) -> Any:
    with Image.open(io.BytesIO(data)) as opened:
        return np.asarray(opened)


def test_texts_and_maps_go_as_they_are() -> None:
    items = ["a", {"id": "b", "text": "c"}, {"images": [{"data": "aGk="}]}]
    assert items_of(items) == items


@pytest.mark.parametrize("one", ["a text", {"text": "a"}, Path(__file__)])
def test_a_single_thing_is_one_item(one: Any) -> None:
    assert len(items_of(one)) == 1


def test_a_path_is_what_its_name_says(tmp_path: Path) -> None:
    for name in ("a.PNG", "b.wav", "c.pdf", "d"):
        (tmp_path / name).write_bytes(name.encode())
    found = items_of([tmp_path / name for name in ("a.PNG", "b.wav", "c.pdf", "d")])
    assert found == [
        {"images": [{"data": b"a.PNG"}]},
        {"audio": {"data": b"b.wav"}},
        {"document": {"data": b"c.pdf", "name": "c.pdf"}},
        {"document": {"data": b"d", "name": "d"}},
    ]


def test_files_in_a_map_are_paths_bytes_or_maps_with_such(tmp_path: Path) -> None:
    file = tmp_path / "x.pdf"
    file.write_bytes(b"pdf")
    assert item_of({"document": file}, "items[0]") == {"document": {"data": b"pdf", "name": "x.pdf"}}
    assert item_of({"document": {"data": file, "format": "pdf"}}, "items[0]") == {
        "document": {"data": b"pdf", "format": "pdf"}
    }
    assert item_of({"audio": b"snd"}, "items[0]") == {"audio": {"data": b"snd"}}
    assert item_of({"images": [b"i"]}, "items[0]") == {"images": [{"data": b"i"}]}


def test_files_may_be_named_by_their_urls() -> None:
    url = "https://files.example.com/a.pdf"
    named = {"document": {"url": url, "name": "a.pdf"}}
    assert item_of(named, "items[0]") == named
    assert item_of({"document": url}, "items[0]") == {"document": {"url": url}}
    assert item_of({"images": [url]}, "items[0]") == {"images": [{"url": url}]}


def test_pictures_keep_their_pixels(picture: Image.Image) -> None:
    for item in (picture, {"images": [picture]}):
        (sent,) = item_of(item, "items[0]")["images"]
        assert pixels(sent["data"]).tolist() == np.asarray(picture).tolist()


def test_a_picture_in_a_mode_that_png_lacks_is_made_rgb(picture: Image.Image) -> None:
    (sent,) = item_of(picture.convert("CMYK"), "items[0]")["images"]
    assert pixels(sent["data"]).shape == (2, 3, 3)


@pytest.mark.parametrize("shape", [(4, 5), (4, 5, 1), (4, 5, 2), (4, 5, 3), (4, 5, 4)])
def test_an_array_of_pixels_is_a_png_of_them(shape: tuple[int, ...]) -> None:
    array = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    (sent,) = item_of({"images": [array]}, "items[0]")["images"]
    assert pixels(sent["data"]).tolist() == array.reshape(shape[:2] if shape[-1:] == (1,) else shape).tolist()


@pytest.mark.parametrize("array", [np.zeros((2, 2), np.float32), np.zeros((2, 2, 5), np.uint8), np.zeros(3, np.uint8)])
def test_an_array_that_is_no_picture_is_refused_by_name(array: Any) -> None:
    with pytest.raises(RequestRefused, match="uint8 of shape") as caught:
        items_of(["a", {"images": [array]}])
    assert caught.value.param == "items[1].images[0]"


@pytest.mark.parametrize(("dtype", "sent"), [(np.float32, "float32"), (np.float64, "float32"), (np.float16, "float16")])
def test_rows_of_floats_are_a_multivector(dtype: Any, sent: str) -> None:
    rows = np.array([[1, 2, 3], [4, 5, 6]], dtype)
    found = item_of({"multivector": rows}, "items[0]")["multivector"]
    assert (found["num_tokens"], found["token_dims"], found["dtype"]) == (2, 3, sent)
    assert np.frombuffer(found["values"], f"<f{2 if sent == 'float16' else 4}").tolist() == [1, 2, 3, 4, 5, 6]


def test_images_of_a_conversation_are_files_too(picture: Image.Image) -> None:
    content = [{"type": "text", "text": "what is it?"}, {"type": "image", "image": picture}]
    found = item_of({"messages": [{"role": "user", "content": content}, {"role": "user", "content": "?"}]}, "items[0]")
    assert found["messages"][0]["content"][0] == content[0]
    assert pixels(found["messages"][0]["content"][1]["image"]["data"]).shape == (2, 3, 3)
    assert found["messages"][1] == {"role": "user", "content": "?"}


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (3, "texts, paths, pictures or maps"),
        ([3], "not int"),
        ([b"bytes"], "Say what it is"),
        ([np.zeros(3)], "Say what it is"),
        ([{"document": "report.pdf"}], r"Path\('report.pdf'\)"),
        ([{"audio": 3}], "not int"),
        ([{"multivector": np.zeros(3)}], r"\(tokens, dims\)"),
    ],
)
def test_what_cannot_be_sent_is_refused_in_words(given: Any, says: str) -> None:
    with pytest.raises(RequestRefused, match=says):
        items_of(given)
