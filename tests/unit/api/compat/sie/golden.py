"""Bodies as `sie-sdk` 0.10.1 sent them to a socket, in hex: the bytes, and what was called. None was made by us."""

from __future__ import annotations

ENCODE = bytes.fromhex("81a56974656d739181a474657874a548656c6c6f")
"""encode("BAAI/bge-m3", {"text": "Hello"})"""

ENCODE_PARAMS = bytes.fromhex(
    "82a56974656d739282a26964a161a474657874a17882a26964a162a474657874a179a6706172616d7384ac6f75747075745f747970657393"
    "a564656e7365a6737061727365ab6d756c7469766563746f72ab696e737472756374696f6ea4696e7374ac6f75747075745f6474797065a4"
    "696e7438a76f7074696f6e7382a96e6f726d616c697a65c3a869735f7175657279c3"
)
"""encode("BAAI/bge-m3:dense", [{"id": "a", "text": "x"}, {"id": "b", "text": "y"}], instruction="inst",
output_types=["dense", "sparse", "multivector"], output_dtype="int8", options={"normalize": True}, is_query=True)"""

ENCODE_VECTORS = bytes.fromhex(
    "81a56974656d739182ab6d756c7469766563746f7285c4026e64c3c40474797065a33c6634c4046b696e64c400c4057368617065920202c4"
    "0464617461c4100000803f000000400000404000008040a86d6574616461746181a16b01"
)
"""encode("m", {"multivector": np.array([[1, 2], [3, 4]], "<f4"), "metadata": {"k": 1}})"""

ENCODE_IMAGE = bytes.fromhex(
    "81a56974656d739181a6696d616765739182a464617461c44689504e470d0a1a0a0000000d49484452000000010000000108060000001f15"
    "c4890000000d49444154789c6360f8cf500f0003860180342fc52b0000000049454e44ae426082a6666f726d6174a3706e67"
)
"""encode("openai/clip-vit-base-patch32", {"images": [png]})"""

SCORE = bytes.fromhex(
    "84a5717565727982a26964a171a474657874a2713fa56974656d739282a26964a131a474657874a16181a474657874a162ab696e73747275"
    "6374696f6ea169a76f7074696f6e7381a770726f66696c65a764656661756c74"
)
"""score("BAAI/bge-reranker-v2-m3", {"id": "q", "text": "q?"}, [{"id": "1", "text": "a"}, {"text": "b"}],
instruction="i", options={"profile": "default"})"""

EXTRACT_DOCUMENT = bytes.fromhex(
    "82a56974656d739182a26964a164a8646f63756d656e7482a464617461c405255044462da6666f726d6174a3706466a6706172616d7381a7"
    "6f7074696f6e7381a770726f66696c65a764656661756c74"
)
"""extract("docling", {"id": "d", "document": {"data": b"%PDF-", "format": "pdf"}}, options={"profile": "default"})"""

EXTRACT_SCHEMA = bytes.fromhex(
    "82a56974656d739181a474657874a54170706c65a6706172616d7383a66c6162656c7391a36f7267ad6f75747075745f736368656d6181a4"
    "74797065a66f626a656374ab696e737472756374696f6ea178"
)
"""extract("fastino/gliner2-large-v1", {"text": "Apple"}, labels=["org"], output_schema={"type": "object"},
instruction="x")"""

EXTRACT_AUDIO = bytes.fromhex(
    "81a56974656d739181a5617564696f83a464617461c40452494646a6666f726d6174a3776176ab73616d706c655f72617465cd3e80"
)
"""extract("openai/whisper-large-v3-turbo", {"audio": {"data": b"RIFF", "format": "wav", "sample_rate": 16000}})"""

EXTRACT_NUMBER = bytes.fromhex(
    "82a56974656d739181a474657874a174a6706172616d7381a76f7074696f6e7381a97468726573686f6c6483c4026e64c2c40474797065a3"
    "3c6634c40464617461c4040000003f"
)
"""extract("m", {"text": "t"}, options={"threshold": np.float32(0.5)})"""

GENERATE = (
    b'{"prompt": "hi", "max_new_tokens": 10, "images": [{"data": "iVBORw0KGgo=", "format": "png"}], "stop": ["x"], '
    b'"temperature": 0, "top_p": 1, "options": {"profile": "no-spec"}, "grammar": {"json_schema": {"type": "object"}, '
    b'"strict": true}, "seed": 1, "routing_key": "rk"}'
)
"""generate("Qwen/Qwen3.5-4B:no-spec", …), of which the image is cut off after its signature"""

STREAM = b'{"prompt": "hi", "max_new_tokens": 10, "stream": true, "logprobs": true, "top_logprobs": 2}'
"""stream_generate("Qwen/Qwen3.5-4B", "hi", max_new_tokens=10, logprobs=True, top_logprobs=2)"""

ARRAY = bytes.fromhex(
    "85c4026e64c3c40474797065a33c6634c4046b696e64c400c40573686170659102c40464617461c4080000803f00000040"
)
"""An array [1, 2] of float32 as the peer's server writes it."""
