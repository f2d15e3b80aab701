"""What the scripts for Valkey are made of: pieces of Lua, and how many names one of them looks at."""

from __future__ import annotations

from tasks import keys

Command = tuple[str | int | float | bytes, ...]

BELL_TOKENS = 8
"""How many tokens a bell keeps; each wakes one consumer, which rings again if it leaves something."""

MODELS_MOST = 128
"""Tenants of a queue that one pull looks at, and models of each: those without a turn for longest. The others have
theirs in later pulls."""

TAG = r"""
local function tag_of(message)
  return string.match(message, '"delivery_tag": ?"([^"\\]+)"')
end
"""

RING = f"""
local function ring(bell)
  redis.call('LPUSH', bell, '1')
  redis.call('LTRIM', bell, 0, {BELL_TOKENS - 1})
end
"""

NOW = """
local time = redis.call('TIME')
local now = time[1] + time[2] / 1000000
"""

LISTS = f"""
local function place_of(queue, tenant)
  return tenant == '' and queue or queue .. '@' .. tenant
end
local function list_of(place, model)
  return model == '' and place or place .. ':' .. model
end
local function index_of(place)
  return '{keys.models("")}' .. place
end
local function tenants_of(queue)
  return '{keys.tenants("")}' .. queue
end
local function tally_of(queue)
  return queue .. '{keys.tally("")}'
end
"""

HEADERS = r"""
local function model_of(message)
  return string.match(message, '"model": ?"([^"\\]+)"') or ''
end
local function tenant_of(message)
  return string.match(message, '"tenant": ?"([^"\\]+)"') or ''
end
"""

# The models of a tenant, or the tenants of a queue, by when each last had a turn. A publisher whose clock is fast must
# not put what it sends behind all others for as long.
TURNS = f"""
local function turns_of(index, now)
  local names, scored = {{}}, redis.call('ZRANGE', index, 0, {MODELS_MOST} - 1, 'WITHSCORES')
  for i = 1, #scored, 2 do
    names[#names + 1] = scored[i]
    if tonumber(scored[i + 1]) > now + 5 then redis.call('ZADD', index, 'XX', now, scored[i]) end
  end
  return names, scored
end
"""
