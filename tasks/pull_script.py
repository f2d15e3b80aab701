"""The scripts that move messages inside Valkey in one step each, and the arguments they take.

A message is always in exactly one place: its queue, or `unacked` (what consumers hold, by delivery tag, with a lease in
`unacked_index`). Since a script runs whole or not at all, a consumer that dies at any moment loses nothing. All may run
when the server is at its memory limit: they make room, or keep what is there. Needs Redis 7 or Valkey.

A queue is one list for each tenant and model with messages in it. `keys.tenants` names the tenants and `keys.models`
the models of each. The default tenant is '' here: its lists and their index are those of all messages in versions that
knew of no tenants. A plain list is for what names no model: messages of another publisher, or of a yet earlier version.
What is held is recorded under the queue's own name, and goes back to the list of the tenant and model that its header
names. Tenants share what a pull takes of a queue, whatever they have in it, the one that had no turn for longest first;
and in the same way a tenant's models share its part.
"""

from __future__ import annotations

from collections.abc import Sequence

from tasks import keys
from tasks.plan import PULL_MOST, Plan
from tasks.script_parts import BELL_TOKENS, LISTS, MODELS_MOST, NOW, RING, TAG, TURNS, Command

OWN_BELL_LIFE_S = 60
"""How long a worker's own bell stays rung when nobody hears it."""

SURVEY_MOST = 512
"""Lists of a queue that a survey looks at before it leaves the other tenants to later ones."""

# A tenant in a pull: `open` are the models that may still have something, `models` those that were looked at, `served`
# what was taken of each.
_PARTIES = f"""
local function parties_of(queue, asked, now)
  local parties, blank, known = {{}}, nil, 0
  local there = asked and 1 or redis.call('EXISTS', index_of(queue), queue, tenants_of(queue))
  if there == 0 then return parties, false end
  for _, tenant in ipairs((turns_of(tenants_of(queue), now))) do
    local party = {{tenant = tenant, place = place_of(queue, tenant), served = {{}}, drained = {{}}}}
    parties[#parties + 1], known = party, 1
    if tenant == '' then blank, party.listed = party, true end
  end
  local plain = asked and #asked or there - known
  if plain > 0 and not blank then
    blank = {{tenant = '', place = queue, served = {{}}, drained = {{}}}}
    table.insert(parties, 1, blank)
  end
  if blank then blank.plain = plain end
  return parties, known == 1
end
local function look(party, asked, now)
  local models, place = asked, party.place
  if not asked or party.tenant ~= '' then
    local found = turns_of(index_of(place), now)
    party.known = #found
    if not asked then
      models = found
      if party.tenant == '' and party.plain > (#found > 0 and 1 or 0) then table.insert(models, 1, '') end
    elseif #found < {MODELS_MOST} then
      local has = {{}}
      models = {{}}
      for _, model in ipairs(found) do has[model] = true end
      for _, model in ipairs(asked) do
        if has[model] then models[#models + 1] = model end
      end
    end
  end
  party.models, party.open = models, models
end
"""

