"""Run-time options of each verb, as a caller may send them. Unknown names are refused with the nearest valid one."""

from catalog.options.encode import EncodeOptions, OutputDtype, OutputType, side_prompt
from catalog.options.extract import ExtractOptions
from catalog.options.generate import GenerateOptions, Grammar
from catalog.options.parse import check_names, option_names, parse_options, run_defaults
from catalog.options.score import ScoreOptions
from catalog.options.words import Word

__all__ = [
    "EncodeOptions",
    "ExtractOptions",
    "GenerateOptions",
    "Grammar",
    "OutputDtype",
    "OutputType",
    "ScoreOptions",
    "Word",
    "check_names",
    "option_names",
    "parse_options",
    "run_defaults",
    "side_prompt",
]
