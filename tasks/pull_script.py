"""The scripts that move messages inside Valkey in one step each, and the arguments they take.

A message is always in exactly one place: its queue, or `unacked` (what consumers hold, by delivery tag, with a lease in
`unacked_index`). Since a script runs whole or not at all, a consumer that dies at any moment loses nothing. All may run
when the server is at its memory limit: they make room, or keep what is there. Needs Redis 7 or Valkey.

A queue is one list for each model with messages in it, `keys.models` names which, and a plain list for what names no
model: messages of another publisher, or of an earlier version. What is held is recorded under the queue's own name, and
goes back to the list of the model that its header names. Models share what a pull takes of a queue, the one that had no
turn for longest first.
"""

from __future__ import annotations

from collections.abc import Sequence

from tasks import keys
from tasks.plan import PULL_MOST, Plan

Command = tuple[str | int | float | bytes, ...]

BELL_TOKENS = 8
"""How many tokens a bell keeps; each wakes one consumer, which rings again if it leaves something."""

MODELS_MOST = 128
"""Models of a queue that one pull looks at, those without a turn for longest; the others have theirs in later pulls."""

OWN_BELL_LIFE_S = 60
"""How long a worker's own bell stays rung when nobody hears it."""

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

_LISTS = f"""
local function list_of(queue, model)
  return model == '' and queue or queue .. ':' .. model
end
local function index_of(queue)
  return '{keys.models("")}' .. queue
end
local function tally_of(queue)
  return queue .. '{keys.tally("")}'
end
"""

_MODEL = r"""
local function model_of(message)
  return string.match(message, '"model": ?"([^"\\]+)"') or ''
end
"""

# The models of a queue that is known to have some, by when each last had a turn. A publisher whose clock is fast must
# not put its models behind all others for as long.
_TURNS = f"""
local function turns_of(index, now)
  local models, scored = {{}}, redis.call('ZRANGE', index, 0, {MODELS_MOST} - 1, 'WITHSCORES')
  for i = 1, #scored, 2 do
    models[#models + 1] = scored[i]
    if tonumber(scored[i + 1]) > now + 5 then redis.call('ZADD', index, now, scored[i]) end
  end
  return models, scored
end
"""