PULL = f"""#!lua flags=allow-oom
-- KEYS: unacked, unacked_index, held, cancelled, then queue and bell of each source, then bells to ring.
-- ARGV: most, cap_ms, number of sections; for each section room_ms, jobs, least, own (1 or 0), number of sources; for
-- each source typical_ms, flags (1: record, 2: the models follow, with their number before them).
{TAG}{RING}{NOW}{LISTS}{TURNS}{_PARTIES}
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
    local typical, flags, asked = tonumber(ARGV[a]), tonumber(ARGV[a + 1]), nil
    local record = flags % 2 == 1
    source, a = source + 1, a + 2
    if flags >= 2 then
      asked = {{}}
      for i = 1, tonumber(ARGV[a]) do asked[i] = ARGV[a + i] end
      a = a + 1 + #asked
    end
    local parties, several = parties_of(queue, asked, now)
    local want = 0
    if #parties > 0 and room > 0 and jobs > 0 then
      want = typical > 0 and math.max(1, math.floor(room / typical)) or most
      want = math.min(want, jobs)
    end
    want = math.min(math.max(want, least), most)
    local listed = 0
    local function take(party, ask)
      if not party.models then look(party, asked, now) end
      local wanted = ask
      while wanted > 0 and #party.open > 0 do
        local share, more = math.ceil(wanted / #party.open), {{}}
        for _, model in ipairs(party.open) do
          local some = math.min(share, wanted)
          local got = some > 0 and redis.call('RPOP', list_of(party.place, model), some) or {{}}
          if #got > 0 then
            party.served[model] = (party.served[model] or 0) + #got
            if model ~= '' then listed = listed + #got end
          end
          if #got == some then more[#more + 1] = model else party.drained[model] = true end
          wanted = wanted - #got
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
        party.open = more
      end
      party.took = (party.took or 0) + ask - wanted
      return ask - wanted
    end
    local open = parties
    while want > 0 and #open > 0 do
      local share, more = math.ceil(want / #open), {{}}
      for _, party in ipairs(open) do
        local ask = math.min(share, want)
        local got = ask > 0 and take(party, ask) or 0
        if got == ask then more[#more + 1] = party end
        want = want - got
      end
      open = more
    end
    if listed > 0 then redis.call('LTRIM', tally_of(queue), listed, -1) end
    local left, gone, strangers, blank = false, 0, 0, nil
    for _, party in ipairs(parties) do
      if not party.models and not left then look(party, asked, now) end
      local index, ended, rest = index_of(party.place), 0, not party.models
      for _, model in ipairs(party.models or {{}}) do
        local count = party.served[model] or 0
        if count > 0 or not left then
          if not party.drained[model] and redis.call('EXISTS', list_of(party.place, model)) == 1 then
            left, rest = true, true
            if count > 0 and model ~= '' then redis.call('ZADD', index, 'XX', now, model) end
          elseif model ~= '' then
            ended = ended + redis.call('ZREM', index, model)
          end
        end
      end
      if ended > 0 then
        local others = redis.call('ZCARD', index)
        -- Of more models than one pull looks at, the rest is for the next one.
        if others > 0 and ended + others > {MODELS_MOST} then left = true end
        if others > 0 then rest = true end
      end
      if party.tenant == '' then
        blank = party
        gone = gone + ended
      elseif not rest and (ended > 0 or party.known == 0) then
        strangers = strangers + redis.call('ZREM', tenants_of(queue), party.tenant)
      elseif (party.took or 0) > 0 then
        redis.call('ZADD', tenants_of(queue), 'XX', now, party.tenant)
      end
    end
    if several then
      local others = redis.call('ZCARD', tenants_of(queue)) - (blank and blank.listed and 1 or 0)
      if others > 0 and strangers > 0 and strangers + others > {MODELS_MOST} then left = true end
      -- What is of the default tenant takes turns with the others while there are any.
      if others > 0 and blank and redis.call('EXISTS', index_of(queue), queue) > 0 then
        if (blank.took or 0) > 0 then redis.call('ZADD', tenants_of(queue), now, '') end
      elseif blank and blank.listed then
        redis.call('ZREM', tenants_of(queue), '')
      end
    end
    -- Tokens without messages are what another program left here, by emptying a list of ours.
    if gone + strangers > 0 and redis.call('EXISTS', index_of(queue), tenants_of(queue)) == 0 then
      redis.call('DEL', tally_of(queue))
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
-- What waits, as number of the queue, model, count and most seconds without a turn; and the places of other live ones.
{NOW}{LISTS}{TURNS}
local waiting, places = {{}}, {{}}
for i = 2, #KEYS do
  local queue = KEYS[i]
  local plain = redis.call('LLEN', queue)
  if plain > 0 then
    local at = #waiting
    waiting[at + 1], waiting[at + 2], waiting[at + 3], waiting[at + 4] = i - 1, '', plain, '0'
  end
  local found, counts, ages, lists = {{}}, {{}}, {{}}, 0
  local function add(tenant)
    local place = place_of(queue, tenant)
    local _, scored = turns_of(index_of(place), now)
    for j = 1, #scored, 2 do
      local model, age = scored[j], now - scored[j + 1]
      if not counts[model] then found[#found + 1], counts[model], ages[model] = model, 0, age end
      counts[model] = counts[model] + redis.call('LLEN', list_of(place, model))
      ages[model], lists = math.max(ages[model], age), lists + 1
    end
  end
  add('')
  for _, tenant in ipairs((turns_of(tenants_of(queue), now))) do
    if tenant ~= '' and lists < {SURVEY_MOST} then add(tenant) end
  end
  for _, model in ipairs(found) do
    local at = #waiting
    waiting[at + 1], waiting[at + 2] = i - 1, model
    waiting[at + 3], waiting[at + 4] = counts[model], tostring(ages[model])
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
{NOW}
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


def message_commands(queue: str, model: str, messages: Sequence[bytes], now: float, tenant: str = "") -> list[Command]:
    """Put messages of one tenant and model into a queue; to be sent in one transaction with what else belongs to it."""
    commands: list[Command] = [
        ("LPUSH", keys.messages(queue, model, tenant), *messages),
        ("ZADD", keys.models(queue, tenant), "NX", now, model),
        ("LPUSH", keys.tally(queue), *(["1"] * len(messages))),
    ]
    if tenant:
        commands.append(("ZADD", keys.tenants(queue), "NX", now, tenant))
    return commands


def bell_commands(queue: str) -> list[Command]:
    """Ring a queue's bell."""
    bell = keys.bell(queue)
    return [("LPUSH", bell, "1"), ("LTRIM", bell, 0, BELL_TOKENS - 1)]
