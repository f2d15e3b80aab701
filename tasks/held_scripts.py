"""The scripts for messages that consumers hold: their acks and leases, their way back, and the purge of a queue.

See `tasks.pull_script` for where messages lie.
"""

from __future__ import annotations

from collections.abc import Sequence

from tasks import keys
from tasks.script_parts import HEADERS, LISTS, NOW, RING, TAG

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
{NOW}
for _, tag in ipairs(ARGV) do redis.call('ZADD', KEYS[1], 'XX', now, tag) end
"""

OVERDUE = f"""#!lua flags=allow-oom
-- KEYS: unacked, unacked_index. ARGV: lease_s, most. Tags and values whose lease has ended, the newest first.
{NOW}
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
{RING}{NOW}{LISTS}{HEADERS}
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
      local tenant = model == '' and '' or tenant_of(payload)
      local place = place_of(queue, tenant)
      redis.call('RPUSH', list_of(place, model), payload)
      if model ~= '' then
        redis.call('ZADD', index_of(place), 'NX', now, model)
        redis.call('LPUSH', tally_of(queue), '1')
      end
      if tenant ~= '' then redis.call('ZADD', tenants_of(queue), 'NX', now, tenant) end
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
{TAG}{LISTS}
local count, tenants = 0, redis.call('ZRANGE', tenants_of(KEYS[1]), 0, -1)
tenants[#tenants + 1] = ''
for _, tenant in ipairs(tenants) do
  local place = place_of(KEYS[1], tenant)
  local models = redis.call('ZRANGE', index_of(place), 0, -1)
  if tenant == '' then models[#models + 1] = '' end
  for _, model in ipairs(models) do
    local list = list_of(place, model)
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
  redis.call('DEL', index_of(place))
end
redis.call('DEL', tenants_of(KEYS[1]), tally_of(KEYS[1]))
return count
"""


def restore_arguments(tags: Sequence[str], payloads: Sequence[str] | None = None, lease_s: float = 0.0) -> list[str]:
    """The ARGV of RESTORE. Tags go to the near end of their lists one by one, so name the newest first."""
    values = [keys.bell(""), str(lease_s)]
    for number, tag in enumerate(tags):
        values += (tag, payloads[number] if payloads is not None else "")
    return values