PULL = f"""#!lua flags=allow-oom
-- KEYS: unacked, unacked_index, held, cancelled, then queue and bell of each source, then bells to ring.
-- ARGV: most, cap_ms, number of sections; for each section room_ms, jobs, least, own (1 or 0), number of sources; for
-- each source typical_ms, flags (1: record, 2: the models follow, with their number before them).
{_TAG}{_RING}{_NOW}{_LISTS}{_TURNS}
local most, cap = tonumber(ARGV[1]), tonumber(ARGV[2])
local sifting = redis.call('EXISTS', KEYS[4]) == 1
local out, spent, taken, source, a = {{}}, 0, 0, 0, 4
for _ = 1, tonumber(ARGV[3]) do
  local own = ARGV[a + 3] == '1'
  local room, jobs = ARGV[a] - (own and 0 or spent), ARGV[a + 1] - (own and 0 or taken)
  local least, last = tonumber(ARGV[a + 2]), source + tonumber(ARGV[a + 4])
  a = a + 5
  while source < last do
    local queue, bell = KEYS[5 + 2 * source], KEYS[6 + 2 * source]
    local index, tally = index_of(queue), tally_of(queue)
    local typical, flags, models = tonumber(ARGV[a]), tonumber(ARGV[a + 1]), {{}}
    local record = flags % 2 == 1
    source, a = source + 1, a + 2
    if flags >= 2 then
      for i = 1, tonumber(ARGV[a]) do models[i] = ARGV[a + i] end
      a = a + 1 + #models
    else
      local kinds = redis.call('EXISTS', index, queue)
      if kinds > 0 then models = turns_of(index, now) end
      if kinds > (#models > 0 and 1 or 0) then table.insert(models, 1, '') end
    end
    local want = 0
    if #models > 0 and room > 0 and jobs > 0 then
      want = typical > 0 and math.max(1, math.floor(room / typical)) or most
      want = math.min(want, jobs)
    end
    want = math.min(math.max(want, least), most)
    local open, served, drained = models, {{}}, {{}}
    while want > 0 and #open > 0 do
      local share, more = math.ceil(want / #open), {{}}
      for _, model in ipairs(open) do
        local ask = math.min(share, want)
        local got = ask > 0 and redis.call('RPOP', list_of(queue, model), ask) or {{}}
        if #got > 0 then served[model] = (served[model] or 0) + #got end
        if #got == ask then more[#more + 1] = model else drained[model] = true end
        want = want - #got
        for _, message in ipairs(got) do
          local tag = tag_of(message)
          if sifting and tag and redis.call('ZSCORE', KEYS[4], tag) then
            redis.call('SREM', KEYS[3], tag)
          else
            if record and tag then
              redis.call('HSET', KEYS[1], tag, '[' .. message .. ', "", ' .. cjson.encode(queue) .. ']')
              redis.call('ZADD', KEYS[2], now, tag)
            end
            out[#out + 1] = source
            out[#out + 1] = message
            local cost = math.min(typical, cap)
            if not own then taken, spent = taken + 1, spent + cost end
            most, room, jobs, least = most - 1, room - cost, jobs - 1, least - 1
          end
        end
      end
      open = more
    end
    local left, gone = false, 0
    for _, model in ipairs(models) do
      local count = served[model] or 0
      if count > 0 and model ~= '' then redis.call('LTRIM', tally, count, -1) end
      if count > 0 or not left then
        if not drained[model] and redis.call('EXISTS', list_of(queue, model)) == 1 then
          left = true
          if count > 0 and model ~= '' then redis.call('ZADD', index, 'XX', now, model) end
        elseif model ~= '' then
          gone = gone + redis.call('ZREM', index, model)
        end
      end
    end
    if gone > 0 then
      local others = redis.call('ZCARD', index)
      -- Of more models than one pull looks at, the rest is for the next one.
      if others > 0 and gone + others > {MODELS_MOST} then left = true end
      -- Tokens without messages are what another program left here, by emptying a list of ours.
      if others == 0 then redis.call('DEL', tally) end
    end
    if left then ring(bell) end
  end
end
for i = 5 + 2 * source, #KEYS do
  redis.call('LPUSH', KEYS[i], '1')
  redis.call('LTRIM', KEYS[i], 0, 0)
  redis.call('EXPIRE', KEYS[i], {OWN_BELL_LIFE_S})
end
return out
"""

SURVEY = f"""#!lua flags=allow-oom
-- KEYS: places, queues. ARGV: this worker, whose own place is left out.
-- What waits, as number of the queue, model, count and seconds without a turn, and the places of other live workers.
{_NOW}{_LISTS}{_TURNS}
local waiting, places = {{}}, {{}}
for i = 2, #KEYS do
  local queue = KEYS[i]
  local plain = redis.call('LLEN', queue)
  if plain > 0 then
    local at = #waiting
    waiting[at + 1], waiting[at + 2], waiting[at + 3], waiting[at + 4] = i - 1, '', plain, '0'
  end
  local _, scored = turns_of(index_of(queue), now)
  local at = #waiting
  for j = 1, #scored, 2 do
    local count = redis.call('LLEN', list_of(queue, scored[j]))
    waiting[at + 1], waiting[at + 2] = i - 1, scored[j]
    waiting[at + 3], waiting[at + 4] = count, tostring(now - scored[j + 1])
    at = at + 4
  end
end
local all = redis.call('HGETALL', KEYS[1])
for i = 1, #all, 2 do
  local until_s, said = string.match(all[i + 1], '^([%d.]+) (.*)$')
  if (tonumber(until_s) or 0) < now then
    redis.call('HDEL', KEYS[1], all[i])
  elseif all[i] ~= ARGV[1] then
    places[#places + 1] = all[i]
    places[#places + 1] = said
  end
end
return {{waiting, places}}
"""

