"""Why a document could not be read. Each has a code of its own, and none is worth a second try."""

from __future__ import annotations

from engine.errors import EngineError


class PasswordNeeded(EngineError):
    """The document is locked; send its password in options.password, or an unlocked copy."""

    code = "password_needed"


class Damaged(EngineError):
    """The document is broken and cannot be read; send a sound copy."""

    code = "damaged"


class Empty(EngineError):
    """The document has nothing in it; send one with content."""

    code = "empty"


class UnsupportedFormat(EngineError):
    """The document's format is not read; send PDF, DOCX, PPTX, XLSX, HTML, Markdown, CSV or an image."""

    code = "unsupported_format"


class UnknownEncoding(EngineError):
    """Nothing tells in which encoding the text is; say so, such as format: "text/csv; charset=shift_jis"."""

    code = "unknown_encoding"


class TooLarge(EngineError):
    """The document is over a limit; the message names the limit and what to do."""

    code = "too_large"


class TimedOut(EngineError):
    """The document was not read within its time; send fewer pages, or a simpler file."""

    code = "timed_out"


class ConverterDied(EngineError):
    """The process that read the document died of it; send another form of the file. The message says how it died."""

    code = "converter_died"


class ConversionFailed(EngineError):
    """The converter met an error in this document; the message names the kind of error."""

    code = "conversion_failed"


class WrongPages(EngineError):
    """The pages that were asked for are not in the document; the message says which there are."""

    code = "wrong_pages"


BY_CODE: dict[str, type[EngineError]] = {
    kind.code: kind
    for kind in (
        *(PasswordNeeded, Damaged, Empty, UnsupportedFormat, UnknownEncoding, TooLarge, TimedOut, ConverterDied),
        *(ConversionFailed, WrongPages),
    )
}
