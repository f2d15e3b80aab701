"""Counting a tenant's jobs in Valkey: how fast they come, and how many are open. One step, right across processes.

What is open is a set of ids for each tenant that has limits. Whoever ends a job takes it out; what a crash left in is
taken out by the sweeper, which asks the rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from tasks import keys
from tasks.script_parts import NOW, Command
from tasks.tenant_limits import TenantLimits

ADMIT = f"""#!lua flags=allow-oom
-- KEYS: rate, open. ARGV: jobs a second (0: no limit), burst, most open (0: no limit), the job's id, and what part of
-- burst and open jobs it leaves to others.
-- 'ok'; 'rate' and the seconds until a job may come; or 'open'.
{NOW}
local rate, burst, most = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local left = tonumber(ARGV[5])
local jobs, least = burst, 1 + math.floor(burst * left)
if rate > 0 then
  local had, at = unpack(redis.call('HMGET', KEYS[1], 'jobs', 'at'))
  if had then jobs = math.min(burst, had + math.max(0, now - at) * rate) end
  if jobs < least then return {{'rate', tostring((least - jobs) / rate)}} end
end
if most > 0 then
  if redis.call('ZCARD', KEYS[2]) >= most * (1 - left) then return {{'open'}} end
  redis.call('ZADD', KEYS[2], now, ARGV[4])
end
if rate > 0 then
  redis.call('HSET', KEYS[1], 'jobs', jobs - 1, 'at', string.format('%.6f', now))
  redis.call('EXPIRE', KEYS[1], math.ceil(burst / rate) + 60)
end
return {{'ok'}}
"""


def admit_keys(caller: str) -> list[str]:
    """The KEYS of ADMIT."""
    return [keys.rate(caller), keys.open_jobs(caller)]


def admit_arguments(limits: TenantLimits, id_: UUID, left: float = 0.0) -> list[str | int | float]:
    """The ARGV of ADMIT."""
    return [limits.requests_per_s, limits.burst, limits.open_jobs, str(id_), left]


def ended_commands(ended: Mapping[str, Sequence[UUID]]) -> list[Command]:
    """What takes jobs, by caller, out of those that are open."""
    return [("ZREM", keys.open_jobs(caller), *map(str, ids)) for caller, ids in ended.items() if ids]