PLACE = f"""#!lua flags=allow-oom
-- KEYS: places. ARGV: worker, lease_s, what it says of itself ('': it is gone). How many workers besides it are alive.
{_NOW}
if ARGV[3] == '' then
  redis.call('HDEL', KEYS[1], ARGV[1])
else
  redis.call('HSET', KEYS[1], ARGV[1], string.format('%.3f', now + ARGV[2]) .. ' ' .. ARGV[3])
end
local others, all = 0, redis.call('HGETALL', KEYS[1])
for i = 1, #all, 2 do
  local until_s = tonumber(string.match(all[i + 1], '^[%d.]+') or '')
  if all[i] ~= ARGV[1] and until_s and until_s >= now then others = others + 1 end
end
return others
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
-- KEYS: unacked, unacked_index. ARGV: prefix of bells and lease_s (0: whatever the lease), then tag and payload ('': as
-- it was).
-- Returns the tags it cannot read: another transport put them there.
{_RING}{_NOW}{_LISTS}{_MODEL}
local strange = {{}}
local prefix, lease = ARGV[1], tonumber(ARGV[2])
for i = 3, #ARGV, 2 do
  local tag, payload = ARGV[i], ARGV[i + 1]
  local value = redis.call('HGET', KEYS[1], tag)
  local score = tonumber(redis.call('ZSCORE', KEYS[2], tag) or 0)
  if value and (lease == 0 or score <= now - lease) then
    local queue = string.match(string.sub(value, -300), ', "", "([^"\\\\]+)"%]$')
    if queue then
      if payload == '' then payload = string.sub(value, 2, -(#queue + 10)) end
      redis.call('HDEL', KEYS[1], tag)
      redis.call('ZREM', KEYS[2], tag)
      local model = model_of(payload)
      redis.call('RPUSH', list_of(queue, model), payload)
      if model ~= '' then
        redis.call('ZADD', index_of(queue), 'NX', now, model)
        redis.call('LPUSH', tally_of(queue), '1')
      end
      ring(prefix .. queue)
    else
      strange[#strange + 1] = tag
    end
  end
end
return strange
"""

PURGE = f"""#!lua flags=allow-oom
-- KEYS: queue, held. Empties the queue; returns how many messages it had.
{_TAG}{_LISTS}
local count, models = 0, redis.call('ZRANGE', index_of(KEYS[1]), 0, -1)
models[#models + 1] = ''
for _, model in ipairs(models) do
  local list = list_of(KEYS[1], model)
  local got = redis.call('RPOP', list, 512)
  while got do
    for _, message in ipairs(got) do
      local tag = tag_of(message)
      if tag then redis.call('SREM', KEYS[2], tag) end
    end
    count = count + #got
    got = redis.call('RPOP', list, 512)
  end
end
redis.call('DEL', index_of(KEYS[1]), tally_of(KEYS[1]))
return count
"""


def pull_keys(plan: Plan, unacked: str, unacked_index: str, ring: Sequence[str] = ()) -> list[str]:
    """The KEYS of PULL. `ring` are bells to ring besides those of queues in which something is left."""
    names = [unacked, unacked_index, keys.HELD, keys.CANCELLED]
    for source in plan.sources:
        names += (source.queue, keys.bell(source.queue))
    return [*names, *ring]


def pull_arguments(plan: Plan, most: int = PULL_MOST) -> list[str | int | float]:
    """The ARGV of PULL."""
    values: list[str | int | float] = [min(most, plan.most), plan.cap_ms, len(plan.sections)]
    for section in plan.sections:
        values += (section.room_ms, section.jobs, section.least, int(section.own), len(section.sources))
        for source in section.sources:
            values += (source.typical_ms, int(source.record) + 2 * (source.models is not None))
            if source.models is not None:
                values += (len(source.models), *source.models)
    return values


def survey_keys(queues: Sequence[str]) -> list[str]:
    """The KEYS of SURVEY."""
    return [keys.PLACES, *queues]


def message_commands(queue: str, model: str, messages: Sequence[bytes], now: float) -> list[Command]:
    """Put messages of one model into a queue; to be sent in one transaction with whatever else belongs to it."""
    return [
        ("LPUSH", keys.messages(queue, model), *messages),
        ("ZADD", keys.models(queue), "NX", now, model),
        ("LPUSH", keys.tally(queue), *(["1"] * len(messages))),
    ]


def bell_commands(queue: str) -> list[Command]:
    """Ring a queue's bell."""
    bell = keys.bell(queue)
    return [("LPUSH", bell, "1"), ("LTRIM", bell, 0, BELL_TOKENS - 1)]


def restore_arguments(tags: Sequence[str], payloads: Sequence[str] | None = None, lease_s: float = 0.0) -> list[str]:
    """The ARGV of RESTORE. Tags go to the near end of their lists one by one, so name the newest first."""
    values = [keys.bell(""), str(lease_s)]
    for number, tag in enumerate(tags):
        values += (tag, payloads[number] if payloads is not None else "")
    return values
