"""A channel of our transport: it waits for bells and takes many messages at once, by a plan."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Sequence
from queue import Empty
from typing import Any, ClassVar, Protocol

import orjson
from kombu.transport import redis
from kombu.utils.encoding import bytes_to_str
from kombu.utils.json import loads
from redis import Redis

from tasks import keys
from tasks.held_scripts import PURGE
from tasks.plan import PULL_MOST, Plan, Section, Source
from tasks.pull_script import PULL, SURVEY, bell_commands, pull_arguments, pull_keys, survey_keys
from tasks.qos import QoS
from tasks.survey import Choice, Survey, read_survey

log = logging.getLogger(__name__)

_BELL_LIFE_S = 3600


class Pulls(Protocol):
    """What a worker takes, and when. Without one a channel always listens, and takes what its prefetch count allows."""

    @property
    def listening(self) -> bool:
        """Whether a bell should wake us."""
        ...

    @property
    def wanting(self) -> bool:
        """Whether to look at the queues now, bell or no bell."""
        ...

    @property
    def doubting(self) -> bool:
        """Whether to look again although we listen: what was left to others may now be ours."""
        ...

    @property
    def name(self) -> str:
        """Whose own bell to listen to."""
        ...

    @property
    def choosing(self) -> bool:
        """Whether a pull is chosen by what waits, for which it takes a survey first."""
        ...

    def plan(self, queues: Sequence[str], turn: int) -> Plan:
        """What to take from these queues now; one left out is not even listened to. `turn` rises with each pull."""
        ...

    def choose(self, plan: Plan, survey: Survey) -> Choice:
        """What of the plan to take, now that it is known what waits and where its models are."""
        ...

    def pulled(self) -> None:
        """All that a pull took has been delivered."""
        ...


class Channel(redis.Channel):  # type: ignore[misc]
    """A channel that waits for bells. A list for each queue and model: finer order is the scheduler's business."""

    QoS = QoS
    priority_steps: ClassVar[list[int]] = [0]
    _in_poll: Any
    _brpop_sent_at: float | None
    from_transport_options = tuple(
        name for name in redis.Channel.from_transport_options if name not in {"priority_steps", "global_keyprefix"}
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.pulls: Pulls | None = None
        self.paused = False
        self.recorded = False
        self.opened = time.monotonic()
        self.silent = 0
        self._caller: Redis | None = None
        self._scripts: dict[str, Any] = {}
        self._unrecorded: set[str] = set()
        self._listening: set[str] = set()
        self._turn = 0
        super().__init__(*args, **kwargs)

    @property
    def open(self) -> bool:
        """Whether this channel waits for messages now."""
        return not self.paused and (self.pulls is None or self.pulls.listening)

    @property
    def caller(self) -> Redis:
        """The client for everything but the bells."""
        if self._caller is None:
            self._caller = self._create_client()
        return self._caller

    def script(self, text: str, names: Sequence[str], arguments: Sequence[Any]) -> Any:
        """Run one of our scripts."""
        if text not in self._scripts:
            self._scripts[text] = self.caller.register_script(text)
        return self._scripts[text](keys=names, args=arguments)

    def pull(self) -> int:
        """Take what the plan allows and deliver it; how many that was."""
        choice = self._choice(self._plan())
        plan = choice.plan
        if not plan.sections and not choice.ring:
            return 0
        names = [source.queue for source in plan.sources]
        places = pull_keys(plan, self.unacked_key, self.unacked_index_key, choice.ring)
        taken = self.script(PULL, places, pull_arguments(plan))
        self._turn += 1
        for number, raw in zip(taken[::2], taken[1::2], strict=True):
            self._hand_over(names[number - 1], raw)
        if self.pulls is not None:
            self.pulls.pulled()
        return len(taken) // 2

    def reconsider(self) -> None:
        """Look at the queues, if that is wanted and no bell will tell us of what is there.

        While we listen, all bells are heard that were rung meanwhile, but for those of queues that had no room before.
        """
        if self.paused or self.pulls is None or not self.pulls.wanting:
            return
        if self.pulls.listening and not self.pulls.doubting:
            heard = not self._in_poll or self._listening.issuperset(source.queue for source in self._plan().sources)
            if heard:
                return
        self.pull()

    def basic_consume(self, queue: str, *args: Any, **kwargs: Any) -> Any:
        """Consume from a queue; what needs no ack is not recorded."""
        if kwargs.get("no_ack"):
            self._unrecorded.add(queue)
        return super().basic_consume(queue, *args, **kwargs)

    def close(self) -> None:
        """Send the last acks and leave at once. A token that was on its way to us is lost, so the bells are rung."""
        waiting, self._in_poll = self._in_poll, None
        try:
            if self._qos is not None:
                self._qos.flush()
            if waiting:
                waiting.disconnect()
                self._ring(self._listening)
        except self.connection_errors as error:
            log.debug("acks and bells left at close: %s", type(error).__name__)
        super().close()

    def _brpop_start(self, timeout: float | None = None) -> None:
        self._listening = {source.queue for source in self._plan().sources}
        if not self._listening:
            return
        connection = self.client.connection
        self._in_poll = connection
        self._brpop_sent_at = time.monotonic()
        bells = [keys.bell(queue) for queue in self._listening]
        if self.pulls is not None:
            bells.append(keys.own_bell(self.pulls.name))
        connection.send_command("BRPOP", *bells, timeout or self.brpop_timeout)

    def _brpop_read(self, **options: Any) -> bool:
        try:
            try:
                self.client.parse_response(self.client.connection, "BRPOP", **options)
            except self.connection_errors:
                self.client.connection.disconnect()
                raise
        finally:
            self._in_poll = None
            self._flush_brpop_reauth()
        self.silent = 0
        if not self.pull():
            raise Empty
        return True

    def _put(self, queue: str, message: Any, **kwargs: Any) -> None:
        batch = kwargs.get("_publish_batch")
        super()._put(queue, message, **kwargs)
        if batch is None:
            self._ring([queue])
            return
        for name, *arguments in bell_commands(queue):
            batch.add(str(name).lower(), *arguments)

    def _size(self, queue: str) -> int:
        return int(self.caller.llen(queue)) + int(self.caller.llen(keys.tally(queue)))

    def _has_queue(self, queue: str, **kwargs: Any) -> bool:
        return bool(self.caller.exists(queue, keys.tally(queue)))

    def _purge(self, queue: str) -> int:
        return int(self.script(PURGE, [queue, keys.HELD], []))

    def _delete(self, queue: str, *args: Any, **kwargs: Any) -> None:
        self._purge(queue)
        super()._delete(queue, *args, **kwargs)

    def _ring(self, queues: Iterable[str]) -> None:
        # A bell of a queue that is not ours alone must not stay for ever: reply queues come and go with their clients.
        with self.caller.pipeline(transaction=False) as pipe:
            for queue in queues:
                for command in bell_commands(queue):
                    pipe.execute_command(*command)  # type: ignore[no-untyped-call]
                pipe.expire(keys.bell(queue), _BELL_LIFE_S)
            pipe.execute()

    def _plan(self) -> Plan:
        queues = self.active_queues
        if self.pulls is not None:
            return self.pulls.plan(queues, self._turn)
        credit = self.qos.can_consume_max_estimate()
        turn = self._turn % len(queues) if queues else 0
        sources = tuple(Source(name, record=name not in self._unrecorded) for name in queues[turn:] + queues[:turn])
        jobs = PULL_MOST if credit is None else credit
        return Plan((Section(sources, room_ms=1.0, jobs=jobs),) if sources else (), cap_ms=0.0)

    def _choice(self, plan: Plan) -> Choice:
        if self.pulls is None or not self.pulls.choosing or not plan.sections:
            return Choice(plan)
        queues = list(dict.fromkeys(source.queue for source in plan.sources))
        waiting, places = self.script(SURVEY, survey_keys(queues), [self.pulls.name])
        return self.pulls.choose(plan, read_survey(queues, waiting, places))

    def _hand_over(self, queue: str, raw: bytes) -> None:
        try:
            # kombu's own reader knows values that JSON has not, and takes ten times as long.
            payload = loads(bytes_to_str(raw)) if b'"__type__"' in raw else orjson.loads(raw)
            tag = payload["properties"]["delivery_tag"]
        except (ValueError, KeyError, TypeError) as error:
            log.critical("dropped a message of %s that cannot be read: %s", queue, type(error).__name__)
            return
        self.recorded = bool(tag)
        try:
            self.connection._deliver(payload, queue)
        finally:
            self.recorded = False
