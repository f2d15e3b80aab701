"""The scripts that move messages inside Valkey in one step each, and the arguments they take.

A message is always in exactly one place: its queue, or `unacked` (what consumers hold, by delivery tag, with a lease in
`unacked_index`). Since a script runs whole or not at all, a consumer that dies at any moment loses nothing. All may run
when the server is at its memory limit: they make room, or keep what is there. Needs Redis 7 or Valkey.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tasks import keys

BELL_TOKENS = 8
"""How many tokens a bell keeps; each wakes one consumer, which rings again if it leaves something."""

PULL_MOST = 256
"""Messages in one pull, so that no script holds the server for long."""

_TAG = r"""
local function tag_of(message)
  return string.match(message, '"delivery_tag": ?"([^"\\]+)"')
end
"""

_RING = f"""
local function ring(bell)
  redis.call('LPUSH', bell, '1')
  redis.call('LTRIM', bell, 0, {BELL_TOKENS - 1})
end
"""

_NOW = """
local time = redis.call('TIME')
local now = time[1] + time[2] / 1000000
"""

PULL = f"""#!lua flags=allow-oom
-- KEYS: unacked, unacked_index, held, cancelled, then list and bell of each queue.
-- ARGV: most, cap_ms, number of sections; for each section room_ms, jobs, least, number of queues; for each queue
-- typical_ms, record.
{_TAG}{_RING}{_NOW}
local most, cap = tonumber(ARGV[1]), tonumber(ARGV[2])
local sifting = redis.call('EXISTS', KEYS[4]) == 1
local out, spent, taken, queue, a = {{}}, 0, 0, 0, 4
for _ = 1, tonumber(ARGV[3]) do
  local room, jobs, least = ARGV[a] - spent, ARGV[a + 1] - taken, tonumber(ARGV[a + 2])
  local last = queue + tonumber(ARGV[a + 3])
  a = a + 4
  while queue < last do
    local list, bell = KEYS[5 + 2 * queue], KEYS[6 + 2 * queue]
    local typical, record = tonumber(ARGV[a]), ARGV[a + 1] == '1'
    queue, a = queue + 1, a + 2
    local want = 0
    if room > 0 and jobs > 0 then
      want = typical > 0 and math.max(1, math.floor(room / typical)) or most
      want = math.min(want, jobs)
    end
    want = math.min(math.max(want, least), most)
    local got = want > 0 and redis.call('RPOP', list, want) or {{}}
    for _, message in ipairs(got) do
      local tag = tag_of(message)
      if sifting and tag and redis.call('ZSCORE', KEYS[4], tag) then
        redis.call('SREM', KEYS[3], tag)
      else
        if record and tag then
          redis.call('HSET', KEYS[1], tag, '[' .. message .. ', "", ' .. cjson.encode(list) .. ']')
          redis.call('ZADD', KEYS[2], now, tag)
        end
        out[#out + 1] = queue
        out[#out + 1] = message
        local cost = math.min(typical, cap)
        most, taken, spent = most - 1, taken + 1, spent + cost
        room, jobs, least = room - cost, jobs - 1, least - 1
      end
    end
    if redis.call('LLEN', list) > 0 then ring(bell) end
  end
end
return out
"""

ACK = """#!lua flags=allow-oom
-- KEYS: unacked, unacked_index, held. ARGV: tags.
for _, tag in ipairs(ARGV) do
  redis.call('HDEL', KEYS[1], tag)
  redis.call('ZREM', KEYS[2], tag)
  redis.call('SREM', KEYS[3], tag)
end
"""

RENEW = f"""#!lua flags=allow-oom
-- KEYS: unacked_index. ARGV: tags, of which only those still there are renewed.
{_NOW}
for _, tag in ipairs(ARGV) do redis.call('ZADD', KEYS[1], 'XX', now, tag) end
"""

OVERDUE = f"""#!lua flags=allow-oom
-- KEYS: unacked, unacked_index. ARGV: lease_s, most. Tags and values whose lease has ended, the newest first.
{_NOW}
local found = {{}}
local tags = redis.call('ZRANGE', KEYS[2], '-inf', now - ARGV[1], 'BYSCORE', 'LIMIT', 0, tonumber(ARGV[2]))
for i = #tags, 1, -1 do
  local value = redis.call('HGET', KEYS[1], tags[i])
  if value then
    found[#found + 1] = tags[i]
    found[#found + 1] = value
  else
    redis.call('ZREM', KEYS[2], tags[i])
  end
end
return found
"""

RESTORE = f"""#!lua flags=allow-oom
-- KEYS: unacked, unacked_index. ARGV: prefix and lease_s (0: whatever the lease), then tag and payload ('': as it was).
-- Returns the tags it cannot read: another transport put them there.
{_RING}{_NOW}
local strange = {{}}
local prefix, lease = ARGV[1], tonumber(ARGV[2])
for i = 3, #ARGV, 2 do
  local tag, payload = ARGV[i], ARGV[i + 1]
  local value = redis.call('HGET', KEYS[1], tag)
  local score = tonumber(redis.call('ZSCORE', KEYS[2], tag) or 0)
  if value and (lease == 0 or score <= now - lease) then
    local list = string.match(string.sub(value, -300), ', "", "([^"\\\\]+)"%]$')
    if list then
      if payload == '' then payload = string.sub(value, 2, -(#list + 10)) end
      redis.call('HDEL', KEYS[1], tag)
      redis.call('ZREM', KEYS[2], tag)
      redis.call('RPUSH', list, payload)
      ring(prefix .. list)
    else
      strange[#strange + 1] = tag
    end
  end
end
return strange
"""

PURGE = f"""#!lua flags=allow-oom
-- KEYS: list, held. Empties the list; returns how many messages it had.
{_TAG}
local count = 0
while true do
  local got = redis.call('RPOP', KEYS[1], 512)
  if not got then return count end
  for _, message in ipairs(got) do
    local tag = tag_of(message)
    if tag then redis.call('SREM', KEYS[2], tag) end
  end
  count = count + #got
end
"""


@dataclass(frozen=True, slots=True)
class Source:
    """A queue to pull from. `typical_ms` is what one of its messages counts; with 0 only the number of jobs does."""

    queue: str
    typical_ms: float = 0.0
    record: bool = True


@dataclass(frozen=True, slots=True)
class Section:
    """Queues that share a room. What earlier sections of the same pull take is taken from this one's room too.

    While there is any room, each source may give at least one message. `least` messages are taken even without room.
    """

    sources: tuple[Source, ...]
    room_ms: float
    jobs: int
    least: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """What one pull may take. A single message counts at most `cap_ms` against the room."""

    sections: tuple[Section, ...]
    cap_ms: float

    @property
    def sources(self) -> list[Source]:
        """All queues of the pull, in its order."""
        return [source for section in self.sections for source in section.sources]


def pull_keys(plan: Plan, unacked: str, unacked_index: str) -> list[str]:
    """The KEYS of PULL."""
    names = [unacked, unacked_index, keys.HELD, keys.CANCELLED]
    for source in plan.sources:
        names += (source.queue, keys.bell(source.queue))
    return names


def pull_arguments(plan: Plan, most: int = PULL_MOST) -> list[str | int | float]:
    """The ARGV of PULL."""
    values: list[str | int | float] = [most, plan.cap_ms, len(plan.sections)]
    for section in plan.sections:
        values += (section.room_ms, section.jobs, section.least, len(section.sources))
        for source in section.sources:
            values += (source.typical_ms, int(source.record))
    return values


def bell_commands(queue: str) -> list[tuple[str | int, ...]]:
    """Ring a queue's bell."""
    bell = keys.bell(queue)
    return [("LPUSH", bell, "1"), ("LTRIM", bell, 0, BELL_TOKENS - 1)]


def restore_arguments(tags: Sequence[str], payloads: Sequence[str] | None = None, lease_s: float = 0.0) -> list[str]:
    """The ARGV of RESTORE. Tags go to the near end of their queues one by one, so name the newest first."""
    values = [keys.bell(""), str(lease_s)]
    for number, tag in enumerate(tags):
        values += (tag, payloads[number] if payloads is not None else "")
    return values
