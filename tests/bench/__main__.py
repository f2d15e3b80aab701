"""`python -m tests.bench`: start the stack, run the cases in rounds, print what was measured beside its targets."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import uvloop

from tests.bench import machine, starts
from tests.bench.case import Case, Found, Measure, Pace, Stack, Study
from tests.bench.figures import Reading, rows_of
from tests.bench.plan import CASES, STUDIES
from tests.bench.profiles import Profiler
from tests.bench.report import Report, Section, as_json, as_text

ROOT = Path(__file__).parents[2]
NAMES = (starts.NAME, *(case.name for case in CASES), *(study.name for study in STUDIES))
STACKED = (starts.NAME, *(case.name for case in CASES))


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line asks for."""

    quick: bool
    only: tuple[str, ...]
    rounds: int
    json: bool
    out: Path
    settings: Mapping[str, str]
    profile: str

    def wants(self, name: str) -> bool:
        """Whether a case is to run."""
        return not self.only or name in self.only


def parse(arguments: Sequence[str]) -> Options:
    """The options of a command line. Ends the process with a message on a wrong one."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description="Load against the real embedded stack.")
    parser.add_argument("--quick", action="store_true", help="one short round of everything")
    parser.add_argument("--only", action="append", choices=NAMES, default=[], help="run only this; may be repeated")
    parser.add_argument("--rounds", type=int, default=0, help="rounds to take the median of (default 3, quick 1)")
    parser.add_argument("--json", action="store_true", help="print JSON on stdout and the table on stderr")
    parser.add_argument("--out", type=Path, default=None, help="file for the JSON (default build/bench/<time>.json)")
    parser.add_argument("--set", action="append", default=[], metavar="ROOST_X=Y", help="a setting of the stack")
    parser.add_argument("--profile", choices=STACKED[1:], default="", help="sample this case with py-spy, if installed")
    found = parser.parse_args(arguments)
    for pair in found.set:
        if not pair.startswith("ROOST_") or "=" not in pair:
            parser.error(f"--set takes ROOST_NAME=value, not {pair!r}")
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    return Options(
        quick=found.quick,
        only=tuple(found.only) or ((found.profile,) if found.profile else ()),
        rounds=found.rounds or (1 if found.quick else 3),
        json=found.json,
        out=found.out or ROOT / "build" / "bench" / f"{stamp}.json",
        settings=dict(pair.split("=", 1) for pair in found.set),
        profile=found.profile,
    )


async def run(options: Options) -> Report:
    """Start, measure, stop. A SIGTERM stops all that was started, as Ctrl-C does."""
    task = asyncio.current_task()
    assert task is not None, "a coroutine runs in a task"
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    described = machine.describe(ROOT)
    began = time.perf_counter()
    pace = Pace.of(quick=options.quick)
    chosen = [case for case in CASES if options.wants(case.name)]
    start_rounds: list[list[Reading]] = []
    sections: list[Section] = []
    starts_wanted = options.rounds if options.wants(starts.NAME) else 1 if chosen else 0
    for number in range(starts_wanted):
        readings: list[Reading] = []
        start_rounds.append(readings)
        last = number + 1 == options.rounds or not options.wants(starts.NAME)
        async with starts.folder() as data:
            _say(f"start, round {number + 1}: cold")
            async with starts.running(data, options.settings, readings, "cold") as stack:
                await stack.rows.keep_commit_times()
            _say(f"start, round {number + 1}: warm")
            async with starts.running(data, options.settings, readings, "warm") as stack:
                if last:
                    sections = await measure(stack, chosen, pace, options)
    if options.wants(starts.NAME):
        rows = tuple(rows_of(starts.NAME, start_rounds))
        sections.insert(0, Section(starts.NAME, starts.TITLE, rows, starts.NOTES))
    sections += await asyncio.to_thread(studied, [s for s in STUDIES if options.wants(s.name)], pace, options.rounds)
    return Report(
        machine=described,
        rounds=options.rounds,
        quick=options.quick,
        settings=options.settings,
        sections=tuple(sections),
        load_after=machine.load_average(),
        seconds=time.perf_counter() - began,
    )


async def measure(stack: Stack, cases: Sequence[Case], pace: Pace, options: Options) -> list[Section]:
    """All cases in every round, so that a slow minute of the machine does not fall on one case alone."""
    found: dict[str, list[Found]] = {case.name: [] for case in cases}
    failed: dict[str, str] = {}
    async with AsyncExitStack() as ending:
        opened: dict[str, Measure] = {}
        for number in range(options.rounds):
            for case in cases:
                if case.name in failed:
                    continue
                _say(f"{case.name}, round {number + 1}")
                try:
                    if case.name not in opened:
                        opened[case.name] = await ending.enter_async_context(case.opened(stack, pace))
                    async with Profiler(stack.pid, options.out.parent, case.name == options.profile):
                        found[case.name].append(await opened[case.name]())
                    await stack.rows.settle()
                except asyncio.CancelledError:
                    _say("stopped; what was found so far follows")
                    return _sections(cases, found, failed)
                except Exception as error:  # noqa: BLE001 - one broken case must not hide what the others found
                    failed[case.name] = _reason(error)
                    _say(f"{case.name} FAILED: {failed[case.name]}")
    return _sections(cases, found, failed)


def studied(studies: Sequence[Study], pace: Pace, rounds: int) -> list[Section]:
    """What needs no stack, each study in all its rounds."""
    found: dict[str, list[Found]] = {study.name: [] for study in studies}
    failed: dict[str, str] = {}
    for study in studies:
        for number in range(rounds):
            _say(f"{study.name}, round {number + 1}")
            try:
                found[study.name].append(study.measure(pace, number))
            except Exception as error:  # noqa: BLE001 - one broken study must not hide what the others found
                failed[study.name] = _reason(error)
                _say(f"{study.name} FAILED: {failed[study.name]}")
                break
    return _sections(studies, found, failed)


def _sections(
    cases: Sequence[Case | Study], found: Mapping[str, Sequence[Found]], failed: Mapping[str, str]
) -> list[Section]:
    return [
        Section(
            name=case.name,
            title=case.title,
            rows=tuple(rows_of(case.name, [one.readings for one in found[case.name]])),
            notes=case.notes,
            cpu_us=found[case.name][-1].cpu_us if found[case.name] else {},
            failed="; ".join(
                [
                    *dict.fromkeys(part for one in found[case.name] for part in one.failed),
                    *filter(None, [failed.get(case.name)]),
                ]
            ),
            wide=isinstance(case, Study) and case.wide,
        )
        for case in cases
    ]


def _reason(error: BaseException) -> str:
    """The errors inside a group, each in a line."""
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(dict.fromkeys(_reason(inner) for inner in error.exceptions))
    return f"{type(error).__name__}: {error}"


def _say(line: str) -> None:
    print(f"bench: {line}", file=sys.stderr, flush=True)


def main() -> int:
    """Run and print. The status tells only whether everything could be measured, never how fast it was."""
    options = parse(sys.argv[1:])
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        report = runner.run(run(options))
    body = as_json(report)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_bytes(body)
    if options.json:
        sys.stdout.write(body.decode() + "\n")
    print(as_text(report), file=sys.stderr if options.json else sys.stdout)
    _say(f"written to {options.out}")
    return 1 if any(section.failed for section in report.sections) else 0


if __name__ == "__main__":
    sys.exit(main())
